"""``simulate RECIPE``: a run like any other, its certificate, its regret in words, worlds of one's own, refusals."""

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
from pipeline.online import cells
from pipeline.online import registry as agents
from pipeline.online.rollouts import world_of
from pipeline.online.trial import Trial, marks, staged_curve
from reticent import CardError, Store, simulate
from tests.flows.shop import change
from tests.flows.verb import answer as call
from tests.flows.verb import invoke, refusal
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


RECIPE = f"""
[recipe]
name = "controls"
agent = "uniform"
[world]
{RIVER}
[runs]
episodes = 10000
runs = 2
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "controls.toml"
    path.write_text(RECIPE)
    return path


@pytest.mark.slow
def test_one_json_object_of_the_agreed_shape_and_exact_regret(recipe, tmp_path, monkeypatch):
    """As on a machine of two cores: each run in a process of its own."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    result = call(tmp_path / "home", "simulate", recipe)
    assert {"agent", "world", "episodes", "regret", "baselines", "true_epsilon", "delta", "files"} <= set(result)
    assert result["agent"] == "uniform" and result["episodes"] == 10_000 and result["true_epsilon"] is None
    # paper 001 section 6, S = 3: exact by planning
    assert result["regret"] == {"mean": pytest.approx(2031.9, abs=0.1), "std": 0.0}
    assert result["baselines"]["always-right"]["mean"] == pytest.approx(1.39, abs=0.01)
    assert result["baselines"]["always-first"]["mean"] == pytest.approx(2230.6, abs=0.1)
    files = {Path(f).name: Path(f) for f in result["files"]}
    assert all(p.is_file() for p in files.values())
    curves = pl.read_parquet(files["curves.parquet"])
    assert set(curves["agent"]) == {"uniform", "always-first", "always-right"}
    last = curves.filter((pl.col("agent") == "uniform") & (pl.col("episodes") == 10_000))
    assert last["regret_mean"].item() == pytest.approx(result["regret"]["mean"])
    page = files["report.html"].read_text()
    assert "simulation, not private" in page and "<script" not in page and 'src="http' not in page


def test_finished_runs_are_found_again_and_the_rest_is_played(recipe, tmp_path, monkeypatch):
    first = call(tmp_path / "home", "simulate", recipe)

    def refuse(trial):
        raise AssertionError(f"played again: {trial}")

    monkeypatch.setattr(cells, "measure", refuse)
    assert call(tmp_path / "home", "simulate", recipe) == first
    recipe.write_text(RECIPE.replace("runs = 2", "runs = 3"))
    with pytest.raises(AssertionError, match=r"played again: .*seed=2"):
        simulate(recipe, store=Store(tmp_path / "home"))


LEARNS = """
baselines = ["{beside}"]
[recipe]
name = "learns"
agent = "{agent}"
[privacy]
epsilon = {epsilon}
delta = 1e-6
[world]
{world}
[agent]
{options}
[runs]
episodes = {episodes}
runs = {runs}
seed = {seed}
"""


def learnt(path, text=LEARNS, **of):
    text = text.format(**({"beside": "always-right", "epsilon": 1.0, "options": "", "seed": 0} | of))
    (path / "learns.toml").write_text(text)
    done = simulate(path / "learns.toml", store=Store(path / "home"))
    return json.loads(Path(done["folder"], "report.json").read_text()), page_of(done)


def test_two_runs_that_agree_do_not_say_that_all_do(tmp_path):
    """Two seeds find the best policy; of sixty some do not, and lose ten times what going right does on average."""
    options = 'rewards = "learnt"\nbehaviour = "uniform"'
    told, page = learnt(tmp_path, agent="dp-apvi", world=RIVER, options=options, episodes=6000, runs=2)
    loss = told["simulation"]["agents"][0]["suboptimality"]
    assert loss["least"] == loss["most"] == 0.0
    assert "clearly better than that of always-right" not in page
    # as many seeds may do otherwise as two of them miss with a chance of one in forty
    assert loss["upper"] == pytest.approx((1 - 0.025**0.5) * told["simulation"]["optimum"])
    assert told["value"]["lower"] == pytest.approx(told["simulation"]["optimum"] - loss["upper"])


def test_of_runs_that_agree_by_nature_it_is_not_said_that_others_may_do_anything(tmp_path):
    text = LEARNS.replace("[privacy]\nepsilon = {epsilon}\ndelta = 1e-6\n", "").replace("[agent]\n{options}\n", "")
    told, _ = learnt(tmp_path, text, agent="uniform", world=RIVER, episodes=100, runs=3)
    assert told["value"]["gap"] < 1e-9 and not any("anything" in a for a in told["value"]["assumes"])


def test_a_controller_that_does_worse_than_nothing_lies_within_its_interval(tmp_path):
    world = 'name = "lq"\ninstance = 3'
    told, _ = learnt(tmp_path, agent="dp-lqr", beside="zero", epsilon=0.02, world=world, episodes=300, runs=3, seed=5)
    value, loss = told["value"], told["simulation"]["agents"][0]["suboptimality"]
    assert value["lower_trivial"] <= value["lower"] <= value["estimate"] <= value["upper"]
    assert value["lower"] == pytest.approx(told["simulation"]["optimum"] - loss["upper"])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('agent = "uniform"', 'agent = "q-learning"', "no online agent 'q-learning'; there are: uniform"),
        ("states = 3", "states = 1", "states must be at least 2"),
        ("states = 3", "lakes = 1", "lakes"),
        ('name = "riverswim_homogeneous"', 'name = "ocean"', "no world 'ocean'"),
        ("[runs]", "[privacy]\nepsilon = 1.0\ndelta = 1e-5\n[runs]", "uniform is not private"),
        ("episodes = 10000", "episodes = 0", "runs.episodes"),
        ("[world]", "[lake]", "needs [recipe] and [world]"),
    ],
)
def test_a_wrong_recipe_is_one_clear_line_and_exit_2(recipe, tmp_path, old, new, says):
    recipe.write_text(RECIPE.replace(old, new))
    refused = refusal(tmp_path / "home", "simulate", recipe)
    assert says in refused and "\n" not in refused


def test_shell_and_page_give_the_same_two_sentences_and_no_interval_of_a_rounding(recipe, tmp_path):
    recipe.write_text(RECIPE.replace("10000\nruns = 2", "1000\nruns = 3"))
    told = invoke("--home", tmp_path / "home", "simulate", recipe).output
    result = call(tmp_path / "home", "simulate", recipe)
    # three exact values, which differ by the rounding of floats
    answer = "Its policies lose 0.2032 an episode on average over 3 seeds, against the best policy's 0.2281."
    answer += " The 1,000 episodes from which it learnt lost 203.2 in all, where always-right, which learns nothing,"
    assert result["answer"].startswith(answer) and result["answer"] in told
    assert result["answer"] in page_of(result)
    assert "median     203.2" in told and result["rows"][0]["median"] == pytest.approx(203.19, abs=0.01)


def test_of_one_seed_no_agent_is_clearly_better_or_worse(recipe, tmp_path):
    recipe.write_text(RECIPE.replace('"uniform"', '"ucbvi"').replace("10000\nruns = 2", "100\nruns = 1"))
    text = (
        Path(call(tmp_path / "home", "simulate", recipe)["report"]).with_name("report.md").read_text(encoding="utf-8")
    )
    assert "clearly" not in text and "One seed tells what its policy loses" in text and "over 1 seed" in text
    assert "±" not in text and "±" not in invoke("--home", tmp_path / "home", "simulate", recipe).output
    # regret is of the known world, and what plays beside it has no release
    assert "nothing else was read" not in text and "is computed in the known world" in text


def test_one_step_whose_rewards_are_known_is_refused_as_a_recipe(recipe, tmp_path):
    text = RECIPE.replace('"uniform"', '"dp-ucbvi"').replace('"riverswim_homogeneous"', '"random"\nhorizon = 1')
    recipe.write_text(text + "[privacy]\nepsilon = 1.0\ndelta = 1e-5\n")
    assert "one step and known rewards" in refusal(tmp_path / "home", "simulate", recipe)


def test_verbs_send_a_recipe_to_each_other_and_plan_says_that_a_simulation_is_free(recipe, tmp_path):
    assert "reticent simulate" in refusal(tmp_path / "home", "run", recipe)
    with pytest.raises(CardError, match=r"needs \[recipe\] and \[world\]"):
        simulate("demo", store=Store(tmp_path / "home"))
    refused = refusal(tmp_path / "home", "plan", recipe)
    assert "charged nothing" in refused and "proposal" not in refused
    # counts learn where a mixture does not
    recipe.write_text(RECIPE.replace('"uniform"', '"private-linopt-vi"') + "[privacy]\nepsilon = 1.0\ndelta = 1e-5\n")
    assert "`dp-ucbvi-jdp` learns from counts" in refusal(tmp_path / "home", "plan", recipe)


def test_every_agent_has_playable_baselines_and_every_private_one_can_be_attacked():
    for agent in agents.AGENTS.values():
        assert set(agent.baselines) <= set(agents.AGENTS)
        assert agent.private == (agent.targets is not None) == (agent.plain is not None)


@pytest.mark.parametrize("name", [name for name, agent in agents.AGENTS.items() if len(agent.defaults) > 5])
def test_an_option_that_an_agent_does_not_list_is_refused(name):
    with pytest.raises(CardError, match="no option 'colour'; there are: "):
        agents.run(Trial(name, "riverswim_homogeneous", (("states", 3),), 10, 1.0, 1e-5, "tight", (("colour", 1),)))


def test_marks_end_at_K_and_a_staged_curve_is_exact():
    assert marks(1).tolist() == [1] and marks(10_000)[-1] == 10_000 and len(marks(10**9)) < 200
    at, summed = staged_curve([10, 1000], [2.0, 0.5])
    assert dict(zip(at, summed, strict=True))[10] == 20 and summed[-1] == 20 + 495


def test_an_agent_that_loses_nothing_is_drawn_and_compared_with_nobody(recipe, tmp_path):
    """A regret of 0 has no logarithm."""
    recipe.write_text("baselines = []" + RECIPE.replace('"uniform"', '"apvi"').replace("10000", "2000"))
    result = call(tmp_path / "home", "simulate", recipe)
    page = page_of(result)
    assert result["regret"]["mean"] == 0 and "No other policy was played beside it" in page and "clearly" not in page
