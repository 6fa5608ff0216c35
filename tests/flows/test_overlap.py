"""No verdict of a policy that practice hardly ever follows: its value is what the model overestimates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reticent import Store, run

pytestmark = pytest.mark.usefixtures("settled")
PEOPLE = 60_000
CARD = """
schema_version = 2
name = "seldom"
[unit]
user = "person"
users_public = 60000
[domain]
horizon = 2
states = { column = "state", labels = 3, ends = ["end"] }
actions = { column = "action", labels = ACTIONS }
[reward]
range = [0.0, 1.0]
[source]
files = ["log.parquet"]
columns = { user_id = "person", episode_id = "person", step = "step", reward = "paid" }
[budget]
rho = 4.0
ledger = "ledger.db"
"""
RECIPE = """
[recipe]
name = "seldom"
card = "card.toml"
agent = "dp-apvi"
[privacy]
rho = 3.0
[evaluate]
people = 0.3
"""


def verdict(folder: Path, actions: int, rare: float) -> tuple[str, str, str]:
    """Answer, reason and advice of a run on people whose outcomes are coins; all actions but one are ``rare``."""
    rng = np.random.default_rng(3)
    chance = np.full(actions, rare)
    chance[0] = 1 - rare * (actions - 1)
    size = PEOPLE, 2
    columns = {
        "person": np.repeat(np.arange(PEOPLE), 2),
        "step": np.tile([0, 1], PEOPLE),
        "state": rng.integers(3, size=size).ravel(),
        "action": rng.choice(actions, p=chance, size=size).ravel(),
        "paid": (rng.random(size) < 0.5).astype(float).ravel(),
    }
    pl.DataFrame(columns).write_parquet(folder / "log.parquet")
    (folder / "card.toml").write_text(CARD.replace("ACTIONS", str(actions)))
    (folder / "recipe.toml").write_text(RECIPE)
    store = Store(folder / "home")
    store.register(folder / "card.toml")
    store.ingest(folder / "card.toml")
    made = run(folder / "recipe.toml", store=store)
    return made.verdict.answer, made.verdict.why, (folder / "home" / "runs" / made.name / "report.md").read_text()


def test_what_practice_seldom_does_is_not_called_better(tmp_path: Path) -> None:
    """It said "better by 0.1 to 0.3" of actions that do nothing: weights of the few who took them are cut."""
    answer, why, page = verdict(tmp_path, 60, 0.004)
    assert answer == "withheld" and "not measured" in why
    assert "Practice seldom does what the policy advises" in page


def test_what_practice_often_does_keeps_its_verdict(tmp_path: Path) -> None:
    assert verdict(tmp_path, 10, 0.1)[0] == "not_told_apart"


@pytest.mark.slow
def test_on_observations_rare_actions_are_not_called_measured(tmp_path: Path) -> None:
    """Of actions in 1 or 2 % of the rows, intervals missed in up to half of the runs of several steps."""
    people, rng = 30_000, np.random.default_rng(4)
    x, rare = rng.uniform(-0.7, 0.7, size=(people, 2)), rng.random(people) < 0.01
    paid = (rng.random(people) < 0.5 + 0.4 * x[:, 0] * np.where(rare, 1, -1)).astype(float)
    log = {"person": range(people), "x": x[:, 0], "y": x[:, 1], "action": rare.astype(int), "paid": paid}
    pl.DataFrame(log).write_parquet(tmp_path / "log.parquet")
    card = CARD.replace("users_public = 60000", f"users_public = {people}").replace("horizon = 2", "horizon = 1")
    card = card.replace('{ column = "state", labels = 3, ends = ["end"] }', '{ ends = ["end"] }')
    card = card.replace("labels = ACTIONS }", 'labels = 2 }\nobservation = { columns = ["x", "y"], radius = 1.0 }')
    card = card.replace(', episode_id = "person", step = "step"', "") + '[features]\nkind = "affine"\n'
    (tmp_path / "card.toml").write_text(card)
    (tmp_path / "recipe.toml").write_text(RECIPE.replace("dp-apvi", "dp-one-shot").replace("0.3", "0.5"))
    store = Store(tmp_path / "home")
    store.register(tmp_path / "card.toml")
    store.ingest(tmp_path / "card.toml")
    made = run(tmp_path / "recipe.toml", store=store)
    assert made.verdict.answer == "withheld" and "not measured" in made.verdict.why
    page = (tmp_path / "home" / "runs" / made.name / "report.md").read_text()
    assert "the mean square of the weights of a step is" in page
