"""Nights that learn: an outside system plays tonight's policy, and what it logs is tomorrow's batch of one counter."""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.facts.report import read_report
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.worlds.catalog import riverswim_homogeneous
from pipeline.worlds.simulated_logs import sample_log
from tests.flows.test_played_runs import call

pytestmark = pytest.mark.usefixtures("unread")

FIRST = date(2026, 1, 1)
STATES, HORIZON = 5, 10
# variances are whole numbers, so that a little of the budget is left
ONCE = pytest.approx(1.0, abs=1e-9)
CARD = f"""
schema_version = 1
name = "river"
kind = "synthetic"
[unit]
user = "user"
users_public = 10000
[domain]
horizon = {HORIZON}
states = {{ column = "state", labels = {STATES} }}
actions = {{ column = "action", labels = {{ left = [0], right = [1] }} }}
[reward]
range = [0.0, 0.1]
[source]
files = ["tonight.parquet"]
[source.columns]
user_id = "user"
episode_id = "episode"
step = "step"
reward = "reward"
next_state = "next_state"
[budget]
rho = 1.0
"""
# what is shipped, over the card above
RECIPE = (Path(__file__).parents[2] / "flows" / "recipes" / "riverswim_nights.toml").read_text(encoding="utf-8")


class Outside:
    """A river that follows whatever policy is in use, and logs it; ``reticent`` is all that it knows of the program."""

    def __init__(self, folder: Path, reticent: Callable[..., dict[str, Any]], people: int) -> None:
        self.folder, self.reticent, self.people = folder, reticent, people
        self.world, self.rng = riverswim_homogeneous(STATES), np.random.default_rng(7)
        self.mdp, self.losses = self.world.mdp(HORIZON), list[float]()
        self.best = float(self.mdp.start @ optimal_values(self.mdp)[1][0])
        folder.mkdir()
        (folder / "card.toml").write_text(CARD)
        for name, agent in (("explore", "dp-ucbvi"), ("keep", "dp-apvi")):
            own = RECIPE.replace('"riverswim"', '"card.toml"').replace("riverswim_nights", name)
            (folder / f"{name}.toml").write_text(own.replace("dp-ucbvi", agent))

    def policy(self, run: str) -> np.ndarray:
        """What the export of a run says ``(H, S, A)``."""
        found, to = np.zeros(self.mdp.shape), self.folder / "policy.csv"
        self.reticent("policy", "export", run, "--to", to, "--force")
        with to.open(newline="") as file:
            for row in csv.DictReader(file):
                a = ("left", "right").index(row["action"]) if row["action"] else slice(None)
                found[int(row["step"]), int(row["state"]), a] = float(row["probability"] or 0.5)
        return found

    def night(self, k: int) -> dict[str, Any]:
        """Log night ``k`` under the policy in use, then let the program have its night."""
        p = np.full(self.mdp.shape, 0.5) if k == 1 else self.policy("current")
        self.losses.append(self.best - policy_value(self.mdp, p))
        rows = sample_log(self.world, p, HORIZON, self.people, self.rng)
        columns = ("step", "state", "action", "reward", "next_state")
        log = {"user": [f"{k}-{u}" for u in rows.user], "episode": rows.user, **{c: getattr(rows, c) for c in columns}}
        pl.DataFrame(log).write_parquet(self.folder / "tonight.parquet")
        return self.reticent("nightly", self.folder / "explore.toml", "--night", FIRST + timedelta(days=k - 1))

    def kept(self, day: date) -> tuple[float, float]:
        """Loss of what the cautious recipe emits on the same counter, and what is spent after it."""
        found = self.reticent("run", self.folder / "keep.toml", "--night", day)
        return self.best - policy_value(self.mdp, self.policy(found["run"])), found["ledger"]["spent_rho"]


def test_a_night_explores_what_no_night_has_seen_and_costs_nothing_more(tmp_path):
    home = tmp_path / "home"
    outside = Outside(tmp_path / "river", lambda *words: call(home, *words), people=1000)
    first = outside.night(1)
    assert first["promotion"]["promoted"] and first["ledger"]["spent_rho"] == ONCE
    # it never abstains: where nothing is known it tries
    assert outside.policy("current").sum(-1) == pytest.approx(np.ones((HORIZON, STATES)))
    assert read_report(Path(first["folder"])).policy.abstain_share == 0.0
    second = outside.night(2)
    assert second["run"] != first["run"] and second["ledger"]["spent_rho"] == ONCE
    # pessimism on the same counter is post-processing: another policy, and no charge
    lost, spent = outside.kept(FIRST + timedelta(days=1))
    assert spent == ONCE and lost >= 0


@pytest.mark.slow
def test_ten_nights_learn_under_one_budget(tmp_path):
    home = tmp_path / "home"
    outside = Outside(tmp_path / "river", lambda *words: call(home, *words), people=1000)
    nights = [outside.night(k) for k in range(1, 11)]
    assert [n["ledger"]["spent_rho"] for n in nights] == [ONCE] * 10
    assert all(n["promotion"]["promoted"] for n in nights)
    # uniform choice loses .088 an episode of .091; the last nights lose next to nothing
    assert np.mean(outside.losses[7:]) < 0.2 * outside.losses[0]
    lost, spent = outside.kept(FIRST + timedelta(days=9))
    assert spent == ONCE and lost < 0.2 * outside.losses[0]
