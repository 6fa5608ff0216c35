"""A head kept elsewhere: sequence number and hash of an entry, in mail, in git, on paper, or in a certificate."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.declaration.card import CardError
from pipeline.ledger.chain import Entry

_SHAPE = re.compile(r"\b(\d+):([0-9a-f]{64})\b")


@dataclass(frozen=True)
class Head:
    """An entry that somebody saw: the ledger of then had it, so the ledger of now must."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


def parse_heads(text: str) -> list[Head]:
    """``SEQ:HASH``, or a file that holds such heads or the JSON of ``ledger head``.

    Raises
    ------
    CardError
        If there is no head in it.
    """
    if not _SHAPE.fullmatch(text):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, ValueError):
            raise CardError(
                f"--head {text}: neither SEQ:HASH nor a readable file; see `reticent ledger head`"
            ) from None
    found = [Head(int(seq), digest) for seq, digest in _SHAPE.findall(text)]
    if not found:
        found = _of_json(text, "seq")
    if not found:
        raise CardError("--head: no SEQ:HASH in it; write what `reticent ledger head` printed")
    return found


def head_of_certificate(path: Path) -> Head:
    """The COMMIT that a run's ``certificate.json`` names.

    Raises
    ------
    CardError
        If the file is no certificate, or of a run that charged nothing.
    """
    try:
        found = _of_json(json.dumps(json.loads(path.read_text(encoding="utf-8"))["ledger"]), "entry")
    except (OSError, ValueError, KeyError, TypeError):
        raise CardError(f"{path}: no readable certificate.json") from None
    if not found:
        raise CardError(f"{path}: this run charged no ledger")
    return found[0]


def lacking(entries: Sequence[Entry], heads: Sequence[Head]) -> Head | None:
    """The first of the heads that these entries lack, or None."""
    seen = {e.seq: e.hash for e in entries}
    return next((h for h in heads if seen.get(h.seq) != h.hash), None)


def _of_json(text: str, key: str) -> list[Head]:
    try:
        value: Any = json.loads(text)
        return [Head(int(value[key]), str(value["hash"]))]
    except (ValueError, KeyError, TypeError):
        return []
