"""Facts of one snapshot for the operator: its sizes, its coverage, and the visits that the noise would drown.

Facts are raw and never published.  Counts are those of :func:`~pipeline.logs.aggregate.count_rows`, so that coverage is
that of the tables a run releases, pooled over steps if the card says stationary.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.arrays import Bools, Integers
from pipeline.declaration.card import AnyCard, Card, LqCard
from pipeline.declaration.domain import Vector
from pipeline.facts.promise import Dump
from pipeline.logs import aggregate, contribution_bounding, rules
from pipeline.logs.store import Snapshot, set_aside
from pipeline.operator.confounding import NO_COLUMN, TOO_FEW, hidden_state
from pipeline.privacy.budget import largest_delta
from pipeline.statistics import ask, calibration

_MEND = {
    TOO_FEW: "judge by what is known of who decided; fewer states or more people can be tested",
    NO_COLUMN: "judge by what is known of who decided; what they saw can be tested if the log has it",
}
_UNREAD = (
    "put the log where the card names it and inspect again (a data frame: `store.inspect(card, frame)`); else judge by "
    "what is known of who decided"
)

# a cell with fewer visits is hardly informative, with or without noise
FEW = 20
# a cell whose visits are below this many standard deviations of the noise looks like an empty one
DROWNED = 2.0
# share of the usable cells that drown in the noise at a quarter of the cap, above which a warning is due
THIN = 0.1
# a state whose most frequent action has a larger share of its visits has no second action to learn about
NEARLY_ALL = 0.95
# relative difference between people counted and declared, above which a warning is due
FAR = 0.1
# kind of a test -> code of its warning
_HIDDEN = {
    "state": "hidden_state",
    "beside": "hidden_column",
    "day": "hidden_day",
    "step": "hidden_step",
    "past": "hidden_past",
    "later": "hidden_course",
}
# share of rows whose reward ingest changed, above which a warning is due
_CHANGED = 0.002
# part of the declared range that rewards use, below which a warning is due
_USED = 0.2
# share of shortened rows of a log of vectors, above which a warning is due
_MANY = 0.2
# budgets at which the noise is shown, as shares of the card's lifetime cap
BUDGETS = {"the whole cap": 1.0, "a quarter of the cap": 0.25}


def coverage(card: Card, n: Integers, allowed: Bools) -> Dump:
    """Facts of the visits ``n (G, L, A)`` of the cells that a policy may use, in the shape of the card's tables."""
    unseen, rare = (allowed & (n == 0)).sum(-1), (allowed & (n > 0) & (n < FEW)).sum(-1)
    pooled = card.domain.dynamics == "stationary"
    states, actions = card.domain.live_states, card.domain.action_labels
    best, visits = n.argmax(-1), n.sum(-1)
    return {
        "pooled": pooled,
        "few": FEW,
        "cells": int(allowed.sum()) * len(n),
        "never_seen": int(unseen.sum()),
        "seen_fewer_than_few": int(rare.sum()),
        "table": [
            {
                "step": None if pooled else g,
                "state": states[s],
                "visits": int(visits[g, s]),
                "actions_allowed": int(allowed[s].sum()),
                "never_seen": int(unseen[g, s]),
                "seen_fewer_than_few": int(rare[g, s]),
                "top_action": actions[best[g, s]] if visits[g, s] else None,
                "top_share": float(n[g, s].max() / visits[g, s]) if visits[g, s] else None,
            }
            for g, s in np.ndindex(visits.shape)
        ],
    }


def behaviour(card: Card, visits: Integers) -> list[Dump]:
    """Facts of the logging policy over all steps; ``visits (L, A)`` are counted before any cap of cells."""
    return [
        {
            "state": state,
            "visits": int(row.sum()),
            "actions_seen": int((row > 0).sum()),
            "top_action": card.domain.action_labels[int(row.argmax())] if row.any() else None,
            "top_share": float(row.max() / row.sum()) if row.any() else None,
        }
        for state, row in zip(card.domain.live_states, visits, strict=True)
    ]


def noise(card: Card, n_sa: Integers, allowed: Bools, budget: str, share: float) -> Dump:
    """Compare visits with the noise of n[h,s,a] (n[h,s,a,s'] summed, the default release), where the state occurs."""
    rho = share * card.budget.rho
    table = next(m for m in calibration.count_sum(card, ask.Ask(rho=rho)).mechanisms if m.table == "n_sas")
    deviation = table.standard_deviation * float(np.sqrt(table.shape[-1]))
    # a state that never occurs at a step needs no advice there
    usable = allowed & (n_sa.sum(-1, keepdims=True) > 0)
    drowned = usable & (n_sa < DROWNED * deviation)
    return {
        "budget": budget,
        "rho": rho,
        "deviation_of_visits": deviation,
        "cells_drowned": int(drowned.sum()),
        "share_of_cells": float(drowned.sum() / max(1, usable.sum())),
        "share_of_visits": float(n_sa[drowned].sum() / max(1, n_sa.sum())),
    }


_COLUMNS = ["user_id", "episode_id", "step", "state", "action", "reward", "next_state", "terminated"]


def inspect_tables(snapshot: Snapshot, card: Card, files: Sequence[Path] | None = None) -> Dump:
    """Facts of a snapshot, one partition in memory at a time; ``files``: its log, None: the card's files.

    Returns plain values under the keys that ``docs/operate.md`` lists.
    """
    d, rows = card.domain, max(1, snapshot.rows)
    visits = np.zeros((d.horizon, len(d.live_states), len(d.action_labels)), dtype=np.int64)
    n_sa, successors = np.zeros((d.table_steps, *visits.shape[1:]), dtype=np.int64), np.int64(0)
    for part in snapshot.part_files:
        tables = aggregate.count_rows(pl.read_parquet(part, columns=_COLUMNS), card)
        n_sa += tables["n_sa"]
        successors = successors + tables["n_sas"].sum((0, 1, 2))
    scan, reward = pl.scan_parquet(snapshot.part_files), pl.col("reward")
    # before any cap of cells
    cells = scan.group_by("step", "state", "action").len().collect(engine="streaming")
    visits[tuple(cells[name].to_numpy() for name in ("step", "state", "action"))] = cells["len"].to_numpy()
    ends = {"lowest": reward.min(), "highest": reward.max(), "mean": reward.sum() / rows}
    sums = scan.select(unknown=pl.col("next_state").null_count(), **ends).collect(engine="streaming").row(0, named=True)
    unknown, counted = sums.pop("unknown"), np.broadcast_to(successors, len(d.state_labels))
    return {
        **snapshot_facts(snapshot, card),
        "coverage": coverage(card, n_sa, d.allowed),
        "behaviour": behaviour(card, visits.sum(0)),
        "shares": {
            "ends": {
                end: int(n) / max(1, int(counted.sum()))
                for end, n in zip(d.states.ends, counted[len(d.live_states) :], strict=False)
            },
            "unknown_next_state": unknown / rows,
            "other_state": _other_share(visits.sum((0, 2)), d.states.other),
            "other_action": _other_share(visits.sum((0, 1)), d.actions.other),
            "beyond_cell_cap": 1 - (int(n_sa.sum()) + unknown) / rows,
        },
        # clipped and floored rewards; None if the card declares a table
        "reward": None
        if sums["lowest"] is None
        else {
            **sums,
            "clipped_share": snapshot.quarantined.get("reward_range", 0) / rows,
            "floored_share": snapshot.quarantined.get("reward_off_lattice", 0) / rows,
        },
        "noise": [noise(card, n_sa, d.allowed, name, share) for name, share in BUDGETS.items()],
        "hidden_state": hidden_state(snapshot, card, files),
    }


def snapshot_facts(snapshot: Snapshot, card: AnyCard) -> Dump:
    """Number and sizes of a snapshot, rules that rows broke or that have a tolerance, people and episodes."""
    by_length, people = np.zeros(card.domain.horizon + 1, dtype=np.int64), Counter[int]()
    for part in snapshot.part_files:
        # each user is whole in one part
        users = pl.read_parquet(part, columns=["user_id", "episode_id"])
        episodes = users.group_by("user_id", "episode_id").agg(pl.len().alias("length"))
        by_length += np.bincount(episodes["length"].to_numpy(), minlength=len(by_length))
        people.update(dict(episodes.group_by("user_id").len("n").group_by("n").len("people").iter_rows()))
    named = [name for name in rules.BY_NAME if name in snapshot.quarantined or name in card.tolerance]
    return {
        "dataset": card.name,
        "kind": card.kind,
        "snapshot": snapshot.number,
        "source_rows": snapshot.source_rows,
        "rows": snapshot.rows,
        "users": snapshot.users,
        "episodes": snapshot.episodes,
        "rules": [
            {
                "rule": name,
                "effect": rules.BY_NAME[name].effect,
                "rows": snapshot.quarantined.get(name, 0),
                "share": snapshot.quarantined.get(name, 0) / max(1, snapshot.source_rows),
                "tolerance": card.tolerance.get(name),
            }
            for name in named
        ],
        "people": {
            "declared": card.unit.users_public,
            "counted": snapshot.users,
            "counted_over_declared": snapshot.users / card.unit.users_public,
            "cap_of_episodes": card.unit.episodes_per_user,
            "most_episodes_kept": max(people, default=0),
            "with_several_episodes": sum(people[n] for n in people if n > 1),
            **_over_cap(snapshot, card),
        },
        "steps": _step_facts(by_length, snapshot),
    }


def _over_cap(snapshot: Snapshot, card: AnyCard) -> Dump:
    """Count people above the cap and their dropped episodes in the quarantine; null if it was purged."""
    columns = card.source.columns
    user = contribution_bounding.canonical(pl.col("source").struct.field(columns.user_id)).alias("user")
    # without an episode column each row is an episode
    episode = pl.col("line") if columns.episode_id is None else pl.col("source").struct.field(columns.episode_id)
    with set_aside(snapshot) as files:
        if not files:
            return {"above_cap": None, "episodes_dropped_by_cap": None}
        dropped = pl.scan_parquet(files).filter(pl.col("rule") == "over_cap")
        episodes = dropped.select(user, "file" if columns.episode_id is None else pl.lit(""), episode.alias("episode"))
        distinct = episodes.unique().collect()
    return {"above_cap": distinct["user"].n_unique(), "episodes_dropped_by_cap": len(distinct)}


def _step_facts(by_length: Integers, snapshot: Snapshot) -> Dump:
    """Facts of the lengths of episodes, ``by_length (H+1,)``, and of the rows of each step."""
    rows = pl.scan_parquet(snapshot.part_files).group_by("step").len().collect(engine="streaming")
    rows_by_step = np.zeros(len(by_length) - 1, dtype=np.int64)
    rows_by_step[rows["step"].to_numpy()] = rows["len"].to_numpy()
    episodes = max(1, int(by_length.sum()))
    ranks = np.cumsum(by_length) / episodes
    lengths = np.arange(len(by_length))
    return {
        "horizon": len(lengths) - 1,
        "mean": float(lengths @ by_length / episodes),
        "median": int(np.searchsorted(ranks, 0.5)),
        "p90": int(np.searchsorted(ranks, 0.9)),
        "whole_horizon_share": float(by_length[-1] / episodes),
        "episodes_by_length": by_length[1:].tolist(),
        "rows_by_step": rows_by_step.tolist(),
    }


def _other_share(visits: Integers, declared: bool) -> float | None:
    return float(visits[-1] / max(1, visits.sum())) if declared else None


# parts of the declared radius for which the share of longer vectors is counted: a recipe's `cut` would shorten these
PARTS = (0.25, 0.5, 0.7, 1.0)
ROLES = ("observation", "action", "next_observation")
# factor by which rounding to single precision may lengthen a vector
_BEYOND = 1 + 1e-5


def inspect_vectors(snapshot: Snapshot, card: LqCard) -> Dump:
    """Facts of a snapshot of vectors, one partition in memory at a time; ``docs/operate.md`` lists the keys."""
    d, rows = card.domain, max(1, snapshot.rows)
    scan = pl.scan_parquet(snapshot.part_files)
    declared = {role: d.action if role == "action" else d.observation for role in ROLES}
    relative_lengths = {role: _length(role, v.size) / v.radius for role, v in declared.items()}
    beyond = pl.any_horizontal((part > _BEYOND).fill_null(value=False) for part in relative_lengths.values())
    with_next = pl.col("next_observation").count()
    sums = scan.select(far=beyond.sum(), known=with_next).collect(engine="streaming").row(0, named=True)
    return {
        **snapshot_facts(snapshot, card),
        "shares": {"unknown_next_observation": 1 - sums["known"] / rows, "shortened": sums["far"] / rows},
        "vectors": {role: _summarise(scan, role, v, relative_lengths[role]) for role, v in declared.items()},
    }


def _length(role: str, size: int) -> pl.Expr:
    """Euclidean length of the vectors of a column; null where there is none."""
    squares = [_coordinate(role, i) ** 2 for i in range(size)]
    return pl.sum_horizontal(squares, ignore_nulls=False).sqrt()


def _coordinate(role: str, i: int) -> pl.Expr:
    return pl.col(role).list.get(i).cast(pl.Float64)


def _summarise(scan: pl.LazyFrame, role: str, declared: Vector, relative_length: pl.Expr) -> Dump:
    longer = {f"{part:g}": (relative_length > part * _BEYOND).mean().fill_null(0.0) for part in PARTS}
    coordinates: list[Dump] = []
    for i, name in enumerate(declared.labels):
        x = _coordinate(role, i)
        statistics = {"lowest": x.min(), "highest": x.max(), "mean": x.mean(), "deviation": x.std(ddof=0)}
        values = scan.select(**statistics).collect(engine="streaming").row(0, named=True)
        coordinates += [{"name": name, **values}] if values["lowest"] is not None else []
    shares = scan.select(**longer).collect(engine="streaming").row(0, named=True)
    return {"radius": declared.radius, "longer_than": shares, "coordinates": coordinates}


def advice(facts: Dump, card: Card) -> list[Dump]:
    """Warnings, gravest first: ``code`` (stable), ``what``, ``means``, ``do``."""
    support, people, (full, quarter) = facts["coverage"], facts["people"], facts["noise"]
    warnings: dict[str, Mapping[str, object]] = {}
    tests = facts["hidden_state"]["tests"]
    for kind, code in _HIDDEN.items():
        if dependent := [t for t in tests if t["speaks"] and t["kind"] == kind]:
            dependent.sort(key=lambda t: -t["difference"])
            columns = [*dict.fromkeys(t["column"] for t in dependent)]
            warnings[code] = {
                **dependent[0],
                "states": _listed(sorted({t["state"] for t in dependent})),
                # gravest first
                "columns": _listed(columns),
                "loud": len(dependent),
                "tests": sum(t["kind"] == kind for t in tests),
                "significance": facts["hidden_state"]["significance"],
                "example": json.dumps([*card.domain.states.read, columns[0]]),
            }
    if not facts["hidden_state"]["checked"]:
        why_not = facts["hidden_state"]["why_not"]
        warnings["hidden_state_unchecked"] = {"why_not": why_not, "mend": _MEND.get(why_not, _UNREAD)}
    rows = support["table"]
    deterministic = [
        r for r in rows if r["visits"] >= FEW and r["actions_allowed"] > 1 and (r["top_share"] or 0.0) > NEARLY_ALL
    ]
    if deterministic:
        names = _listed([r["state"] + ("" if r["step"] is None else f" at step {r['step']}") for r in deterministic])
        values = {"sure": len(deterministic), "rows": len(rows), "nearly_all": NEARLY_ALL, "named": names}
        warnings["nearly_deterministic"] = values
    if quarter["share_of_cells"] > THIN:
        full_values = {"whole_rho": full["rho"], "whole_drowned": full["cells_drowned"], "drowned": DROWNED}
        warnings["thin_support"] = {**support, **quarter, **full_values}
    if abs((share := people["counted_over_declared"]) - 1) > FAR:
        several = ". Too many people for the declaration usually means one person has several ids" if share > 1 else ""
        warnings["people_declared"] = {**people, "several_ids": several}
    fewest = min(people["declared"], max(1, people["counted"]))
    if card.budget.delta > (most := largest_delta(fewest)):
        warnings["delta"] = {"delta": card.budget.delta, "fewest": fewest, "most": most}
    dropped, above = people["episodes_dropped_by_cap"], people["above_cap"]
    if dropped or people["with_several_episodes"]:
        gone = (
            "the quarantine was purged, so what the cap dropped is unknown"
            if dropped is None
            else f"the cap of {people['cap_of_episodes']} dropped {dropped:,} episodes of {above:,} people"
        )
        warnings["several_episodes"] = {**people, "gone": gone}
    visited = [b["state"] for b in facts["behaviour"] if b["visits"]]
    if len(visited) == 1 and len(facts["behaviour"]) > 1:
        warnings["constant_state"] = {"state": visited[0]}
    if (reward := facts["reward"]) is not None:
        if reward["lowest"] == reward["highest"]:
            warnings["constant_reward"] = reward
        if reward["clipped_share"] > _CHANGED or reward["floored_share"] > _CHANGED:
            warnings["changed_rewards"] = {**reward, "range": list(card.reward.range), "steps": card.reward.steps}
        low, high = card.reward.range
        if 0 < reward["highest"] - reward["lowest"] < _USED * (high - low):
            warnings["wide_range"] = {**reward, "range": [low, high]}
    return _in_words(warnings)


def vector_advice(facts: Dump) -> list[Dump]:
    """Warnings of a log of vectors, gravest first: see :func:`advice`."""
    warnings: dict[str, Mapping[str, object]] = {}
    if constant := [c["name"] for c in facts["vectors"]["action"]["coordinates"] if c["deviation"] == 0.0]:
        warnings["control_never_varies"] = {"still": ", ".join(constant)}
    if facts["shares"]["shortened"] > _MANY:
        warnings["many_rows_shortened"] = facts["shares"]
    if abs(facts["people"]["counted_over_declared"] - 1) > FAR:
        warnings["people_declared_and_counted"] = facts["people"]
    return _in_words(warnings)


def _in_words(warnings: Mapping[str, Mapping[str, object]]) -> list[Dump]:
    """Fill the texts of warnings, by code, with their values."""
    texts = tomllib.loads(Path(__file__).with_name("warnings.toml").read_text(encoding="utf-8")) if warnings else {}
    return [
        {"code": code, **{part: template.format_map(values) for part, template in texts[code].items()}}
        for code, values in warnings.items()
    ]


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more
