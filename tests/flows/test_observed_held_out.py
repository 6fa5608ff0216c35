"""A linear policy on observations that other people measure: one charge, two stages, a replay, an audit."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.config.recipe import Setting
from pipeline.audits.attack import attack
from pipeline.privacy.noise import FastOsNoise
from pipeline.privacy.release_file import read_release
from pipeline.statistics.held_out import held_out_loss
from pipeline.statistics.linear_plan import declared_map
from reticent import CardError, Store, load_card, load_recipe, run
from tests.flows.observed import cartpole, lay_out, write_log
from tests.jobs import home_at, ingest_job, plan_job, proof_of, run_job

pytestmark = pytest.mark.usefixtures("unread")

# one number decides who is treated and how they fare, both around one value; what is done changes nothing
PEAK = """
schema_version = 2
name = "peak"
[unit]
user = "id"
users_public = 40000
[domain]
horizon = 1
states = { ends = ["end"] }
actions = { column = "treated", labels = ["no", "yes"] }
practice = "recorded"
[domain.observation]
columns = ["level"]
scale = [1.0]
radius = 2.0
[reward]
range = [0.0, 1.0]
[features]
kind = "fourier"
waves = 4
bandwidth = 1.0
seed = 0
[source]
files = ["log.parquet"]
columns = { user_id = "id", reward = "well" }
[tolerance]
[budget]
rho = 4.0
ledger = "ledger.db"
"""
# steps are alike, and no column names the next state
ALIKE = """
schema_version = 2
name = "alike"
[unit]
user = "u"
users_public = 20000
[domain]
horizon = 2
dynamics = "stationary"
states = {{ {state}ends = ["end"] }}
actions = {{ column = "a", labels = 2 }}
{observed}
[reward]
range = [0.0, 1.0]
[features]
kind = "{features}"
[source]
files = ["log.parquet"]
columns = {{ user_id = "u", episode_id = "u", step = "t", reward = "y" }}
[tolerance]
[budget]
rho = 4.0
ledger = "ledger.db"
"""
SEEN = '[domain.observation]\ncolumns = ["x"]\nscale = [1.0]\nradius = 1.0\n'
PEOPLE, STEPS = 3000, 5
HELD = "[evaluate]\npeople = 0.3\n"
AGENTS = {
    "adaptive": ("dp-vapvi", f"[privacy]\nrho = 4.0\n{HELD}"),
    "once": ("dp-one-shot", f"[privacy]\nrho = 4.0\n{HELD}"),
    "bare": ("vapvi", HELD),
    "halves": ("dp-vapvi", f"[privacy]\nrho = 4.0\n[linear]\nhalves = true\n{HELD}"),
}


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    root = tmp_path_factory.mktemp("judged")
    shop, home = lay_out(root / "shop", cartpole(PEOPLE, STEPS, "affine"), AGENTS), home_at(root / "home")
    write_log(shop, PEOPLE, STEPS)
    ingest_job(str(shop), home)
    return shop, home, {name: run_job(str(shop / f"{name}.toml"), home) for name in AGENTS if name != "halves"}


def report(run):
    return json.loads((Path(run["folder"]) / "report.json").read_text())


@pytest.mark.parametrize("name", ["adaptive", "once", "bare"])
def test_other_people_say_what_the_policy_is_worth(pole, name):
    found = report(pole[2][name])["evaluation"]
    assert found["estimator"] == "observed-dr"
    assert found["practice"]["lower"] <= STEPS <= found["practice"]["upper"] + 1
    assert abs(found["misfit"]) < 20 and "placebo" in found and found["placebo"] is None
    assert found["calibrated"] is False, "900 people who judge are too few"


@pytest.mark.parametrize("name", ["adaptive", "once", "bare"])
def test_an_honest_run_passes_every_check(pole, name):
    shop, _, runs = pole
    checks = proof_of(Path(runs[name]["folder"]), shop).checks
    assert not [c for c in checks if not c.ok]


@pytest.mark.parametrize("name", ["adaptive", "once"])
def test_what_both_parts_cost_is_computed_again_and_a_replay_is_free(pole, name):
    shop, home, runs = pole
    folder = Path(runs[name]["folder"])
    release, labels = read_release(folder), json.loads((folder / "policy.json").read_text())
    assert release.joint_rho is not None and release.joint is not None
    again = held_out_loss(release.mechanisms, release.joint, declared_map(labels["features"]))
    assert Fraction(99, 100) * 4 < again <= release.joint_rho <= 4
    assert plan_job(str(shop / f"{name}.toml"), home)["rho"] == pytest.approx(4.0, rel=0.01)
    replayed = run_job(str(shop / f"{name}.toml"), home)
    assert replayed["run"] == runs[name]["run"]
    assert replayed["ledger"]["spent_rho"] <= 8.0


def test_an_audit_attacks_both_stages_and_finds_a_quarter_of_the_noise(pole):
    shop, home, _ = pole
    card, recipe = load_card(shop / "card.toml"), load_recipe(shop / "once.toml")
    moved, scored = Setting(recipe, card, home).plan.evaluation.targets(FastOsNoise())
    assert "moments of observed features" in moved.mechanism and "scores of people" in scored.mechanism
    sound = attack(moved, FastOsNoise(), 400)
    assert not sound.violates and sound.lower_bound_rho < sound.claimed_rho

    def quiet(side, noise, copies):
        drawn = moved.path(side, noise, copies)
        return [means[side] + (table - means[side]) / 4 for table, means in zip(drawn, both, strict=True)]

    both = list(zip(*moved.means, strict=True))
    assert attack(replace(moved, path=quiet), FastOsNoise(), 400).violates


def test_halves_are_refused_before_anything_is_charged(pole):
    shop, home, _ = pole
    with pytest.raises(CardError, match="splits people as well"):
        run_job(str(shop / "halves.toml"), home)


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_better_rests_on_features_where_outcomes_bend_unseen(tmp_path):
    """Where nothing shows, the check speaks in three runs of a hundred: its chance is settled."""
    g, people = np.random.default_rng(1), 40_000
    level = g.normal(scale=0.5, size=people)
    treated = g.random(people) < np.where(abs(level) < 0.3, 0.9, 0.1)
    well = g.random(people) < 0.3 + 0.5 * np.exp(-4 * level**2)
    log = {"id": range(people), "level": level, "treated": np.where(treated, "yes", "no"), "well": well * 1.0}
    folder = lay_out(tmp_path, PEAK, {"peak": ("dp-vapvi", f"[privacy]\nrho = 1.0\n{HELD}")})
    pl.DataFrame(log).write_parquet(folder / "log.parquet")
    store = Store(tmp_path / "home")
    store.register(folder / "card.toml")
    store.ingest(folder / "card.toml")
    verdict = run(folder / "peak.toml", store=store).verdict
    # nothing is better: the check of what features leave out is silent here
    assert verdict.answer == "better" and not verdict.holds
    assert verdict.conditions == ["the declared features describe the values"]


@pytest.mark.parametrize("observed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_last_step_counts_where_steps_are_alike_and_no_column_names_the_next_state(
    tmp_path: Path, observed: bool
) -> None:
    g, people = np.random.default_rng(1), 20_000
    log = []
    for t in range(2):
        x, a = g.choice([-1.0, 1.0], people), g.integers(0, 2, people)
        paid = g.random(people) < 0.5 + 0.25 * x * (2 * a - 1)
        state = np.where(x < 0, "low", "high")
        log.append(pl.DataFrame({"u": range(people), "t": t, "x": x, "s": state, "a": a, "y": paid * 1.0}))
    pl.concat(log).write_parquet(tmp_path / "log.parquet")
    state, features = ("", "affine") if observed else ('column = "s", labels = ["low", "high"], ', "one_hot")
    seen = SEEN if observed else ""
    (tmp_path / "card.toml").write_text(ALIKE.format(state=state, features=features, observed=seen))
    text = '[recipe]\nname = "alike"\ncard = "card.toml"\nagent = "dp-vapvi"\n[privacy]\nrho = 1.0\n'
    (tmp_path / "alike.toml").write_text(text + "[evaluate]\npeople = 0.5\n")
    store = Store(tmp_path / "home")
    store.register(tmp_path / "card.toml")
    store.ingest(tmp_path / "card.toml")
    verdict = run(tmp_path / "alike.toml", store=store).verdict
    # each of two steps gains a quarter
    assert verdict is not None and verdict.answer == "better", verdict
    assert verdict.improvement is not None and verdict.improvement.lower > 0.35
