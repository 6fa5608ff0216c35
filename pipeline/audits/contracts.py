"""The contracts: what everything of ours passes, and what is of your own can be put to (docs/extend.md).

==================  ==============================================  ====================================================
contract            a subject                                       its checks stand
==================  ==============================================  ====================================================
:data:`WORLD`       a :class:`~pipeline.environments.world.World`   here: a world is a process, and its logs are of it
:data:`AGENT`       a :class:`Player`                               here: short trials in RiverSwim, or where it says
:data:`PRIVATIZER`  a function from a card to a private sum         in :mod:`pipeline.audits.noise_contracts`
:data:`NOISE`       a function that makes a noise source            there too
:data:`READER`      a :class:`LogReader`                            in :mod:`pipeline.audits.reader_contracts`
==================  ==============================================  ====================================================

A check that passes proves nothing beyond what it looks at.  Each catches a twin made to break it: a test compares
:data:`CONTRACTS` with the twins of ``tests/audits/test_contracts_twins.py``.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.audits.noise_contracts import NOISE, PRIVATIZER, BrokenContractError, Contract, promised
from pipeline.audits.reader_contracts import READER, LogReader
from pipeline.declaration.toml import CardError
from pipeline.environments.world import World, declared_actions, declared_states
from pipeline.mdp.planning import policy_value
from pipeline.mdp.policy import Policy
from pipeline.simulation.control_trials import optimum, world_of
from pipeline.simulation.registry import find, plain_values, run
from pipeline.simulation.simulate import sample_log
from pipeline.simulation.synthetic_world_card import checked, world_card
from pipeline.simulation.trial import Outcome, Plain, Trial

# what a package's own tests name (docs/extend.md)
__all__ = ["AGENT", "CONTRACTS", "NOISE", "PRIVATIZER", "READER", "WORLD", "BrokenContractError", "LogReader", "Player"]

WORLD = Contract[World]("world")
_TRUSTS = ("none", "joint", "local", "shuffle", "central")
_ROUNDING = 1e-9
# a frequency this many standard deviations off is a defect, not luck: one false alarm in 10^9
_SIGMAS = 6.5
_EPISODES = 4000


@WORLD.check
def transitions_are_distributions(world: World) -> None:
    """Every row of ``transition`` and ``start`` is one."""
    for name, table in (("transition", world.transition), ("start", world.start)):
        where = np.argwhere((table < 0).any(-1) | (np.abs(table.sum(-1) - 1) > _ROUNDING))
        promised(not len(where), f"{name}{where[:1].tolist()}: negative, or does not sum to 1")


@WORLD.check
def rewards_are_finite(world: World) -> None:
    """So that a card can declare their range."""
    for name, table in (("visit_reward", world.visit_reward), ("entry_reward", world.entry_reward)):
        promised(bool(np.isfinite(table).all()), f"{name} holds numbers that are not finite")


@WORLD.check
def labels_fit(world: World) -> None:
    """One label a state, one an action; ends are states."""
    S, A = world.shape  # noqa: N806
    promised(len(world.raw_labels) == S, f"{S} states have {len(world.raw_labels)} labels")
    promised(len(set(world.actions)) == A, f"{A} actions have {len(set(world.actions))} different labels")
    strange = [s for s in world.ends if not 0 <= s < S]
    promised(not strange, f"ends {strange} are no states")


@WORLD.check
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


@WORLD.check
def every_behaviour_is_a_policy(world: World) -> None:
    """Logging policies are distributions over actions, and ``uniform`` is among them."""
    horizon = world.steps()
    promised("uniform" in world.policies, "there is no logging policy 'uniform'")
    for name in (*world.policies, "near-optimal-0.3"):
        p = world.behaviours(name, horizon)
        promised(p.shape == (horizon, *world.shape), f"behaviour {name} has shape {p.shape}")
        promised(bool((p >= 0).all() and np.allclose(p.sum(-1), 1)), f"behaviour {name}: rows are no distributions")


@WORLD.check
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


@WORLD.check
def a_card_can_be_written(world: World) -> None:
    """A card of the usual horizon covers every state and action, and holds every reward."""
    try:
        card = checked(
            world_card(
                world, name="contract", rho=1.0, horizon=world.steps(), bins=None, episodes=1000, episodes_per_user=1
            )
        )
        declared_states(card, world)
        declared_actions(card, world)
    except CardError as e:
        raise BrokenContractError(str(e)) from None


@dataclass(frozen=True)
class Player:
    """An agent by name (``module:object`` where it is not ours), and where it plays."""

    agent: str
    world: str = "riverswim_homogeneous"
    params: tuple[tuple[str, Plain], ...] = (("states", 3),)
    episodes: int = 200
    options: tuple[tuple[str, Plain], ...] = ()

    @property
    def private(self) -> bool:
        """Whether it declares a trust model."""
        return find(self.agent).private

    def trial(self, seed: int = 0) -> Trial:
        """One short trial; epsilon = 1 where the agent is private."""
        bare = Trial(self.agent, self.world, self.params, self.episodes, options=self.options, seed=seed)
        return replace(bare, epsilon=1.0, delta=1e-5, calibration="tight") if self.private else bare

    def outcome(self, seed: int = 0) -> Outcome:
        """Of that trial."""
        return run(self.trial(seed))


AGENT = Contract[Player]("online agent")


@AGENT.check
def marks_and_regret_are_a_curve(player: Player) -> None:
    """Marks rise to K; regret never falls, and is at most what the worst policy would lose."""
    out, mdp = player.outcome(), world_of(player.trial())
    promised(out.marks[-1] == player.episodes, f"the last mark is {out.marks[-1]}, not K = {player.episodes}")
    promised(bool((np.diff(out.marks) > 0).all()), "marks do not rise")
    promised(len(out.marks) == len(out.regret), f"{len(out.marks)} marks, {len(out.regret)} regrets")
    promised(
        bool((np.diff([0.0, *out.regret]) >= -_ROUNDING).all()), "summed regret falls: some policy beats the optimum"
    )
    least = sum(float(r.min()) for r in mdp.rewards)
    most = player.episodes * (optimum(mdp) - least)
    promised(out.regret[-1] <= most + _ROUNDING, f"regret {out.regret[-1]} exceeds {most}, all that there is to lose")


@AGENT.check
def the_same_trial_gives_the_same_outcome(player: Player) -> None:
    """Everything random comes from the trial's seed."""
    one, other = player.outcome(3), player.outcome(3)
    promised(one == other, "two plays of one trial differ: something random does not come from trial.seed")


@AGENT.check
def outcomes_are_plain_values(player: Player) -> None:
    """So that they can be kept and travel between processes; no number is NaN."""
    try:
        json.dumps(plain_values(player.trial(), player.outcome()), allow_nan=False)
    except (TypeError, ValueError) as e:
        raise BrokenContractError(f"the outcome is not plain values: {e}") from None


@AGENT.check
def facts_say_what_it_is(player: Player) -> None:
    """Facts hold the trust model that is declared; a private agent's hold what its noise really costs."""
    facts = player.outcome().facts
    declared = find(player.agent).trust
    promised(facts.get("trust") in _TRUSTS, f"facts['trust'] is {facts.get('trust')!r}, not one of {_TRUSTS}")
    promised(facts["trust"] == declared, f"facts say {facts['trust']!r}, its registration {declared!r}")
    if player.private:
        true = facts.get("true_epsilon")
        spent = true if isinstance(true, float) and math.isfinite(true) else 0.0
        promised(spent > 0, f"facts['true_epsilon'] is {true!r}")
        promised(spent <= 1.0 + _ROUNDING, f"asked for epsilon = 1, the noise costs {spent}")


@AGENT.check
def no_budget_is_refused(player: Player) -> None:
    """A private agent without epsilon plays nothing."""
    if not player.private:
        return
    bare = replace(player.trial(), epsilon=None, delta=None, calibration=None)
    try:
        run(bare)
    except CardError:
        return
    promised(False, "plays without a budget; raise CardError where trial.epsilon or trial.delta is None")


@AGENT.check
def less_privacy_is_less_noise(player: Player) -> None:
    """At epsilon = 100 the true epsilon is larger than at 1: the budget reaches the noise."""
    if not player.private:
        return
    loose = run(replace(player.trial(), epsilon=100.0)).facts["true_epsilon"]
    tight = player.outcome().facts["true_epsilon"]
    promised(loose > 2 * tight, f"true epsilon {tight} at 1, {loose} at 100: the noise does not follow the budget")


@AGENT.check
def the_policy_is_one_of_the_worlds(player: Player) -> None:
    """Actions ``(H, S)`` that exist, or their chances ``(H, S, A)``, worth no more than the optimum; or none."""
    table, mdp = player.outcome().policy, world_of(player.trial())
    if table is None:
        return
    H, S, A = mdp.shape  # noqa: N806
    given = np.asarray(table)
    if given.ndim == 2:
        promised(given.shape == (H, S), f"policy has shape {given.shape}, not {(H, S)}")
        promised(bool(((given >= 0) & (given < A)).all()), "the policy takes actions that do not exist")
        given = np.eye(A)[given]
    promised(given.shape == (H, S, A), f"policy has shape {given.shape}, not {(H, S, A)}")
    promised(bool((given >= 0).all()) and np.allclose(given.sum(-1), 1), "the chances of a state are no distribution")
    value = policy_value(mdp, Policy(given, np.zeros((H, S), dtype=bool)))
    promised(value <= optimum(mdp) + _ROUNDING, "the policy beats the optimum")


CONTRACTS: tuple[Contract[Any], ...] = (WORLD, AGENT, PRIVATIZER, NOISE, READER)
