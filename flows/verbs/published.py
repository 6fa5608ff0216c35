"""``report``, ``compare-runs`` and ``promote``: runs that are there already."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.terminal.screen import Context, Json, show, working

if TYPE_CHECKING:
    from flows.jobs.proof import Entries
    from pipeline.declaration.card import AnyCard


def report(context: typer.Context, run: str, card: CardOption = None, as_json: Json = False) -> None:
    """Draw report.html and report.md again, from the run's folder; never other pages than the ledger vouches for."""
    from flows.jobs.proof import draw_pages
    from pipeline.declaration.card import CardError
    from pipeline.learners.registry import read_view
    from reports.facts.report import read_report

    options: Context = context.obj
    folder = run_folder(options, run)
    try:
        said = read_report(folder)
    except ValueError as e:
        raise CardError(str(e)) from None
    with working("drawing the report"):
        draw_pages(folder, said, read_view(said, folder), evidence_of(options, folder, card)[0])
    result = {"run": folder.name, "folder": str(folder), "report": str(folder / "report.html")}
    show(result, as_json, lambda: [result["report"]])


def run_folder(options: Context, run: str) -> Path:
    """A run's folder by path, full name, unique beginning, or the name of a pointer such as ``current``."""
    from flows.jobs.promotion import Alias
    from pipeline.declaration.card import CardError

    runs = options.home_folder().runs
    # only what is a path from here leaves the home's runs
    with suppress(OSError):
        if run and (Path(run) / "report.json").is_file():
            return Path(run).resolve()
    there = [p for p in sorted(runs.glob("*")) if not p.is_symlink() and (p / "report.json").is_file()]
    full = run
    with suppress(CardError):
        full = Alias(runs, run).now() or run
    found = [p for p in there if p.name == full] or [p for p in there if run and p.name.startswith(run)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(p.name for p in there) or "none"
    raise CardError(f"{'several runs begin' if found else 'no run begins'} with {run!r} in {runs}; there are: {known}")


CardOption = Annotated[
    str | None, typer.Option("--card", help="The card of the run's dataset; a real one names the ledger too.")
]


def evidence_of(
    options: Context, folder: Path, card: str | None, exported: Path | None = None
) -> tuple[Entries, AnyCard | None]:
    """How to read the ledger that charged a run, and the card of its dataset, as far as they are at hand.

    Parameters
    ----------
    options, folder
        Of the command, and of the run.
    card
        As ``--card`` gives it; None: one of the catalog that has the run's dataset, and home's ledger.
    exported
        A file that ``ledger export`` wrote, in place of the ledger.
    """
    from flows.config.home import find_card
    from pipeline.declaration.card import CardError, load_any_card
    from pipeline.declaration.lineage import catalogs
    from pipeline.ledger.chain import read_export
    from pipeline.ledger.ledger import open_ledger
    from pipeline.ledger.verify import read_certificate

    home = options.home_folder()
    if card is not None:
        loaded = load_any_card(find_card(card, home.shelf))
    else:
        try:
            name = str(read_certificate(folder).get("dataset"))
        except ValueError as e:
            raise CardError(str(e)) from None
        shipped = [c / name / "card.toml" for c in catalogs(home.shelf) if name.isidentifier()]
        loaded = next((load_any_card(path) for path in shipped if path.is_file()), None)
    if exported is not None:
        return lambda: read_export(exported), loaded
    where = home.root / "ledger.db" if loaded is None else home.ledger_of(loaded)
    return lambda: open_ledger(where, create=False).entries(), loaded


def compare_runs(
    context: typer.Context,
    a: Annotated[str, typer.Argument(help="A run, its folder, or current.")],
    b: Annotated[str, typer.Argument(help="The newer run.")],
    as_json: Json = False,
) -> None:
    """Decisions or gains that differ, intervals, budget and settings; reads nothing but the two runs' folders."""
    from flows.jobs.promotion import compared
    from reports.run.comparison import sentences

    options: Context = context.obj
    result = compared(run_folder(options, a), run_folder(options, b))
    show(result.model_dump(), as_json, lambda: [f"{result.a} → {result.b}", *sentences(result)])


def promote(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="A run, or the beginning of its name.")] = "",
    rollback: Annotated[bool, typer.Option("--rollback", help="Back to the run before, and never here again.")] = False,
    pointer: Annotated[str, typer.Option(help="Which pointer; a recipe names its own in [promote].")] = "current",
    card: CardOption = None,
    as_json: Json = False,
) -> None:
    """Point runs/current to a run that verifies, whatever the recipe's rule says, or back to the run before."""
    from flows.jobs.promotion import Alias
    from flows.jobs.proof import require_verified
    from pipeline.declaration.card import CardError

    if bool(run) == rollback:
        raise CardError("promote: give a RUN, or --rollback alone")
    options: Context = context.obj
    held = Alias(options.home_folder().runs, pointer)
    before = held.now()
    vouched: dict[str, bool] = {}
    if rollback:
        held.roll_back()
    else:
        folder = run_folder(options, run)
        if folder.parent != held.runs.resolve():
            raise CardError(f"promote: {folder} is no run of {held.runs}")
        vouched["vouched"] = require_verified(folder, *evidence_of(options, folder, card)).vouched
        held.promote(folder.name)
    now = held.now()
    result = {"pointer": pointer, "before": before, "now": now, "folder": str(held.runs / str(now)), **vouched}
    show(result, as_json, lambda: [f"{pointer} is {now}" + (f", was {before}" if before not in (None, now) else "")])
