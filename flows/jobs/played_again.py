"""Verify a simulated run: play its first run again from the recipe, and compare what was released and emitted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from flows.config.study_recipes import is_world_recipe, load_world_recipe
from flows.jobs.made_again import Vouched, foreign_code
from flows.jobs.played import Played
from flows.jobs.played_report import played_guarantee
from flows.jobs.publish import PAGES, drawn_pages
from pipeline.declaration.card import CardError
from pipeline.declaration.toml import read_toml
from pipeline.learners.registry import read_view
from pipeline.ledger.chain import Body
from pipeline.ledger.verify import Check, read_json
from pipeline.privacy.release_file import describe_mechanism, read_release
from pipeline.simulation.registry import run
from reports.facts.report import read_report

_AGAIN = "played again from the recipe"
_BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, CardError)


def is_played(folder: Path) -> bool:
    """Whether a run's folder holds the recipe of a simulation.

    Parameters
    ----------
    folder
        Of a run; nothing in it is trusted.
    """
    try:
        return is_world_recipe(read_toml(folder / "recipe.toml"))
    except (OSError, CardError):
        return False


def played_again(folder: Path, held: Vouched) -> Iterator[Check]:
    """Play the agent's first run, and compare mechanisms, release, policy, guarantee and pages.

    Parameters
    ----------
    folder
        Of the run.
    held
        What the ledger says of it.
    """
    if (strange := foreign_code(folder, held)) is not None:
        yield Check(f"the first run, {_AGAIN}", None, f"not comparable: {strange}")
        return
    try:
        recipe = load_world_recipe(folder / "recipe.toml", folder.parent)
        trial = recipe.trials()[recipe.recipe.agent][0]
        first = run(trial)
        played = Played(recipe, folder.name, [trial], [first.as_dict()], first)
        yield _said(f"mechanisms and guarantee, {_AGAIN}", _promise_problem(folder, played))
        yield _said(f"release.parquet, {_AGAIN}", _release_problem(folder, played))
        yield _said(f"policy.parquet, {_AGAIN}", _policy_problem(folder, played))
        yield _said("the pages, drawn again from report.json", _pages_problem(folder))
    except _BROKEN as e:
        yield Check(f"the first run, {_AGAIN}", False, f"it cannot be played ({type(e).__name__}: {str(e)[:120]})")
        return
    yield Check("regret and intervals over all seeds", None, "simulate its recipe again: kept runs are found again")


def _said(what: str, problem: str | None) -> Check:
    return Check(what, problem is None, problem or "")


def _promise_problem(folder: Path, played: Played) -> str | None:
    proof: Body = read_json(folder, "certificate.json")
    if [describe_mechanism(m) for m in played.release.mechanisms] != proof["mechanisms"]:
        return "the recipe releases other tables, or with other noise"
    again = played_guarantee(played).model_dump()
    differ = [key for key in again if again[key] != proof["guarantee"].get(key)]
    return f"guarantee: {', '.join(differ)} differ" if differ else None


def _release_problem(folder: Path, played: Played) -> str | None:
    there = read_release(folder).tables
    same = all(np.array_equal(there[name], table) for name, table in played.release.tables.items())
    return None if same else "its numbers are others"


def _policy_problem(folder: Path, played: Played) -> str | None:
    table = pq.read_table(folder / "policy.parquet")
    columns = played.files.tables["policy"]
    same = all(np.allclose(table[name].to_numpy(), column, atol=1e-9) for name, column in columns.items())
    return None if same and set(columns) == set(table.column_names) else "its numbers are others"


def _pages_problem(folder: Path) -> str | None:
    report = read_report(folder)
    for page, text in zip(PAGES, drawn_pages(report, read_view(report, folder)), strict=True):
        if (folder / page).read_text(encoding="utf-8") != text:
            return f"{page} says something else"
    return None
