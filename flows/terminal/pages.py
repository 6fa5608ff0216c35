"""Pages of the terminal: an inspection of a log, people lost and kept at an ingest, and a plan.

The page of ``plan`` has the cost of a run, the budget left, the quality to expect.
"""

from collections.abc import Iterable, Mapping

from flows.terminal.screen import Block, Grid, Title, part, plain
from pipeline.declaration.numbers import number
from pipeline.facts.answers import CalendarPlan, DriftPlan, Fits, NightsPlan, PlanAnswer, Quality
from pipeline.facts.promise import Dump, MechanismFacts
from pipeline.operator.ingest_report import LOUD

ONLY = "OPERATOR ONLY: raw facts, not for publication."
# of people whom a rule touched, where they are many
_OF_RULES = {
    "reward_range": (
        "rewards beyond reward.range, each counted as the nearer end: a rare heavy loss counts as a small one, so an "
        "action can look better that does harm; values and intervals are about these. Declare the range that rewards "
        "can have"
    ),
    "over_cap": (
        "more episodes than count, and a hash drew which do: where what is done or comes of it decides who comes again,"
        " or changes their later episodes, an action can look better that is not; practice = 'recorded' "
        "says that nobody does"
    ),
    "beyond_horizon": (
        "rows beyond domain.horizon: what those pay counts nowhere, so an action can look better that does harm later; "
        "practice = 'recorded' says that nothing comes later"
    ),
    "leads_elsewhere": (
        "rows whose next_state is not the state of their next row; of a last row the logged one counts all the same. "
        "If that is what was seen right after the choice, take next_state out of source.columns"
    ),
}
# share of people with a reward beyond the declared range that is worth a warning
_RARE = 0.005


def warnings_of(r: Dump) -> list[str]:
    """Warnings on people lost or beyond cap, horizon or gate, rewards, next states, and how lost and kept differ."""
    warnings: list[str] = []
    if r["share_lost"] > LOUD:
        warnings.append(
            f"warning: {r['people_lost']:,} people ({r['share_lost']:.1%}) have no row left; the rules that took them "
            "are in the table, and `inspect --quarantine` says more"
        )
    for rule, words in _OF_RULES.items():
        people = sum(one["people"] or 0 for one in r["rules"] if one["rule"] == rule)
        # a few heavy losses decide what is better, so that few are many
        if people > (_RARE if rule == "reward_range" else LOUD) * (r["people_kept"] + r["people_lost"]):
            warnings.append(f"warning: {people:,} people have {words}")
    warnings += [
        f"warning: {one['rule']}: rows of {one['people']:,} people, and the card accepts {one['accepted']:,.0f}: the "
        f"gate of a run counts people, under noise, and may stop it; mend the log, or raise tolerance.{one['rule']}"
        for one in r["rules"]
        if one.get("accepted") is not None and one["people"] is not None and one["people"] > one["accepted"]
    ]
    if (rounded := r["rewards"]) is not None and rounded["share"] > LOUD:
        fits = rounded["steps_that_fit"]
        mend = f"write steps = {fits} under [reward]" if fits else "declare a lattice that has them"
        warnings.append(
            f"warning: {rounded['share']:.1%} of the rewards lie between two points of the declared lattice "
            f"(steps = {rounded['steps']}) and were ROUNDED DOWN: values and intervals are about these; " + mend
        )
    if r["over_total"]:
        warnings.append(
            f"warning: {r['over_total']:,} people are paid more than reward.total in all, and what is beyond counts as "
            "0: values and intervals are about that; declare the largest sum that anybody can be paid"
        )
    warnings += [
        f"warning: those lost differ from those kept: {d['label']!r} in {d['column']!r} is {d['share_lost']:.1%} of "
        f"their rows, {d['share_kept']:.1%} of the others': what is learnt is about those kept"
        for d in r["differences"]
        if d["speaks"] and r["people_lost"]
    ]
    return warnings


def rules_table(r: Dump) -> list[Block]:
    """People, episodes and rows by rule; nothing where no rule was broken."""
    rows = [(one["rule"], one["effect"], _n(one["people"]), _n(one["episodes"]), _n(one["rows"])) for one in r["rules"]]
    title = f"{r['people_lost']:,} people lost ({r['share_lost']:.1%}), {r['people_kept']:,} kept; by rule:"
    return [Grid(("rule", "effect", "people", "episodes", "rows"), rows, title, left=2)] if rows else []


def ingest_page(dataset: str, snapshot: int, r: Dump) -> list[Block]:
    """The page of an ingest's quarantine."""
    blocks: list[Block] = [Title(f"{dataset} snapshot {snapshot}: what was set aside"), ONLY, *warnings_of(r)]
    if r["purged"]:
        return [*blocks, "the quarantine was purged: which rules were broken is known, by whom is not"]
    blocks += rules_table(r) or ["No rule was broken."]
    texts = [
        {"label": "(empty)" if x["label"] is None else x["label"], "column": x["column"], "rows": x["rows"]}
        for x in r["labels"]
    ]
    apart = "Are those lost like those kept?  Total variation distance of their rows, and the label that differs most:"
    for table in (
        _table(
            "Texts that are no declared label, or that cannot be read (first ones of each column):",
            "column|text|rows",
            "{column}|{label}|{rows:,}",
            texts,
            left=2,
        ),
        _table("Rows dropped, by step as logged:", "step|rows", "{step}|{rows:,}", r["steps"]),
        _table(
            apart,
            "column|rows|distance|label|of those lost|of those kept|differ",
            "{column}|{rows:,}|{distance:.3f}|{label}|{share_lost:.1%}|{share_kept:.1%}|{yes}",
            [{**d, "yes": "yes" if d["speaks"] else "no"} for d in r["differences"]],
        ),
    ):
        blocks += [] if table is None else ["", table]
    return blocks


def _n(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"


# a matrix of more steps than this is no longer a glance
_STEPS = 24


def _head(f: Dump) -> list[str]:
    return [
        f"{f['dataset']} snapshot {f['snapshot']} ({f['kind']}): {f['rows']:,} rows, {f['users']:,} users, "
        f"{f['episodes']:,} episodes; users_public declares {f['people']['declared']:,}",
        f"{ONLY}  This look is entry {f['ledger_entry']} of the ledger.",
    ]


def _warnings(f: Dump) -> list[str]:
    if not f["warnings"]:
        return ["", "No warnings.  That is no proof that the log is good."]
    lines: list[str] = []
    for w in f["warnings"]:
        lines += ["", f"WARNING {w['code']}: {w['what']}.", f"  means: {w['means']}.", f"  do: {w['do']}."]
    return lines


def inspection_page(facts: Dump) -> list[Block]:
    """Blocks of the page."""
    if "vectors" in facts:
        return _vector_page(facts)
    blocks: list[Block] = [_opening(facts)]
    for table in (_rules(facts), _states(facts), _matrix(facts), _noise(facts), _hidden(facts)):
        if table is not None:
            blocks += ["", table]
    hidden = facts["hidden_state"]
    closing = "A 'no' is absence of evidence, not a proof; what no file holds was not looked at."
    closing = closing if hidden["checked"] else f"Hidden state not checked: {hidden['why_not']}"
    return [*blocks, closing, *_warnings(facts)]


def _opening(f: Dump) -> str:
    steps, reward, shares = f["steps"], f["reward"], f["shares"]
    words = {
        "unknown_next_state": "next state unknown",
        "other_state": "state OTHER",
        "other_action": "action OTHER",
        "beyond_cell_cap": "beyond the cell cap",
    }
    lines = [
        *_head(f),
        f"episodes: {steps['mean']:.3g} steps on average, median {steps['median']}, 90 % within {steps['p90']}, "
        f"{steps['whole_horizon_share']:.1%} last all {steps['horizon']}",
        "transitions into ends: " + (", ".join(f"{k} {v:.2%}" for k, v in shares["ends"].items()) or "no ends"),
        "rows: " + ", ".join(f"{words[k]} {shares[k]:.2%}" for k in words if shares[k] is not None),
    ]
    if reward is not None:
        lines.append(
            f"rewards: {reward['lowest']:g} to {reward['highest']:g}, mean {reward['mean']:.4g}; "
            f"clipped {reward['clipped_share']:.2%}, floored {reward['floored_share']:.2%}"
        )
    return "\n".join(lines)


def _table(title: str, head: str, cells: str, records: Iterable[Mapping[str, object]], *, left: int = 1) -> Grid | None:
    """A row a record: column names and the formats of its cells, bars between them; None without records."""
    rows = [[cell.format_map(record) for cell in cells.split("|")] for record in records]
    return Grid(head.split("|"), rows, title, left=left) if rows else None


def _rules(f: Dump) -> Grid | None:
    rules = [{**r, "accepted": "any" if r["tolerance"] is None else f"{r['tolerance']:.3%}"} for r in f["rules"]]
    head, cells = "rule|effect|rows|share|accepted", "{rule}|{effect}|{rows:,}|{share:.3%}|{accepted}"
    return _table("Rules broken", head, cells, rules, left=2)


def _states(f: Dump) -> Grid | None:
    by_state: dict[str, list[int]] = {}
    for r in f["coverage"]["table"]:
        sums = by_state.setdefault(r["state"], [0, 0, 0])
        for i, key in enumerate(("visits", "never_seen", "seen_fewer_than_few")):
            sums[i] += r[key]
    rows: list[tuple[str, ...]] = []
    for b in f["behaviour"]:
        top = "–" if b["top_action"] is None else f"{b['top_action']} ({b['top_share']:.1%})"
        rows.append((b["state"], *(f"{n:,}" for n in by_state[b["state"]]), top))
    c = f["coverage"]
    pooled = "all steps pooled" if c["pooled"] else "over all steps"
    title = (
        f"Coverage of (step, state, action), {pooled}: {c['cells']:,} usable cells, {c['never_seen']:,} never seen, "
        f"{c['seen_fewer_than_few']:,} seen fewer than {c['few']} times"
    )
    head = ("state", "visits", "never seen", f"< {c['few']} times", "top action (share)")
    return Grid(head, rows, title) if rows else None


def _matrix(f: Dump) -> Grid | None:
    """A row a state, a column a step: how many actions were never or hardly seen."""
    c, horizon = f["coverage"], f["steps"]["horizon"]
    if c["pooled"] or not 1 < horizon <= _STEPS:
        return None
    rows: dict[str, list[str]] = {}
    for r in c["table"]:
        thin = r["never_seen"] + r["seen_fewer_than_few"]
        rows.setdefault(r["state"], [r["state"]]).append("·" if not thin else str(thin))
    title = f"Actions seen fewer than {c['few']} times, by state and step (· none)"
    return Grid(("state", *map(str, range(horizon))), list(rows.values()), title) if rows else None


def _noise(f: Dump) -> Grid | None:
    head = "budget|ρ|noise of a cell's visits (sd)|cells drowned|of cells|of visits"
    cells = "{budget}|{rho:g}|{deviation_of_visits:.4g}|{cells_drowned:,}|{share_of_cells:.1%}|{share_of_visits:.2%}"
    return _table("Visits against the noise (drowned: fewer than 2 sd)", head, cells, f["noise"])


def _hidden(f: Dump) -> Grid | None:
    by_strength = sorted(f["hidden_state"]["tests"], key=lambda t: (not t["speaks"], -t["difference"]))
    tests = [{**t, "yes": "YES" if t["speaks"] else "no"} for t in by_strength]
    head = "state|column|kind|people|p|difference|at|action depends on it"
    cells = "{state}|{column}|{kind}|{people:,}|{p_value:.2g}|{difference:.1%}|{at}|{yes}"
    return _table("Does the logged action depend on what the states hide?", head, cells, tests, left=2)


def _vector_page(f: Dump) -> list[Block]:
    """Of a log of vectors."""
    steps, shares = f["steps"], f["shares"]
    lines: list[Block] = [
        *_head(f),
        f"episodes: {steps['mean']:.3g} steps on average, median {steps['median']}, "
        f"{steps['whole_horizon_share']:.1%} last all {steps['horizon']}",
        f"rows: next observation unknown {shares['unknown_next_observation']:.2%}, "
        f"longer than a declared radius {shares['shortened']:.2%}",
        "",
        _rules(f) or "No rule was broken.",
    ]
    for role, v in f["vectors"].items():
        longer = ", ".join(f"{part} {share:.1%}" for part, share in v["longer_than"].items())
        lines += ["", f"{role.replace('_', ' ')}: radius {v['radius']:g}; share longer than a part of it: {longer}"]
        rows = [
            (c["name"], *(f"{c[key]:.4g}" for key in ("lowest", "highest", "mean", "deviation")))
            for c in v["coordinates"]
        ]
        lines.append(Grid(("coordinate", "lowest", "highest", "mean", "sd"), rows, most=len(rows)))
    return [*lines, *_warnings(f)]


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
            "begin at step 0, however many people. [one_step] rows = (the card's horizon) reads all steps"
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
