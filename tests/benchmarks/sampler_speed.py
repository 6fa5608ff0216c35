"""Draws a second of the samplers, side by side in one run: ``python -P -m tests.benchmarks.sampler_speed``.

OpenDP, the table and exact rejection at each standard deviation; CPU seconds, median of five interleaved rounds, one
core.  The table's building time stands in a column of its own and is not in its rate (it is built once a variance).
"""

import statistics
import time
from collections.abc import Callable
from fractions import Fraction

from pipeline.privacy.csprng import Law, Words, by_rejection, draw, first_words
from pipeline.privacy.noise import OpenDpNoise, SimulatedWorld
from tests.campaigns.rows import markdown, markdown_row

ROUNDS = 5
SLOW, FAST = 10_000, 1_000_000
NOWHERE = SimulatedWorld("benchmark")


def rate(draw: Callable[[int], object], draws: int) -> float:
    """Draws a CPU second."""
    began = time.process_time()
    draw(draws)
    return draws / (time.process_time() - began)


def row(routes: dict[str, tuple[Callable[[int], object], int]]) -> dict[str, float]:
    """Median rate of each route; a round runs them one after the other."""
    for route, _ in routes.values():
        route(10)
    rounds = [{name: rate(*route) for name, route in routes.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(r[name] for r in rounds) for name in routes}


def main() -> None:
    print(markdown(["law", "scale", "OpenDP/s", "table/s", "rejection/s", "table x", "rejection x", "build s"]))
    for kind, scales in (("gaussian", (1, 10, 1000, 10**4, 10**6)), ("laplace", (1, 10, 1000, 10**6))):
        for scale in scales:
            law, build = Law(kind, Fraction(scale * scale if kind == "gaussian" else scale)), float("nan")
            theirs = OpenDpNoise().gaussian if kind == "gaussian" else OpenDpNoise().laplace
            routes: dict[str, tuple[Callable[[int], object], int]] = {
                "opendp": (
                    lambda n, b=law.scale, f=theirs: f(n, int(b) if f.__name__ == "gaussian" else b, NOWHERE),
                    SLOW,
                ),
                "rejection": (lambda n, law=law: by_rejection(Words(), n, law), FAST),
            }
            if law.reach(64) <= 2**18:
                began = time.process_time()
                first_words(law)
                build = time.process_time() - began
                routes["table"] = (lambda n, of=law: draw(Words(), n, of), FAST)
            show(kind, scale, row(routes), build)


def show(law: str, scale: int, rates: dict[str, float], build: float) -> None:
    slow, table, rejection = (rates.get(name, float("nan")) for name in ("opendp", "table", "rejection"))
    speeds = (f"{number:,.0f}" for number in (slow, table, rejection, table / slow, rejection / slow))
    print(markdown_row([law, scale, *speeds, f"{build:.3f}"]).replace("nan", "–"), flush=True)


if __name__ == "__main__":
    main()
