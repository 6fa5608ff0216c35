"""``register``, ``plan`` and ``ledger``: what a lineage may spend, a run would spend and was spent, and proof of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.terminal.screen import MOST, Block, Drawn, Grid, Json, Title, show
from flows.verbs.runs import chosen_store, opened
from pipeline.declaration.numbers import number

if TYPE_CHECKING:
    from flows.jobs.proof import Proof
    from reports.ledger_chart import Charged, Lineage


def register(
    card: str,
    amend: Annotated[bool, typer.Option("--amend", help="Change registered values; an entry of its own.")] = False,
    recipe: Annotated[
        list[str] | None,
        typer.Option(help="A recipe that was chosen before any answer: its verdicts follow none."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fix cap, delta, unit, domain and kind of a dataset in the ledger it names."""
    r = chosen_store().register(card, amend=amend, recipes=recipe or ())
    show(
        r,
        as_json,
        lambda: [
            f"{r['dataset']}: {r['action']} ({r['kind']}), cap ρ = {r['cap_rho']:g}, "
            f"spent {number(r['spent_rho'], toward='up')}, ledger {r['ledger']}",
            f"  this host signs with the public key {r['public_key']}; keep it elsewhere too (docs/ledger.md)",
        ],
    )


def plan(
    recipe: str,
    people: Annotated[int | None, typer.Option(min=1, max=MOST, help="Quality for so many people.")] = None,
    quality: Annotated[bool, typer.Option(help="Simulate what quality to expect, on declarations alone.")] = True,
    as_json: Json = False,
) -> None:
    """Every mechanism with sensitivity, scale and cost, and the quality to expect, before anything is spent.

    Exit 4: the budget does not allow it.
    """
    from flows import api
    from flows.terminal.plan_page import plan_page

    r = api.plan(recipe, people=people, quality=quality, store=chosen_store())
    show(r.model_dump(), as_json, lambda: plan_page(r))
    if not r.allowed:
        raise typer.Exit(4)


app = typer.Typer(help="What was spent on which lineage, by which run.", no_args_is_help=True)
CardOption = Annotated[
    str | None, typer.Option("--card", help="The card whose ledger is meant; default: home's ledger.")
]
HeadsOption = Annotated[
    list[str] | None,
    typer.Option("--head", help="SEQ:HASH kept elsewhere, or a file of them; the ledger must have it."),
]
CertificatesOption = Annotated[
    list[Path] | None, typer.Option("--certificate", help="A certificate.json; the ledger must have its entry.")
]


@app.command("show")
def show_ledger(card: CardOption = None, as_json: Json = False) -> None:
    """Cap, spending over time, entries and sign-offs of every lineage."""
    from pipeline.ledger.ledger import now
    from reports.ledger_chart import chart

    datasets = chosen_store().ledger(card).lineages()
    blocks: list[Block] = []
    for d in datasets:
        blocks.append(Title(d.name, f"spent ρ = {d.spent_rho:.6g} of {d.cap_rho:g} (δ = {d.delta:g})"))
        blocks.append(Drawn(chart(d.spending, d.cap_rho, d.registered_at, now().isoformat(timespec="seconds"))))
        if d.schedule:
            limits = ", ".join(f"ρ = {rho:g} a {period}" for period, rho in d.schedule.items())
            blocks.append(f"  schedule: {limits}; left now {d.limit.left_rho:.6g} (of {d.limit.of})")
        blocks += _events(d)
    told = {"datasets": [d.model_dump() for d in datasets]}
    show(told, as_json, lambda: blocks or ["no lineage is registered"])


def _events(d: Lineage) -> list[Block]:
    """What happened to a lineage, a row an entry, in the order in which it happened."""
    told = [
        *((a, "amended", f"{a.cap_rho:g}", "the cap") for a in d.amendments),
        *(
            (i, "inspected", "", f"snapshot {i.snapshot}" if i.snapshot else "the log, to draft the card")
            for i in d.inspections
        ),
        *((e, e.state, f"{e.rho:.6g}", e.run + _night(e)) for e in d.entries),
        *((p, "purged", "", p.what) for p in d.purges),
        *((t, "retry", "", "draws that died may be tried again") for t in d.retries),
        *((s, "signed", "", f"{s.run} by {s.by}" + (f": {s.note}" if s.note else "")) for s in d.signatures),
    ]
    rows = [(str(e.entry), e.at, *line) for e, *line in sorted(told, key=lambda x: x[0].entry)]
    return [Grid(("entry", "at", "what", "ρ", "of"), rows, left=5, most=len(rows))] if rows else []


def _night(e: Charged) -> str:
    return "" if e.night is None else f"  night {e.night} of {e.nights}"


@app.command("verify")
def verify(
    run: Annotated[str | None, typer.Argument(help="A run, or its folder: verify it too.")] = None,
    card: CardOption = None,
    head: HeadsOption = None,
    certificate: CertificatesOption = None,
    public_key: Annotated[
        list[str] | None,
        typer.Option("--public-key", help="64 hex digits, or a file of them; one of them must have signed."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="A file that `ledger export` wrote, in place of the ledger.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the hash chain, and that nothing seen elsewhere is lacking; exit 4 where it is damaged or old.

    With RUN the run is verified: its certificate is recomputed, its files are compared with what the ledger vouches
    for, and with the card at hand they are made again.  What cannot be checked is said.
    """
    from pipeline.ledger.publication import parse_public_keys

    if run is not None:
        proof = opened(run, card).verify(ledger=ledger, trusted=parse_public_keys(public_key or []))
        show(asdict(proof), as_json, lambda: _checked(proof))
        if not proof.ok:
            raise typer.Exit(4)
        return
    book = chosen_store().ledger(card)
    found = book.verify(heads=head or (), certificates=certificate or (), public_keys=public_key or (), exported=ledger)
    where = book.kept.where if ledger is None else str(ledger)
    told = f"ok: {found['entries']} entries, chain unbroken" if found["ok"] else f"damaged: {found['problem']}"
    if "vouched" in found:
        behind, count = found.get("unsigned", 0), "entry" if found.get("unsigned") == 1 else "entries"
        told += f"; vouched up to entry {found['vouched']}"
        told += f"; {behind} {count} behind it {'is' if behind == 1 else 'are'} not signed" if behind else ""
    show(found, as_json, lambda: [*found.get("recovered", []), f"{where}: {told}"])
    if not found["ok"]:
        raise typer.Exit(4)


def _checked(proof: Proof) -> list[Block]:
    from pipeline.ledger.publication import OLDER

    words = {True: "ok", False: "WRONG", None: "not checked"}
    rows = [(words[c.ok], c.what + (f": {c.found}" if c.found else "")) for c in proof.checks]
    found = Grid(("result", "check"), rows, left=2, most=len(rows))
    ok = "ok" if proof.vouched else "ok as far as was checked; not vouched for by a ledger"
    older = next((c.found for c in proof.checks if c.ok is None and c.found.startswith(OLDER)), None)
    ok += "" if older is None else f": its files and its charge are what the ledger holds; {older}"
    return [found, Title(proof.run, ok if proof.ok else f"damaged: {proof.problem}")]


@app.command("export")
def export(to: Path, card: CardOption = None, as_json: Json = False) -> None:
    """Write all entries as JSON, for an auditor."""
    r = chosen_store().ledger(card).export(to)
    show(r, as_json, lambda: [f"{r['entries']} entries in {to}"])


@app.command("head")
def head(card: CardOption = None, as_json: Json = False) -> None:
    """Print SEQ:HASH of the newest entry, to be kept in another place than the ledger; with --json it is signed."""
    r = chosen_store().ledger(card).head()
    show(r, as_json, lambda: [f"{r['seq']}:{r['hash']}"])


@app.command("retry")
def retry(card: str, as_json: Json = False) -> None:
    """Let a release be drawn again whose draws died, when you know why they did; each such draw is paid for."""
    r = chosen_store().ledger(card).retry()
    show(r, as_json, lambda: [f"{r['dataset']}: lost draws may be tried again (entry {r['entry']})"])


@app.command("sign")
def sign(
    run: str,
    by: Annotated[str, typer.Option("--by", help="Who answers for the run; the name enters the ledger.")],
    note: Annotated[str | None, typer.Option("--note", help="A line beside the name.")] = None,
    card: CardOption = None,
    as_json: Json = False,
) -> None:
    """Sign off a run that verifies: who, when and for which certificate, as an entry of the chain."""
    r = opened(run, card).sign(by, note)
    show(r, as_json, lambda: [f"{r['run']}: signed by {r['by']} at {r['at']} (entry {r['entry']})"])
