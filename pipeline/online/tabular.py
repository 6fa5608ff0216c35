"""Agents in known tabular worlds that plan on counts: UCBVI and its private kin, and DP-APVI on a log.

**UCBVI and its kin** are one planner under four trust models.  Options of a trial, all with defaults: ``constants``
(``practical``; ``paper``: a plan an episode, and a bonus that covers all with probability 0.9) and what follows from
it: ``c``, ``noise``, ``z`` and ``iota`` of the bonus, ``growth`` and ``visits`` of the batches; ``first`` of these;
``pooled`` (one table for all steps); ``rewards`` (``known`` | ``learnt``); ``warm_start``, a run that released counts;
``episodes_per_user``: m, most episodes of one user, who may come at any time; for joint privacy ``mechanism`` and
``leaves`` of the counter; for the shuffle model ``honest``, and ``protocol`` (true: every message is sent and shuffled,
as bytes).

**DP-APVI** (paper 003): others' episodes were logged, a trusted curator releases their counts once.  Tables are drawn
from the exact law of whole episodes, never row by row, so that a log of 10^8 people costs what one of 10^3 does.  A
card's cap on one person's steps in a cell is charged, as always, but cannot be applied to tables: what it drops of a
real log stays in here.  Seeded noise: nothing is private.  Options of a trial: ``behaviour`` ("uniform": the world's
logging policy), ``rewards`` ("known" | "learnt": a coin a step, as online agents send it), ``pooled`` (false: a table a
step), ``constants`` ("practical").  Agents do not know which states end an episode.  The regret of the outcome is that
of K further episodes, beside the logged ones.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from pipeline.agents.pessimism import constants
from pipeline.agents.ucbvi import CountTask, UcbviConstants, practical, practical_joint, practical_local, theory, ucbvi
from pipeline.arrays import Array
from pipeline.declaration.card import Card, CardError
from pipeline.mdp.model import TabularMDP, Task
from pipeline.mdp.planning import optimum, policy_value
from pipeline.mdp.rollout import Pace, batch_ends
from pipeline.online.rollouts import CountWorld, as_printed, counts_before, emitted, logging_policy, play, world_of
from pipeline.online.trial import (
    CountsTarget,
    OnlineAgent,
    Outcome,
    Plain,
    ShuffledTarget,
    Trial,
    run_named,
    staged_curve,
)
from pipeline.privacy.budget import epsilon_from_rho
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.privacy.release import total_rho
from pipeline.statistics import interactive_counts
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.interactive_counts import CountMechanism, InteractiveCounts, ShuffledCounts
from pipeline.statistics.online_counts import OnlineLayout
from pipeline.statistics.private_sum import PrivateSum, asked, asked_rho
from pipeline.worlds.surrogate import Logged
from pipeline.worlds.synthetic import simulated_card

DEFAULTS: dict[str, Plain] = {
    "c": None,
    "noise": None,
    "z": None,
    "iota": None,
    "constants": "practical",
    "growth": None,
    "visits": None,
    "first": None,
    "pooled": False,
    "rewards": "known",
    "mechanism": None,
    "leaves": None,
    "honest": 1.0,
    "protocol": False,
    "episodes_per_user": 1,
    "warm_start": None,
}
# noise rows of a square-root counter are kept: so many numbers of 8 bytes are 128 MB
_NOISE_IN_MEMORY = 2**24
# a smaller batch has the same noise and hides each user less
_CROWD = 64
_NOISE, _TIES = 1, 2
# of the agents that learn from a log
_OF_LOGS: dict[str, Plain] = {"behaviour": "uniform", "rewards": "known", "pooled": False, "constants": "practical"}

Make = Callable[[Trial, OnlineLayout, int, SeededNoise], InteractiveCounts]


def _exact(t: Trial, layout: OnlineLayout, most: int, noise: SeededNoise) -> InteractiveCounts:
    return interactive_counts.exact(layout, most, SimulatedWorld(t.place), noise)


def _shuffled(t: Trial, layout: OnlineLayout, most: int, noise: SeededNoise) -> InteractiveCounts:
    ask = ask_of(t)
    if layout.pooled:
        raise CardError(f"{t.agent}: in the shuffle model every step needs counters of its own; leave out pooled")
    honest, protocol = float(t.knobs.get("honest", 1.0)), bool(t.knobs.get("protocol", False))
    return ShuffledCounts(layout, *asked(ask), SimulatedWorld(t.place), noise, honest, protocol=protocol)


def _local(t: Trial, layout: OnlineLayout, most: int, noise: SeededNoise) -> InteractiveCounts:
    return interactive_counts.local(layout, t.episodes, ask_of(t), SimulatedWorld(t.place), noise)


def _joint(t: Trial, layout: OnlineLayout, most: int, noise: SeededNoise) -> InteractiveCounts:
    world, how = SimulatedWorld(t.place), mechanism_of(t, layout, most)
    leaves = t.knobs.get("leaves", "batches")
    return interactive_counts.joint(layout, most, t.episodes, ask_of(t), world, noise, mechanism=how, leaves=leaves)


def mechanism_of(trial: Trial, layout: OnlineLayout, most: int) -> CountMechanism:
    """The counter of joint privacy: as chosen, else the square root, where all its noise rows fit into memory."""
    if (chosen := trial.knobs.get("mechanism")) is not None:
        return chosen
    steps = most if trial.knobs.get("leaves", "batches") == "batches" else trial.episodes
    cells = sum(math.prod(t.shape) for t in layout.tables)
    return "square-root" if steps * cells <= _NOISE_IN_MEMORY else "bottom-up"


_COUNTS: Mapping[str, Make] = {
    "ucbvi": _exact,
    "dp-ucbvi-jdp": _joint,
    "dp-ucbvi-ldp": _local,
    "counts-shuffle": _shuffled,
}


def ucbvi_agent(trial: Trial, reads: bool = True) -> Outcome:
    """UCBVI on counts of its trust model: exact, of a continual counter, of local messages, or shuffled."""
    mdp = world_of(trial)
    trial.over(DEFAULTS)
    layout = layout_of(trial, mdp)
    task = _task(mdp, layout)
    pace = pace_of(trial, layout)
    counts = _COUNTS[trial.agent](trial, layout, pace.most, trial.noise(_NOISE))
    constants = constants_of(trial, mdp)
    agent = ucbvi(task, pace, constants, counts_before(trial, layout))
    played = play(agent, CountWorld(mdp, counts, trial.stream(0), unread=not reads))
    learnt = played.result.policy
    best = optimum(mdp)
    marks, summed = staged_curve(played.ends, played.losses)
    promise = counts.guarantee
    facts = {
        "trust": promise.trust.value,
        "variant": _variant(trial, layout),
        "constants": f"{constants}; batches × {pace.growth:g}, visits × {1 + pace.visits:g}",
        "true_rho": None if promise.rho is None else float(promise.rho),
        "true_epsilon": None if trial.delta is None else promise.epsilon(trial.delta),
        "tie_share": played.result.tie_share,
        "shape": [*mdp.shape[1:], mdp.horizon],
        "batches": len(played.ends),
        **({"bytes_a_user_sent": counts.sent} if isinstance(counts, ShuffledCounts) and counts.protocol else {}),
        "noise_sd": float(np.max(counts.counts().sd_sas)),
        "final_loss": best - policy_value(mdp, learnt),
        "last_batch_loss": played.losses[-1],
        "optimum": best,
    }
    return Outcome(marks, summed, facts, emitted(learnt), counts.release())


def targets_of(trial: Trial) -> list[CountsTarget | ShuffledTarget]:
    """Targets of an audit: the counts at the trial's budget, where all of them are released alike."""
    layout, ask, knobs = layout_of(trial, world_of(trial)), ask_of(trial), trial.knobs
    if trial.agent == "counts-shuffle":
        users = pace_of(trial, layout).ends[0]
        return [ShuffledTarget(layout, ask, users, float(knobs.get("honest", 1.0)))]
    most = pace_of(trial, layout).most
    mechanism = None if trial.agent == "dp-ucbvi-ldp" else mechanism_of(trial, layout, most)
    return [CountsTarget(layout, ask, mechanism)]


def cost_of(trial: Trial) -> tuple[Fraction | None, Fraction]:
    """Exact cost of the trial's counts to one user (None where no rho is claimed), and the claim."""
    layout = layout_of(trial, world_of(trial))
    counts = _COUNTS[trial.agent](trial, layout, pace_of(trial, layout).most, trial.noise(_NOISE))
    return counts.guarantee.rho, asked_rho(ask_of(trial))


def _task(mdp: TabularMDP, layout: OnlineLayout) -> CountTask:
    lowest, highest = mdp.rewards.min((1, 2)), mdp.rewards.max((1, 2))
    task = CountTask(None, 0 * lowest, highest, mdp.start, layout)
    return task if layout.rewards else replace(task, rewards=mdp.rewards, lowest=lowest)


def constants_of(trial: Trial, mdp: TabularMDP) -> UcbviConstants:
    """Constants of the bonus: the defaults, changed by the trial's options."""
    knobs, (H, S, A) = trial.knobs, mdp.shape  # noqa: N806
    changed = {key: float(knobs[key]) for key in ("c", "noise", "z", "iota") if key in knobs}
    if as_printed(trial):
        return replace(theory(H * S * A, trial.episodes), **changed)
    return replace(_CHOSEN.get(trial.agent, practical)(trial.episodes), **changed)


# defaults of one trust model, in place of the common ones
_CHOSEN = {"dp-ucbvi-jdp": practical_joint, "dp-ucbvi-ldp": practical_local}
_VISITS = {"dp-ucbvi-jdp": 0.5}


def pace_of(trial: Trial, layout: OnlineLayout) -> Pace:
    """Ends of its batches."""
    knobs = trial.knobs
    crowd = _CROWD if trial.agent == "counts-shuffle" else 1
    printed = as_printed(trial)
    growth, first = float(knobs.get("growth", 1.0 if printed else 2.0)), int(knobs.get("first", crowd))
    declared = len(batch_ends(trial.episodes, growth, first))
    visits = float(knobs.get("visits", math.inf if printed else _VISITS.get(trial.agent, 1.0)))
    if trial.agent in ("ucbvi", "dp-ucbvi-ldp"):
        # no batch costs them anything
        return Pace(trial.episodes, growth, first, visits=visits)
    # room for every cell to end three batches, and then as many leaves as the same levels of a tree hold
    most = 2 ** (declared + 3 * math.prod(layout.cells)).bit_length() - 1
    return Pace(trial.episodes, growth, first, most, visits)


def layout_of(trial: Trial, mdp: TabularMDP) -> OnlineLayout:
    """Layout of its counts.

    Raises CardError if the world differs from step to step and the counts are pooled, or learnt rewards can be
    negative.
    """
    knobs, (H, S, A) = trial.knobs, mdp.shape  # noqa: N806
    learnt, pooled = knobs.get("rewards", "known") == "learnt", bool(knobs.get("pooled", False))
    if pooled:
        _refuse_steps_apart(trial, mdp.transitions, *([mdp.rewards] if learnt else []))
    if learnt and mdp.rewards.min() < 0:
        raise CardError(f"{trial.agent}: rewards of {trial.world} can be negative; use rewards = 'known'")
    if H == 1 and not learnt:
        raise CardError(f"{trial.agent}: {trial.world} has one step and known rewards, so there is nothing to learn")
    return OnlineLayout(H, S, A, pooled, learnt, trial.episodes_per_user, apart=trial.agent == "dp-ucbvi-ldp")


def _refuse_steps_apart(trial: Trial, *tables: Array) -> None:
    """Refuse to pool the counts of a world whose ``tables (H, ...)`` differ from step to step."""
    if any((x != x[:1]).any() for x in tables):
        raise CardError(f"{trial.agent}: {trial.world} differs from step to step; leave out pooled")


def _variant(trial: Trial, layout: OnlineLayout) -> str:
    words = ["pooled" if layout.pooled else "per step"]
    words += ["rewards learnt"] if layout.rewards else []
    words += [str(trial.knobs[key]) for key in ("mechanism", "leaves") if key in trial.knobs]
    words += [f"{layout.episodes} episodes a user"] if layout.episodes > 1 else []
    words += [f"started from {run_named(warm)}"] if (warm := trial.knobs.get("warm_start")) is not None else []
    return ", ".join(words)


def ask_of(trial: Trial) -> Ask:
    """The budget of its counts.

    Raises CardError if it has none, or asks for scales that no paper prints.
    """
    ask = trial.ask()
    if ask.calibration == "paper":
        raise CardError(f"{trial.agent}: no paper prints scales for its counts; use calibration = 'tight'")
    return ask


def apvi_agent(trial: Trial, reads: bool = True) -> Outcome:
    """Pessimistic planning on counts of a log: exact, or of one private release; without ``reads``, of an empty log."""
    private = trial.agent == "dp-apvi"
    if private and reads:
        trial.ask()
    setting, knobs = logged(trial), _knobs(trial)
    noise = trial.noise(_NOISE)
    release = setting.released(setting.counts(trial.episodes if reads else 0, trial.stream(0)), noise)
    plan = setting.learn(release, trial.stream(_TIES))
    best = optimum(setting.mdp)
    loss = best - setting.value(plan.policy)
    marks, summed = staged_curve([trial.episodes], [loss])
    rho = total_rho(setting.mechanisms)
    tables = "one table for all steps" if knobs["pooled"] else "a table a step"
    facts = {
        "trust": "central" if private else "none",
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


def targets_of_log(trial: Trial) -> list[PrivateSum]:
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
    if pooled:
        _refuse_steps_apart(trial, mdp.transitions, mdp.rewards)
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
    knobs = trial.over(_OF_LOGS, rewards=("known", "learnt"), constants=("paper", "tail", "practical"))
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


_unread = partial(ucbvi_agent, reads=False)
_private = partial(OnlineAgent, ucbvi_agent, plain="ucbvi", defaults=DEFAULTS, targets=targets_of, unread=_unread)
_apvi = partial(OnlineAgent, apvi_agent, defaults=_OF_LOGS)
AGENTS = {
    "apvi": _apvi(),
    "dp-apvi": _apvi("central", "apvi", targets=targets_of_log, unread=partial(apvi_agent, reads=False)),
    "ucbvi": OnlineAgent(ucbvi_agent, defaults=DEFAULTS),
    "dp-ucbvi-jdp": _private(trust="joint", cost=cost_of),
    "dp-ucbvi-ldp": _private(trust="local"),
    "counts-shuffle": _private(trust="shuffle"),
}
