"""Radii: each displayed formula once by hand, and what scales with c."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline.agents.mixture_backup import Moment, ldp, ldp_theory, linopt_rewards, ucrl_vtr
from pipeline.statistics.regression import RidgeSums

ONES = np.ones(2)
MOMENT = Moment(
    16, 100, 8, np.array([0.5, 0.25]), np.array([0.5, 0.25]),
    RidgeSums(np.tile(2 * np.eye(2), (2, 4, 1, 1)), np.zeros((2, 4, 2)), ONES, 2 * ONES, 0.1 * ONES),
)  # fmt: skip


def test_the_printed_ucrl_bonus_scales_its_first_term_alone():
    second = MOMENT.tops * math.sqrt(2 * math.log(100) + 8 * math.log(2))
    np.testing.assert_allclose(ucrl_vtr(0.1)(MOMENT), 0.1 * (math.sqrt(8) + second))
    np.testing.assert_allclose(ucrl_vtr(0.1, printed=True)(MOMENT), 0.1 * math.sqrt(8) + second)


def test_the_local_radius_and_its_theory():
    np.testing.assert_allclose(ldp(0.3)(MOMENT), 0.3 * 8**0.75 * MOMENT.tops**1.5 * 2)
    # H = 3: three and two steps to go
    extra = math.log(8 * 100 * 3 / 0.01) * np.log(np.array([3, 2]) / 0.1) ** 0.25 / 2
    np.testing.assert_allclose(ldp_theory(4.0, 0.1)(MOMENT), ldp(1.0)(MOMENT) * extra)


def test_the_reward_radius_is_in_reward_units():
    inside = 2 * math.log(2 / 0.01) + 8 * math.log(1 + 100 / 8)
    wanted = MOMENT.tops * (math.sqrt(inside) / 2 + math.sqrt(16)) + 0.1
    np.testing.assert_allclose(linopt_rewards(1.0)(MOMENT), wanted)
    assert linopt_rewards(0.0)(MOMENT) == pytest.approx(0.0)
