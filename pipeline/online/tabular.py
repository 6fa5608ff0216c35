"""UCBVI and its private kin: one planner, four trust models.

Options of a trial, all with defaults: ``constants`` (``practical``; ``paper``: a plan an episode, and a bonus that
covers all with probability 0.9) and what follows from it: ``c``, ``noise``, ``z`` and ``iota`` of the bonus, ``growth``
and ``visits`` of the batches; ``first`` of these; ``pooled`` (one table for all steps); ``rewards`` (``known`` |
``learnt``); ``warm_start``, a run that released counts; ``episodes_per_user``: m, most episodes of one user, who may
come at any time; for joint privacy ``mechanism`` and ``leaves`` of the counter; for the shuffle model ``honest``, and
``protocol`` (true: every message is sent and shuffled, as bytes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np

from pipeline.agents.ucbvi import CountTask, UcbviConstants, practical, practical_joint, practical_local, theory, ucbvi
from pipeline.declaration.card import CardError
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimum, policy_value
from pipeline.mdp.rollout import Pace, batch_ends
from pipeline.online.rollouts import CountWorld, as_printed, counts_before, emitted, play, world_of
from pipeline.online.trial import (
    CountsTarget,
    OnlineAgent,
    Outcome,
    Plain,
    ShuffledTarget,
    Trial,
    Trust,
    run_named,
    staged_curve,
)
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.statistics.ask import Ask
from pipeline.statistics.interactive_counts import (
    CountMechanism,
    InteractiveCounts,
    ShuffledCounts,
    exact,
    joint,
    local,
)
from pipeline.statistics.online_counts import OnlineLayout
from pipeline.statistics.private_sum import asked, asked_rho

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
_NOISE = 1

Make = Callable[[Trial, OnlineLayout, int, SeededNoise], InteractiveCounts]


def plain_ucbvi(trial: Trial) -> Outcome:
    """UCBVI on exact counts."""
    return _played(trial, lambda t, layout, most, noise: exact(layout, most, SimulatedWorld(t.place), noise))


def dp_ucbvi_jdp(trial: Trial) -> Outcome:
    """DP-UCBVI on a continual counter."""
    return _played(trial, _joint)


def dp_ucbvi_ldp(trial: Trial) -> Outcome:
    """DP-UCBVI on local messages."""
    return _played(trial, _local)


def counts_shuffle(trial: Trial) -> Outcome:
    """The same planner on shuffled one-bit messages, a batch a release."""
    return _played(trial, _shuffled)


def unread(trial: Trial) -> Outcome:
    """A private agent without its users' counts: noise, ties and known rewards remain."""
    return _played(trial, _PRIVATE[trial.agent], unread=True)


def _shuffled(t: Trial, layout: OnlineLayout, most: int, noise: SeededNoise) -> InteractiveCounts:
    ask = ask_of(t)
    if layout.pooled:
        raise CardError(f"{t.agent}: in the shuffle model every step needs counters of its own; leave out pooled")
    honest, protocol = float(t.knobs.get("honest", 1.0)), bool(t.knobs.get("protocol", False))
    return ShuffledCounts(layout, *asked(ask), SimulatedWorld(t.place), noise, honest, protocol=protocol)


def _local(t: Trial, layout: OnlineLayout, most: int, noise: SeededNoise) -> InteractiveCounts:
    return local(layout, t.episodes, ask_of(t), SimulatedWorld(t.place), noise)


def _joint(t: Trial, layout: OnlineLayout, most: int, noise: SeededNoise) -> InteractiveCounts:
    world, mechanism = SimulatedWorld(t.place), mechanism_of(t, layout, most)
    leaves = t.knobs.get("leaves", "batches")
    return joint(layout, most, t.episodes, ask_of(t), world, noise, mechanism=mechanism, leaves=leaves)


def mechanism_of(trial: Trial, layout: OnlineLayout, most: int) -> CountMechanism:
    """The counter of joint privacy: as chosen, else the square root, where all its noise rows fit into memory."""
    if (chosen := trial.knobs.get("mechanism")) is not None:
        return chosen
    steps = most if trial.knobs.get("leaves", "batches") == "batches" else trial.episodes
    cells = sum(math.prod(t.shape) for t in layout.tables)
    return "square-root" if steps * cells <= _NOISE_IN_MEMORY else "bottom-up"


_PRIVATE: Mapping[str, Make] = {"dp-ucbvi-jdp": _joint, "dp-ucbvi-ldp": _local, "counts-shuffle": _shuffled}


def _played(trial: Trial, make: Make, *, unread: bool = False) -> Outcome:
    mdp = world_of(trial)
    trial.over(DEFAULTS)
    layout = layout_of(trial, mdp)
    task = _task(mdp, layout)
    pace = pace_of(trial, layout)
    noise = SeededNoise(np.random.SeedSequence((_NOISE, trial.seed, trial.episodes)))
    counts = make(trial, layout, pace.most, noise)
    constants = constants_of(trial, mdp)
    agent = ucbvi(task, pace, constants, counts_before(trial, layout))
    played = play(agent, CountWorld(mdp, counts, trial.stream(0), unread=unread))
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
    noise = SeededNoise(np.random.SeedSequence((_NOISE, trial.seed, trial.episodes)))
    counts = _PRIVATE[trial.agent](trial, layout, pace_of(trial, layout).most, noise)
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
    alike = [mdp.transitions, *([mdp.rewards] if learnt else [])]
    if pooled and any((x != x[:1]).any() for x in alike):
        raise CardError(f"{trial.agent}: {trial.world} differs from step to step; leave out pooled")
    if learnt and mdp.rewards.min() < 0:
        raise CardError(f"{trial.agent}: rewards of {trial.world} can be negative; use rewards = 'known'")
    if H == 1 and not learnt:
        raise CardError(f"{trial.agent}: {trial.world} has one step and known rewards, so there is nothing to learn")
    return OnlineLayout(H, S, A, pooled, learnt, trial.episodes_per_user, apart=trial.agent == "dp-ucbvi-ldp")


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


def _private(play: Callable[[Trial], Outcome], trust: Trust, cost: bool = False) -> OnlineAgent:
    return OnlineAgent(
        play, trust, "ucbvi", defaults=DEFAULTS, targets=targets_of, cost=cost_of if cost else None, unread=unread
    )


AGENTS = {
    "ucbvi": OnlineAgent(plain_ucbvi, defaults=DEFAULTS),
    "dp-ucbvi-jdp": _private(dp_ucbvi_jdp, "joint", cost=True),
    "dp-ucbvi-ldp": _private(dp_ucbvi_ldp, "local"),
    "counts-shuffle": _private(counts_shuffle, "shuffle"),
}
