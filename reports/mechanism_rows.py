"""Mechanisms as rows of a table: one each, or one for all tables that differ by their step alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reports.format import clean, number

Facts = Mapping[str, Any]
# more than this many are put together by step; certificate.json lists every one
MOST_MECHANISMS = 24
_STEP = re.compile(r"_\d+$")


def grouped(mechanisms: Sequence[Facts]) -> list[list[Facts]]:
    """Each mechanism alone, or the tables ``name_0`` to ``name_H-1`` of one shape and unit together."""
    if len(mechanisms) <= MOST_MECHANISMS:
        return [[m] for m in mechanisms]
    found: dict[tuple[Any, ...], list[Facts]] = {}
    for m in mechanisms:
        key = (_STEP.sub("", m["table"]), m["name"], tuple(m["shape"]), m["unit"])
        found.setdefault(key, []).append(m)
    return list(found.values())


def row(group: Sequence[Facts]) -> tuple[str, ...]:
    """Table, mechanism, shape, sensitivity, scale, variance, unit, loss; a range where the steps differ."""
    first = group[0]
    return (
        name(group),
        clean(first["name"]),
        " × ".join(number(axis) for axis in first["shape"]),
        f"L2² = {_range(group, 'l2_squared', _whole)}, L1 = {_range(group, 'l1', _whole)}",
        _range(group, "scale", number),
        _range(group, "variance", _whole),
        clean(first.get("unit") or "–"),
        _range(group, "rho", _up) if first.get("rho") is not None else f"ε = {_range(group, 'epsilon', _up)}",
    )


def name(group: Sequence[Facts]) -> str:
    """A table, or how many of them by their common name."""
    if len(group) == 1:
        return clean(group[0]["table"])
    return f"{clean(_STEP.sub('', group[0]['table']))}, {number(len(group))} steps"


def rules(groups: Sequence[Sequence[Facts]]) -> tuple[str, ...]:
    """The sensitivity rule of each group, once where its tables share it."""
    said = [f"{name(g)}: {clean(rule)}" for g in groups for rule in dict.fromkeys(m["sensitivity_rule"] for m in g)]
    return tuple(dict.fromkeys(said))


def _up(value: object) -> str:
    return number(value, toward="up")


def _whole(value: object) -> str:
    """A whole number with its thousands apart; fractions and dashes as they come."""
    text = str(value)
    return number(int(text)) if text.isdecimal() else clean(text)


def _range(group: Sequence[Facts], key: str, said: Callable[[Any], str]) -> str:
    found = [m[key] for m in group if m.get(key) is not None]
    if not found:
        return "–"
    if len(group) == 1:
        return said(found[0])
    low, high = said(min(found, key=float)), said(max(found, key=float))
    return low if low == high else f"{low} to {high}"
