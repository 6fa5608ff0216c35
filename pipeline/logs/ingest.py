"""From a card's source files to an edition: a numbered snapshot of canonical rows, and the quarantine of the others.

The first pass spills rows by person into partitions; the second screens, writes and counts a partition at a time.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard, Card, CardError, LqCard
from pipeline.declaration.toml import LogError
from pipeline.files import open_private, private_folder, put_in_place, remove_file, remove_tree, share, whole_file
from pipeline.logs import contribution_bounding as bounding
from pipeline.logs import decode, rules, spills, store
from pipeline.logs.contribution_bounding import DELIVERED, IDS, USER, as_known, canonical, keyed_hash, spellings
from pipeline.logs.elsewhere import Elsewhere, Here, OnProcesses, Seen
from pipeline.logs.rules import check_names
from pipeline.logs.sources import Sources, digest, examine, reader_digest, source_digest_of
from pipeline.logs.spills import IngestWork, ReadFiles
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Progress, Resources, reporter

_DROPPED = {rule.name: "drop_episode" if rule.effect == "coerce" else rule.effect for rule in rules.RULES}


def screen(raw: pl.DataFrame, card: AnyCard, names: tuple[str, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Apply every rule.

    Returns canonical rows, sorted by user, episode, step; and the quarantine, sorted by file and line.  Every row of
    ``raw`` is in the first, or once in the second with a drop effect.  A row of a wide source is screened step by
    step, and filed once under each rule that some of its steps break.
    """
    steps, left_out = raw, pl.DataFrame(schema={"row": pl.Int64, "rule": pl.String})
    if isinstance(card, Card):
        steps = decode.unfold(raw, card) if card.source.layout == "wide" else raw
        rows = decode.decode(steps, card)
        if card.domain.observation is not None:
            rows = decode.with_vectors(rows, steps, card, dict.fromkeys(card.log.vectors, card.domain.observation))
        if card.source.order_by is not None:
            rows, left_out = decode.number_steps(rows, steps, card)
        rows = sort_episodes(rows, rules.terminates(card)).with_columns(decode.behind_gap(card).alias("behind"))
        rows = _pay_late(rows, steps, card)
        rows = rows.with_columns(_leads_elsewhere(card).alias("leads_elsewhere"))
        rows = rows.with_columns(_next_state(card).alias("next_state"))
        if card.domain.observation is not None:
            rows = decode.with_successors(rows, card, card.domain.observation)
    else:
        rows = _vector_rows(raw, card)
    rows = mark_broken(rows, card)
    accepted = rows.filter(pl.col("rule").is_null())
    entries = file_entries(pl.concat([rows, left_out], how="diagonal"), accepted, rules.coercions(card))
    if isinstance(card, Card) and card.source.layout == "wide":
        entries = _by_source_row(entries, raw, steps, card)
    return _canonical(accepted, card), spills.quarantine_rows(raw, _with_spellings(entries, raw), card, names)


def _vector_rows(raw: pl.DataFrame, card: LqCard) -> pl.DataFrame:
    """Decoded rows of a log of vectors, sorted, with ``next_observation`` and the mark ``beyond_radius``."""
    columns, unreadable = decode.identify(decode.role_types(raw))
    rows = raw.with_columns(**columns).select(*columns, pl.any_horizontal(unreadable).alias("unreadable"))
    observation, action = card.domain.observation, card.domain.action
    declared = {"observation": observation, "action": action, "next_observation": observation}
    rows = sort_episodes(decode.with_vectors(rows, raw, card, declared), pl.col("terminated"))
    nothing = pl.lit(None, dtype=pl.Float64).alias("reward")
    rows = rows.with_columns(decode.next_observation().alias("next_observation"), nothing)
    beyond = pl.any_horizontal(decode.longer(pl.col(role), vector.radius) for role, vector in declared.items())
    return rows.with_columns(beyond.alias("beyond_radius"))


def sort_episodes(rows: pl.DataFrame, ends_here: pl.Expr) -> pl.DataFrame:
    """Decoded rows sorted by user, episode, step, with ``episode`` (its number), ``ended`` and ``repeated`` (of it)."""
    rows = _sort_people(rows)
    new = (pl.col("person") != pl.col("person").shift()) | pl.col("episode_id").ne_missing(pl.col("episode_id").shift())
    # numbered in their order: tables of episodes then need no hash
    rows = rows.with_columns(new.fill_null(value=True).cum_sum().cast(pl.Int64).sub(1).set_sorted().alias("episode"))
    same = pl.col("episode") == pl.col("episode").shift()
    again = (same & (pl.col("step") == pl.col("step").shift())).fill_null(value=False)
    # most episodes have neither, so only the exceptions are joined
    ends = rows.filter(ends_here).select("episode", pl.col("step").alias("ended"))
    repeats = rows.filter(again).select("episode", pl.lit(value=True).alias("repeated"))
    rows = _spread(_spread(rows, ends, "ended"), repeats, "repeated")
    return rows.with_columns(pl.col("repeated").fill_null(value=False))


def _sort_people(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows sorted by user, episode, step and place in the log, with ``person`` (the user's rank)."""
    users, order = rows["user_id"], ("person", "episode_id", "step", "row")
    # texts are compared once for each stretch of one user's rows, and nothing is sorted if these are in order
    first = (users != users.shift()).fill_null(value=True)
    person = users.filter(first).rank("dense").gather(first.cum_sum() - 1)
    rows = rows.with_columns(person.alias("person")).sort("person", maintain_order=True)
    increasing = pl.lit(value=False)
    for name in reversed(order):
        increasing = (pl.col(name) > pl.col(name).shift()) | ((pl.col(name) == pl.col(name).shift()) & increasing)
    in_order = rows.select(increasing).to_series()[1:].all(ignore_nulls=False)
    # flagged as sorted, so that grouping by user later needs no hash
    return (rows if in_order else rows.sort(*order, nulls_last=True)).with_columns(pl.col("user_id").set_sorted())


_PAID = ("reward", "not_a_reward", "clipped", "floored")


def _pay_late(rows: pl.DataFrame, steps: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Sorted rows with late outcomes moved to the row that earns them, and rewards discounted.

    ``closing``: a last row without an action whose reward and end belong to the row before it.
    """
    last, closing = pl.col("episode").ne_missing(pl.col("episode").shift(-1)), pl.lit(value=False)
    if card.source.last_row == "outcome":
        action = decode.text_of("action", {"action": steps.schema["raw_action"]})
        no_action = steps.select(action.str.strip_chars().fill_null("") == "").to_series()
        rows = rows.with_columns(no_action.gather(rows["row"]).alias("closing"))
        closing = pl.col("closing") & last & (pl.col("episode") == pl.col("episode").shift()).fill_null(value=False)
        rows = rows.with_columns(closing.alias("closing"))
        closing, after = pl.col("closing"), pl.col("closing").shift(-1).fill_null(value=False)
        rows = rows.with_columns(
            *(pl.when(after).then(pl.col(c).shift(-1)).otherwise(pl.col(c)).alias(c) for c in _PAID),
            pl.col("terminated") | after,
        )
        last = after | (last & ~closing)
    if card.reward.paid == "last":
        nothing = {"reward": pl.lit(0.0), **dict.fromkeys(_PAID[1:], pl.lit(value=False))}
        rows = rows.with_columns(pl.when(last).then(pl.col(c)).otherwise(zero).alias(c) for c, zero in nothing.items())
    if (discount := card.domain.discount) < 1:
        factors = pl.lit(pl.Series([discount**h for h in range(card.domain.horizon)]))
        factor = factors.gather(pl.col("step").clip(0, card.domain.horizon - 1))
        rows = rows.with_columns(decode.on_lattice(pl.col("reward") * factor, card.reward).alias("reward"))
    return rows


def _follower() -> pl.Expr:
    """State of the next row of the episode; null where none follows the step."""
    follows = (pl.col("episode") == pl.col("episode").shift(-1)) & (pl.col("step") + 1 == pl.col("step").shift(-1))
    follows &= ~pl.col("behind").shift(-1).fill_null(value=False)
    return pl.when(follows).then(pl.col("state").shift(-1))


def _leads_elsewhere(card: Card) -> pl.Expr:
    """Mark of rows whose logged next state is no end, and not the state of the next row."""
    # of vectors a state alone does not tell where a row leads
    if card.source.columns.next_state is None or card.domain.observation is not None:
        return pl.lit(value=False)
    # the row before a closing row, whose state may be missing, is terminated
    live = (pl.col("logged") < card.domain.states.first_terminal) & ~pl.col("terminated")
    return (pl.col("has_next") & live & (pl.col("logged") != _follower())).fill_null(value=False)


def _next_state(card: Card) -> pl.Expr:
    """Logged next state, where the next row agrees; else its state; else the end if the episode is over; else null.

    Where the dynamics are stationary and no successor is logged, the one of step H - 1 stays unknown even if the
    episode terminated there: counting only the last steps that terminate would bias the shared table.
    """
    d, end = card.domain, card.domain.states.default_terminal
    last = pl.col("step") == d.horizon - 1
    follower = _follower()
    in_end = pl.when(follower >= card.domain.states.first_terminal).then(follower)
    over = pl.col("terminated") | last if d.dynamics == "per_step" else pl.col("terminated")
    if card.source.last_row == "ends":
        over |= pl.col("episode").ne_missing(pl.col("episode").shift(-1))
    unlogged = (
        pl.when("terminated").then(pl.coalesce(in_end, pl.lit(end, dtype=pl.Int32)))
        .when(follower.is_not_null()).then(follower)
        .when(over).then(pl.lit(end, dtype=pl.Int32))
    )  # fmt: skip
    if d.dynamics == "stationary" and d.horizon > 1 and card.source.columns.next_state is None:
        unlogged = pl.when(~last).then(unlogged)
    # what a choice is worth is what people then met: scores follow their rows
    return (
        pl.when("leads_elsewhere").then(follower)
        .when("has_next").then("logged")
        .otherwise(unlogged)
    )  # fmt: skip


def mark_broken(rows: pl.DataFrame, card: AnyCard) -> pl.DataFrame:
    """Add ``rule``: the first rule, in the table's order, that drops the row or its episode; null if none does."""
    broken = rules.episode_rules(card)
    rows = rows.with_columns(rules.first_broken(rules.step_rules(card)).alias("rule"))
    left = rows.filter(pl.col("rule").is_null()).group_by("episode", maintain_order=True)
    verdict = left.agg(
        pl.col("user_id").first(),
        pl.col("episode_id").first(),
        *(expression.alias(name) for name, expression in broken.items()),
    ).with_columns(rules.first_broken({name: pl.col(name) for name in broken}).alias("verdict"))
    beyond = find_over_cap(verdict.filter(pl.col("verdict").is_null()), card)
    excess = pl.when(pl.col("episode").is_in(beyond.implode())).then(pl.lit("over_cap"))
    verdict = verdict.select("episode", pl.coalesce("verdict", excess).alias("verdict")).drop_nulls()
    return _spread(rows, verdict, "verdict").with_columns(pl.coalesce("rule", "verdict").alias("rule"))


def find_over_cap(episodes: pl.DataFrame, card: AnyCard) -> pl.Series:
    """Episodes beyond each user's ``episodes_per_user`` with the smallest keyed hash of (user, episode)."""
    cap = card.unit.episodes_per_user
    several = episodes.filter(pl.len().over("user_id") > cap)
    order = keyed_hash(bounding.pairs(several, "user_id"), card.name).alias("order")
    ranked = several.with_columns(order).sort("user_id", "order", "episode_id")
    return ranked.filter(pl.int_range(pl.len()).over("user_id") >= cap)["episode"]


def _spread(rows: pl.DataFrame, marks: pl.DataFrame, column: str) -> pl.DataFrame:
    """Spread a column of some episodes (sorted; the first entry of each counts) over their rows; null for others."""
    if marks.is_empty():
        return rows.with_columns(pl.lit(None, dtype=marks.schema[column]).alias(column))
    marks = marks.filter((pl.col("episode") != pl.col("episode").shift()).fill_null(value=True))
    # episodes are numbered in their order
    episodes = int(rows["episode"][-1]) + 1
    order = pl.int_range(len(marks), dtype=pl.UInt32, eager=True)
    places = pl.repeat(None, episodes, dtype=pl.UInt32, eager=True).scatter(marks["episode"], order)
    return rows.with_columns(marks[column].gather(places.gather(rows["episode"])))


def _canonical(accepted: pl.DataFrame, card: AnyCard) -> pl.DataFrame:
    columns, following, ends = store.VECTORS, "next_observation", pl.lit(value=False)
    if isinstance(card, Card):
        columns, following = store.CANONICAL | ({} if card.domain.observation is None else store.OBSERVED), "next_state"
        ends = (pl.col(following) >= card.domain.states.first_terminal).fill_null(value=False)
    rows = accepted.with_columns(pl.col("terminated") | ends, pl.col("truncated") | pl.col(following).is_null())
    return rows.select(pl.col(name) if name == "user_id" else pl.col(name).cast(t) for name, t in columns.items())


def file_entries(rows: pl.DataFrame, accepted: pl.DataFrame, coerced: dict[str, pl.Expr]) -> pl.DataFrame:
    """Quarantine entries ``row, rule, effect, text``; ``coerced``: rules that change cells of accepted rows."""
    dropped = rows.filter(pl.col("rule").is_not_null()).select("row", "rule")
    entries = [dropped.with_columns(pl.col("rule").replace_strict(_DROPPED, return_dtype=pl.String).alias("effect"))]
    effect = pl.lit("coerce")
    entries += [
        accepted.filter(broken).select("row", rule=pl.lit(name), effect=effect) for name, broken in coerced.items()
    ]
    return pl.concat(entries).sort("row", "rule").with_columns(pl.lit(None, dtype=pl.String).alias("text"))


def _by_source_row(entries: pl.DataFrame, raw: pl.DataFrame, steps: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Entries of steps as entries of their wide rows, which name the steps; a row without a step is a gap."""
    by_step = entries.select(
        steps["origin"].gather(entries["row"]).alias("row"),
        "rule",
        "effect",
        (steps["raw_step"].gather(entries["row"]) + card.source.starts_at).cast(pl.String).alias("step"),
    )
    by_row = by_step.group_by("row", "rule", "effect", maintain_order=True).agg(pl.col("step").str.join(", "))
    rows = pl.int_range(len(raw), dtype=pl.Int64, eager=True).to_frame("row")
    empty = rows.filter(~pl.col("row").is_in(steps["origin"].unique().implode()))
    return pl.concat([
        by_row.select("row", "rule", "effect", pl.format("step {}", "step").alias("text")),
        empty.select("row", rule=pl.lit("gap"), effect=pl.lit(_DROPPED["gap"]), text=pl.lit("no step")),
    ]).sort("row", "rule", "effect")  # fmt: skip


def _with_spellings(entries: pl.DataFrame, raw: pl.DataFrame) -> pl.DataFrame:
    """Entries, and one more for each row, kept or not, whose person has rows under another spelling of the id."""
    rows = bounding.in_two_spellings(raw).to_frame("row")
    rows = rows.select("row", rule=pl.lit("two_spellings"), effect=pl.lit("coerce"), text=pl.lit(None, dtype=pl.String))
    return pl.concat([entries, rows]).sort("row", "rule", "effect") if len(rows) else entries


ROWS_PER_GROUP = 1 << 18


@dataclass(frozen=True)
class Claims:
    """The ledger's list of the people of a lineage, of which other lineages were declared disjoint.

    ``since``: entry of the ledger that declared the lineage disjoint last; 0: never.
    ``apart``: names of the lineages that share no people with this one.
    ``claim``: takes people for the lineage, for good; see :func:`pipeline.ledger.people.claim`.
    """

    since: int
    apart: Sequence[str]
    claim: Callable[[Sequence[Sequence[str]]], Sequence[str | None]]


@dataclass(frozen=True)
class Screened:
    """One finished partition: rows spilt, canonical rows, users, episodes, rows filed by rule, sha256 of its file."""

    spilt: int
    rows: int
    users: int
    episodes: int
    filed: dict[str, int]
    digest: str


@dataclass(frozen=True, repr=False)
class ScreenPartition:
    """Task that screens one partition, which holds every row of its people.

    ``files``: its rows as they were spilt, in the order of the log.
    ``claimed``: see :func:`find_others`; None without claims.
    """

    sources: Sources
    card: AnyCard
    partition: int
    files: Sequence[Path]
    built: Path
    claimed: pl.DataFrame | None

    @property
    def named(self) -> str:
        """Its number."""
        return f"partition {self.partition}"

    def __call__(self, seen: Seen) -> Screened:
        """Write part and quarantine."""
        card, names, part = self.card, self.sources.names, store.part_file(self.built, self.partition)
        more = self.built / f"quarantine-{self.partition:04d}-more.parquet"
        raw, beyond = spills.read_partition(self.files, more, self.sources, card)
        stays, elsewhere = (raw, None) if self.claimed is None else part_with(raw, card, names, self.claimed)
        rows, quarantine = screen(stays, card, names)
        quarantine = quarantine if elsewhere is None else pl.concat([quarantine, elsewhere]).sort("file", "line")
        with whole_file(part, private=True, alone=False) as fresh:
            write_rows(rows, fresh, bounding.delivered_as(raw, rows["user_id"]))
        filed = self.built / f"quarantine-{self.partition:04d}.parquet"
        with whole_file(filed, private=True, alone=False) as fresh, open_private(fresh) as file:
            quarantine.write_parquet(file, compression="zstd")
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Screened(
            spilt=len(raw) + beyond,
            rows=len(rows),
            users=count_runs(rows, "user_id"),
            episodes=count_runs(rows, "user_id", "episode_id"),
            filed=dict(quarantine.group_by("rule").len().iter_rows()) | ({"too_many_rows": beyond} if beyond else {}),
            digest=digest,
        )


def write_rows(rows: pl.DataFrame, path: Path, note: Mapping[bytes, str] | None = None) -> None:
    """Write canonical rows with mode 0600; every column has a dictionary, so that counting reads few bytes."""
    table = rows.to_arrow().replace_schema_metadata(dict(note or {}) or None)
    with open_private(path) as file:
        pq.write_table(table, file, compression="zstd", row_group_size=ROWS_PER_GROUP)


def count_runs(rows: pl.DataFrame, *columns: str) -> int:
    """Count the different keys of rows that are sorted by them."""
    new = pl.any_horizontal(pl.col(column).ne_missing(pl.col(column).shift()) for column in columns)
    return int(rows.select(new).to_series()[1:].sum()) + bool(len(rows))


def find_others(users: pl.DataFrame, claims: Claims) -> pl.DataFrame:
    """Claim people for the lineage.

    Returns ``person`` and ``known``, a row for each person who is counted in another lineage (``known`` null) or whom
    this one knows under another text than the canonical form of the id (``known``).
    """
    rows = users.unique(maintain_order=True).drop_nulls(USER).with_columns(pl.col(USER).cast(pl.String).alias("person"))
    people = rows.group_by("person", maintain_order=True).agg(pl.col(DELIVERED).drop_nulls())
    texts = pl.concat_list("person", DELIVERED, *spellings(pl.col("person"))).list.drop_nulls()
    ids = claims.claim(people.select(texts.list.unique(maintain_order=True)).to_series().to_list())
    claimed = people.select("person", pl.Series("known", ids, dtype=pl.String))
    return claimed.filter(pl.col("known").ne_missing(pl.col("person")))


def part_with(
    raw: pl.DataFrame, card: AnyCard, names: tuple[str, ...], claimed: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Set aside the rows of people who are counted in another lineage.

    ``raw``, ``card``, ``names``: see :func:`~pipeline.logs.ingest.screen`.
    Returns the rows that stay, each under the id by which the lineage knows the person, and the quarantine of the
    others.
    """
    apart, known_here = claimed.filter(pl.col("known").is_null()), claimed.drop_nulls("known")
    stays = ~raw[USER].cast(pl.String).is_in(apart["person"].implode()).fill_null(value=False)
    return as_known(raw.filter(stays), known_here), spills.file_all("elsewhere", raw.filter(~stays), card, names)


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
    """Count people by the set of rules that they broke.

    Returns the rules, sorted and joined by ``+``, and the number of people who broke these and no others.
    """
    # a person counts once, in whatever form the id was delivered
    user = canonical(pl.col("source").struct.field(card.log.roles["user"])).alias("user")
    counts, partitions = Counter[str](), defaultdict[str, list[pl.DataFrame]](list)
    for file in sorted(folder.glob("quarantine-*.parquet")):
        # streaming: one person's rows may be most of the quarantine
        filed = pl.scan_parquet(file).filter(~pl.col("rule").is_in(rules.NAMELESS))
        named = filed.select(user, "rule").drop_nulls("user")
        # a partition may have several files: a person in two of them is still one
        partitions[file.stem.split("-")[1]].append(named.unique().collect(engine="streaming"))
    for people_of in partitions.values():
        people = pl.concat(people_of).unique().group_by("user").agg(pl.col("rule").sort())
        counts.update(people["rule"].list.join("+").to_list())
    return dict(sorted(counts.items()))


# shares of the files for each worker: many, so that the last one to finish is short
_SHARES_EACH = 4


def ingest(
    card: AnyCard,
    root: Path,
    *,
    night: date | None = None,
    partitions: int | None = None,
    resources: Resources = HERE,
    claims: Claims | None = None,
    files: Sequence[Path] | None = None,
) -> Snapshot:
    """Make the next edition: read the card's files, apply the rules, publish a snapshot.

    A process holds one partition at a time.  Files that an earlier edition was made of are not read again: their rows
    are stored once.  Leftovers of a killed ingest or a killed sum are removed.

    The snapshot is published whether or not the log fits its card: see :func:`~pipeline.logs.store.check_delivery`.

    ``root``: the operator's store.
    ``night``: the date of a scheduled night, which has one edition: a second call returns it and reads nothing; if the
    files cannot be read, it has the rows of the edition before it.  None: not a scheduled night.
    ``partitions``: 1 to 256; by default about a million rows each, or fewer, so that ingest stays within the memory.
    ``resources``: the memory of this process and those it starts, as far as the number of rows is known beforehand; the
    workers that read and screen (None: as many processes of this machine as the work and the memory allow; the
    snapshot is the same to the last byte); progress, which counts all rows while reading and again while the rules
    are applied; and messages, one of which is that another ingest of the lineage is waited for.
    Raises CardError if the card names files or rules that do not exist.
    Raises RuntimeError if processes die over the same rows.
    Raises LogError if a file cannot be read; nothing is published then, and the next ingest takes the edition's number.
    """
    check_names(card)
    if isinstance(card, Card) and card.source.columns.next_bin is not None and card.source.columns.next_state is None:
        raise CardError(f"{card.name}: source.columns.next_bin needs next_state, which tells the ends; map it too")
    if partitions is not None and not 1 <= partitions <= spills.most_partitions():
        raise ValueError(f"partitions must be 1 to {spills.most_partitions()}; got {partitions}")
    home, date_of = private_folder(private_folder(root) / card.name), "" if night is None else night.isoformat()
    with store.lock_lineage(home, resources.say):
        store.sweep(home)
        editions = store.snapshots(root, card.name, readable=True)
        same_domain = [s for s in editions if (s.domain_hash, s.kind) == (card.domain_hash(), card.kind)]
        tonight = (s for s in same_domain if s.night == date_of and s.source_hash in ("", store.source_hash(card)))
        if night is not None and (snapshot := next(tonight, None)) is not None:
            return snapshot
        number = store.take_number(root, card.name)
        try:
            snapshot = _make(card, home, editions, partitions, resources, claims, files)
        except (CardError, LogError) as e:
            last = next((s for s in reversed(same_domain) if store.intact(s)), None)
            if night is None or last is None:
                raise
            snapshot = replace(_repeat(last, card, home / store.WORK), unread=str(e))
        store.note_number(root, card.name, number)
        snapshot = replace(snapshot, number=number, night=date_of, source_hash=store.source_hash(card))
        published = _publish(snapshot, store.snapshot_folder(home, number))
        remove_tree(home / store.WORK)
        store.end_edition(home)
        return published


def _make(
    card: AnyCard,
    home: Path,
    editions: Sequence[Snapshot],
    partitions: int | None,
    resources: Resources,
    claims: Claims | None,
    files: Sequence[Path] | None,
) -> Snapshot:
    """Snapshot of the card's present files, in the work folder, not yet numbered."""
    sources, folder = examine(card, files), home / store.WORK
    before = _stats(sources)
    apart = {"apart": list(claims.apart), "since": claims.since} if claims is not None and claims.apart else None
    source_digest = source_digest_of(digest(sources.paths), card, apart)
    # damaged editions are made anew, and so are those with unclaimed people, or that an older version read otherwise:
    # else one person who changes nothing would decide how everybody's rows are read
    current = (s for s in reversed(editions) if (s.source_digest, s.ids, s.cells) == (source_digest, IDS, decode.CELLS))
    claimed = (s for s in current if claims is None or s.claimed)
    identical = (s for s in claimed if store.intact(s) and readable_quarantine(s.folder))
    if (twin := next(identical, None)) is not None:
        return _repeat(twin, card, folder)
    private_folder(private_folder(folder) / "built")
    work = IngestWork(folder, partitions or spills.likely_partitions(card, sources, resources.memory))
    try:
        processes = spills.likely_processes(card, sources, work.partitions, resources.memory)
        with ExitStack() as stack:
            crew = resources.elsewhere
            if crew is None:
                # workers of this machine, or this process alone if the work is small
                crew = Here() if processes == 1 else stack.enter_context(OnProcesses(processes))
            _read(card, sources, work, resources.progress, crew)
            if _stats(sources) != before:
                raise LogError(f"{card.name}: a file changed while it was read; ingest again when all are complete")
            snapshot = _screen(card, sources, work, resources.progress, claims, crew)
    except BaseException:
        remove_tree(folder)
        raise
    return replace(snapshot, source_digest=source_digest)


def _stats(sources: Sources) -> list[tuple[int, int]]:
    """Size and time of each file, which change when it is written."""
    return [(stat.st_size, stat.st_mtime_ns) for stat in (path.stat() for path in sources.paths)]


def _repeat(edition: Snapshot, card: AnyCard, work: Path) -> Snapshot:
    """Rows of an earlier edition once more, in the work folder: its files under a second name."""
    folder = private_folder(private_folder(work) / "built")
    for file in [*edition.part_files, *edition.folder.glob("quarantine-*.parquet")]:
        share(file, folder / file.name)
    # an older version did not count people
    people = edition.set_aside or count_people(edition.folder, card)
    return replace(edition, folder=folder, kind=card.kind, unread="", set_aside=people)


def _read(card: AnyCard, sources: Sources, work: IngestWork, progress: Progress | None, crew: Elsewhere) -> None:
    """First pass: write rows to the temporary files of their partitions; then the source files are not needed."""
    crew.ready(sources.paths)
    # each share has a file of every partition: no more shares than keep all workers busy
    count, most = len(sources.files), 1 if isinstance(crew, Here) else _SHARES_EACH * crew.together
    ends = [i * count // min(count, most) for i in range(min(count, most) + 1)] if count else []
    reader, report = reader_digest(card), reporter(progress, sources.rows)
    tasks = [ReadFiles(sources, card, *bounds, work.folder, work.partitions, reader) for bounds in pairwise(ends)]
    shares: dict[int, spills.Share] = {task.first: share for task, share in crew.each(tasks, report)}
    work.shares = [shares[task.first] for task in tasks]
    spills.gather_nameless(work)


def _screen(
    card: AnyCard, sources: Sources, work: IngestWork, progress: Progress | None, claims: Claims | None, crew: Elsewhere
) -> Snapshot:
    """Second pass: apply the rules to one partition after the other."""
    report = reporter(progress, work.source_rows, sum(sum(share.filed.values()) for share in work.shares))

    def task(partition: int) -> ScreenPartition:
        files = tuple(work.spill_files(partition))
        claimed = None if claims is None else find_others(spills.read_users(files, sources), claims)
        return ScreenPartition(sources, card, partition, files, work.built, claimed)

    screened: dict[int, Screened] = {}
    for done, result in crew.each(map(task, range(work.partitions)), lambda _: None):
        screened[done.partition] = result
        report(result.spilt)
        for file in done.files:
            remove_file(file)
    return _summarise(card, work, [screened[i] for i in range(work.partitions)], claims)


def _summarise(card: AnyCard, work: IngestWork, done: Sequence[Screened], claims: Claims | None) -> Snapshot:
    filed, data = Counter[str](), hashlib.sha256()
    for file_share in work.shares:
        filed.update(file_share.filed)
    for partition in done:
        filed.update(partition.filed)
        data.update(bytes.fromhex(partition.digest))
    return Snapshot(
        dataset=card.name,
        number=0,
        folder=work.built,
        kind=card.kind,
        domain_hash=card.domain_hash(),
        source_digest="",
        data_digest=data.hexdigest(),
        source_rows=work.source_rows,
        rows=sum(partition.rows for partition in done),
        users=sum(partition.users for partition in done),
        episodes=sum(partition.episodes for partition in done),
        quarantined=dict(sorted(filed.items())),
        partitions=work.partitions,
        set_aside=count_people(work.built, card) if filed else {},
        claimed=0 if claims is None else 1 + claims.since,
        ids=IDS,
        cells=decode.CELLS,
    )


def _publish(snapshot: Snapshot, folder: Path) -> Snapshot:
    store.write_manifest(snapshot)
    put_in_place(snapshot.folder, folder)
    return replace(snapshot, folder=folder)
