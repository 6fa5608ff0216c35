"""Rows in the order they were logged -> episodes and steps: a flag ends an episode, or a row that leads elsewhere.

A person's rows are cut by that person's rows alone, wherever other rows lie between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipeline.logs.decode import flag
from pipeline.logs.errors import LogError
from pipeline.logs.readers.batch import Batch, marked

MADE = ("episode", "step")


@dataclass(frozen=True)
class Cut:
    """What tells where an episode ends.

    Parameters
    ----------
    user
        Column of user ids; None where the episode itself is the unit.
    flags
        Columns that are true at the last row of an episode.
    chain
        Pairs (where the row leads, where the next row stands): an episode ends where they differ.
    """

    user: str | None
    flags: tuple[str, ...]
    chain: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> list[str]:
        """Every column that is looked at."""
        found = [*self.flags, *(column for pair in self.chain for column in pair)]
        return list(dict.fromkeys(found if self.user is None else [self.user, *found]))


class Cutter:
    """Numbers the rows of one file, batch after batch; holds the last row of each user."""

    def __init__(self, cut: Cut, path: Path, mark: str) -> None:
        self._cut, self._path, self._mark = cut, path, mark
        self._last: pl.DataFrame | None = None

    def numbered(self, batch: Batch) -> pl.DataFrame:
        """The batch's frame with ``episode`` (text) and ``step`` (0-based).

        Raises
        ------
        LogError
            If a line is malformed or a flag cannot be read: nobody knows which rows belong together then.
        """
        if len(batch.malformed):
            self._refuse(int(batch.malformed["line"][0]), "malformed", "")
        cut, frame = self._cut, batch.frame
        user = pl.lit(0) if cut.user is None else pl.col(cut.user)
        rows = frame.select(
            user.alias("_user"),
            self._over(batch).alias("_over"),
            *(pl.col(leads).alias(f"_leads{i}") for i, (leads, _) in enumerate(cut.chain)),
            *(pl.col(stands).alias(f"_stands{i}") for i, (_, stands) in enumerate(cut.chain)),
        ).with_columns(_number=pl.lit(None, dtype=pl.Int64), _step=pl.lit(None, dtype=pl.Int64))
        known = 0 if self._last is None else len(self._last)
        rows = pl.concat([self._last, rows]) if self._last is not None else rows
        rows = rows.with_columns(_new=_starts(len(cut.chain)))
        rows = rows.with_columns(
            pl.col("_number").first().over("_user").fill_null(-1) + pl.col("_new").cum_sum().over("_user"),
            _place=pl.int_range(pl.len(), dtype=pl.Int64).over("_user"),
        ).with_columns(pl.col("_place") - pl.col("_place").first().over("_user", "_number"))
        carried = pl.col("_step").first().over("_user", "_number").fill_null(0)
        rows = rows.with_columns(_step=pl.col("_place") + carried)
        self._last = rows.drop("_new", "_place").unique("_user", keep="last", maintain_order=True)
        made = rows[known:].select(
            marked(self._mark, pl.col("_number")).alias("episode"), pl.col("_step").alias("step")
        )
        return pl.concat([frame, made], how="horizontal")

    def _over(self, batch: Batch) -> pl.Series:
        over = pl.Series([False], dtype=pl.Boolean).new_from_index(0, len(batch.frame))
        for column in self._cut.flags:
            cell = batch.frame[column].alias("raw_flag")
            cell = cell if cell.dtype == pl.Boolean or cell.dtype == pl.Float64 else cell.cast(pl.String)
            value, unread = flag("flag", {"flag": cell.dtype})
            told = cell.to_frame().select(value.alias("value"), unread.alias("unread"))
            if told["unread"].any():
                self._refuse(int(batch.lines[told["unread"].arg_true()[0]]), "cannot be read", f"column {column!r}, ")
            over |= told["value"]
        return over

    def _refuse(self, line: int, what: str, where: str) -> None:
        raise LogError(
            f"{self._path.name}: {where}line {line}: {what}, and here the order of the rows tells the episodes; "
            "mend the line"
        )


def _starts(pairs: int) -> pl.Expr:
    """The row begins an episode: its user's first, or the one before it ended or led elsewhere."""
    before = pl.col("_over").shift().over("_user").fill_null(value=True)
    apart = [pl.col(f"_leads{i}").shift().over("_user").ne_missing(pl.col(f"_stands{i}")) for i in range(pairs)]
    # the carried last row of a user is no new one
    return pl.when(pl.col("_number").is_not_null()).then(False).otherwise(pl.any_horizontal(before, *apart))
