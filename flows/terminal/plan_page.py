"""The page of ``plan``: cost of a run, budget left, quality to expect."""

from __future__ import annotations

from flows.terminal.screen import Block, Grid, Title, part, plain
from pipeline.declaration.numbers import number
from pipeline.facts.answers import CalendarPlan, DriftPlan, Fits, NightsPlan, PlanAnswer, Quality
from pipeline.facts.promise import MechanismFacts

# of fewer simulated runs the band is all of them
_BAND = 8
_GATE = "gate: a log in which too many people break {} stops the run before the rest is spent"
_NO_GATE = (
    "gate: NONE: whatever the log holds is released, and a typo in a table of labels costs the whole budget; a "
    "[tolerance] in the card stops such a run (docs/card.md)"
)


class ShownPlan(PlanAnswer):
    """See :class:`~pipeline.facts.answers.PlanAnswer`; it shows itself as the shell does, as a page in a notebook."""

    def blocks(self) -> list[Block]:
        """The page."""
        return plan_page(self)

    def __repr__(self) -> str:
        """The text that the shell prints."""
        return "\n".join(plain(self.blocks()))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return part(self.blocks())


def up(loss: float | None) -> str:
    """A loss, rounded up."""
    return number(loss, toward="up")


def plan_page(r: PlanAnswer) -> list[Block]:
    """Blocks of the page."""
    lines = [f"{r.recipe} on {r.dataset} ({r.agent})"]
    if r.rho is not None:
        sum_of = "total" if r.joint is None else "together"
        lines.append(f"{sum_of} ρ = {up(r.rho)}, ε = {up(r.epsilon)} at δ = {r.delta:g}")
    if r.people is not None:
        lines.append(
            f"people: about {r.people.teach:,} teach and {r.people.judge:,} judge, by a keyed hash of their id"
        )
        lines += [] if r.people.outside is None else [f"verdict: none of real people. {r.people.outside}"]
        lines += [] if r.people.rare is None else [f"rare actions: {r.people.rare}"]
    if r.gate is not None:
        lines.append(_GATE.format(", ".join(r.gate)) if r.gate else _NO_GATE)
    if p := r.price_of_epsilon:
        lines.append(
            f"price of ε = {p.epsilon:g}: as pure DP ρ = {up(p.pure_rho)}; with delta = {p.delta:g} ρ = {up(p.rho)}, "
            f"{number(p.pure_rho / p.rho, 2)} times less"
        )
    if r.steps_that_teach:
        lines.append(
            f"of a person the first {r.steps_that_teach} rows teach: of later steps nothing is learnt where episodes "
            "begin at step 0, however many people; [one_step] rows = (the card's horizon) reads all"
        )
    if r.squares_a_direction_needs:
        lines.append(
            "a direction of (x, u) is told from the noise if its squares sum to "
            f"{number(r.squares_a_direction_needs)}; all declared rows add up to at most {r.most_squares:,}"
        )
    if r.counter is not None:
        lines += _nights(r.counter)
    elif r.replays:
        lines.append("committed already on the latest snapshot: a run replays it and spends nothing")
    if r.calendar is not None:
        lines += _calendar(r.calendar)
    if r.together:
        lines.append(
            f"charged together with {', '.join(r.together)}: declared disjoint, but the ledger does not know all their "
            "people, so somebody may be in both"
        )
    if r.limit.of != "lifetime" or r.limit.whose is not None:
        left = number(r.limit.left_rho, toward="down")
        limit = "cap" if r.limit.of == "lifetime" else f"this {r.limit.of}"
        lines.append(f"{limit}{_of(r.limit.whose)}: ρ = {r.limit.cap_rho:g}, left {left}")
    left = f"left after it {number(r.remaining_after, toward='down')}"
    if not r.allowed:
        left = f"refused: left now {number(r.limit.left_rho, toward='down')}"
    lines.append(f"lineage: cap {r.cap_rho:g}, spent {up(r.spent_before)}, {left}")
    if r.allowed and not r.replays and r.epsilon is not None:
        lines.append(f"lineage's ε at δ = {r.delta_of_lineage:g}: {up(r.epsilon_before)} → {up(r.epsilon_after)}")
    if not r.allowed:
        over = r.counter is not None and r.counter.night is None
        lines.append("today is no night of this counter: see 'first' and 'nights'" if over else _still_fits(r.fits))
    lines_of_quality = [] if r.quality is None else ["", *_quality(r.quality)]
    return [Title(lines[0]), _mechanisms(r), *lines[1:], *_grid(r), *lines_of_quality]


def _mechanisms(r: PlanAnswer) -> Grid:
    """The planned releases: tables one by one, or the calls of an adaptive planner."""
    rows: list[tuple[str, ...]] = []
    calls: list[tuple[str, ...]] = []
    for m in r.mechanisms:
        if isinstance(m, MechanismFacts):
            calls.append((m.name, m.table, "fixed", _cost(m.rho)))
            rows.append((m.table, m.name, f"{m.cells:,}", f"{m.sensitivity:.4g}", f"{m.scale:.4g}", _cost(m.rho)))
        else:
            calls.append((m.name, ", ".join(m.tables), "adaptive" if m.adaptive else "fixed", _cost(m.rho)))
    if len(rows) == len(calls):
        return Grid(("table", "mechanism", "cells", "sensitivity", "scale", "ρ"), rows, left=2, most=len(rows))
    return Grid(("call", "tables", "scale", "ρ"), calls, left=3, most=len(calls))


def _cost(rho: float | None) -> str:
    return "no noise" if rho is None else up(rho)


def _nights(c: NightsPlan) -> list[str]:
    tonight = "tonight" if "tonight" in c.times_one_release else "worst"
    charge = "replays the last night and charges nothing" if c.replays else f"charges ρ = {up(c.charge_rho)}"
    night = "no night of it" if c.night is None else f"night {c.night}"
    sds = ", ".join(f"{table} ± {number(sd[tonight], 3)}" for table, sd in c.standard_deviation.items())
    times, worst = (number(c.times_one_release[k], 3, "up") for k in (tonight, "worst"))
    of = "" if c.window is None else f"; sums of the last {c.window} nights"
    return [
        f"counter ({c.kind}, {c.nights} nights from {c.first} to {c.last}): paid once for all of them, "
        f"{c.drawn} drawn{of}",
        f"today is {night}, {c.left} left after it; a run {charge}",
        f"noise on the sums: {sds}; variance {times} × one release (at worst {worst} ×, re-releasing {c.nights} ×)",
        *([] if c.drift is None else [_drift(c.drift)]),
    ]


def _drift(d: DriftPlan) -> str:
    fall = "no fall below practice can be called; take a larger share of the budget, or fewer nights"
    if d.least_fall is not None:
        fall = f"a fall of {number(d.least_fall, 3, 'up')} an episode below practice is called on every second night"
    return f"drift (ρ = {up(d.rho)}): of {number(d.people)} people a night, as declared, {fall}"


def _of(whose: str | None) -> str:
    return "" if whose is None else f" of {whose}, whose people may be the same"


def _calendar(c: CalendarPlan) -> list[str]:
    name = f"{len(c.release)} dates" if isinstance(c.release, list) else c.release
    life = "" if c.rho_life is None else f", {up(c.rho_life)} for its whole life"
    now = "nothing is due yet" if c.due is None else f"that of {c.due} {'stands' if c.stands else 'is due'}"
    come = "nothing more is to come" if c.next is None else f"the next charge is for {c.next}"
    lines = [f"calendar ({name}): ρ = {up(c.rho_each)} a date{life}; {c.drawn} drawn, {now}, {come}"]
    if c.refused is not None:
        limit = "cap" if c.limit == "lifetime" else f"limit of the {c.limit}"
        of = f"the {limit}{_of(c.whose)}" if c.whose or c.limit != "lifetime" else "the lineage's cap"
        of = "[evaluate] since, which must name the newest edition that was released" if c.limit == "since" else of
        pays = f"{c.paid} more (the last: {c.last})" if c.paid else "no more"
        lines.append(f"the budget pays {pays}; that of {c.refused} is refused by {of}")
    elif c.paid:
        lines.append(f"the budget pays all {c.paid} to come" if c.to_come is not None else "the budget lasts a century")
    if (v := c.verdicts) is not None:
        lines.append(
            f"a verdict's interval is at least ± {up(v.half_width)} at the next date (evaluation {v.look}) and ± "
            f"{up(v.last_half_width)} on {c.last} (evaluation {v.last_look}), "
            f"{number(v.last_half_width / v.half_width, 2)} times as wide: by the noise alone, for actions that "
            "practice often takes"
        )
    return lines


def _still_fits(fits: Fits | None) -> str:
    if fits is None:
        return "nothing fits any more: a larger cap is a decision of its own (`reticent register --amend`)"
    budget = f"epsilon = {fits.epsilon:g}" if fits.epsilon is not None else f"rho = {fits.rho:g}"
    ratio = "" if fits.ratio is None else f" (visits = {fits.ratio:.3g} × noise)"
    return f"what still fits: {budget}{ratio}"


def _grid(r: PlanAnswer) -> list[Block]:
    """Visits of a cell in units of its noise, budgets down and people across."""
    if not r.what_if:
        return []
    people = sorted({row.people for row in r.what_if})
    rows: list[tuple[str, ...]] = []
    for start in range(0, len(r.what_if), len(people)):
        row_group = r.what_if[start : start + len(people)]
        budget = f"ρ = {row_group[0].rho:g}" if row_group[0].rho is not None else f"ε = {row_group[0].epsilon:g}"
        rows.append((budget, *(f"{row.ratio:.3g}" for row in row_group)))
    needed = ", ".join(f"{n:,} for {level}" for level, n in r.people_needed.items())
    return [
        "",
        Grid(
            ("budget", *(f"n = {n:,.0f}" for n in people)),
            rows,
            "What would I need?  Visits of one (step, state, action) over their noise, if all were visited alike:",
        ),
        f"people needed at this budget: {needed}  (below 1 noise drowns the counts, 3 is usable, 10 is good)",
    ]


def _quality(q: Quality) -> list[str]:
    """Lines on the quality to expect, with its band."""
    s, e, r = q.suboptimality, q.without_noise, q.reference
    prefers = [] if q.prefers is None else [f"prefers     {q.prefers.name}: {q.why}"]
    prefers += [] if q.proposes is None else [f"proposes    {q.proposes}"]
    if s is None or e is None or r is None:
        return [f"quality     not foreseen: {q.reason}", *prefers]
    share = "" if q.share is None else f", {number(100 * q.share, 2)} % of {r.name}'s"
    band = "in eight of ten of" if q.draws >= _BAND else "over"
    return [
        f"quality     suboptimality {number(s.mean, 3)} ({number(s.low, 2)} to {number(s.high, 2)} {band} "
        f"{q.draws} simulated runs){share} {number(r.suboptimality, 3)}",
        f"            without noise {number(e.mean, 3)} ({number(e.low, 2)} to {number(e.high, 2)}); the best "
        f"policy is worth {number(q.optimum, 3)}",
        f"            {q.episodes:,} episodes, {q.world}",
        f"            {q.is_not}",
        *prefers,
    ]
