"""What every world must do: a :class:`~pipeline.environments.world.World` is a process, and its logs are of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.audits.contract_broken import BrokenContractError, promised
from pipeline.declaration.card import CardError
from pipeline.environments.world import World, declared_actions, declared_states
from pipeline.simulation.simulate import sample_log
from pipeline.simulation.synthetic_world_card import checked, world_card

# a frequency this many standard deviations off is a defect, not luck: one false alarm in 10^9
_SIGMAS = 6.5
_EPISODES = 4000
_ROUNDING = 1e-9


def transitions_are_distributions(world: World) -> None:
    """Every row of ``transition`` and ``start`` is one."""
    for name, table in (("transition", world.transition), ("start", world.start)):
        where = np.argwhere((table < 0).any(-1) | (np.abs(table.sum(-1) - 1) > _ROUNDING))
        promised(not len(where), f"{name}{where[:1].tolist()}: negative, or does not sum to 1")


def rewards_are_finite(world: World) -> None:
    """So that a card can declare their range."""
    for name, table in (("visit_reward", world.visit_reward), ("entry_reward", world.entry_reward)):
        promised(bool(np.isfinite(table).all()), f"{name} holds numbers that are not finite")


def labels_fit(world: World) -> None:
    """One label a state, one an action; ends are states."""
    S, A = world.shape  # noqa: N806
    promised(len(world.raw_labels) == S, f"{S} states have {len(world.raw_labels)} labels")
    promised(len(set(world.actions)) == A, f"{A} actions have {len(set(world.actions))} different labels")
    strange = [s for s in world.ends if not 0 <= s < S]
    promised(not strange, f"ends {strange} are no states")


def ends_are_worth_nothing(world: World) -> None:
    """An episode stops on entering an end, so whatever the tables do from there on must pay 0."""
    left = world.transition.reshape(-1, *world.transition.shape[-3:])
    reached = world.terminal.copy()
    for _ in range(len(reached)):
        reached |= (left[:, reached] > 0).any((0, 1, 2))
    paid = np.broadcast_to(world.expected_reward, (len(left), *world.shape))[:, reached]
    promised(
        not paid.any(), "something is paid after an end; pay on the way to it, or let it lead to a state that pays 0"
    )


def every_behaviour_is_a_policy(world: World) -> None:
    """Logging policies are distributions over actions, and ``uniform`` is among them."""
    horizon = world.steps()
    promised("uniform" in world.policies, "there is no logging policy 'uniform'")
    for name in (*world.policies, "near-optimal-0.3"):
        p = world.behaviours(name, horizon)
        promised(p.shape == (horizon, *world.shape), f"behaviour {name} has shape {p.shape}")
        promised(bool((p >= 0).all() and np.allclose(p.sum(-1), 1)), f"behaviour {name}: rows are no distributions")


def a_log_follows_the_tables(world: World) -> None:
    """Successors and rewards of 4000 simulated episodes have the frequencies and sums that the tables say."""
    horizon = world.steps()
    rows = sample_log(world, "uniform", horizon, _EPISODES, np.random.default_rng(0))
    S, A = world.shape  # noqa: N806
    shape = (horizon, S, A, S)
    at = (rows.step, rows.state, rows.action)
    P = np.broadcast_to(world.transition, shape)[at]  # noqa: N806
    impossible = P[np.arange(len(P)), rows.next_state] <= 0
    promised(not impossible.any(), "the log holds a step that the tables make impossible")
    seen = np.bincount(rows.next_state, minlength=S)
    spread = np.sqrt((P * (1 - P)).sum(0)) + 1
    off = np.abs(seen - P.sum(0)) / spread
    promised(bool((off < _SIGMAS).all()), f"entries into state {off.argmax()} are {off.max():.1f} deviations off")
    expected = np.broadcast_to(world.expected_reward, shape[:3])[at]
    error = rows.reward - expected
    deviations = abs(error.sum()) / (np.sqrt((error**2).sum()) + _ROUNDING)
    promised(deviations < _SIGMAS, f"summed rewards are {deviations:.1f} deviations off")


def a_card_can_be_written(world: World) -> None:
    """A card of the usual horizon covers every state and action, and holds every reward."""
    asked: dict[str, Any] = {"horizon": world.steps(), "bins": None, "episodes": 1000, "episodes_per_user": 1}
    try:
        card = checked(world_card(world, name="contract", rho=1.0, **asked))
        declared_states(card, world)
        declared_actions(card, world)
    except CardError as e:
        raise BrokenContractError(str(e)) from None


WORLD_CHECKS: tuple[Callable[[World], None], ...] = (
    transitions_are_distributions,
    rewards_are_finite,
    labels_fit,
    ends_are_worth_nothing,
    every_behaviour_is_a_policy,
    a_log_follows_the_tables,
    a_card_can_be_written,
)
