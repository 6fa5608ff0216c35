"""One night's leaf: the rows of people, or of episodes, that no earlier night has counted.

Who was counted is kept as 128-bit hashes under a random key of the operator's, so that rows can leave the store and
nobody is counted twice.  ``never``: a person counts on the first night that brings rows of theirs, and what comes of
them later, late rows and corrections included, is dropped.  ``capped``: a person counts with at most m episodes over
all nights, each once, as it was first delivered.

Every choice looks at one person's own rows and hashes only, so replacing somebody changes nobody else's part in any
leaf (privacy.md §1.2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.logs.aggregate import Tables, count_rows, needed
from pipeline.logs.keyed_hash import keyed_hash
from pipeline.logs.schema import CANONICAL
from pipeline.logs.store import Snapshot

Hashes = NDArray[np.uint64]

_USER, _EPISODE = ["u0", "u1"], ["e0", "e1"]


def hash_width(card: Card) -> int:
    """Words of a kept hash: two of the user, and where episodes are capped two more of the episode."""
    return 2 if card.unit.recurs == "never" else 4


def count_newcomers(snapshots: Sequence[Snapshot], card: Card, seen: Hashes, key: bytes) -> tuple[Tables, Hashes]:
    """Count what is new in the snapshots, in their order, a partition in memory at a time.

    Parameters
    ----------
    seen
        ``(n, hash_width)`` of all nights so far.
    key
        The operator's random key of these hashes.

    Returns
    -------
    Tables as :func:`~pipeline.logs.aggregate.count_rows` gives them, and the hashes ``(k, hash_width)`` to add.
    """
    sums = count_rows(_no_rows(card), card)
    known = _frame(seen)
    fresh = known.clear()
    for part in (p for s in snapshots for p in s.part_files):
        rows = pl.read_parquet(part, columns=needed(card))
        new = _new(rows, card, pl.concat([known, fresh]), key)
        on = ["user_id"] if card.unit.recurs == "never" else ["user_id", "episode_id"]
        counted = count_rows(rows.join(new, on=on, how="semi", maintain_order="left"), card)
        sums = {name: table + counted[name] for name, table in sums.items()}
        fresh = pl.concat([fresh, new.select(fresh.columns)])
    return sums, fresh.to_numpy().astype(np.uint64)


def _new(rows: pl.DataFrame, card: Card, seen: pl.DataFrame, key: bytes) -> pl.DataFrame:
    """Users, or users and episodes, that count from now on, with their hashes."""
    users = rows.select("user_id").unique(maintain_order=True)
    texts = users["user_id"].cast(pl.String)
    users = users.hstack(_hashed(texts, key, _USER))
    if card.unit.recurs == "never":
        return users.join(seen, on=_USER, how="anti", maintain_order="left")
    episodes = rows.select("user_id", "episode_id").unique(maintain_order=True).join(users, on="user_id", how="left")
    pairs = episodes.select(pl.format("{}\x1f{}", "user_id", "episode_id").alias("pair"))["pair"]
    episodes = episodes.hstack(_hashed(pairs, key, _EPISODE)).with_columns(keyed_hash(pairs, card.name).alias("order"))
    new = episodes.join(seen, on=_USER + _EPISODE, how="anti")
    used = seen.group_by(_USER).len("used")
    new = new.join(used, on=_USER, how="left").with_columns(pl.col("used").fill_null(0))
    # the order of ingest's cap, so that no episode is favoured for its number
    ranked = new.sort("user_id", "order", "episode_id")
    rank = pl.int_range(pl.len()).over("user_id")
    return ranked.filter(rank + pl.col("used") < card.unit.episodes_per_user)


def _hashed(texts: Iterable[str], key: bytes, names: list[str]) -> pl.DataFrame:
    digests = b"".join(hashlib.blake2b(t.encode(), key=key, digest_size=16).digest() for t in texts)
    return _named(np.frombuffer(digests, dtype="<u8").reshape(-1, 2), names)


def _frame(hashes: Hashes) -> pl.DataFrame:
    return _named(hashes, (_USER + _EPISODE)[: hashes.shape[1]])


def _named(words: Hashes, names: list[str]) -> pl.DataFrame:
    return pl.DataFrame([pl.Series(n, words[:, i].astype(np.uint64)) for i, n in enumerate(names)])


def _no_rows(card: Card) -> pl.DataFrame:
    return pl.DataFrame(schema={name: CANONICAL[name] for name in needed(card)})
