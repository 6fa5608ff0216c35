"""Numbers and words as a reader sees them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from pipeline.declaration.numbers import clean, number

_MARKDOWN = re.compile(r"([\\`*\[\]|~$!])|(?<!\w)_|_(?!\w)")


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, the last one an ellipsis where some were cut."""
    return text if len(text) <= width else text[: width - 1] + "…"


def markdown(text: object) -> str:
    """Text that Markdown shows as written: no markup, no HTML, one line."""
    plain = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    marked = _MARKDOWN.sub(lambda match: "\\" + match.group(), plain)
    # What would open a heading or a list at the start of a line.
    return re.sub(r"^(\s*)(?:([#+-])|(\d+)([.)])(?=\s|$))", _opening, marked)


def _opening(match: re.Match[str]) -> str:
    space, sign, digits, stop = match.groups()
    return f"{space}\\{sign}" if sign else f"{space}{digits}\\{stop}"


def percent(value: float | None) -> str:
    """A share as a percentage; a dash where it is unknown.

    Parameters
    ----------
    value
        Between 0 and 1; None or NaN where it is unknown.
    """
    if value is None or math.isnan(value):
        return "–"
    if 0 < value < 0.001:
        return "< 0.1 %"
    return f"{number(100 * value, 3)} %"


def span(low: float, high: float) -> str:
    """Two noisy counts as a range, or one where both read the same."""
    first, last = f"{low:,.0f}".replace("-", "−"), f"{high:,.0f}".replace("-", "−")
    # A minus sign that stands before a zero says nothing.
    first, last = ("0" if text == "−0" else text for text in (first, last))
    return first if first == last else f"{first} to {last}"


def steps(first: int, last: int) -> str:
    """Steps of an episode, counted from 0."""
    return str(first) if first == last else f"{first}–{last}"


def interval(lower: float | None, upper: float | None) -> str:
    """An interval, rounded outward to two digits of its width: nothing finer is known.

    Parameters
    ----------
    lower, upper
        Its ends; ``upper`` is None where it is open.
    """
    if lower is None or upper is None:
        return f"{number(lower, 3, 'down')} or more"
    if not lower < upper or math.isinf(upper - lower):
        return number(lower) if lower == upper else f"{number(lower, 3, 'down')} to {number(upper, 3, 'up')}"
    digits = _digits(upper - lower)
    return f"{_to(lower, digits, ROUND_FLOOR)} to {_to(upper, digits, ROUND_CEILING)}"


def about(value: float, lower: float, upper: float) -> str:
    """An estimate, rounded as its interval is.

    Parameters
    ----------
    value, lower, upper
        The estimate and its ends.
    """
    return _to(value, _digits(upper - lower), ROUND_HALF_EVEN) if lower < upper else number(value)


def _digits(width: float) -> int:
    """Decimals that hold two digits of a width; negative left of the point."""
    return 1 - math.floor(math.log10(width))


def _to(value: float, digits: int, rounding: str) -> str:
    # twelve digits first, as for any number
    exact = Context(prec=12).create_decimal(repr(float(value)))
    found = exact.quantize(Decimal(1).scaleb(-digits), rounding=rounding) + 0
    shown = 0 if found == exact.to_integral_value() == exact else max(0, digits)
    return f"{found:,.{shown}f}".replace("-", "−")


def loss(rho: float | None, epsilon: float | None, delta: float | None, *, pure: bool = False) -> str:
    """A privacy loss, rounded up: rho with its (epsilon, delta), or epsilon alone.

    Parameters
    ----------
    rho, epsilon, delta
        As a guarantee states them; None where it does not.
    pure
        Whether epsilon holds with no delta.
    """
    if rho is None and epsilon is None:
        return "not bounded"
    if pure:
        return f"ε = {number(epsilon, toward='up')} (pure)"
    pair = f"ε = {number(epsilon, toward='up')} at δ = {number(delta, toward='up')}"
    if rho is None:
        return pair
    zero_concentrated = f"ρ = {number(rho, toward='up')}"
    return zero_concentrated if epsilon is None else f"{zero_concentrated} ({pair})"


def listing(items: Sequence[object]) -> str:
    """Items in one line."""
    return ", ".join(clean(item) for item in items)
