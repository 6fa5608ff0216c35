"""The card of a simulated log: what is true of a world, declared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from pipeline.declaration.card import Card, CardError
from pipeline.declaration.toml import explain
from pipeline.environments.world import Array, World, world_features
from pipeline.statistics.count_layout import reward_sensitivity

ALL_STATES = "all"
# finest lattice that is looked for; rewards off it are rounded down at ingest
_MOST_STEPS = 10_000
# a person's steps at one (state, action) that a table of all steps counts, per episode
_CELL_CAP = 4

COMMENTS: Mapping[str, str] = {
    "unit.users_public": "declared, never counted",
    "domain.dynamics": "per_step: a table for each step; stationary: one for all",
    "domain.cell_cap": "a user's later steps at the same (state, action) enter no table",
    "domain.markov": "declared: the states hide nothing; aggregated: bins hide part of them",
    "domain.start": "estimated from the released counts",
    "domain.states.ends": "an episode is over on entering one; worth nothing from then on",
    "reward.range": "the world's own units: nothing is rescaled",
    "reward.steps": "lattice: every reward that can be paid lies on it, or is rounded down to it",
    "reward.total": "what one user's rewards can sum up to",
    "tolerance.unknown_label": "no row may hold an undeclared label",
    "budget.rho": "lifetime cap of this lineage (zCDP)",
}


def readme(file: str, **told: object) -> str:
    """The README of a simulated log.

    Parameters
    ----------
    file
        Beside this one; its fields stand in braces.
    told
        What they say.
    """
    return Path(__file__).with_name(file).read_text(encoding="utf-8").format(**told)


def checked(values: Mapping[str, Any]) -> Card:
    """The card of plain values.

    Raises
    ------
    CardError
        One line for each key that is wrong.
    """
    try:
        return Card.model_validate(values)
    except ValidationError as e:
        raise CardError(explain(e, f"card of {values['name']}", Card)) from None


def world_card(
    world: World,
    *,
    name: str,
    horizon: int,
    bins: str | None,
    episodes: int,
    episodes_per_user: int,
    rho: float,
) -> dict[str, Any]:
    """Plain values of the card.

    Parameters
    ----------
    world
        The world behind the log.
    name
        Of the new lineage.
    horizon
        Steps of an episode.
    episodes, episodes_per_user
        Size of the log.
    rho
        Lifetime cap of the lineage, zCDP.
    bins
        One of the world's binnings, or ``all`` for a label a state; default: the first binning, else ``all``.

    Raises
    ------
    CardError
        If there is no such binning.
    """
    states = _states(world, bins)
    binned = "bins" in states
    stationary = world.stationary and horizon > 1
    columns = {"user_id": "user_id", "episode_id": "episode_id", "step": "step", "reward": "reward"}
    columns |= {"next_state": "next_state"} | ({"next_bin": f"next_{states['bins']['by']}"} if binned else {})
    tables = {
        "domain": {
            "horizon": horizon,
            "dynamics": "stationary" if stationary else "per_step",
            "cell_cap": _CELL_CAP * episodes_per_user if stationary else None,
            "markov": "aggregated" if binned else "declared",
            "start": "released",
            "states": states,
            "actions": {"column": "action", "labels": short(world.actions)},
        },
        "reward": {**_source_of_rewards(world, states), **_lattice(possible_rewards(world, horizon))},
        "source": {"layout": "long", "files": ["episodes-*.parquet"], "columns": columns},
        "tolerance": {"unknown_label": 0.0},
    }
    values = simulated_card(name, tables, episodes=episodes, episodes_per_user=episodes_per_user, rho=rho)
    return _with_total(values, world, horizon)


def simulated_card(
    name: str,
    tables: Mapping[str, Any],
    *,
    episodes: int,
    episodes_per_user: int = 1,
    rho: float = 1.0,
    delta: float = 1e-6,
    user: str = "user_id",
) -> dict[str, Any]:
    """Plain values of the card of a simulated log.

    Parameters
    ----------
    name
        Of the new lineage.
    tables
        What differs from log to log: domain, reward or cost, source.
    episodes, episodes_per_user, rho
        See :func:`world_card`.
    delta, user
        Of its budget, and the column of people's ids.
    """
    people = math.ceil(episodes / episodes_per_user)
    return {
        "schema_version": 1,
        "name": name,
        "kind": "synthetic",
        "unit": {"user": user, "episodes_per_user": episodes_per_user, "users_public": people},
        **tables,
        "budget": {"rho": rho, "delta": delta, "ledger": "home"},
    }


def short(labels: list[str]) -> int | list[str]:
    """Labels 0 ... n-1 as their number."""
    return len(labels) if labels == [str(i) for i in range(len(labels))] else labels


def _states(world: World, bins: str | None) -> dict[str, Any]:
    chosen = bins or next(iter(world.binnings), ALL_STATES)
    declared: dict[str, Any] = {"column": "state"}
    if chosen == ALL_STATES:
        live = [label for s, label in enumerate(world.raw_labels) if s not in world.ends]
        declared["labels"] = short(list(dict.fromkeys(live)))
        features = world_features(world)
        declared |= {} if features is None else {"features": features}
    elif chosen in world.binnings:
        column, edges = world.binnings[chosen]
        declared["bins"] = {"by": column, "edges": edges}
    else:
        known = ", ".join([*world.binnings, ALL_STATES])
        raise CardError(f"world {world.name}: no bins {chosen!r}; there are: {known}")
    return declared | {"ends": list(dict.fromkeys(world.ends.values()))}


def possible_rewards(world: World, horizon: int) -> Array:
    """Sorted distinct rewards that a step from a live state can pay."""
    live = ~world.terminal
    visit = np.broadcast_to(world.visit_reward, (horizon, *world.shape)) if not world.stationary else world.visit_reward
    if not world.entry_reward.any():
        return np.unique(visit[..., live, :])
    paid = visit[..., live, :, None] + world.entry_reward
    return np.unique(paid[np.broadcast_to(world.transition[..., live, :, :] > 0, paid.shape)])


def _source_of_rewards(world: World, states: Mapping[str, Any]) -> dict[str, Any]:
    """Declared where only entering a state pays and the card declares every state with its features; else estimated."""
    if "features" not in states or world.visit_reward.any() or world.lattice is not None:
        return {"kind": "estimate"}
    paid = {
        world.ends.get(int(s), world.raw_labels[s]): float(world.entry_reward[s])
        for s in world.entry_reward.nonzero()[0]
    }
    return {"kind": "on_entering", "on_entering": paid}


def _lattice(rewards: Array) -> dict[str, Any]:
    """Range and steps that hold every reward; from 0 where none is negative."""
    low, high = min(0.0, float(rewards[0])) if rewards[0] >= 0 else float(rewards[0]), float(rewards[-1])
    high = high if high > low else low + 1.0
    at = (rewards - low) / (high - low)
    exact = [Fraction(float(x)).limit_denominator(_MOST_STEPS) for x in at]
    steps = math.lcm(*(f.denominator for f in exact))
    near = max(abs(float(f) - x) for f, x in zip(exact, at, strict=True)) < 1e-9
    return {"range": [low, high], "steps": steps if near and steps <= _MOST_STEPS else _MOST_STEPS}


def _with_total(values: dict[str, Any], world: World, horizon: int) -> dict[str, Any]:
    """Declare the most a user can be paid where that needs less noise than the range alone."""
    if values["reward"]["range"][0] != 0:
        return values
    total = most_paid(world, horizon) * values["unit"]["episodes_per_user"]
    if total <= 0:
        return values
    bounded = values | {"reward": values["reward"] | {"total": total}}
    less = reward_sensitivity(checked(bounded)).l2_squared < reward_sensitivity(checked(values)).l2_squared
    return bounded if less else values


def most_paid(world: World, horizon: int) -> float:
    """Largest sum of rewards of one episode, over everything that can happen."""
    to_go = np.zeros(len(world.start))
    transition, visit = (
        np.broadcast_to(x, (horizon, *x.shape[-k:])) for x, k in ((world.transition, 3), (world.visit_reward, 2))
    )
    for h in reversed(range(horizon)):
        after = np.where(transition[h] > 0, world.entry_reward + to_go, -np.inf).max(-1)
        to_go = np.where(world.terminal, 0.0, (visit[h] + after).max(-1))
    return float(to_go[world.start > 0].max())
