"""What every online agent must do: a function from a :class:`~pipeline.simulation.trial.Trial` to an outcome.

The checks play short trials in RiverSwim (three states, six steps) unless the subject says where it plays.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.audits.contract_broken import BrokenContractError, promised
from pipeline.declaration.toml import CardError
from pipeline.mdp.planning import policy_value
from pipeline.mdp.policy import Policy
from pipeline.simulation.control_trials import optimum, world_of
from pipeline.simulation.registry import find
from pipeline.simulation.trial import Outcome, Trial

_TRUSTS = ("none", "joint", "local", "shuffle", "central")
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Player:
    """An agent by name (``module:function`` where it is not ours), and where it plays."""

    agent: str
    world: str = "riverswim_homogeneous"
    params: tuple[tuple[str, Any], ...] = (("states", 3),)
    episodes: int = 200
    options: tuple[tuple[str, Any], ...] = ()

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
        return find(self.agent)(self.trial(seed))


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


def the_same_trial_gives_the_same_outcome(player: Player) -> None:
    """Everything random comes from the trial's seed."""
    one, other = player.outcome(3), player.outcome(3)
    promised(one == other, "two plays of one trial differ: something random does not come from trial.seed")


def outcomes_are_plain_values(player: Player) -> None:
    """So that they can be kept and travel between processes; no number is NaN."""
    try:
        json.dumps(player.outcome().as_dict(), allow_nan=False)
    except (TypeError, ValueError) as e:
        raise BrokenContractError(f"the outcome is not plain values: {e}") from None


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


def no_budget_is_refused(player: Player) -> None:
    """A private agent without epsilon plays nothing."""
    if not player.private:
        return
    bare = replace(player.trial(), epsilon=None, delta=None, calibration=None)
    try:
        find(player.agent)(bare)
    except CardError:
        return
    promised(False, "plays without a budget; raise CardError where trial.epsilon or trial.delta is None")


def less_privacy_is_less_noise(player: Player) -> None:
    """At epsilon = 100 the true epsilon is larger than at 1: the budget reaches the noise."""
    if not player.private:
        return
    loose = find(player.agent)(replace(player.trial(), epsilon=100.0)).facts["true_epsilon"]
    tight = player.outcome().facts["true_epsilon"]
    promised(loose > 2 * tight, f"true epsilon {tight} at 1, {loose} at 100: the noise does not follow the budget")


def the_policy_is_one_of_the_worlds(player: Player) -> None:
    """Actions ``(H, S)`` that exist, worth no more than the optimum; or none."""
    table, mdp = player.outcome().policy, world_of(player.trial())
    if table is None:
        return
    H, S, A = mdp.shape  # noqa: N806
    actions = np.asarray(table)
    promised(actions.shape == (H, S), f"policy has shape {actions.shape}, not {(H, S)}")
    promised(bool(((actions >= 0) & (actions < A)).all()), "the policy takes actions that do not exist")
    value = policy_value(mdp, Policy(np.eye(A)[actions], np.zeros((H, S), dtype=bool)))
    promised(value <= optimum(mdp) + _ROUNDING, "the policy beats the optimum")


AGENT_CHECKS: tuple[Callable[[Player], None], ...] = (
    marks_and_regret_are_a_curve,
    the_same_trial_gives_the_same_outcome,
    outcomes_are_plain_values,
    facts_say_what_it_is,
    no_budget_is_refused,
    less_privacy_is_less_noise,
    the_policy_is_one_of_the_worlds,
)
