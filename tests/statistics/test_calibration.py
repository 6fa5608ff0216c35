"""Integer variances spend what rounding leaves, step by step, however many steps there are."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from pipeline.statistics.calibration import integer_variances

Shares = dict[str, Fraction]


def one_step_at_a_time(squares: dict[str, int], shares: Shares, rho: Fraction) -> dict[str, int]:
    """The same rule as its docstring has it."""
    variances = {n: math.ceil(squares[n] / (2 * shares[n] * rho)) for n in squares}

    def cost(n: str) -> Fraction:
        return Fraction(squares[n], 2 * variances[n])

    while True:
        left = rho * sum(shares.values()) - sum(cost(n) for n in squares)
        payable = [n for n, v in variances.items() if v > 1 and Fraction(squares[n], 2 * (v - 1)) - cost(n) <= left]
        if not payable:
            return variances
        variances[max(payable, key=lambda n: shares[n] * rho - cost(n))] -= 1


def asks(seed: int) -> tuple[dict[str, int], Shares, Fraction]:
    rng = random.Random(seed)
    names = "abcd"[: rng.randint(1, 4)]
    weights = {n: rng.randint(1, 20) for n in names}
    total = sum(weights.values()) + rng.randint(0, 3)
    squares = {n: rng.choice([1, 2, 8, 20, 40, 700]) for n in names}
    return (
        squares,
        {n: Fraction(w, total) for n, w in weights.items()},
        Fraction(rng.randint(1, 40), rng.choice([1, 10])),
    )


@pytest.mark.parametrize("seed", range(40))
def test_many_steps_at_once_end_where_single_steps_do(seed: int):
    assert integer_variances(*asks(seed)) == one_step_at_a_time(*asks(seed))


def test_a_fine_reward_lattice_keeps_the_budget_and_no_further_step_can_be_paid():
    squares = {"n_sa": 40, "n_sas": 40, "r_sa": 3_200_000}
    shares = {"n_sa": Fraction(3, 20), "n_sas": Fraction(1, 2), "r_sa": Fraction(7, 20)}
    v = integer_variances(squares, shares, Fraction(1))
    left = 1 - sum(Fraction(squares[n], 2 * v[n]) for n in v)
    assert left >= 0
    assert all(Fraction(squares[n], 2 * (v[n] - 1)) - Fraction(squares[n], 2 * v[n]) > left for n in v)
