"""What looking at raw data does to a promise: it costs no budget, and the certificate says so (privacy.md §0.1-16)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pipeline.declaration.card import AnyCard
from pipeline.ledger.chain import Entry, canonical


def card_hash(card: AnyCard) -> str:
    """Sha256 of all that a card declares, vetoes, markov and tolerance included; not where files and ledger lie.

    A key left at its default is as good as absent, so that a new key of a later version changes no old hash.
    """
    declared = card.model_dump(mode="json", exclude={"source": {"files"}, "budget": {"ledger"}}, exclude_defaults=True)
    return hashlib.sha256(canonical(declared).encode()).hexdigest()


def inspection_sentences(card: AnyCard, looks: Sequence[Entry]) -> list[str]:
    """What a certificate must say of the INSPECT entries of its lineage; nothing where nobody looked."""
    if not looks:
        return []
    found = [
        f"somebody looked at the data with `reticent inspect` ({_named(looks)}); "
        "what they chose afterwards, such as this recipe, is not accounted for"
    ]
    now = card_hash(card), card.domain_hash()
    if before := [e for e in looks if (e.body["card_hash"], e.body["domain_hash"]) != now]:
        found.append(
            f"the card was changed after somebody had looked at the data ({_named(before)}): "
            "what it declares may then depend on people's records, which no budget covers"
        )
    return found


def _named(looks: Sequence[Entry]) -> str:
    """Numbers of the entries, as a person reads them."""
    return f"{'entry' if len(looks) == 1 else 'entries'} {', '.join(str(e.seq) for e in looks)}"
