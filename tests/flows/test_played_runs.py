"""A simulated run is a run: its folder, its policy by label, its certificate from outside, and worlds of one's own."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.jobs.playing import played_again
from flows.jobs.proof import Vouched
from pipeline.facts.report import form_problem
from pipeline.mdp.planning import optimum, policy_value
from pipeline.online.rollouts import world_of
from pipeline.online.trial import Trial
from tests.flows.shop import change
from tests.flows.verb import answer as call
from tests.flows.verb import refusal
from tests.jobs import facts_of

CONTRACT = {
    *("release.parquet", "release.json", "recipe.toml", "policy.parquet", "policy.json", "certificate.json"),
    *("report.html", "report.md", "report.json", "runs.parquet", "curves.parquet", "policies.parquet"),
}
RIVER = 'name = "riverswim_homogeneous"\nstates = 3'
PLANT = 'name = "plant"\nA = [[0.5, 0.1], [0.0, 0.4]]\nB = [[0.2], [0.3]]\nhorizon = 5\nnoise = 0.05\ngamma = 0.5'
PRIVATE = "[privacy]\nepsilon = 1.0\ndelta = 1e-5\n"


def write(folder, agent, world=RIVER, more="", episodes=200, privacy=PRIVATE, name="played", runs=2):
    path = folder / f"{name}.toml"
    head = f'[recipe]\nname = "{name}"\nagent = "{agent}"\n'
    text = head + privacy + f"[world]\n{world}\n[agent]\n{more}\n[runs]\nepisodes = {episodes}\nruns = {runs}\n"
    path.write_text(text + "seed = 3\n")
    return path


def page_of(result):
    return Path(result["folder"], "report.md").read_text(encoding="utf-8")


TABLES = ("dp-ucbvi-jdp", "dp-ucbvi-ldp", "counts-shuffle", "private-linopt-po", "ldp-ucrl-vtr", "sdp-pe", "dp-apvi")
GAINS = ("private-ofu-rl", "explore-then-commit", "private-adaptive-lqr", "dp-lqr")
KINDS = dict.fromkeys(TABLES, (RIVER, "")) | dict.fromkeys(GAINS, (PLANT, ""))
KINDS["private-linopt-vi"] = (RIVER, 'rewards = "learnt"')
# one of tables, one of gains; the others are as slow together as all the rest
QUICK = ("dp-ucbvi-jdp", "dp-lqr")


@pytest.mark.parametrize("agent", [a if a in QUICK else pytest.param(a, marks=pytest.mark.slow) for a in KINDS])
def test_every_private_agent_leaves_a_run_that_verifies_and_acts(agent, tmp_path):
    home, (world, more) = tmp_path / "home", KINDS[agent]
    result = call(home, "simulate", write(tmp_path, agent, world, more))
    folder = Path(result["folder"])
    assert {p.name for p in folder.iterdir()} == CONTRACT
    assert form_problem(json.loads((folder / "report.json").read_text())) is None
    proof = call(home, "ledger", "verify", result["run"])
    assert proof["ok"] and proof["vouched"]
    report = facts_of(folder)
    assert report.guarantee.epsilon == pytest.approx(result["true_epsilon"], rel=1e-6)
    assert report.guarantee.claim == "none (simulation)" and report.simulation is not None
    assert report.simulation.communication is not None
    rows = pl.read_parquet(folder / "policies.parquet")
    assert {"agent", "seed"} < set(rows.columns) and set(rows["seed"]) == {3, 4}
    labels = ("control", "observed") if world == PLANT else ("state", "action")
    assert all(rows[name].dtype == pl.String for name in labels)
    where = ("--observation", "0.5, 0.1") if world == PLANT else ("--state", "1")
    assert call(home, "policy", "act", result["run"], *where, "--step", "0")["advice"]
    assert call(home, "policy", "show", result["run"])["rows"]
    call(home, "policy", "export", result["run"], "--to", tmp_path / "policy.json")
    drawn = (folder / "report.html").read_bytes()
    call(home, "report", result["run"])
    assert (folder / "report.html").read_bytes() == drawn


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A run of a mixture agent."""
    root = tmp_path_factory.mktemp("mixed")
    return call(root / "home", "simulate", write(root, "private-linopt-po"))


def test_the_suboptimality_is_that_of_the_policy_in_the_folder_and_the_verdict_says_what_learning_it_cost(mixed):
    rows = pl.read_parquet(Path(mixed["folder"]) / "policy.parquet")
    mdp = world_of(Trial("uniform", "riverswim_homogeneous", (("states", 3),), 1))
    p = np.zeros(mdp.shape)
    p[rows["step"], rows["state"], rows["action"]] = rows["probability"]
    # stochastic, and emitted as it is
    assert ((p > 0) & (p < 1)).any()
    assert mixed["suboptimality"] == pytest.approx(optimum(mdp) - policy_value(mdp, p), abs=1e-12)
    told = facts_of(Path(mixed["folder"])).simulation
    mine = told.agents[0].suboptimality
    assert mine.lower <= mine.mean <= mine.upper and mine.level == 0.95
    assert told.price == pytest.approx(mine.mean - next(a for a in told.agents if a.role == "plain").suboptimality.mean)
    text = page_of(mixed)
    assert "an episode on average over 2 seeds" in text.splitlines()[0]
    assert "The 200 episodes from which it learnt lost" in text.splitlines()[0]
    assert "; by medians " in text and "| Mean | Median |" in text
    assert "`dp-ucbvi-jdp` learns from counts" in mixed["proposal"]


def test_a_plant_that_grows_is_played_and_a_controller_that_stays_at_zero_is_said_to_do_nothing(tmp_path):
    grows = PLANT.replace("A = [[0.5, 0.1], [0.0, 0.4]]", "A = [[1.1, 0.1], [0.0, 0.4]]")
    played = call(tmp_path, "simulate", write(tmp_path, "private-adaptive-lqr", grows, episodes=30))
    assert "It never left zero" in page_of(played)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A home with one run that was played, for tests that copy it or only read."""
    root = tmp_path_factory.mktemp("made")
    return root, call(root / "home", "simulate", write(root, "dp-ucbvi-jdp"))


@pytest.fixture
def copied(made, tmp_path):
    """Its home to be changed, and the run's folder there."""
    root, result = made
    home = shutil.copytree(root / "home", tmp_path / "home", symlinks=True)
    return home, home / "runs" / result["run"]


def test_promoted_compared_and_drawn_again_the_same(copied, made, tmp_path):
    (home, folder), (root, one) = copied, made
    two = call(home, "simulate", write(tmp_path, "counts-shuffle", name="other"))
    assert call(home, "promote", one["run"])["now"] == one["run"]
    assert call(home, "compare-runs", "current", two["run"])["cells"]["total"] == 18
    again = call(tmp_path / "elsewhere", "simulate", root / "played.toml")
    for name in CONTRACT:
        assert (folder / name).read_bytes() == (Path(again["folder"]) / name).read_bytes(), name


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("certificate.json", '"epsilon": 0.99', '"epsilon": 0.89', "epsilon is"),
        ("report.md", "simulation", "study", "report.md was changed"),
        ("recipe.toml", "epsilon = 1.0", "epsilon = 2.0", "recipe.toml was changed"),
    ],
)
def test_what_was_edited_does_not_verify(copied, file, old, new, says):
    home, folder = copied
    change(folder / file, old, new)
    proof = call(home, "ledger", "verify", folder.name, code=4)
    assert not proof["ok"] and says in proof["problem"]


def test_a_recipe_that_asks_for_less_noise_is_noticed_without_any_ledger(copied):
    """The broken twin: a folder whose certificate and release agree, and whose recipe releases something else."""
    _, folder = copied
    change(folder / "recipe.toml", "epsilon = 1.0", "epsilon = 3.0")
    wrong = [c.what for c in played_again(folder, Vouched((), own=True)) if c.ok is False]
    assert "mechanisms and guarantee, played again from the recipe" in wrong


@pytest.fixture(scope="module")
def swum(tmp_path_factory):
    """A home in which the shipped log of RiverSwim was learnt from."""
    home = tmp_path_factory.mktemp("swum") / "home"
    call(home, "ingest", "riverswim")
    return home, call(home, "run", "riverswim")


def test_a_world_is_the_released_model_of_a_run(swum, tmp_path):
    home, learnt = swum
    world = f'name = "release:{learnt["run"]}"'
    result = call(home, "simulate", write(tmp_path, "dp-ucbvi-jdp", world, episodes=30, runs=1))
    report = facts_of(Path(result["folder"]))
    first = json.loads(Path(learnt["report"]).with_name("report.json").read_text())
    assert report.dataset.live_states[: len(first["dataset"]["live_states"])] == first["dataset"]["live_states"]
    assert str(home) not in (Path(result["folder"]) / "report.json").read_text()
    before = call(home, "ledger", "show")
    assert call(home, "ledger", "verify", result["run"])["ok"]
    # post-processing: nothing was charged
    assert call(home, "ledger", "show") == before
    missing = write(tmp_path, "dp-ucbvi-jdp", 'name = "release:nowhere"', name="missing")
    assert "no run begins with 'nowhere'" in refusal(home, "simulate", missing)


def test_mixture_agents_play_any_tabular_world_at_any_horizon(tmp_path):
    world = 'name = "random"\nstates = 3\nactions = 2\nhorizon = 5'
    result = call(tmp_path / "home", "simulate", write(tmp_path, "private-linopt-vi", world, episodes=50, runs=1))
    assert facts_of(Path(result["folder"])).dataset.horizon == 5


def test_a_world_of_the_wrong_kind_is_refused(tmp_path):
    for agent, world, says in (
        ("dp-ucbvi-jdp", PLANT, "is a linear plant"),
        ("private-ofu-rl", RIVER, "has states and actions"),
        ("private-ofu-rl", PLANT.replace("gamma = 0.5", "gamma = -1.0"), "unit ball"),
        ("private-ofu-rl", 'name = "plant"\nA = [[0.5]]\nhorizon = 3', "missing 1 required positional argument: 'B'"),
    ):
        assert says in refusal(tmp_path / "home", "simulate", write(tmp_path, agent, world))


@pytest.mark.slow
def test_an_online_agent_starts_from_what_an_offline_run_released(swum, tmp_path):
    home, learnt = swum
    world, warm = 'name = "riverswim"\nhorizon = 20', f'warm_start = "run:{learnt["run"]}"'
    plays = {"episodes": 60, "runs": 1}
    cold = call(home, "simulate", write(tmp_path, "dp-ucbvi-jdp", world, name="cold", **plays))
    started = call(home, "simulate", write(tmp_path, "dp-ucbvi-jdp", world, warm, name="warm", **plays))
    # 50 000 people have swum before: the first of the new ones knows the way
    assert started["regret"]["mean"] < 0.1 * cold["regret"]["mean"]
    folder = Path(started["folder"])
    own = facts_of(folder).simulation.agents[0]
    assert f"started from {learnt['run']}" in own.variant and own.true_epsilon == pytest.approx(1.0, rel=1e-3)
    assert str(home) not in (folder / "report.json").read_text() + (folder / "report.html").read_text()
    assert call(home, "ledger", "verify", started["run"])["ok"]
    both = write(tmp_path, "dp-ucbvi-jdp", world, f"{warm}\npooled = true", name="pooled", **plays)
    assert call(home, "simulate", both)["regret"]["mean"] < 0.1 * cold["regret"]["mean"]
    for place, more, says in (
        (RIVER, warm, "counts other states or actions than world"),
        (world, 'warm_start = "elsewhere"', "say run:NAME"),
        (world, 'warm_start = "run:nowhere"', "no run begins with 'nowhere'"),
        (world, f'{warm}\nrewards = "learnt"', "brings transitions alone"),
        (world.replace("20", "25"), warm, "has counts of 20 steps"),
    ):
        assert says in refusal(home, "simulate", write(tmp_path, "dp-ucbvi-jdp", place, more, name="wrong"))


@pytest.mark.slow
def test_a_plant_logs_a_run_learns_it_and_an_online_agent_goes_on_in_what_was_released(tmp_path):
    home = tmp_path / "home"
    written = call(home, "simulate", "lq-1", "--logs", "--episodes", 2000, "--to", tmp_path / "plant")
    assert written["values"]["zero"] < written["values"]["optimal"] < 0
    call(home, "ingest", tmp_path / "plant")
    learnt = call(home, "run", written["recipe"])
    assert learnt["truth"]["suboptimality"] < 0.1 * (learnt["truth"]["v_star"] - learnt["truth"]["v_zero"])
    assert call(home, "ledger", "verify", learnt["run"])["ok"]
    world = f'name = "release:{learnt["run"]}"'
    played = call(home, "simulate", write(tmp_path, "private-adaptive-lqr", world, episodes=30))
    report = facts_of(Path(played["folder"]))
    assert report.dataset.name.startswith("simulated_") and learnt["run"] in report.simulation.world
    # what was released is what is played: the dp-lqr run's own model is its optimum
    assert report.simulation.optimum == pytest.approx(learnt["truth"]["v_star"], abs=0.1)
    assert call(home, "ledger", "verify", played["run"])["ok"]
    for option in ("--bins", "--horizon"):
        refused = refusal(home, "simulate", "lq-1", "--logs", option, "4")
        assert f"{option} belongs to worlds of states and actions" in refused


PLANT_OF_MINE = """
import numpy as np
from pipeline.worlds.plants import double_integrator
from pipeline.worlds.world import WorldFunction
from dataclasses import replace


def build(push: float = 1.0):
    plant = double_integrator()
    return replace(plant, name="pushed", B=push * plant.B)


plant = WorldFunction(build)
"""


@pytest.mark.slow
def test_a_plant_of_ones_own_is_a_world_for_the_agents_of_plants(tmp_path, monkeypatch):
    (tmp_path / "my_plants.py").write_text(PLANT_OF_MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    world = 'name = "my_plants:plant"\npush = 0.5'
    played = call(tmp_path / "home", "simulate", write(tmp_path, "private-adaptive-lqr", world, episodes=30, runs=1))
    report = facts_of(Path(played["folder"]))
    assert "my_plants:plant, push 0.5" in report.simulation.world and report.simulation.optimum < 0
    assert call(tmp_path / "home", "ledger", "verify", played["run"])["ok"]
    wrong = write(tmp_path, "dp-ucbvi-jdp", world, name="wrong")
    assert "is a linear plant" in refusal(tmp_path / "home", "simulate", wrong)


def test_nights_and_simulations_name_the_agent_alike(made, tmp_path):
    short, long = call(tmp_path, "simulate", write(tmp_path, "dp-ucbvi")), made[1]
    assert short["agent"] == "dp-ucbvi-jdp" and short["run"] == long["run"] and short["regret"] == long["regret"]
