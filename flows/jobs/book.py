"""The ledger as users handle it: charges, their chart, verification, and sign-offs of published runs.

``verify`` and ``sign`` look at the chain, at heads kept elsewhere, at the store and at published runs.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from flows.config.home import CardLike, Home, card_at
from pipeline.declaration.card import AnyCard, CardError
from pipeline.declaration.numbers import number
from pipeline.facts.answers import LimitFacts
from pipeline.facts.promise import Dump, Number, Part
from pipeline.ledger import publication
from pipeline.ledger.account import registration
from pipeline.ledger.chain import BudgetError, Entry, Head, head_of_certificate, lacking, parse_heads, read_export
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.privacy.release_file import sha256_file

_NO_TRUSTED_HEAD = (
    "no entry is signed by a key that was given with --public-key, so nothing in it is vouched for: ask for a head "
    "that one of them signed (`reticent ledger head --json`), and give it with --head"
)


def verify_export(
    entries: Sequence[Entry],
    heads: Sequence[Head] = (),
    trusted: frozenset[str] = frozenset(),
    signed: Sequence[Head] = (),
) -> Dump:
    """Check an exported ledger, chain already checked: counters, heads kept elsewhere, signatures.

    ``heads``: entries, kept elsewhere, that the ledger must have; ``signed``: those that a trusted key signed.
    ``trusted``: public keys that must have signed every PUBLISH; without any, those that the ledger registers.
    Returns ``ok``, ``entries`` and the ``problem``; with public keys ``vouched``, the newest entry that one of them
    vouches for, and ``unsigned``, how many follow it.
    """
    from pipeline.ledger.steps import counters_problem

    problem = _lost(entries, heads) or counters_problem(entries) or publication.signatures_problem(entries, trusted)
    result: Dump = {"ok": problem is None, "entries": 0 if problem else len(entries), "problem": problem}
    if problem is not None or not trusted:
        return result
    if not (until := publication.vouched_until(entries, signed, trusted)):
        return {"ok": False, "entries": 0, "problem": _NO_TRUSTED_HEAD}
    return {**result, "vouched": until, "unsigned": len(entries) - until}


def sign_job(ledger: Ledger, run: Path, by: str, note: str | None, card: AnyCard | None = None) -> Dump:
    """Append a sign-off: who answers for a run, when, and for which certificate.

    Raises CardError if there is no certificate, or no name.
    Raises BudgetError if the ledger lacks the entry that the certificate names, or the run does not verify.
    """
    from flows.jobs.proof import require_verified

    for name, text in (("--by", by), ("--note", note)):
        if text is not None and (not text.strip() or not text.isprintable()):
            raise CardError(f"{name}: a line of text, please")
    file = run / "certificate.json"
    head = head_of_certificate(file)
    commit = next((e for e in ledger.entries() if (e.seq, e.hash) == (head.seq, head.hash)), None)
    if commit is None:
        raise BudgetError(
            f"{run.name}: ledger {ledger.where} lacks entry {head.seq} that its certificate names; "
            "a real dataset has its own ledger: name it with --card"
        )
    require_verified(run, ledger.entries, card)
    digest, signer = sha256_file(file), by.strip()
    body: Dump = {"run": run.name, "commit": commit.seq, "by": signer, "certificate_sha256": digest}
    if note is not None:
        body["note"] = note.strip()
    entry = ledger.note(commit.lineage, "SIGN", body)
    return {"entry": entry.seq, "hash": entry.hash, "at": entry.at, **body}


def _lost(entries: Sequence[Entry], heads: Sequence[Head]) -> str | None:
    lost = lacking(entries, heads)
    if lost is None:
        return None
    return (
        f"it lacks entry {lost.seq} as it was kept elsewhere: it was cut, is an old copy or is another ledger. "
        "Restore the newest"
    )


def _settle(lineage: str, ledger: Ledger, store: Path) -> list[str]:
    from pipeline.transaction.transaction import one_at_a_time, recover

    if not (store / lineage).is_dir():
        return []
    try:
        with one_at_a_time(store / lineage, wait=False) as place:
            line = str(recover(lineage, ledger, store, place))
    except BlockingIOError:
        # a run is at work there: it recovered the lineage before it began
        return []
    return [f"{lineage}: {line}"] if line else []


def _changed_since_published(ledger: Ledger, home: Home) -> str | None:
    """The first run of this home whose files are no longer those in the ledger, or a pointer to no run."""
    from flows.jobs.promotion import redirected

    vouched = [e for e in ledger.entries() if e.kind == "PUBLISH"]
    for folder in sorted(home.runs.iterdir()):
        entries = [e for e in vouched if e.body["run"] == folder.name]
        if entries and (folder.is_symlink() or not folder.is_dir()):
            return f"{folder.name}: not the run, but a link or a file in its place; `reticent run` its recipe again"
        if entries:
            files = publication.file_digests(folder)
            if not any(e.body["files"] == files for e in entries):
                return f"{folder.name}: {publication.files_problem(entries[-1], files)}"
    return redirected(home.runs)


def _changed_since_signed(ledger: Ledger, home: Home) -> str | None:
    for e in ledger.entries():
        if e.kind == "SIGN":
            file = home.runs / e.body["run"] / "certificate.json"
            if file.is_file() and sha256_file(file) != e.body["certificate_sha256"]:
                return f"{e.body['run']}: certificate.json has changed since {e.body['by']} signed it (entry {e.seq})"
    return None


@dataclass(frozen=True)
class Book:
    """A ledger of a home.

    ``card``: the card whose ledger it is; None: the ledger of the home's synthetic datasets.
    """

    home: Home
    card: CardLike | None = None

    @cached_property
    def chain(self) -> Ledger:
        """The ledger itself; BudgetError if there is none."""
        card = None if self.card is None else card_at(self.card, self.home.shelf)
        return open_ledger(self.home.ledger_of(card), create=False)

    def lineages(self) -> "Sequence[Lineage]":
        """Cap, spending over time, entries and sign-offs of every lineage."""
        return [lineage_facts(self.chain, name) for name in self.chain.lineages()]

    def verify(
        self,
        *,
        heads: Sequence[str] = (),
        certificates: Sequence[Path] = (),
        public_keys: Sequence[str] = (),
        exported: Path | None = None,
    ) -> Dump:
        """Check the hash chain, and that it has every entry that was kept elsewhere.

        ``heads``: ``SEQ:HASH`` kept elsewhere, or files of them; the ledger must have them.
        ``certificates``: ``certificate.json`` files; the ledger must have their entries.
        ``public_keys``: 64 hex digits each, or files of them; one of them must have signed a run's entry, or a head
        that is given.
        Without ``exported`` the store and signed runs are checked too, and runs that died are recovered.
        Returns ``ok``, how many ``entries``, and the ``problem`` in words; with public keys, how far one of them
        vouches; and lines on runs that died (``recovered``).
        """
        trusted = publication.parse_public_keys(list(public_keys))
        signed = [publication.signed_head(text, trusted) for text in heads] if trusted else []
        required = list(signed) or [h for text in heads for h in parse_heads(text)]
        required += [head_of_certificate(c) for c in certificates]
        if exported is not None:
            return verify_export(read_export(exported), required, trusted, signed)
        from flows.jobs.registration import refuse_forgotten_runs
        from pipeline.transaction.transaction import refuse_old_ledger

        ledger, home = self.chain, self.home
        recovered, checked = list[str](), list[Dump]()

        def problems() -> Iterator[str | None]:
            yield ledger.problem() or _lost(ledger.entries(), required)
            for lineage in ledger.lineages():
                refuse_old_ledger(lineage, ledger, home.store)
                refuse_forgotten_runs(lineage, ledger, home.runs)
                recovered.extend(_settle(lineage, ledger, home.store))
            checked.append(verify_export(ledger.entries(), required, trusted, signed))
            yield checked[0]["problem"]
            yield _changed_since_signed(ledger, home) or _changed_since_published(ledger, home)

        try:
            problem = next((p for p in problems() if p is not None), None)
        except BudgetError as e:
            problem = str(e)
        result: Dump = checked[0] if problem is None else {"ok": False, "entries": 0, "problem": problem}
        return {**result, "recovered": recovered} if recovered else result

    def export(self, to: str | Path) -> Dump:
        """Write all entries as JSON, for an auditor."""
        entries, file = [asdict(e) for e in self.chain.entries()], Path(to)
        text = json.dumps({"schema_version": 1, "entries": entries}, indent=2, ensure_ascii=False)
        file.write_text(text + "\n", encoding="utf-8")
        return {"entries": len(entries), "file": str(file.resolve())}

    def head(self) -> Dump:
        """The newest entry, to be kept in another place than the ledger.

        Raises BudgetError if there is no entry yet.
        """
        newest = self.chain.head()
        if newest is None:
            raise BudgetError(f"ledger {self.chain.where} has no entry yet; `reticent register` writes the first")
        key = publication.find_key(self.home.store)
        return {"seq": newest.seq, "hash": newest.hash} if key is None else key.sign_head(newest)

    def retry(self) -> Dump:
        """Let a release be drawn again whose draws died, when you know why they did; each such draw is paid for.

        Raises CardError if the book was opened without a card.
        Raises BudgetError if the lineage is not registered.
        """
        from flows.jobs.registration import ledger_for

        if self.card is None:
            raise CardError("ledger retry: name the card whose draws died")
        card = card_at(self.card, self.home.shelf)
        return {"dataset": card.name, "entry": ledger_for(card, self.home).note(card.name, "RETRY", {}).seq}


_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 60


class Spent(Part):
    """Spending ``spent_rho`` up to the time ``at``."""

    at: str
    spent_rho: Number


class Event(Part):
    """An ``entry`` of the ledger and the time it was made ``at``, with what its kind has.

    ``cap_rho``: of an amendment, the new cap.
    ``snapshot``: that was looked at.
    ``what``: was deleted.
    ``run``, ``by``, ``note``: of a signature: the run signed, and its signer.
    """

    entry: int
    at: str
    cap_rho: Number | None = None
    snapshot: int | None = None
    what: str | None = None
    run: str | None = None
    by: str | None = None
    note: str | None = None


class ChargedRun(Part):
    """An INTENT of a release; ``state`` says whether a COMMIT followed."""

    entry: int
    run: str
    state: str
    rho: Number
    at: str
    night: int | None = None
    nights: int | None = None


class Lineage(Part):
    """History of a lineage."""

    name: str
    cap_rho: Number
    spent_rho: Number
    delta: Number
    registered_at: str
    schedule: dict[str, Number]
    limit: LimitFacts
    spending: list[Spent]
    amendments: list[Event]
    inspections: list[Event]
    entries: list[ChargedRun]
    retries: list[Event]
    purges: list[Event]
    signatures: list[Event]


def lineage_facts(ledger: Ledger, name: str) -> Lineage:
    """A lineage's history from the ledger."""
    account, entries = ledger.account(name), ledger.entries(name)

    def of(kind: str) -> list[Entry]:
        return [e for e in entries if e.kind == kind]

    charges, committed = of("INTENT"), {e.body["intent"] for e in of("COMMIT")}
    schedule: dict[str, str] = registration(entries, name).get("schedule") or {}
    return Lineage(
        name=name,
        cap_rho=float(account.cap),
        spent_rho=float(account.spent),
        delta=account.delta,
        registered_at=entries[0].at,
        schedule={period: float(Fraction(rho)) for period, rho in schedule.items()},
        limit=LimitFacts.model_validate(ledger.left(name).facts()),
        spending=spending([(e.at, float(Fraction(e.body["rho"]))) for e in charges]),
        amendments=[_event(e, cap_rho=float(Fraction(e.body["rho"]))) for e in of("AMEND")],
        inspections=[_event(e, snapshot=e.body["snapshot"]) for e in of("INSPECT")],
        entries=[_charged(e, committed) for e in charges],
        retries=[_event(e) for e in of("RETRY")],
        purges=[_event(e, what=_purged(e)) for e in of("PURGE")],
        signatures=[_event(e, run=e.body["run"], by=e.body["by"], note=e.body.get("note")) for e in of("SIGN")],
    )


def _event(e: Entry, **more: object) -> Event:
    return Event.model_validate({"entry": e.seq, "at": e.at, **more})


def _charged(e: Entry, committed: set[int]) -> ChargedRun:
    counter = {key: e.body["counter"][key] for key in ("night", "nights") if "counter" in e.body}
    state = "committed" if e.seq in committed else "intent"
    return ChargedRun(
        entry=e.seq, run=e.body["run_key"][:24], state=state, rho=float(Fraction(e.body["rho"])), at=e.at, **counter
    )


def _purged(e: Entry) -> str:
    if e.body["quarantine_only"]:
        return "rows that ingest set aside"
    return "snapshots " + (", ".join(map(str, e.body["snapshots"])) or "none: rows that ingest set aside")


def spending(charges: Sequence[tuple[str, float]]) -> list[Spent]:
    """Cumulative spending at the time of each charge that cost something.

    ``charges``: time (ISO 8601, UTC) and rho, oldest first.
    """
    totals = accumulate(rho for _, rho in charges)
    return [Spent(at=at, spent_rho=total) for (at, rho), total in zip(charges, totals, strict=True) if rho > 0]


def chart(points: Sequence[Spent], cap: float, since: str, until: str) -> list[str]:
    """Two lines: spending at 60 moments between two times, in eighths of the cap, and the times.

    A moment before the first charge is a space; spending at the cap is a full block.

    ``since``, ``until``: the two times, ISO 8601.
    """
    if not points:
        return []
    begin, end = (datetime.fromisoformat(t).timestamp() for t in (since, until))
    times = [datetime.fromisoformat(p.at).timestamp() for p in points]
    span = max(end - begin, 1.0)
    line = ""
    for i in range(_WIDTH):
        now = begin + span * (i + 1) / _WIDTH
        spent = max((p.spent_rho for p, t in zip(points, times, strict=True) if t <= now), default=None)
        line += " " if spent is None else _BLOCKS[min(7, int(8 * spent / cap))]
    label = f"ρ = {number(points[-1].spent_rho, toward='up')} of {cap:g}"
    first, last = since[:10], until[:10]
    return [f"  {line}  {label}", f"  {first}{last:>{_WIDTH - len(first)}}"]
