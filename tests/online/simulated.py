"""An agent that is played through the door: a recipe in, what ``simulate --json`` prints out."""

import json
from pathlib import Path
from typing import Any

import pytest

import reticent

RIVER = {"name": "riverswim_homogeneous", "states": 3}
PLANT = {"name": "lq", "instance": 1}
GAME = {"name": "random", "states": 2, "actions": 2, "horizon": 3, "successors": 2, "seed": 5}
LARGE = {"name": "random", "states": 5, "actions": 3, "horizon": 5, "successors": 5}


@pytest.fixture
def simulate(tmp_path, unread):
    """Of an agent, a world, and what else a recipe says; ``run`` is opened, ``agents`` what is reported of each."""
    made = iter(range(100))

    def played(agent: str, world: Any = RIVER, *, epsilon=None, calibration="tight", beside=(), **more: Any):
        runs = {key: more.pop(key, usual) for key, usual in (("episodes", 2000), ("runs", 1), ("seed", 0))}
        privacy = {"epsilon": epsilon, "delta": 1e-5, "calibration": calibration}
        tables = {"recipe": {"name": "played", "agent": agent}, "world": world, "runs": runs, "agent": more}
        tables |= {} if epsilon is None else {"privacy": privacy}
        text = f"baselines = {json.dumps(list(beside))}\n"
        for name, values in tables.items():
            text += f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        (tmp_path / "recipe.toml").write_text(text)
        # runs of a home are found again
        store = reticent.Store(tmp_path / f"home_{next(made)}")
        said = reticent.simulate(tmp_path / "recipe.toml", store=store)
        told = json.loads((Path(said["folder"]) / "report.json").read_text(encoding="utf-8"))["simulation"]
        return said | {"run": store.open(said["run"]), "agents": {one["agent"]: one for one in told["agents"]}}

    return played


def lost(said: dict[str, Any], agent: str) -> float:
    return said["agents"][agent]["regret"]["mean"]
