"""Entries of the budget ledger and the hash chain that exposes an edit (privacy.md §10)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GENESIS = "0" * 64


class BudgetError(Exception):
    """The budget, or a missing or damaged ledger, does not allow it (exit code 4); nothing was read."""


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: what happened to which lineage, chained to the line before by hash.

    ``kind`` is ``REGISTER``, ``AMEND``, ``INTENT`` (budget spent, whatever follows), ``COMMIT``, ``INSPECT``
    or ``PURGE`` (raw rows left the store).
    """

    seq: int
    lineage: str
    kind: str
    at: str
    body: Mapping[str, Any]
    previous: str
    hash: str


def canonical(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def entry_hash(seq: int, lineage: str, kind: str, at: str, body: Mapping[str, Any], previous: str) -> str:
    """Sha256 of an entry's canonical JSON, the hash of the entry before included."""
    return hashlib.sha256(canonical([seq, lineage, kind, at, dict(body), previous]).encode()).hexdigest()


def chain_problem(entries: Sequence[Entry]) -> str | None:
    """The first break in the chain in words, or None."""
    previous = GENESIS
    for expected, e in enumerate(entries, start=1):
        if e.seq != expected:
            return f"entry {expected} is missing (found {e.seq})"
        if e.previous != previous:
            return f"entry {e.seq} does not follow entry {e.seq - 1}: the chain is cut"
        if e.hash != entry_hash(e.seq, e.lineage, e.kind, e.at, e.body, e.previous):
            return f"entry {e.seq} was edited: its content does not match its hash"
        previous = e.hash
    return None
