"""An inspection of a log of vectors, as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.terminal.terminal import Block, Grid

Facts = Mapping[str, Any]


def vector_page(f: Facts) -> list[Block]:
    """Blocks of the page."""
    people, steps, shares = f["people"], f["steps"], f["shares"]
    lines: list[Block] = [
        f"{f['dataset']} snapshot {f['snapshot']} ({f['kind']}): {f['rows']:,} rows, {f['users']:,} users, "
        f"{f['episodes']:,} episodes; users_public declares {people['declared']:,}",
        f"OPERATOR ONLY: raw facts, not for publication.  This look is entry {f['ledger_entry']} of the ledger.",
        f"episodes: {steps['mean']:.3g} steps on average, median {steps['median']}, "
        f"{steps['whole_horizon_share']:.1%} last all {steps['horizon']}",
        f"rows: next observation unknown {shares['unknown_next_observation']:.2%}, "
        f"longer than a declared radius {shares['shortened']:.2%}",
        "",
        _rules(f) if f["rules"] else "No rule was broken.",
    ]
    for role, v in f["vectors"].items():
        longer = ", ".join(f"{part} {share:.1%}" for part, share in v["longer_than"].items())
        lines += ["", f"{role.replace('_', ' ')}: radius {v['radius']:g}; share longer than a part of it: {longer}"]
        rows = [
            (c["name"], *(f"{c[key]:.4g}" for key in ("lowest", "highest", "mean", "deviation")))
            for c in v["coordinates"]
        ]
        lines.append(Grid(("coordinate", "lowest", "highest", "mean", "sd"), rows, most=len(rows)))
    for w in f["warnings"]:
        lines += ["", f"WARNING {w['code']}: {w['what']}.", f"  means: {w['means']}.", f"  do: {w['do']}."]
    return lines if f["warnings"] else [*lines, "", "No warnings.  That is no proof that the log is good."]


def _rules(f: Facts) -> Grid:
    rows = [
        (
            r["rule"],
            r["effect"],
            f"{r['rows']:,}",
            f"{r['share']:.3%}",
            "any" if r["tolerance"] is None else f"{r['tolerance']:.3%}",
        )
        for r in f["rules"]
    ]
    return Grid(("rule", "effect", "rows", "share", "accepted"), rows, "Rules broken", left=2, most=len(rows))
