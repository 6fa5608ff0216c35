"""The leaderboard, small: what another recipe shaped is not called better without a condition; a twin is caught."""

from __future__ import annotations

import pytest

from pipeline.learners.terms import recipe_identity
from tests.campaigns.leaderboard import Size, leaderboard

# of three, a vote weighted by gains is one of the three again: the same recipe
FEW = Size(8_000, 100, 5)


def blind(card, terms):
    """A broken twin: it does not see vetoes."""
    domain = card.domain.model_copy(update={"vetoes": []})
    return recipe_identity(card.model_copy(update={"domain": domain}).placed(card.folder), terms)


@pytest.fixture(scope="module")
def said():
    return leaderboard(0, FEW)


def test_what_those_taught_who_judge_looks_better_and_is_not_certified(said):
    assert said["taught, rule off"].certain, "the intervals alone are fooled"
    assert said["taught"].better and not said["taught"].certain
    assert "read people who judge here, by another recipe" in said["taught"].verdict.why


def test_with_a_reserve_who_judges_is_fresh_and_not_fooled(said):
    assert said["taught, reserve"].fresh and not said["taught, reserve"].better


def test_a_vote_of_published_gains_is_of_people_who_answered(said):
    assert not said["vote"].fresh and said["vote, fresh people"].fresh
    assert not any(s.certain for name, s in said.items() if "rule off" not in name)


def test_an_identity_without_vetoes_would_be_fooled():
    assert leaderboard(0, FEW, blind)["taught"].certain
