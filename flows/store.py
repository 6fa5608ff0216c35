"""The store as a person holds it: rows in, looks at rows, and runs that are there.  A method loads what it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from flows.config.home import CardLike, Home, Work, open_home
from flows.terminal.screen import working
from pipeline.declaration.card import CardError

if TYPE_CHECKING:
    from flows.jobs.book import Book
    from flows.jobs.opened import Run
    from flows.jobs.promotion import Alias
    from pipeline.facts.promise import Dump
    from pipeline.operator.advice import Facts
    from reports.run.comparison import Page

T = TypeVar("T")


class Store:
    """Where rows, committed releases and runs are kept, and the ledger of synthetic data: what ``--home`` names.

    Its folder ``store/`` is the operator's (mode 0700); ``runs/`` holds what may be published.

    Parameters
    ----------
    home
        Its folder; None: ``$RETICENT_HOME``, else ``./.reticent``.
    shelf
        Folder where names of datasets are looked up first.
    memory
        Most that an ingest may take, such as ``2GiB``; None: ``$RETICENT_MEMORY``, else 2 GiB.
    dask
        Address of a Dask scheduler whose workers sum the rows; None: ``$RETICENT_DASK``, else none.
    """

    def __init__(
        self,
        home: str | Path | None = None,
        *,
        shelf: str | Path | None = None,
        memory: str | None = None,
        dask: str | None = None,
    ) -> None:
        root, first = (None if place is None else Path(place).expanduser() for place in (home, shelf))
        self.home = open_home(root, first, memory, dask)

    def __repr__(self) -> str:
        """Its folder."""
        return f"Store({str(self.home.root)!r})"

    @contextmanager
    def working(self, label: str, unit: str = "rows") -> Generator[tuple[Home, Work]]:
        """The home of a long job, which shows how far it is on a terminal or in a notebook, counted in ``unit``."""
        with working(label, unit) as work:
            told = replace(self.home.resources, progress=work.progress, say=work.say)
            yield replace(self.home, resources=told), work

    def carry_out(
        self,
        name: str,
        job: Callable[..., T],
        what: object,
        page: Callable[[T], Page] | None = None,
        unit: str = "rows",
        **more: object,
    ) -> T:
        """Do a long job once: in this process, or, if ``PREFECT_API_URL`` names a server, as a recorded flow there.

        Parameters
        ----------
        name
            Of the flow.
        job
            Is given ``what`` it is about, the home, how its parts are called and whom it tells, and ``more``.
        page
            What a server shows of its result.
        unit
            What is counted.
        """
        with self.working(name, unit) as (home, work):
            if not os.environ.get("PREFECT_API_URL"):
                return job(what, home, work, **more)
            from flows.server.recorded import recorded

            return recorded(name, lambda step: job(what, home, replace(work, step=step), **more), page)

    def register(self, card: CardLike, *, amend: bool = False, recipes: Sequence[str] = ()) -> Dump:
        """Fix cap, delta, unit, domain and kind of a dataset in the ledger that its card names.

        Parameters
        ----------
        card
            Loaded, or its path or name.
        amend
            Change registered values, as an entry of its own.
        recipes
            Of this card, chosen before any answer: verdicts of them follow none.

        Raises
        ------
        CardError
            If the card is wrong, or differs from its registration.
        """
        from flows.jobs.registration import register_job

        return register_job(card, self.home, amend=amend, recipes=recipes)

    def ingest(self, card: CardLike, frame: object = None) -> Dump:
        """Make the next edition of a log: validate, bound contributions, partition; the answer is the operator's alone.

        Parameters
        ----------
        card
            Loaded, or its path or name.
        frame
            The log as a data frame of polars, pandas (2.2 or later) or Arrow; None: the files that the card names.

        Raises
        ------
        CardError, LogError
            If the card is wrong, or a file cannot be read.  Where the log does not fit its card, ``problem`` of the
            answer says so and the edition stays.
        """
        from flows.jobs.intake import ingest_job
        from flows.terminal.inspection_page import ingest_page
        from flows.terminal.screen import page
        from pipeline.files import whole_file, write_file
        from pipeline.operator.ingest_report import PAGE

        told = self.carry_out("ingest", ingest_job, card, frame=frame)
        blocks = ingest_page(told["dataset"], told["snapshot"], told["report"])
        with whole_file(Path(told["folder"]) / PAGE, private=True) as fresh:
            write_file(fresh, page(f"{told['dataset']}: what was set aside", blocks))
        return told

    def inspect(self, card: CardLike) -> Facts:
        """Rows, rules broken, coverage and warnings of the newest edition: raw facts, and the ledger notes the look.

        Parameters
        ----------
        card
            Loaded, or its path or name.
        """
        from flows.jobs import snapshots

        with self.working("looking at the snapshot") as (home, _):
            return snapshots.inspect_job(card, home)

    def quarantine(self, card: CardLike) -> Dump:
        """What the newest ingest set aside, by rule, label and step: raw facts, and the ledger notes the look.

        Parameters
        ----------
        card
            Loaded, or its path or name.
        """
        from flows.jobs import snapshots

        with self.working("looking at the quarantine") as (home, _):
            return snapshots.quarantine_job(card, home)

    def purge(self, card: CardLike, *, keep: int = 0, quarantine_only: bool = False, yes: bool = False) -> Dump:
        """Remove raw rows; the ledger and the releases stay.

        Parameters
        ----------
        card
            Loaded, or its path or name.
        keep
            Newest editions that stay.
        quarantine_only
            Only rows that an ingest set aside.
        yes
            Do it; else only what would go is told.
        """
        from flows.jobs import snapshots

        return snapshots.purge_job(card, self.home, keep=keep, quarantine_only=quarantine_only, yes=yes)

    def verify(self, card: CardLike) -> Dump:
        """Read every byte of every edition, and say which is not what ingest wrote."""
        from flows.jobs import snapshots

        with self.working("reading the snapshots") as (home, _):
            return snapshots.verify_store_job(card, home)

    def open(self, run: str | Path, card: CardLike | None = None) -> Run:
        """A run that is there.

        Parameters
        ----------
        run
            Its folder, its name or the beginning of it, or a pointer such as ``current``.
        card
            Of its dataset; a real one names the ledger that vouches for the run.

        Raises
        ------
        CardError
            If there is none, or several.
        """
        from flows.jobs.opened import Run, find_run

        return Run(self.home, find_run(self.home, str(run)), card)

    def serve_policy(self, run: str | Path, *, card: CardLike | None = None, port: int = 4280) -> None:
        """Answer ``POST /act`` on 127.0.0.1 by the policy of a run, until interrupted; the secret is in the home.

        Parameters
        ----------
        run
            Its folder, its name, or a pointer such as ``current``, which is followed when it moves.
        card
            Of its dataset; a real one names the ledger that vouches for the run.
        port
            On loopback; 0: any that is free.

        Raises
        ------
        CardError
            If there is no such run, or the port is taken.
        BudgetError
            If a file of the run is not the one that the ledger vouches for.
        """
        from flows.server.acting import serve_policy
        from flows.terminal.screen import say

        serve_policy(self.home, str(run), card, port, say)

    def ledger(self, card: CardLike | None = None) -> Book:
        """What was spent, on whom, by which run.

        Parameters
        ----------
        card
            Whose ledger is meant; None: that of the synthetic datasets of this home.

        Raises
        ------
        BudgetError
            If there is none.
        """
        from flows.jobs.book import Book

        return Book(self.home, card)

    def promote(self, run: str | Path, *, pointer: str = "current", card: CardLike | None = None) -> Dump:
        """Point ``runs/current`` to a run that verifies, whatever the recipe's rule says.

        Parameters
        ----------
        run
            Its folder, its name or the beginning of it.
        pointer
            Which pointer; a recipe names its own in ``[promote]``.
        card
            Of its dataset; a real one names the ledger that vouches for the run.

        Raises
        ------
        CardError
            If it is no run of this home.
        BudgetError
            If it does not verify.
        """
        from flows.jobs.promotion import Alias
        from flows.jobs.proof import require_verified

        held, made = Alias(self.home.runs, pointer), self.open(run, card)
        before = held.now()
        if made.folder.parent != held.runs.resolve():
            raise CardError(f"promote: {made.folder} is no run of {held.runs}")
        vouched = require_verified(made.folder, *made.evidence()).vouched
        held.promote(made.folder.name)
        return {**_pointed(held, before), "vouched": vouched}

    def roll_back(self, *, pointer: str = "current") -> Dump:
        """Point ``runs/current`` to the run before, and never again to this one.

        Parameters
        ----------
        pointer
            Which pointer.
        """
        from flows.jobs.promotion import Alias

        held = Alias(self.home.runs, pointer)
        before = held.now()
        held.roll_back()
        return _pointed(held, before)


def _pointed(held: Alias, before: str | None) -> Dump:
    now = held.now()
    return {"pointer": held.name, "before": before, "now": now, "folder": str(held.runs / str(now))}
