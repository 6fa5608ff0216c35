"""Mechanisms as rows of a table: one each, or one for all tables that differ by their step alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pipeline.declaration.numbers import clean, number
from reports.facts.promise import MechanismFacts

# more than this many are put together by step; certificate.json lists every one
MOST_MECHANISMS = 24
_STEP = re.compile(r"_\d+$")


def grouped(mechanisms: Sequence[MechanismFacts]) -> list[list[MechanismFacts]]:
    """Each mechanism alone, or the tables ``name_0`` to ``name_H-1`` of one shape and unit together."""
    if len(mechanisms) <= MOST_MECHANISMS:
        return [[m] for m in mechanisms]
    found: dict[tuple[object, ...], list[MechanismFacts]] = {}
    for m in mechanisms:
        key = (_STEP.sub("", m.table), m.name, tuple(m.shape), m.unit)
        found.setdefault(key, []).append(m)
    return list(found.values())


def row(group: Sequence[MechanismFacts]) -> tuple[str, ...]:
    """Table, mechanism, shape, sensitivity, scale, variance, unit, loss; a range where the steps differ."""
    first = group[0]
    return (
        name(group),
        clean(first.name),
        " × ".join(number(axis) for axis in first.shape),
        f"L2² = {_range([m.l2_squared for m in group], _whole)}, L1 = {_range([m.l1 for m in group], _whole)}",
        _range([m.scale for m in group], number),
        _range([m.variance for m in group], _whole),
        clean(first.unit),
        _range([m.rho for m in group], _up)
        if first.rho is not None
        else f"ε = {_range([m.epsilon for m in group], _up)}",
    )


def name(group: Sequence[MechanismFacts]) -> str:
    """A table, or how many of them by their common name."""
    if len(group) == 1:
        return clean(group[0].table)
    return f"{clean(_STEP.sub('', group[0].table))}, {number(len(group))} steps"


def rules(groups: Sequence[Sequence[MechanismFacts]]) -> tuple[str, ...]:
    """The sensitivity rule of each group, once where its tables share it."""
    said = [f"{name(g)}: {clean(rule)}" for g in groups for rule in dict.fromkeys(m.sensitivity_rule for m in g)]
    return tuple(dict.fromkeys(said))


def _up(value: object) -> str:
    return number(value, toward="up")


def _whole(value: object) -> str:
    """A whole number with its thousands apart; fractions and dashes as they come."""
    text = str(value)
    return number(int(text)) if text.isdecimal() else clean(text)


def _range(values: Sequence[float | None], said: Callable[[float], str]) -> str:
    found = [x for x in values if x is not None]
    if not found:
        return "–"
    low, high = said(min(found)), said(max(found))
    return low if low == high else f"{low} to {high}"
