"""Numbers and words as a reader sees them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Literal

Toward = Literal["nearest", "up", "down"]
_ROUNDING = {"nearest": ROUND_HALF_EVEN, "up": ROUND_CEILING, "down": ROUND_FLOOR}
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_MARKDOWN = re.compile(r"([\\`*\[\]|~$!])|(?<!\w)_|_(?!\w)")


def clean(text: object) -> str:
    """A label on one line, without control characters or hidden changes of writing direction."""
    return _CONTROL.sub("�", str(text).replace("\n", " ").replace("\t", " "))


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


def number(value: object, digits: int = 4, toward: Toward = "nearest") -> str:
    """A number to ``digits`` significant digits.

    A promise must not look better than it is, so losses are printed rounded ``up`` and lower bounds ``down``.
    Integers keep all digits; texts pass through; None and NaN are a dash.
    """
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return clean(value)
    if isinstance(value, int):
        return f"{value:,}"
    real = float(value)  # type: ignore[arg-type]
    if math.isnan(real):
        return "–"
    if math.isinf(real):
        return "∞" if real > 0 else "−∞"
    # Twelve digits first: the dust of binary floats is not a reason to round 0.98 up to 0.9801.
    exact = Context(prec=12).create_decimal(repr(real))
    rounded = Context(prec=digits, rounding=_ROUNDING[toward]).create_decimal(exact)
    if rounded == 0:
        return "0"
    exponent = rounded.adjusted()
    if not -5 < exponent < 7:
        return f"{_plain(rounded.scaleb(-exponent))}e{exponent}"
    return _plain(rounded)


def _plain(value: Decimal) -> str:
    text = f"{value:,f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")


def percent(value: float | None) -> str:
    """A share as a percentage; a dash where it is unknown."""
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


def interval(lower: float | None, upper: float | None, digits: int = 4) -> str:
    """An interval, rounded outward.

    Parameters
    ----------
    lower, upper
        Its ends; ``upper`` is None where it is open.
    digits
        Significant ones.
    """
    if upper is None:
        return f"{number(lower, digits, 'down')} or more"
    return f"{number(lower, digits, 'down')} to {number(upper, digits, 'up')}"


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
