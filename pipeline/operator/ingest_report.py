"""What an ingest did to people: who and what was set aside, by which rule, and whether those lost are like those kept.

Raw facts, for the operator only.  They are read from the quarantine and the parts of one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pipeline.declaration.card import AnyCard, Card
from pipeline.logs.contribution_bounding import canonical
from pipeline.logs.decode import number_of, order_of, read_flag
from pipeline.logs.rules import BY_NAME, DROPS, NAMELESS
from pipeline.logs.store import Snapshot, set_aside

if TYPE_CHECKING:
    from pipeline.facts.promise import Dump

PAGE = "ingest.html"
"""The report as a file beside the snapshot's rows."""

# above this share of all people lost, or of rewards rounded down, a person is warned
LOUD = 0.05
# labels and steps that are listed
_MOST = 20
# lattices that are tried, and different rewards that one is tried on
_FINEST, _REWARDS = 10_000, 2_000
# a difference between those lost and those kept is told from this distance on, and of so many rows lost
DIFFERENT, _ENOUGH = 0.05, 30
_ROUNDING = 1e-6
# rows set aside that are read once and held, rather than once a question
_FEW = 100
# of a quarantine that has no file
_NOTHING = {"rule": pl.String, "effect": pl.String, "dropped": pl.Boolean, "user": pl.String, "episode": pl.String}


def ingest_report(snapshot: Snapshot, card: AnyCard) -> Dump:
    """What a snapshot's ingest did to people; who is lost had rows in the log and has none in the snapshot.

    ``episodes`` and ``people`` of a rule are None of lines that name nobody; a ``label`` is None of an empty cell.
    """
    with set_aside(snapshot) as files:
        # files in which nothing was filed say nothing, and cost as much to ask as others
        return _report(snapshot, card, files if snapshot.quarantined else [])


def _report(snapshot: Snapshot, card: AnyCard, files: Sequence[Path]) -> Dump:
    wrong = pl.concat([_by_role(pl.scan_parquet(f), card) for f in files] or [pl.LazyFrame(schema=_NOTHING)])
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
        "rules": _rules(wrong),
        "labels": [] if tables is None or not files else _labels(wrong, snapshot, tables),
        "steps": _steps(wrong),
        "differences": [] if tables is None or not files else _differences(gone, snapshot, tables),
        "rewards": None if tables is None else _rewards(wrong, snapshot, tables),
        "purged": not files and bool(snapshot.quarantined),
    }


def _told(asked: pl.LazyFrame) -> pl.DataFrame:
    """By streams: one person's rows may be most of what is set aside, and more than the memory holds."""
    return asked.collect(engine="streaming")


def _counts(cells: pl.LazyFrame, role: str) -> pl.DataFrame:
    """Each different cell of a role, and ``len``, how many rows have it; the most frequent first."""
    return _told(cells.group_by(role).len()).sort(["len", role], descending=[True, False])


def _by_role(filed: pl.LazyFrame, card: AnyCard) -> pl.LazyFrame:
    """``rule``, ``effect``, ``dropped``, ``user``, ``episode`` and the raw cells by their roles."""
    cells = {role: pl.col("source").struct.field(column).alias(role) for role, column in card.log.roles.items()}
    cells.setdefault("episode", pl.lit(None, dtype=pl.String).alias("episode"))
    cells["user"] = pl.when(~pl.col("rule").is_in(list(NAMELESS))).then(canonical(cells["user"])).alias("user")
    return filed.select("rule", "effect", pl.col("effect").is_in(list(DROPS)).alias("dropped"), *cells.values())


def _lost(wrong: pl.LazyFrame, snapshot: Snapshot) -> pl.Series:
    dropped = _told(wrong.filter("dropped").select("user").drop_nulls().unique())["user"]
    if dropped.is_empty():
        return dropped
    users = canonical(pl.col("user_id").cast(pl.String)).unique()
    kept = pl.concat([pl.scan_parquet(part).select(users) for part in snapshot.part_files]).collect()
    return dropped.filter(~dropped.is_in(kept["user_id"].implode()))


def _rules(wrong: pl.LazyFrame) -> list[Dump]:
    episodes = wrong.group_by("rule", "user", "episode").agg(pl.col("effect").first(), pl.len().alias("rows"))
    each = (
        _told(episodes)
        .group_by("rule")
        .agg(
            pl.col("effect").first(),
            pl.col("rows").sum(),
            pl.len().alias("episodes"),
            pl.col("user").n_unique().alias("people"),
            pl.col("user").null_count().alias("nobody"),
        )
    )
    found = {row["rule"]: row for row in each.to_dicts()}
    return [
        {
            "rule": name,
            "effect": str(found[name]["effect"]),
            "rows": int(found[name]["rows"]),
            "episodes": None if found[name]["nobody"] else int(found[name]["episodes"]),
            "people": None if found[name]["nobody"] else int(found[name]["people"]),
        }
        for name in BY_NAME
        if name in found
    ]


def _declared(card: Card) -> dict[str, Mapping[str, int]]:
    """Role -> the raw labels that are declared; a role whose cells are binned is not there."""
    states, found = card.domain.states, {"action": dict(card.domain.actions.raw_labels())}
    if states.bins is None:
        ends = {end: states.first_terminal + i for i, end in enumerate(states.ends)}
        found["state"] = states.raw_labels() | ends
    return {role: labels for role, labels in found.items() if role in card.log.roles}


def _labels(wrong: pl.LazyFrame, snapshot: Snapshot, card: Card) -> list[Dump]:
    found: list[Dump] = []
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
            found.append({"column": column, "label": label, "rows": int(rows)})
    return found


def _unread(kind: str, texts: pl.Series, card: Card) -> pl.Series:
    """Which cells of a role cannot be read."""
    cells = texts.alias("raw_order").to_frame()
    number, empty = number_of(pl.col("raw_order")), pl.col("raw_order").is_null()
    if kind in ("terminated", "truncated"):
        return read_flag(texts)["unread"]
    odd = {
        "reward": ~number.is_finite().fill_null(value=False),
        "order": order_of({"order": pl.String()}).is_null(),
        "step": (number.is_null() | (number != number.floor()) | (number < card.source.starts_at)).fill_null(
            value=True
        ),
        **dict.fromkeys(("bin", "next_bin", "behavior_prob"), number.is_null() & ~empty),
    }
    return cells.select(odd.get(kind, pl.lit(value=False)).alias("odd")).to_series()


def _steps(wrong: pl.LazyFrame) -> list[Dump]:
    if "step" not in wrong.collect_schema():
        return []
    counts = _counts(wrong.filter("dropped").drop_nulls("step"), "step").head(_MOST)
    told = counts.sort(number_of(pl.col("step")), nulls_last=True).rows()
    return [{"step": str(step), "rows": int(rows)} for step, rows in told]


def _differences(gone: pl.LazyFrame, snapshot: Snapshot, card: Card) -> list[Dump]:
    found: list[Dump] = []
    names = {"state": card.domain.state_labels, "action": card.domain.action_labels}
    for role, labels in _declared(card).items():
        index = pl.col(role).replace_strict(labels, default=None, return_dtype=pl.Int32)
        gone_here = _counts(gone.select(index).drop_nulls(), role)
        if gone_here["len"].sum() < _ENOUGH or not snapshot.rows:
            continue
        here = _counts(pl.concat([pl.scan_parquet(part).select(role) for part in snapshot.part_files]), role)
        lost, kept = np.zeros(len(names[role])), np.zeros(len(names[role]))
        lost[gone_here[role].to_numpy()] = gone_here["len"].to_numpy()
        kept[here[role].to_numpy()] = here["len"].to_numpy()
        p, q = lost / lost.sum(), kept / kept.sum()
        # what chance alone makes of so few rows
        chance = float(np.sqrt(2 * q * (1 - q) / (np.pi * lost.sum())).sum() / 2)
        distance, at = float(np.abs(p - q).sum() / 2), int(np.abs(p - q).argmax())
        found.append(
            {
                "column": card.log.roles[role],
                "rows": int(lost.sum()),
                "distance": distance,
                "label": names[role][at],
                "share_lost": float(p[at]),
                "share_kept": float(q[at]),
                "speaks": distance > max(DIFFERENT, 3 * chance),
            }
        )
    return found


def _rewards(wrong: pl.LazyFrame, snapshot: Snapshot, card: Card) -> Dump | None:
    rows = snapshot.quarantined.get("reward_off_lattice", 0)
    if not rows or card.reward.kind != "estimate":
        return None
    fit: int | None = None
    # a wide source has a column a step
    cells = [name for name in wrong.collect_schema() if name.partition("@")[0] == "reward"]
    if cells:
        odd = wrong.filter(pl.col("rule") == "reward_off_lattice")
        values = pl.concat([odd.select(number_of(pl.col(name).cast(pl.String)).alias("v")) for name in cells])
        different = _told(values.drop_nulls().unique())["v"].sort()
        fit = _steps_that_fit(different.head(_REWARDS).to_numpy(), card)
    return {
        "rows": rows,
        "share": rows / max(1, snapshot.rows),
        "steps": card.reward.steps,
        "steps_that_fit": fit,
    }


def _steps_that_fit(values: np.ndarray, card: Card) -> int | None:
    """The fewest steps of the declared range of which all values, and the points of today's lattice, are points."""
    low, high = card.reward.range
    at = (np.clip(values, low, high) - low) / (high - low)
    for steps in range(card.reward.steps, _FINEST + 1, card.reward.steps):
        if (np.abs(at * steps - np.round(at * steps)) < _ROUNDING * steps).all():
            return steps
    return None
