"""What in a log makes a proposed card wrong without a word: rows that come twice, ids of several people, open ends.

For the operator's eyes: each is told in a note that stands in no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from pipeline.logs.decode import read_flag
from pipeline.operator.roles import PART, Column

# a share below which a trap is none, and what one explanation must explain
_SOME, _MOST = 0.01, 0.9
# a column of more texts than this is no site
_SITES = 200


def once(frame: pl.DataFrame, role: Mapping[str, str], notes: list[str]) -> pl.DataFrame:
    """The log without rows that say again, word for word, what another one says; where nothing orders rows, as it is.

    Parameters
    ----------
    frame
        All columns, as text.
    role
        Role -> column.
    notes
        Grows by what a person should know.
    """
    if "order" not in role:
        return frame
    found = frame.unique([name for name in frame.columns if name != PART], keep="first", maintain_order=True)
    if again := len(frame) - len(found):
        notes.append(
            f"{again:,} rows ({again / len(frame):.1%}) are there again, word for word: with order_by a row that comes "
            "twice is one step; with a column of steps its whole episode is dropped (`repeat`)"
        )
    return found


def mixed_people(
    rows: pl.DataFrame, columns: Mapping[str, Column], role: Mapping[str, str], part: pl.Series | None
) -> list[str]:
    """Whether several rows of a person stand at one place, and which column or file sets them apart.

    Parameters
    ----------
    rows
        ``user``, ``episode``, ``order``, and ``at``: where the row stands in the columns.
    columns, role
        Of the log.
    part
        The file of each row; None of a frame.
    """
    here = ["user", "episode", "order"]
    rows = rows.drop_nulls("order")
    ties = int(rows.select(pl.struct(here).is_duplicated().sum()).item())
    if "order" not in role or ties <= _SOME * len(rows):
        return []
    order, user = repr(role["order"]), repr(role["user"])
    told = f"{ties / len(rows):.1%} of the rows stand at the same {order} as another row of their {user}"
    sites = {repr(name): c.cells for name, c in columns.items() if name not in role.values() and _is_site(c)}
    sites |= {"file": part} if part is not None and part.n_unique() > 1 else {}
    for name, cells in sites.items():
        apart = rows.with_columns(cells.gather(rows["at"]).alias("site"))
        left = int(apart.select(pl.struct(*here, "site").is_duplicated().sum()).item())
        if left <= (1 - _MOST) * ties:
            return [
                f"{told}, and are told apart by {name}: if its ids begin anew in each {name}, people of several are "
                "taken for one here; write a column of both, such as north-17, and name it with --user"
            ]
    return [f"{told}: a hash decides which is the earlier step; name a finer column with --order"]


def _is_site(column: Column) -> bool:
    return 1 < column.distinct <= _SITES and not column.missing


@dataclass(frozen=True)
class Endings:
    """How episodes end.

    Parameters
    ----------
    short
        Share of those with fewer rows than the horizon.
    paid_last
        Whether rewards stand in last rows alone, or nearly so, and others are empty.
    told
        Whether the column that may say ``terminated`` is true in last rows alone, or nearly so.
    """

    short: float
    paid_last: bool
    told: bool


def look_at_ends(rows: pl.DataFrame, columns: Mapping[str, Column], role: Mapping[str, str], horizon: int) -> Endings:
    """How episodes end.

    Parameters
    ----------
    rows
        ``user``, ``episode``, ``order``, and ``at``: where the row stands in the columns.
    columns, role
        Of the log.
    horizon
        Of the card.
    """
    last = rows.sort("order").group_by("user", "episode").agg(pl.col("at").last(), pl.len().alias("rows"))

    def of_last(true: pl.Series) -> float:
        return int(true.gather(last["at"]).sum()) / max(1, int(true.gather(rows["at"]).sum()))

    paid, flag = columns.get(role.get("reward", "")), columns.get(role.get("terminated", ""))
    return Endings(
        short=int((last["rows"] < horizon).sum()) / max(1, len(last)),
        paid_last=paid is not None and paid.missing > _SOME and of_last(paid.cells.is_not_null()) >= _MOST,
        told=flag is not None and of_last(read_flag(flag.cells)["value"]) >= _MOST,
    )
