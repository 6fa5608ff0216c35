"""(b) Releases, policies and numbers under a fixed noise source; regret of simulated agents."""

from typing import Any

import pytest

from tests.conftest import slow
from tests.goldens import content, numbers
from tests.goldens.places import expected

# the plans of the first four are long; the others have a sister that stays
BY_SISTERS = ("explore-then-commit", "private-linopt-vi", "private-linopt-po", "ldp-ucrl-vtr")
BY_SISTERS += ("private-ofu-rl", "dp-ucbvi-ldp", "dp-lqr")


def same(name: str, key: str, found: Any) -> None:
    content.same(expected(name)[key], found)


@pytest.mark.slow
@pytest.mark.parametrize("card", numbers.SHIPPED)
def test_shipped_recipes(tmp_path, card):
    same("shipped", card, numbers.shipped(card, tmp_path))


@pytest.mark.slow
def test_recipes_of_version_0_1_on_the_log_it_shipped(tmp_path):
    same("shipped", "version 0.1", numbers.before(tmp_path))


@pytest.mark.parametrize("name", numbers.PEOPLE)
def test_recipes_for_real_people_on_made_up_ones(tmp_path, name):
    same("shipped", name, numbers.people(name, tmp_path))


@pytest.mark.parametrize("card", [pytest.param(c, marks=pytest.mark.slow if c == "shop" else ()) for c in numbers.TINY])
def test_every_setting_on_a_tiny_log(tmp_path, card):
    same("tiny", card, numbers.tiny(card, tmp_path))


@pytest.mark.parametrize("kind", ["tree", slow("toeplitz")])
def test_nights_of_a_counter(tmp_path, kind):
    same("nights", kind, numbers.nights(kind, tmp_path))


@pytest.mark.parametrize(
    "agent", [pytest.param(a, marks=pytest.mark.slow if a in BY_SISTERS else ()) for a in numbers.ONLINE]
)
def test_regret_of_online_agents(tmp_path, agent):
    same("online", agent, numbers.online(agent, tmp_path))


def test_the_shipped_simulation_made_shorter(tmp_path):
    same("online", "riverswim_joint", numbers.joint(tmp_path))
