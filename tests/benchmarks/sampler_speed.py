"""Draws a second of the samplers, side by side in one run: ``python -P -m tests.benchmarks.sampler_speed``.

OpenDP, the table and exact rejection at each standard deviation; CPU seconds, median of five interleaved rounds, one
core.  The table's building time stands in a column of its own and is not in its rate (it is built once a variance).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from fractions import Fraction

from pipeline.privacy.csprng import Words
from pipeline.privacy.noise import OsNoise, SimulatedWorld
from pipeline.privacy.samplers import (
    LARGEST_VARIANCE,
    gaussian_by_rejection,
    gaussian_by_table,
    gaussian_table,
    laplace_by_rejection,
)

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
    for draw, _ in routes.values():
        draw(10)
    rounds = [{name: rate(*route) for name, route in routes.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(r[name] for r in rounds) for name in routes}


def main() -> None:
    """Print one line a law and scale."""
    print(
        f"{'law':9}{'scale':>9}{'OpenDP/s':>11}{'table/s':>13}{'rejection/s':>13}"
        f"{'table x':>9}{'rej. x':>8}{'build s':>9}"
    )
    for sd in (1, 10, 1000, 10**4, 10**6):
        variance, build = sd * sd, float("nan")
        routes: dict[str, tuple[Callable[[int], object], int]] = {
            "opendp": (lambda n, v=variance: OsNoise().gaussian(n, v, NOWHERE), SLOW),
            "rejection": (lambda n, v=variance: gaussian_by_rejection(Words(), n, Fraction(v)), FAST),
        }
        if variance <= LARGEST_VARIANCE:
            began = time.process_time()
            gaussian_table(Fraction(variance))
            build = time.process_time() - began
            routes["table"] = (lambda n, v=variance: gaussian_by_table(Words(), n, Fraction(v)), FAST)
        show("gaussian", sd, row(routes), build)
    for scale in (1, 10, 1000, 10**6):
        routes = {
            "opendp": (lambda n, b=scale: OsNoise().laplace(n, Fraction(b), NOWHERE), SLOW),
            "rejection": (lambda n, b=scale: laplace_by_rejection(Words(), n, Fraction(b)), FAST),
        }
        show("laplace", scale, row(routes), float("nan"))


def show(law: str, scale: int, rates: dict[str, float], build: float) -> None:
    """One line."""
    slow, table, rejection = (rates.get(name, float("nan")) for name in ("opendp", "table", "rejection"))
    print(
        f"{law:9}{scale:>9}{slow:>11,.0f}{table:>13,.0f}{rejection:>13,.0f}"
        f"{table / slow:>9.0f}{rejection / slow:>8.0f}{build:>9.3f}"
    )


if __name__ == "__main__":
    main()
