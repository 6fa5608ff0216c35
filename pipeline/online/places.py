"""The world of a trial by name: states and actions, or a linear plant; shipped, written out, released, or your own.

=======================  ===========================================================================================
name                     what it is
=======================  ===========================================================================================
a name of ``worlds.py``  a tabular world, ``gymnasium:ID`` among them
``lq``, ``lq-1`` …       a linear plant of paper 004, by ``instance`` and ``seed``; or ``double_integrator``
``plant``                a linear plant that the recipe writes out: ``A``, ``B``, ``horizon``, ``Q``, ``R``, ``noise`` …
``release:FOLDER``       the released model of a run: post-processing of what has left already, so it costs nothing
``module:object``        a :class:`~pipeline.worlds.world.WorldFunction` of your own, which returns either kind
=======================  ===========================================================================================

And what an online agent may know before its first user: the counts that an offline run has released.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.declaration.code import is_plugin, plugin
from pipeline.declaration.toml import CardError
from pipeline.facts.promise import DeclaredPlant
from pipeline.facts.report import read_report
from pipeline.mdp.riccati import QuadraticCost
from pipeline.online.trial import Trial
from pipeline.statistics.online_counts import OnlineCounts, OnlineLayout, nothing_seen
from pipeline.worlds.catalog import builds_horizon, catalog_folder, load_world, refuse_unknown_world
from pipeline.worlds.plants import (
    LQ_WORLDS,
    LqSystem,
    double_integrator,
    estimated_plant,
    load_lq_world,
    lq_instance,
    written_plant,
)
from pipeline.worlds.synthetic import checked, read_run, released_card, released_world
from pipeline.worlds.world import World, WorldFunction

RELEASE = "release:"
Params = tuple[tuple[str, Any], ...]
Kind = TypeVar("Kind", World, LqSystem)
# what a place is that is not of the kind that is asked for
_OTHERWISE: dict[type, str] = {
    World: "is a linear plant; use private-ofu-rl or another agent of plants",
    LqSystem: "has states and actions; this agent is for linear plants such as lq",
}


def refuse_unknown_place(name: str) -> None:
    """Refuse a name that no world of a trial can have; builds nothing.

    Raises CardError if there is no such world, or it is a plug-in that is not permitted.
    """
    if name not in _PLANTS and name not in LQ_WORLDS and not name.startswith(RELEASE):
        refuse_unknown_world(name)


@cache
def place_of(name: str, params: Params) -> World | LqSystem:
    """The world or plant, before a world is cut at a horizon; a file it is made of is looked for on the shelves.

    Raises CardError if there is no such place, a parameter is unknown, or a run has released no model.
    """
    chosen = dict(params)
    try:
        if name.startswith(RELEASE):
            chosen.pop("horizon", None)
            return _released(Path(name.removeprefix(RELEASE)), **chosen)
        if name in LQ_WORLDS and not chosen:
            return load_lq_world(name)
        if name in _PLANTS:
            return _PLANTS[name](**chosen)
    except (TypeError, ValueError) as e:
        raise CardError(f"world {name}: {e}") from None
    if is_plugin(name) and isinstance(plant := _built(name, chosen), LqSystem):
        return plant
    cut = {k: v for k, v in chosen.items() if k != "horizon" or builds_horizon(name)}
    return load_world(name, catalog_folder(name), **cut)


def typed_place(name: str, params: Params, kind: type[Kind]) -> Kind:
    """The same where it must have states and actions, or must be a linear plant.

    Raises CardError if it is the other kind, or there is none.
    """
    found = place_of(name, params)
    if not isinstance(found, kind):
        raise CardError(f"world {name}: {_OTHERWISE[kind]}")
    return found


def _lq(instance: int, seed: int = 11) -> LqSystem:
    return lq_instance(instance, seed)


_PLANTS = {"lq": _lq, "double_integrator": double_integrator, "plant": written_plant}


def _built(name: str, chosen: dict[str, Any]) -> object:
    """What a function of your own returns; a tabular world is built by the registry of worlds, which checks it."""
    try:
        return plugin(name, WorldFunction).build(**chosen)
    except TypeError:
        return None


def _released(folder: Path) -> World | LqSystem:
    """The released model of a run, over its declared labels or coordinates."""
    report = read_report(folder)
    if isinstance(report.dataset, DeclaredPlant):
        if report.model is None:
            raise ValueError(f"{folder.name} has released no plant; name a run of dp-lqr")
        d, model = report.dataset, (np.array(report.model.A), np.array(report.model.B))
        cost = QuadraticCost(np.array(d.cost.Q), np.array(d.cost.R), d.horizon)
        first = np.array(d.start_declared.mean)
        return estimated_plant(report.run, model, cost, d.action.radius, np.array(d.noise_covariance), first)
    run = read_run(folder)
    values = released_card(run, name="released", episodes=1, episodes_per_user=1, rho=1.0)
    return released_world(run, checked(values))


RUN = "run:"


def counts_before(trial: Trial, layout: OnlineLayout) -> OnlineCounts:
    """Counts of the run that option ``warm_start`` names: post-processing, at no cost to the people of either.

    Where the run has one table for all steps, every step knows it; where the agent has one, it knows their sum.

    Raises CardError if there is no such run, it is of other states, actions or steps, or rewards are learnt.
    """
    said = trial.knobs.get("warm_start")
    if said is None:
        return nothing_seen(layout)
    if not str(said).startswith(RUN):
        raise CardError(f"{trial.agent}: warm_start = {said!r}; say {RUN}NAME, a run of counts")
    if layout.rewards:
        raise CardError(f"{trial.agent}: warm_start brings transitions alone; leave out rewards = 'learnt'")
    folder = Path(str(said).removeprefix(RUN))
    run = read_run(folder)
    card = checked(released_card(run, name="released", episodes=1, episodes_per_user=1, rho=1.0))
    states, actions = _matched(card, typed_place(trial.world, trial.params, World), folder.name)
    n = run.release.tables["n_sas"].astype(np.float64)
    G, L, A, S = n.shape  # noqa: N806
    if 1 < G < layout.steps:
        raise CardError(f"{folder.name} has counts of {G} steps, this world of {layout.steps}; warm_start needs them")
    n = n if G == 1 else n[: layout.steps]
    sd = next(m for m in run.release.mechanisms if m.table == "n_sas").standard_deviation
    if layout.pooled:
        n, sd = n.sum(0, keepdims=True), sd * len(n) ** 0.5
    # an end is declared: what stays there is no news
    ends = np.zeros((S - L, A, S))
    ends[np.arange(S - L), :, np.arange(L, S)] = trial.episodes
    whole = np.concatenate([n, np.broadcast_to(ends, (len(n), *ends.shape))], axis=1)
    there = whole[:, states][:, :, actions][..., states]
    return OnlineCounts(0, np.broadcast_to(there, (*layout.cells, len(states))).copy(), None, sd, 0.0)


def _matched(card: Card, world: World, run: str) -> list[NDArray[np.int64]]:
    """Index of each state and action of the world among the card's labels; in their order where no label is shared."""
    d, found = card.domain, list[NDArray[np.int64]]()
    for labels, names in ((d.state_labels, world.raw_labels), (d.action_labels, world.actions)):
        at = {label: i for i, label in enumerate(labels)}
        index = [at.get(name, -1) for name in names] if set(names) & set(labels) else list(range(len(names)))
        if sorted(index) != list(range(len(labels))):
            raise CardError(f"warm_start: {run} counts other states or actions than world {world.name} has")
        found.append(np.array(index))
    return found
