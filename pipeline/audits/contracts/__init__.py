"""The contracts: what everything of ours passes, and what is of your own can be put to (docs/extend.md).

==================  ======================================  =====================================================
contract            a subject                               checks
==================  ======================================  =====================================================
:data:`WORLD`       a ``World``                             :mod:`pipeline.audits.contracts.playing`
:data:`AGENT`       a :class:`Player`                       the same module
:data:`PRIVATIZER`  a function from a card to a privatizer  :mod:`pipeline.audits.contracts.drawing`
:data:`NOISE`       a function that makes a noise source    the same module
==================  ======================================  =====================================================

A check that passes proves nothing beyond what it looks at.  Each catches a twin made to break it: :data:`CONTRACTS`
and the twins of ``tests/audits/test_contracts_twins.py`` are compared by a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pipeline.audits.contracts import drawing, playing
from pipeline.audits.contracts.drawing import BrokenContractError, Privatizer, Source
from pipeline.audits.contracts.playing import Player
from pipeline.environments.world import World

__all__ = ["AGENT", "CONTRACTS", "NOISE", "PRIVATIZER", "WORLD", "BrokenContractError", "Contract", "Player"]

Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Contract(Generic[Subject]):
    """What all subjects of one kind promise.

    Parameters
    ----------
    kind
        What they are, in a word.
    checks
        Each looks at one promise of a subject, and raises a :class:`BrokenContractError` that says what was found.
    """

    kind: str
    checks: tuple[Callable[[Subject], None], ...]


WORLD: Contract[World] = Contract(
    "world",
    (
        playing.transitions_are_distributions,
        playing.rewards_are_finite,
        playing.labels_fit,
        playing.ends_are_worth_nothing,
        playing.every_behaviour_is_a_policy,
        playing.a_log_follows_the_tables,
        playing.a_card_can_be_written,
    ),
)
AGENT: Contract[Player] = Contract(
    "online agent",
    (
        playing.marks_and_regret_are_a_curve,
        playing.the_same_trial_gives_the_same_outcome,
        playing.outcomes_are_plain_values,
        playing.facts_say_what_it_is,
        playing.no_budget_is_refused,
        playing.less_privacy_is_less_noise,
        playing.the_policy_is_one_of_the_worlds,
    ),
)
PRIVATIZER: Contract[Privatizer] = Contract(
    "privatizer",
    (
        drawing.tables_are_known_beforehand,
        drawing.no_person_moves_a_table_further_than_it_says,
        drawing.every_cell_gets_the_noise_it_says,
        drawing.noise_does_not_look_at_the_counts,
        drawing.releases_are_integers_that_name_their_source,
        drawing.seeded_noise_never_touches_real_people,
        drawing.the_worst_pair_is_no_easier_to_tell_apart_than_it_says,
    ),
)
NOISE: Contract[Source] = Contract(
    "noise source",
    (
        drawing.gaussian_draws_have_their_law,
        drawing.laplace_draws_have_their_law,
        drawing.neighbouring_draws_do_not_follow_each_other,
        drawing.what_can_be_repeated_refuses_real_people,
        drawing.the_distance_from_the_law_is_small,
    ),
)
CONTRACTS: tuple[Contract[Any], ...] = (WORLD, AGENT, PRIVATIZER, NOISE)
