"""Second pass of ingest, a partition at a time: its rows screened, written, and counted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard, Card
from pipeline.files import open_private, whole_file
from pipeline.logs.elsewhere import Seen
from pipeline.logs.screening import screen, screen_vectors
from pipeline.logs.set_aside import part_with
from pipeline.logs.sources import Sources
from pipeline.logs.spills import read_partition
from pipeline.logs.store import part_file
from pipeline.logs.work import Screened

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
