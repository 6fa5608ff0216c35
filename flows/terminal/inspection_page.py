"""Pages of an inspection of a log, and of people lost and kept at an ingest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from flows.terminal.screen import Block, Grid, Title
from pipeline.operator.ingest_report import LOUD

if TYPE_CHECKING:
    from pipeline.facts.promise import Dump

ONLY = "OPERATOR ONLY: raw facts, not for publication."


def warnings_of(r: Dump) -> list[str]:
    """Warnings on people lost or beyond cap, horizon or gate, on rewards rounded, and how lost and kept differ."""
    warnings: list[str] = []
    if r["share_lost"] > LOUD:
        warnings.append(
            f"warning: {r['people_lost']:,} people ({r['share_lost']:.1%}) have no row left; the rules that took them "
            "are in the table, and `inspect --quarantine` says more"
        )
    beyond = sum(one["people"] or 0 for one in r["rules"] if one["rule"] == "over_cap")
    if beyond > LOUD * (r["people_kept"] + r["people_lost"]):
        warnings.append(
            f"warning: {beyond:,} people have more episodes than count, and a hash drew which do: where what is done "
            "or comes of it decides who comes again, an action can look better that is not; practice = 'recorded' "
            "says that nobody does"
        )
    later = sum(one["people"] or 0 for one in r["rules"] if one["rule"] == "beyond_horizon")
    if later > LOUD * (r["people_kept"] + r["people_lost"]):
        warnings.append(
            f"warning: {later:,} people have rows beyond domain.horizon: what those pay counts nowhere, so an action "
            "can look better that does harm later; practice = 'recorded' says that nothing comes later"
        )
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


def inspection_page(facts: Dump) -> list[Block]:
    """Blocks of the page."""
    return _vector_page(facts) if "vectors" in facts else _table_page(facts)


def _head(f: Dump) -> list[str]:
    return [
        f"{f['dataset']} snapshot {f['snapshot']} ({f['kind']}): {f['rows']:,} rows, {f['users']:,} users, "
        f"{f['episodes']:,} episodes; users_public declares {f['people']['declared']:,}",
        f"OPERATOR ONLY: raw facts, not for publication.  This look is entry {f['ledger_entry']} of the ledger.",
    ]


def _warnings(f: Dump) -> list[str]:
    lines: list[str] = []
    for w in f["warnings"]:
        lines += ["", f"WARNING {w['code']}: {w['what']}.", f"  means: {w['means']}.", f"  do: {w['do']}."]
    return lines if f["warnings"] else [*lines, "", "No warnings.  That is no proof that the log is good."]


def _table_page(facts: Dump) -> list[Block]:
    """Of a log of declared states and actions."""
    blocks: list[Block] = [_opening(facts)]
    for table in (_rules(facts), _states(facts), _matrix(facts), _noise(facts), _hidden(facts)):
        if table is not None:
            blocks += ["", table]
    return [*blocks, *_closing(facts)]


def _opening(f: Dump) -> str:
    steps, reward = f["steps"], f["reward"]
    lines = [
        *_head(f),
        f"episodes: {steps['mean']:.3g} steps on average, median {steps['median']}, 90 % within {steps['p90']}, "
        f"{steps['whole_horizon_share']:.1%} last all {steps['horizon']}",
        "transitions into ends: " + (", ".join(f"{k} {v:.2%}" for k, v in f["shares"]["ends"].items()) or "no ends"),
        "rows: " + ", ".join(_shares(f["shares"])),
    ]
    if reward is not None:
        lines.append(
            f"rewards: {reward['lowest']:g} to {reward['highest']:g}, mean {reward['mean']:.4g}; "
            f"clipped {reward['clipped_share']:.2%}, floored {reward['floored_share']:.2%}"
        )
    return "\n".join(lines)


def _shares(shares: Dump) -> list[str]:
    words = {
        "unknown_next_state": "next state unknown",
        "other_state": "state OTHER",
        "other_action": "action OTHER",
        "beyond_cell_cap": "beyond the cell cap",
    }
    return [f"{words[k]} {shares[k]:.2%}" for k in words if shares[k] is not None]


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


def _closing(f: Dump) -> list[str]:
    hidden = f["hidden_state"]
    line = "A 'no' is absence of evidence, not a proof; what no file holds was not looked at."
    if not hidden["checked"]:
        line = f"Hidden state not checked: {hidden['why_not']}"
    return [line, *_warnings(f)]


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
