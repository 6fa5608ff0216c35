"""People: the one form of their ids, which rows of a person count, and who was counted on an earlier night.

One record without an id turns a column of integers into floats in much of the world's software.  Were ``7`` and ``7.0``
two people, that record would make everybody new: it would change how the rows of all others are keyed, and each of
them would be counted twice.  So an integer that became a float is the integer, blanks around an id mean nothing, and
Unicode is composed (NFC).  Everything else that differs stays two people: ``7777`` and ``07777``, ``7`` in full width.
A lineage that knew people before there was one form knows them under the text of then: see :func:`spellings`.

Every choice depends on one person's own rows and hashes only, so replacing one person changes nobody else's part in
any table (privacy.md §1.2).  The store keeps 128-bit hashes, under a random key, of those who were counted; so rows
may leave the store, and still no person is counted twice.  The cap on episodes of one ingest is applied elsewhere, in
:mod:`pipeline.logs.ingest`.  ``never``: a person counts on the first night that brings rows of theirs, and what
comes of them later, late rows and corrections included, is dropped.  ``capped``: a person counts with at most m
episodes over all nights, each once, as it was first delivered.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.arrays import Bools
from pipeline.declaration.card import AnyCard, Card
from pipeline.declaration.toml import DamagedError

USER, DELIVERED = "raw_user", "delivered"
"""Columns of spilt rows: the id in its one form, and as the file has it where that differs; else null."""

IDS = 1
"""Of the one form; snapshots of before there was one have 0, and hold ids as they were delivered."""

_NOTE = b"delivered"
# from here on a float stands for several integers
_EXACT = {"Float16": 2.0**11, "Float32": 2.0**24}
_EXACT_DOUBLE = 2.0**53
_LARGE = r"^-?(?:[0-9]{16,}\.0|[0-9](?:\.[0-9]+)?[eE]\+[0-9]{2,3})$"


def canonical(text: pl.Expr) -> pl.Expr:
    """The one form of ids that are text."""
    # [0-9], not \d: digits of other scripts are other ids
    return text.str.strip_chars().str.normalize("NFC").str.replace(r"^(-?[0-9]+)\.0$", "$1")


def spellings(person: pl.Expr) -> list[pl.Expr]:
    """Under which other texts somebody may be known from before there was one form; null where there is none."""
    decomposed = person.str.normalize("NFD")
    return [
        pl.when(person.str.contains(r"^-?[0-9]+$")).then(pl.concat_str(person, pl.lit(".0"))),
        pl.when(decomposed != person).then(decomposed),
    ]


def whose(cell: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """By what a reader tells people apart that numbers the rows of each."""
    return canonical(cell.cast(pl.String)) if dtype.base_type() in (pl.String, pl.Categorical, pl.Enum) else cell


def numbers_as_text(cell: pl.Series) -> pl.DataFrame:
    """Ids that are floats or decimals, as ``raw_user`` and ``delivered``.

    A float from 2⁵³ on (of 32 bits from 2²⁴) stands for several people: it has no id, and is delivered all the same.
    """
    x = pl.first()
    if cell.dtype.is_decimal():
        # of whatever scale: one record that widens the column makes nobody new
        text = x.cast(pl.String).str.replace(r"(\.[0-9]*?)0+$", "$1").str.strip_suffix(".")
        return cell.to_frame().select(text.alias(USER), pl.lit(None, dtype=pl.String).alias(DELIVERED))
    most = _EXACT.get(str(cell.dtype), _EXACT_DOUBLE)
    exact = x.is_not_nan() & (x.abs() < most)
    whole = pl.when(exact & (x == x.floor())).then(x).cast(pl.Int64)
    return cell.to_frame().select(
        pl.coalesce(whole.cast(pl.String), pl.when(exact).then(x).cast(pl.String)).alias(USER),
        pl.when(x.is_not_nan() & (x.abs() >= most)).then(x).cast(pl.String).alias(DELIVERED),
    )


def respell(users: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Ids that are text in their one form, and as they were delivered where that differs."""
    # rows of one person mostly stand together, and mostly every id has its form already
    first = _begins(users)
    stretches, exact = users.filter(first), pl.when(~_inexact(pl.first())).then(canonical(pl.first()))
    distinct = stretches.unique().to_frame()
    if not distinct.select(exact.ne_missing(pl.first())).to_series().any():
        return users, pl.Series(DELIVERED, [None], dtype=pl.Null).new_from_index(0, len(users))
    found = stretches.to_frame().select(exact).to_series().gather(first.cum_sum() - 1)
    return found, users.set(found.eq_missing(users), None).alias(DELIVERED)


def _begins(cells: pl.Series) -> pl.Series:
    """Whether each cell differs from the one before it, or may."""
    return (cells != cells.shift()).fill_null(value=True)


def _inexact(text: pl.Expr) -> pl.Expr:
    """Text that a float from 2⁵³ on was written as."""
    text = text.str.strip_chars()
    return text.str.contains(_LARGE) & (text.cast(pl.Float64, strict=False).abs() >= _EXACT_DOUBLE)


def with_ids(frame: pl.DataFrame, stored: pl.Series) -> pl.DataFrame:
    """Rows whose ids have their one form, with ``delivered``.

    ``frame``: has ``raw_user``: integers, or text.
    """
    users = frame[USER]
    if stored.dtype.is_float() or stored.dtype.is_decimal():
        return frame.with_columns(numbers_as_text(stored))
    if users.dtype == pl.String:
        return frame.with_columns(*respell(users))
    return frame.with_columns(pl.lit(None, dtype=pl.Null).alias(DELIVERED))


def in_two_spellings(raw: pl.DataFrame) -> pl.Series:
    """Places in ``raw`` of rows under another spelling than the one form, of people who have rows under several."""
    if DELIVERED not in raw.columns:
        return pl.Series(dtype=pl.Int64)
    told = raw.select(USER, pl.coalesce(DELIVERED, pl.col(USER).cast(pl.String)).alias("as"))
    pairs = told.filter(_begins(told[USER]) | _begins(told["as"])).unique()
    several = pairs.filter(pl.col(USER).is_duplicated())[USER].unique()
    rows = pl.int_range(len(raw), dtype=pl.Int64, eager=True).alias("row")
    if several.is_empty():
        return rows.clear()
    return rows.filter(raw[DELIVERED].is_not_null() & raw[USER].is_in(several.implode()))


def delivered_as(raw: pl.DataFrame, users: pl.Series) -> dict[bytes, str]:
    """What a part file notes: other texts its people were delivered under that do not follow from
    their id's one form.
    """
    if DELIVERED not in raw.columns:
        return {}
    told = raw.filter(_begins(raw[DELIVERED])).select(pl.col(USER).cast(pl.String).alias("person"), DELIVERED)
    follows = [pl.col(DELIVERED).eq_missing(text) for text in spellings(pl.col("person"))]
    odd = told.drop_nulls().filter(~pl.any_horizontal(follows)).unique(maintain_order=True)
    if odd.is_empty():
        return {}
    stay = users.unique().to_frame("person").select(canonical(pl.col("person").cast(pl.String)))
    odd = odd.join(stay, on="person", how="semi", maintain_order="left")
    return {_NOTE: json.dumps(odd.rows())} if len(odd) else {}


def delivered_texts(part: Path) -> pl.DataFrame:
    """``person`` and ``text``, as a part file notes them."""
    note = (pq.read_schema(part).metadata or {}).get(_NOTE, b"[]")
    return pl.DataFrame(json.loads(note), schema={"person": pl.String, "text": pl.String}, orient="row")


def as_known(raw: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Rows under the ids by which their lineage knows people from before there was one form."""
    if known.is_empty():
        return raw
    text = raw[USER].cast(pl.String)
    found = text.replace(known["person"], known["known"])
    here = pl.col(DELIVERED) if DELIVERED in raw.columns else pl.lit(None, dtype=pl.String)
    delivered = pl.when(found != text).then(pl.coalesce(here, text)).otherwise(here)
    return raw.with_columns(found.alias(USER), delivered.alias(DELIVERED))


_AT_ONCE = 1024


def keyed_hash(texts: Iterable[str], salt: str) -> pl.Series:
    """Hash each text; call it on distinct users or episodes, never on rows.

    ``salt``: public key of the hash, its first 64 bytes.
    Returns UInt64 series, as long as ``texts``.
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

    ``lengths``: rows of each part file that will be read, in this order; within a file they are sorted by user,
    episode, step.
    """

    def __init__(self, card: AnyCard, lengths: Sequence[int]) -> None:
        self._card, self._ends = card, set(accumulate(lengths))
        self._at, self._episodes = 0, 0
        self._last: tuple[Any, ...] | None = None

    def check(self, batch: pl.DataFrame) -> None:
        """Check the rows that come next.

        Raises DamagedError if somebody has more, or the rows are out of order.
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


def _changes(keys: pl.Series) -> Bools:
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
_THEN = ["t0", "t1"]


def hash_width(card: Card) -> int:
    """Words of a kept hash: two of the user, and where episodes are capped two more of the episode.

    ``card``: its ``unit.recurs``: ``never`` or ``capped``.
    """
    return 2 if card.unit.recurs == "never" else 4


def pick_new(rows: pl.DataFrame, card: Card, seen: pl.DataFrame, key: bytes, delivered: pl.DataFrame) -> pl.DataFrame:
    """Users, or users and episodes, that count from now on, with the hashes of their ids in their one form.

    An older version hashed ids as they were ``delivered`` (:func:`delivered_texts`): whom it
    counted is known under such a text too.
    """
    text = pl.col("user_id").cast(pl.String)
    users = rows.select("user_id").unique(maintain_order=True).with_columns(canonical(text).alias("person"))
    # a snapshot of an older version may hold somebody in two spellings
    users = users.unique("person", keep="first", maintain_order=True)
    users = users.hstack(_hash_texts(users["person"], key, _USER))
    if card.unit.recurs == "never":
        new = users.join(seen, on=_USER, how="anti", maintain_order="left")
        return new.join(_known_before(new, seen, key, delivered), on="person", how="anti", maintain_order="left")
    before = _known_before(users, seen, key, delivered)
    episodes = rows.select("user_id", "episode_id").unique(maintain_order=True).join(users, on="user_id")
    episodes = episodes.hstack(_hash_texts(_pairs(episodes, "person"), key, _EPISODE)).with_columns(
        keyed_hash(_pairs(episodes, "user_id"), card.name).alias("order")
    )
    new = episodes.join(seen, on=_USER + _EPISODE, how="anti")
    # their episodes of then, under the text of then
    then = new.select("person", "episode_id").join(before.rename(dict(zip(_USER, _THEN, strict=True))), on="person")
    then = then.hstack(_hash_texts(_pairs(then, "text"), key, _EPISODE))
    then = then.join(seen, left_on=_THEN + _EPISODE, right_on=_USER + _EPISODE, how="semi")
    new = new.join(then, on=["person", "episode_id"], how="anti")
    names = pl.concat([users.select("person", *_USER), before.select("person", *_USER)]).unique()
    used = names.join(seen.group_by(_USER).len("used"), on=_USER).group_by("person").agg(pl.col("used").sum())
    new = new.join(used, on="person", how="left").with_columns(pl.col("used").fill_null(0))
    # the order of ingest's cap, so that no episode is favoured for its number
    ranked = new.sort("person", "order", "episode_id")
    rank = pl.int_range(pl.len()).over("person")
    return ranked.filter(rank + pl.col("used") < card.unit.episodes_per_user)


def _known_before(users: pl.DataFrame, seen: pl.DataFrame, key: bytes, delivered: pl.DataFrame) -> pl.DataFrame:
    """``person``, ``text``, ``u0``, ``u1``: who is known under another text than the one form of their id."""
    other = pl.col("user_id").cast(pl.String)
    texts = [pl.when(other != pl.col("person")).then(other), *spellings(pl.col("person"))]
    told = [users.select("person", text.alias("text")).drop_nulls() for text in texts]
    told = pl.concat([*told, delivered.join(users, on="person", how="semi")]).unique()
    if seen.is_empty():
        told = told.clear()
    return told.hstack(_hash_texts(told["text"], key, _USER)).join(seen, on=_USER, how="semi")


def _pairs(episodes: pl.DataFrame, user: str) -> pl.Series:
    return episodes.select(pl.format("{}\x1f{}", user, "episode_id").alias("pair"))["pair"]


def _hash_texts(texts: Iterable[str], key: bytes, names: list[str]) -> pl.DataFrame:
    digests = b"".join(hashlib.blake2b(t.encode(), key=key, digest_size=16).digest() for t in texts)
    return _word_columns(np.frombuffer(digests, dtype="<u8").reshape(-1, 2), names)


def hash_frame(hashes: Hashes) -> pl.DataFrame:
    """Kept hashes as the columns that :func:`pick_new` compares with."""
    return _word_columns(hashes, (_USER + _EPISODE)[: hashes.shape[1]])


def _word_columns(words: Hashes, names: list[str]) -> pl.DataFrame:
    return pl.DataFrame([pl.Series(n, words[:, i].astype(np.uint64)) for i, n in enumerate(names)])
