"""Integer variances spend what rounding leaves; what plan says of noise against data is true of the noise drawn."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import (
    count_sum,
    even_visits,
    integer_variances,
    people_needed,
    scale_budget,
    signal_to_noise,
    visit_noise,
)
from tests.conftest import card_dict

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
def test_many_steps_at_once_end_where_single_steps_do(seed):
    assert integer_variances(*asks(seed)) == one_step_at_a_time(*asks(seed))


def test_a_fine_reward_lattice_keeps_the_budget_and_no_further_step_can_be_paid():
    squares = {"n_sa": 40, "n_sas": 40, "r_sa": 3_200_000}
    shares = {"n_sa": Fraction(3, 20), "n_sas": Fraction(1, 2), "r_sa": Fraction(7, 20)}
    v = integer_variances(squares, shares, Fraction(1))
    left = 1 - sum(Fraction(squares[n], 2 * v[n]) for n in v)
    assert left >= 0
    assert all(Fraction(squares[n], 2 * (v[n] - 1)) - Fraction(squares[n], 2 * v[n]) > left for n in v)


@pytest.mark.parametrize("tables", ["one_table", "two_tables"])
@pytest.mark.parametrize("dynamics", ["per_step", "stationary"])
def test_the_noise_on_a_visit_count_is_that_of_the_drawn_tables(make_card, tables, dynamics):
    card = make_card(domain=card_dict()["domain"] | {"dynamics": dynamics})
    mechanisms = count_sum(card, Ask(rho=0.5, tables=tables)).mechanisms
    table = {m.table: m for m in mechanisms}
    rng = np.random.default_rng(0)
    if tables == "two_tables":
        drawn = rng.normal(0, table["n_sa"].standard_deviation, 200_000)
    else:
        drawn = rng.normal(0, table["n_sas"].standard_deviation, (200_000, len(card.domain.state_labels))).sum(-1)
    assert visit_noise(card, mechanisms) == pytest.approx(drawn.std(), rel=0.02)


def test_visits_are_declared_steps_over_cells(make_card):
    for episodes in (1, 3):
        card = make_card(unit=card_dict()["unit"] | {"episodes_per_user": episodes})
        d = card.domain
        cells = d.table_steps * len(d.live_states) * len(d.action_labels)
        assert even_visits(card, 100) * cells == pytest.approx(100 * episodes * d.horizon)


def test_ten_times_the_people_or_a_hundred_times_the_budget_is_ten_times_the_ratio(make_card):
    # small budgets: variances are integers, and large ones hardly feel the rounding
    card, ask = make_card(), Ask(rho=0.0001)
    base = signal_to_noise(card, ask).ratio
    assert signal_to_noise(card, ask, 10 * card.unit.users_public).ratio == pytest.approx(10 * base)
    assert signal_to_noise(card, scale_budget(ask, 100)).ratio == pytest.approx(10 * base, rel=0.02)
    # without noise every count is heard
    assert signal_to_noise(card, Ask()).ratio == math.inf
    pure = Ask(epsilon=0.01)
    assert signal_to_noise(card, scale_budget(pure, 10)).ratio == pytest.approx(
        10 * signal_to_noise(card, pure).ratio, rel=1e-9
    )


@pytest.mark.parametrize("level", [1.0, 3.0, 10.0])
def test_the_people_needed_are_the_fewest(make_card, level):
    card, ask = make_card(), Ask(rho=0.01)
    n = people_needed(card, ask, level)
    assert signal_to_noise(card, ask, n).ratio >= level > signal_to_noise(card, ask, n - 1).ratio
