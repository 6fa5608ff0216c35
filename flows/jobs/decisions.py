"""A policy over declared states: what report.json says of it, its true value, and how the page draws it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flows.jobs.folder import read_policy
from flows.jobs.linear_view import linear_view
from flows.jobs.lq_folder import read_gains
from pipeline.agents.against_behaviour import AgainstPractice
from pipeline.declaration.card import Card
from pipeline.learners.tabular_learning import practice
from pipeline.mdp.policy import Policy
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import read_release
from reports.facts.dataset import DeclaredPlant, DeclaredTables
from reports.facts.learnt import PolicyFacts, Practice, Truth
from reports.facts.policy import Decisions, Gains, PolicyView, decisions
from reports.facts.report import Report


def decision_facts(policy: Policy, tied: NDArray[np.bool_]) -> PolicyFacts:
    """The ``policy`` of report.json; ``tied (H, L)``: several actions were equally good."""
    return PolicyFacts(
        tie_share=float(tied.mean()),
        abstain_share=float(policy.abstains.mean()),
        tied=[(int(h), int(s)) for h, s in np.argwhere(tied)],
    )


def practice_facts(found: AgainstPractice, policy: Policy) -> Practice:
    """The ``practice`` of report.json, over the cells in which the policy recommends something."""
    known, spoken = ~np.isnan(found.gain), max(1, int((~policy.abstains).sum()))
    of = [
        (int(h), int(s), _six(float(found.followed[h, s])), _six(float(found.gain[h, s])), bool(found.apart[h, s]))
        for h, s in np.argwhere(known)
    ]
    return Practice(
        known_share=float(known.sum()) / spoken,
        followed_share=float(found.followed[known].mean()) if of else None,
        apart_share=float(found.apart[known].mean()) if of else None,
        cells=of,
    )


def _six(x: float) -> float:
    """Six digits: what a page shows and no more."""
    return float(f"{x:.6g}")


def tabular_truth(card: Card, world: str, behaviour: str, policy: Policy) -> Truth:
    """True values in a world of states and actions."""
    from pipeline.environments.worlds import load_world
    from pipeline.evaluation.exact import truth

    return Truth.model_validate(truth(card, load_world(world, card.folder), behaviour, policy))


def counts_view(labels: tuple[list[str], list[str]], policy: Policy, tied: NDArray[np.bool_], of: Release) -> Decisions:
    """A policy beside released evidence and released practice.

    Parameters
    ----------
    labels
        Live states and actions.
    policy, tied
        As emitted, and ``(H, L)`` where several actions were equally good.
    of
        The release of counts it was learnt from.
    """
    evidence = np.maximum(of.tables["n_sas"].sum(-1), 0).astype(np.float64)
    return decisions(labels, policy, tied, evidence, practice(of))


def read_view(report: Report, folder: Path) -> PolicyView:
    """The policy of a run's folder as the page draws it: what the run itself had at hand.

    Parameters
    ----------
    report
        Of the folder.
    folder
        With the policy's files and the release.
    """
    if isinstance(report.dataset, DeclaredPlant):
        told, gains = read_gains(folder)
        return Gains(told["observation"]["names"], told["action"]["names"], gains)
    return _table(report, report.dataset, folder)


def _table(report: Report, data: DeclaredTables, folder: Path) -> Decisions:
    import pyarrow.parquet as pq

    policy, tied = read_policy(folder), tied_cells(report, data)
    told = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    if told.get("kind") != "linear":
        return counts_view((data.live_states, data.actions), policy, tied, read_release(folder))
    weights = pq.read_table(folder / "policy.parquet")["weight"].to_numpy().reshape(told["horizon"], -1)
    integers = np.array(told["features"]["integers"])
    return linear_view(data, policy, tied, weights, integers, (told["unit"], told["reward_unit"]))


def tied_cells(report: Report, data: DeclaredTables) -> NDArray[np.bool_]:
    """``(H, L)``: cells in which several actions were equally good.

    Parameters
    ----------
    report, data
        What a run says, and the tables that it declares.
    """
    tied = np.zeros((data.horizon, len(data.live_states)), dtype=bool)
    tied[tuple(np.array(report.policy.tied, dtype=np.int64).reshape(-1, 2).T)] = True
    return tied
