"""People of whom ingest set rows aside: which rules can be counted by people, and how many people broke which."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl

from pipeline.declaration.card import AnyCard, Card
from pipeline.logs.rules import BY_NAME, COERCED, episode_rules, step_rules

# what is filed under these belongs to nobody known
_NAMELESS = ("malformed_line", "null_user", "missing_column")


def gated_rules(card: AnyCard) -> tuple[str, ...]:
    """The rules that the card has a tolerance for and that a person can break, the least tolerated first.

    A line that cannot be read names nobody: a tolerance for it is the operator's, at ``ingest``.

    Parameters
    ----------
    card
        Its [tolerance].
    """
    own = {**COERCED, "early_end": None} if isinstance(card, Card) else {"beyond_radius": None}
    possible = {*step_rules(card), *episode_rules(card), *own, "over_cap"}
    if isinstance(card, Card) and card.domain.states.ends:
        possible.discard("early_end")
    asked = [rule for rule in BY_NAME if rule in card.tolerance and rule in possible]
    return tuple(sorted(asked, key=lambda rule: card.tolerance[rule]))


def count_people(folder: Path, card: AnyCard) -> dict[str, int]:
    """How many people broke which rules.

    Parameters
    ----------
    folder
        Of a snapshot: one quarantine file a partition, which holds whole people.
    card
        Whose column of user ids is read.

    Returns
    -------
    Rules joined by ``+``, in the order of the alphabet, and the number of people who broke these and no others.
    """
    user = pl.col("source").struct.field(card.log.roles["user"]).alias("user")
    found = Counter[str]()
    for file in sorted(folder.glob("quarantine-*.parquet")):
        named = pl.read_parquet(file, columns=["rule", "source"]).filter(~pl.col("rule").is_in(_NAMELESS))
        people = named.select(user, "rule").drop_nulls("user").unique().group_by("user").agg(pl.col("rule").sort())
        found.update(people["rule"].list.join("+").to_list())
    return dict(sorted(found.items()))
