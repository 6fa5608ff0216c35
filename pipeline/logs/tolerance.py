"""Which share of rows may break each rule before the log is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from pipeline.declaration.card import AnyCard, CardError
from pipeline.logs.errors import LogError
from pipeline.logs.rules import BY_NAME, RULES


def check_names(card: AnyCard) -> None:
    """Refuse a tolerance for something that is no rule, or whose only effect is refusal.

    Raises
    ------
    CardError
        Naming the key and the allowed ones.
    """
    allowed = [rule.name for rule in RULES if rule.effect != "refuse"]
    if unknown := sorted(set(card.tolerance) - set(allowed)):
        raise CardError(f"{card.name}: tolerance.{unknown[0]}: no such rule; allowed: {', '.join(allowed)}")


def check_tolerance(card: AnyCard, folder: Path, quarantined: Mapping[str, int], source_rows: int) -> None:
    """Compare the rows filed under each rule with the card's tolerance.

    Parameters
    ----------
    folder
        Where the quarantine files are.
    quarantined
        Rows filed under each rule.

    Raises
    ------
    LogError
        For the first rule, in table order, that more rows break than the card accepts.
    """
    for rule in sorted(card.tolerance, key=list(BY_NAME).index):
        share = quarantined.get(rule, 0) / max(source_rows, 1)
        if share > card.tolerance[rule]:
            raise LogError(
                f"{card.name}: {rule} ({BY_NAME[rule].meaning}): {share:.3%} of the rows, the card accepts "
                f"{card.tolerance[rule]:.3%}; first at {_first_places(folder, rule)}; mend these rows, "
                f"or raise tolerance.{rule} in the card"
            )


def _first_places(folder: Path, rule: str) -> str:
    files = sorted(folder.glob("quarantine-*.parquet"))
    if not files:
        return "(the quarantine was purged)"
    hits = pl.scan_parquet(files).filter(pl.col("rule") == rule).select("file", "line")
    places = hits.bottom_k(5, by=["file", "line"]).sort("file", "line").collect()
    by_file = places.group_by("file", maintain_order=True).agg("line")
    return "; ".join(f"{file}, line {', '.join(map(str, lines))}" for file, lines in by_file.iter_rows())
