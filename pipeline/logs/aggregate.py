"""Count tables of a snapshot: canonical rows -> exact int64 sums, each user's contribution bounded.

:mod:`pipeline.statistics.count_layout` bounds these sums; the enumeration test runs this code.
A user's contribution depends on that user's rows alone, so replacing a user changes nothing else (privacy.md §1.2).
Every row has one place in one table ``(step, s, a, s' or unknown)``, computed by polars and counted by numpy; all
counts are sums of this table.  Rows are read in batches, so memory does not depend on their number.

A night of a counter adds new people, each in one leaf; a person's part depends on that person's rows and on hashes of
what was counted before.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from pipeline.arrays import Hashes, Integers
from pipeline.declaration.card import AnyCard, Card
from pipeline.logs import contribution_bounding as bounding
from pipeline.logs import elsewhere, store
from pipeline.logs.parts import Split
from pipeline.logs.summing import HERE, Resources, Sums, sum_snapshot
from pipeline.statistics.count_layout import Person, reward_lattice
from pipeline.statistics.layout import ExactSums, Tables
from pipeline.statistics.played import Allocation, PlayedLayout, meets

# a row group of a part file: a batch is then neither cut nor copied together
BATCH_ROWS = 1 << 18
# opening a scan costs as much as counting a quarter of a million rows; a larger scan reads ahead of its batches, and
# allocating that memory anew costs a third of the sum
_SCAN_ROWS = 1 << 20
# part files that are summed together
PARTS_TOGETHER = 16
# larger temporary arrays are returned to the system and allocated anew each time: four times the cost
_PIECE_ROWS = 1 << 15


def aggregate(snapshot: store.Snapshot, card: Card, resources: Resources = HERE) -> ExactSums:
    """Sum a snapshot, a batch of rows in memory at a time.

    ``card``: the card of ``ingest``: tables, caps and the lattice of rewards.
    Returns exact int64 tables and the kind of people they count; secret, a privatizer's input.
    """
    sums = sum_snapshot(CountSums(card), snapshot, resources)
    return ExactSums(card.name, snapshot.kind, card.domain.dynamics, _tables(card, sums))


def count_rows(rows: pl.DataFrame, card: Card) -> Tables:
    """Count canonical rows of whole users.

    ``rows``: columns of :func:`needed`; every user whole, sorted by user, episode, step.
    ``card``: declares tables, caps and the lattice of rewards.
    Returns ``n_0 (L,)``, ``n_sa (G, L, A)``, ``n_sas (G, L, A, S)``, ``r_sa (G, L, A)`` (lattice integers), all int64.
    """
    work = CountSums(card)
    sums = work.zero()
    bounded = _bound(rows, card) if bounding.needs_whole_users(card) else rows
    work.place(sums, bounded.select(_places(card)))
    return _tables(card, sums)


def _place_batches(parts: Sequence[Path], card: Card) -> Iterator[pl.DataFrame]:
    """Yield the places of all rows; batches hold whole people only if the card bounds a sum over a person."""
    if not bounding.needs_whole_users(card):
        return read_parts(parts, card, _places(card))
    people = bounding.group_users(read_parts(parts, card, [pl.col(needed(card))]))
    return (_bound(users, card).select(_places(card)) for users in people)


def read_parts(parts: Sequence[Path], card: AnyCard, columns: Sequence[pl.Expr]) -> Iterator[pl.DataFrame]:
    """Yield columns of part files and :data:`IDENTITY`, a batch in memory at a time; the caps are checked again."""
    footers = [pq.read_metadata(part) for part in parts]
    lengths: list[int] = [footer.num_rows for footer in footers]
    # ids may be text in one partition and integers in others
    kinds = [str(footer.schema.to_arrow_schema().field("user_id").type) for footer in footers]
    caps, spans = bounding.CapsAgain(card, lengths), zip(parts, accumulate(lengths), kinds, strict=True)
    for _, group in groupby(spans, key=lambda part: (part[1] // _SCAN_ROWS, part[2])):
        rows = pl.scan_parquet([part for part, *_ in group], glob=False)
        present = rows.select(columns).collect_schema()
        identity = [name for name in bounding.IDENTITY if name not in present]
        for batch in rows.select(*columns, *identity).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
            caps.check(batch)
            yield batch


def needed(card: Card) -> list[str]:
    """Columns that are read to count whole people."""
    columns = ["user_id", "episode_id", "step", "state", "action", "next_state"]
    ends = ["terminated"] if card.domain.states.default_terminal is not None else []
    return columns + ends + (["reward"] if card.reward.kind == "estimate" else [])


def _bound(rows: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Bound the contribution of whole users: successors beyond the caps are null, lattice steps ``k`` are cut."""
    rows = bounding.cap_cells(rows, card)
    if (total := bounding.total_steps(card)) is not None:
        k = reward_lattice(card).index(rows["reward"].to_numpy())
        rows = rows.with_columns(pl.Series("k", k), successor(card).alias("next_state"))
        rows = bounding.cap_rewards(rows, total)
    return rows


def _grid(card: Card) -> tuple[int, int, int, int]:
    """Shape of the table of places: steps (or whether it is the first), s, a, s' with unknown last."""
    d = card.domain
    steps = d.horizon if d.dynamics == "per_step" else 2
    return steps, len(d.live_states), len(d.action_labels), len(d.state_labels) + 1


def _places(card: Card) -> list[pl.Expr]:
    """Expressions of each row's ``place``, and of its reward or lattice step if rewards are estimated.

    A row whose successor is unknown counts in no table: its reward is the least one, which adds no lattice step.
    """
    shape = _grid(card)
    _, live, actions, successors = shape
    width = pl.Int32 if np.prod(shape, dtype=float) < 2**31 else pl.Int64
    visit = pl.col("state").cast(width) * actions + pl.col("action")
    step = (pl.col("step") if card.domain.dynamics == "per_step" else pl.col("step") == 0).cast(width)
    place = (step * (live * actions) + visit) * successors + successor(card).fill_null(successors - 1)
    places = [place.cast(pl.Int64).alias("place")]
    if card.reward.kind == "estimate":
        column, nothing = ("reward", card.reward.range[0]) if bounding.total_steps(card) is None else ("k", 0)
        places.append(pl.when(successor(card).is_not_null()).then(pl.col(column)).otherwise(nothing).alias(column))
    return places


def successor(card: Card) -> pl.Expr:
    """Successor of each row; that of a terminated row is an end, even if a live state was logged (design §5.2).

    Where tables differ by step, so is that of a last step which names none: nothing comes after it.
    """
    logged, end = pl.col("next_state"), card.domain.states.default_terminal
    if end is None:
        return logged
    over = pl.col("terminated") & (logged < card.domain.states.first_terminal)
    if card.domain.dynamics == "per_step":
        over |= logged.is_null() & (pl.col("step") == card.domain.horizon - 1)
    return pl.when(over).then(pl.lit(end, dtype=pl.Int32)).otherwise(logged)


@dataclass(frozen=True)
class CountSums:
    """Sums of visits by place, and of lattice steps by ``(step, s, a)``."""

    card: Card = field(repr=False)

    @property
    def together(self) -> int:
        """Part files that are read together: one if whole users are needed, who are sorted within a part only."""
        return 1 if bounding.needs_whole_users(self.card) else PARTS_TOGETHER

    def zero(self) -> dict[str, Integers]:
        """Zero tables ``visits``, by place, and ``steps``, by place without successor."""
        grid = _grid(self.card)
        return {"visits": np.zeros(np.prod(grid), np.int64), "steps": np.zeros(np.prod(grid[:-1]), np.int64)}

    def add(self, sums: Sums, parts: Sequence[Path], seen: elsewhere.Seen) -> None:
        """Add the rows of part files, a batch in memory at a time."""
        for placed in _place_batches(parts, self.card):
            self.place(sums, placed)
            seen(len(placed))

    def place(self, sums: Sums, placed: pl.DataFrame) -> None:
        """Count the places; add up lattice steps."""
        lattice, successors = reward_lattice(self.card), _grid(self.card)[-1]
        for piece in placed.iter_slices(_PIECE_ROWS):
            places = piece["place"].to_numpy()
            np.add.at(sums["visits"], places, 1)
            if self.card.reward.kind == "estimate":
                k = piece["k"].to_numpy() if "k" in piece.columns else lattice.index(piece["reward"].to_numpy())
                np.add.at(sums["steps"], places // successors, k)


def _tables(card: Card, sums: Sums) -> Tables:
    """Compute all tables from the table of places."""
    grid, per_step = _grid(card), card.domain.dynamics == "per_step"
    visits, steps = sums["visits"].reshape(grid), sums["steps"].reshape(grid[:-1])
    n_0, with_successor = visits[0 if per_step else 1].sum((1, 2)), visits[..., :-1]
    if not per_step:
        with_successor, steps = with_successor.sum(0, keepdims=True), steps.sum(0, keepdims=True)
    n_sas = np.ascontiguousarray(with_successor)
    n_sa = n_sas.sum(-1)
    # lattice integers are affine in ``k``: their sum follows from the sum of ``k`` and the visits
    at_0, at_1 = reward_lattice(card).integer(np.arange(2)) if card.reward.kind == "estimate" else (0, 0)
    return {"n_0": n_0, "n_sa": n_sa, "n_sas": n_sas, "r_sa": at_0 * n_sa + (at_1 - at_0) * steps}


def count_person(card: Card, person: Person) -> Mapping[str, Integers]:
    """Contribution of a person to every table; see :func:`~pipeline.logs.aggregate.count_rows`."""
    return count_rows(person_rows(person, card), card)


def person_rows(person: Person, card: Card) -> pl.DataFrame:
    """Canonical rows of a synthetic person."""
    flat = [
        {"user_id": 0, "episode_id": e, "step": h, "state": s, "action": a, "reward": float(r), "next_state": s2}
        for e, episode in enumerate(person)
        for h, (s, a, r, s2) in enumerate(episode)
    ]
    over = (pl.col("next_state") >= len(card.domain.live_states)).alias("terminated")
    return pl.DataFrame(flat).with_columns(pl.col("step", "state", "action", "next_state").cast(pl.Int32), over)


@dataclass(frozen=True)
class Arms:
    """Sums of returns by arm, beside the counts of a night.

    ``play``: the assignment of people to the policy in use; None: no one is assigned to it.
    """

    layout: PlayedLayout
    play: Allocation | None

    def add(self, rows: pl.DataFrame, new: pl.DataFrame) -> Tables:
        """Sum ``rows`` (``user_id, episode_id, reward``), whole episodes of the people ``new``."""
        k = reward_lattice(self.layout.card).index(rows["reward"].to_numpy())
        episodes = rows.select("user_id", "episode_id", pl.Series("k", k)).group_by("user_id", "episode_id")
        people = new.select("user_id", "person").unique()
        returns = episodes.agg(pl.col("k").sum(), pl.len().alias("rows")).join(people, on="user_id")
        met = [self.play is not None and meets(self.play, person) for person in returns["person"]]
        return self.layout.one((returns["k"].to_list(), returns["rows"].to_list(), met))


def closed(rows: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Rows of episodes that have ended: at an end, at the last step, or where the log says that it cut them off.

    Ingest also marks rows without a known successor as truncated; the log cut off only those with one.
    With ``recurs = "never"`` a person counts once, and so only after all their episodes have ended.
    """
    cut = pl.col("truncated") & pl.col("next_state").is_not_null()
    over = pl.col("terminated") | cut | (pl.col("step") == card.domain.horizon - 1)
    over |= (pl.col("next_state") >= card.domain.states.first_terminal).fill_null(value=False)
    ended = rows.select("user_id", "episode_id", over.alias("over")).group_by("user_id", "episode_id")
    finished, keys = ended.agg(pl.col("over").any()), ["user_id", "episode_id"]
    if card.unit.recurs == "never":
        finished, keys = finished.group_by("user_id").agg(pl.col("over").all()), ["user_id"]
    return rows.join(finished.filter("over"), on=keys, how="semi", maintain_order="left")


def count_new(
    snapshots: Sequence[store.Snapshot],
    card: Card,
    seen: Hashes,
    key: bytes,
    split: Split | None = None,
    arms: Arms | None = None,
    *,
    whole: bool = False,
) -> tuple[Tables, Hashes]:
    """Count new people and episodes of the snapshots, in their order, a partition in memory at a time.

    ``seen`` ``(n, hash_width)``: hashes of all nights so far.
    ``split``: people reserved for evaluation, who are never counted; None: no one is reserved.
    ``arms``: returns that are summed as well; None: none.
    ``whole``: whether an episode counts only once it has ended; see :func:`closed`.
    Returns tables of the leaf, and the hashes ``(k, hash_width)`` to add.
    """
    columns = [*dict.fromkeys([*needed(card), *(("terminated", "truncated") if whole else ())])]
    sums = dict(count_rows(pl.DataFrame(schema={name: store.CANONICAL[name] for name in columns}), card))
    if arms is not None:
        sums |= arms.layout.one(([], [], []))
    earlier = bounding.hash_frame(seen)
    fresh = earlier.clear()
    for part in (p for s in snapshots for p in s.part_files):
        rows = pl.read_parquet(part, columns=columns)
        bounding.CapsAgain(card, [len(rows)]).check(rows)
        rows = rows if split is None else split.cut(rows)[0]
        rows = closed(rows, card) if whole else rows
        new = bounding.pick_new(rows, card, pl.concat([earlier, fresh]), key, bounding.delivered_texts(part))
        keys = ["user_id"] if card.unit.recurs == "never" else ["user_id", "episode_id"]
        counts = rows.join(new, on=keys, how="semi", maintain_order="left")
        counted = {**count_rows(counts, card), **({} if arms is None else arms.add(counts, new))}
        sums = {name: table + counted[name] for name, table in sums.items()}
        fresh = pl.concat([fresh, new.select(fresh.columns)])
    return sums, fresh.to_numpy().astype(np.uint64)
