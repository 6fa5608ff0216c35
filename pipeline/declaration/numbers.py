"""Numbers and labels as claims and pages print them."""

import json
import math
import re
import unicodedata
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Literal

Toward = Literal["nearest", "up", "down"]
_ROUNDING = {"nearest": ROUND_HALF_EVEN, "up": ROUND_CEILING, "down": ROUND_FLOOR}
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def clean(text: object) -> str:
    """A label on one line, without control characters or hidden changes of writing direction."""
    return _CONTROL.sub("�", str(text).replace("\n", " ").replace("\t", " "))


def check_shown(labels: Iterable[str]) -> None:
    """Refuse a declared label that a terminal would obey instead of showing it; ValueError names it."""
    if label := next((label for label in labels if any(unicodedata.category(c) == "Cc" for c in label)), None):
        raise ValueError(
            f"the label {label!a} holds a control character; rename it in the log, or write labels = {{ name = "
            f"[{json.dumps(label)}], … }}"
        )


def number(value: object, digits: int = 4, toward: Toward = "nearest") -> str:
    """A number to ``digits`` significant digits.

    A promise must not look better than it is, so losses are printed rounded ``up`` and lower bounds ``down``.

    ``value``: integers keep all digits; texts pass through; None and NaN are a dash.
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
