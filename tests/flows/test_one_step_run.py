"""The one-step agent from a log to a verified run: both dynamics, both agents, replay, wrong recipes."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.audits.attack import Silence
from pipeline.learners.one_step_learning import OneStepLearner, learn_step, next_question
from pipeline.learners.terms import Privacy, Terms
from pipeline.logs.target_sums import add_targets
from pipeline.worlds.simulated_logs import sample_people
from pipeline.worlds.surrogate import draw_surrogate
from reticent import CardError, load_card
from tests.flows.verb import answer, invoke

CARD = """schema_version = 1
name = "walk"
kind = "synthetic"
[unit]
user = "user_id"
users_public = 3000
[domain]
horizon = 4
dynamics = "{dynamics}"
[domain.states]
column = "state"
features = "states.parquet"
ends = ["well", "ill"]
[domain.actions]
column = "action"
labels = 3
[reward]
range = [0.0, 1.0]
total = 1.0
on_entering = {{ well = 1.0 }}
[source]
files = ["log.parquet"]
columns = {{ user_id = "user_id", episode_id = "episode_id", step = "step", next_state = "next_state" }}
[budget]
rho = 10.0
"""
RECIPE = '[recipe]\nname = "{name}"\ncard = "card.toml"\nagent = "{agent}"\n'


def log(folder, people=3000, seed=1):
    """Six states of one number; action 1 cures more often the higher it is, action 2 never does."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(people):
        state = int(rng.integers(6))
        for step in range(4):
            action = int(rng.choice(3, p=[0.5, 0.3, 0.2]))
            chance = 0.15 + 0.08 * state * (action == 1) - 0.1 * (action == 2)
            over = rng.random() < 0.5
            after = ("well" if rng.random() < chance * 2 else "ill") if over else str(int(rng.integers(6)))
            rows.append((user, 0, step, str(state), action, after))
            if over:
                break
            state = int(after)
    names = ("user_id", "episode_id", "step", "state", "action", "next_state")
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), folder / "log.parquet")


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    log(folder := tmp_path_factory.mktemp("logged"))
    return folder / "log.parquet"


@pytest.fixture
def shelf(logged, tmp_path):
    shutil.copy(logged, tmp_path)
    table = {"state": [str(s) for s in range(6)], "severity": [float(s) for s in range(6)]}
    pq.write_table(pa.table(table), tmp_path / "states.parquet")

    def write(dynamics="stationary", agent="dp-one-step", more="[privacy]\nrho = 2.0\n"):
        (tmp_path / "card.toml").write_text(CARD.format(dynamics=dynamics))
        recipe = tmp_path / f"{agent}.toml"
        recipe.write_text(RECIPE.format(name=agent.replace("-", "_"), agent=agent) + more)
        return recipe

    return write


@pytest.mark.parametrize("dynamics", ["stationary", "per_step"])
def test_a_run_is_released_in_two_stages_replayed_and_verified(shelf, tmp_path, dynamics):
    recipe, home = shelf(dynamics), tmp_path / "home"
    answer(home, "ingest", tmp_path / "card.toml")
    planned = answer(home, "plan", "--no-quality", recipe)
    assert [m["table"] if "table" in m else m["name"] for m in planned["mechanisms"]]
    assert 1.99 < planned["rho"] <= 2.0
    first = answer(home, "run", recipe)
    again = answer(home, "run", recipe)
    assert again["ledger"]["spent_rho"] == first["ledger"]["spent_rho"] == pytest.approx(2, abs=0.01)
    folder = home / "runs" / first["run"]
    released = pq.read_table(folder / "release.parquet")
    assert released.column_names == ["table", "step", "state", "action", "count", "sum", "value"]
    steps = 4 if dynamics == "per_step" else 1
    assert released["table"].to_pylist().count("q") == steps * 18
    labels = json.loads((folder / "policy.json").read_text())
    assert labels["elsewhere"] == "current practice"
    rows = pq.read_table(folder / "policy.parquet").to_pylist()
    assert rows and all(r["probability"] == 1 for r in rows)
    if dynamics == "stationary":
        # whoever is severe gains by the cure, at every step
        assert {r["action"] for r in rows if r["state"] >= 3} == {1}
    done = invoke("--home", home, "ledger", "verify", first["run"], "--card", tmp_path / "card.toml")
    assert done.exit_code == 0, done.output
    assert "joint loss" in done.output
    asked = answer(home, "policy", "act", first["run"], "--state", "5", "--step", "0")
    assert "1" in json.dumps(asked)
    page = (folder / "report.html").read_bytes()
    answer(home, "report", first["run"])
    assert (folder / "report.html").read_bytes() == page


def test_without_noise_both_agents_release_and_learn_the_same(shelf, tmp_path):
    shelf()
    card = load_card(tmp_path / "card.toml")
    rng = np.random.default_rng(3)
    mdp = draw_surrogate(card, rng)
    people = sample_people(card, mdp, np.full(mdp.shape, 1 / 3), 2000, rng)
    private = Terms("r", "dp-one-step", Privacy(rho=1.0))
    exact = Terms("r", "one-step")
    learnt = []
    for terms in (private, exact):
        plan = OneStepLearner().plan(card, terms).plan
        baseline = OneStepLearner().plan(card, exact).plan

        def answer(stage, asked, plan=plan, baseline=baseline):
            drawn = plan.stages[stage].draw(add_targets(plan, asked, people), Silence())
            # what was drawn, seen as the tables without noise that it is
            return baseline.stages[stage].draw(add_targets(plan, asked, people), Silence()), drawn

        first, drawn = answer("v", None)
        for name, table in drawn.tables.items():
            np.testing.assert_array_equal(table, first.tables[name])
        asked = next_question(baseline, first)
        second, drawn = answer("q", asked)
        for name, table in drawn.tables.items():
            np.testing.assert_array_equal(table, second.tables[name])
        learnt.append(learn_step(baseline, exact, baseline.joined((first, second), asked)))
    assert (learnt[0].policy.probabilities == learnt[1].policy.probabilities).all()
    np.testing.assert_array_equal(learnt[0].found.advantage, learnt[1].found.advantage)


@pytest.mark.parametrize(
    ("agent", "more", "word"),
    [
        ("dp-one-step", "[privacy]\nepsilon = 1.0\n", "Gaussian"),
        ("dp-one-step", "[privacy]\nrho = 1.0\ncalibration = 'paper'\nrelease = 'two_tables'\n", "one release"),
        ("dp-apvi", "[privacy]\nrho = 1.0\n[one_step]\nfloor = 0.1\n", "belongs to dp-one-step and one-step"),
        ("dp-one-step", "[privacy]\nrho = 1.0\n[one_step]\nfloor = 1.5\n", "floor"),
        ("one-step", "[privacy]\nrho = 1.0\n", "dp-one-step"),
    ],
)
def test_a_wrong_recipe_is_refused_with_the_line(shelf, tmp_path, agent, more, word):
    recipe = shelf(agent=agent, more=more)
    done = invoke("--home", tmp_path / "home", "plan", recipe)
    assert isinstance(done.exception, CardError)
    assert word in str(done.exception)


def test_a_pooled_walk_without_ends_is_refused(shelf, tmp_path):
    recipe = shelf()
    card = (tmp_path / "card.toml").read_text().replace('ends = ["well", "ill"]', "").replace("{ well =", '{ "1" =')
    (tmp_path / "card.toml").write_text(card)
    done = invoke("--home", tmp_path / "home", "plan", recipe)
    assert isinstance(done.exception, CardError)
    assert "per_step" in str(done.exception)
