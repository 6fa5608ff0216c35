"""Reticent from Python: learn decision policies from logged trajectories without telling on the people in them.

A card says what a log is, a recipe what to learn for how much; both are files, so that an auditor can read them.
``Store`` keeps rows and runs, ``plan`` tells the price, ``run`` pays it.  The shell's verbs call the same functions.

Examples
--------
>>> import reticent
>>> reticent.plan("demo", quality=False).allowed
True
"""

from flows.api import (
    Store,
    audit,
    compare,
    demo,
    doctor,
    draft,
    fetch,
    night_problem,
    nightly,
    plan,
    reproduce,
    run,
    serve,
    simulate,
    simulate_logs,
)
from flows.config.recipe import Recipe, load_recipe
from flows.jobs.book import Book
from flows.jobs.datasets import list_datasets as datasets
from flows.jobs.opened import Run
from flows.jobs.opened import RunPolicy as Policy
from flows.jobs.simulated_logs import LogOptions
from flows.server.serving import alert, trigger
from pipeline.declaration.card import Card, CardError, LqCard
from pipeline.declaration.card import load_any_card as load_card
from pipeline.declaration.toml import LogError
from pipeline.ledger.chain import BudgetError
from pipeline.operator.proposal import Draft

__all__ = [
    "Book",
    "BudgetError",
    "Card",
    "CardError",
    "Draft",
    "LogError",
    "LogOptions",
    "LqCard",
    "Policy",
    "Recipe",
    "Run",
    "Store",
    "alert",
    "audit",
    "compare",
    "datasets",
    "demo",
    "doctor",
    "draft",
    "fetch",
    "load_card",
    "load_recipe",
    "night_problem",
    "nightly",
    "plan",
    "reproduce",
    "run",
    "serve",
    "simulate",
    "simulate_logs",
    "trigger",
]

if __name__ == "__main__":
    from flows.cli import main

    main()
