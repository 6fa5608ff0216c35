"""People of whom ingest set rows aside: which rules can be counted by people, and how many people broke which."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard, Card
from pipeline.logs.rules import BY_NAME, COERCED, OBSERVED, episode_rules, step_rules
from pipeline.logs.screening import quarantine_rows

# what is filed under these belongs to nobody known
_NAMELESS = ("malformed_line", "null_user", "missing_column")


class Claims(Protocol):
    """Which people are of a lineage, where others were declared disjoint from it: the ledger knows."""

    @property
    def since(self) -> int:
        """Entry of the ledger by which the lineage was declared disjoint last; 0: never."""
        ...

    @property
    def apart(self) -> Sequence[str]:
        """Names of the lineages that share nobody with this one."""
        ...

    def claim(self, users: Sequence[str]) -> Sequence[bool]:
        """Take people for the lineage, for good; False for whoever another one has."""
        ...


def find_others(users: pl.Series, claims: Claims) -> tuple[str, ...]:
    """Take people for the lineage; those of ``raw_user`` whom another one has."""
    known = users.cast(pl.String).drop_nulls().unique(maintain_order=True)
    return tuple(known.filter(~pl.Series(claims.claim(known.to_list()), dtype=pl.Boolean)))


def part_with(
    raw: pl.DataFrame, card: AnyCard, names: tuple[str, ...], people: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Set aside the rows of people who are counted in another lineage.

    Returns
    -------
    The rows that stay, and the quarantine of the others.
    """
    known = pl.Series(people, dtype=pl.String)
    stays = ~raw["raw_user"].cast(pl.String).is_in(known.implode()).fill_null(value=False)
    others = raw.filter(~stays)
    entry = {"rule": "elsewhere", "effect": BY_NAME["elsewhere"].effect}
    entries = pl.DataFrame({"row": pl.int_range(len(others), dtype=pl.Int64, eager=True)}).with_columns(
        *(pl.lit(value).alias(name) for name, value in entry.items()), pl.lit(None, dtype=pl.String).alias("text")
    )
    return raw.filter(stays), quarantine_rows(others, entries, card, names)


def gated_rules(card: AnyCard) -> tuple[str, ...]:
    """The rules that the card has a tolerance for and that a person can break, the least tolerated first.

    A line that cannot be read names nobody: a tolerance for it is the operator's, at ``ingest``.
    """
    # a person who is elsewhere breaks nothing, and the gate has no business with the other dataset
    own = {**COERCED, "early_end": None} if isinstance(card, Card) else {"beyond_radius": None}
    if isinstance(card, Card) and card.domain.observation is not None:
        own = {**OBSERVED, "early_end": None}
    possible = {*step_rules(card), *episode_rules(card), *own, "over_cap"}
    if isinstance(card, Card) and card.domain.states.ends:
        possible.discard("early_end")
    asked = [rule for rule in BY_NAME if rule in card.tolerance and rule in possible]
    return tuple(sorted(asked, key=lambda rule: card.tolerance[rule]))


def readable_quarantine(folder: Path) -> bool:
    """Whether every row that a snapshot set aside can still be read."""
    try:
        for file in folder.glob("quarantine-*.parquet"):
            with pq.ParquetFile(file) as filed:
                deque(filed.iter_batches(), maxlen=0)
    except (pa.ArrowException, OSError):
        return False
    return True


def count_people(folder: Path, card: AnyCard) -> dict[str, int]:
    """How many people broke which rules.

    Returns
    -------
    Rules joined by ``+``, in the order of the alphabet, and the number of people who broke these and no others.
    """
    user = pl.col("source").struct.field(card.log.roles["user"]).alias("user")
    found, partitions = Counter[str](), defaultdict[str, list[pl.DataFrame]](list)
    for file in sorted(folder.glob("quarantine-*.parquet")):
        named = pl.read_parquet(file, columns=["rule", "source"]).filter(~pl.col("rule").is_in(_NAMELESS))
        # a partition may have several files: a person in two of them is still one
        partitions[file.stem.split("-")[1]].append(named.select(user, "rule").drop_nulls("user").unique())
    for filed in partitions.values():
        people = pl.concat(filed).unique().group_by("user").agg(pl.col("rule").sort())
        found.update(people["rule"].list.join("+").to_list())
    return dict(sorted(found.items()))
