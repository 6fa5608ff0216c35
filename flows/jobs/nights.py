"""The nights of a recipe: which counter they are leaves of, and which date tonight is."""

from __future__ import annotations

from datetime import date

from flows.config.setting import Setting
from pipeline.declaration.card import CardError
from pipeline.learners.tabular import counts_privatizer
from pipeline.ledger import ledger
from pipeline.privacy.continual import continual
from pipeline.transaction.continual_step import ContinualRelease


def nightly_counter(s: Setting) -> ContinualRelease:
    """The counter that a recipe with [nightly] declares."""
    n = s.recipe.nightly
    if n is None:
        raise CardError(f"{s.recipe.path.name}: [nightly] is missing; e.g. nights = 365, first = 2026-01-01")
    unit, columns, form = s.card.unit, s.tabular.source.columns, s.tabular.source.format
    if form != "table":
        raise CardError(
            f"{s.card.name}: [nightly] needs rows that name their person; source.format = '{form}' tells records by "
            "their place in a file. Write the log as a table, or run without [nightly]"
        )
    if unit.recurs == "capped" and columns.episode_id is None:
        raise CardError(
            f"{s.card.name}: [nightly] with recurs = 'capped' needs source.columns.episode_id: without it nobody can "
            "tell an episode that was delivered before from a new one. Map it, or declare recurs = 'never'"
        )
    chosen = counts_privatizer(s.tabular, s.recipe.terms)
    return ContinualRelease(s.tabular, chosen, continual(n.counter, n.nights), n.first)


def night_of(day: date | None) -> date:
    """``day``, or today (UTC).

    Raises
    ------
    CardError
        If it is to come: the nights before it could then not be counted any more.
    """
    today = ledger.now().date()
    if day is not None and day > today:
        raise CardError(f"{day} is to come; today is {today} (UTC)")
    return day or today
