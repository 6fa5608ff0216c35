"""``reproduce``: a paper's figure or table measured anew, read, and laid out in ``<home>/reproductions/NAME``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.config.setting import Step, plain_step
from flows.config.shelf import Home
from flows.jobs.folder import json_text
from flows.studies.cells import kept_of, measured
from flows.studies.registry import Row, find
from pipeline.files import write_folder
from pipeline.studies.gather import curve_points, printed
from reports.all_papers import Effort, claims_of, overview_html, overview_markdown
from reports.reproduction import Study, figure_files, render_html, render_markdown, table_files


def reproduce_job(
    name: str,
    home: Home,
    step: Step = plain_step,
    *,
    full: bool = False,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, Any]:
    """Measure the study's cells, read its claims, write its folder.

    ``all`` does every study, each bench once, and a page over all of them.
    """
    entries = find(name)
    root = home.root / "reproductions"
    benches = {entry.bench.name: entry.bench for entry in entries.values()}
    rows: dict[str, list[Row]] = {}
    asked = kept = 0
    began = time.monotonic()
    for key, bench in benches.items():
        cells = bench.full_cells() if full else bench.cells()
        there = kept_of(bench, cells, root / "cells")
        say(f"{key}: {len(cells)} cells, {there} kept from before; simulation, not private")
        asked, kept, since = asked + len(cells), kept + there, time.monotonic()
        found = step("measure", lambda b=bench, c=cells: measured(b, c, root / "cells", progress))
        if there < len(cells):
            say(f"{key}: {time.monotonic() - since:.0f} s")
        rows[key] = bench.gather(cells, found)
    effort = Effort(asked, kept, time.monotonic() - began)
    results: list[dict[str, Any]] = []
    studies: list[Study] = []
    for one, entry in entries.items():
        studies.append(entry.read(one, rows[entry.bench.name]))
        results.append(step("report", lambda s=studies[-1], e=entry: _published(s, rows[e.bench.name], root)))
    if name != "all":
        return results[0]
    together = {
        "name": "all",
        "rows": [printed(row) for each in rows.values() for row in each],
        "claims": claims_of(studies),
        "seconds": round(effort.seconds, 1),
        "cells": {"all": asked, "kept": kept},
        "files": [file for r in results for file in r["files"]],
    }
    return step("report", lambda: _published_together(studies, effort, together, root))


def _published_together(studies: Sequence[Study], effort: Effort, result: dict[str, Any], root: Path) -> dict[str, Any]:
    """The page over all studies, beside theirs."""
    final = root / "all"
    texts = {"page.html": overview_html(studies, effort), "page.md": overview_markdown(studies, effort)}
    own = [str(final / file) for file in (*texts, "result.json")]
    result = {**result, "files": [*own, *result["files"]]}
    write_folder(final, {**texts, "result.json": json_text({"schema_version": 1, **result})})
    return result


def _published(study: Study, rows: Sequence[Mapping[str, Any]], root: Path) -> dict[str, Any]:
    final = root / study.name
    table = [printed(row) for row in rows]
    parquet, csv = table_files(table)
    svg, png = figure_files(study.figure)
    tables = {"table.parquet": parquet, "figure.png": png}
    if points := curve_points(rows):
        tables["curves.parquet"] = table_files(points)[0]
    texts = {"table.csv": csv, "figure.svg": svg, "page.html": render_html(study), "page.md": render_markdown(study)}
    files = sorted([*texts, *tables, "result.json"])
    result = {
        "name": study.name,
        "rows": table,
        "claims": list(study.claims),
        "files": [str(final / file) for file in files],
    }
    told = json_text({"schema_version": 1, **result})
    write_folder(final, {**texts, **tables, "result.json": told})
    return result
