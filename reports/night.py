"""What a server shows of a scheduled run: released facts and declared constants, as Markdown, a table and a link."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.declaration.numbers import number
from reports.facts.answers import NightAnswer
from reports.page import interval, loss, templates
from reports.run.answer import sentence
from reports.run.comparison import sentences

# a table artifact is one JSON text: a year of nights fits, a decade is what `ledger show` is for
_ROWS = 400


@dataclass(frozen=True)
class Page:
    """One page of a server.

    Parameters
    ----------
    key
        Of lowercase letters, digits and dashes.
    title, markdown, file
        What it is called, its text, and where the whole of it lies.
    rows
        Of the ledger, a table below it.
    """

    key: str
    title: str
    markdown: str
    file: Path
    rows: Sequence[Mapping[str, object]] = ()


def night_page(night: NightAnswer) -> Page:
    """The page of a night.

    Parameters
    ----------
    night
        As it was done.
    """
    did, promise, value, changes = night.night, night.guarantee, night.value, night.promotion.changes
    told = {
        "cost": loss(promise.rho, promise.epsilon, promise.delta, pure=promise.pure),
        "verdict": sentence(night.verdict),
        "value": interval(value.lower, value.upper),
        "charged": number(did.charged_rho, toward="up"),
        "spent": number(night.ledger.spent_rho, toward="up"),
        "left": number(night.ledger.remaining_rho, toward="down"),
        "changes": [] if changes is None else sentences(changes),
    }
    text = _template().night(night, did, promise, night.promotion, night.counter, told)
    rows = [charge.model_dump() for charge in did.charges[-_ROWS:]]
    return Page(slug(f"night-{did.recipe}"), f"{did.recipe}: the night's run", text, Path(night.report), rows)


def _template() -> Any:
    return templates().get_template("server.md.j2").module


def study_page(result: Mapping[str, Any]) -> Page:
    """The page of a reproduced figure: its claims and where they hold.

    Parameters
    ----------
    result
        ``name``, ``claims`` (``claim``, ``holds``) and ``files`` of the reproduction.
    """
    [page, *_] = [file for file in result["files"] if file.endswith("page.html")]
    name, text = result["name"], _template().study(result)
    return Page(slug(f"study-{name}"), f"{name}: simulation, not private", text, Path(page))


def simulation_page(result: Mapping[str, Any]) -> Page:
    """The page of an online agent that was played: its regret and that of its baselines.

    Parameters
    ----------
    result
        ``agent``, ``world``, ``episodes``, ``rows`` (``agent, mean, std, trust``) and ``report`` of the simulation.
    """
    rows = [(r["agent"], number(r["mean"]), number(r["std"]), r["trust"]) for r in result["rows"]]
    agent, world, text = result["agent"], result["world"], _template().simulation(result, rows)
    title = f"{agent} in {world}: simulation, not private"
    return Page(slug(f"simulation-{agent}-{world}"), title, text, Path(result["report"]))


def log_page(result: Mapping[str, Any]) -> Page:
    """The page of a simulated log: how much of it there is, where it lies.

    Parameters
    ----------
    result
        ``dataset``, ``episodes``, ``files`` and ``card`` of the log.
    """
    name, text = result["dataset"], _template().log(result)
    return Page(slug(f"log-{name}"), f"{name}: a simulated log", text, Path(result["card"]))


def slug(text: str) -> str:
    """A key as Prefect wants it."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")
