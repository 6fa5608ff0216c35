"""Tables that the pages of several studies share: totals, what the noise is worth, ties, the setting."""

from __future__ import annotations

from pipeline.declaration.numbers import number
from pipeline.studies.rows import SUBLINEAR, Rows, end_loss, growth
from reports.page import Section, table

_HEAD = "World | Episodes | Agent | Variant | Scales | ε | δ | Mean | Std | Least | Most | At the end | Growth"
_NUMERIC = "Episodes | ε | δ | Mean | Std | Least | Most | At the end | Growth"


def totals(rows: Rows) -> Section:
    """Every row: regret with its spread, what an episode costs at the end, and how regret grew."""
    words = (
        "Regret summed over all episodes, exactly, by planning in the known world. At the end: regret of one episode "
        f"between the last two marks. Growth: regret after K over that after K / 10; 10 is linear, at most "
        f"{number(SUBLINEAR, 2)} is called sublinear.",
    )
    said = [
        (
            str(r["world"]),
            f"{r['episodes']:,}",
            str(r["agent"]),
            str(r["variant"]),
            str(r["calibration"] or "–"),
            "–" if r["epsilon"] is None else number(r["epsilon"]),
            "–" if r["delta"] is None else f"{r['delta']:g}",
            number(r["mean"]),
            number(r["std"], 3),
            number(min(r["totals"]), 3),
            number(max(r["totals"]), 3),
            number(end_loss(r), 2),
            number(min(growth(r), 99.0), 2),
        )
        for r in rows
    ]
    found = table(_HEAD, said, numeric=_NUMERIC, grouped=True)
    return Section("totals", "Total regret", words, tables=(found,))


def privacy(rows: Rows) -> Section:
    """What was asked, and what the noise drawn is worth."""
    words = (
        "Replace-one loss of the noise drawn, recomputed from its scales and the sums' own sensitivities, by the "
        "conversion valid for every ρ. At δ = 0.1 a mechanism may publish one record in ten outright: an ε there "
        "protects nobody.",
    )
    seen = {
        (r["agent"], r["variant"], r["calibration"], r["epsilon"], r["world"]): (
            str(r["world"]),
            str(r["agent"]),
            str(r["variant"]),
            str(r["calibration"]),
            number(r["epsilon"]),
            f"{r['delta']:g}",
            number(r["true_rho"], 3, "up"),
            number(r["true_epsilon"], 4, "up"),
        )
        for r in rows
        if r["true_rho"] is not None
    }
    head = "World | Agent | Variant | Scales | Asked ε | δ | True ρ | True ε"
    found = table(head, list(seen.values()), numeric="Asked ε | δ | True ρ | True ε", grouped=True)
    return Section("privacy", "What the noise is worth", words, tables=(found,))


def ties(rows: Rows) -> Section:
    """Shares of tied best actions, and how they were broken."""
    words = (
        "Share of (step, state) where clipping left several best actions, in the last plan. Such ties go to the "
        "unclipped value, then to chance: broken by the last index they would go right, which alone earns nearly all "
        "in RiverSwim (see always-right).",
    )
    seen = {
        (r["agent"], r["variant"], r["calibration"], r["world"]): (
            str(r["world"]),
            str(r["agent"]),
            str(r["variant"]),
            str(r["calibration"] or "–"),
            number(100 * r["tie_share"], 2) + " %",
        )
        for r in rows
        if r["tie_share"] is not None
    }
    found = table("World | Agent | Variant | Scales | Tied", list(seen.values()), grouped=True)
    return Section("ties", "Ties", words, tables=(found,))


def setting(rows: Rows, words: tuple[str, ...]) -> Section:
    """Constants by agent, variant and scales."""
    seen = {
        (str(r["agent"]), str(r["variant"]), str(r["calibration"] or "–"), str(r["constants"]))
        for r in rows
        if r["constants"]
    }
    found = table("Agent | Variant | Scales | Constants", sorted(seen), grouped=True)
    return Section("setting", "The setting", words, tables=(found,))
