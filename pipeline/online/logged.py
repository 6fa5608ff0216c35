"""DP-APVI in known worlds: others' episodes were logged, a trusted curator releases their counts once (paper 003).

Tables are drawn from the exact law of whole episodes, never row by row, so that a log of 10^8 people costs what one of
10^3 does.  A card's cap on one person's steps in a cell is charged, as always, but cannot be applied to tables: what
it drops of a real log stays in here.  Seeded noise: nothing is private.

Options of a trial, with their defaults: ``behaviour`` ("uniform": the world's logging policy), ``rewards`` ("known" |
"learnt": a coin a step, as online agents send it), ``pooled`` (false: a table a step), ``constants`` ("practical").
Agents do not know which states end an episode.  The regret of the outcome is that of K further episodes, beside the
logged ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.agents.pessimism import constants
from pipeline.declaration.card import Card, CardError
from pipeline.mdp.model import TabularMDP, Task
from pipeline.mdp.planning import optimum
from pipeline.online.rollouts import emitted, logging_policy, world_of
from pipeline.online.trial import OnlineAgent, Outcome, Plain, Trial, staged_curve
from pipeline.privacy.budget import epsilon_from_rho
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import total_rho
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.worlds.surrogate import Logged
from pipeline.worlds.synthetic import simulated_card

_NOISE, _TIES = 1, 2
DEFAULTS: dict[str, Plain] = {"behaviour": "uniform", "rewards": "known", "pooled": False, "constants": "practical"}


def plain_apvi(trial: Trial) -> Outcome:
    """Pessimistic planning on exact counts of a log."""
    return _learnt(trial, "none", trial.episodes)


def dp_apvi(trial: Trial) -> Outcome:
    """The same on one private release of them."""
    trial.ask()
    return _learnt(trial, "central", trial.episodes)


def unread(trial: Trial) -> Outcome:
    """A private release of an empty log: noise, abstaining and known rewards remain."""
    return _learnt(trial, "none", 0)


def _learnt(trial: Trial, trust: str, episodes: int) -> Outcome:
    setting, knobs = logged(trial), _knobs(trial)
    noise = SeededNoise(np.random.SeedSequence((_NOISE, trial.seed, trial.episodes)))
    release = setting.released(setting.counts(episodes, trial.stream(0)), noise)
    plan = setting.learn(release, trial.stream(_TIES))
    best = optimum(setting.mdp)
    loss = best - setting.value(plan.policy)
    marks, summed = staged_curve([trial.episodes], [loss])
    rho = total_rho(setting.mechanisms)
    tables = "one table for all steps" if knobs["pooled"] else "a table a step"
    facts = {
        "trust": trust,
        "variant": f"logged by {knobs['behaviour']}, {tables}, rewards {knobs['rewards']}",
        "constants": knobs["constants"],
        "true_rho": None if rho is None else float(rho),
        "true_epsilon": None if rho is None else epsilon_from_rho(float(rho), trial.delta or 0.0),
        "tie_share": float(plan.tied.mean()),
        "abstains": float(plan.policy.abstains.mean()),
        "noise_sd": {m.table: m.standard_deviation for m in setting.mechanisms}["n_sas"],
        "final_loss": loss,
        "optimum": best,
    }
    return Outcome(marks, summed, facts, emitted(setting.whole(plan.policy)), release)


def targets_of(trial: Trial) -> list[PrivateSum]:
    """The target of an audit: the one release of the log's tables."""
    trial.ask()
    setting = logged(trial)
    return [PrivateSum(CountLayout(setting.card), setting.mechanisms)]


def logged(trial: Trial) -> Logged:
    """Card, task and mechanisms of a trial.

    Raises CardError if an option is unknown or does not fit the world.
    """
    knobs, mdp = _knobs(trial), world_of(trial)
    pooled, known = bool(knobs["pooled"]), knobs["rewards"] == "known"
    if mdp.rewards.min() < 0:
        raise CardError(f"{trial.agent}: rewards of {trial.world} can be negative; its bench has none of that")
    if pooled and any((x != x[:1]).any() for x in (mdp.transitions, mdp.rewards)):
        raise CardError(f"{trial.agent}: {trial.world} differs from step to step; leave out pooled")
    H, S, A = mdp.shape  # noqa: N806
    card = _card(trial, mdp, pooled, known)
    rewards = None if not known else mdp.rewards[:1] if pooled else mdp.rewards
    task = Task(H, card.reward.range, np.ones((S, A), dtype=bool), rewards, can_end=False)
    try:
        mechanisms = count_sum(card, Ask(epsilon=trial.epsilon, delta=trial.delta)).mechanisms
    except ValueError as e:
        raise CardError(f"{trial.agent}: {e}") from None
    behaviour = logging_policy(trial, str(knobs["behaviour"])).probabilities
    chosen = constants(knobs["constants"], H * S * A, policy=card.domain.markov)
    return Logged(card, task, mdp, behaviour, mechanisms, chosen)


def _knobs(trial: Trial) -> dict[str, Any]:
    knobs = trial.over(DEFAULTS, rewards=("known", "learnt"), constants=("paper", "tail", "practical"))
    if trial.calibration == "paper":
        raise CardError(f"{trial.agent}: on this bench one table is released; use calibration = 'tight'")
    return knobs


def _card(trial: Trial, mdp: TabularMDP, pooled: bool, known: bool) -> Card:
    """The world as a curator would declare it; one episode a user."""
    _, S, A = mdp.shape  # noqa: N806
    top = float(mdp.rewards.max()) or 1.0
    reward = {"kind": "table", "table": mdp.rewards[-1].tolist()} if known else {"kind": "estimate"}
    columns = {"user_id": "user", "episode_id": "episode", "step": "step", "reward": "reward"}
    tables = {
        "domain": {
            "horizon": mdp.horizon,
            "dynamics": "stationary" if pooled else "per_step",
            "states": {"column": "state", "labels": S},
            "actions": {"column": "action", "labels": A},
            "start": {str(s): float(p) for s, p in enumerate(mdp.start)},
        },
        "reward": reward | {"range": [0.0, top], "steps": 1},
        "source": {"files": ["none.csv"], "columns": columns},
    }
    return Card.model_validate(
        simulated_card(trial.world.lower().replace(":", "_"), tables, episodes=trial.episodes, user="user")
    )


AGENTS = {
    "apvi": OnlineAgent(plain_apvi, defaults=DEFAULTS),
    "dp-apvi": OnlineAgent(dp_apvi, "central", "apvi", defaults=DEFAULTS, targets=targets_of, unread=unread),
}
