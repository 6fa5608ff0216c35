"""A policy over declared states: what report.json says of it, its true value, and how the page draws it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flows.jobs.folder import read_policy
from flows.jobs.linear_view import linear_evidence, linear_weights
from pipeline.agents.against_behaviour import AgainstPractice
from pipeline.declaration.card import Card
from pipeline.learners.tabular import practice
from pipeline.mdp.policy import Policy
from pipeline.privacy.release_file import read_release
from reports.policy_view import Against, PolicyView


def decision_facts(policy: Policy, tied: np.ndarray) -> dict[str, Any]:
    """The ``policy`` of report.json; ``tied (H, L)``: several actions were equally good."""
    return {
        "tie_share": float(tied.mean()),
        "abstain_share": float(policy.abstains.mean()),
        "tied": [[int(h), int(s)] for h, s in np.argwhere(tied)],
    }


def practice_facts(found: AgainstPractice, policy: Policy) -> dict[str, Any]:
    """The ``practice`` of report.json, over the cells in which the policy recommends something.

    ``cells`` lists ``[step, state, share of practice that agrees, gain, told apart]`` where practice is known.
    """
    known, spoken = ~np.isnan(found.gain), max(1, int((~policy.abstains).sum()))
    of = [
        [int(h), int(s), _six(float(found.followed[h, s])), _six(float(found.gain[h, s])), bool(found.apart[h, s])]
        for h, s in np.argwhere(known)
    ]
    return {
        "known_share": float(known.sum()) / spoken,
        "followed_share": float(found.followed[known].mean()) if of else None,
        "apart_share": float(found.apart[known].mean()) if of else None,
        "cells": of,
    }


def _six(x: float) -> float:
    """Six digits: what a page shows and no more."""
    return float(f"{x:.6g}")


def tabular_truth(card: Card, world: str, behaviour: str, policy: Policy) -> dict[str, float]:
    """True values in a world of states and actions."""
    from pipeline.environments.worlds import load_world
    from pipeline.evaluation.exact import truth

    return truth(card, load_world(world, card.folder), behaviour, policy)


def policy_view(facts: Mapping[str, Any], folder: Path) -> PolicyView:
    """The policy as the report draws it, beside released evidence and released practice."""
    policy, release, evidence = read_policy(folder), read_release(folder), linear_evidence(folder)
    if evidence is None:
        evidence, usual = np.maximum(release.tables["n_sas"].sum(-1), 0).astype(np.float64), practice(release)
    else:
        usual = np.full(evidence.shape, np.nan)
    tied = np.zeros(policy.abstains.shape, dtype=bool)
    tied[tuple(np.array(facts["policy"]["tied"], dtype=np.int64).reshape(-1, 2).T)] = True
    return PolicyView(
        state_labels=facts["dataset"]["live_states"],
        action_labels=facts["dataset"]["actions"],
        action=policy.probabilities.argmax(-1),
        abstains=policy.abstains,
        share=policy.probabilities.max(-1),
        tie=tied,
        evidence=evidence,
        practice=usual,
        against=_against(facts, policy),
        weights=linear_weights(folder, facts["dataset"]),
    )


def _against(facts: Mapping[str, Any], policy: Policy) -> Against | None:
    """What report.json says of practice; runs made before it did say nothing."""
    told = facts.get("practice")
    if told is None:
        return None
    followed, gain = (np.full(policy.abstains.shape, np.nan) for _ in range(2))
    apart = np.zeros(policy.abstains.shape, dtype=bool)
    for h, s, share, more, sure in told["cells"]:
        followed[h, s], gain[h, s], apart[h, s] = share, more, sure
    return Against(followed, gain, apart)
