"""The job of ``reproduce`` and ``compare``: measure a study's cells, read its rows, write its folder."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from flows.config.home import Home, environment
from flows.config.setting import ALONE, Progress, Work
from flows.config.study_recipes import PriceRecipe, load_price_recipe
from pipeline.declaration.lineage import CATALOG_VARIABLE
from pipeline.files import json_text, write_folder
from pipeline.studies.price import price_rows
from pipeline.studies.price_claims import Priced, claims
from pipeline.studies.study import Kept, kept_of, measure_cells, online
from pipeline.studies.study_rows import Rows, curve_points, printed
from reports.studies.all_papers import Effort, claims_of, find, overview
from reports.studies.price_page import draw_figures
from reports.studies.price_page import page_of as price_page
from reports.studies.study_page import Page, PaperStudy, figure_files, table_files

# a line is said at each of so many parts of the work
_PARTS = 20
_RESULT = "result.json"


def reproduce_job(name: str, home: Home, work: Work = ALONE, *, full: bool = False) -> Kept:
    """A paper's figure or table measured anew, in ``<home>/reproductions/NAME``.

    Parameters
    ----------
    home
        Where the folder goes, and the cells that are kept.
    name
        A key of :data:`~reports.studies.all_papers.STUDIES`; ``all`` does every one, each grid once, and a page
        over all.
    work
        Runs a named part of the job, and hears of what is done, in words and in cells.
    full
        More episodes, worlds and runs.

    Returns
    -------
    ``name, rows, claims, files`` (design §5.5).
    """
    entries, root = find(name), home.root / "reproductions"
    studies = {entry.study.name: entry.study for entry in entries.values()}
    rows: dict[str, Rows] = {}
    asked = kept = 0
    began = time.monotonic()
    for key, study in studies.items():
        cells = study.full_cells() if full else study.cells()
        there = kept_of(study, cells, root / "cells")
        work.say(f"{key}: {len(cells)} cells, {there} kept from before; simulation, not private")
        asked, kept, since = asked + len(cells), kept + there, time.monotonic()
        found = work.step("measure", lambda s=study, c=cells: measure_cells(s, c, root / "cells", work.progress))
        if there < len(cells):
            work.say(f"{key}: {time.monotonic() - since:.0f} s")
        rows[key] = study.gather(cells, found)
    effort = Effort(asked, kept, time.monotonic() - began)
    read = {one: entry.read(one, rows[entry.study.name]) for one, entry in entries.items()}
    results = [
        work.step("report", lambda s=s, r=rows[entries[n].study.name]: _reproduced(s, r, root)) for n, s in read.items()
    ]
    if name != "all":
        return results[0]
    result = {
        "name": "all",
        "rows": [printed(row) for each in rows.values() for row in each],
        "claims": claims_of([*read.values()]),
        "seconds": round(effort.seconds, 1),
        "cells": {"all": asked, "kept": kept},
    }
    more = [file for r in results for file in r["files"]]
    page = overview([*read.values()], effort)
    return work.step("report", lambda: _publish(root / "all", page, result, {}, more=more))


def _reproduced(study: PaperStudy, rows: Rows, root: Path) -> Kept:
    table = [printed(row) for row in rows]
    parquet, csv = table_files(table)
    svg, png = figure_files(study.figure)
    written = {"table.csv": csv, "figure.svg": svg, "table.parquet": parquet, "figure.png": png}
    if points := curve_points(rows):
        written["curves.parquet"] = table_files(points)[0]
    result = {"name": study.name, "rows": table, "claims": list(study.claims)}
    return _publish(root / study.name, study.page, result, written)


def compare_job(path: Path, home: Home, work: Work = ALONE, *, full: bool = False) -> Kept:
    """One world under every trust model, in ``<home>/comparisons/NAME``; runs measured before are found again.

    Parameters
    ----------
    home
        Where the folder goes, and the runs that are kept.
    path
        A recipe with ``[compare]``.
    work, full
        As of :func:`reproduce_job`.

    Returns
    -------
    ``name, rows, claims, needed, bar, files`` (design §5.5).
    """
    recipe = load_price_recipe(path)
    trials, root = recipe.grid(full).trials(), home.root / "comparisons"
    work.say(f"playing {len(trials):,} runs of {recipe.compare.name}; simulation, not private")
    study = online("compare", lambda: trials, gather=price_rows)
    # worlds' files are looked for there, by the processes that measure too
    with nullcontext() if home.shelf is None else environment(CATALOG_VARIABLE, str(home.shelf.resolve())):
        told = _tell_parts(work)
        outcomes = work.step("play", lambda: measure_cells(study, trials, root / "cells", told))
    priced = Priced(recipe.compare.name, study.gather(trials, outcomes))
    return work.step("report", lambda: _compared(recipe, full, priced, root))


def _tell_parts(work: Work) -> Progress:
    """Passes progress on, and says it in words now and then."""
    said = [0]

    def tell(done: int, total: int | None) -> None:
        if work.progress is not None:
            work.progress(done, total)
        part = _PARTS * done // total if total else 0
        if part > said[0]:
            said[0] = part
            work.say(f"  {done:,} of {total:,} runs")

    return tell


def _compared(recipe: PriceRecipe, full: bool, priced: Priced, root: Path) -> Kept:
    values = recipe.model_dump(mode="json", exclude_none=True) | {"measured": "full" if full else "default"}
    shown = [{k: v for k, v in row.items() if k != "losses"} for row in priced.rows]
    keys = ("agent", "family", "trust", "epsilon", "delta", "episodes")
    runs = [{k: row[k] for k in keys} | {"suboptimality": loss} for row in priced.rows for loss in row["losses"]]
    parquet, csv = table_files(shown)
    result = {
        "name": priced.name,
        "world": priced.world,
        "bar": priced.bar,
        "needed": priced.needed_table(),
        "rows": shown,
        "claims": claims(priced),
    }
    written = {"table.csv": csv, "table.parquet": parquet, "runs.parquet": table_files(runs)[0]}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]
    folder = root / f"{priced.name}-{digest}"
    return _publish(folder, price_page(priced), result, written | draw_figures(priced), recipe=values)


def _publish(
    final: Path,
    page: Page,
    result: Kept,
    more_files: Mapping[str, str | bytes],
    *,
    recipe: Mapping[str, object] | None = None,
    more: Sequence[str] = (),
) -> Kept:
    """Write the folder of a study, whole or not at all; what ``--json`` prints."""
    written = {"page.html": page.html, "page.md": page.markdown, **more_files}
    files = [str(final / file) for file in sorted([*written, _RESULT])]
    said = {"schema_version": 1} if recipe is None else {"schema_version": 1, "recipe": recipe}
    where = {"files": [*files, *more]} if recipe is None else {"folder": str(final), "files": files}
    write_folder(final, {**written, _RESULT: json_text({**said, **result, **where})})
    return {**result, **where}
