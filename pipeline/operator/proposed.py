"""The part of a proposed card that says what is paid, and how numbers and texts stand in a card."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import polars as pl

from pipeline.declaration.toml import CardError
from pipeline.operator.advice import Said
from pipeline.operator.roles import Column
from pipeline.operator.traps import Endings

_MOST_LATTICE = 10_000


def reward_of(role: Mapping[str, str], columns: Mapping[str, Column], ends: Endings, notes: list[str]) -> list[Said]:
    """Range, lattice, and what an empty cell pays.

    Parameters
    ----------
    role, columns
        Of the log.
    ends
        Whether rewards stand in last rows alone.
    notes
        Grows by what a person should know.

    Raises
    ------
    CardError
        If no reward is a number.
    """
    if "reward" not in role:
        notes.append("no column of rewards was found: name it with --reward, or declare [reward] on_entering")
        return [Said("reward.range", "[0.0, 1.0]", "no column of rewards was found")]
    column = columns[role["reward"]]
    every = column.values.drop_nulls()
    if not len(every):
        raise CardError(
            f"draft: no cell of {column.name!r} is a number; write rewards as numbers, yes and no as 1 and 0"
        )
    values = every.unique().sort()
    low, high = quantile(values, 0), quantile(values, 1)
    if column.numbers < 1:
        notes.append(f"{1 - column.numbers:.1%} of the rewards are no numbers: their episodes are dropped (bad_reward)")
    if len(values) == 1:
        notes.append(f"every reward is {low:g}: there is nothing to learn from it; name another column with --reward")
    usual = quantile(every, 0.999)
    if high > 3 * max(abs(usual), 1e-9) and usual > low:
        notes.append(
            f"the largest rewards reach {high:g}, but 999 in 1,000 are at most {usual:g}: larger ones are clipped"
        )
        high = usual
    unit = _lattice(values.filter(values <= high))
    low, high = math.floor(round(low / unit, 6)) * unit, math.ceil(round(high / unit, 6)) * unit
    low = min(low, 0.0) if low < unit * 5 else low
    high = max(high, low + unit)
    steps = max(1, round((high - low) / unit))
    if steps > _MOST_LATTICE:
        unit = human((high - low) / 1000, high - low)
        low, high = math.floor(low / unit) * unit, math.ceil(high / unit) * unit
        steps = max(1, round((high - low) / unit))
    seen = (
        f"{quantile(values, 0):g} to {quantile(values, 1):g}, mean {every.mean() or 0:.4g}, {len(values):,} different"
    )
    return [
        Said("reward.range", listed([clean(low), clean(high)]), "outside it a reward is clipped", seen),
        Said("reward.steps", str(steps), f"multiples of {clean(unit):g}; a reward between two is rounded down",
             f"all rewards are multiples of {unit:g}"),
        *_empty(column, ends, notes),
    ]  # fmt: skip


def _empty(column: Column, ends: Endings, notes: list[str]) -> list[Said]:
    if not column.missing:
        return []
    seen = f"{column.missing:.1%} of the rewards are empty"
    if ends.paid_last:
        return [Said("reward.empty", "0.0", "what a row without a reward pays: rewards come at the end", seen)]
    notes.append(f"{seen}: their episodes are dropped (bad_reward), unless empty = 0.0 under [reward] says they pay 0")
    return []


def _lattice(values: pl.Series) -> float:
    """The coarsest of the usual units of which all values are multiples; a millionth if none is."""
    for unit in (100.0, 50.0, 25.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.25, 0.2, 0.1, 0.05, 0.01, 0.001, 1e-4):
        parts = values / unit
        if ((parts - parts.round()).abs() < 1e-6).all():
            return unit
    return 1e-6


def human(value: float, scale: float) -> float:
    """Rounded to a tenth of a scale that a person would use: 127.3 of about 30 becomes 125."""
    if not scale or not value:
        return clean(value)
    unit = 10 ** math.floor(math.log10(abs(scale)))
    unit = unit / 2 if abs(scale) / unit >= 2 else unit / 10
    return clean(round(value / unit) * unit)


def clean(value: float) -> float:
    """Without the dust of floating-point numbers."""
    return float(f"{value:.10g}")


def quantile(values: pl.Series, q: float) -> float:
    """A value that was seen."""
    return float(values.quantile(q, "nearest") or 0.0)


def quoted(value: str) -> str:
    """As TOML has a text."""
    return json.dumps(value, ensure_ascii=False)


def listed(values: Sequence[object]) -> str:
    """As TOML has a list."""
    return json.dumps(list(values), ensure_ascii=False)


def share(mask: pl.Series) -> float:
    """Of the rows that a mask marks."""
    return int(mask.sum()) / max(1, len(mask))
