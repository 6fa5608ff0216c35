"""A planner that reads from a release how much of it was cut does not play gains that rest on it."""

from __future__ import annotations

import math
from functools import partial

import pytest

from pipeline.agents.adaptive_lqr import AdaptiveConstants
from tests.agents import lq_plants as plants
from tests.agents.lq_plants import SPREAD, plant, regret


@pytest.mark.slow
def test_a_ball_that_is_far_too_small_costs_less_than_doing_nothing_because_the_release_shows_it(monkeypatch):
    made, small = plant(3, 2, 1.1, 0), {"quantile": 0.05}
    monkeypatch.setattr(plants, "AdaptiveConstants", partial(AdaptiveConstants, **small))
    assert regret(made, SPREAD, 15, example=True) < 1
    monkeypatch.setattr(plants, "AdaptiveConstants", partial(AdaptiveConstants, wide=1.0, longest=math.inf, **small))
    assert regret(made, SPREAD, 15, example=True) > 1
