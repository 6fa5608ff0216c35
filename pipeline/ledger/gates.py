"""The gate before a release in ledger and certificate: what it counted, what it cost, and that it was charged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pipeline.ledger.attempts import paid_for
from pipeline.ledger.chain import Body, Entry, canonical
from pipeline.privacy.release import Mechanism, total_rho
from pipeline.privacy.release_file import describe_mechanism, mechanism_from


@dataclass(frozen=True)
class Passed:
    """A gate that was charged, and let a release pass (privacy.md §0.2-2).

    Parameters
    ----------
    mechanisms
        Its counts, and their noise.
    commit
        The ledger's COMMIT of its answer.
    """

    mechanisms: tuple[Mechanism, ...]
    commit: Entry

    @property
    def rho(self) -> Fraction:
        """Exact zCDP cost."""
        return total_rho(self.mechanisms) or Fraction(0)

    def told(self) -> dict[str, object]:
        """The ``gate`` of report.json and certificate.json."""
        (mechanism,) = self.mechanisms
        return {"mechanism": describe_mechanism(mechanism), "entry": self.commit.seq, "hash": self.commit.hash}


def passed_gate(entries: Sequence[Entry], intent: Entry) -> Passed | None:
    """The gate that the INTENT of a release names, or None.

    Parameters
    ----------
    entries, intent
        Of the ledger, and what paid for the release.
    """
    found = {e.seq: e for e in entries}
    commit = found.get(intent.body.get("gate", 0))
    if commit is None:
        return None
    paid = found[commit.body["intent"]]
    return Passed(tuple(mechanism_from(m) for m in paid.body["mechanisms"]), commit)


def gate_of(proof: Body) -> tuple[Mechanism, ...]:
    """What a certificate lists of a gate; nothing where there was none."""
    return (mechanism_from(proof["gate"]["mechanism"]),) if "gate" in proof else ()


def gate_problem(proof: Body, intent: Entry, entries: Sequence[Entry]) -> str | None:
    """What is wrong with the gate that a certificate tells of, or does not tell of, in words; or None."""
    told = proof.get("gate")
    if (None if told is None else told["entry"]) != intent.body.get("gate"):
        return f"entry {intent.seq} passed another gate"
    if told is None:
        return None
    commit = next((e for e in entries if e.seq == told["entry"]), None)
    if commit is None or (commit.hash, commit.kind, commit.lineage) != (told["hash"], "COMMIT", intent.lineage):
        return f"entry {told['entry']} is no gate of {intent.lineage}"
    paid = next((e for e in entries if e.seq == commit.body["intent"]), None)
    if paid is None or paid.body["mechanisms"] != json.loads(canonical([told["mechanism"]])):
        return f"entry {commit.body['intent']} was charged for another gate"
    return None if paid_for(entries, paid) == total_rho(gate_of(proof)) else f"entry {paid.seq} charged too little"
