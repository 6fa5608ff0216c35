"""Second pass of ingest, a partition at a time: its rows screened, written and counted; and whose were set aside."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard, Card
from pipeline.files import open_private, whole_file
from pipeline.logs.elsewhere import Seen
from pipeline.logs.rules import BY_NAME, COERCED, OBSERVED, episode_rules, step_rules
from pipeline.logs.screening import file_all, screen, screen_vectors
from pipeline.logs.sources import Sources
from pipeline.logs.spills import read_partition
from pipeline.logs.store import part_file
from pipeline.logs.work import Claims, Screened

ROWS_PER_GROUP = 1 << 18


@dataclass(frozen=True, repr=False)
class ScreenPartition:
    """See :class:`~pipeline.logs.elsewhere.Task`: the rules applied to whole people.

    Parameters
    ----------
    sources, card
        Of :func:`~pipeline.logs.sources.examine` the card.
    partition
        Its number.
    files
        Its rows as they were spilt, in the order of the log.
    built
        The snapshot that is being made.
    others
        Its people who are counted in another lineage; None where nobody asks.
    """

    sources: Sources
    card: AnyCard
    partition: int
    files: Sequence[Path]
    built: Path
    others: Sequence[str] | None

    @property
    def named(self) -> str:
        """Its number."""
        return f"partition {self.partition}"

    def __call__(self, seen: Seen) -> Screened:
        """Write part and quarantine; how many rows they are stands in the result."""
        card, names, part = self.card, self.sources.names, part_file(self.built, self.partition)
        more = self.built / f"quarantine-{self.partition:04d}-more.parquet"
        raw, beyond = read_partition(self.files, more, self.sources, card)
        stays, elsewhere = (raw, None) if self.others is None else part_with(raw, card, names, self.others)
        if isinstance(card, Card):
            canonical, quarantine = screen(stays, card, names)
        else:
            canonical, quarantine = screen_vectors(stays, card, names)
        quarantine = quarantine if elsewhere is None else pl.concat([quarantine, elsewhere]).sort("file", "line")
        with whole_file(part, private=True, alone=False) as fresh:
            write_rows(canonical, fresh)
        filed = self.built / f"quarantine-{self.partition:04d}.parquet"
        with whole_file(filed, private=True, alone=False) as fresh, open_private(fresh) as file:
            quarantine.write_parquet(file, compression="zstd")
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Screened(
            spilt=len(raw) + beyond,
            rows=len(canonical),
            users=count_runs(canonical, "user_id"),
            episodes=count_runs(canonical, "user_id", "episode_id"),
            filed=dict(quarantine.group_by("rule").len().iter_rows()) | ({"too_many_rows": beyond} if beyond else {}),
            digest=digest,
            bytes=part.stat().st_size,
        )


def write_rows(rows: pl.DataFrame, path: Path) -> None:
    """Write canonical rows: a dictionary for every column, rewards too, so that counting reads few bytes; 0600."""
    with open_private(path) as file:
        pq.write_table(rows.to_arrow(), file, compression="zstd", row_group_size=ROWS_PER_GROUP)


def count_runs(rows: pl.DataFrame, *columns: str) -> int:
    """How many different keys rows have that are sorted by them."""
    new = pl.any_horizontal(pl.col(column).ne_missing(pl.col(column).shift()) for column in columns)
    return int(rows.lazy().select(new).collect().to_series()[1:].sum()) + bool(len(rows))


# what is filed under these belongs to nobody known
_NAMELESS = ("malformed_line", "null_user", "missing_column")


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
    return raw.filter(stays), file_all("elsewhere", raw.filter(~stays), card, names)


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
        # by streams: one person's rows may be most of what is filed
        named = pl.scan_parquet(file).filter(~pl.col("rule").is_in(_NAMELESS)).select(user, "rule").drop_nulls("user")
        # a partition may have several files: a person in two of them is still one
        partitions[file.stem.split("-")[1]].append(named.unique().collect(engine="streaming"))
    for filed in partitions.values():
        people = pl.concat(filed).unique().group_by("user").agg(pl.col("rule").sort())
        found.update(people["rule"].list.join("+").to_list())
    return dict(sorted(found.items()))
