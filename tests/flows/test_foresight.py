"""The quality that ``plan`` foresees: from declarations alone, repeatable, and worse with more noise."""

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.config.home import Home
from flows.config.recipe import setting
from flows.jobs.plan import SHIPPED, code_of, forecast_key
from pipeline.declaration.card import task_of
from pipeline.learners import tabular
from pipeline.mdp.planning import optimal_values, optimum
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.worlds.surrogate import draw_surrogate
from pipeline.worlds.world import barred
from reticent import Card, load_card
from tests.flows.shop import bare_recipe, change, lay_out, write_recipe
from tests.flows.verb import answer, invoke, told
from tests.jobs import foresee_job, home_at

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "datasets"
STEP = "[privacy]\nrho = 1.0\n"
WORLD = '[evaluate]\nworld = "riverswim"\nbehaviour = "right-0.8"\n'


def recipe(folder: Path, name: str, agent: str = "dp-apvi", more: str = STEP) -> str:
    return str(bare_recipe(folder, name, agent, more, card="riverswim"))


def test_the_band_repeats_itself_is_kept_and_orders_its_ends(tmp_path, few):
    asked = recipe(tmp_path, "one")
    first = foresee_job(asked, home_at(tmp_path / "a"))
    again, elsewhere = foresee_job(asked, home_at(tmp_path / "a")), foresee_job(asked, home_at(tmp_path / "b"))
    assert (first["cached"], again["cached"], elsewhere["cached"]) == (False, True, False)
    for other in (again, elsewhere):
        assert {k: v for k, v in other.items() if k != "cached"} == {k: v for k, v in first.items() if k != "cached"}
    s = first["suboptimality"]
    assert 0 <= s["low"] <= s["mean"] and s["low"] <= s["high"] and first["episodes"] == 50_000
    assert first["share"] == pytest.approx(s["mean"] / first["reference"]["suboptimality"])
    assert "not a promise" in first["is_not"] and not first["declared"]


def test_a_home_that_is_only_looked_at_may_be_read_only(tmp_path, few, monkeypatch):
    home = home_at(tmp_path / "home")
    assert home.store.is_dir()

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("chmod", "mkdir"):
        monkeypatch.setattr(Path, name, refused)
    assert home.store.stat().st_mode & 0o777 == 0o700
    assert foresee_job(recipe(tmp_path, "one"), home)["suboptimality"] is not None
    assert not (home.root / "foresight").exists()


@pytest.mark.digests
def test_the_shipped_forecasts_are_of_this_code_and_stand_while_it_does_the_same(tmp_path, constants):
    told = json.loads(SHIPPED.read_text())
    stale = [name for name, digests in told["code"].items() if code_of(name).split()[1:] != digests.split()[1:]]
    assert not stale, "`make forecasts` simulates them anew"
    altered = tmp_path / "forecasts.json"
    constants(shipped=altered)
    simulated = foresee_job("two_step_adults", home_at(tmp_path / "none"))
    one = "pipeline.worlds.surrogate"
    # of another text and the same syntax, and of another syntax
    for digests, found in ((f"other {told['code'][one].split()[1]}", True), ("other other", False)):
        altered.write_text(json.dumps(told | {"code": told["code"] | {one: digests}}))
        again = foresee_job("two_step_adults", home_at(tmp_path / str(found)))
        assert again == simulated | {"cached": found} and not simulated["cached"]


def test_a_world_of_other_parameters_beside_the_card_is_another_forecast(tmp_path):
    folder, home = shutil.copytree(DATA / "riverswim", tmp_path / "river"), home_at(tmp_path / "home")
    asked = recipe(tmp_path, "one", more=STEP + WORLD)
    change(Path(asked), 'card = "riverswim"', f'card = "{folder / "card.toml"}"')
    keys = set[str]()
    for left in (None, 0.005, 0.9):
        if left is not None:
            (folder / "world.toml").write_text(f'name = "riverswim"\n\n[params]\nleft_reward = {left}\n')
        keys.add(forecast_key(setting(asked, home), 1_000, 3))
    assert len(keys) == 3


def test_more_noise_is_worse_and_more_people_are_better(tmp_path, few):
    home = home_at(tmp_path / "home")
    mean = []
    for rho in (0.001, 0.1, 10.0):
        asked = recipe(tmp_path, f"rho{rho:g}".replace(".", "_"), more=f"[privacy]\nrho = {rho}\n{WORLD}")
        mean.append(foresee_job(asked, home)["suboptimality"]["mean"])
    assert mean[0] > 3 * mean[1] > 3 * mean[2]
    asked = recipe(tmp_path, "people", more=f"[privacy]\nrho = 0.1\n{WORLD}")
    few, many = (foresee_job(asked, home, people=n) for n in (1_000, 1_000_000))
    assert few["episodes"] == 1_000 and few["suboptimality"]["mean"] > 3 * many["suboptimality"]["mean"]


def test_noise_does_not_beat_its_absence_and_no_noise_is_the_same_run(tmp_path, few):
    home = home_at(tmp_path / "home")
    private = foresee_job(recipe(tmp_path, "private", more=f"[privacy]\nrho = 0.05\n{WORLD}"), home)
    assert private["suboptimality"]["mean"] > private["without_noise"]["mean"]
    exact = foresee_job(recipe(tmp_path, "exact", "apvi", WORLD), home)
    assert exact["suboptimality"] == exact["without_noise"] == private["without_noise"]


def test_a_twin_that_forgets_the_noise_is_seen(tmp_path, few, monkeypatch):
    home, more = home_at(tmp_path / "home"), f"[privacy]\nrho = 0.01\n{WORLD}"
    honest = foresee_job(recipe(tmp_path, "loud", more=more), home)
    silenced = lambda card, terms: count_sum(card, Ask(tables=terms.ask().tables))  # noqa: E731
    monkeypatch.setattr(tabular, "counts_privatizer", silenced)
    silent = foresee_job(recipe(tmp_path, "loud", more=more), home_at(tmp_path / "other"))
    assert silent["suboptimality"] == silent["without_noise"] != honest["suboptimality"]


@pytest.fixture(autouse=True)
def alone(request):
    """No rivals, except where a test asks about them or for what is shipped."""
    if "rivals" not in request.fixturenames and "shipped" not in request.node.name:
        request.getfixturevalue("no_rivals")


@pytest.mark.parametrize("agent", ["dp-vapvi", "dp-one-shot"])
def test_linear_agents_are_foreseen_on_one_hot_features(tmp_path, few, agent):
    found = foresee_job(recipe(tmp_path, agent, agent), home_at(tmp_path / "home"))
    assert found["suboptimality"]["mean"] < found["reference"]["suboptimality"]
    assert found["without_noise"]["mean"] <= found["suboptimality"]["mean"]


def test_lq_is_foreseen_in_its_declared_plant_only(tmp_path, few):
    found = foresee_job("double_integrator", home_at(tmp_path / "home"))
    assert found["reference"]["name"] == "no control" and 0 < found["share"] < 0.2
    assert found["without_noise"]["mean"] < found["suboptimality"]["mean"]
    text = (ROOT / "flows" / "recipes" / "double_integrator.toml").read_text().split("[evaluate]")[0]
    (tmp_path / "blind.toml").write_text(text)
    assert "no plant to simulate" in foresee_job(str(tmp_path / "blind.toml"), home_at(tmp_path / "home"))["reason"]


def test_what_cannot_be_simulated_says_why(tmp_path):
    home = home_at(tmp_path / "home")
    halves = "[privacy]\nrho = 1.0\n[linear]\nhalves = true\n"
    assert "halves" in foresee_job(recipe(tmp_path, "halves", "dp-vapvi", halves), home)["reason"]
    assert "not simulated" in foresee_job(recipe(tmp_path, "many"), home, people=10**13)["reason"]
    assert not (home.root / "foresight").exists()


def test_nothing_of_the_dataset_is_read(tmp_path, few, rivals, monkeypatch, request):
    def refuse(*args, **kwargs):
        raise AssertionError("a store, a ledger or a log was opened")

    for place in ("latest", "ledger_for", "open_ledger"):
        monkeypatch.setattr(f"flows.jobs.registration.{place}", refuse)
    monkeypatch.setattr(Home, "store", property(refuse))
    monkeypatch.setattr(Home, "ledger_of", refuse)
    for reads in ("scan_parquet", "read_parquet"):
        monkeypatch.setattr(f"polars.{reads}", refuse)
    # real people: not a row of theirs lies on the shelf, and the card is enough
    for name in ("riverswim", "riverswim_linear", "double_integrator", "two_step_adults"):
        found = foresee_job(name, home_at(tmp_path / "home"), people=200)
        assert found["suboptimality"], name
        # rivals of the first alone
        request.getfixturevalue("no_rivals")
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["foresight"]


def test_the_verb_shows_it_and_can_leave_it_out(tmp_path, few):
    home, plan = tmp_path / "home", ("plan", recipe(tmp_path, "shown"))
    told = answer(home, *plan, "--people", 2000)
    assert told["quality"]["episodes"] == 2000 and {"mechanisms", "rho", "allowed"} <= set(told)
    shown = invoke("--home", home, *plan).stdout
    assert "quality     suboptimality" in shown and "not a promise" in shown
    assert "quality" not in answer(home, *plan, "--no-quality")


@pytest.fixture
def icu() -> Card:
    return load_card(DATA / "icu_sepsis_uniform" / "card.toml")


def test_a_made_up_world_is_what_the_card_declares(icu):
    mdp = draw_surrogate(icu, np.random.default_rng(3))
    assert mdp.shape == (20, 7, 25) and (mdp.transitions == mdp.transitions[:1]).all()
    assert np.abs(mdp.transitions.sum(-1) - 1).max() < 1e-12 and (mdp.transitions[:, 4:, :, :4] == 0).all()
    assert mdp.rewards[:, 4:].max() == 0 and mdp.rewards.min() >= 0
    # a declared total: nobody can be paid more
    assert optimal_values(mdp)[1][0].max() <= icu.reward.total + 1e-12
    other = draw_surrogate(icu, np.random.default_rng(4))
    assert (other.transitions != mdp.transitions).any()
    per_step = draw_surrogate(load_card(DATA / "riverswim" / "card.toml"), np.random.default_rng(3))
    assert (per_step.transitions[0] != per_step.transitions[1]).any()


def test_the_best_policy_keeps_to_allowed_actions(icu):
    mdp, task = draw_surrogate(icu, np.random.default_rng(3)), task_of(icu)
    free = optimum(barred(mdp, task.allowed))
    assert free == pytest.approx(float(mdp.start @ optimal_values(mdp)[1][0]))
    assert optimum(barred(mdp, task.allowed & (np.arange(25) < 5))) < free


def test_a_nightly_counter_is_foreseen_with_the_noise_of_its_noisiest_night(tmp_path, few):
    once, home = f"[privacy]\nrho = 0.1\n{WORLD}", home_at(tmp_path / "home")
    nightly = once + "[nightly]\nnights = 300\nfirst = 2026-01-01\n"
    one, many = (foresee_job(recipe(tmp_path, "n", more=more), home) for more in (once, nightly))
    assert many["suboptimality"]["mean"] > one["suboptimality"]["mean"] and many["abstains"] >= one["abstains"]


def test_a_world_named_for_real_people_is_not_opened(tmp_path, few):
    known = '[evaluate]\nworld = "no_such_module:world"\nbehaviour = "uniform"\n'
    path = write_recipe(lay_out(tmp_path / "shop", kind="real"), "plain", more=known)
    found = foresee_job(str(path), home_at(tmp_path / "home"))
    assert found["suboptimality"]["mean"] > 0 and "no_such_module" not in str(found)


@pytest.mark.slow
def test_the_forecast_prefers_counts_where_one_step_is_worth_nothing(tmp_path, few, rivals):
    found = foresee_job(recipe(tmp_path, "step", "dp-one-step", STEP + WORLD), home_at(tmp_path / "home"), people=2_000)
    assert found["prefers"]["agent"] == "dp-apvi" and "by dp-one-step" in found["why"]
    assert found["prefers"]["suboptimality"] < 0.2 * found["suboptimality"]["mean"]
    agents = {r["agent"] for r in found["rivals"]}
    assert agents >= {"dp-apvi", "dp-vapvi"} and not agents & {"dp-lqr", "apvi", "one-step"}


@pytest.mark.slow
def test_one_table_is_proposed_where_the_declared_world_has_alike_steps_and_only_there(tmp_path, few, rivals):
    found = foresee_job(recipe(tmp_path, "known", more=STEP + WORLD), home_at(tmp_path / "home"), people=2_000)
    assert found["prefers"]["agent"] == "dp-apvi" and "dp-one-step" in {r["agent"] for r in found["rivals"]}
    assert 'dynamics = "stationary"' in found["proposes"]
    assert "stationary" in {r.get("dynamics") for r in found["rivals"]}
    blind = foresee_job(recipe(tmp_path, "blind"), home_at(tmp_path / "home"), people=2_000)
    assert "proposes" not in blind and {r.get("dynamics") for r in blind["rivals"]} == {None}


@pytest.mark.slow
def test_no_rival_of_a_counter_but_a_counter_and_of_a_baseline_no_private_one(tmp_path, few, rivals):
    nightly = STEP + WORLD + "[nightly]\nnights = 30\nfirst = 2026-01-01\n"
    found = foresee_job(recipe(tmp_path, "nights", more=nightly), home_at(tmp_path / "home"), people=2_000)
    assert {r["agent"] for r in found["rivals"]} == {"dp-apvi"}
    exact = foresee_job(recipe(tmp_path, "exact", "apvi", WORLD), home_at(tmp_path / "home"), people=2_000)
    assert not any(r["agent"].startswith("dp-") for r in exact["rivals"])


@pytest.mark.slow
def test_of_713_states_a_run_is_foreseen_and_counts_are_told_to_drown(tmp_path, rivals):
    found = foresee_job("demo", home_at(tmp_path / "home"))
    # runs gain .0375 over practice, which loses .1002 (tests/campaigns/results/one_step_budgets.csv)
    assert found["draws"] == 2 and found["suboptimality"]["mean"] == pytest.approx(0.0627, abs=0.012)
    assert found["prefers"]["agent"] == "dp-one-step" and "110 visits, with noise" in found["why"]


# practice never takes the last action, which pays best
_UNTRIED = """
import numpy as np
from pipeline.worlds.world import World, WorldFunction


@WorldFunction
def untried() -> World:
    return World(
        name="untried",
        transition=np.tile([[0.2, 0.5, 0.3], [0.3, 0.2, 0.5], [0.5, 0.3, 0.2]], (3, 1, 1)).swapaxes(0, 1),
        visit_reward=np.array([[0.0, 0.2, 0.5], [0.5, 0.3, 0.8], [0.6, 0.9, 1.0]]),
        entry_reward=np.zeros(3),
        start=np.array([1.0, 0.0, 0.0]),
        raw_labels=["a", "b", "c"],
        bin_values={},
        ends={},
        policies={"uniform": np.full((3, 3), 1 / 3), "habit": np.tile([0.8, 0.2, 0.0], (3, 1))},
        horizon=4,
    )
"""


@pytest.mark.usefixtures("settled")
def test_a_plan_values_what_practice_never_does_as_the_run_does(tmp_path, few, monkeypatch):
    """Of fresh noise one run in some hundreds learns another policy: four of forty at twice the noise."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "untried_world.py").write_text(_UNTRIED)
    world, log, home = "untried_world:untried", tmp_path / "log", tmp_path / "home"
    answer(home, "simulate", world, "--logs", "--behaviour", "habit", "--episodes", 500, "--to", log)
    answer(home, "ingest", log)
    path = recipe(tmp_path, "noisy", more=f'{STEP}[evaluate]\nworld = "{world}"\nbehaviour = "habit"\n')
    change(Path(path), "riverswim", str(log))
    plan, run = answer(home, "plan", path)["quality"], answer(home, "run", path)
    truth = told(tmp_path, run["run"])["truth"]
    assert plan["optimum"] == pytest.approx(truth["v_star"])
    assert plan["reference"]["suboptimality"] == pytest.approx(truth["v_star"] - truth["v_uniform"])
    assert plan["suboptimality"]["mean"] == pytest.approx(truth["suboptimality"], abs=0.05)


def test_practice_does_nothing_vetoed_in_a_made_up_world_so_that_no_policy_beats_the_best(tmp_path):
    # a ship is chosen from each pair, and nothing on a planet
    quality = foresee_job("two_step_adults", home_at(tmp_path / "home"))
    assert quality["suboptimality"]["low"] >= 0 and quality["share"] <= 1
