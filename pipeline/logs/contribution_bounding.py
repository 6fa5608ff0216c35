"""Which rows of a person count: caps on one person's contribution, and who was counted on an earlier night.

Every choice depends on one person's own rows and hashes only, so replacing one person changes nobody else's part in
any table (privacy.md §1.2).  The store keeps 128-bit hashes, under a random key, of those who were counted; so rows
may leave the store, and still no person is counted twice.  The cap on episodes of one ingest is applied elsewhere, in
:mod:`pipeline.logs.screening`.  ``never``: a person counts on the first night that brings rows of
theirs, and what comes of them later, late rows and corrections included, is dropped.  ``capped``: a person counts with
at most m episodes over all nights, each once, as it was first delivered.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import AnyCard, Card
from pipeline.declaration.toml import DamagedError

_AT_ONCE = 1024


def keyed_hash(texts: Iterable[str], salt: str) -> pl.Series:
    """Hash each text; call it on distinct users or episodes, never on rows.

    Parameters
    ----------
    texts
        Distinct ids of users or episodes.
    salt
        Public key of the hash, its first 64 bytes.

    Returns
    -------
    UInt64 series, as long as ``texts``.
    """
    empty, cells, found = hashlib.blake2b(key=salt.encode()[:64], digest_size=8), pl.Series(texts, dtype=pl.String), b""
    for some in cells.cast(pl.Binary).to_frame().iter_slices(_AT_ONCE):
        # without a line of Python for each of them
        hashes = [*map(type(empty).copy, repeat(empty, len(some)))]
        deque(map(type(empty).update, hashes, some.to_series().to_list()), maxlen=0)
        found += b"".join(map(type(empty).digest, hashes))
    # little-endian is spelt out: the choice must not depend on the machine
    return pl.Series(np.frombuffer(found, dtype="<u8"))


def needs_whole_users(card: Card) -> bool:
    """Whether a row's part in the tables depends on the person's other rows."""
    return _cap(card) is not None or total_steps(card) is not None


def _cap(card: Card) -> int | None:
    """Most steps of a person at one (s, a) that tables hold; None where a table is of one step, which no cap bounds.

    Linear policies are measured by tables by step on whatever card: a cap would forget late steps and spare nothing.
    """
    return None if card.domain.dynamics == "per_step" else card.domain.cell_cap


def total_steps(card: Card) -> int | None:
    """Declared bound on a person's summed reward, in lattice steps; None if none is declared or no reward is read."""
    return card.reward.total_steps if card.reward.kind == "estimate" else None


# whose row it is; with them every sum reads that nobody has more rows than their share
IDENTITY = ("user_id", "episode_id", "step")
# larger temporaries go back to the system and are fetched again every time: twice the cost
_PIECE_ROWS = 1 << 17


class CapsAgain:
    """Checks, in the rows that are summed, that ingest left each person at most m episodes of H steps, none twice.

    Every sensitivity rests on that, so it is not believed but read again.

    Parameters
    ----------
    card
        Declares m and H.
    lengths
        Rows of each part file that will be read, in this order; within a file they are sorted by user, episode, step.
    """

    def __init__(self, card: AnyCard, lengths: Sequence[int]) -> None:
        self._card, self._ends = card, set(accumulate(lengths))
        self._at, self._episodes = 0, 0
        self._last: tuple[Any, ...] | None = None

    def check(self, batch: pl.DataFrame) -> None:
        """Check the rows that come next.

        Raises
        ------
        DamagedError
            If somebody has more, or the rows are out of order.
        """
        rows, cuts = batch[IDENTITY], {end - self._at for end in self._ends}
        cuts |= {0, len(rows), *range(0, len(rows), _PIECE_ROWS)}
        for low, high in pairwise(sorted(cut for cut in cuts if 0 <= cut <= len(rows))):
            self._follow(rows.slice(low, high - low))
            if self._at + high in self._ends:
                self._last, self._episodes = None, 0
        self._at += len(batch)

    def _follow(self, rows: pl.DataFrame) -> None:
        """Rows of one file, after the row ``last`` of a person who has had some episodes."""
        before, first, step = self._last, rows.row(0), rows["step"].to_numpy()
        same_user = before is not None and before[0] == first[0]
        same_episode = same_user and before is not None and before[1] == first[1]
        new_user = _changes(rows["user_id"])
        new_episode = new_user | _changes(rows["episode_id"])
        wrong = not (new_episode | (step[1:] > step[:-1])).all()
        wrong |= before is not None and before >= first
        # what is sorted is looked at once an episode, not once a row
        later = np.flatnonzero(new_episode)
        starts = np.concatenate([[0], later + 1])
        wrong |= not step[starts].min() >= 0 or max(step[later].max(initial=0), step[-1]) >= self._card.domain.horizon
        of_user = np.concatenate([[not same_user], new_user[later]])
        which = rows["episode_id"].to_numpy()[starts]
        wrong |= not rows["user_id"].is_sorted() or bool((which[1:] < which[:-1])[~of_user[1:]].any())
        # episodes of the person of the row before, then of each person who begins here
        ends = np.concatenate([[0], np.flatnonzero(of_user), [len(starts)]])
        counts = ends[1:] - ends[:-1]
        counts[0] += self._episodes * same_user - same_episode
        if wrong or counts.max() > self._card.unit.episodes_per_user:
            raise DamagedError(
                f"{self._card.name}: a part file holds more of somebody than ingest keeps, or is out of "
                "order: it is not what ingest wrote. Ingest again"
            )
        self._last, self._episodes = rows.row(-1), int(counts[-1])


def _changes(keys: pl.Series) -> NDArray[np.bool_]:
    """Whether each row but the first has another key than the row before it."""
    if keys.dtype.is_integer() and not keys.null_count():
        numbers = keys.to_numpy()
        return numbers[1:] != numbers[:-1]
    return keys[1:].ne_missing(keys[:-1]).to_numpy()


def group_users(batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same rows, which are sorted by user, cut between users."""
    held: pl.DataFrame | None = None
    for batch in batches:
        rows = batch if held is None else pl.concat([held, batch])
        if rows.is_empty():
            continue
        users = rows["user_id"]
        # the last user of a batch may go on in the next
        cut = (users == users[-1]).arg_max() or 0
        if cut:
            yield rows[:cut]
        held = rows[cut:]
    if held is not None:
        yield held


def cap_cells(rows: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Forget the successor of a user's steps beyond the first ``cell_cap`` at each (s, a): no table counts them.

    "First" is in (keyed hash of episode, step) order, among rows whose successor is known (§0.1-20).
    """
    if (cap := _cap(card)) is None:
        return rows
    if card.unit.episodes_per_user > 1:
        rows = _in_keyed_order(rows, card.name.encode())
    group = ["user_id", "state", "action"]
    known = pl.col("next_state").is_not_null().cast(pl.Int64)
    kept = _running_sum(known, group) <= cap
    # sorting and one pass: a window over as many groups is ten times slower
    return rows.sort(group, maintain_order=True).with_columns(pl.when(kept).then("next_state").alias("next_state"))


def cap_rewards(rows: pl.DataFrame, total: int) -> pl.DataFrame:
    """A person's lattice steps ``k`` in (episode, step) order until their sum reaches ``total``, then 0.

    Rows without a successor enter no table, so they use nothing up.
    """
    rows = rows.with_columns(pl.when(pl.col("next_state").is_not_null()).then("k").otherwise(0).alias("k"))
    left = total - (_running_sum(pl.col("k"), ["user_id"]) - pl.col("k"))
    rows = rows.sort("user_id", "episode_id", "step", maintain_order=True)
    return rows.with_columns(pl.min_horizontal(pl.col("k"), left.clip(lower_bound=0)).alias("k"))


def _running_sum(values: pl.Expr, group: list[str]) -> pl.Expr:
    """Running sum that starts anew wherever a column of ``group`` changes."""
    total = values.cum_sum()
    begins = pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in group)
    return total - pl.when(begins).then(total - values).forward_fill()


def _in_keyed_order(rows: pl.DataFrame, key: bytes) -> pl.DataFrame:
    """A user's episodes by keyed hash, so that no episode is favoured for its number."""
    episodes = rows.select("user_id", "episode_id").unique(maintain_order=True)
    digests = [
        int.from_bytes(hashlib.blake2b(f"{user}|{episode}".encode(), key=key[:64], digest_size=8).digest(), "big")
        for user, episode in episodes.iter_rows()
    ]
    ordered = episodes.with_columns(pl.Series("_order", digests, dtype=pl.UInt64))
    rows = rows.join(ordered, on=["user_id", "episode_id"], how="left")
    return rows.sort("user_id", "_order", "episode_id", "step").drop("_order")


Hashes = NDArray[np.uint64]

_USER, _EPISODE = ["u0", "u1"], ["e0", "e1"]


def hash_width(card: Card) -> int:
    """Words of a kept hash: two of the user, and where episodes are capped two more of the episode.

    Parameters
    ----------
    card
        Its ``unit.recurs``: ``never`` or ``capped``.
    """
    return 2 if card.unit.recurs == "never" else 4


def pick_new(rows: pl.DataFrame, card: Card, seen: pl.DataFrame, key: bytes) -> pl.DataFrame:
    """Users, or users and episodes, that count from now on, with their hashes."""
    users = rows.select("user_id").unique(maintain_order=True)
    texts = users["user_id"].cast(pl.String)
    users = users.hstack(_hash_texts(texts, key, _USER))
    if card.unit.recurs == "never":
        return users.join(seen, on=_USER, how="anti", maintain_order="left")
    episodes = rows.select("user_id", "episode_id").unique(maintain_order=True).join(users, on="user_id", how="left")
    pairs = episodes.select(pl.format("{}\x1f{}", "user_id", "episode_id").alias("pair"))["pair"]
    episodes = episodes.hstack(_hash_texts(pairs, key, _EPISODE)).with_columns(
        keyed_hash(pairs, card.name).alias("order")
    )
    new = episodes.join(seen, on=_USER + _EPISODE, how="anti")
    used = seen.group_by(_USER).len("used")
    new = new.join(used, on=_USER, how="left").with_columns(pl.col("used").fill_null(0))
    # the order of ingest's cap, so that no episode is favoured for its number
    ranked = new.sort("user_id", "order", "episode_id")
    rank = pl.int_range(pl.len()).over("user_id")
    return ranked.filter(rank + pl.col("used") < card.unit.episodes_per_user)


def _hash_texts(texts: Iterable[str], key: bytes, names: list[str]) -> pl.DataFrame:
    digests = b"".join(hashlib.blake2b(t.encode(), key=key, digest_size=16).digest() for t in texts)
    return _word_columns(np.frombuffer(digests, dtype="<u8").reshape(-1, 2), names)


def hash_frame(hashes: Hashes) -> pl.DataFrame:
    """Kept hashes as the columns that :func:`pick_new` compares with."""
    return _word_columns(hashes, (_USER + _EPISODE)[: hashes.shape[1]])


def _word_columns(words: Hashes, names: list[str]) -> pl.DataFrame:
    return pl.DataFrame([pl.Series(n, words[:, i].astype(np.uint64)) for i, n in enumerate(names)])
