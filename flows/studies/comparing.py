"""``compare RECIPE``: one world under every trust model, laid out in ``<home>/comparisons/NAME``."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.config.price_recipe import PriceRecipe, load_price_recipe
from flows.config.setting import Step, plain_step
from flows.config.shelf import Home
from flows.jobs.folder import json_text
from flows.studies.cells import measured
from flows.studies.registry import Row, online
from pipeline.declaration.lineage import CATALOG_VARIABLE
from pipeline.files import write_folder
from pipeline.studies.price import price_rows
from reports.price import page_html, page_markdown
from reports.price_evidence import Priced, claims
from reports.price_figures import against_budget, against_episodes
from reports.reproduction import table_files

# a line is said at each of so many parts of the work
_PARTS = 20


def compare_job(
    path: Path,
    home: Home,
    step: Step = plain_step,
    *,
    full: bool = False,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, Any]:
    """Measure the grid of a recipe; runs measured before, by the same code, are found again."""
    recipe = load_price_recipe(path)
    trials = recipe.grid(full).trials()
    root = home.root / "comparisons"
    say(f"playing {len(trials):,} runs of {recipe.compare.name}; simulation, not private")
    told = _Told(say, progress)
    bench = online("compare", lambda: trials)
    with _on_shelf(home.shelf):
        outcomes = step("play", lambda: measured(bench, trials, root / "cells", told))
    rows = price_rows(trials, outcomes)
    return step("report", lambda: _published(recipe, full, rows, root))


class _Told:
    """Passes progress on, and says it in words now and then."""

    def __init__(self, say: Callable[[str], None], progress: Callable[[int, int | None], None] | None) -> None:
        self._say, self._progress, self._part = say, progress, 0

    def __call__(self, done: int, total: int | None) -> None:
        if self._progress is not None:
            self._progress(done, total)
        part = _PARTS * done // total if total else 0
        if part > self._part:
            self._part = part
            self._say(f"  {done:,} of {total:,} runs")


@contextmanager
def _on_shelf(shelf: Path | None) -> Generator[None]:
    """Where worlds' files are looked for, in this process and in those it starts."""
    before = os.environ.get(CATALOG_VARIABLE)
    if shelf is not None:
        os.environ[CATALOG_VARIABLE] = str(shelf.resolve())
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(CATALOG_VARIABLE, None)
        else:
            os.environ[CATALOG_VARIABLE] = before


def _published(recipe: PriceRecipe, full: bool, rows: Sequence[Row], root: Path) -> dict[str, Any]:
    values = recipe.model_dump(mode="json", exclude_none=True) | {"measured": "full" if full else "default"}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]
    name = f"{recipe.compare.name}-{digest}"
    final = root / name
    priced = Priced(recipe.compare.name, rows)
    shown = [{k: v for k, v in row.items() if k != "losses"} for row in rows]
    parquet, csv = table_files(shown)
    texts = {"page.html": page_html(priced), "page.md": page_markdown(priced), "table.csv": csv} | _figures(priced)
    tables = {"table.parquet": parquet, "runs.parquet": table_files(_runs(rows))[0]}
    files = sorted([*texts, *tables, "result.json"])
    result = {
        "name": recipe.compare.name,
        "world": priced.world,
        "bar": priced.bar,
        "needed": needed(priced),
        "rows": shown,
        "claims": claims(priced),
        "folder": str(final),
        "files": [str(final / file) for file in files],
    }
    told = json_text({"schema_version": 1, "recipe": values, **result})
    write_folder(final, {**texts, **tables, "result.json": told})
    return result


def needed(p: Priced) -> list[dict[str, Any]]:
    """Episodes needed by each agent at each budget; None: not in the range measured."""
    asked = [(plain, None) for plain in dict.fromkeys(plain for _, plain in p.private())]
    asked += [(agent, e) for agent, _ in p.private() for e in p.budgets]
    return [
        {
            "agent": agent,
            "trust": p.trust(agent),
            "epsilon": e,
            "episodes": p.needed(agent, e),
            "episodes_nine_in_ten": p.needed(agent, e, "high"),
            "most": p.episodes[-1],
        }
        for agent, e in asked
    ]


def _figures(p: Priced) -> dict[str, str]:
    found = {
        f"{family}-{kind}.svg": draw(p, family)
        for family in p.families
        for kind, draw in (("episodes", against_episodes), ("budget", against_budget))
    }
    return {file: figure.svg for file, figure in found.items() if figure is not None}


def _runs(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row a run: who, at which budget, after how many episodes, what its policy loses."""
    keys = ("agent", "family", "trust", "epsilon", "delta", "episodes")
    return [{key: row[key] for key in keys} | {"suboptimality": loss} for row in rows for loss in row["losses"]]
