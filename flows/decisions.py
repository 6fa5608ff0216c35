"""A policy over declared states: what report.json says of it, its true value, and how the page draws it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flows.folder import read_policy
from flows.linear_view import linear_evidence
from pipeline.card import Card
from pipeline.mdp.policy import Policy
from pipeline.offline import practice
from pipeline.privacy.release_file import read_release
from reports.policy_view import PolicyView


def decision_facts(policy: Policy, tied: np.ndarray) -> dict[str, Any]:
    """The ``policy`` of report.json; ``tied (H, L)``: several actions were equally good."""
    return {
        "tie_share": float(tied.mean()),
        "abstain_share": float(policy.abstains.mean()),
        "tied": [[int(h), int(s)] for h, s in np.argwhere(tied)],
    }


def tabular_truth(card: Card, world: str, behaviour: str, policy: Policy) -> dict[str, float]:
    """True values in a world of states and actions."""
    from pipeline.environments.registry import load_world
    from pipeline.evaluate import truth

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
    )
