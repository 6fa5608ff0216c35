"""The reward lattice: the same integers as the printed formula, whatever the range, and none outside it."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.statistics.count_layout import RewardLattice

NUMBERS = st.floats(-1e6, 1e6)


def printed(lattice: RewardLattice, reward: np.ndarray) -> np.ndarray:
    """Clip, scale, floor, clip: the definition, one operation after the other."""
    share = (np.clip(reward, lattice.low, lattice.high) - lattice.low) / (lattice.high - lattice.low)
    return np.clip(np.floor(share * lattice.steps + 1e-9), 0, lattice.steps).astype(np.int64)


@given(
    st.tuples(NUMBERS | st.just(0.0), NUMBERS | st.just(1.0)).filter(lambda r: r[0] < r[1]),
    st.integers(1, 2**20),
    st.lists(st.floats(allow_nan=False) | st.floats(-2, 2), min_size=1, max_size=50),
)
def test_index_is_the_printed_formula(ends, steps, rewards):
    lattice = RewardLattice(*ends, steps, centred=True)
    given_rewards = np.array([*rewards, *ends, np.nextafter(ends[1], -np.inf), np.inf, -np.inf])
    before = given_rewards.copy()
    k = lattice.index(given_rewards)
    np.testing.assert_array_equal(k, printed(lattice, given_rewards))
    assert k.dtype == np.int64 and k.min() >= 0 and k.max() <= steps
    np.testing.assert_array_equal(given_rewards, before)


def test_what_is_no_number_is_the_lowest_reward():
    """A file may say anything; what it says moves a sum by no more than a reward may."""
    assert RewardLattice(-1.0, 3.0, 8, centred=False).index(np.array([np.nan, 3.0])).tolist() == [0, 8]


@pytest.mark.parametrize(("low", "steps"), [("0", 10), ("0", 100), ("0", 1000), ("-1", 100), ("-2.5", 40)])
def test_every_point_of_the_lattice_written_as_a_decimal_is_its_own_index(low, steps):
    """A reward is a decimal in a file; in binary it may lie a hair below its point, which it counts as all the same."""
    points = [float(Decimal(low) + Decimal(k) / steps) for k in range(steps + 1)]
    lattice = RewardLattice(float(low), float(low) + 1.0, steps, centred=True)
    assert lattice.index(np.array(points)).tolist() == list(range(steps + 1))
    # and what lies truly between two points counts as the lower one
    assert lattice.index(np.array(points[1:]) - 1e-6 / steps).tolist() == list(range(steps))


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("centred", [True, False])
def test_the_integers_of_both_ends_are_the_width_apart_whatever_it_is(width, centred):
    lattice = RewardLattice(-1.0, -1.0 + width, 4, centred=centred)
    low, middle, high = lattice.index(np.array([-1.0, -1.0 + width / 2, -1.0 + width])).tolist()
    assert (low, middle, high) == (0, 2, 4)
    assert (lattice.integer(high) - lattice.integer(low)) * lattice.unit == pytest.approx(width)
