"""``compare`` from outside: JSON shape, files, a page that reads without colour, runs found again, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from flows.config.home import Home
from flows.config.setting import Work
from flows.config.study_recipes import load_price_recipe
from flows.jobs.reproduce import compare_job
from pipeline.declaration.card import CardError
from pipeline.simulation import registry as agents
from pipeline.studies.price import FAMILIES
from pipeline.studies.price_claims import Priced
from reports.figures.charts import DASHES, PALETTE
from reports.page import number
from reports.studies.price_page import label
from tests.flows.verb import invoke

RECIPE = """
[compare]
name = "tiny"
families = ["counts", "mixture"]
[world]
name = "riverswim_homogeneous"
states = 3
[privacy]
epsilon = [1.0, 10.0]
delta = 1e-6
[runs]
episodes = { first = 10, last = 1000, per_decade = 1 }
runs = 2
[full]
runs = 3
"""
RECIPES = Path(__file__).resolve().parents[2] / "flows" / "recipes"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("compare")
    (path / "tiny.toml").write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def result(folder):
    return compared(folder)


def compared(folder, *more):
    done = invoke("--home", folder / "home", "compare", folder / "tiny.toml", "--json", *more)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def page(result, name="page.html"):
    return next(Path(f) for f in result["files"] if f.endswith(name)).read_text()


def test_one_json_object_of_the_agreed_shape(result):
    assert {"name", "rows", "claims", "files", "needed", "bar"} <= set(result)
    row = {"agent", "variant", "trust", "world", "episodes", "rho", "epsilon", "delta", "calibration", "constants"}
    for r in result["rows"]:
        assert row | {"metric", "mean", "std", "runs"} <= set(r) and r["metric"] == "suboptimality"
        assert "losses" not in r
    assert {r["trust"] for r in result["rows"]} == {"none", "central", "joint", "local", "shuffle"}
    assert all({"claim", "holds", "regime"} <= set(c) for c in result["claims"])
    uniform = next(r for r in result["rows"] if r["agent"] == "uniform")
    assert result["bar"] == pytest.approx(0.1 * uniform["mean"])
    assert all(Path(f).is_file() for f in result["files"])


def test_a_row_a_run_lies_beside_and_means_what_the_rows_mean(result):
    runs = pl.read_parquet(next(f for f in result["files"] if f.endswith("runs.parquet")))
    mine = runs.filter((pl.col("agent") == "dp-apvi") & (pl.col("epsilon") == 10) & (pl.col("episodes") == 1000))
    row = next(r for r in result["rows"] if (r["agent"], r["epsilon"], r["episodes"]) == ("dp-apvi", 10, 1000))
    assert len(mine) == 2 and mine["suboptimality"].mean() == pytest.approx(row["mean"])


def test_the_page_loads_nothing_and_says_what_must_be_said(result):
    html = page(result)
    assert (
        "simulation, not private" in html and "<script" not in html and "://" not in re.sub(r'xmlns="[^"]*"', "", html)
    )
    for words in (
        "one user is one episode, neighbours differ in one user, replaced by any other",
        "learns from episodes that a fixed policy has logged",
        "none: no offline agent for linear mixtures is built",
        "none: no paper gives shuffled messages",
        "best constant action",
        "ties are broken at random",
        "&gt; 1,000",
    ):
        assert words in html, words
    assert len(html.encode()) < 300_000
    assert html.count("<svg") == 4 and html.count("<desc") == 4


def test_every_line_of_a_figure_has_a_colour_and_a_dash_of_its_own(result):
    svg = page(result, "counts-episodes.svg")
    learners = FAMILIES["counts"].agents
    assert len({tuple(d) for d in DASHES}) == len(DASHES) >= len(learners) and len(set(PALETTE)) >= len(learners)
    for name in (*map(label, learners), "uniform choice", "no data", "the bar"):
        assert f">{name}</text>" in svg, name


def test_the_twins_say_the_same(result):
    html, text, told = page(result), page(result, "page.md"), json.loads(page(result, "result.json"))
    assert told["needed"] == result["needed"] and told["schema_version"] == 1
    for r in result["rows"]:
        if r["agent"] in ("dp-apvi", "counts-shuffle") and r["episodes"] == 1000:
            shown = number(r["mean"], 3)
            assert shown in html and shown in text


def test_finished_runs_are_found_again_and_full_plays_the_rest(folder, result, monkeypatch):
    def refuse(trial):
        raise AssertionError(f"played again: {trial}")

    monkeypatch.setattr(agents, "measure", refuse)
    assert compared(folder) == result
    with pytest.raises(AssertionError, match=r"played again: .*seed=2"):
        compare_job(folder / "tiny.toml", Home(folder / "home"), full=True)


def test_progress_is_told_on_stderr_only(folder, result):
    said: list[str] = []
    compare_job(folder / "tiny.toml", Home(folder / "home"), Work(say=said.append))
    assert "simulation, not private" in said[0]


def test_the_table_for_people_has_every_trust_model_and_says_where_nobody_learns(folder, result):
    done = invoke("--home", folder / "home", "compare", folder / "tiny.toml")
    for words in ("central", "joint", "local", "shuffle", "> 1,000", "page.html"):
        assert words in done.output


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"mixture"]', '"forest"]', "no family 'forest'; there are: counts, mixture"),
        ("states = 3", "lakes = 1", "lakes"),
        ('name = "riverswim_homogeneous"', 'name = "ocean"', "no world 'ocean'"),
        ("last = 1000", "last = 10", "'first' must be below 'last'"),
        ("epsilon = [1.0, 10.0]", "epsilon = [0.0]", "privacy.epsilon"),
        ("delta = 1e-6", "delta = 1.0", "privacy.delta"),
        ("[compare]", "[recipe]", "needs [compare] and [world]"),
    ],
)
def test_a_wrong_recipe_is_one_clear_line(folder, tmp_path, old, new, says):
    path = tmp_path / "wrong.toml"
    path.write_text(RECIPE.replace(old, new))
    done = invoke("--home", tmp_path / "home", "compare", path)
    assert isinstance(done.exception, CardError) and says in str(done.exception) and "\n" not in str(done.exception)


def test_verbs_send_recipes_to_each_other(folder, tmp_path):
    for verb in ("run", "simulate", "plan"):
        done = invoke("--home", tmp_path, verb, folder / "tiny.toml")
        assert "reticent compare" in str(done.exception), verb
    done = invoke("--home", tmp_path, "compare", "riverswim_joint")
    assert "compare-runs A B" in str(done.exception)


@pytest.mark.parametrize("name", ["trust_riverswim", "trust_mixture", "trust_icu_sepsis"])
def test_shipped_comparisons_ask_what_their_delta_can_mean(name):
    recipe = load_price_recipe(RECIPES / f"{name}.toml")
    grid = recipe.grid()
    assert grid.delta <= 1 / (10 * max(grid.episodes)) * (1 + 1e-9) and 1.0 in grid.budgets
    assert len(recipe.grid(full=True).trials()) > len(grid.trials())


def test_the_world_of_icu_sepsis_is_found_on_the_shelf_that_is_asked(tmp_path):
    shelf = tmp_path / "shelf" / "icu_sepsis"
    shelf.mkdir(parents=True)
    (shelf / "world.npz").write_bytes(b"not a world")
    path = tmp_path / "icu.toml"
    path.write_text(
        RECIPE.replace('name = "riverswim_homogeneous"\nstates = 3', 'name = "icu_sepsis_bins"').replace(
            ', "mixture"', ""
        )
    )
    with pytest.raises(CardError, match="not the ICU-Sepsis world"):
        compare_job(path, Home(tmp_path / "home", tmp_path / "shelf"))


def test_a_row_beyond_the_range_reads_as_more_than_the_range():
    row = {"agent": "x", "variant": "", "episodes": 1000, "epsilon": None, "trust": "none", "family": "counts"}
    priced = Priced("t", [row | {"mean": 0.0}, row | {"episodes": 10, "mean": 1.0}])
    assert priced.told(None) == "> 1,000" and priced.told(10) == "≤ 10" and priced.told(1000) == "1,000"
