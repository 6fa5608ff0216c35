"""The recipe: what to run; and its setting: the recipe with its card and its home, resolved for a job.

A recipe is card + agent + budget + settings + calendar, checked by pydantic like the card.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from flows.config.home import Home, card_of_recipe, find_recipe
from pipeline.declaration import lineage, source
from pipeline.declaration.card import AnyCard, Card, require_tabular
from pipeline.declaration.toml import CardError, Name, Strict, read_toml, validated
from pipeline.facts.learnt import Status
from pipeline.learners.learner import AGENTS, Agent, Guarded, RunPlan, find, guard, plan_run
from pipeline.learners.terms import Evaluate, Linear, Lq, OneStep, Planner, Privacy, Terms
from pipeline.ledger import ledger
from pipeline.ledger.account import commit_of, reserve_for
from pipeline.ledger.chain import BudgetError, Entry
from pipeline.logs.store import find_snapshot
from pipeline.privacy import budget, release, release_file
from pipeline.statistics.played import Allocation
from pipeline.transaction.drawing import key_of

if TYPE_CHECKING:
    from pipeline.transaction.continual_step import ContinualRelease


def _registered(name: str) -> str:
    try:
        find(name)
    except KeyError:
        # in the words of pydantic's own check of a list of names
        message = f"Input should be {', '.join(map(repr, AGENTS))} or module:object"
        raise PydanticCustomError("literal_error", "{message}", {"message": message}) from None
    return name


class RecipeHead(Strict):
    """Name, card and agent."""

    name: Name
    card: str
    agent: Annotated[str, AfterValidator(_registered)]


class Watched(Strict):
    """Limits beyond which scheduled runs raise an alert."""

    stale_days: Annotated[float, Field(gt=0, le=36_525, allow_inf_nan=False)] | None = None


_RUN = re.compile(r"-[0-9a-f]{10}(-simulation-not-private)?$")


def names_run(name: str) -> bool:
    """Whether this is the form of a run's name: it ends with a hash, as no pointer's does."""
    return _RUN.search(name) is not None


def _pointer_name(name: str) -> str:
    if names_run(name):
        raise ValueError("ends as the name of a run does; take another")
    return name


class Play(Strict):
    """Share of the people who meet the policy, by a hash that its file carries; the others keep current practice."""

    share: Annotated[float, Field(gt=0, le=1)]


class Promote(Strict):
    """Conditions on which a new run may take the place of the one in use; all that are given must hold.

    ``lower_gain``: least lower end of the gain over the run in use, reward units an episode; None: not asked.
    ``most_changed``: largest share of decisions that may differ; None: not asked.
    ``status``: least status of the value, in the order in which they are listed (``estimate``: ``modelled``).
    ``accept``: ``unchecked``: a gain that stands on a condition is enough.  The author of the recipe answers for that,
    and the ledger says so.
    """

    pointer: Annotated[Name, AfterValidator(_pointer_name)] = "current"
    lower_gain: Annotated[float, Field(allow_inf_nan=False)] | None = None
    most_changed: Annotated[float, Field(ge=0, le=1)] | None = None
    more_abstaining: bool = True
    status: Status = "modelled"
    accept: Literal["unchecked"] | None = None


class Recipe(Strict):
    """One offline run, or one night of many."""

    recipe: RecipeHead
    privacy: Privacy | None = None
    planner: Planner = Planner()
    linear: Linear | None = None
    lq: Lq | None = None
    one_step: OneStep | None = None
    evaluate: Evaluate | None = None
    nightly: lineage.Nightly | None = None
    schedule: lineage.Schedule | None = None
    watch: Watched | None = None
    promote: Promote | None = None
    play: Play | None = None
    _path: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _agent_and_budget(self) -> Self:
        name, agent, p = self.recipe.agent, self.agent, self.privacy
        if agent.private and p is None:
            raise ValueError(f"[privacy] is missing; {name} needs a budget, e.g. rho = 1.0")
        if not agent.private and p is not None:
            use = "" if agent.twin is None else f": use agent = '{agent.twin}'"
            raise ValueError(f"[privacy] is given, but {name} is the non-private baseline{use}")
        evaluates = self.evaluate is not None and self.evaluate.people != 0
        if self.evaluate is not None and self.evaluate.probabilities == "logged" and not evaluates:
            raise ValueError("[evaluate] probabilities = 'logged': nobody evaluates; give people, or take it out")
        if self.evaluate is not None and self.evaluate.least is not None and self.evaluate.probabilities != "logged":
            raise ValueError("[evaluate] least: only of probabilities = 'logged'; take it out")
        if self.nightly is not None:
            _check_nightly(name, agent, p)
            if evaluates:
                raise ValueError(
                    "[evaluate] people, under [nightly]: nobody evaluates a counter; take [nightly] out and give a "
                    "calendar, e.g. [schedule] release = 'monthly': each of its dates has a release and a verdict"
                )
            if self.nightly.drift is not None and (self.promote is None or self.play is None or self.play.share == 1):
                raise ValueError(
                    "[nightly] drift compares people under the policy in use with people under practice, and promotes "
                    "accordingly: it needs [promote], and [play] share below 1"
                )
            if self.schedule is not None:
                raise ValueError("[schedule] is given, but [nightly] has a leaf on every date: take one of them out")
        own = agent.learner.section
        for section in ("lq", "one_step"):
            if getattr(self, section) is not None and own != section:
                theirs = " and ".join(n for n in AGENTS if find(n).learner.section == section)
                raise ValueError(f"[{section}] belongs to {theirs}; {name} has none of it")
        agent.learner.check(self.terms)
        if self.linear is not None and own != "linear":
            raise ValueError(
                f"[linear] belongs to linear agents; {name} has {'none of it' if own is None else f'[{own}]'}"
            )
        return self

    @property
    def agent(self) -> Agent:
        """The registered agent that the recipe names."""
        return find(self.recipe.agent)

    @property
    def terms(self) -> Terms:
        """The recipe's terms for its agent's learner."""
        return Terms(
            self.path.name,
            self.recipe.agent,
            self.privacy,
            self.planner,
            self.linear,
            self.lq,
            self.evaluate,
            self.nightly,
            self.one_step,
        )

    @property
    def path(self) -> Path:
        """File of the recipe."""
        return self._path

    def placed(self, path: Path) -> Self:
        """The same recipe as if read from ``path``."""
        self._path = path
        return self

    def dump(self) -> dict[str, object]:
        """Plain values of the recipe, defaults filled in."""
        # a table that other runs lack must not rename them, and neither must a run's later use
        lacking = {"linear", "lq", "one_step"} - {self.agent.learner.section}
        lacking |= {name for name in ("nightly", "play") if getattr(self, name) is None}
        values = self.model_dump(mode="json", exclude={"schedule", "watch", "promote"} | lacking)
        if self.privacy is not None:
            # as recipes were before there was a gate, and before the default sampler was our own
            if self.privacy.gate is None:
                del values["privacy"]["gate"]
            if self.privacy.sampler == "exact":
                values["privacy"]["sampler"] = "opendp"
        return values


def _check_nightly(name: str, agent: Agent, p: Privacy | None) -> None:
    """Refuse agents and budgets that no counter releases."""
    if not agent.learner.continual or p is None:
        agents = [n for n in AGENTS if find(n).learner.continual and find(n).private]
        theirs = " or ".join(map(repr, agents))
        raise ValueError(
            f"[nightly] keeps a counter: it goes with agent {theirs}, not {name}; [schedule] release = 'monthly' draws "
            "a fresh release on its dates"
        )
    if (p.rho is None and not p.delta) or p.calibration == "paper":
        raise ValueError("[nightly] draws Gaussian noise: give 'rho', or 'epsilon' with 'delta', and 'tight'")


def load_recipe(path: str | Path) -> Recipe:
    """Read and check a recipe.

    Raises CardError one line for each wrong key: which, what was found, what is allowed.
    """
    path = Path(path)
    values = read_toml(path)
    if "recipe" not in values and "domain" in values:
        raise CardError(f"{path}: this is a card, not a recipe; a recipe names its card (see docs/card.md)")
    if "study" in values or "compare" in values:
        raise CardError(f"{path}: this is a study; measure it with `reticent compare {path}`")
    if "world" in values:
        raise CardError(f"{path}: this is the recipe of a simulation; play it with `reticent simulate {path}`")
    return validated(Recipe, values, str(path)).placed(path.resolve())


@dataclass(frozen=True)
class Setting:
    """A recipe, its card and its home.

    ``reserve``: share of the people who never teach, as the card's ledger has it.
    """

    recipe: Recipe
    card: AnyCard
    home: Home
    reserve: Fraction = Fraction(0)

    @property
    def tabular(self) -> Card:
        """The card; CardError if it declares vectors, which this agent cannot use."""
        return require_tabular(self.card)

    @property
    def terms(self) -> Terms:
        """The recipe's terms for its agent's learner, with the share of people that the ledger reserves."""
        return replace(self.recipe.terms.settled(self.card), reserve=self.reserve)

    @property
    def plan(self) -> RunPlan:
        """The run that recipe and card make together, priced on declarations.

        Raises CardError if the two do not fit each other.
        """
        return plan_run(self.card, self.terms)

    @property
    def guarded(self) -> Guarded:
        """The same run behind its gate, which takes a share of the budget.

        Raises CardError if the two do not fit each other.
        """
        return guard(self.card, self.terms)


def setting(recipe: str, home: Home, *, declared: bool = False) -> Setting:
    """Resolve a recipe by path or name, its card, and the share of people that its ledger reserves.

    Raises CardError if recipe or card is wrong, or the two do not fit each other.
    """
    path = find_recipe(recipe)
    loaded = load_recipe(path)
    card = card_of_recipe(loaded.recipe.card, path, home.shelf)
    resolved = Setting(loaded, card, home, reserve_for((), card) if declared else _reserve(card, home))
    check_numbered(resolved)
    return resolved


def _reserve(card: AnyCard, home: Home) -> Fraction:
    """Share of people who never teach, by the card's ledger, or as if the card were registered now."""
    if card.kind == "synthetic":
        # its ledger holds no other people
        return reserve_for((), card)
    try:
        return reserve_for(ledger.open_ledger(home.ledger_of(card), create=False).entries(), card)
    except BudgetError:
        # a job that needs the ledger reports what is wrong with it
        return reserve_for((), card)


def check_numbered(s: Setting) -> None:
    """Refuse settings that use a record's number where another record can change it."""
    if s.card.kind != "real" or not source.only_flags_part(s.card.source):
        return
    uses = {
        "[nightly]": s.recipe.nightly is not None,
        "[linear] halves = true": s.recipe.linear is not None and s.recipe.linear.halves,
    }
    if wrong := [name for name, used in uses.items() if used]:
        raise CardError(
            f"{s.recipe.path.name}: {wrong[0]} needs ids that no other record changes; in format = "
            f"{s.card.source.format!r} order numbers the records: name a column of user ids, or take it out"
        )


def standing_run(s: Setting, edition: int | None, entries: Sequence[Entry]) -> Guarded:
    """A recipe's run behind its gate; without the gate where the ledger knows it from a version that had none.

    ``edition``: number of the snapshot; None where there is none yet.
    """
    guarded, name = s.guarded, s.card.name
    if s.recipe.nightly is not None:
        from pipeline.ledger.steps import counter_intents

        old = bool(counter_intents(entries, name, nightly_counter(s).key))
    else:
        old = edition is not None and commit_of(entries, name, key_of(s.card, edition, guarded.full_plan)) is not None
    _refuse_slack(s, run := guarded.opened() if old else guarded)
    if edition is None or commit_of(entries, name, key_of(s.card, edition, run.plan)) is None:
        _refuse_more(s, run)
    return run


def _refuse_slack(s: Setting, run: Guarded) -> None:
    """Refuse, before any charge, a release whose samplers use up all of delta: its loss could not be stated."""
    if (p := s.recipe.terms.privacy) is None or p.sampler != "table":
        return
    mechanisms = run.plan.charge()[1].get("mechanisms") or ()
    if s.recipe.nightly is not None:
        nightly = nightly_counter(s, run)
        mechanisms = map(release_file.describe_mechanism, nightly.mechanisms(nightly.counter.steps))
    gate = () if run.gate is None else run.gate.counts.mechanisms
    slack = sum((Fraction(str(m.get("delta_slack") or 0)) for m in mechanisms), release.total_delta_slack(gate))
    if slack >= budget.fraction_of(s.card.budget.delta):
        from pipeline.learners.tabular import no_delta_left

        raise no_delta_left(s.card)


def _refuse_more(s: Setting, run: Guarded) -> None:
    """Refuse, before any charge, two parts of real people that together cost more than the recipe asks.

    Who leaves one part and joins the other may pay more than who is replaced: see :mod:`pipeline.statistics.held_out`.
    """
    asked, cost = run.terms.ask().zcdp(), run.plan.charge()[0] if s.terms.held_out else None
    if s.card.kind == "real" and asked is not None and cost is not None and cost > asked:
        raise CardError(
            f"{s.recipe.path.name}: [evaluate] people: to leave those who learn and join those who judge would cost "
            f"ρ = {float(cost):.6g}, more than the {float(asked):.6g} asked; declare [features] balanced = true, "
            "use dp-one-shot, or take 'people' out"
        )


def standing_counter(s: Setting, entries: Sequence[Entry], play: Allocation | None = None) -> ContinualRelease:
    """The counter of :func:`standing_run`.

    ``play``: share of the people who meet the policy in use.
    """
    run = standing_run(s, None, entries)
    return replace(nightly_counter(s, run), gate=run.gate, play=play)


def nightly_counter(s: Setting, run: Guarded | None = None) -> ContinualRelease:
    """The counter that a recipe with [nightly] declares: with its whole budget, or with what a gate leaves of it."""
    n = s.recipe.nightly
    if n is None:
        raise CardError(f"{s.recipe.path.name}: [nightly] is missing; e.g. nights = 365, first = 2026-01-01")
    unit, columns, form = s.card.unit, s.tabular.source.columns, s.tabular.source.format
    if form != "table":
        raise CardError(
            f"{s.card.name}: [nightly] needs rows that name their person; source.format = '{form}' tells records by "
            "their place in a file. Write the log as a table, or run without [nightly]"
        )
    if unit.recurs == "capped" and columns.episode_id is None:
        raise CardError(
            f"{s.card.name}: [nightly] with recurs = 'capped' needs source.columns.episode_id: without it nobody can "
            "tell an episode that was delivered before from a new one. Map it, or declare recurs = 'never'"
        )
    from pipeline.learners.tabular import TabularRun
    from pipeline.transaction.continual_step import ContinualRelease

    plan = s.plan if run is None else run.plan
    # the recipe's check refused agents without a counter
    assert isinstance(plan, TabularRun)
    closed = n.episodes == "closed"
    return ContinualRelease(s.tabular, plan.privatizer, n.first, played=plan.played, closed=closed)


def night_of(day: date | str | None) -> date:
    """``day``, which may be text of ISO 8601, or today (UTC).

    Raises CardError if it is no date, or in the future: the nights before it could then no longer be counted.
    """
    today = ledger.now().date()
    if isinstance(day, str):
        try:
            day = date.fromisoformat(day)
        except ValueError:
            raise CardError(f"night {day!r} is no date: write YYYY-MM-DD") from None
    if day is not None and day > today:
        raise CardError(f"{day} is to come; today is {today} (UTC)")
    return day or today


def calendar_of(s: Setting) -> lineage.Schedule | None:
    """Dates on which a scheduled recipe releases; None for a counter, which has every date.

    Raises CardError if the recipe says neither, or its counter does not fit the card.
    """
    if s.recipe.nightly is not None:
        # a wrong counter is refused before a row is read
        nightly_counter(s)
    elif s.recipe.schedule is None:
        raise CardError(
            f"{s.recipe.path.name}: [schedule] is missing: say on which dates a scheduled night draws and pays for a "
            'fresh release, e.g. release = "weekly" (docs/operate.md). `reticent run` releases by hand'
        )
    return s.recipe.schedule


def due_date(s: Setting, day: date) -> str | None:
    """The date of the recipe's calendar whose release stands on ``day`` (ISO); None for a counter.

    Raises CardError if the recipe has no calendar, or it begins later.
    """
    if (calendar := calendar_of(s)) is None:
        return None
    due = calendar.due(day)
    if due is None:
        first = calendar.after(day)
        raise CardError(f"{s.recipe.path.name}: the first release is due on {first}; `reticent run` releases by hand")
    return due.isoformat()


def charged_for(s: Setting, entries: Sequence[Entry]) -> list[Entry]:
    """INTENTs that paid for dates of the recipe's calendar, for a release or for its gate, oldest first."""
    due = [e for e in entries if e.kind == "INTENT" and e.lineage == s.card.name and "due" in e.body]
    guarded = s.guarded
    return [e for e in due if e.body["run_key"] in guarded.keys(s.card, e.body["snapshot"])]


def edition_for(s: Setting, due: str, entries: Sequence[Entry], store: Path, tonight: int) -> int:
    """Edition to release for a date of the calendar: the one that was charged first, else tonight's."""
    # where the gate stopped it, it stays stopped: the next edition is asked at the next date
    ours = [e for e in charged_for(s, entries) if e.body["due"] == due]
    for e in ours:
        # else its attempt died, and its rows were purged since
        committed = commit_of(entries, s.card.name, e.body["run_key"]) is not None
        if committed or find_snapshot(store, s.card.name, e.body["snapshot"]) is not None:
            return e.body["snapshot"]
    return tonight
