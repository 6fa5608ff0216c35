"""``reproduce`` from outside on a tiny grid: JSON shape, files, determinism, rows found again; shipped studies."""

import json
from pathlib import Path

import pytest

from flows.config.home import paper_studies
from flows.jobs.studies import load_study
from pipeline.online import cells as kept_cells
from pipeline.online.cells import measure, measure_cells
from tests.flows.verb import invoke, refusal

KEYS = {"agent", "variant", "trust", "world", "episodes", "rho", "epsilon", "delta", "calibration", "constants"}
KEYS |= {"metric", "mean", "std", "runs"}
FILES = {"table.parquet", "table.csv", "figure.svg", "figure.png", "page.html", "page.md", "result.json"}


def tiny(folder: Path) -> Path:
    """Figure 1 of paper 003 at one K and two budgets, in one world."""
    text = paper_studies("003-figure-1a")["003-figure-1a"].read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("full = ")]
    text = "\n".join(lines).replace("[5, 20, 50, 100, 200, 500, 1000, 5000, 10_000, 100_000]", "[50]")
    text = text.replace(', { name = "linear_003", instance = 1 }', "").replace("runs = 20", "runs = 2")
    path = folder / "003-figure-1a.toml"
    path.write_text(text.replace("[1.0, 5.0, 25.0]", "[1.0, 25.0]"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """A home in which the study was made, what the verb said, and what it says of all that are shipped."""
    home = tmp_path_factory.mktemp("studied")
    path = tiny(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.jobs.studies.paper_studies", lambda name: {"003-figure-1a": path})
        one, everything = (invoke("--home", home, "reproduce", name, "--json") for name in ("003-figure-1a", "all"))
    assert one.exit_code == 0, one.output
    return home, json.loads(one.stdout), json.loads(everything.stdout)


def test_one_json_object_of_the_agreed_shape_and_its_files(studied):
    home, result, everything = studied
    assert {"name", "rows", "claims", "files"} <= set(result) and result["name"] == "003-figure-1a"
    assert all(set(r) >= KEYS for r in result["rows"])
    assert all({"claim", "regime", "rule"} <= set(c) and isinstance(c["holds"], bool) for c in result["claims"])
    agents = {"dp-vapvi", "vapvi", "pevi", "uniform", "behaviour", "always-first"}
    assert {r["agent"] for r in result["rows"]} == agents
    paths = [Path(f) for f in result["files"]]
    assert {p.name for p in paths} == FILES and all(p.is_absolute() and p.is_file() for p in paths)
    kept = json.loads((home / "studies" / "003-figure-1a" / "result.json").read_text())
    assert kept["rows"] == result["rows"] and kept["claims"] == result["claims"] and kept["recipe"]["study"]
    assert everything["cells"]["kept"] == everything["cells"]["all"] and everything["rows"] == result["rows"]
    assert everything["claims"][0] == {"name": "003-figure-1a", **result["claims"][0]}


def test_the_literal_calibration_is_said_to_spend_its_true_rho(studied):
    _, result, _ = studied
    true = {(r["variant"], r["rho"]): r["true_rho"] for r in result["rows"] if r["agent"] == "dp-vapvi"}
    assert true["literal", 1.0] == pytest.approx(22.5, abs=0.1) and true["literal", 25.0] > 560
    assert true["normalised", 1.0] < 1 and true["centred", 25.0] == 25.0 and true["one-shot", 1.0] == 1.0
    assert result["claims"][0]["holds"] is False and "22.6" in result["claims"][0]["regime"]
    means = {(r["agent"], r["variant"], r["rho"], r["episodes"]): r["mean"] for r in result["rows"]}
    # all contenders plan on the same log, private ones on their own noise
    assert means["vapvi", "literal", None, 50] == means["pevi", "literal, matched β", None, 50]
    assert means["dp-vapvi", "centred", 1.0, 50] != means["dp-vapvi", "centred", 25.0, 50]


def test_kept_rows_are_found_again_by_the_same_code_and_a_broken_run_goes_on(tmp_path, monkeypatch):
    cells, seen = load_study(tiny(tmp_path)).listed()[:4], []

    def once(cell):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(cell)
        return measure(cell)

    monkeypatch.setattr(kept_cells, "measure", once)
    with pytest.raises(KeyboardInterrupt):
        measure_cells(cells, tmp_path / "cells")
    monkeypatch.setattr(kept_cells, "measure", measure)
    told = []
    rows = measure_cells(cells, tmp_path / "cells", lambda done, total: told.append((done, total)))
    assert rows == [measure(c) for c in cells] and told == [(3, 4), (4, 4)]

    def refuse(cell):
        raise AssertionError(f"measured again: {cell}")

    monkeypatch.setattr(kept_cells, "measure", refuse)
    assert measure_cells(cells, tmp_path / "cells") == rows
    monkeypatch.setattr(kept_cells, "closure_digest", lambda modules: "other code")
    with pytest.raises(AssertionError, match="measured again"):
        measure_cells(cells, tmp_path / "cells")


@pytest.mark.slow
def test_processes_give_the_rows_of_this_one(tmp_path, monkeypatch):
    cells = load_study(tiny(tmp_path)).listed()[:2]
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    assert measure_cells(cells, tmp_path / "cells") == [measure(c) for c in cells]


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    refused = refusal(tmp_path, "reproduce", "figure-9")
    assert "no study 'figure-9'; there are: 000-joint, 001-figure-2, 002-table-1" in refused


# name -> cells of the quick grid and of the full one
SIZES = {
    "000-joint": (454, 1726), "001-figure-2": (419, 2099), "002-table-1": (1052, 4172), "003-figure-1a": (420, 1575),
    "004-regret": (762, 1864),
}  # fmt: skip


def test_shipped_studies_are_of_their_names_and_sizes():
    for name, path in paper_studies("all").items():
        study = load_study(path)
        assert study.study.name == name and study.claims and study.study.words
        assert (len(study.listed()), len(study.listed(full=True))) == SIZES[name]
