"""What changed between two runs, and whether the newer one may ship; from released facts and policies only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.policy import Policy
from reports.format import clean, interval, number, percent
from reports.gains_comparison import SAME as SAME_PLANT
from reports.gains_comparison import GainsSide, compare_gains, gain_lines, gain_rows

# what must agree before two policies can be laid side by side
_SAME = ("horizon", "live_states", "actions")
_SETTINGS = ("agent", "constants", "dataset", "guarantee")
# said elsewhere in the comparison, or a sentence made of the rest
_APART = ("dataset.snapshot", "guarantee.sentence")


@dataclass(frozen=True)
class Side:
    """One of two runs.

    Parameters
    ----------
    facts
        Its report.json.
    tied
        ``(H, L)`` bool: several actions were equally good.
    """

    facts: Mapping[str, Any]
    policy: Policy
    tied: NDArray[np.bool_]


def compare_runs(a: Side | GainsSide, b: Side | GainsSide) -> dict[str, Any]:
    """What differs in the policy, intervals, budget and settings of run ``b`` beside those of run ``a``.

    Returns
    -------
    ``cells`` and ``abstain_share`` of two tables of decisions, ``gains`` of two linear controllers (see
    :func:`~reports.gains_comparison.compare_gains`); and of both ``a, b, snapshots, value, budget, settings``.

    Raises
    ------
    ValueError
        If the runs decide in different states, actions, coordinates or numbers of steps.
    """
    names = f"{a.facts['run']} and {b.facts['run']}"
    around = {
        "a": a.facts["run"],
        "b": b.facts["run"],
        "snapshots": [side.facts["dataset"]["snapshot"] for side in (a, b)],
        "value": _values(a.facts["value"], b.facts["value"]),
        "budget": [_budget(side.facts) for side in (a, b)],
        "settings": {k: [old, new] for k, (old, new) in _changes(a.facts, b.facts).items() if k not in _APART},
    }
    if isinstance(a, GainsSide) and isinstance(b, GainsSide):
        _check_same(names, a.facts, b.facts, SAME_PLANT)
        return {**around, "gains": compare_gains(a.view, b.view)}
    if isinstance(a, GainsSide) or isinstance(b, GainsSide):
        raise ValueError(f"{names}: one is a linear controller, the other a table of decisions: nothing to compare")
    _check_same(names, a.facts, b.facts, _SAME)
    return {**around, **_cells(a, b)}


def _check_same(names: str, a: Mapping[str, Any], b: Mapping[str, Any], keys: Sequence[str]) -> None:
    if wrong := [key for key in keys if a["dataset"][key] != b["dataset"][key]]:
        raise ValueError(f"{names} differ in {', '.join(wrong)}: nothing to compare")


def _cells(a: Side, b: Side) -> dict[str, Any]:
    """A cell is a (step, state).

    It differs where one policy abstains and the other does not, or where their action probabilities do; ``distance`` is
    the total variation between them (1 where one abstains).
    """
    distance = 0.5 * np.abs(a.policy.probabilities - b.policy.probabilities).sum(-1)
    quiet = a.policy.abstains & b.policy.abstains
    distance = np.where(quiet, 0.0, np.where(a.policy.abstains != b.policy.abstains, 1.0, distance))
    # rows of probabilities sum to one within 1e-9
    differs = distance > 1e-9
    tied = a.tied | b.tied
    return {
        "cells": {
            "total": int(differs.size),
            "differ": int(differs.sum()),
            "share": float(differs.mean()),
            "of_ties": int((differs & tied).sum()),
            "rows": [_cell(a, b, int(h), int(s), float(distance[h, s])) for h, s in np.argwhere(differs)],
        },
        "abstain_share": [float(side.policy.abstains.mean()) for side in (a, b)],
    }


def _cell(a: Side, b: Side, h: int, s: int, distance: float) -> dict[str, Any]:
    return {
        "step": h,
        "state": a.facts["dataset"]["live_states"][s],
        "a": _decision(a, h, s),
        "b": _decision(b, h, s),
        "distance": distance,
        "tie": bool(a.tied[h, s] or b.tied[h, s]),
    }


def _decision(side: Side, h: int, s: int) -> dict[str, Any]:
    """The likeliest action, or None where the policy abstains."""
    if side.policy.abstains[h, s]:
        return {"action": None, "probability": None}
    best = int(side.policy.probabilities[h, s].argmax())
    return {
        "action": side.facts["dataset"]["actions"][best],
        "probability": float(side.policy.probabilities[h, s, best]),
    }


def _values(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Two intervals; ``overlap`` is None where one has no upper end, ``lower_gain`` where a lower end is trivial."""
    keys = ("lower", "upper", "estimate", "status")
    trivial = "trivial" in (a.get("lower_flag"), b.get("lower_flag"))
    ends = [v["upper"] for v in (a, b)]
    overlap = None if None in ends else bool(a["lower"] <= b["upper"] and b["lower"] <= a["upper"])
    return {
        "a": {k: a.get(k) for k in keys},
        "b": {k: b.get(k) for k in keys},
        "lower_gain": None if trivial else b["lower"] - a["lower"],
        "overlap": overlap,
    }


def _budget(facts: Mapping[str, Any]) -> dict[str, Any]:
    promised, ledger = facts["guarantee"], facts["ledger"] or {}
    return {
        **{k: promised[k] for k in ("rho", "epsilon", "delta")},
        **{k: ledger.get(k) for k in ("spent_rho", "remaining_rho", "cap_rho")},
    }


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, by dotted name."""
    old, new = ({k: v for key in _SETTINGS for k, v in _flat(key, side.get(key))} for side in (a, b))
    return {k: (old.get(k), new.get(k)) for k in {**old, **new} if old.get(k) != new.get(k)}


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [leaf for key, inner in value.items() for leaf in _flat(f"{name}.{key}", inner)]
    return [(name, value)]


def sentences(c: Mapping[str, Any], most: int = 20) -> list[str]:
    """A comparison as lines a person reads; rows that were taken out are not told."""
    if "gains" in c:
        lines, rows = gain_lines(c["gains"], c["value"]), c["gains"].get("rows", ())
        told = gain_rows(rows[:most])
    else:
        lines, rows = _cell_lines(c), c["cells"].get("rows", ())
        told = [_row(row) for row in rows[:most]]
    lines += [
        "budget      " + " → ".join(_spent(b) for b in c["budget"]),
        *(f"setting     {k}: {clean(old)} → {clean(new)}" for k, (old, new) in c["settings"].items()),
        *told,
    ]
    left = len(rows) - most
    return lines + ([f"  … and {left:,} more: --json lists all"] if left > 0 else [])


def _cell_lines(c: Mapping[str, Any]) -> list[str]:
    cells, value = c["cells"], c["value"]
    old, new = c["abstain_share"]
    verdict = {
        None: "one of them has no upper end, so the intervals cannot tell the two apart",
        True: "they overlap: the data do not tell the two policies apart",
        False: "they do not overlap",
    }[value["overlap"]]
    return [
        f"policy      {cells['differ']:,} of {cells['total']:,} cells differ ({percent(cells['share'])}), "
        f"{cells['of_ties']:,} of them where either run had a tie; abstains {percent(old)} → {percent(new)}",
        f"value       {_interval(value['a'])} → {_interval(value['b'])}; {verdict}",
    ]


def _row(row: Mapping[str, Any]) -> str:
    old, new = (_words(row[side]) for side in ("a", "b"))
    return f"  step {row['step']:>3}  {clean(row['state']):20} {old} → {new}{'   (tie)' if row['tie'] else ''}"


def _interval(value: Mapping[str, Any]) -> str:
    return f"{interval(value['lower'], value['upper'])} ({value['status']})"


def _spent(b: Mapping[str, Any]) -> str:
    asked = "no noise" if b["rho"] is None and b["epsilon"] is None else f"ρ = {number(b['rho'], toward='up')}"
    spent = "" if b["spent_rho"] is None else f", {number(b['spent_rho'], toward='up')} spent in all"
    return asked + spent


def _words(decision: Mapping[str, Any]) -> str:
    if decision["action"] is None:
        return "keep current practice"
    share = decision["probability"]
    return clean(decision["action"]) + ("" if share > 1 - 1e-9 else f" ({percent(share)})")
