"""``reticent plan RECIPE``: what a run would spend and what is left; reads no rows."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.terminal.screen import MOST, Json, show
from flows.verbs.runs import chosen_store

# design §5.1: the budget does not allow it
_REFUSED = 4


def plan(
    recipe: str,
    people: Annotated[int | None, typer.Option(min=1, max=MOST, help="Quality for so many people.")] = None,
    quality: Annotated[bool, typer.Option(help="Simulate what quality to expect, on declarations alone.")] = True,
    as_json: Json = False,
) -> None:
    """Every mechanism with sensitivity, scale and cost, and the quality to expect, before anything is spent.

    Exit 4: the budget does not allow it.
    """
    from flows import api
    from flows.terminal.plan_page import plan_page

    r = api.plan(recipe, people=people, quality=quality, store=chosen_store())
    show(r.model_dump(), as_json, lambda: plan_page(r))
    if not r.allowed:
        raise typer.Exit(_REFUSED)
