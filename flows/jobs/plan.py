"""``plan``: what a run would spend and what is left, what a calendar charges, and what quality to expect.

The price comes from declarations and the ledger.  The quality is simulated on declarations alone: n is the card's
declared number of people, or asked for; the world is the one that a synthetic recipe declares in [evaluate], else a
surrogate.  A simulation is kept in the home and found again; those of the shipped recipes travel with them.

A key covers all that a simulation depends on but the code; its seeds are 0, 1, 2 and so on.  A home keeps what this
code simulated.  A shipped forecast stands while the syntax of every module that ran for it is the same.  The versions
of libraries are not looked at.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flows.config.home import Home
from flows.config.recipe import Setting, charged_for, night_of, setting, standing_counter, standing_run
from flows.jobs.registration import ledger_for
from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.declaration.code import code_digest, is_plugin, plugin_digest, syntax_digest
from pipeline.declaration.lineage import Schedule
from pipeline.declaration.numbers import number
from pipeline.facts import answers
from pipeline.facts.promise import Dump, MechanismFacts, present
from pipeline.files import whole_file, write_file
from pipeline.learners.learner import RunPlan, plan_run, rivals
from pipeline.learners.terms import recipe_identity
from pipeline.ledger.account import PERIODS, Allowance, allowances, commit_of, mixed_with
from pipeline.ledger.chain import Entry, canonical_hash
from pipeline.ledger.ledger import Ledger
from pipeline.logs.store import latest
from pipeline.privacy.budget import rho_from_epsilon, up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.noise import OsNoise
from pipeline.privacy.release_file import sha256_file
from pipeline.statistics.played import PlayedLayout
from pipeline.transaction.drawing import total_charge
from pipeline.worlds.world import MOST_EPISODES

if TYPE_CHECKING:
    from pipeline.learners.held_out import Evaluation
    from pipeline.statistics.scores import Clips
    from pipeline.transaction.continual_step import ContinualRelease
    from pipeline.worlds.surrogate import SimulatedRun

# a calendar without an end is followed for so long
_CENTURY = timedelta(days=36_525)


def plan_recipe(recipe: str, home: Home) -> answers.PlanAnswer:
    """Cost of a run and the budget left; reads no rows and writes nothing but a synthetic registration.

    Raises CardError if recipe and card do not fit each other, or the card differs from its registration.
    Raises BudgetError if a real card is not registered.
    """
    s = setting(recipe, home)
    plan = s.plan
    plan.admit(OsNoise())
    ledger = ledger_for(s.card, home)
    account, entries = ledger.account(s.card.name), ledger.entries()
    newest = latest(home.store, s.card.name)
    edition = None if newest is None else newest.number
    guarded = standing_run(s, edition, entries)
    quote, charges = guarded.quote(), guarded.charges(s.card, edition, entries)
    replays = not charges
    cost, joining = total_charge(charges)
    counter: answers.NightsPlan | None = None
    if s.recipe.nightly is not None:
        cost, counter = _nightly_plan(s, ledger)
        replays = counter.replays
    calendar = _calendar_plan(s, ledger, guarded.plan, quote.rho or Fraction(0))
    left = ledger.left(s.card.name, joining)
    fits = cost <= left.rho
    # before the first date of a counter and after its last there is nothing to run
    allowed = fits and (counter is None or replays or counter.night is not None)
    fields = {
        "dataset": s.card.name,
        "recipe": s.recipe.recipe.name,
        "agent": s.recipe.recipe.agent,
        "mechanisms": quote.mechanisms,
        **present(joint=quote.joint),
        **{key: quote.spent[key] for key in ("rho", "epsilon", "delta")},
        "spent_before": float(account.lost),
        "remaining_after": float(account.remaining - cost),
        "cap_rho": float(account.cap),
        "delta_of_lineage": account.delta,
        "epsilon_before": safe_epsilon(up(account.lost), account.delta),
        "epsilon_after": safe_epsilon(up(account.lost + cost), account.delta),
        "replays": replays,
        "gate": None if s.card.kind == "synthetic" else guarded.stops,
        "allowed": allowed,
        "limit": {**left.facts(), **_whose(left, s.card.name)},
        **present(
            people=_people(s, guarded.plan, None if replays else _shaped(s, guarded.plan, entries)),
            together=sorted(mixed_with(ledger.entries(), s.card.name)) or None,
            counter=counter,
            calendar=calendar,
        ),
        "fits": None if fits or left.rho <= 0 else plan.fitting(left.rho),
        **quote.outlook,
        **_both_prices(s),
    }
    return answers.PlanAnswer.model_validate(fields)


def _whose(limit: Allowance, lineage: str) -> Dump:
    """The dataset that registered a limit, if it is another one."""
    return {} if limit.whose == lineage else {"whose": limit.whose}


def _shaped(s: Setting, plan: RunPlan, entries: Sequence[Entry]) -> str | None:
    """Why no verdict about real people would stand by the ledger: an earlier release by another recipe read them."""
    if s.card.kind != "real" or s.recipe.nightly is not None or not s.terms.held_out:
        return None
    from pipeline.ledger.looks import RECIPE, judged_before

    body = {**plan.charge()[1], "run_key": "", RECIPE: recipe_identity(s.card, s.terms)}
    before = judged_before(entries, Entry(len(entries) + 1, s.card.name, "INTENT", "", body, "", ""))
    later = "who comes in later can judge it ([evaluate] since)"
    return None if before is None else f"{before[0].upper()}{before[1:]}; {later}."


def _people(s: Setting, plan: RunPlan, shaped: str | None) -> answers.PeopleFacts | None:
    """Declared numbers of people who teach and who judge; None where all teach.  ``shaped``: see :func:`_shaped`."""
    terms, n = s.terms, s.card.unit.users_public
    if terms.teaching == 1:
        return None
    from pipeline.learners.held_out import HeldOutRun

    # with the budget that the gate leaves
    outside = (plan.outside if isinstance(plan, HeldOutRun) else None) or shaped
    teach, judge = round(n * terms.teaching), round(n * terms.judging(s.card))
    rare = _rare(s) if judge and isinstance(s.card, Card) and s.card.domain.observation is None else None
    return answers.PeopleFacts(teach=teach, judge=judge, **present(outside=outside, rare=rare))


def _rare(s: Setting) -> str | None:
    """What becomes of the verdict if practice takes each of many actions alike; None where they are few enough."""
    from pipeline.agents.doubly_robust import MOST_STEP
    from pipeline.learners.overlap import CUT
    from pipeline.operator.draft import ADVISED

    actions = int(s.tabular.domain.allowed.sum(-1).max())
    if s.recipe.agent.learner.section == "one_step":
        few = f"dp-one-step advises nothing that practice takes in less than {ADVISED:.0%} of a state's rows"
        return f"{few}, and each of {actions} taken alike has {100 / actions:.2g} %" if actions * ADVISED > 1 else None
    beyond = 1 - MOST_STEP / actions
    few = f"the weight of a row is cut at {MOST_STEP:g}, so that of {actions} taken alike {beyond:.0%} of a policy's"
    return f"{few} steps lie beyond, and beyond {CUT:.0%} no interval is called measured" if beyond > CUT else None


def _both_prices(s: Setting) -> Dump:
    """Cost of the recipe's epsilon with and without a delta: the one is many times the other."""
    privacy = s.recipe.privacy
    if privacy is None or privacy.epsilon is None:
        return {}
    delta = privacy.delta or s.card.budget.delta
    rho = up(Fraction(rho_from_epsilon(privacy.epsilon, delta)))
    price = answers.PriceOfEpsilon(epsilon=privacy.epsilon, pure_rho=privacy.epsilon**2 / 2, delta=delta, rho=rho)
    return {"price_of_epsilon": price}


def _nightly_plan(s: Setting, ledger: Ledger) -> tuple[Fraction, answers.NightsPlan]:
    """Charge of a run today, and the counter's part of a plan; reads no row."""
    from pipeline.ledger.steps import committed_steps, counter_intents

    entries = ledger.entries()
    nightly = standing_counter(s, entries)
    counter, tonight = nightly.counter, nightly.until(night_of(None))
    nights = committed_steps(entries, s.card.name, nightly.key)
    inside = 1 <= tonight <= counter.steps
    replays = bool(nights) and tonight <= nights[-1].t
    charge = Fraction(0)
    if not nights or (inside and not replays):
        since = nights[-1].t + 1 if nights else 1
        charge = nightly.price(entries, max(since, tonight if inside else 1), since)
    if nightly.gate is not None and not counter_intents(entries, s.card.name, nightly.key):
        charge += nightly.gate.charge()[0] or 0
    worst = nightly.sums.mechanisms + (() if nightly.played is None else nightly.played.mechanisms)
    by_night = {"worst": worst, **({"tonight": nightly.mechanisms(tonight)} if inside else {})}
    errors = {"worst": max(map(counter.error, range(1, counter.steps + 1)))}
    if inside:
        errors["tonight"] = counter.error(tonight)
    return charge, answers.NightsPlan(
        key=nightly.key,
        kind=counter.kind,
        nights=counter.steps,
        first=nightly.first.isoformat(),
        last=nightly.last.isoformat(),
        cost=counter.cost,
        night=tonight if inside else None,
        drawn=len(nights),
        left=min(counter.steps, max(0, counter.steps - tonight)),
        replays=replays,
        charge_rho=float(charge),
        standard_deviation={
            m.table: {k: listed[i].standard_deviation for k, listed in by_night.items()} for i, m in enumerate(worst)
        },
        times_one_release={k: counter.cost * e for k, e in errors.items()},
        **present(window=counter.window, drift=_drift_plan(s, nightly)),
    )


def _drift_plan(s: Setting, nightly: ContinualRelease) -> answers.DriftPlan | None:
    """Least fall that a comparison of the policy in use with practice can show, for the declared people a night."""
    if nightly.played is None or s.recipe.play is None:
        return None
    nights, people = nightly.counter.steps, s.terms.teachers(s.card) / nightly.counter.steps
    (m,) = nightly.played.mechanisms
    assert m.variance is not None and m.rho is not None
    fall = PlayedLayout(nightly.card).least_fall(m.variance, s.recipe.play.share, nights, people)
    return answers.DriftPlan(rho=float(m.rho), people=people, least_fall=fall)


def _calendar_plan(s: Setting, ledger: Ledger, plan: RunPlan, price: Fraction) -> answers.CalendarPlan | None:
    """Charges of a recipe's calendar, past and to come; None without one.  Reads no row."""
    calendar, name, today = s.recipe.schedule, s.card.name, night_of(None)
    if calendar is None:
        return None
    entries, due = ledger.entries(), calendar.due(today)
    charged = charged_for(s, entries)
    released = [e for e in charged if not s.guarded.is_gate(s.card, e)]
    drawn = {e.body["due"] for e in released if commit_of(entries, name, e.body["run_key"]) is not None}
    stands = due is not None and due.isoformat() in drawn
    remaining, ends = ledger.account(name).remaining, isinstance(calendar.release, list)
    # of a calendar without an end, no date is looked at beyond the first that the budget's life does not pay
    most = None if ends or not price else max(0, int(remaining / price)) + 1
    coming = list(itertools.islice(_coming(calendar, today, stands), most))
    stop: tuple[int, Dump] | None = _first_refused(coming, price, entries, name, today)
    judged = _judged(s, entries)
    if judged is not None and judged < len(coming) and (stop is None or judged <= stop[0]):
        stop = judged, {"limit": "since"}
    paid = len(coming) if stop is None else stop[0]
    spent = sum((Fraction(e.body["rho"]) for e in charged), Fraction(0))
    return answers.CalendarPlan(
        release=[str(day) for day in calendar.release] if isinstance(calendar.release, list) else calendar.release,
        rho_each=float(price),
        drawn=len(drawn),
        due=None if due is None else str(due),
        stands=stands,
        next=str(coming[0]) if coming else None,
        to_come=len(coming) if ends else None,
        rho_life=float(spent + price * len(coming)) if ends else None,
        paid=paid,
        last=str(coming[paid - 1]) if paid else None,
        refused=None if stop is None else str(coming[stop[0]]),
        **({"limit": None} if stop is None else stop[1]),
        **present(verdicts=_verdicts(s, plan, entries, paid)),
    )


def _judged(s: Setting, entries: Sequence[Entry]) -> int | None:
    """Number of dates that ``since`` leaves: each reads who came in by then, so the next one has to name it."""
    from pipeline.ledger.looks import check_since

    e = s.terms.evaluate
    if e is None or e.since is None:
        return None
    try:
        check_since(entries, s.card.name, "", e.since + 1, e.since)
    except CardError:
        return 0
    return 1


def _verdicts(s: Setting, plan: RunPlan, entries: Sequence[Entry], dates: int) -> answers.VerdictsPlan | None:
    """Least half-widths over the next ``dates`` dates; None without held-out people, or where no date is paid."""
    if not dates or not s.terms.held_out:
        return None
    from pipeline.evaluation.intervals import deviations, level_of
    from pipeline.learners.held_out import HeldOutRun
    from pipeline.ledger.looks import look_number
    from pipeline.statistics.moment_layout import STEPS, SUMS
    from pipeline.statistics.scores import SCORES

    look = look_number(entries, s.card.name, "", plan.charge()[1]).get("look")
    if look is None:
        return None
    assert isinstance(plan, HeldOutRun)
    e, people = plan.evaluation, float(s.terms.judging(s.card)) * s.card.unit.users_public
    noise = next(m for sums in e.sums.values() for m in sums.mechanisms if m.table == SUMS).standard_deviation
    deviation = noise / STEPS / people * float(_least_clips(e).widths[SCORES.index("gain")])
    first, last = (deviations(level_of(k)) * deviation for k in (look, look + dates - 1))
    return answers.VerdictsPlan(look=look, half_width=first, last_look=look + dates - 1, last_half_width=last)


def _least_clips(e: Evaluation) -> Clips:
    """Clips of the scores if no action of the policy is rare in practice; wider clips add noise."""
    from pipeline.agents.one_step_value import Confirmed, Proposal
    from pipeline.learners.linear_evaluation import LinearEvaluation
    from pipeline.learners.one_step_evaluation import OneStepEvaluation
    from pipeline.learners.tabular_evaluation import TabularEvaluation

    if isinstance(e, OneStepEvaluation):
        none = np.zeros(0)
        nobody = Proposal(none.astype(np.int64), none, none, none, *e.plan.span)
        return e.clips(Confirmed(nobody, none, none, 0.0), np.zeros((1, 0), dtype=np.int64))
    judge = e.judge if isinstance(e, LinearEvaluation) else e
    assert isinstance(judge, TabularEvaluation)
    return judge.clips(judge.terms.spread)


def _coming(calendar: Schedule, today: date, stands: bool) -> Iterator[date]:
    """Dates whose release is still to be drawn, today's first, for a century."""
    day = calendar.due(today)
    if day is not None and not stands:
        yield day
    after = calendar.after(today)
    while after is not None and after <= today + _CENTURY:
        yield after
        after = calendar.after(after)


def _first_refused(
    coming: Sequence[date], price: Fraction, entries: Sequence[Entry], name: str, today: date
) -> tuple[int, Dump] | None:
    """The first date that some limit does not allow, and facts of that limit."""
    left, taken = dict[str, list[Allowance]](), Counter[str]()
    newest = max((e.at for e in entries), default="")
    for i, day in enumerate(coming):
        # a missed date is charged today
        at = datetime.combine(max(day, today), time.max, UTC)
        periods = {"lifetime": "", **{limit: f"{at:{form}}" for limit, form in PERIODS.items()}}
        taken.update(periods.values())
        # nothing is charged yet in the months and years after the newest entry: they all allow the same
        charged = next((p for p in (periods["month"], periods["year"]) if p <= newest), "")
        if charged not in left:
            left[charged] = allowances(entries, name, at)
        if passed := [a for a in left[charged] if price * taken[periods[a.limit]] > a.rho]:
            return i, {"limit": passed[0].limit, **_whose(passed[0], name)}
    return None


ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "flows" / "recipes" / "forecasts.json"
"""``forecasts`` by their keys, and the ``code`` that made them; ``make forecasts`` writes it."""


def forecast_key(s: Setting, episodes: int, draws: int) -> str:
    """Digest of the declarations, the world and the sizes."""
    world = "" if (known := s.recipe.terms.known) is None else known.world
    files = list[Path]()
    if world:
        from pipeline.worlds.catalog import WORLD_FILE, arrays_file

        files = [s.card.folder / WORLD_FILE, arrays_file(world, s.card.folder)]
    named = s.recipe.recipe.agent, world
    own = [plugin_digest(name) if is_plugin(name) else None for name in named]
    parts = [
        s.card.model_dump(mode="json", exclude={"source", "budget", "tolerance", "name"}),
        {k: v for k, v in s.recipe.dump().items() if k not in ("recipe", "play")} | {"agent": s.recipe.recipe.agent},
        [episodes, draws, *(sha256_file(file) if file.is_file() else None for file in files), *own],
        *([str(s.reserve)] if s.reserve else []),
    ]
    return canonical_hash(parts)[:24]


def _stored_forecast(file: Path, key: str) -> Dump | None:
    """The forecast of this key: the home's, else the shipped one if this code still does the same; else None."""
    if file.is_file():
        return json.loads(file.read_text(encoding="utf-8"))
    if SHIPPED.is_file() and key in (shipped := json.loads(SHIPPED.read_text(encoding="utf-8")))["forecasts"]:
        return shipped["forecasts"][key] if all(_unchanged(*module) for module in shipped["code"].items()) else None
    return None


def code_of(module: str) -> str:
    """Digests of a module's text and of its syntax, with a blank between; empty of a package."""
    return f"{sha256_file(file)[:16]} {syntax_digest([module])[:16]}" if (file := _file_of(module)).is_file() else ""


def _unchanged(module: str, digests: str) -> bool:
    """Whether a module does what it did; its syntax is read only where its text is another."""
    text, _, syntax = digests.partition(" ")
    same = (file := _file_of(module)).is_file() and sha256_file(file)[:16] == text
    return same or code_of(module).partition(" ")[2] == syntax


def _file_of(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


# the band over draws, and how many draws: fewer where one takes long
LOW, HIGH = 0.1, 0.9
_DRAWS, _FEWEST, _WORK = 24, 3, 6_000_000
# of fewer draws the band is all of them
_BAND = 8
# numbers of one simulated log beyond which two runs must do, and beyond which none is simulated
_MANY_CELLS, _MOST_CELLS = 2_000_000, 20_000_000
# runs of a rival at most, and numbers of all their logs together
_RIVAL_DRAWS, _RIVAL_WORK = 3, 1_000_000
# a rival is preferred if it loses less by so many standard errors of the runs, and by this share of what a recipe loses
_SURE, _MATTERS = 2.0, 0.05
_ALIKE = {"dynamics": "stationary"}
ONE_TABLE = (
    'every step of the declared world has the same transitions: with dynamics = "stationary" in the card one table '
    "serves all steps, which leaves less noise at the same promise"
)
IS_NOT = (
    "a simulation, not a promise: it says what this many people and this noise teach in such a world, not in yours; "
    "nothing of the dataset was read"
)


def forecast_quality(recipe: str, home: Home, people: int | None = None) -> answers.Quality:
    """The band of a recipe's suboptimality."""
    s = _invented(setting(recipe, home, declared=True))
    plan, unit = s.plan, s.card.unit
    episodes = (people or unit.users_public) * unit.episodes_per_user
    reason = _reason(plan, episodes)
    not_simulated = answers.Quality(world=None, episodes=episodes, reason=reason, is_not=IS_NOT)
    if reason is not None and plan.log_size(episodes) <= _MOST_CELLS:
        return not_simulated
    size = max(1, plan.log_size(episodes))
    draws = range(max(_FEWEST, min(_DRAWS, _WORK // size)) if size <= _MANY_CELLS else 2)
    key = forecast_key(s, episodes, len(draws))
    file = home.root / "foresight" / f"{key}-{code_digest()[:12]}.json"
    if (stored := _stored_forecast(file, key)) is not None:
        return answers.Quality.model_validate({**stored, "cached": True})
    # the plan itself leaves the held-out people out
    learners = episodes if s.terms.held_out else max(1, round(episodes * s.terms.teaching))
    drawn = [] if reason is not None else plan.forecast(learners, draws)
    quality = _quality(s, plan, episodes, drawn) if drawn else not_simulated
    quality = answers.Quality.model_validate({**quality.parts(), **_preference(s, episodes, drawn), "cached": False})
    # kept to be quick the next time: a disk that is full, or read only, hides no plan
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file, alone=False) as fresh:
            write_file(fresh, json.dumps(quality.model_dump(), allow_nan=False))
    return quality


def _invented(s: Setting) -> Setting:
    """The same declarations for synthetic people, as those of a simulation are: seeded noise may then be drawn.

    A world that the recipe of real people names does not describe them, and may lie in their folder: it goes.
    """
    card = s.card.model_copy(update={"kind": "synthetic"}).placed(s.card.folder)
    e = s.recipe.evaluate
    changes = {} if s.card.kind == "synthetic" or e is None else {"evaluate": e.model_copy(update={"world": None})}
    return replace(s, card=card, recipe=s.recipe.model_copy(update=changes))


def _reason(plan: RunPlan, episodes: int) -> str | None:
    """Reason to simulate nothing, or None."""
    if episodes > MOST_EPISODES:
        return f"more than {MOST_EPISODES:,} episodes are not simulated"
    if (reason := plan.unforeseen()) is not None:
        return reason
    if (cells := plan.log_size(episodes)) > _MOST_CELLS:
        return f"one simulated log holds {cells:,} numbers; up to {_MOST_CELLS:,} are simulated"
    return None


def _rivals(s: Setting) -> Iterator[tuple[answers.Rival, RunPlan]]:
    """Other releases of this card at this budget: agents, layouts, and one table for all steps where possible."""
    own, p = s.recipe.agent, s.recipe.privacy
    cards: list[AnyCard] = [s.card, *([alike] if (alike := _steps_alike(s)) is not None else [])]
    releases = ("one_table", "two_tables") if p is not None else ("one_table",)
    candidates = rivals(s.recipe.recipe.agent, s.card, private=own.private)
    for (name, agent), release, card in itertools.product(candidates, releases, cards):
        elsewhere = _observed(s) and agent.learner.section != "linear"
        if elsewhere or (s.recipe.nightly is not None and not agent.learner.continual):
            continue
        budget = None if p is None else p.model_copy(update={"release": release, "calibration": "tight", "split": None})
        e = None if s.recipe.evaluate is None else s.recipe.evaluate.model_copy(update={"people": 0.0})
        section = agent.learner.section
        sections = {n: getattr(s.recipe, n) if n == section else None for n in ("linear", "lq", "one_step")}
        terms = replace(s.recipe.terms, agent=name, privacy=budget, evaluate=e, **sections)
        try:
            agent.learner.check(terms)
            plan = plan_run(card, terms)
        except (CardError, ValueError):
            # agents that do not fit the card are no rivals
            continue
        layout = {"release": release} if section is None else {}
        yield answers.Rival.model_validate({"agent": name, **layout, **({} if card is s.card else _ALIKE)}), plan


def _observed(s: Setting) -> bool:
    """Whether the surrogate world has observations: other agents would be simulated in another world."""
    read = s.recipe.agent.learner.section == "linear"
    return read and isinstance(s.card, Card) and s.card.domain.observation is not None


def _steps_alike(s: Setting) -> Card | None:
    """The card with one table for all steps, where the declared world has the same transitions at each of them."""
    known, card = s.recipe.terms.known, s.card
    if known is None or not isinstance(card, Card) or card.domain.dynamics == "stationary":
        return None
    from pipeline.worlds.catalog import load_world

    if not load_world(known.world, card.folder).stationary:
        return None
    domain = card.domain.model_copy(update=_ALIKE)
    return card.model_copy(update={"domain": domain}).placed(card.folder)


def _preference(s: Setting, episodes: int, own: Sequence[SimulatedRun]) -> Dump:
    """The agent and release that lose least in the same simulated worlds, and why: fields of the quality."""
    learners, tried = max(1, round(episodes * s.terms.teaching)), list[answers.Rival]()
    p, head = s.recipe.privacy, s.recipe.recipe
    layout = {"release": p.release} if p is not None and s.recipe.agent.learner.section is None else {}
    mine = answers.Rival.model_validate({"agent": head.agent, **layout, "suboptimality": _mean(own) if own else None})
    most = _MANY_CELLS if own else _MOST_CELLS
    best, margin = mine, 0.0
    for rival, plan in _rivals(s):
        if rival.name in {r.name for r in (mine, *tried)}:
            continue
        size, reason = max(1, plan.log_size(learners)), plan.unforeseen()
        if reason is None and size > most:
            reason = _drowned(plan) or f"one simulated log holds {size:,} numbers"
        if reason is not None:
            tried.append(answers.Rival.model_validate({**rival.parts(), "reason": reason}))
            continue
        drawn = plan.forecast(learners, range(max(1, min(_RIVAL_DRAWS, _RIVAL_WORK // size))))
        tried.append(answers.Rival.model_validate({**rival.parts(), "suboptimality": _mean(drawn)}))
        # both used the same worlds and logs
        less = float(np.mean([a.loss - b.loss for a, b in zip(own, drawn, strict=False)])) if own else 0.0
        error = float(np.std([d.loss for d in own], ddof=1)) / math.sqrt(len(drawn)) if own else 0.0
        first = not own and (best.suboptimality is None or _mean(drawn) < best.suboptimality)
        if first or (own and less > max(margin, _SURE * error, _MATTERS * _mean(own))):
            best, margin = tried[-1], less
    alike = {"proposes": ONE_TABLE} if any(r.dynamics for r in tried) else {}
    return {"rivals": tried, "prefers": best, "why": _why(best, [mine, *tried]), **alike} if tried else {}


def _drowned(plan: RunPlan) -> str | None:
    """Of counts: visits of one cell in an even log, beside the noise of all its successors: a closed form."""
    quote = plan.quote()
    listed = [m for m in quote.mechanisms if isinstance(m, MechanismFacts) and m.table == "n_sas"]
    visits = quote.outlook.get("visits_per_cell_if_even")
    if not listed or visits is None:
        return None
    onto = listed[0].shape[-1]
    noise = listed[0].scale * math.sqrt(onto)
    return f"a cell of an even log has {number(visits, 2)} visits, with noise ± {number(noise, 2)} on {onto} successors"


def _why(best: answers.Rival, compared: Sequence[answers.Rival]) -> str:
    """One sentence on the best of ``compared``, whose first is the recipe's own."""
    own, *rivals = compared
    others = [r for r in compared if r.name != best.name]
    lost = sorted(
        (r for r in rivals if r in others and r.suboptimality is not None), key=lambda r: r.suboptimality or 0
    )
    lost = [*([own] if own in others and own.suboptimality is not None else []), *lost]
    losses = [f"{number(r.suboptimality, 2)} by {r.name}" for r in lost[:3]]
    drowned = [f"{r.name} is not simulated: {r.reason}" for r in others if r.reason is not None][:1]
    if best.suboptimality is None:
        return f"no run of it is simulated, nor of anything else ({'; '.join(drowned)})"
    than = f", against {', '.join(losses)}" if losses else ""
    if any(r.suboptimality < best.suboptimality for r in lost[:3] if r.suboptimality is not None):
        than += ": so few runs do not tell them apart"
    return "; ".join([f"it loses {number(best.suboptimality, 2)} in the same worlds{than}", *drowned])


def _mean(drawn: Sequence[SimulatedRun]) -> float:
    # a loss of rounding alone is none
    return max(0.0, round(float(np.mean([d.loss for d in drawn])), 12))


def _quality(s: Setting, plan: RunPlan, episodes: int, drawn: Sequence[SimulatedRun]) -> answers.Quality:
    from pipeline.worlds.surrogate import OBSERVED, STATES

    known = s.recipe.terms.known
    reference = float(np.mean([d.reference for d in drawn]))
    loss = _band([d.loss for d in drawn])
    invented = OBSERVED if _observed(s) else STATES
    world = invented if known is None else f"{known.world}, logged by {known.behaviour}"
    return answers.Quality(
        world=world,
        declared=known is not None,
        episodes=episodes,
        draws=len(drawn),
        optimum=float(np.mean([d.optimum for d in drawn])),
        suboptimality=loss,
        without_noise=_band([d.exact for d in drawn]),
        reference=answers.Reference(name=plan.reference, suboptimality=reference),
        share=loss.mean / reference if reference > 0 else None,
        abstains=float(np.mean([d.abstains for d in drawn])),
        is_not=IS_NOT,
    )


def _band(values: Sequence[float]) -> answers.Band:
    low, high = np.quantile(values, [LOW, HIGH]) if len(values) >= _BAND else (min(values), max(values))
    return answers.Band(mean=float(np.mean(values)), low=float(low), high=float(high))
