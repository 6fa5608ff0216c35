"""Should tonight's run ship?  The recipe's rule, read off a comparison of released facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flows.folder import read_policy
from flows.lq_folder import KIND
from flows.pointer import Pointer
from flows.recipe import Promote
from pipeline.card import CardError
from reports.comparison import Side, compare_runs
from reports.format import number, percent


def facts_of(folder: Path) -> dict[str, Any]:
    """The report.json of a run."""
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def side_of(folder: Path) -> Side:
    """A run's folder as one side of a comparison.

    Raises
    ------
    CardError
        If its policy is no choice among actions in states.
    """
    facts = facts_of(folder)
    if json.loads((folder / "policy.json").read_text(encoding="utf-8")).get("kind") == KIND:
        raise CardError(f"{folder.name}: gains of a linear controller have no cells to compare")
    policy = read_policy(folder)
    tied = np.zeros(policy.abstains.shape, dtype=bool)
    for h, s in facts["policy"]["tied"]:
        tied[h, s] = True
    return Side(facts, policy, tied)


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
    gain, share = changes["value"]["lower_gain"], changes["cells"]["share"]
    old, new = changes["abstain_share"]
    if "dataset.name" in changes["settings"]:
        held.append("the run in use is of another dataset")
    if rule.lower_gain is not None and gain < rule.lower_gain:
        held.append(f"its lower value moved by {number(gain, toward='down')}, the rule asks for {rule.lower_gain:g}")
    if rule.most_changed is not None and share > rule.most_changed:
        held.append(f"{percent(share)} of the cells changed, the rule allows {percent(rule.most_changed)}")
    if not rule.more_abstaining and new > old:
        held.append(f"it abstains in {percent(new)} of the cells, the run in use in {percent(old)}")
    return held


def _said(
    pointer: Pointer, before: str | None, promoted: bool, held: list[str], changes: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "pointer": pointer.name,
        "before": before,
        "now": pointer.now(),
        "promoted": promoted,
        "held": held,
        "changes": None if changes is None else {**changes, "cells": _counts(changes["cells"])},
    }


def _counts(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Without the cells themselves, which ``compare-runs`` lists."""
    return {k: v for k, v in cells.items() if k != "rows"}
