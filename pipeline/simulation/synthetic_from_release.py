"""Trajectories from a *released* model: post-processing of noisy counts, so it reads no row and costs nothing.

What is sampled: the start, the transitions, the rewards and the logging policy, all from the consistent counts of one
release.  An action the counts give no visit is never logged.  In a state without any visit the actions are uniform over
those allowed, and an unvisited cell leads anywhere, as the planner has it.  A reward is one of the two lattice points
beside its released mean.  None of this is evidence beyond the release itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.agents.pessimism import reward_estimate, start_distribution, transition_estimate
from pipeline.declaration.card import Card, CardError, declared_start, task_of
from pipeline.declaration.domain import OTHER
from pipeline.environments.world import Array, World
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import read_release, sha256_file
from pipeline.simulation.synthetic_world_card import readme, short, simulated_card
from pipeline.statistics.counts import private_counts
from reports.facts.dataset import DeclaredTables
from reports.facts.promise import Guarantee
from reports.facts.report import read_report

# name of the logging policy of a released world
PRACTICE = "released practice"


@dataclass(frozen=True)
class ReleasedRun:
    """What a run's folder says.

    Parameters
    ----------
    name, dataset, guarantee
        As its report states them.
    release
        Of counts.
    """

    name: str
    dataset: DeclaredTables
    guarantee: Guarantee
    release: Release


def read_run(folder: Path) -> ReleasedRun:
    """Read a run's folder: report.json, certificate.json and the release; nothing else.

    Parameters
    ----------
    folder
        Of a run, with ``report.json`` and the release.

    Raises
    ------
    CardError
        If it is no run's folder, or its release is not the one it certifies.
    """
    try:
        report = read_report(folder)
        proof = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
        release = read_release(folder)
        certified = proof["sha256"]["release"]
    except (OSError, KeyError, ValueError) as e:
        raise CardError(f"{folder}: not a run's folder ({type(e).__name__}); name one that `run` wrote") from None
    if "n_sas" not in release.tables or not isinstance(report.dataset, DeclaredTables):
        raise CardError(f"{folder}: a linear run releases sums of features, no counts; name a run of dp-apvi")
    if sha256_file(folder / "release.parquet") != certified:
        raise CardError(f"{folder}: release.parquet is not the one its certificate names: it was edited")
    return ReleasedRun(report.run, report.dataset, report.guarantee, release)


def released_card(run: ReleasedRun, *, name: str, episodes: int, episodes_per_user: int, rho: float) -> dict[str, Any]:
    """Plain values of a synthetic card that declares what the run's card declared; states and actions by label.

    Parameters
    ----------
    run
        The run whose release is sampled.
    name
        Of the new lineage.
    episodes, episodes_per_user
        Size of the new log.
    rho
        Lifetime cap of the new lineage, zCDP.

    Raises
    ------
    CardError
        If the run's report is too old to hold the declared rewards or start.
    """
    d, (low, high) = run.dataset, run.dataset.reward_range
    lacks = {"reward_table": d.reward_kind == "table", "start_declared": d.start == "declared"}
    for told in (key for key, needed in lacks.items() if needed and getattr(d, key) is None):
        raise CardError(f"{run.name}: report.json lacks {told}; run its recipe again (a replay costs nothing)")
    live, actions = ([label for label in labels if label != OTHER] for labels in (d.live_states, d.actions))
    other = {"live_states": OTHER in d.live_states, "actions": OTHER in d.actions}
    columns = {"user_id": "user_id", "episode_id": "episode_id", "step": "step", "reward": "reward"}
    tables = {
        "domain": {
            "horizon": d.horizon,
            "dynamics": d.dynamics,
            "cell_cap": d.cell_cap,
            "markov": d.markov,
            "start": "released" if d.start == "released" else d.start_declared,
            "vetoes": [list(pair) for pair in d.vetoes],
            "states": {
                "column": "state",
                "labels": short(live),
                "ends": d.ends,
                "other": other["live_states"],
            },
            "actions": {"column": "action", "labels": short(actions), "other": other["actions"]},
        },
        "reward": {
            "kind": d.reward_kind,
            "range": [low, high],
            "steps": round((high - low) / d.reward_unit),
            "total": d.reward_total,
            "table": d.reward_table,
            "on_entering": d.reward_on_entering,
        },
        "source": {
            "layout": "long",
            "files": ["episodes-*.parquet"],
            "columns": columns | {"next_state": "next_state"},
        },
        "tolerance": {} if any(other.values()) else {"unknown_label": 0.0},
    }
    return simulated_card(name, tables, episodes=episodes, episodes_per_user=episodes_per_user, rho=rho)


def released_world(run: ReleasedRun, card: Card) -> World:
    """The released model over the card's labels; its one behaviour is :data:`PRACTICE`.

    Parameters
    ----------
    run
        The run whose release is sampled.
    card
        Of the new log: its states and actions are the run's.
    """
    d, task = card.domain, task_of(card)
    counts = private_counts(run.release, card)
    visits = counts.n_sa
    L, A, S = len(d.live_states), len(d.action_labels), len(d.state_labels)  # noqa: N806
    transition = _with_ends(transition_estimate(counts, 0.0), np.broadcast_to(np.eye(S)[L:, None], (S - L, A, S)))
    declared = replace(task, entering=None).expected(counts.n_sas)
    mean = reward_estimate(counts, 0.0, *task.bounds) if declared is None else declared
    each = visits.sum(-1, keepdims=True)
    even = task.allowed / task.allowed.sum(-1, keepdims=True)
    practice = np.where(each > 0, visits / np.where(each > 0, each, 1.0), even)
    start = start_distribution(counts, declared_start(card))
    return World(
        name=card.name,
        transition=_squeezed(transition),
        visit_reward=_squeezed(_with_ends(mean, np.full((S - L, A), card.reward.range[0]))),
        entry_reward=np.zeros(S) if task.entering is None else task.entering,
        start=np.concatenate([start, np.zeros(S - L)]),
        raw_labels=d.state_labels,
        bin_values={},
        ends={s: d.state_labels[s] for s in range(L, S)},
        policies={PRACTICE: _squeezed(_with_ends(practice, np.full((S - L, A), 1 / A)))},
        action_labels=d.action_labels,
        horizon=d.horizon,
        lattice=(card.reward.range[0], card.reward.unit),
        most=card.reward.total,
    )


def _with_ends(live: Array, ends: Array) -> Array:
    """Rows of the ends behind those of the live states, at each step ``(G, L + ends, ...)``."""
    return np.concatenate([live, np.broadcast_to(ends, (len(live), *ends.shape))], axis=1)


def _squeezed(x: Array) -> Array:
    """Without the step axis where one table serves all steps."""
    return x[0] if x.shape[0] == 1 else x


def release_readme(*, name: str, run: ReleasedRun, episodes: int, seed: int, command: str) -> str:
    """README of a log sampled from a released model.

    Parameters
    ----------
    name
        Of the new dataset.
    run
        The run whose release was sampled.
    episodes, seed
        Of the log.
    command
        The command line that writes the same bytes.
    """
    log = {"name": name, "episodes": episodes, "seed": seed, "command": command}
    promise = {"sentence": run.guarantee.sentence, "claim": run.guarantee.claim}
    return readme("release_readme.md", run=run.name, dataset=run.dataset.name, **promise, **log)


def release_about(run: ReleasedRun, episodes: int) -> list[str]:
    """Head of the card of a log sampled from a released model: the README in four lines."""
    return [
        f"{episodes} episodes from what run {run.name} released of {run.dataset.name}; no record was read.",
        "Good for trying the pipeline, teaching, sharing the format, load tests.  No new evidence: any analysis",
        "re-reads the one release, small cells are noise, effects of actions cannot be estimated.  Costs nothing",
        "beyond that release and promises what it promises: see README.md.",
    ]
