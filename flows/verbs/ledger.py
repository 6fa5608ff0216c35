"""``reticent ledger show|verify|export``: what was spent on which lineage, by which run."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.screen import Context, Json, show

if TYPE_CHECKING:
    from pipeline.ledger.ledger import Ledger

app = typer.Typer(help="What was spent on which lineage, by which run.", no_args_is_help=True)
CardOption = Annotated[
    str | None, typer.Option("--card", help="The card whose ledger is meant; default: home's ledger.")
]


def _ledger(context: typer.Context, card: str | None) -> Ledger:
    from flows.shelf import find_card
    from pipeline.card import load_card
    from pipeline.ledger.ledger import open_ledger

    options: Context = context.obj
    home = options.home_folder()
    where = home.root / "ledger.db" if card is None else home.ledger_of(load_card(find_card(card, home.shelf)))
    return open_ledger(where, create=False)


def _unknown_to(context: typer.Context, ledger: Ledger) -> str | None:
    """What home's store has seen and this ledger lacks, if anything."""
    from pipeline.curate import known_to_ledger
    from pipeline.ledger.chain import BudgetError

    options: Context = context.obj
    try:
        for name in ledger.lineages():
            known_to_ledger(name, ledger, options.home_folder().store)
    except BudgetError as e:
        return str(e)
    return None


@app.command("show")
def show_ledger(context: typer.Context, card: CardOption = None, as_json: Json = False) -> None:
    """Cap, spending and entries of every lineage."""
    ledger = _ledger(context, card)
    datasets: list[dict[str, Any]] = []
    for name in ledger.lineages():
        account, entries = ledger.account(name), ledger.entries(name)
        done = {e.body["intent"] for e in entries if e.kind == "COMMIT"}
        datasets.append(
            {
                "name": name,
                "cap_rho": float(account.cap),
                "spent_rho": float(account.spent),
                "delta": account.delta,
                "amendments": [
                    {"entry": e.seq, "at": e.at, "cap_rho": float(Fraction(e.body["rho"]))}
                    for e in ledger.amendments(name)
                ],
                "inspections": [
                    {"entry": e.seq, "at": e.at, "snapshot": e.body["snapshot"]} for e in ledger.inspections(name)
                ],
                "entries": [
                    {
                        "entry": e.seq,
                        "run": e.body["run_key"][:24],
                        "state": "committed" if e.seq in done else "intent",
                        "rho": float(Fraction(e.body["rho"])),
                        "at": e.at,
                    }
                    for e in entries
                    if e.kind == "INTENT"
                ],
            }
        )
    lines: list[str] = []
    for d in datasets:
        lines.append(f"{d['name']}: spent ρ = {d['spent_rho']:.6g} of {d['cap_rho']:g} (δ = {d['delta']:g})")
        lines += [f"  {a['entry']:>4}  {a['at']}  amended    cap ρ = {a['cap_rho']:g}" for a in d["amendments"]]
        lines += [f"  {i['entry']:>4}  {i['at']}  inspected  snapshot {i['snapshot']}" for i in d["inspections"]]
        lines += [f"  {e['entry']:>4}  {e['at']}  {e['state']:9}  ρ = {e['rho']:.6g}  {e['run']}" for e in d["entries"]]
    show({"datasets": datasets}, as_json, lambda: lines or ["no lineage is registered"])


@app.command("verify")
def verify(context: typer.Context, card: CardOption = None, as_json: Json = False) -> None:
    """Check the hash chain; exit 4 where it is broken."""
    ledger = _ledger(context, card)
    problem = ledger.problem() or _unknown_to(context, ledger)
    entries = 0 if problem else len(ledger.entries())
    result = {"ok": problem is None, "entries": entries, "problem": problem}
    show(
        result,
        as_json,
        lambda: [
            f"{ledger.where}: "
            + (f"ok: {entries} entries, chain unbroken" if problem is None else f"damaged: {problem}")
        ],
    )
    if problem is not None:
        raise typer.Exit(4)


@app.command("export")
def export(context: typer.Context, to: Path, card: CardOption = None, as_json: Json = False) -> None:
    """Write all entries as JSON, for an auditor."""
    import json

    entries = [asdict(e) for e in _ledger(context, card).entries()]
    to.write_text(
        json.dumps({"schema_version": 1, "entries": entries}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    show({"entries": len(entries), "file": str(to.resolve())}, as_json, lambda: [f"{len(entries)} entries in {to}"])
