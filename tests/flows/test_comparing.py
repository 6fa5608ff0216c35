"""``compare`` from outside: JSON shape, files, a page that reads without colour, runs found again, refusals."""

import json
import math
import re
from pathlib import Path

import pytest

import reticent
from flows.jobs.studies import load_study
from pipeline.online import cells
from pipeline.online.study import needed
from reports.page import number
from reticent import CardError
from tests.flows.verb import answer, invoke, refusal

RECIPE = """
[study]
name = "tiny"
words = ["one user is one episode"]

[[cells]]
worlds = [{ name = "riverswim_homogeneous", states = 3 }]
episodes = [10]
agents = ["uniform", "best-constant"]

[[cells]]
worlds = [{ name = "riverswim_homogeneous", states = 3 }]
episodes = { first = 10, last = 100, per_decade = 1 }
agents = ["apvi", "dp-apvi", "ucbvi", "dp-ucbvi-jdp", "dp-ucbvi-ldp", "counts-shuffle"]
epsilon = [1.0, 10.0]
delta = 1e-6
runs = 2
full = { runs = 3 }
"""
CLAIMS = """
[[claims]]
words = "nobody's noise is worth more than the ε asked"
metric = "spent"
of = { private = true }
comparison = "at most"
value = 1

[[claims]]
words = "privacy is never free of charge"
metric = "needed"
of = { private = true }
comparison = "above"
than = { agent = "plain" }

[[claims]]
words = "uniform choice is as good as what is learnt without noise"
of = { agent = "uniform" }
comparison = "not above"
than = { agent = "ucbvi", episodes = "largest" }

[[claims]]
words = "regret of a way to play that only a run can tell"
of = { variant = "blindly" }
comparison = "at most"
value = 1
"""
RECIPES = Path(__file__).resolve().parents[2] / "flows" / "recipes"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("compare")
    (path / "tiny.toml").write_text(RECIPE + CLAIMS)
    return path


@pytest.fixture(scope="module")
def result(folder):
    return compared(folder)


def compared(folder, text=None):
    """What the verb says of the recipe there; ``text``: of this one, written before."""
    if text is not None:
        (folder / "tiny.toml").write_text(text)
    return answer(folder / "home", "compare", folder / "tiny.toml")


def page(result, name="page.html"):
    return next(Path(f) for f in result["files"] if f.endswith(name)).read_text()


def test_one_json_object_of_the_agreed_shape(result):
    assert {"name", "rows", "claims", "files", "needed", "bar"} <= set(result)
    row = {"agent", "variant", "trust", "world", "episodes", "rho", "epsilon", "delta", "calibration", "constants"}
    for r in result["rows"]:
        assert row | {"metric", "mean", "std", "runs"} <= set(r) and r["metric"] == "suboptimality"
        assert {"low", "high"} <= set(r)
    assert {r["trust"] for r in result["rows"]} == {"none", "central", "joint", "local", "shuffle"}
    assert all({"claim", "holds", "regime"} <= set(c) for c in result["claims"])
    uniform = next(r for r in result["rows"] if r["agent"] == "uniform")
    assert result["bar"] == pytest.approx(0.1 * uniform["mean"])
    assert all(Path(f).is_file() for f in result["files"])


def test_claims_are_judged_by_their_rules(result):
    held = {c["claim"]: (c["holds"], c["regime"]) for c in result["claims"]}
    assert held["nobody's noise is worth more than the ε asked"][0]
    # an agent that needs as many episodes as the one without noise pays nothing
    assert not held["privacy is never free of charge"][0]
    assert not held["uniform choice is as good as what is learnt without noise"][0]
    assert held["regret of a way to play that only a run can tell"] == (False, "no row to judge: variant blindly")
    rules = [c["rule"] for c in result["claims"]]
    assert rules[0] == "what the noise is worth over what was asked is at most 1, in every row of private True"


def test_the_page_loads_nothing_and_says_what_must_be_said_as_its_twins_do(result):
    html, text, told = page(result), page(result, "page.md"), json.loads(page(result, "result.json"))
    assert "simulation, not private" in html and "<script" not in html
    assert "://" not in re.sub(r'xmlns="[^"]*"', "", html)
    for words in ("one user is one episode", "&gt; 100", "Episodes for the same quality", "What one user sends"):
        assert words in html, words
    assert "| Mean | Median | Std |" in text
    row = next(r for r in result["rows"] if r["agent"] == "dp-ucbvi-ldp")
    # of two runs
    assert row["median"] == pytest.approx(row["mean"])
    assert len(html.encode()) < 300_000 and html.count("<svg") == html.count("<desc") == 1
    assert told["needed"] == result["needed"] and told["schema_version"] == 1
    for r in result["rows"]:
        if r["agent"] in ("dp-apvi", "counts-shuffle") and r["episodes"] == 100:
            shown = number(r["mean"], 3)
            assert shown in html and shown in text


def test_finished_runs_are_found_again_and_full_plays_the_rest(folder, result, monkeypatch):
    def refuse(trial):
        raise AssertionError(f"played again: {trial}")

    monkeypatch.setattr(cells, "measure", refuse)
    assert compared(folder) == result
    with pytest.raises(AssertionError, match=r"played again: .*seed=2"):
        reticent.compare(folder / "tiny.toml", full=True, store=reticent.Store(folder / "home"))


def test_the_table_for_people_has_every_trust_model_and_says_where_nobody_learns(folder, result):
    done = invoke("--home", folder / "home", "compare", folder / "tiny.toml")
    for words in ("central", "joint", "local", "shuffle", "> 100", "page.html"):
        assert words in done.stdout
    # progress is told on stderr only
    assert "simulation, not private" in done.stderr and "simulation, not private" not in done.stdout


@pytest.mark.slow
def test_each_way_that_an_agent_plays_needs_its_own_episodes(tmp_path):
    """Of two ways of one agent the table has both, whichever stands first; uniform choice need not stand first."""
    both = '{ name = "ucbvi", pooled = true }, { name = "dp-apvi", pooled = true }, "uniform"'
    text = RECIPE.replace('agents = ["uniform", "best-constant"]', 'agents = ["best-constant"]')
    result = compared(tmp_path, text.replace('"counts-shuffle"', both))
    names = {n["agent"] for n in result["needed"]}
    assert {"ucbvi, pooled", "ucbvi, per step", "dp-ucbvi-jdp", "apvi"} <= names and len(names) == 7
    for n in result["needed"]:
        agent, _, way = n["agent"].partition(", ")
        rows = [r for r in result["rows"] if (r["agent"], r["epsilon"]) == (agent, n["epsilon"])]
        means = {r["episodes"]: r["mean"] for r in rows if way in ("", r["variant"])}
        assert len(means) == 2 and (n["episodes"] or math.inf) == needed(means, result["bar"])
    assert "ucbvi, pooled" in page(result, "page.md")


def test_a_control_names_its_agent_as_nights_do(tmp_path):
    """It stands beside the agent that is played, so that its claims are void where the control meets the bar."""
    grid = RECIPE.replace('"apvi", "dp-apvi", "ucbvi", "dp-ucbvi-jdp", "dp-ucbvi-ldp", "counts-shuffle"', "{of}")
    of = '"dp-ucbvi", {{ name = "no-data", of = "{}" }}'
    text = grid.replace("[1.0, 10.0]", "[1.0]")
    told = []
    for name in ("dp-ucbvi", "dp-ucbvi-jdp"):
        rows = compared(tmp_path, text.replace("{of}", of.format(name)))["rows"]
        told.append([r for r in rows if r["agent"] == "no-data"])
    assert told[0] == told[1] and told[0][0]["of"] == "dp-ucbvi-jdp"


def test_so_few_episodes_are_compared_that_a_tenth_of_them_is_none(tmp_path):
    text = RECIPE.replace("episodes = { first = 10, last = 100, per_decade = 1 }", "episodes = [1, 9]")
    few = '"apvi", "dp-apvi"]'
    text = text.replace(f'{few[:-1]}, "ucbvi", "dp-ucbvi-jdp", "dp-ucbvi-ldp", "counts-shuffle"]', few)
    text = text.replace("[1.0, 10.0]", "[1.0]").replace("runs = 2", "runs = 1")
    assert {r["episodes"] for r in compared(tmp_path, text)["rows"]} == {1, 9, 10}


@pytest.mark.slow
def test_one_bar_is_of_one_world(tmp_path):
    more = '{ name = "riverswim_homogeneous", states = 3 }, { name = "riverswim_homogeneous", states = 4 }'
    text = (RECIPE + CLAIMS).replace('{ name = "riverswim_homogeneous", states = 3 }', more)
    result = compared(tmp_path, text.replace("[1.0, 10.0]", "[1.0]"))
    assert not {"needed", "bar"} & set(result)
    # each of four private agents in two worlds
    assert result["claims"][1]["regime"].startswith("in 6 of 8")


UNIFORM = '{ agent = "uniform" }'


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"dp-apvi",', '"forest",', "no online agent 'forest'"),
        ("states = 3", "lakes = 1", "lakes"),
        ('name = "riverswim_homogeneous"', 'name = "ocean"', "no world 'ocean'"),
        ("last = 100", "last = 10", "'first' must be below 'last'"),
        ("epsilon = [1.0, 10.0]", "epsilon = [0.0]", "epsilon"),
        ("delta = 1e-6", "", "dp-apvi needs 'epsilon' and 'delta'"),
        ("private = true", "privat = true", "rows have no column 'privat'"),
        (UNIFORM, '{ agent = "unifrom" }', "claims.2.of: no cell has agent 'unifrom'; there are: apvi, best"),
        ('agent = "ucbvi", ep', 'agent = ["ucbvi", "ucb"], ep', "claims.2.than: no cell has agent 'ucb'"),
        (UNIFORM, '{ world = "river*, states 4" }', "there are: riverswim_homogeneous, states 3"),
        (UNIFORM, "{ epsilon = 2 }", "claims.2.of: no cell has epsilon 2; there are: 1, 10"),
        ('episodes = "largest"', "episodes = 50", "claims.2.than: no cell has episodes 50; there are: 10, 100"),
        ('agent = "uniform" }', 'agent = "uniform", private = true }', "claims.2: in the grid no row can be judged"),
        ("states = 3 }]\nepisodes = [", "states = 4 }]\nepisodes = [", "the metric 'needed' is over 'uniform'"),
        ("full = { runs = 3 }", "full = { epsilon = [3] }\n[figure]\nof = [{ epsilon = 4 }]", "figure.of.0: no cell"),
        ("[study]", "[compare]", "a comparison is a [study] with [[cells]]"),
        ("[study]", "[recipe]", "needs [study] and [[cells]]"),
    ],
)
def test_a_wrong_recipe_is_one_clear_line(folder, tmp_path, old, new, says):
    path = tmp_path / "wrong.toml"
    path.write_text((RECIPE + CLAIMS).replace(old, new))
    assert says in refusal(tmp_path / "home", "compare", path)


def test_verbs_send_recipes_to_each_other(folder, tmp_path):
    for verb in ("run", "simulate", "plan"):
        assert "reticent compare" in refusal(tmp_path, verb, folder / "tiny.toml"), verb
    assert "compare-runs A B" in refusal(tmp_path, "compare", "riverswim_joint")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        pytest.param("trust_riverswim", (5763, 11043), marks=pytest.mark.slow),
        ("trust_mixture", (1155, 3267)),
        ("trust_icu_sepsis", (433, 1223)),
    ],
)
def test_shipped_comparisons_ask_what_their_delta_can_mean(name, sizes):
    study = load_study(RECIPES / f"{name}.toml")
    assert (len(study.listed()), len(study.listed(full=True))) == sizes
    asked = [t for t in study.listed() if t.epsilon is not None]
    assert max(t.delta for t in asked) <= 1 / (10 * max(t.episodes for t in asked)) * (1 + 1e-9)
    assert 1.0 in {t.epsilon for t in asked}
    # everybody meets the same luck
    assert len({t.stream(0).random() for t in asked if t.seed == 1}) == 1


def test_the_world_of_icu_sepsis_is_found_on_the_shelf_that_is_asked(tmp_path):
    shelf = tmp_path / "shelf" / "icu_sepsis"
    shelf.mkdir(parents=True)
    (shelf / "world.npz").write_bytes(b"not a world")
    path = tmp_path / "icu.toml"
    path.write_text(RECIPE.replace('name = "riverswim_homogeneous", states = 3', 'name = "icu_sepsis_bins"'))
    with pytest.raises(CardError, match="not the ICU-Sepsis world"):
        reticent.compare(path, store=reticent.Store(tmp_path / "home", shelf=tmp_path / "shelf"))


LEARNT = '{ name = "ucbvi", rewards = "learnt" }, { name = "dp-ucbvi-jdp", rewards = "learnt" }'
SURE = """
[study]
name = "tiny"
words = ["one user is one episode"]
[[cells]]
worlds = [{{ name = "riverswim_homogeneous", states = 3 }}]
episodes = [{episodes}]
agents = [{agents}]
epsilon = [2.0, 4.0]
delta = 1e-6
runs = {runs}
[[claims]]
words = "a claim"
{claim}
"""


@pytest.mark.parametrize(("epsilons", "comparison"), [((2.0, 4.0), "below"), ((4.0, 2.0), "not above")])
def test_of_one_run_nothing_is_said_to_be_larger_or_not(tmp_path: Path, epsilons, comparison) -> None:
    of, than = (f'{{ agent = "dp-ucbvi-jdp", epsilon = {e} }}' for e in epsilons)
    claim = f'of = {of}\nthan = {than}\ncomparison = "{comparison}"'
    [judged] = compared(tmp_path, SURE.format(episodes=300, agents=LEARNT, runs=1, claim=claim))["claims"]
    assert not judged["holds"] and "of one run, which has no standard error" in judged["regime"]


def test_of_one_run_a_world_nothing_is_said_to_be_larger(tmp_path: Path) -> None:
    two = 'worlds = [{ name = "linear_003", instance = 0 }, { name = "linear_003", instance = 1 }]\nepisodes = [20]'
    agents = f'[[cells]]\n{two}\nruns = 1\nagents = [{{ name = "vapvi", variant = "a" }}, "uniform"]\n'
    head = '[study]\nname = "tiny"\nmetric = "suboptimality"\npool_worlds = true\n'
    claim = 'words = "a claim"\nof = { agent = "vapvi" }\nthan = { agent = "uniform" }\ncomparison = "below"\n'
    text = f'{head}{agents}[[claims]]\n{claim}[figure]\nx = "episodes"\npanel = "world"\n'
    [judged] = compared(tmp_path, text)["claims"]
    assert not judged["holds"] and "of one run, which has no standard error" in judged["regime"]


def test_a_claim_over_what_loses_nothing_has_nothing_to_judge(tmp_path: Path) -> None:
    options = 'rewards = "learnt", behaviour = "uniform" }'
    agents = f'{{ name = "apvi", {options}, {{ name = "dp-apvi", {options}'
    claim = 'of = { agent = "dp-apvi" }\nover = { agent = "plain" }\ncomparison = "at most"\nvalue = 10'
    [judged] = compared(tmp_path, SURE.format(episodes=1_000_000, agents=agents, runs=2, claim=claim))["claims"]
    assert not judged["holds"] and "no row to judge" in judged["regime"]


def test_no_standard_errors_are_claimed_of_what_has_none(tmp_path: Path) -> None:
    claim = 'metric = "end"\nof = { agent = "dp-ucbvi-jdp" }\nthan = { agent = "plain" }\ncomparison = "above"'
    [judged] = compared(tmp_path, SURE.format(episodes=300, agents=LEARNT, runs=2, claim=claim))["claims"]
    assert "standard errors" not in judged["rule"]
