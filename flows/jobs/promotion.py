"""Should tonight's run ship?  The recipe's rule, read off a comparison of released facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.config.recipe import Promote
from flows.jobs.alias import Pointer
from pipeline.declaration.card import CardError
from pipeline.learners.registry import read_stored, read_view
from pipeline.learners.stored_decisions import StoredDecisions
from reports.comparison import Side, compare_runs
from reports.facts.policy import Gains
from reports.facts.report import read_report
from reports.format import number, percent
from reports.gains_comparison import GainsSide


def facts_of(folder: Path) -> dict[str, Any]:
    """The report.json of a run."""
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def side_of(folder: Path) -> Side | GainsSide:
    """A run's folder as one side of a comparison."""
    report, stored = read_report(folder), read_stored(folder)
    if isinstance(stored, StoredDecisions):
        return Side(report.model_dump(), stored.policy, stored.tied)
    view = read_view(report, folder)
    assert isinstance(view, Gains)
    return GainsSide(report.model_dump(), view)


def compared(a: Path, b: Path) -> dict[str, Any]:
    """What changed from the run in folder ``a`` to that in ``b``.

    Raises
    ------
    CardError
        If they cannot be laid side by side.
    """
    try:
        return compare_runs(side_of(a), side_of(b))
    except ValueError as e:
        raise CardError(str(e)) from None


def consider(rule: Promote | None, runs: Path, run: str) -> dict[str, Any]:
    """Compare a fresh run with the one in use and promote it where the rule allows.

    Returns
    -------
    ``pointer``, ``before`` and ``now`` (runs in use), ``promoted``, ``held`` (reasons, empty where promoted or where
    there is no rule) and ``changes`` (the comparison, None where there was nothing to compare with).
    """
    pointer = Pointer(runs, rule.pointer if rule is not None else "current")
    before = pointer.now()
    changes, held = None, []
    if before is not None and before != run:
        try:
            changes = compared(runs / before, runs / run)
        except (CardError, OSError):
            held = [f"it cannot be compared with {before}, the run in use"]
    if rule is None or before == run:
        return _said(pointer, before, False, [], changes)
    held += reasons_to_hold(rule, facts_of(runs / run), changes)
    if run in pointer.rejected:
        held.append("it was rolled back before")
    if not held:
        pointer.promote(run)
    return _said(pointer, before, not held, held, changes)


def reasons_to_hold(rule: Promote, facts: Mapping[str, Any], changes: Mapping[str, Any] | None) -> list[str]:
    """Every condition of the rule that a fresh run breaks, in words; without a run in use only ``status`` counts."""
    held = []
    if rule.status == "bound" and facts["value"]["status"] != "bound":
        held.append("its value interval is an estimate, the rule asks for a bound")
    if changes is None:
        return held
    gain = changes["value"]["lower_gain"]
    if "dataset.name" in changes["settings"]:
        held.append("the run in use is of another dataset")
    if rule.lower_gain is not None and gain is None:
        held.append("one of the two claims no interval, and the rule asks for a gain of the lower value")
    elif rule.lower_gain is not None and gain < rule.lower_gain:
        held.append(f"its lower value moved by {number(gain, toward='down')}, the rule asks for {rule.lower_gain:g}")
    return held + (_gains_to_hold if "gains" in changes else _cells_to_hold)(rule, changes)


def _cells_to_hold(rule: Promote, changes: Mapping[str, Any]) -> list[str]:
    held, share = [], changes["cells"]["share"]
    old, new = changes["abstain_share"]
    if rule.most_changed is not None and share > rule.most_changed:
        held.append(f"{percent(share)} of the cells changed, the rule allows {percent(rule.most_changed)}")
    if not rule.more_abstaining and new > old:
        held.append(f"it abstains in {percent(new)} of the cells, the run in use in {percent(old)}")
    return held


def _gains_to_hold(rule: Promote, changes: Mapping[str, Any]) -> list[str]:
    """Under noise every gain moves, so how far they moved together is what the rule limits."""
    change = changes["gains"]["change"]
    if rule.most_changed is None or (change is not None and change <= rule.most_changed):
        return []
    moved = "from nothing" if change is None else f"by {percent(change)} of their norm"
    return [f"its gains moved {moved}, the rule allows {percent(rule.most_changed)}"]


def _said(
    pointer: Pointer, before: str | None, promoted: bool, held: list[str], changes: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "pointer": pointer.name,
        "before": before,
        "now": pointer.now(),
        "promoted": promoted,
        "held": held,
        "changes": None if changes is None else {k: _counts(v) for k, v in changes.items()},
    }


def _counts(part: Any) -> Any:
    """Without the cells or gains themselves, which ``compare-runs`` lists."""
    return {k: v for k, v in part.items() if k != "rows"} if isinstance(part, Mapping) else part
