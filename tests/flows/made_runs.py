"""Folders of runs that nobody made, as far as the verbs of policies and pointers look."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.facts.promise import declared
from pipeline.files import json_text
from pipeline.learners.policy_files import decision_files
from pipeline.mdp.policy import Policy
from pipeline.privacy.release_file import file_of, sha256_file
from reticent import Card
from tests.conftest import card_dict
from tests.reports.sample import sample_facts

STATES = ["=1+1", "two,lines", 'a "quote", a comma']
ACTIONS = ["@go", "-3", "plain", " ＝x"]


def card(horizon: int = 2, actions: Any = ACTIONS, **states: Any) -> Card:
    """A card whose labels a spreadsheet would evaluate; ``states`` as a card has them."""
    domain = {"horizon": horizon, "actions": {"column": "action", "labels": actions}}
    domain["states"] = {"column": "state", "labels": STATES, "ends": ["over"]} | states
    return Card.model_validate(card_dict(domain=domain if states else domain | {"vetoes": [["=1+1", "plain"]]}))


def _write(folder: Path, made: Card, policy: Policy, told: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    decision_files(made, policy).write(folder)
    (folder / "report.json").write_text(json_text(told), encoding="utf-8")
    return folder


def lay_out(folder: Path, made: Card, p: Any = None, tied: Any = ((1, 0),)) -> Path:
    """A run's folder with its certificate.

    ``p``: probabilities ``(H, S, A)``, zero where practice goes on; None: of four actions, one state keeps practice,
    and one has two.
    """
    if p is None:
        p = np.zeros((2, len(made.domain.live_states), 4))
        p[:, :, 0] = 1
        p[1, -1] = [1 / 3, 2 / 3, 0, 0]
        p[0, 0] = 0
    abstains = ~p.any(-1)
    # what a planner leaves there is written nowhere
    p[abstains] = 1 / p.shape[-1]
    told = {"schema_version": 1, "policy": {"tied": tied}, "guarantee": {"sentence": "Nobody, “truly”; =2"}}
    _write(folder, made, Policy(p, abstains), told)
    files = {kind: sha256_file(folder / file_of(kind)) for kind in ("policy", "labels")}
    (folder / "certificate.json").write_text(json_text({"dataset": made.name, "sha256": files}), encoding="utf-8")
    return folder


def table_of(folder: Path, told: dict[str, Any], p: Any) -> Path:
    """A run's folder with a whole report of a table of decisions; ``p`` as :func:`lay_out` has it."""
    data, p = told["dataset"], np.asarray(p, dtype=np.float64)
    labels = {"column": "state", "labels": data["live_states"], "ends": ["over"]}
    domain = {"horizon": len(p), "states": labels, "actions": {"column": "action", "labels": data["actions"]}}
    return _write(folder, Card.model_validate(card_dict(domain=domain)), Policy(p, ~p.any(-1)), told)


def publish(runs: Path, name: str, action: int, lower: float) -> Path:
    """A run's folder with a whole report, which does one thing in one state."""
    made = card()
    p = np.zeros((2, len(made.domain.live_states), 4))
    p[..., 0] = 1
    p[1, 0] = np.eye(4)[action]
    facts = sample_facts(value={"lower": lower, "upper": 2.0}, policy={"tied": []})
    told = {"run": name, "dataset": declared(made, 1).model_dump(), "ledger": None}
    return _write(runs / name, made, Policy(p, np.zeros(p.shape[:2], dtype=bool)), facts | told)


def as_version_0_1(folder: Path, step: int, state: int, actions: list[int]) -> None:
    """Where practice goes on, a folder of that version lists the cell and holds a stand-in."""
    labels, table = json.loads((folder / "policy.json").read_text()), pq.read_table(folder / "policy.parquet")
    del labels["elsewhere"]
    (folder / "policy.json").write_text(json.dumps(labels | {"abstains": [[step, state]]}))
    more = {"step": step, "state": state, "probability": 1 / len(actions)}
    rows = table.to_pylist() + [more | {"action": a} for a in actions]
    pq.write_table(pa.Table.from_pylist(rows, table.schema), folder / "policy.parquet")
