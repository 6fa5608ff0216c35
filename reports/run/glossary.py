"""What the words of a report mean; only those that its own kind of page uses."""

from __future__ import annotations

from reports.facts.report import Report
from reports.page import Section, table

Words = dict[str, str]

_PROMISE = {
    "Differential privacy": "a limit on how much any one person's record can change the probability of what is "
    "published, whatever else anyone knows",
    "ρ, zCDP": "zero-concentrated differential privacy: the unit in which the ledger adds up losses; smaller is more "
    "private",
    "ε, δ": "the same limit as a factor: probabilities change by at most e^ε, but for a probability of δ",
    "Neighbouring relation": "which two logs must look alike: here what may change about one person",
    "Trust model": "who sees the raw data; central: one curator, who adds the noise",
    "Sensitivity": "the most by which one person can change a sum; the noise is scaled to it",
    "Mechanism": "a sum with noise added once; the noise is an exact sample from a discrete distribution",
    "Calibration": "how the noise was scaled; tight: as little as the promise needs; paper: as printed there",
    "Release": "the noisy sums of one run; all that follows from them costs nothing further",
    "Lineage, ledger": "a dataset under its registered name, and the chain of entries that charges what is released "
    "of it",
    "Certificate": "certificate.json: the promise in numbers that a program can check without the data",
}
_VALUE = {
    "Episode, step": "one course of decisions about one person, and each decision in it, counted from 0",
    "Value": "the expected sum of rewards of one episode",
    "Proved, evaluated, bound, modelled": "what an interval certifies. Proved: a theorem of the paper. Evaluated: "
    "measured on people who had no part in choosing the policy. Bound: measured on logs made just as this one was. "
    "Modelled: of the released model alone, no guarantee",
    "Paper, ours": "whether a constant is the paper's own or was chosen by us; only the paper's carry its theorem",
}
_TABULAR = {
    "State, action": "what is known at a decision, and what can be done; both declared, never read off the data",
    "Cell": "one state at one step",
    "Current practice": "what the log shows people doing, as far as noisy counts tell it",
    "Abstain": "no allowed action has enough evidence; keep current practice",
    "Tie": "another action looks equally good; the choice among them is chance",
}
_COUNTS = {
    "Released count": "how often something happened, plus noise; the true count is not on this page",
    "Consistency step": "the least change of the noisy counts that makes parts sum to their total",
}
_BINNED = {"Binned process": "the process as the declared states see it; what they hide is not in it"}
_LINEAR = {
    "Feature, weight": "a number that describes state and action, and what it adds to the predicted value",
    "Gram matrix": "released sums of products of features; it tells how much evidence each direction has",
}
CONTROLLER: Words = {
    "Plant, control, gain": "what is steered, with what, and how strongly each observed number moves each control",
    "Certainty equivalence": "the estimated plant is treated as the true one",
    "Gram matrix": "released sums of products of observations and controls",
}


def policy_words(report: Report) -> Words:
    """Terms of a policy over declared states."""
    return (
        _TABULAR
        | (_LINEAR if report.features else _COUNTS)
        | (_BINNED if report.dataset.markov == "aggregated" else {})
    )


def glossary_section(own: Words) -> Section:
    """Term by term.

    Parameters
    ----------
    own
        Those of this kind of page: :func:`policy_words` or :data:`CONTROLLER`.
    """
    words = _VALUE | own | _PROMISE
    return Section("glossary", "Words", tables=(table("Term | Means", list(words.items())),))
