"""Attacks on the message path of an online agent, from the recipe of its simulation: nobody plays, no world moves.

The protocol is attacked at the recipe's budget, with the same code that calibrates and adds noise where it is played;
a counter has few leaves here, because one of many works the same and takes longer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from flows.config.world_recipe import load_world_recipe
from pipeline.audits.attack import Attack
from pipeline.audits.counters import counter_attack
from pipeline.audits.interactive import desk_attack
from pipeline.audits.lq import lq_attack
from pipeline.audits.lq_counters import lq_counter_attack
from pipeline.audits.plans import WholePlan
from pipeline.audits.shuffled import batch_attack, crowd, messages_attack, shuffled_attack
from pipeline.audits.streams import LEAVES, Kind
from pipeline.declaration.card import CardError
from pipeline.simulation.online_agents import trust_of
from pipeline.simulation.trial import Trial

_LAST_STEPS = 2
# messages of all draws together: beyond, they take minutes and gigabytes
_MESSAGES = 400_000_000

Say = Callable[[str], None]


def attacks_of_world(path: Path, draws: int, say: Say) -> tuple[str, str, list[Attack]]:
    """Name and world of a recipe, and an attack for each thing that its agent releases.

    Raises
    ------
    CardError
        If the agent is not private, or its options are wrong.
    """
    recipe = load_world_recipe(path)
    agent = recipe.recipe.agent
    if trust_of(agent) == "none":
        raise CardError(f"{path.name}: {agent} adds no noise, no claim to attack")
    trial = recipe.trials()[agent][0]
    try:
        return recipe.recipe.name, trial.place, _BY_AGENT[agent](trial, draws, say)
    except ValueError as e:
        raise CardError(f"{path.name}: {e}") from None


def whole_plan_of_world(path: Path) -> WholePlan | None:
    """What the recipe's own counters cost, where :func:`attacks_of_world` attacks smaller ones that claim its budget.

    The papers' scales claim what they cost, nothing else: there is nothing to hold them against.
    """
    recipe = load_world_recipe(path)
    trial = recipe.trials()[recipe.recipe.agent][0]
    if trial.calibration != "tight" or trial.agent not in _COSTS:
        return None
    cost, claimed = _COSTS[trial.agent](trial)
    if cost is None:
        return None
    return WholePlan(f"A plan of at most {LEAVES} leaves, for {trial.episodes:,} episodes,", cost, claimed)


def _mixture_cost(trial: Trial) -> tuple[Fraction | None, Fraction]:
    from pipeline.simulation.mixture_trials import cost_of, messages_of

    return cost_of(trial), sum((ask.rho() for _, ask in messages_of(trial)), Fraction(0))


def _counts_cost(trial: Trial) -> tuple[Fraction | None, Fraction]:
    from pipeline.simulation.tabular_trials import ask_of, cost_of

    return cost_of(trial), ask_of(trial).rho()


def _optimist_cost(trial: Trial) -> tuple[Fraction | None, Fraction]:
    from pipeline.simulation.lq_trials import cost_of
    from pipeline.simulation.lq_worlds import ask_of

    return cost_of(trial), ask_of(trial).rho()


_COSTS: dict[str, Callable[[Trial], tuple[Fraction | None, Fraction]]] = {
    "private-linopt-vi": _mixture_cost,
    "private-linopt-po": _mixture_cost,
    "ldp-ucrl-vtr": _mixture_cost,
    "dp-ucbvi-jdp": _counts_cost,
    "private-ofu-rl": _optimist_cost,
}


def _mixture(trial: Trial, _: int, say: Say) -> list[Attack]:
    from pipeline.simulation.mixture_settings import settings_of
    from pipeline.simulation.mixture_trials import messages_of

    kind: Kind = "once" if trust_of(trial.agent) == "local" else settings_of(trial).counter
    found: list[Attack] = []
    for message, ask in messages_of(trial):
        # every step has sums of its own, calibrated alike
        few = replace(message, ranges=message.ranges[-_LAST_STEPS:])
        if few.steps < message.steps:
            say(f"{message.of}: an episode of {few.steps} steps with sums stands for one of {message.steps}")
        found.append(counter_attack(few, ask, kind))
    return found


def _counts(trial: Trial, draws: int, say: Say) -> list[Attack]:
    from pipeline.simulation.control_trials import world_of
    from pipeline.simulation.tabular_trials import ask_of, layout_of, pace_of

    layout, ask, knobs = layout_of(trial, world_of(trial)), ask_of(trial), trial.knobs
    if trial.agent == "dp-ucbvi-ldp":
        return [desk_attack(layout, ask, None)]
    if trial.agent == "dp-ucbvi-jdp":
        return [desk_attack(layout, ask, knobs.get("mechanism", "bottom-up"))]
    users, honest = pace_of(trial, layout).ends[0], float(knobs.get("honest", 1.0))
    totals = shuffled_attack(layout, ask.epsilon, ask.delta, users, honest)
    return [totals, *_messages(ask.epsilon, ask.delta, ask.calibration, draws, say)]


def _batches(trial: Trial, draws: int, say: Say) -> list[Attack]:
    from pipeline.simulation.shuffle_trials import first_batches, knobs_of, privatizer_of
    from pipeline.statistics.batch_privatizers import ExactBatch
    from pipeline.statistics.shuffle_counts import ShuffleBinary

    horizon = first_batches(trial)[0][1].shape[0]
    privatizer = privatizer_of(trial, knobs_of(trial), horizon)
    if isinstance(privatizer, ExactBatch):
        raise CardError("trust = 'none': no noise, no claim to attack")
    found = [batch_attack(layout, users, privatizer) for users, layout in first_batches(trial)]
    if isinstance(privatizer, ShuffleBinary):
        found += _messages(privatizer.epsilon, privatizer.delta, privatizer.calibration, draws, say)
    return found


def _messages(epsilon: float, delta: float, calibration: str, draws: int, say: Say) -> list[Attack]:
    bits = crowd(epsilon, delta, calibration)
    if 4 * draws * (bits.users + bits.trials) > _MESSAGES:
        say(
            f"messages are left out: {draws:,} releases of a batch of {bits.users} users are "
            f"{4 * draws * (bits.users + bits.trials):,} bits; the totals are attacked"
        )
        return []
    return [messages_attack(epsilon, delta, calibration)]


def _optimist(trial: Trial, _: int, say: Say) -> list[Attack]:
    from pipeline.simulation.lq_trials import counter_of, message_of
    from pipeline.simulation.lq_worlds import ask_of

    counter: Any = counter_of(trial)
    if counter not in ("tree", "epochs"):
        raise CardError(f"counter must be tree or epochs; got {counter!r}")
    return [lq_counter_attack(message_of(trial), ask_of(trial), counter)]


def _one_release(trial: Trial, _: int, say: Say) -> list[Attack]:
    from pipeline.simulation.lq_trials import release_plan

    return [lq_attack(release_plan(trial))]


_BY_AGENT: dict[str, Callable[[Trial, int, Say], list[Attack]]] = {
    "private-linopt-vi": _mixture,
    "private-linopt-po": _mixture,
    "ldp-ucrl-vtr": _mixture,
    "dp-ucbvi-jdp": _counts,
    "dp-ucbvi-ldp": _counts,
    "counts-shuffle": _counts,
    "sdp-pe": _batches,
    "private-ofu-rl": _optimist,
    "explore-then-commit": _one_release,
    "dp-lqr": _one_release,
}
