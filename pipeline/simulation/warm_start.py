"""What an online agent knows before its first user: the counts that an offline run has released."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import Card, CardError
from pipeline.environments.world import World
from pipeline.simulation.places import typed_place
from pipeline.simulation.synthetic_from_release import read_run, released_card
from pipeline.simulation.synthetic_world_card import checked
from pipeline.simulation.trial import Trial
from pipeline.statistics.online_counts import OnlineCounts, OnlineLayout, nothing_seen

RUN = "run:"


def counts_before(trial: Trial, layout: OnlineLayout) -> OnlineCounts:
    """Counts of the run that option ``warm_start`` names: post-processing, at no cost to the people of either.

    Where the run has one table for all steps, every step knows it; where the agent has one, it knows their sum.

    Parameters
    ----------
    trial
        Its world has the run's states and actions: under the run's labels, or in its order where no label is shared.
    layout
        What the agent counts.

    Raises
    ------
    CardError
        If there is no such run, it is of other states, actions or steps, or rewards are learnt.
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
