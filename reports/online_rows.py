"""Gathered rows of online agents as evidence: found by what was asked, judged by rules that several studies share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from reports.format import number
from reports.page import Section, Table, table

Row = Mapping[str, Any]
Rows = Sequence[Row]

# a difference counts where it is larger than this many standard errors
SURE = 3.0
# "learns": at the end an episode loses at most this share of what the better control loses
LEARNT = 0.5
# summed regret grows tenfold with ten times the episodes where nothing is learnt; sublinear: at most 10^(3/4)
SUBLINEAR = 10**0.75
_HEAD = "World | Episodes | Agent | Variant | Scales | ε | δ | Mean | Std | Least | Most | At the end | Growth"
_NUMERIC = "Episodes | ε | δ | Mean | Std | Least | Most | At the end | Growth"


def select(rows: Rows, **wanted: Any) -> list[Row]:
    """Rows with all these values; a tuple allows several."""
    return [r for r in rows if all(r[k] in v if isinstance(v, tuple) else r[k] == v for k, v in wanted.items())]


def only(rows: Rows, **wanted: Any) -> Row:
    """The one row with these values.

    Raises
    ------
    ValueError
        If there is none, or more than one.
    """
    found = select(rows, **wanted)
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows with {wanted}; expected one")
    return found[0]


def end_loss(row: Row) -> float:
    """Mean regret of one episode between the last two marks of the curve."""
    (before, K), (low, high) = row["marks"][-2:], row["curve_mean"][-2:]  # noqa: N806
    return (high - low) / (K - before)


def growth(row: Row) -> float:
    """Summed regret after K episodes over that after K / 10; infinite where the latter is none."""
    at = row["marks"][-1] / 10
    early = max(i for i, mark in enumerate(row["marks"]) if mark <= at)
    then = row["curve_mean"][early] * at / row["marks"][early]
    return row["curve_mean"][-1] / then if then > 0 else float("inf")


def standard_error(row: Row) -> float:
    """Of the mean."""
    return row["std"] / row["runs"] ** 0.5


def surely_below(low: Row, high: Row) -> bool:
    """Whether the mean is lower by more than chance would show."""
    return high["mean"] - low["mean"] > SURE * (standard_error(low) ** 2 + standard_error(high) ** 2) ** 0.5


def bar(rows: Rows, world: str) -> float:
    """What an episode costs the better of uniform choice and the agent that gets no data."""
    controls = [r for r in select(rows, world=world) if r["agent"] in ("uniform", "no-data")]
    return min(end_loss(r) for r in controls)


def learns(rows: Rows, row: Row) -> bool:
    """Whether an episode at the end costs at most half of what it costs the better control."""
    return end_loss(row) <= LEARNT * bar(rows, row["world"])


def claim(text: str, rule: str, by_variant: Mapping[str, tuple[bool, str]], judged: str) -> dict[str, Any]:
    """A verdict as a study carries it: that of the judged variant, and all beside."""
    holds, regime = by_variant[judged]
    each = [{"variant": v, "holds": h, "regime": said} for v, (h, said) in by_variant.items()]
    return {"claim": text, "holds": holds, "regime": regime, "rule": rule, "variants": each}


def spread(row: Row) -> str:
    """Mean and standard deviation in words."""
    return f"{number(row['mean'], 3)} ± {number(row['std'], 2)}"


def per(rows: Iterable[Row], say: Callable[[Row], str]) -> str:
    """What is said of each row, by its epsilon."""
    return "; ".join(f"ε = {number(r['epsilon'])}: {say(r)}" for r in rows)


def totals(rows: Rows) -> Section:
    """Every row: regret with its spread, what an episode costs at the end, and how regret grew."""
    words = (
        "Regret summed over all episodes, exactly, by planning in the known world. At the end: regret of one episode "
        f"between the last two marks. Growth: regret after K over that after K / 10; 10 is linear, at most "
        f"{number(SUBLINEAR, 2)} is called sublinear.",
    )
    return Section("totals", "Total regret", words, tables=(totals_table(rows),))


def totals_table(rows: Rows) -> Table:
    """The table of :func:`totals`."""
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
    return table(_HEAD, said, numeric=_NUMERIC, grouped=True)


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
