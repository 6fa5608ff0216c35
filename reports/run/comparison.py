"""Changes between two runs, from released facts and policies only.

Pages of scheduled runs for a server: released facts and declared constants, as Markdown, a table and a link.
"""

# pyright: reportUnknownArgumentType=false
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.arrays import Bools
from pipeline.declaration.numbers import clean, number
from pipeline.declaration.toml import table_in
from pipeline.facts import answers
from pipeline.facts.learnt import Gains, ValueFacts
from pipeline.facts.promise import DeclaredTables
from pipeline.facts.report import Report, verdict_of
from pipeline.mdp.policy import Policy
from reports.page import interval, loss, percent, templates
from reports.run.answer import sentence

# declarations that must agree before two policies, or two controllers, can be compared
_SAME_TABLES = ("horizon", "live_states", "actions")
_SAME_PLANT = ("horizon", "observation", "action")
_SETTINGS = ("agent", "constants", "dataset", "guarantee")
# stated elsewhere in the comparison, or made of the rest
_APART = ("dataset.snapshot", "guarantee.sentence")


@dataclass(frozen=True)
class TableSide:
    """One of two runs whose policies are tables of decisions.

    ``tied`` ``(H, L)``: bool: several actions were equally good.
    """

    report: Report
    data: DeclaredTables
    policy: Policy
    tied: Bools


@dataclass(frozen=True)
class GainsSide:
    """One of two runs whose policies are gains."""

    report: Report
    view: Gains


def compare_runs(a: TableSide | GainsSide, b: TableSide | GainsSide) -> answers.Comparison:
    """Differences of run ``b`` from run ``a`` in policy, intervals, budget and settings.

    Raises ValueError if the runs decide in different states, actions, coordinates or numbers of steps.
    """
    names = f"{a.report.run} and {b.report.run}"
    around: dict[str, object] = {
        "a": a.report.run,
        "b": b.report.run,
        "snapshots": [side.report.dataset.snapshot for side in (a, b)],
        "verdict": [verdict_of(side.report) for side in (a, b)],
        "value": _values(a.report.value, b.report.value),
        "budget": [_budget(side.report) for side in (a, b)],
        "settings": _changes(a.report, b.report),
    }
    if isinstance(a, GainsSide) and isinstance(b, GainsSide):
        _check_same(names, a.report, b.report, _SAME_PLANT)
        return answers.Comparison.model_validate({**around, "gains": compare_gains(a.view, b.view)})
    if isinstance(a, GainsSide) or isinstance(b, GainsSide):
        raise ValueError(f"{names}: one is a linear controller, the other a table of decisions: nothing to compare")
    _check_same(names, a.report, b.report, _SAME_TABLES)
    silent = [float(side.policy.abstains.mean()) for side in (a, b)]
    return answers.Comparison.model_validate({**around, "cells": _compare_cells(a, b), "abstain_share": silent})


def _check_same(names: str, a: Report, b: Report, keys: Sequence[str]) -> None:
    if wrong := [key for key in keys if getattr(a.dataset, key) != getattr(b.dataset, key)]:
        raise ValueError(f"{names} differ in {', '.join(wrong)}: nothing to compare")


def _compare_cells(a: TableSide, b: TableSide) -> answers.CellChanges:
    """A cell is a (step, state).

    It differs where one policy abstains and the other does not, or where their action probabilities do.
    """
    distance = 0.5 * np.abs(a.policy.probabilities - b.policy.probabilities).sum(-1)
    distance = np.where(a.policy.abstains != b.policy.abstains, 1.0, distance)
    # rows of probabilities sum to one within 1e-9
    differs = distance > 1e-9
    tied = a.tied | b.tied
    return answers.CellChanges(
        total=int(differs.size),
        differ=int(differs.sum()),
        share=float(differs.mean()),
        of_ties=int((differs & tied).sum()),
        rows=[
            answers.CellChange(
                step=int(h),
                state=a.data.live_states[s],
                a=_decision(a, h, s),
                b=_decision(b, h, s),
                distance=float(distance[h, s]),
                tie=bool(tied[h, s]),
            )
            for h, s in np.argwhere(differs)
        ],
    )


def _decision(side: TableSide, h: int, s: int) -> answers.DecisionAt:
    if side.policy.abstains[h, s]:
        return answers.DecisionAt(action=None, probability=None)
    best = int(side.policy.probabilities[h, s].argmax())
    return answers.DecisionAt(action=side.data.actions[best], probability=float(side.policy.probabilities[h, s, best]))


def compare_gains(a: Gains, b: Gains) -> answers.GainChanges:
    """Gains of ``b`` beside those of ``a``."""
    moved = b.gains - a.gains
    norms = [float(np.linalg.norm(side.gains)) for side in (a, b)]
    distance = float(np.linalg.norm(moved))
    index = np.argwhere(np.abs(moved) > 0)
    largest = index[np.argsort(-np.abs(moved[tuple(index.T)]), kind="stable")]
    rows = [
        answers.GainChange(
            step=int(h),
            action=a.action[i],
            observation=a.observation[j],
            a=float(a.gains[h, i, j]),
            b=float(b.gains[h, i, j]),
        )
        for h, i, j in largest
    ]
    return answers.GainChanges(
        total=int(moved.size),
        differ=len(rows),
        norms=norms,
        distance=distance,
        change=distance / norms[0] if norms[0] else None,
        rows=rows,
    )


def _values(a: ValueFacts, b: ValueFacts) -> answers.ValueChange:
    overlap = None
    if a.upper is not None and b.upper is not None:
        overlap = a.lower <= b.upper and b.lower <= a.upper
    trivial = "trivial" in (a.lower_flag, b.lower_flag)
    return answers.ValueChange(
        a=_interval_of(a), b=_interval_of(b), lower_gain=None if trivial else b.lower - a.lower, overlap=overlap
    )


def _interval_of(v: ValueFacts) -> answers.IntervalOf:
    return answers.IntervalOf(lower=v.lower, upper=v.upper, estimate=v.estimate, status=v.status)


def _budget(report: Report) -> answers.BudgetAt:
    of_run = report.guarantee.model_dump(include={"rho", "epsilon", "delta"})
    of_lineage = {k: getattr(report.ledger, k, None) for k in ("spent_rho", "remaining_rho", "cap_rho")}
    return answers.BudgetAt.model_validate({**of_run, **of_lineage})


def _changes(a: Report, b: Report) -> dict[str, list[object]]:
    """Settings that differ, by dotted name."""
    settings = [side.model_dump(include=set(_SETTINGS)) for side in (a, b)]
    old, new = ({k: v for key in _SETTINGS for k, v in _flat(key, side[key])} for side in settings)
    differ = [k for k in {**old, **new} if old.get(k) != new.get(k) and k not in _APART]
    return {k: [old.get(k), new.get(k)] for k in differ}


def _flat(name: str, value: object) -> list[tuple[str, object]]:
    if (inside := table_in(value)) is not None:
        return [leaf for key, inner in inside.items() for leaf in _flat(f"{name}.{key}", inner)]
    return [(name, value)]


def sentences(c: answers.Comparison, most: int = 20) -> list[str]:
    """A comparison as lines of text; without rows where they were taken out."""
    if c.gains is not None:
        lines, rows = _gain_lines(c.gains, c.value), [_gain_row(row) for row in c.gains.rows or ()]
    elif c.cells is not None:
        lines, rows = _cell_lines(c, c.cells), [_cell_row(row) for row in c.cells.rows or ()]
    else:
        lines, rows = [], []
    lines += [
        "verdict     " + " → ".join(sentence(v) for v in c.verdict),
        "budget      " + " → ".join(_spent(b) for b in c.budget),
        *(f"setting     {k}: {clean(old)} → {clean(new)}" for k, (old, new) in c.settings.items()),
        *rows[:most],
    ]
    left = len(rows) - most
    return lines + ([f"  … and {left:,} more: --json lists all"] if left > 0 else [])


def _gain_lines(gains: answers.GainChanges, value: answers.ValueChange) -> list[str]:
    old, new = (number(norm) for norm in gains.norms)
    share = "" if gains.change is None else f" ({percent(gains.change)} of the first)"
    return [
        f"policy      {gains.differ:,} of {gains.total:,} gains differ; norms {old} → {new}, "
        f"{number(gains.distance)} apart{share}",
        f"value       {number(value.a.estimate)} → {number(value.b.estimate)}: estimates, each in its own released "
        "model; no interval is claimed",
    ]


def _gain_row(row: answers.GainChange) -> str:
    name = f"{clean(row.action)} by {clean(row.observation)}"
    return f"  step {row.step:>3}  {name:30} {number(row.a)} → {number(row.b)}"


def _cell_lines(c: answers.Comparison, cells: answers.CellChanges) -> list[str]:
    old, new = c.abstain_share or (None, None)
    overlap = {
        None: "one of them has no upper end, so the intervals cannot tell the two apart",
        True: "they overlap: alone they do not tell the two policies apart",
        False: "they do not overlap",
    }[c.value.overlap]
    return [
        f"policy      {cells.differ:,} of {cells.total:,} cells differ ({percent(cells.share)}), "
        f"{cells.of_ties:,} of them where either run had a tie; abstains {percent(old)} → {percent(new)}",
        f"value       {_interval(c.value.a)} → {_interval(c.value.b)}; {overlap}",
    ]


def _cell_row(row: answers.CellChange) -> str:
    old, new = (_words(decision) for decision in (row.a, row.b))
    return f"  step {row.step:>3}  {clean(row.state):20} {old} → {new}{'   (tie)' if row.tie else ''}"


def _interval(value: answers.IntervalOf) -> str:
    return f"{interval(value.lower, value.upper)} ({value.status})"


def _spent(b: answers.BudgetAt) -> str:
    cost = "no noise" if b.rho is None and b.epsilon is None else loss(b.rho, None, None)
    cost = cost if b.rho is not None or b.epsilon is None else loss(None, b.epsilon, b.delta)
    spent = "" if b.spent_rho is None else f", {number(b.spent_rho, toward='up')} spent in all"
    return cost + spent


def _words(decision: answers.DecisionAt) -> str:
    if decision.action is None:
        return "keep current practice"
    share = decision.probability
    return clean(decision.action) + ("" if share is None or share > 1 - 1e-9 else f" ({percent(share)})")


# a table artifact is one JSON text: a year of nights fits, a decade is what `ledger show` is for
_ROWS = 400


@dataclass(frozen=True)
class ServedPage:
    """One page of a server."""

    key: str
    title: str
    markdown: str
    file: Path
    rows: Sequence[Mapping[str, object]] = ()


def night_page(night: answers.NightAnswer) -> ServedPage:
    """The page of a night."""
    did, promise, value, changes = night.night, night.guarantee, night.value, night.promotion.changes
    texts = {
        "cost": loss(promise.rho, promise.epsilon, promise.delta, pure=promise.pure),
        "verdict": sentence(night.verdict),
        "value": interval(value.lower, value.upper),
        "charged": number(did.charged_rho, toward="up"),
        "spent": number(night.ledger.spent_rho, toward="up"),
        "left": number(night.ledger.remaining_rho, toward="down"),
        "changes": [] if changes is None else sentences(changes),
    }
    text = _template().night(night, did, promise, night.promotion, night.counter, texts)
    rows = [charge.model_dump() for charge in did.charges[-_ROWS:]]
    return ServedPage(slug(f"night-{did.recipe}"), f"{did.recipe}: the night's run", text, Path(night.report), rows)


def _template() -> Any:
    return templates().get_template("server.md.j2").module


def study_page(result: Mapping[str, Any]) -> ServedPage:
    """The page of a reproduced figure: its claims and where they hold."""
    [page, *_] = [file for file in result["files"] if file.endswith("page.html")]
    name, text = result["name"], _template().study(result)
    return ServedPage(slug(f"study-{name}"), f"{name}: simulation, not private", text, Path(page))


def simulation_page(result: Mapping[str, Any]) -> ServedPage:
    """The page of an online agent that was played: its regret and that of its baselines."""
    rows = [(r["agent"], number(r["mean"]), number(r["std"]), r["trust"]) for r in result["rows"]]
    agent, world, text = result["agent"], result["world"], _template().simulation(result, rows)
    title = f"{agent} in {world}: simulation, not private"
    return ServedPage(slug(f"simulation-{agent}-{world}"), title, text, Path(result["report"]))


def log_page(result: Mapping[str, Any]) -> ServedPage:
    """The page of a simulated log: how much of it there is, where it lies."""
    name, text = result["dataset"], _template().log(result)
    return ServedPage(slug(f"log-{name}"), f"{name}: a simulated log", text, Path(result["card"]))


def slug(text: str) -> str:
    """A key as Prefect wants it."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")
