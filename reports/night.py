"""What a server shows of a scheduled run: released facts and declared constants, as Markdown, a table and a link."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.declaration.numbers import number
from reports.facts.answers import NightAnswer, Promotion
from reports.page import interval, loss, markdown
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
    did, promise, value = night.night, night.guarantee, night.value
    charged = "nothing was charged" if did.charged_rho == 0 else f"charged ρ = {_up(did.charged_rho)}"
    cost = loss(promise.rho, promise.epsilon, promise.delta, pure=promise.pure)
    lines = [
        f"# {markdown(did.recipe)} on {markdown(did.dataset)}",
        "",
        f"* **Guarantee**: {markdown(promise.sentence)}",
        f"* **Loss of this release**: {cost}; claim: {markdown(promise.claim)}",
        f"* **Verdict**: {markdown(sentence(night.verdict))}",
        f"* **Value of the policy**: {interval(value.lower, value.upper)} ({markdown(value.status)})",
        "* **Tonight**: " + _tonight(night, charged),
        f"* **Budget**: spent ρ = {_up(night.ledger.spent_rho)}, "
        f"left {number(night.ledger.remaining_rho, toward='down')}",
        f"* **Run**: {markdown(night.run)}; {_in_use(night.promotion)}",
        *_changed(night.promotion),
    ]
    return Page(
        slug(f"night-{did.recipe}"),
        f"{did.recipe}: the night's run",
        "\n".join(lines) + "\n",
        Path(night.report),
        [charge.model_dump() for charge in did.charges[-_ROWS:]],
    )


def study_page(result: Mapping[str, Any]) -> Page:
    """The page of a reproduced figure: its claims and where they hold.

    Parameters
    ----------
    result
        ``name``, ``claims`` (``claim``, ``holds``) and ``files`` of the reproduction.
    """
    lines = [f"* **{'yes' if c['holds'] else 'no'}**: {markdown(c['claim'])}" for c in result["claims"]]
    pages = [file for file in result["files"] if file.endswith("page.html")]
    return Page(
        slug(f"study-{result['name']}"),
        f"{result['name']}: simulation, not private",
        "\n".join([f"# {markdown(result['name'])}", "", "Simulation, not private.", "", *lines]) + "\n",
        Path(pages[0]),
    )


def simulation_page(result: Mapping[str, Any]) -> Page:
    """The page of an online agent that was played: its regret and that of its baselines.

    Parameters
    ----------
    result
        ``agent``, ``world``, ``episodes``, ``rows`` (``agent, mean, std, trust``) and ``report`` of the simulation.
    """
    lines = [
        f"* **{markdown(r['agent'])}**: regret {number(r['mean'])} ± {number(r['std'])} ({markdown(r['trust'])})"
        for r in result["rows"]
    ]
    head = f"{result['episodes']:,} episodes of {markdown(result['world'])}; simulation, not private."
    return Page(
        slug(f"simulation-{result['agent']}-{result['world']}"),
        f"{result['agent']} in {result['world']}: simulation, not private",
        "\n".join([f"# {markdown(result['agent'])}", "", head, "", *lines]) + "\n",
        Path(result["report"]),
    )


def log_page(result: Mapping[str, Any]) -> Page:
    """The page of a simulated log: how much of it there is, where it lies.

    Parameters
    ----------
    result
        ``dataset``, ``episodes``, ``files`` and ``card`` of the log.
    """
    text = f"{result['episodes']:,} simulated episodes in {len(result['files'])} files; nobody real is in them"
    return Page(
        slug(f"log-{result['dataset']}"),
        f"{result['dataset']}: a simulated log",
        f"# {markdown(result['dataset'])}\n\n{text}.\n",
        Path(result["card"]),
    )


def slug(text: str) -> str:
    """A key as Prefect wants it."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")


def _tonight(night: NightAnswer, charged: str) -> str:
    """What was declared for this date; never what came in: that may be one person's."""
    counter = night.counter
    told, idle = f"snapshot {night.night.snapshot}, due on {night.night.due}", "that release stands"
    if counter is not None:
        told, idle = f"night {counter.night} of {counter.nights} ({counter.date})", "it is drawn already"
    return f"{told}; {charged}" + (f"; {idle}" if night.night.unchanged else "")


def _in_use(promotion: Promotion) -> str:
    if promotion.promoted:
        return f"promoted to {markdown(promotion.pointer)}"
    if promotion.held:
        return "**not promoted**: " + "; ".join(map(markdown, promotion.held))
    return "nothing is in use yet" if promotion.now is None else f"in use: {markdown(promotion.now)}"


def _changed(promotion: Promotion) -> list[str]:
    if (changes := promotion.changes) is None:
        return []
    return ["", f"Against {markdown(changes.a)}:", "", *(f"* {markdown(line)}" for line in sentences(changes))]


def _up(value: float) -> str:
    return number(value, toward="up")
