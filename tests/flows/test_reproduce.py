"""``reproduce`` from outside on a tiny grid: JSON shape, files, determinism, and rows found again."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from flows.config.home import Home
from flows.jobs.reproduce import reproduce_job
from pipeline.declaration.card import CardError
from pipeline.simulation.linear_trials import measure
from pipeline.studies import study as kept_cells
from pipeline.studies.paper_003 import BUDGETS, EPISODES, MORE_EPISODES, RUNS, STUDY, WORLDS, full_grid, grid
from pipeline.studies.study import measure_cells
from reports.studies import all_papers
from reports.studies.all_papers import Entry, find
from reports.studies.page_003 import study_003
from tests.flows.verb import invoke

TINY = partial(grid, episodes=(20, 1000), budgets=(1.0, 25.0), worlds=(0,), runs=2)
ONE = replace(STUDY, name="tiny", cells=TINY, full_cells=TINY, cells_a_process=10**6)
KEYS = {"agent", "variant", "trust", "world", "episodes", "rho", "epsilon", "delta", "calibration", "constants"}
KEYS |= {"metric", "mean", "std", "runs"}
FILES = {"table.parquet", "table.csv", "figure.svg", "figure.png", "page.html", "page.md", "result.json"}


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(all_papers, "STUDIES", {n: Entry(ONE, study_003) for n in ("003-figure-1a", "003-figure-1b")})


def test_one_json_object_of_the_agreed_shape_and_seven_files(tiny, tmp_path):
    done = invoke("--home", tmp_path, "reproduce", "003-figure-1a", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert {"name", "rows", "claims", "files"} <= set(result) and result["name"] == "003-figure-1a"
    assert all(set(r) >= KEYS for r in result["rows"])
    assert all({"claim", "holds", "regime"} <= set(c) and isinstance(c["holds"], bool) for c in result["claims"])
    agents = {"dp-vapvi", "vapvi", "pevi", "uniform", "behaviour", "always-first"}
    assert {r["agent"] for r in result["rows"]} == agents
    for r in result["rows"]:
        private = r["agent"] == "dp-vapvi"
        assert r["metric"] == "suboptimality" and r["noise"] == "simulation, not private"
        assert r["trust"] == ("central" if private else "none")
        assert (r["rho"] in (1.0, 25.0)) if private else (r["rho"] is None and r["epsilon"] is None)
        assert (r["tie_share"] is None) == (r["variant"] == "control")
    paths = [Path(f) for f in result["files"]]
    assert {p.name for p in paths} == FILES and all(p.is_absolute() and p.is_file() for p in paths)
    kept = json.loads((tmp_path / "reproductions" / "003-figure-1a" / "result.json").read_text())
    assert kept["rows"] == result["rows"] and kept["claims"] == result["claims"]


def test_the_literal_calibration_is_said_to_spend_its_true_rho(tiny, tmp_path):
    result = reproduce_job("003-figure-1b", Home(tmp_path))
    true = {(r["variant"], r["rho"]): r["true_rho"] for r in result["rows"] if r["agent"] == "dp-vapvi"}
    assert true["literal", 1.0] == pytest.approx(22.5, abs=0.1) and true["literal", 25.0] > 560
    assert true["normalised", 1.0] < 1 and true["centred", 25.0] == 25.0 and true["one-shot", 1.0] == 1.0
    assert result["claims"][0]["holds"] is False and "22.6" in result["claims"][0]["regime"]


def test_a_second_study_measures_nothing_anew_and_other_homes_find_the_same(tiny, tmp_path, monkeypatch):
    first = reproduce_job("all", Home(tmp_path / "a"))
    assert len(first["rows"]) == len(TINY()) and {c["name"] for c in first["claims"]} == set(all_papers.STUDIES)
    again = reproduce_job("003-figure-1a", Home(tmp_path / "b"))
    assert again["rows"] == first["rows"]
    page = tmp_path / "reproductions" / "003-figure-1a"
    pages = [(tmp_path / home / "reproductions" / "003-figure-1a" / "page.html").read_bytes() for home in "ab"]
    assert pages[0] == pages[1] and not page.exists()

    def refuse(cell):
        raise AssertionError(f"measured again: {cell}")

    study = replace(ONE, measure=refuse)
    assert measure_cells(study, TINY(), tmp_path / "a" / "reproductions" / "cells") == first["rows"]
    monkeypatch.setattr(kept_cells, "closure_digest", lambda modules: "other code")
    with pytest.raises(AssertionError, match="measured again"):
        measure_cells(study, TINY(), tmp_path / "a" / "reproductions" / "cells")


def test_a_broken_run_goes_on_where_it_was(tmp_path):
    cells, seen = TINY()[:4], []

    def once(cell):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(cell)
        return measure(cell)

    with pytest.raises(KeyboardInterrupt):
        measure_cells(replace(ONE, measure=once), cells, tmp_path)
    told = []
    rows = measure_cells(ONE, cells, tmp_path, lambda done, total: told.append((done, total)))
    assert [r["world"] for r in rows] == [measure(c)["world"] for c in cells]
    assert told == [(3, 4), (4, 4)]


def test_processes_give_the_rows_of_this_one(tmp_path, monkeypatch):
    cells = TINY()[:4]
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    assert measure_cells(replace(STUDY, cells_a_process=2), cells, tmp_path) == [measure(c) for c in cells]


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(CardError, match=r"no study 'figure-9'; there are: 003-figure-1a, .*, all"):
        find("figure-9")


def test_the_default_grid_is_the_promised_one():
    assert {1000, 5000} <= set(EPISODES) and EPISODES[0] == 5 and EPISODES[-1] == 100_000
    assert BUDGETS == (1.0, 5.0, 25.0) and RUNS >= 20 and len(WORLDS) >= 2
    assert len(set(grid())) == len(grid()) and set(EPISODES) < set(MORE_EPISODES)
    small, large = grid(), full_grid()
    assert {(c.name, c.learner, c.rho) for c in small} == {(c.name, c.learner, c.rho) for c in large}


def test_a_million_episodes_still_fit_the_sums():
    cells = [c for c in full_grid() if c.episodes == 1_000_000 and c.world == 4 and c.rho in (None, 25.0)]
    rows = [measure(replace(c, runs=1)) for c in cells]
    assert max(r["mean"] for r in rows if r["agent"] == "dp-vapvi") < 0.05


def test_all_contenders_plan_on_the_same_log_and_private_ones_on_their_own_noise():
    cells = [c for c in grid(episodes=(1000,), worlds=(0,), runs=2) if c.learner is not None]
    rows = {(r["agent"], r["variant"], r["rho"]): r["mean"] for r in map(measure, cells)}
    assert rows["vapvi", "literal", None] == rows["pevi", "literal, matched β", None]
    assert rows["dp-vapvi", "centred", 1.0] != rows["dp-vapvi", "centred", 5.0]
