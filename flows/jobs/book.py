"""The ledger as a person holds it: what was spent, proof of it, and names under what was published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from flows.config.home import CardLike, Home, card_at
from flows.config.setting import ledger_for
from flows.jobs.ledger_checks import Verified, verify_export, verify_job
from pipeline.declaration.card import CardError
from pipeline.ledger.chain import BudgetError, head_of_certificate, parse_heads, read_export
from pipeline.ledger.keys import SignedHead, check_signed_head, find_key, parse_public_keys
from pipeline.ledger.ledger import Ledger, open_ledger

if TYPE_CHECKING:
    from reports.ledger_chart import Lineage


class Exported(TypedDict):
    """How many entries were written, and where."""

    entries: int
    file: str


class Retried(TypedDict):
    """What ``ledger retry --json`` prints."""

    dataset: str
    entry: int


@dataclass(frozen=True)
class Book:
    """A ledger of a home.

    Parameters
    ----------
    home
        Its folder.
    card
        Whose ledger is meant; None: that of the synthetic datasets of the home.
    """

    home: Home
    card: CardLike | None = None

    @cached_property
    def kept(self) -> Ledger:
        """The ledger itself; BudgetError if there is none."""
        root, card = self.home.root / "ledger.db", self.card
        where = root if card is None else self.home.ledger_of(card_at(card, self.home.shelf))
        return open_ledger(where, create=False)

    def lineages(self) -> Sequence[Lineage]:
        """Cap, spending over time, entries and sign-offs of every lineage."""
        from reports.ledger_chart import lineage_facts

        return [lineage_facts(self.kept, name) for name in self.kept.lineages()]

    def verify(
        self,
        *,
        heads: Sequence[str] = (),
        certificates: Sequence[Path] = (),
        public_keys: Sequence[str] = (),
        exported: Path | None = None,
    ) -> Verified:
        """Check the hash chain, and that nothing seen elsewhere is lacking.

        Parameters
        ----------
        heads
            ``SEQ:HASH`` kept elsewhere, or files of them; the ledger must have them.
        certificates
            ``certificate.json`` files; the ledger must have their entries.
        public_keys
            64 hex digits each, or files of them; one of them must have signed.
        exported
            A file that ``export`` wrote, in place of the ledger.

        Returns
        -------
        ``ok``, how many ``entries``, and the ``problem`` in words.
        """
        trusted = parse_public_keys(list(public_keys))
        known = [h for text in heads for h in parse_heads(text)] + [head_of_certificate(c) for c in certificates]
        for text in heads if trusted else ():
            check_signed_head(text, trusted)
        if exported is not None:
            return verify_export(read_export(exported), known, trusted)
        return verify_job(self.kept, self.home, known, trusted)

    def export(self, to: str | Path) -> Exported:
        """Write all entries as JSON, for an auditor.

        Parameters
        ----------
        to
            File to write.
        """
        entries, file = [asdict(e) for e in self.kept.entries()], Path(to)
        told = json.dumps({"schema_version": 1, "entries": entries}, indent=2, ensure_ascii=False)
        file.write_text(told + "\n", encoding="utf-8")
        return {"entries": len(entries), "file": str(file.resolve())}

    def head(self) -> SignedHead:
        """The newest entry, to be kept in another place than the ledger.

        Raises
        ------
        BudgetError
            If there is no entry yet.
        """
        found = self.kept.head()
        if found is None:
            raise BudgetError(f"ledger {self.kept.where} has no entry yet; `reticent register` writes the first")
        key = find_key(self.home.store)
        return {"seq": found.seq, "hash": found.hash} if key is None else key.sign_head(found)

    def retry(self) -> Retried:
        """Let a release be drawn again whose draws died, when you know why they did; each such draw is paid for.

        Raises
        ------
        CardError
            If the book was opened without a card.
        BudgetError
            If the lineage is not registered.
        """
        if self.card is None:
            raise CardError("ledger retry: name the card whose draws died")
        card = card_at(self.card, self.home.shelf)
        ledger = ledger_for(card, self.home)
        ledger.require(card)
        return {"dataset": card.name, "entry": ledger.note(card.name, "RETRY", {}).seq}
