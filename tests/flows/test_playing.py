"""``simulate RECIPE`` from outside: JSON shape, files, finished runs found again, what is refused."""

import json
from pathlib import Path

import polars as pl
import pytest

from pipeline.online import cells
from pipeline.online import registry as agents
from pipeline.online.trial import Trial, marks, staged_curve
from reticent import CardError, Store, simulate
from tests.flows.test_played_runs import RIVER, page_of
from tests.flows.verb import answer as call
from tests.flows.verb import invoke, refusal

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
