"""The job of ``reproduce`` and ``compare``: measure a study's cells, read its rows, write its folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from flows.config.home import ALONE, Home, Work, environment, paper_studies
from flows.config.study_recipes import load_study
from pipeline.declaration.lineage import CATALOG_VARIABLE
from pipeline.facts.promise import Dump
from pipeline.files import json_text, write_folder
from pipeline.online.cells import band, count_measured, curve_points, gathered_rows, measure_cells, printed
from pipeline.online.study import Judged, Study, bar_of, needed_table
from reports.studies.study_page import StudyPage, draw_study, figure_files, overview, study_page, table_files


def reproduce_job(name: str, home: Home, work: Work = ALONE, *, full: bool = False) -> Dump:
    """A shipped study of a paper, in ``<home>/studies/NAME``; ``all``: every one, and a page over them.

    Returns as :func:`study_job`; of ``all`` the rows and claims of every study, and the seconds that it took.
    """
    paths, began = paper_studies(name), time.monotonic()
    measured = [_measured(path, home, work, full=full) for path in paths.values()]
    if name != "all":
        return measured[0].result
    result = {
        "name": "all",
        "rows": [row for m in measured for row in m.result["rows"]],
        "claims": [{"name": m.study.study.name, **claim} for m in measured for claim in m.claims],
        "seconds": round(time.monotonic() - began, 1),
        "cells": {"all": sum(m.asked for m in measured), "kept": sum(m.kept for m in measured)},
    }
    more = [file for m in measured for file in m.result["files"]]
    page = overview([(m.study, m.claims) for m in measured])
    return work.step("report")(_publish, home.root / "studies" / "all", page, result, {}, more)


def study_job(path: Path, home: Home, work: Work = ALONE, *, full: bool = False) -> Dump:
    """A study measured, in ``<home>/studies/NAME``; runs measured before are found again.

    Returns ``name, rows, claims, files`` (design §5.5); where suboptimality is measured beside uniform choice,
    ``needed`` and ``bar`` too.
    """
    return _measured(path, home, work, full=full).result


@dataclass(frozen=True)
class _Measured:
    """A measured study: its result, and how many of its cells were asked and kept from before."""

    study: Study
    claims: Sequence[Judged]
    result: Dump
    asked: int
    kept: int


def _measured(path: Path, home: Home, work: Work, *, full: bool) -> _Measured:
    study, studies = load_study(path), home.root / "studies"
    cells, name = study.listed(full), study.study.name
    kept = count_measured(cells, studies / "cells")
    work.say(f"{name}: {len(cells):,} cells, {kept:,} kept from before; simulation, not private")
    # the processes that measure find worlds' files there too
    with nullcontext() if home.shelf is None else environment(CATALOG_VARIABLE, str(home.shelf.resolve())):
        outcomes = work.step("measure")(measure_cells, cells, studies / "cells", work.progress)
    rows = gathered_rows(cells, outcomes, study.study.metric)
    claims, bar = study.judged(rows), bar_of(rows)
    table = [printed(row) for row in rows]
    if bar is not None:
        table = [t | {"of": r["facts"].get("of"), **band(r)} for t, r in zip(table, rows, strict=True)]
    result = {"name": name, "rows": table, "claims": claims}
    if bar is not None:
        result |= {"needed": needed_table(rows, bar), "bar": bar}

    def report() -> Dump:
        parquet, csv = table_files(table)
        svg, png = figure_files(draw_study(study, rows))
        written = {"table.csv": csv, "table.parquet": parquet, "figure.svg": svg, "figure.png": png}
        if points := curve_points(rows):
            written["curves.parquet"] = table_files(points)[0]
        recipe = study.model_dump(mode="json", exclude_defaults=True) | {"measured": "full" if full else "default"}
        return _publish(studies / name, study_page(study, rows, claims), result, written, recipe=recipe)

    return _Measured(study, claims, work.step("report")(report), len(cells), kept)


def _publish(
    final: Path,
    page: StudyPage,
    result: Dump,
    more_files: Mapping[str, str | bytes],
    more: Sequence[str] = (),
    recipe: Dump | None = None,
) -> Dump:
    """Write the folder of a study, whole or not at all; what ``--json`` prints."""
    written = {"page.html": page.html, "page.md": page.markdown, **more_files}
    answer = result | {"files": [*(str(final / file) for file in sorted([*written, "result.json"])), *more]}
    header = {"schema_version": 1} | ({} if recipe is None else {"recipe": recipe})
    write_folder(final, {**written, "result.json": json_text(header | answer)})
    return answer
