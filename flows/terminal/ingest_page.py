"""What an ingest did to people, as a person reads it: in the terminal, and as a page in the operator's store."""

from __future__ import annotations

from collections.abc import Sequence

from flows.terminal.terminal import Block, Grid, Title
from pipeline.operator.ingest_report import LOUD, IngestReport

ONLY = "OPERATOR ONLY: raw facts, not for publication."


def warnings_of(r: IngestReport) -> list[str]:
    """What nobody should overlook."""
    found: list[str] = []
    if r["share_lost"] > LOUD:
        found.append(
            f"warning: {r['people_lost']:,} people ({r['share_lost']:.1%}) have no row left; the rules that took them "
            "are in the table, and `inspect --quarantine` says more"
        )
    if (rounded := r["rewards"]) is not None and rounded["share"] > LOUD:
        fits = rounded["steps_that_fit"]
        mend = f"write steps = {fits} under [reward]" if fits else "declare a lattice that has them"
        found.append(
            f"warning: {rounded['share']:.1%} of the rewards lie between two points of the declared lattice "
            f"(steps = {rounded['steps']}) and were ROUNDED DOWN: values and intervals are about these; " + mend
        )
    found += [
        f"warning: those lost differ from those kept: {d['label']!r} in {d['column']!r} is {d['share_lost']:.1%} of "
        f"their rows, {d['share_kept']:.1%} of the others': what is learnt is about those kept"
        for d in r["differences"]
        if d["speaks"] and r["people_lost"]
    ]
    return found


def rules_table(r: IngestReport) -> list[Block]:
    """People, episodes and rows by rule; nothing where no rule was broken."""
    rows = [(one["rule"], one["effect"], _n(one["people"]), _n(one["episodes"]), _n(one["rows"])) for one in r["rules"]]
    title = f"{r['people_lost']:,} people lost ({r['share_lost']:.1%}), {r['people_kept']:,} kept; by rule:"
    return [Grid(("rule", "effect", "people", "episodes", "rows"), rows, title, left=2)] if rows else []


def ingest_page(dataset: str, snapshot: int, r: IngestReport) -> list[Block]:
    """All of it.

    Parameters
    ----------
    dataset, snapshot
        Which edition.
    r
        What its ingest did.
    """
    blocks: list[Block] = [Title(f"{dataset} snapshot {snapshot}: what was set aside"), ONLY, *warnings_of(r)]
    if r["purged"]:
        return [*blocks, "the quarantine was purged: which rules were broken is known, by whom is not"]
    blocks += rules_table(r) or ["No rule was broken."]
    tables: list[tuple[str, Sequence[str], list[tuple[str, ...]], int]] = [
        (
            "Texts that are no declared label:",
            ("column", "text", "rows"),
            [(x["column"], "(empty)" if x["label"] is None else x["label"], _n(x["rows"])) for x in r["labels"]],
            2,
        ),
        ("Rows dropped, by step as logged:", ("step", "rows"), [(x["step"], _n(x["rows"])) for x in r["steps"]], 1),
        (
            "Are those lost like those kept?  Total variation distance of their rows, and the label that differs most:",
            ("column", "rows", "distance", "label", "of those lost", "of those kept", "differ"),
            [
                (
                    d["column"],
                    _n(d["rows"]),
                    f"{d['distance']:.3f}",
                    d["label"],
                    f"{d['share_lost']:.1%}",
                    f"{d['share_kept']:.1%}",
                    "yes" if d["speaks"] else "no",
                )
                for d in r["differences"]
            ],
            1,
        ),
    ]
    for title, head, rows, left in tables:
        if rows:
            blocks += ["", Grid(head, rows, title, left=left)]
    return blocks


def _n(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"
