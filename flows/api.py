"""The Python door: a function for each thing that a person may ask for.  The shell's verbs call these and print.

Results are values; what ``--json`` prints is their dump.  Refusals are exceptions with the words of the shell:
``CardError`` (exit 2), ``LogError`` (3), ``BudgetError`` (4).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Self

from flows.config.home import CardLike, Home, open_home
from flows.config.setting import setting
from flows.jobs.drafting import draft_job
from flows.jobs.ingest import Ingested, ingest_job
from flows.jobs.nightly import run_night
from flows.jobs.opened import Run, find_run
from flows.jobs.plan import forecast_quality, plan_recipe
from flows.jobs.run import Asked, Registered, demo_job, register_job, run_recipe
from flows.jobs.snapshots import (
    Purged,
    StoreVerified,
    Written,
    export_job,
    inspect_job,
    purge_job,
    verify_store_job,
)
from flows.server.engine import carry_out
from flows.terminal.screen import Working, working
from pipeline.operator.facts import TableInspection, VectorInspection
from pipeline.operator.proposal import Draft
from reports.facts.answers import NightAnswer
from reports.facts.plan import PlanAnswer
from reports.night import night_page

if TYPE_CHECKING:
    from flows.config.recipe import Recipe

    RecipeLike = str | Path | Recipe


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
        Most that an ingest may take, such as ``2GiB``; None: ``$RETICENT_MEMORY``, else a GiB.
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
        places = (None if place is None else Path(place).expanduser() for place in (home, shelf))
        self.home = open_home(*places, memory, dask)

    @classmethod
    def at(cls, home: Home) -> Self:
        """The store of a home that is open already.

        Parameters
        ----------
        home
            Its folder, and what its sums may use.
        """
        made = cls.__new__(cls)
        made.home = home
        return made

    def __repr__(self) -> str:
        """Its folder."""
        return f"Store({str(self.home.root)!r})"

    @contextmanager
    def working(self, label: str) -> Generator[tuple[Home, Working]]:
        """The home of a long job, which shows how far it is on a terminal or in a notebook."""
        with working(label) as work:
            told = replace(self.home.resources, progress=work.progress, say=work.say)
            yield replace(self.home, resources=told), work

    def register(self, card: CardLike, *, amend: bool = False, disjoint_from: Sequence[str] = ()) -> Registered:
        """Fix cap, delta, unit, domain and kind of a dataset in the ledger that its card names.

        Parameters
        ----------
        card
            Loaded, or its path or name.
        amend
            Change registered values, as an entry of its own.
        disjoint_from
            Real datasets of the same ledger with other people; without, both are charged together.

        Raises
        ------
        CardError
            If the card is wrong, or differs from its registration.
        """
        return register_job(card, self.home, amend=amend, disjoint_from=disjoint_from)

    def ingest(self, card: CardLike, frame: object = None) -> Ingested:
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
        with self.working("ingest") as (home, work):
            return carry_out("ingest", lambda step: ingest_job(card, home, step, work.progress, work.say, frame))

    def inspect(self, card: CardLike) -> TableInspection | VectorInspection:
        """Rows, rules broken, coverage and warnings of the newest edition: raw facts, and the ledger notes the look.

        Parameters
        ----------
        card
            Loaded, or its path or name.
        """
        with self.working("looking at the snapshot") as (home, _):
            return inspect_job(card, home)

    def purge(self, card: CardLike, *, keep: int = 0, quarantine_only: bool = False, yes: bool = False) -> Purged:
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
        return purge_job(card, self.home, keep=keep, quarantine_only=quarantine_only, yes=yes)

    def verify(self, card: CardLike) -> StoreVerified:
        """Read every byte of every edition, and say which is not what ingest wrote."""
        with self.working("reading the snapshots") as (home, _):
            return verify_store_job(card, home)

    def export(self, card: CardLike, to: str | Path) -> Written:
        """Write the newest edition as a Minari data set below ``to``: raw rows, and the ledger notes the look."""
        return export_job(card, self.home, Path(to))

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
        return Run(self.home, find_run(self.home, str(run)), card)


def draft(
    log: object,
    *,
    user: str | Sequence[str] = (),
    name: str | None = None,
    action: str | None = None,
    state: str | None = None,
    reward: str | None = None,
    order: str | None = None,
    episode: str | None = None,
) -> Draft:
    """Propose a card for a log: a look at raw rows, for the operator only.

    Parameters
    ----------
    log
        A data frame of polars, pandas (2.2 or later) or Arrow, or paths of files.
    user
        Columns that may name people; of several the one that protects most is taken.
    name
        Of the dataset; None: after the first file.
    action, state, reward, order, episode
        Columns that play these parts, where names and content do not tell.

    Returns
    -------
    ``toml`` is the card, ``save(path)`` writes it, ``seen`` says what was seen for each key: raw facts.

    Raises
    ------
    CardError
        If the columns that are needed cannot be told.
    """
    told = {"action": action, "state": state, "reward": reward, "order": order, "episode": episode}
    roles = {role: column for role, column in told.items() if column is not None}
    return draft_job(log, users=[user] if isinstance(user, str) else user, roles=roles, name=name)


def _named(recipe: RecipeLike) -> str:
    return str(recipe) if isinstance(recipe, str | Path) else str(recipe.path)


def plan(
    recipe: RecipeLike, *, people: int | None = None, quality: bool = True, store: Store | None = None
) -> PlanAnswer:
    """What a run would spend, what is left, and the quality to expect; reads no rows and spends nothing.

    Parameters
    ----------
    recipe
        Loaded, or its path or name.
    people
        Quality for so many people; None: the card's declared number.
    quality
        Simulate what quality to expect, on declarations alone.
    store
        Where store and ledger are; None: the default one.

    Returns
    -------
    ``allowed`` says whether the budget allows it; ``quality`` is there where it was asked for.

    Raises
    ------
    CardError
        If recipe and card do not fit each other.
    BudgetError
        If a real card is not registered.
    """
    home, name = (store or Store()).home, _named(recipe)
    told = plan_recipe(name, home).parts()
    return PlanAnswer.model_validate(told | ({"quality": forecast_quality(name, home, people)} if quality else {}))


def run(
    recipe: RecipeLike, *, edition: int | None = None, night: date | None = None, store: Store | None = None
) -> Run:
    """Release, policy, certificate and report from an edition of the recipe's card.

    A committed release is replayed for nothing.

    Parameters
    ----------
    recipe
        Loaded, or its path or name.
    edition
        Number of the snapshot that is released; None: the newest.
    night
        With [nightly]: the date of the leaf; None: today (UTC).
    store
        Where store and ledger are; None: the default one.

    Raises
    ------
    CardError
        If recipe, card and log do not fit each other.
    BudgetError
        If the ledger refuses the charge, or is missing or damaged; nothing was read.
    """
    place, name = store or Store(), _named(recipe)
    asked = None if edition is None else Asked(edition)
    with place.working("run") as (home, work):
        made = carry_out("run", lambda step: run_recipe(name, home, step, say=work.say, day=night, asked=asked))
    return Run(place.home, Path(made.folder), setting(name, place.home).card, made)


def demo(*, store: Store | None = None) -> Run:
    """Register, ingest, release, plan and report on the shipped simulated log; a second demo costs nothing."""
    place = store or Store()
    with place.working("demo") as (home, work):
        made = carry_out("demo", lambda step: demo_job(home, step, work.say, work.progress))
    return Run(place.home, Path(made.folder), None, made)


def nightly(recipe: RecipeLike, *, night: date | None = None, store: Store | None = None) -> NightAnswer:
    """Ingest what is there, and do what the recipe declares for this date.

    Parameters
    ----------
    recipe
        Loaded, or its path or name.
    night
        The night's date; None: today (UTC).
    store
        Where store and ledger are; None: the default one.
    """
    place, name = store or Store(), _named(recipe)
    with place.working("nightly") as (home, work):
        return carry_out("nightly", lambda step: run_night(name, home, step, say=work.say, day=night), night_page)
