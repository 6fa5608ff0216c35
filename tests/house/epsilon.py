"""What an ε means: table and picture of docs/privacy.md.  `python -P -m tests.house.epsilon` writes them."""

import math
import re
from pathlib import Path

import numpy as np
import vl_convert
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from pipeline.privacy.losses import safe_epsilon

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
PICTURE = PAGE.with_name("epsilon.svg")
EPSILONS, DELTA = (0.5, 1.0, 3.0, 8.0), 1e-6
ROWS = re.compile(r"(<!-- epsilon -->\n\|.*\n\|.*\n)((?:\|.*\n)+)")


def rho_of(epsilon: float) -> float:
    """The ρ whose printed ε at ``DELTA`` is this one."""
    return float(brentq(lambda rho: safe_epsilon(rho, DELTA) - epsilon, 1e-9, 100.0))


def hits(epsilon: float, false_alarms: float | np.ndarray) -> np.ndarray:
    """The best test's hits at a share of false alarms, for one Gaussian release: Φ(Φ⁻¹(α) + √(2ρ))."""
    return ndtr(ndtri(np.asarray(false_alarms)) + math.sqrt(2 * rho_of(epsilon)))


def rows() -> str:
    """The rows of the page's table."""
    lines = []
    for e in EPSILONS:
        right = float(ndtr(math.sqrt(2 * rho_of(e)) / 2))
        odds = f"{math.exp(e):.1f}" if e < 2 else f"{round(math.exp(e)):,}".replace(",", "\u202f")
        found = f"{100 * hits(e, 0.01):.1f} %"
        cells = (f"{e:g}", f"{rho_of(e):.4f}", f"{100 * right:.0f}", f"{2 * right - 1:.2f}", found)
        lines.append(f"| {' | '.join((*cells, odds))} |\n")
    return "".join(lines)


def picture() -> str:
    """Hits against false alarms as SVG: one line an ε, the diagonal is a coin."""
    grid = np.linspace(1e-4, 1 - 1e-4, 200)
    named = [(f"ε = {e:g}", grid, hits(e, grid)) for e in EPSILONS] + [("a coin", grid, grid)]
    points = [{"x": float(a), "y": float(b), "who": n} for n, x, y in named for a, b in zip(x, y, strict=True)]
    order = [n for n, *_ in reversed(named[:-1])] + ["a coin"]
    axes = {"x": "false alarms: said to be in the log, and are not", "y": "hits: said to be in the log, and are"}
    coin = {"condition": {"test": "datum.who === 'a coin'", "value": [4, 4]}, "value": [1, 0]}
    chart = {
        "width": 460,
        "height": 320,
        "background": "white",
        "config": {"font": "sans-serif", "view": {"continuousWidth": 300, "continuousHeight": 300}},
        "data": {"values": points},
        "mark": {"type": "line", "strokeWidth": 2.5},
        "encoding": {
            **{axis: {"field": axis, "type": "quantitative", "title": said} for axis, said in axes.items()},
            "color": {"field": "who", "type": "nominal", "sort": order, "title": None},
            "strokeDash": coin,
        },
    }
    return vl_convert.vegalite_to_svg(chart)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(ROWS.sub(lambda found: found[1] + rows(), page), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
