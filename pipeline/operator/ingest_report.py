"""Report of an ingest: people and rows set aside, by rule, and whether the lost people are like those kept.

Raw facts, for the operator only.  They are read from the quarantine and the parts of one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pipeline.declaration.card import AnyCard, Card
from pipeline.declaration.domain import OTHER
from pipeline.logs.contribution_bounding import canonical, total_steps
from pipeline.logs.decode import number_of, order_of, read_flag
from pipeline.logs.rules import BY_NAME, DROPS, NAMELESS, gated_rules
from pipeline.logs.store import Snapshot, set_aside

if TYPE_CHECKING:
    from pipeline.facts.promise import Dump

PAGE = "ingest.html"
"""The report as a file beside the snapshot's rows."""

# share of all people lost, or of rewards rounded down, above which a warning is due
LOUD = 0.05
# most labels and steps that are listed
_MOST = 20
# steps of the finest lattice that is tried, and different rewards that it is tried on
_FINEST, _REWARDS = 10_000, 2_000
# least distance between lost and kept rows that counts as a difference, and fewest rows lost
DIFFERENT, _ENOUGH = 0.05, 30
_ROUNDING = 1e-6
# rows set aside that are read once and held in memory, rather than once for each query
_FEW = 100
# columns of a quarantine that has no file
_NO_ROWS = {"rule": pl.String, "effect": pl.String, "dropped": pl.Boolean, "user": pl.String, "episode": pl.String}


def ingest_report(snapshot: Snapshot, card: AnyCard) -> Dump:
    """Report of a snapshot's ingest; a lost person has rows in the log and none in the snapshot.

    ``episodes`` and ``people`` of a rule are None if its lines name no person; ``accepted`` is the number of people
    that the gate accepts, None where it does not ask.  A ``label`` is None for an empty cell.  ``over_total`` is the
    number of people whose rewards sum up to more than ``reward.total``.
    """
    if not snapshot.quarantined and (not isinstance(card, Card) or total_steps(card) is None):
        # empty files cost as much to read as others, and queries of no rows a twentieth of a small ingest
        nothing: dict[str, list[Dump]] = {name: [] for name in ("rules", "labels", "steps", "differences")}
        lost: Dump = {"people_kept": snapshot.users, "people_lost": 0, "share_lost": 0.0}
        return lost | nothing | {"rewards": None, "over_total": 0, "purged": False}
    with set_aside(snapshot) as files:
        return _report(snapshot, card, files)


def _report(snapshot: Snapshot, card: AnyCard, files: Sequence[Path]) -> Dump:
    wrong = pl.concat([_by_role(pl.scan_parquet(f), card) for f in files] or [pl.LazyFrame(schema=_NO_ROWS)])
    if sum(snapshot.quarantined.values()) <= _FEW:
        wrong = wrong.collect(engine="in-memory").lazy()
    lost = _lost(wrong, snapshot)
    people = snapshot.users + len(lost)
    gone = wrong.filter(pl.col("dropped") & pl.col("user").is_in(lost.implode()))
    tables = card if isinstance(card, Card) else None
    return {
        "people_kept": snapshot.users,
        "people_lost": len(lost),
        "share_lost": len(lost) / max(1, people),
        "rules": _rules(wrong, card),
        "labels": [] if tables is None or not files else _labels(wrong, snapshot, tables),
        "steps": _steps(wrong),
        "differences": [] if tables is None or not files else _differences(gone, snapshot, tables),
        "rewards": None if tables is None else _rewards(wrong, snapshot, tables),
        "over_total": 0 if tables is None else _over_total(snapshot, tables),
        "purged": not files,
    }


def _collect(query: pl.LazyFrame) -> pl.DataFrame:
    """Collect by streaming: one person's rows may be most of the quarantine, and more than the memory holds."""
    return query.collect(engine="streaming")


def _counts(cells: pl.LazyFrame, role: str) -> pl.DataFrame:
    """Different cells of a role and ``len``, the number of their rows; the most frequent first."""
    return _collect(cells.group_by(role).len()).sort(["len", role], descending=[True, False])


def _by_role(filed: pl.LazyFrame, card: AnyCard) -> pl.LazyFrame:
    """Columns ``rule``, ``effect``, ``dropped``, ``user``, ``episode``, and the raw cells by their roles."""
    cells = {role: pl.col("source").struct.field(column).alias(role) for role, column in card.log.roles.items()}
    cells.setdefault("episode", pl.lit(None, dtype=pl.String).alias("episode"))
    cells["user"] = pl.when(~pl.col("rule").is_in(list(NAMELESS))).then(canonical(cells["user"])).alias("user")
    return filed.select("rule", "effect", pl.col("effect").is_in(list(DROPS)).alias("dropped"), *cells.values())


def _lost(wrong: pl.LazyFrame, snapshot: Snapshot) -> pl.Series:
    dropped = _collect(wrong.filter("dropped").select("user").drop_nulls().unique())["user"]
    if dropped.is_empty():
        return dropped
    users = canonical(pl.col("user_id").cast(pl.String)).unique()
    kept_users = pl.concat([pl.scan_parquet(part).select(users) for part in snapshot.part_files]).collect()
    return dropped.filter(~dropped.is_in(kept_users["user_id"].implode()))


def _rules(wrong: pl.LazyFrame, card: AnyCard) -> list[Dump]:
    episodes = wrong.group_by("rule", "user", "episode").agg(pl.col("effect").first(), pl.len().alias("rows"))
    # of lines that name no person nobody knows whose they are
    named, each = pl.when(pl.col("user").null_count() == 0), _collect(episodes).group_by("rule")
    sizes = named.then(pl.len()).alias("episodes"), named.then(pl.col("user").n_unique()).alias("people")
    counts = each.agg(pl.col("effect").first(), pl.col("rows").sum(), *sizes)
    by_rule = {row["rule"]: row for row in counts.to_dicts()}
    gated = gated_rules(card) if card.kind == "real" else ()
    accepted = {rule: card.tolerance[rule] * card.unit.users_public for rule in gated}
    return [{**by_rule[name], "accepted": accepted.get(name)} for name in BY_NAME if name in by_rule]


def _declared(card: Card) -> dict[str, Mapping[str, int]]:
    """Role -> declared raw labels and their indices; roles of binned cells are left out."""
    states, labels_of = card.domain.states, {"action": dict(card.domain.actions.raw_labels())}
    if states.bins is None:
        ends = {end: states.first_terminal + i for i, end in enumerate(states.ends)}
        labels_of["state"] = states.raw_labels() | ends
    return {role: labels for role, labels in labels_of.items() if role in card.log.roles}


def _labels(wrong: pl.LazyFrame, snapshot: Snapshot, card: Card) -> list[Dump]:
    listed: list[Dump] = []
    declared = _declared(card)
    for role, column in card.log.roles.items():
        kind = role.partition("@")[0]
        rule = "unknown_label" if role in declared else "bad_reward" if kind == "reward" else "unparsable"
        if rule not in snapshot.quarantined:
            continue
        counts = _counts(wrong.filter(pl.col("rule") == rule), role)
        texts = counts[role]
        odd = ~texts.is_in(list(declared[role])) if role in declared else _unread(kind, texts, card)
        for label, rows in counts.filter(odd.fill_null(value=True)).head(_MOST).rows():
            listed.append({"column": column, "label": label, "rows": int(rows)})
    return listed


def _unread(kind: str, texts: pl.Series, card: Card) -> pl.Series:
    """Mark of the cells of a role that cannot be read."""
    cells = texts.alias("raw_order").to_frame()
    number, empty = number_of(pl.col("raw_order")), pl.col("raw_order").is_null()
    if kind in ("terminated", "truncated"):
        return read_flag(texts)["unread"]
    no_step = number.is_null() | (number != number.floor()) | (number < card.source.starts_at)
    odd = {
        "reward": ~number.is_finite().fill_null(value=False),
        "order": order_of({"order": pl.String()}).is_null(),
        "step": no_step.fill_null(value=True),
        **dict.fromkeys(("bin", "next_bin", "behavior_prob"), number.is_null() & ~empty),
    }
    return cells.select(odd.get(kind, pl.lit(value=False)).alias("odd")).to_series()


def _steps(wrong: pl.LazyFrame) -> list[Dump]:
    if "step" not in wrong.collect_schema():
        return []
    counts = _counts(wrong.filter("dropped").drop_nulls("step"), "step").head(_MOST)
    by_step = counts.sort(number_of(pl.col("step")), nulls_last=True).rows()
    return [{"step": str(step), "rows": int(rows)} for step, rows in by_step]


def _differences(gone: pl.LazyFrame, snapshot: Snapshot, card: Card) -> list[Dump]:
    differences: list[Dump] = []
    names = {"state": card.domain.state_labels, "action": card.domain.action_labels}
    for role, labels in _declared(card).items():
        # as in the rows that were kept, a cell without a label is OTHER where that is declared
        other = names[role].index(OTHER) if OTHER in names[role] else None
        index = pl.col(role).replace_strict(labels, default=None, return_dtype=pl.Int32)
        lost_counts = _counts(gone.select(pl.coalesce(index, pl.lit(other, pl.Int32))).drop_nulls(), role)
        if lost_counts["len"].sum() < _ENOUGH or not snapshot.rows:
            continue
        kept_counts = _counts(pl.concat([pl.scan_parquet(part).select(role) for part in snapshot.part_files]), role)
        lost, kept = np.zeros(len(names[role])), np.zeros(len(names[role]))
        lost[lost_counts[role].to_numpy()] = lost_counts["len"].to_numpy()
        kept[kept_counts[role].to_numpy()] = kept_counts["len"].to_numpy()
        p, q = lost / lost.sum(), kept / kept.sum()
        # expected distance by chance alone
        chance = float(np.sqrt(2 * q * (1 - q) / (np.pi * lost.sum())).sum() / 2)
        distance, largest = float(np.abs(p - q).sum() / 2), int(np.abs(p - q).argmax())
        differences.append(
            {
                "column": card.log.roles[role],
                "rows": int(lost.sum()),
                "distance": distance,
                "label": names[role][largest],
                "share_lost": float(p[largest]),
                "share_kept": float(q[largest]),
                "speaks": distance > max(DIFFERENT, 3 * chance),
            }
        )
    return differences


def _rewards(wrong: pl.LazyFrame, snapshot: Snapshot, card: Card) -> Dump | None:
    rows = snapshot.quarantined.get("reward_off_lattice", 0)
    if not rows or card.reward.kind != "estimate":
        return None
    fit: int | None = None
    # a wide source has a column for each step
    cells = [name for name in wrong.collect_schema() if name.partition("@")[0] == "reward"]
    if cells:
        odd = wrong.filter(pl.col("rule") == "reward_off_lattice")
        values = pl.concat([odd.select(number_of(pl.col(name).cast(pl.String)).alias("v")) for name in cells])
        different = _collect(values.drop_nulls().unique())["v"].sort()
        fit = _steps_that_fit(different.head(_REWARDS).to_numpy(), card)
    return {"rows": rows, "share": rows / max(1, snapshot.rows), "steps": card.reward.steps, "steps_that_fit": fit}


def _over_total(snapshot: Snapshot, card: Card) -> int:
    from pipeline.logs.aggregate import successor

    if not snapshot.rows or (total := total_steps(card)) is None:
        return 0
    # a row that leads nowhere enters no table, and pays nothing there
    counted = pl.scan_parquet(snapshot.part_files).filter(successor(card).is_not_null())
    paid = counted.group_by("user_id").agg(pl.col("reward").sum())
    over = paid.filter(pl.col("reward") > (total + 0.5) * card.reward.unit).select(pl.len())
    return int(_collect(over).item())


def _steps_that_fit(values: np.ndarray, card: Card) -> int | None:
    """Fewest steps of a lattice on the declared range that has all values and all points of the card's lattice."""
    low, high = card.reward.range
    positions = (np.clip(values, low, high) - low) / (high - low)
    for steps in range(card.reward.steps, _FINEST + 1, card.reward.steps):
        if (np.abs(positions * steps - np.round(positions * steps)) < _ROUNDING * steps).all():
            return steps
    return None
