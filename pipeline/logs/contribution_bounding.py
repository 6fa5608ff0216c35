"""People: the canonical form of their ids, which rows of a person count, and who was counted on an earlier night.

One record without an id turns a column of integers into floats in much software.  Were ``7`` and ``7.0`` two people,
that record would make all people new: it would change how the rows of all others are keyed, and each of them would be
counted twice.  So an integer that became a float is the integer, blanks around an id mean nothing, and Unicode is
composed (NFC).  All other ids that differ are different people: ``7777`` and ``07777``, ``7`` in full width.  A lineage
of an older version knows people under their ids as delivered: see :func:`spellings`.

Every choice depends on one person's rows and hashes only, so replacing one person changes no other person's part in
any table (privacy.md §1.2).  The store keeps 128-bit hashes, under a random key, of those who were counted; so rows
may leave the store, and still no person is counted twice.  The cap on episodes of one ingest is applied in
:mod:`pipeline.logs.ingest`.  ``never``: a person counts on the first night that brings rows of theirs, and later rows,
corrections included, are dropped.  ``capped``: a person counts with at most m episodes over all nights, each once, as
it was first delivered.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
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

from pipeline.arrays import Bools, Hashes
from pipeline.declaration.card import AnyCard, Card
from pipeline.declaration.toml import DamagedError

USER, DELIVERED = "raw_user", "delivered"
"""Columns of spilt rows: the canonical id, and the id as the file has it if that differs; else null."""

IDS = 1
"""Version of the canonical form; snapshots of older versions have 0, and hold ids as delivered."""

_NOTE = b"delivered"
# most texts of a person in the note, and most bytes of one: a file whose note is too long cannot be read
_TEXTS, _TEXT_BYTES = 16, 1 << 10
# from this value on a float stands for several integers
_EXACT = {"Float16": 2.0**11, "Float32": 2.0**24}
_EXACT_DOUBLE = 2.0**53
# whatever has none of this has the canonical form: a blank, a plus sign, other than ASCII, or ".0" at its end
_ODD = r"[^!-*,-~]|\.0$"
_LARGE = r"^-?(?:[0-9]{16,}\.0|[0-9](?:\.[0-9]+)?[eE]\+[0-9]{2,3})$"


def canonical(text: pl.Expr) -> pl.Expr:
    """Canonical form of ids that are text."""
    # [0-9], not \d: digits of other scripts are other ids
    return text.str.strip_chars().str.normalize("NFC").str.replace(r"^(-?[0-9]+)\.0$", "$1")


def one_form(person: str) -> str:
    """Canonical form of one id."""
    return pl.select(canonical(pl.lit(person))).item()


def spellings(person: pl.Expr) -> list[pl.Expr]:
    """Other texts under which an older version may know a person; null if there is none."""
    decomposed = person.str.normalize("NFD")
    return [
        pl.when(person.str.contains(r"^-?[0-9]+$")).then(pl.concat_str(person, pl.lit(".0"))),
        pl.when(decomposed != person).then(decomposed),
    ]


def person_key(cell: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Key that distinguishes people in a reader that numbers the rows of each."""
    return canonical(cell.cast(pl.String)) if dtype.base_type() in (pl.String, pl.Categorical, pl.Enum) else cell


def numbers_as_text(cell: pl.Series) -> pl.DataFrame:
    """Convert ids that are floats or decimals to ``raw_user`` and ``delivered``.

    A float from 2⁵³ on (of 32 bits from 2²⁴) stands for several people: its ``raw_user`` is null.
    """
    x = pl.first()
    if cell.dtype.is_decimal():
        # trailing zeros are removed: one record that widens the column changes no other id
        text = x.cast(pl.String).str.replace(r"(\.[0-9]*?)0+$", "$1").str.strip_suffix(".")
        return cell.to_frame().select(text.alias(USER), pl.lit(None, dtype=pl.String).alias(DELIVERED))
    most = _EXACT.get(str(cell.dtype), _EXACT_DOUBLE)
    exact = x.is_not_nan() & (x.abs() < most)
    integer = pl.when(exact & (x == x.floor())).then(x).cast(pl.Int64)
    return cell.to_frame().select(
        pl.coalesce(integer.cast(pl.String), pl.when(exact).then(x).cast(pl.String)).alias(USER),
        pl.when(x.is_not_nan() & (x.abs() >= most)).then(x).cast(pl.String).alias(DELIVERED),
    )


def respell(users: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Canonical form of ids that are text, and the ids as delivered where these differ."""
    # rows of one person mostly stand together, and most ids have the canonical form already
    first = _begins(users)
    stretches, exact = users.filter(first), pl.when(~_inexact(pl.first())).then(canonical(pl.first()))
    odd = stretches.filter(stretches.str.contains(_ODD)).unique().to_frame()
    if not odd.select(exact.ne_missing(pl.first())).to_series().any():
        return users, pl.Series(DELIVERED, [None], dtype=pl.Null).new_from_index(0, len(users))
    respelt = stretches.to_frame().select(exact).to_series().gather(first.cum_sum() - 1)
    return respelt, users.set(respelt.eq_missing(users), None).alias(DELIVERED)


def _begins(cells: pl.Series) -> pl.Series:
    """Mark of cells that differ from the one before, or may."""
    return (cells != cells.shift()).fill_null(value=True)


def _inexact(text: pl.Expr) -> pl.Expr:
    """Mark of texts that may be floats from 2⁵³ on."""
    text = text.str.strip_chars()
    return text.str.contains(_LARGE) & (text.cast(pl.Float64, strict=False).abs() >= _EXACT_DOUBLE)


def with_ids(frame: pl.DataFrame, stored: pl.Series) -> pl.DataFrame:
    """Rows with canonical ids, and ``delivered``.

    ``frame``: has ``raw_user``: integers, or text.
    """
    users = frame[USER]
    if stored.dtype.is_float() or stored.dtype.is_decimal():
        return frame.with_columns(numbers_as_text(stored))
    if users.dtype == pl.String:
        return frame.with_columns(*respell(users))
    return frame.with_columns(pl.lit(None, dtype=pl.Null).alias(DELIVERED))


def in_two_spellings(raw: pl.DataFrame) -> pl.Series:
    """Positions in ``raw`` of rows with an id that is not canonical, of people with several spellings."""
    if DELIVERED not in raw.columns:
        return pl.Series(dtype=pl.Int64)
    ids = raw.select(USER, pl.coalesce(DELIVERED, pl.col(USER).cast(pl.String)).alias("as"))
    pairs = ids.filter(_begins(ids[USER]) | _begins(ids["as"])).unique()
    several = pairs.filter(pl.col(USER).is_duplicated())[USER].unique()
    rows = pl.int_range(len(raw), dtype=pl.Int64, eager=True).alias("row")
    if several.is_empty():
        return rows.clear()
    return rows.filter(raw[DELIVERED].is_not_null() & raw[USER].is_in(several.implode()))


def delivered_as(raw: pl.DataFrame, users: pl.Series) -> dict[bytes, str]:
    """Note of a part file: the first delivered ids of its people that do not follow from the canonical ones."""
    if DELIVERED not in raw.columns:
        return {}
    delivered = raw.filter(_begins(raw[DELIVERED])).select(pl.col(USER).cast(pl.String).alias("person"), DELIVERED)
    follows = [pl.col(DELIVERED).eq_missing(text) for text in spellings(pl.col("person"))]
    short = pl.col(DELIVERED).str.len_bytes() <= _TEXT_BYTES
    odd = delivered.drop_nulls().filter(short & ~pl.any_horizontal(follows)).unique(maintain_order=True)
    odd = odd.filter(pl.int_range(pl.len()).over("person") < _TEXTS)
    if odd.is_empty():
        return {}
    kept_users = users.unique().to_frame("person").select(canonical(pl.col("person").cast(pl.String)))
    odd = odd.join(kept_users, on="person", how="semi", maintain_order="left")
    return {_NOTE: json.dumps(odd.rows())} if len(odd) else {}


def delivered_texts(part: Path) -> pl.DataFrame:
    """Columns ``person`` and ``text`` of a part file's note."""
    note = (pq.read_schema(part).metadata or {}).get(_NOTE, b"[]")
    return pl.DataFrame(json.loads(note), schema={"person": pl.String, "text": pl.String}, orient="row")


def as_known(raw: pl.DataFrame, renamed: pl.DataFrame) -> pl.DataFrame:
    """Rows under the ids by which their lineage knows people from an older version."""
    if renamed.is_empty():
        return raw
    text = raw[USER].cast(pl.String)
    ids = text.replace(renamed["person"], renamed["known"])
    recorded = pl.col(DELIVERED) if DELIVERED in raw.columns else pl.lit(None, dtype=pl.String)
    delivered = pl.when(ids != text).then(pl.coalesce(recorded, text)).otherwise(recorded)
    return raw.with_columns(ids.alias(USER), delivered.alias(DELIVERED))


_AT_ONCE = 1024


def keyed_hash(texts: Iterable[str], salt: str) -> pl.Series:
    """Hash each text; call it on distinct users or episodes, never on rows.

    ``salt``: public key of the hash, its first 64 bytes.
    Returns UInt64 series, as long as ``texts``.
    """
    # little-endian is explicit: hashes must not depend on the machine
    return pl.Series(np.frombuffer(digests(texts, salt.encode()), dtype="<u8"))


def digests(texts: Iterable[str], key: bytes, size: int = 8) -> bytes:
    """BLAKE2b digests of ``size`` bytes of texts, one after the other; the key is the first 64 bytes of ``key``."""
    keyed, joined = hashlib.blake2b(key=key[:64], digest_size=size), b""
    cells = pl.Series(texts, dtype=pl.String)
    for piece in cells.cast(pl.Binary).to_frame().iter_slices(_AT_ONCE):
        # without a line of Python for each text
        hashes = [*map(type(keyed).copy, repeat(keyed, len(piece)))]
        deque(map(type(keyed).update, hashes, piece.to_series().to_list()), maxlen=0)
        joined += b"".join(map(type(keyed).digest, hashes))
    return joined


def needs_whole_users(card: Card) -> bool:
    """Whether a row's part in the tables depends on the person's other rows."""
    return _cap(card) is not None or total_steps(card) is not None


def _cap(card: Card) -> int | None:
    """Most steps of a person at one (s, a) that tables hold; None for tables by step, which need no cap.

    Linear policies are always measured by tables by step: a cap would only lose late steps.
    """
    return None if card.domain.dynamics == "per_step" else card.domain.cell_cap


def total_steps(card: Card) -> int | None:
    """Declared bound on a person's summed reward, in lattice steps; None if none is declared or no reward is read."""
    return card.reward.total_steps if card.reward.kind == "estimate" else None


# keys of a row, by which every sum checks that no person has more rows than the caps allow
IDENTITY = ("user_id", "episode_id", "step")
# larger temporary arrays are returned to the system and allocated anew each time: twice the cost
_PIECE_ROWS = 1 << 17


class CapsAgain:
    """Checks, in the rows that are summed, that ingest left each person at most m episodes of H steps, none twice.

    Every sensitivity depends on it, so it is checked again.

    ``lengths``: rows of each part file that will be read, in this order; within a file they are sorted by user,
    episode, step.
    """

    def __init__(self, card: AnyCard, lengths: Sequence[int]) -> None:
        self._card, self._ends = card, set(accumulate(lengths))
        self._at, self._episodes = 0, 0
        self._last: tuple[Any, ...] | None = None

    def check(self, batch: pl.DataFrame) -> None:
        """Check the next rows.

        Raises DamagedError if a person has more, or the rows are out of order.
        """
        rows, cuts = batch[IDENTITY], {end - self._at for end in self._ends}
        cuts |= {0, len(rows), *range(0, len(rows), _PIECE_ROWS)}
        for low, high in pairwise(sorted(cut for cut in cuts if 0 <= cut <= len(rows))):
            self._follow(rows.slice(low, high - low))
            if self._at + high in self._ends:
                self._last, self._episodes = None, 0
        self._at += len(batch)

    def _follow(self, rows: pl.DataFrame) -> None:
        """Check rows of one file that follow the last row, whose person has had some episodes."""
        previous, first, step = self._last, rows.row(0), rows["step"].to_numpy()
        same_user = previous is not None and previous[0] == first[0]
        same_episode = same_user and previous is not None and previous[1] == first[1]
        new_user = _changes(rows["user_id"])
        new_episode = new_user | _changes(rows["episode_id"])
        wrong = not (new_episode | (step[1:] > step[:-1])).all()
        wrong |= previous is not None and previous >= first
        # checked once for each episode, not for each row
        changes = np.flatnonzero(new_episode)
        starts = np.concatenate([[0], changes + 1])
        wrong |= not step[starts].min() >= 0 or max(step[changes].max(initial=0), step[-1]) >= self._card.domain.horizon
        of_user = np.concatenate([[not same_user], new_user[changes]])
        episodes = rows["episode_id"].to_numpy()[starts]
        wrong |= not rows["user_id"].is_sorted() or bool((episodes[1:] < episodes[:-1])[~of_user[1:]].any())
        # episodes of the person of the row before, then of each new person
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
    """Mark of rows, from the second on, whose key differs from that of the row before."""
    if keys.dtype.is_integer() and not keys.null_count():
        numbers = keys.to_numpy()
        return numbers[1:] != numbers[:-1]
    return keys[1:].ne_missing(keys[:-1]).to_numpy()


def group_users(batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Regroup batches of rows, sorted by user, into batches of whole users."""
    pending: pl.DataFrame | None = None
    for batch in batches:
        rows = batch if pending is None else pl.concat([pending, batch])
        if rows.is_empty():
            continue
        users = rows["user_id"]
        # the last user of a batch may go on in the next
        cut = (users == users[-1]).arg_max() or 0
        if cut:
            yield rows[:cut]
        pending = rows[cut:]
    if pending is not None:
        yield pending


def cap_cells(rows: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Set the successor of a user's steps beyond the first ``cell_cap`` at each (s, a) to null: no table counts them.

    "First" is in (keyed hash of episode, step) order, among rows whose successor is known (§0.1-20).
    """
    if (cap := _cap(card)) is None:
        return rows
    if card.unit.episodes_per_user > 1:
        rows = _in_keyed_order(rows, card.name.encode())
    group = ["user_id", "state", "action"]
    counted = _running_sum(pl.col("next_state").is_not_null().cast(pl.Int64), group) <= cap
    # sorting and one pass: a window over so many groups is ten times slower
    return rows.sort(group, maintain_order=True).with_columns(pl.when(counted).then("next_state").alias("next_state"))


def cap_rewards(rows: pl.DataFrame, total: int) -> pl.DataFrame:
    """Cut a person's lattice steps ``k``, in (episode, step) order, once their sum reaches ``total``; then 0.

    Rows without a successor enter no table and do not count towards the total.
    """
    rows = rows.with_columns(pl.when(pl.col("next_state").is_not_null()).then("k").otherwise(0).alias("k"))
    remaining = total - (_running_sum(pl.col("k"), ["user_id"]) - pl.col("k"))
    rows = rows.sort("user_id", "episode_id", "step", maintain_order=True)
    return rows.with_columns(pl.min_horizontal(pl.col("k"), remaining.clip(lower_bound=0)).alias("k"))


def _running_sum(values: pl.Expr, group: list[str]) -> pl.Expr:
    """Running sum that restarts whenever a column of ``group`` changes."""
    total = values.cum_sum()
    begins = pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in group)
    return total - pl.when(begins).then(total - values).forward_fill()


def _in_keyed_order(rows: pl.DataFrame, key: bytes) -> pl.DataFrame:
    """Sort a user's episodes by keyed hash, so that no episode is favoured for its number."""
    episodes = rows.select("user_id", "episode_id").unique(maintain_order=True)
    pairs = episodes.select(pl.format("{}|{}", "user_id", "episode_id")).to_series()
    order = np.frombuffer(digests(pairs, key), dtype=">u8").astype(np.uint64)
    ordered = episodes.with_columns(pl.Series("_order", order))
    rows = rows.join(ordered, on=["user_id", "episode_id"], how="left")
    return rows.sort("user_id", "_order", "episode_id", "step").drop("_order")


_USER, _EPISODE = ["u0", "u1"], ["e0", "e1"]
_EARLIER = ["t0", "t1"]


def hash_width(card: Card) -> int:
    """Words of a kept hash: two for the user, and if episodes are capped two more for the episode.

    ``card``: its ``unit.recurs``: ``never`` or ``capped``.
    """
    return 2 if card.unit.recurs == "never" else 4


def pick_new(rows: pl.DataFrame, card: Card, seen: pl.DataFrame, key: bytes, delivered: pl.DataFrame) -> pl.DataFrame:
    """Users, or users and episodes, that count from now on, with the hashes of their canonical ids.

    An older version hashed ids as ``delivered`` (:func:`delivered_texts`): people whom it counted are recognised by
    such a text, too.
    """
    text = pl.col("user_id").cast(pl.String)
    users = rows.select("user_id").unique(maintain_order=True).with_columns(canonical(text).alias("person"))
    # a snapshot of an older version may hold a person in two spellings
    users = users.unique("person", keep="first", maintain_order=True)
    users = users.hstack(_hash_texts(users["person"], key, _USER))
    if card.unit.recurs == "never":
        new = users.join(seen, on=_USER, how="anti", maintain_order="left")
        return new.join(_known_before(new, seen, key, delivered), on="person", how="anti", maintain_order="left")
    known_before = _known_before(users, seen, key, delivered)
    episodes = rows.select("user_id", "episode_id").unique(maintain_order=True).join(users, on="user_id")
    order = keyed_hash(pairs(episodes, "user_id"), card.name).alias("order")
    episodes = episodes.hstack(_hash_texts(pairs(episodes, "person"), key, _EPISODE)).with_columns(order)
    new = episodes.join(seen, on=_USER + _EPISODE, how="anti")
    # episodes that an older version counted, under its texts
    earlier = known_before.rename(dict(zip(_USER, _EARLIER, strict=True)))
    earlier = new.select("person", "episode_id").join(earlier, on="person")
    earlier = earlier.hstack(_hash_texts(pairs(earlier, "text"), key, _EPISODE))
    earlier = earlier.join(seen, left_on=_EARLIER + _EPISODE, right_on=_USER + _EPISODE, how="semi")
    new = new.join(earlier, on=["person", "episode_id"], how="anti")
    names = pl.concat([users.select("person", *_USER), known_before.select("person", *_USER)]).unique()
    used = names.join(seen.group_by(_USER).len("used"), on=_USER).group_by("person").agg(pl.col("used").sum())
    new = new.join(used, on="person", how="left").with_columns(pl.col("used").fill_null(0))
    # the order of ingest's cap, so that no episode is favoured for its number
    ranked = new.sort("person", "order", "episode_id")
    rank = pl.int_range(pl.len()).over("person")
    return ranked.filter(rank + pl.col("used") < card.unit.episodes_per_user)


def _known_before(users: pl.DataFrame, seen: pl.DataFrame, key: bytes, delivered: pl.DataFrame) -> pl.DataFrame:
    """Columns ``person``, ``text``, ``u0``, ``u1``: people known under another text than their canonical id."""
    delivered_id = pl.col("user_id").cast(pl.String)
    texts = [pl.when(delivered_id != pl.col("person")).then(delivered_id), *spellings(pl.col("person"))]
    candidates = [users.select("person", text.alias("text")).drop_nulls() for text in texts]
    candidates = pl.concat([*candidates, delivered.join(users, on="person", how="semi")]).unique()
    if seen.is_empty():
        candidates = candidates.clear()
    return candidates.hstack(_hash_texts(candidates["text"], key, _USER)).join(seen, on=_USER, how="semi")


def pairs(episodes: pl.DataFrame, user: str) -> pl.Series:
    """Texts of users and episodes, by which episodes are hashed."""
    return episodes.select(pl.format("{}\x1f{}", user, "episode_id").alias("pair"))["pair"]


def _hash_texts(texts: Iterable[str], key: bytes, names: list[str]) -> pl.DataFrame:
    words = np.frombuffer(digests(texts, key, 16), dtype="<u8")
    return pl.DataFrame(words.astype(np.uint64).reshape(-1, 2), names, orient="row")


def hash_frame(hashes: Hashes) -> pl.DataFrame:
    """Convert kept hashes to the columns of :func:`pick_new`'s ``seen``."""
    return pl.DataFrame(hashes.astype(np.uint64), (_USER + _EPISODE)[: hashes.shape[1]], orient="row")
