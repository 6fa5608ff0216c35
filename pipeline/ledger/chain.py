"""Entries of the budget ledger, the hash chain that exposes an edit, and heads kept elsewhere (privacy.md §10)."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pipeline.declaration.card import CardError

# plain JSON values by name: the body of an entry, or of a file of a run
Body = Mapping[str, Any]

GENESIS = "0" * 64
# types of the fields of an entry
_FORM = (int, str, str, str, dict, str, str)
_HEAD = re.compile(r"\b(\d+):([0-9a-f]{64})\b")


class BudgetError(Exception):
    """The budget, or a missing or damaged ledger, does not allow it (exit code 4)."""

    exit_code = 4


class AttemptLostError(BudgetError):
    """Another attempt committed this release first: this one's file is deleted, its spend stays."""


class NoLedgerError(BudgetError):
    """There is no ledger where one was named."""


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: what happened to which lineage, chained to the line before by hash.

    ``seq``: counted from 1, without a gap.
    ``at``: when, ISO 8601 in UTC, to the second.
    ``previous``, ``hash``: of the entry before, and of this one; 64 hex digits.
    """

    seq: int
    lineage: str
    kind: str
    at: str
    body: Body
    previous: str
    hash: str


def canonical(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical_hash(value: Any) -> str:
    """Sha256 of canonical JSON, 64 hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def entry_hash(seq: int, lineage: str, kind: str, at: str, body: Body, previous: str) -> str:
    """Sha256 of an entry's canonical JSON, the hash of the entry before included."""
    return canonical_hash([seq, lineage, kind, at, dict(body), previous])


def unsigned_hash(e: Entry) -> str:
    """Hash of an entry without the signature in its body: the text that is signed.

    The hash of the entry before is in it, so a signature vouches for the whole chain up to its entry.
    """
    body = {key: value for key, value in e.body.items() if key != "signature"}
    return entry_hash(e.seq, e.lineage, e.kind, e.at, body, e.previous)


def chain_problem(entries: Sequence[Entry], after: Entry | None = None) -> str | None:
    """The first break in the chain in words, or None."""
    first, previous = (1, GENESIS) if after is None else (after.seq + 1, after.hash)
    for expected, e in enumerate(entries, start=first):
        if e.seq != expected:
            return f"entry {expected} is missing (found {e.seq})"
        if e.previous != previous:
            return f"entry {e.seq} does not follow entry {e.seq - 1}: the chain is cut"
        if e.hash != entry_hash(e.seq, e.lineage, e.kind, e.at, e.body, e.previous):
            return f"entry {e.seq} was edited: its content does not match its hash"
        previous = e.hash
    return None


@dataclass(frozen=True)
class Head:
    """An entry that was seen: the ledger had it then, so it must have it now."""

    seq: int
    hash: str

    @classmethod
    def of(cls, value: Any, number: str = "seq") -> Self:
        """The head in a JSON object, numbered by the key ``number``; ValueError, KeyError or TypeError if none is."""
        return cls(int(value[number]), str(value["hash"]))

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


def read_export(path: Path) -> list[Entry]:
    """The entries that ``ledger export`` wrote, chain checked.

    Raises CardError if the file is no exported ledger.
    Raises BudgetError if its chain is broken.
    """
    try:
        entries = [Entry(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))["entries"]]
        if any(tuple(map(type, vars(e).values())) != _FORM for e in entries):
            raise TypeError
        problem = chain_problem(entries)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise CardError(f"{path}: no exported ledger; `reticent ledger export` writes one") from None
    if problem is not None:
        raise BudgetError(f"ledger {path} is damaged: {problem}")
    return entries


def parse_heads(text: str) -> list[Head]:
    """Heads in a text of the form SEQ:HASH, or in a file that holds such texts or the JSON of ``ledger head``.

    Raises CardError if there is no head in it.
    """
    if not _HEAD.fullmatch(text):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, ValueError):
            raise CardError(
                f"--head {text}: neither SEQ:HASH nor a readable file; see `reticent ledger head`"
            ) from None
    heads = [Head(int(seq), digest) for seq, digest in _HEAD.findall(text)]
    if not heads:
        try:
            return [Head.of(json.loads(text))]
        except (ValueError, KeyError, TypeError):
            raise CardError("--head: no SEQ:HASH in it; write what `reticent ledger head` printed") from None
    return heads


def head_of_certificate(path: Path) -> Head:
    """The COMMIT that a run's ``certificate.json`` names.

    Raises CardError if the file is no certificate, or of a run that charged nothing.
    """
    try:
        charged = json.loads(path.read_text(encoding="utf-8"))["ledger"]
    except (OSError, ValueError, KeyError, TypeError):
        raise CardError(f"{path}: no readable certificate.json") from None
    try:
        return Head.of(charged, "entry")
    except (ValueError, KeyError, TypeError):
        raise CardError(f"{path}: this run charged no ledger") from None


def lacking(entries: Sequence[Entry], heads: Sequence[Head]) -> Head | None:
    """The first of the heads that these entries lack, or None."""
    seen = {e.seq: e.hash for e in entries}
    return next((h for h in heads if seen.get(h.seq) != h.hash), None)


def entries_of(entries: Sequence[Entry], lineage: str, *kinds: str) -> list[Entry]:
    """The entries of a lineage that are of these kinds, in order."""
    return [e for e in entries if e.lineage == lineage and e.kind in kinds]
