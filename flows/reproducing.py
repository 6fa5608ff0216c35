"""``reproduce``: a paper's figure or table measured anew, read, and laid out in ``<home>/reproductions/NAME``."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.cells import measured
from flows.folder import publish, write_json
from flows.setting import Step, plain_step
from flows.shelf import Home
from flows.studies import Row, find
from pipeline.benches.trial import curve_points, printed
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
    """Measure the study's cells, read its claims, write its folder; ``all`` does every study, each bench once."""
    entries = find(name)
    root = home.root / "reproductions"
    benches = {entry.bench.name: entry.bench for entry in entries.values()}
    rows: dict[str, list[Row]] = {}
    for key, bench in benches.items():
        cells = bench.full_cells() if full else bench.cells()
        say(f"measuring {len(cells)} cells of {key}; simulation, not private")
        found = step("measure", lambda b=bench, c=cells: measured(b, c, root / "cells", progress))
        rows[key] = bench.gather(cells, found)
    results: list[dict[str, Any]] = []
    for one, entry in entries.items():
        study = entry.read(one, rows[entry.bench.name])
        results.append(step("report", lambda s=study, e=entry: _published(s, rows[e.bench.name], root)))
    if name != "all":
        return results[0]
    return {
        "name": "all",
        "rows": [printed(row) for each in rows.values() for row in each],
        "claims": [{"name": r["name"], **claim} for r in results for claim in r["claims"]],
        "files": [file for r in results for file in r["files"]],
    }


def _published(study: Study, rows: Sequence[Mapping[str, Any]], root: Path) -> dict[str, Any]:
    """Write the folder beside, then rename: it is there whole or not at all."""
    partial, final = root / f".{study.name}.partial", root / study.name
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    table = [printed(row) for row in rows]
    parquet, csv = table_files(table)
    svg, png = figure_files(study.figure)
    tables = {"table.parquet": parquet, "figure.png": png}
    if points := curve_points(rows):
        tables["curves.parquet"] = table_files(points)[0]
    texts = {"table.csv": csv, "figure.svg": svg, "page.html": render_html(study), "page.md": render_markdown(study)}
    for file, text in texts.items():
        (partial / file).write_text(text, encoding="utf-8")
    for file, data in tables.items():
        (partial / file).write_bytes(data)
    files = sorted([*texts, *tables, "result.json"])
    result = {
        "name": study.name,
        "rows": table,
        "claims": list(study.claims),
        "files": [str(final / file) for file in files],
    }
    write_json(partial / "result.json", {"schema_version": 1, **result})
    publish(partial, final)
    return result
