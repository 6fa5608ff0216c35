"""A policy over declared states: its files, what report.json says of it, its true value, and how the page draws it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.against_behaviour import AgainstPractice
from pipeline.agents.linear_backup import evidence_of
from pipeline.declaration.card import Card
from pipeline.learners.policy_files import PolicyFiles
from pipeline.learners.tabular_learning import practice
from pipeline.ledger.chain import Body
from pipeline.mdp.policy import Policy
from pipeline.privacy.release import Release
from reports.facts.learnt import PolicyFacts, Practice, Truth
from reports.facts.policy import Decisions, Weights, decisions
from reports.facts.report import Report

# what ``policy.json`` says of states without a row
ELSEWHERE = "current practice"
# the kind of an online agent's policy
PLAYED = "played"

Bools = NDArray[np.bool_]
Labels = tuple[list[str], list[str]]


def decision_columns(policy: Policy) -> dict[str, NDArray[Any]]:
    """``step, state, action, probability`` of the positive probabilities; where it abstains there is no row.

    Parameters
    ----------
    policy
        As emitted.
    """
    step, state, action = np.nonzero(policy.probabilities)
    return {
        "step": step.astype(np.int32),
        "state": state.astype(np.int32),
        "action": action.astype(np.int32),
        "probability": policy.probabilities[step, state, action],
    }


def decision_labels(card: Card, states: Sequence[str] | None = None) -> Body:
    """What ``policy.json`` says of a table of decisions.

    Parameters
    ----------
    card
        Declares states and actions.
    states
        What the table's states are called, where they are not the live states.
    """
    d = card.domain
    return {
        "schema_version": 1,
        "horizon": d.horizon,
        "states": d.live_states if states is None else list(states),
        "ends": list(d.states.ends),
        "actions": d.action_labels,
        "vetoes": [[str(s), str(a)] for s, a in d.vetoes],
        # declared, so that a raw value can be looked up where no card is at hand
        "state_column": d.states.model_dump(mode="json", exclude={"features"}),
        "elsewhere": ELSEWHERE,
    }


def decision_files(card: Card, policy: Policy) -> PolicyFiles:
    """The files of a policy that is a table of decisions.

    Parameters
    ----------
    card
        Declares states and actions.
    policy
        As emitted.
    """
    return PolicyFiles(decision_labels(card), {"policy": decision_columns(policy)})


def played_files(card: Card, policy: Policy, visits: NDArray[np.float64]) -> PolicyFiles:
    """The files of an online agent's policy, with how often a user comes to each (step, state, action).

    Parameters
    ----------
    card
        Declares states and actions.
    policy
        As emitted.
    visits
        ``(H, L, A)`` share of the users, in the known world.
    """
    columns = decision_columns(policy)
    seen = visits[columns["step"], columns["state"], columns["action"]]
    return PolicyFiles({**decision_labels(card), "kind": PLAYED}, {"policy": columns | {"visits": seen}})


def policy_of(files: PolicyFiles) -> Policy:
    """The policy state by state.

    Parameters
    ----------
    files
        Those of :func:`decision_files`, or of linear weights with the decisions beside them.
    """
    labels, rows = files.labels, files.tables.get("decisions", files.tables["policy"])
    shape = labels["horizon"], len(labels["states"]), len(labels["actions"])
    probabilities = np.zeros(shape)
    probabilities[rows["step"], rows["state"], rows["action"]] = rows["probability"]
    abstains = np.asarray((probabilities == 0).all(-1), dtype=bool)
    # folders of version 0.1 list them, and hold a stand-in there
    for h, s in labels.get("abstains", []):
        abstains[h, s] = True
    return Policy(probabilities, abstains)


def tied_cells(tied: Sequence[Sequence[int]], shape: tuple[int, ...]) -> Bools:
    """``(H, L)``: cells in which several actions were equally good.

    Parameters
    ----------
    tied
        Step and state of each, as the ``policy`` of report.json lists them.
    shape
        H and L.
    """
    found = np.zeros(shape, dtype=bool)
    found[tuple(np.array(tied, dtype=np.int64).reshape(-1, 2).T)] = True
    return found


def decision_facts(policy: Policy, tied: Bools) -> PolicyFacts:
    """The ``policy`` of report.json.

    Parameters
    ----------
    policy, tied
        As emitted, and ``(H, L)`` where several actions were equally good.
    """
    return PolicyFacts(
        tie_share=float(tied.mean()),
        abstain_share=float(policy.abstains.mean()),
        tied=[(int(h), int(s)) for h, s in np.argwhere(tied)],
    )


def total_assumed(card: Card) -> list[str]:
    """What a value rests on where the card declares a total; nothing where it declares none.

    Parameters
    ----------
    card
        Its ``reward.total``.
    """
    total = card.reward.total
    if total is None:
        return []
    return [f"no episode pays more than {total:g} in all, whatever is done (declared: reward.total)"]


def practice_facts(found: AgainstPractice, policy: Policy) -> Practice:
    """The ``practice`` of report.json, over the cells in which the policy recommends something.

    Parameters
    ----------
    found
        The policy beside one step of practice.
    policy
        As emitted.
    """
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
    """True values in a world of states and actions.

    Parameters
    ----------
    card
        How the world is seen.
    world, behaviour
        Names of the world and of its logging policy.
    policy
        As emitted.
    """
    from pipeline.environments.worlds import load_world
    from pipeline.evaluation.exact import truth

    return Truth.model_validate(truth(card, load_world(world, card.folder), behaviour, policy))


def counts_view(labels: Labels, policy: Policy, tied: Bools, of: Release) -> Decisions:
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


def linear_view(labels: Labels, policy: Policy, tied: Bools, files: PolicyFiles) -> Decisions:
    """A policy beside the rows that released Gram matrices hold of each pair, and the weights of Q.

    Parameters
    ----------
    labels
        Live states and actions.
    policy, tied
        As emitted, and ``(H, L)`` where several actions were equally good.
    files
        Weights of each step, then the upper triangle of its inverse Gram matrix by rows; features as integers.
    """
    told = files.labels
    integers = np.array(told["features"]["integers"])
    weights, d = files.tables["policy"]["weight"].reshape(told["horizon"], -1), integers.shape[-1]
    upper, phi, inverse = np.triu_indices(d), integers.astype(np.float64) * told["unit"], np.zeros((len(weights), d, d))
    inverse[:, upper[0], upper[1]] = inverse[:, upper[1], upper[0]] = weights[:, d:]
    evidence = np.stack([evidence_of(phi, x) for x in inverse])
    named = Weights(_names(labels, integers), weights[:, :d] * told["reward_unit"])
    return decisions(labels, policy, tied, evidence, weights=named)


def _names(labels: Labels, integers: NDArray[np.int64]) -> list[str]:
    names = [f"feature {i}" for i in range(integers.shape[-1])]
    for i in range(len(names)):
        # a feature that one pair alone has is that pair's own
        if len(pairs := np.argwhere(integers[:, :, i])) == 1:
            s, a = pairs[0]
            names[i] = f"{labels[0][s]} / {labels[1][a]}"
    return names


def read_counts_view(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> Decisions:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    return counts_view(*_read(files, report), release())


def read_played_view(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> Decisions:
    """See :class:`~pipeline.learners.policy_files.Codec`: evidence is who comes there, in the known world."""
    labels, policy, tied = _read(files, report)
    rows, visits = files.tables["policy"], np.zeros(policy.probabilities.shape)
    visits[rows["step"], rows["state"], rows["action"]] = rows["visits"]
    return decisions(labels, policy, tied, visits)


def read_linear_view(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> Decisions:
    """See :class:`~pipeline.learners.policy_files.Codec`: the weights hold all the evidence there is."""
    return linear_view(*_read(files, report), files)


def _read(files: PolicyFiles, report: Report) -> tuple[Labels, Policy, Bools]:
    policy, told = policy_of(files), report.model_dump()
    labels = files.labels["states"], told["dataset"]["actions"]
    return labels, policy, tied_cells(told["policy"]["tied"], policy.abstains.shape)
