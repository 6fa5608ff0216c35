"""Second pass of ingest: decode a partition that holds whole users, apply the rules, cap the episodes of each user."""

from __future__ import annotations

import polars as pl

from pipeline.declaration.card import AnyCard, Card, LqCard
from pipeline.declaration.linear_quadratic import Vector
from pipeline.logs import rules
from pipeline.logs.contribution_bounding import keyed_hash
from pipeline.logs.decode import decode, identify, list_text
from pipeline.logs.store import CANONICAL, OBSERVED, VECTORS, quarantine_schema
from pipeline.logs.vector_cells import longer, next_observation, with_successors, with_vectors
from pipeline.logs.wide import behind_gap, empty_rows, number_steps, unfold

_DROPPED = {rule.name: "drop_episode" if rule.effect == "coerce" else rule.effect for rule in rules.RULES}


def screen(raw: pl.DataFrame, card: Card, names: tuple[str, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Apply every rule.

    Parameters
    ----------
    raw
        Rows of whole users as spilt: ``raw_<role>``, ``file``, ``line``; of a wide source, one row an episode.
    names
        File names that ``file`` numbers.

    Returns
    -------
    Canonical rows, sorted by user, episode, step; and the quarantine, sorted by file and line.  Every row of ``raw``
    is in the first, or once in the second with a drop effect.  A row of a wide source is judged step by step, and
    filed once under each rule that some of its steps break.
    """
    steps = unfold(raw, card) if card.source.layout == "wide" else raw
    rows, coerced = decode(steps, card), rules.COERCED
    again = pl.Series(dtype=pl.Int64)
    if card.domain.observation is not None:
        declared = dict.fromkeys(card.log.vectors, card.domain.observation)
        rows, coerced = with_vectors(rows, steps, card.log.vectors, declared), rules.OBSERVED
    if card.source.order_by is not None:
        rows, again = number_steps(rows, steps, card)
    rows = sort_episodes(rows, rules.terminates(card)).with_columns(behind_gap(card).alias("behind"))
    rows = rows.with_columns(_next_state(card).alias("next_state"))
    if card.domain.observation is not None:
        rows = with_successors(rows, card, card.domain.observation)
    rows = mark_broken(rows, card)
    kept = rows.filter(pl.col("rule").is_null())
    said = pl.DataFrame({"row": again}).with_columns(rule=pl.lit("repeated_row"))
    entries = file_entries(pl.concat([rows, said], how="diagonal"), kept, coerced)
    if card.source.layout == "wide":
        entries = _by_source_row(entries, raw, steps, card)
    return _canonical(kept, card), quarantine_rows(raw, entries, card, names)


def sort_episodes(rows: pl.DataFrame, ends_here: pl.Expr) -> pl.DataFrame:
    """Decoded rows sorted by user, episode, step, with ``episode`` (its number), ``ended`` and ``repeated`` (of it)."""
    rows = _sort_people(rows)
    new = (pl.col("person") != pl.col("person").shift()) | pl.col("episode_id").ne_missing(pl.col("episode_id").shift())
    # numbered in their order, which spares every table of episodes a hash
    rows = rows.with_columns(new.fill_null(value=True).cum_sum().cast(pl.Int64).sub(1).set_sorted().alias("episode"))
    same = pl.col("episode") == pl.col("episode").shift()
    again = (same & (pl.col("step") == pl.col("step").shift())).fill_null(value=False)
    # most episodes have neither: only those that have are looked for
    ends = rows.filter(ends_here).select("episode", pl.col("step").alias("ended"))
    repeats = rows.filter(again).select("episode", pl.lit(value=True).alias("repeated"))
    return _spread(_spread(rows, ends, "ended"), repeats, "repeated").with_columns(
        pl.col("repeated").fill_null(value=False)
    )


def _sort_people(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows sorted by user, episode, step and place in the log, with ``person`` (the user's rank)."""
    users, order = rows["user_id"], ("person", "episode_id", "step", "row")
    # texts are compared once a stretch of rows of one user, and nothing else where a user's own rows lie in their order
    first = (users != users.shift()).fill_null(value=True)
    person = users.filter(first).rank("dense").gather(first.cum_sum() - 1)
    rows = rows.with_columns(person.alias("person")).sort("person", maintain_order=True)
    later = pl.lit(value=False)
    for name in reversed(order):
        later = (pl.col(name) > pl.col(name).shift()) | ((pl.col(name) == pl.col(name).shift()) & later)
    in_order = rows.select(later).to_series()[1:].all(ignore_nulls=False)
    # told, so that what goes by user later needs no hash
    return (rows if in_order else rows.sort(*order, nulls_last=True)).with_columns(pl.col("user_id").set_sorted())


def _next_state(card: Card) -> pl.Expr:
    """As logged; else the state of the next row; else the end where the episode is over; else null.

    Where the dynamics are stationary and no successor is logged, the one of step H - 1 stays unknown even if the
    episode terminated there: counting only the last steps that terminate would bias the shared table.
    """
    d, end = card.domain, card.domain.states.default_terminal
    last = pl.col("step") == d.horizon - 1
    follows = (pl.col("episode") == pl.col("episode").shift(-1)) & (pl.col("step") + 1 == pl.col("step").shift(-1))
    follows &= ~pl.col("behind").shift(-1).fill_null(value=False)
    follower = pl.when(follows).then(pl.col("state").shift(-1))
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
    return pl.when("has_next").then("logged").otherwise(unlogged)


def mark_broken(rows: pl.DataFrame, card: AnyCard) -> pl.DataFrame:
    """Add ``rule``: what dropped the row, or its episode, by the table's order; null where it stays."""
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
    """Episodes beyond each user's ``episodes_per_user`` with the smallest keyed hash of (user, episode).

    Parameters
    ----------
    episodes
        One row an episode that no other rule dropped: ``episode``, ``user_id``, ``episode_id``.
    """
    cap = card.unit.episodes_per_user
    several = episodes.filter(pl.len().over("user_id") > cap)
    pairs = several.select(pl.format("{}\x1f{}", "user_id", "episode_id").alias("pair"))["pair"]
    ranked = several.with_columns(keyed_hash(pairs, card.name).alias("order")).sort("user_id", "order", "episode_id")
    return ranked.filter(pl.int_range(pl.len()).over("user_id") >= cap)["episode"]


def _spread(rows: pl.DataFrame, found: pl.DataFrame, column: str) -> pl.DataFrame:
    """What was found of some episodes (in their order, the first of each counts), over all their rows; else null."""
    if found.is_empty():
        return rows.with_columns(pl.lit(None, dtype=found.schema[column]).alias(column))
    found = found.filter((pl.col("episode") != pl.col("episode").shift()).fill_null(value=True))
    # episodes are numbered in their order
    count = int(rows["episode"][-1]) + 1
    places = pl.repeat(None, count, dtype=pl.UInt32, eager=True).scatter(
        found["episode"], pl.int_range(len(found), dtype=pl.UInt32, eager=True)
    )
    return rows.with_columns(found[column].gather(places.gather(rows["episode"])))


def _canonical(kept: pl.DataFrame, card: Card) -> pl.DataFrame:
    end = card.domain.states.first_terminal
    unknown = pl.col("next_state").is_null()
    columns = CANONICAL | ({} if card.domain.observation is None else OBSERVED)
    return kept.with_columns(
        (pl.col("terminated") | (pl.col("next_state") >= end).fill_null(value=False)).alias("terminated"),
        (pl.col("truncated") | unknown).alias("truncated"),
    ).select(pl.col(name) if name == "user_id" else pl.col(name).cast(dtype) for name, dtype in columns.items())


def file_entries(rows: pl.DataFrame, kept: pl.DataFrame, coerced: dict[str, pl.Expr]) -> pl.DataFrame:
    """``row, rule, effect, text``: what each rule did to which row; ``coerced``: rules that change cells."""
    dropped = rows.filter(pl.col("rule").is_not_null()).select("row", "rule")
    found = [dropped.with_columns(pl.col("rule").replace_strict(_DROPPED, return_dtype=pl.String).alias("effect"))]
    for name, broken in coerced.items():
        found.append(kept.filter(broken).select("row", pl.lit(name).alias("rule"), pl.lit("coerce").alias("effect")))
    return pl.concat(found).sort("row", "rule").with_columns(pl.lit(None, dtype=pl.String).alias("text"))


def _by_source_row(entries: pl.DataFrame, raw: pl.DataFrame, steps: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Entries of steps as entries of the rows they stand in, which name the steps; a row without a step is a gap."""
    at = entries.select(
        steps["origin"].gather(entries["row"]).alias("row"),
        "rule",
        "effect",
        (steps["raw_step"].gather(entries["row"]) + card.source.starts_at).cast(pl.String).alias("step"),
    )
    told = at.group_by("row", "rule", "effect", maintain_order=True).agg(pl.col("step").str.join(", "))
    empty = empty_rows(raw, steps).to_frame("row")
    return pl.concat([
        told.select("row", "rule", "effect", pl.format("step {}", "step").alias("text")),
        empty.select(
            "row",
            pl.lit("gap").alias("rule"),
            pl.lit(_DROPPED["gap"]).alias("effect"),
            pl.lit("no step").alias("text"),
        ),
    ]).sort("row", "rule", "effect")  # fmt: skip


def quarantine_rows(raw: pl.DataFrame, entries: pl.DataFrame, card: AnyCard, names: tuple[str, ...]) -> pl.DataFrame:
    """The quarantine's rows: what each entry did, where, and the raw cells as text."""
    source = {column: f"raw_{role}" for role, column in reversed(card.log.roles.items())}
    cells = [_as_text(role, raw.schema[role]).alias(column) for column, role in source.items()]
    return (
        pl.concat([entries, raw[entries["row"]]], how="horizontal")
        .with_columns(
            pl.lit(pl.Series(names)).gather(pl.col("file")).alias("file"),
            pl.struct(cells).alias("source"),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in quarantine_schema(card).items())
    )


def file_all(rule: str, raw: pl.DataFrame, card: AnyCard, names: tuple[str, ...]) -> pl.DataFrame:
    """The quarantine of rows that are all set aside under one rule."""
    entries = pl.DataFrame({"row": pl.int_range(len(raw), dtype=pl.Int64, eager=True)}).with_columns(
        rule=pl.lit(rule), effect=pl.lit(str(rules.BY_NAME[rule].effect)), text=pl.lit(None, dtype=pl.String)
    )
    return quarantine_rows(raw, entries, card, names)


def _as_text(role: str, dtype: pl.DataType) -> pl.Expr:
    return list_text(pl.col(role)) if isinstance(dtype, pl.List) else pl.col(role).cast(pl.String)


def screen_vectors(raw: pl.DataFrame, card: LqCard, names: tuple[str, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Apply every rule; parameters and results as of :func:`~pipeline.logs.screening.screen`."""
    rows = sort_episodes(decode_vectors(raw, card), pl.col("terminated"))
    rows = mark_broken(rows.with_columns(next_observation().alias("following")), card)
    kept = rows.filter(pl.col("rule").is_null())
    d = card.domain
    far = [longer(pl.col(role), _declared(role, card).radius) for role in ("observation", "action")]
    far.append(longer(pl.col("following"), d.observation.radius))
    entries = file_entries(rows, kept, {"beyond_radius": pl.any_horizontal(far)})
    return _canonical_vectors(kept), quarantine_rows(raw, entries, card, names)


def decode_vectors(raw: pl.DataFrame, card: LqCard) -> pl.DataFrame:
    """Decode the rows of whole users.

    Returns
    -------
    One row a row of ``raw``, in its order: ``row``, the canonical columns, ``logged_observation`` (the logged next one;
    null where there is none), and the marks ``unreadable``, ``wrong_length``, ``not_finite``.
    """
    columns, unreadable = identify({name.removeprefix("raw_"): dtype for name, dtype in raw.schema.items()})
    rows = raw.with_columns(**columns).select(*columns, pl.any_horizontal(unreadable).alias("unreadable"))
    return with_vectors(rows, raw, card.log.vectors, {role: _declared(role, card) for role in card.log.vectors})


def _declared(role: str, card: LqCard) -> Vector:
    return card.domain.action if role == "action" else card.domain.observation


def _canonical_vectors(kept: pl.DataFrame) -> pl.DataFrame:
    rows = kept.with_columns(
        pl.lit(None, dtype=pl.Float64).alias("reward"),
        pl.col("following").alias("next_observation"),
        (pl.col("truncated") | pl.col("following").is_null()).alias("truncated"),
    )
    return rows.select(pl.col(name) if name == "user_id" else pl.col(name).cast(t) for name, t in VECTORS.items())
