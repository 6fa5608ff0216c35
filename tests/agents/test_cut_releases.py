"""A planner that reads from a release how much of it was cut does not play gains that rest on it."""

from __future__ import annotations

import math
from functools import partial

import pytest

from pipeline.agents.adaptive_lqr import AdaptiveConstants
from tests.agents import lq_plants as plants
from tests.agents.lq_plants import SPREAD, plant, regret

# seeds of plant and run that once cost 1.4, 1.7 and 601 times what doing nothing does
DEARER = [((3, 2, 1.1, 0), 15), ((2, 1, 0.7, 1), 5), ((2, 1, 1.2, 2), 11002)]


@pytest.mark.parametrize(("made", "seed"), DEARER)
def test_no_run_whose_releases_were_cut_costs_more_than_doing_nothing(monkeypatch, made, seed):
    assert regret(plant(*made), SPREAD, seed, example=True) < 1
    monkeypatch.setattr(plants, "AdaptiveConstants", partial(AdaptiveConstants, longest=math.inf))
    assert regret(plant(*made), SPREAD, seed, example=True) > 1
