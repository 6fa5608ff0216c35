"""The card of a simulated log, which declares the truth of its world.

The folder of a simulated log: card, recipe, world, README and the log itself, in TOML as a person would write it.

Trajectories from a *released* model: post-processing of noisy counts, so it reads no row and costs nothing.

Sampled are the start, the transitions, the rewards and the logging policy, all from the consistent counts of one
release.  An action the counts give no visit is never logged.  In a state without any visit the actions are uniform over
those allowed, and an unvisited cell leads anywhere, as the planner has it.  A reward is one of the two lattice points
beside its released mean.  None of this is evidence beyond the release itself.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.agents.pessimism import reward_estimate, start_distribution, transition_estimate
from pipeline.arrays import Array, Integers
from pipeline.declaration.card import Card, CardError, declared_start, task_of
from pipeline.declaration.domain import OTHER, StateFeatures
from pipeline.declaration.toml import validated
from pipeline.facts.promise import DeclaredTables, Guarantee
from pipeline.facts.report import read_report
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import read_release, sha256_file
from pipeline.statistics.count_layout import reward_sensitivity
from pipeline.statistics.planning_counts import private_counts
from pipeline.worlds.catalog import WORLD_ARRAYS, WORLD_FILE, arrays_file
from pipeline.worlds.simulated_logs import stream_log
from pipeline.worlds.world import World, world_features

ALL_STATES = "all"
# finest lattice that is looked for; rewards off it are rounded down at ingest
_MOST_STEPS = 10_000
# a person's steps at one (state, action) that a table of all steps counts, per episode
_CELL_CAP = 4

COMMENTS: Mapping[str, str] = {
    "unit.users_public": "declared, never counted",
    "domain.dynamics": "per_step: a table for each step; stationary: one for all",
    "domain.cell_cap": "a user's later steps at the same (state, action) enter no table",
    "domain.markov": "declared: the states hide nothing; aggregated: bins hide part of them",
    "domain.start": "estimated from the released counts",
    "domain.states.ends": "an episode is over on entering one; worth nothing from then on",
    "reward.range": "the world's own units: nothing is rescaled",
    "reward.steps": "lattice: every reward that can be paid lies on it, or is rounded down to it",
    "reward.total": "what one user's rewards can sum up to",
    "tolerance.unknown_label": "no row may hold an undeclared label",
    "budget.rho": "lifetime cap of this lineage (zCDP)",
}


def readme(file: str, **fields: object) -> str:
    """The README of a simulated log."""
    return Path(__file__).with_name(file).read_text(encoding="utf-8").format(**fields)


def checked(values: Mapping[str, Any]) -> Card:
    """The card of plain values.

    Raises CardError one line for each key that is wrong.
    """
    return validated(Card, values, f"card of {values['name']}")


def world_card(
    world: World, *, name: str, horizon: int, bins: str | None, episodes: int, episodes_per_user: int, rho: float
) -> dict[str, Any]:
    """Plain values of the card.

    Raises CardError if there is no such binning.
    """
    states = _states(world, bins)
    binned = "bins" in states
    stationary = world.stationary and horizon > 1
    columns = {"user_id": "user_id", "episode_id": "episode_id", "step": "step", "reward": "reward"}
    columns |= {"next_state": "next_state"} | ({"next_bin": f"next_{states['bins']['by']}"} if binned else {})
    tables = {
        "domain": {
            "horizon": horizon,
            "dynamics": "stationary" if stationary else "per_step",
            "cell_cap": _CELL_CAP * episodes_per_user if stationary else None,
            "markov": "aggregated" if binned else "declared",
            "start": "released",
            "states": states,
            "actions": {"column": "action", "labels": short(world.actions)},
        },
        "reward": {**_source_of_rewards(world, states), **_lattice(possible_rewards(world, horizon))},
        "source": {"layout": "long", "files": ["episodes-*.parquet"], "columns": columns},
        "tolerance": {"unknown_label": 0.0},
    }
    values = simulated_card(name, tables, episodes=episodes, episodes_per_user=episodes_per_user, rho=rho)
    return _with_total(values, world, horizon)


def simulated_card(
    name: str,
    tables: Mapping[str, Any],
    *,
    episodes: int,
    episodes_per_user: int = 1,
    rho: float = 1.0,
    delta: float = 1e-6,
    user: str = "user_id",
) -> dict[str, Any]:
    """Plain values of the card of a simulated log."""
    people = math.ceil(episodes / episodes_per_user)
    return {
        "schema_version": 1,
        "name": name,
        "kind": "synthetic",
        "unit": {"user": user, "episodes_per_user": episodes_per_user, "users_public": people},
        **tables,
        "budget": {"rho": rho, "delta": delta, "ledger": "home"},
    }


def short(labels: list[str]) -> int | list[str]:
    """Labels 0 ... n-1 as their number."""
    return len(labels) if labels == [str(i) for i in range(len(labels))] else labels


def _states(world: World, bins: str | None) -> dict[str, Any]:
    chosen = bins or next(iter(world.binnings), ALL_STATES)
    declared: dict[str, Any] = {"column": "state"}
    if chosen == ALL_STATES:
        live = [label for s, label in enumerate(world.raw_labels) if s not in world.ends]
        declared["labels"] = short(list(dict.fromkeys(live)))
        features = world_features(world)
        declared |= {} if features is None else {"features": features}
    elif chosen in world.binnings:
        column, edges = world.binnings[chosen]
        declared["bins"] = {"by": column, "edges": edges}
    else:
        names = ", ".join([*world.binnings, ALL_STATES])
        raise CardError(f"world {world.name}: no bins {chosen!r}; there are: {names}")
    return declared | {"ends": list(dict.fromkeys(world.ends.values()))}


def possible_rewards(world: World, horizon: int) -> Array:
    """Sorted distinct rewards that a step from a live state can pay."""
    live = ~world.terminal
    visit = np.broadcast_to(world.visit_reward, (horizon, *world.shape)) if not world.stationary else world.visit_reward
    if not world.entry_reward.any():
        return np.unique(visit[..., live, :])
    paid = visit[..., live, :, None] + world.entry_reward
    return np.unique(paid[np.broadcast_to(world.transition[..., live, :, :] > 0, paid.shape)])


def _source_of_rewards(world: World, states: Mapping[str, Any]) -> dict[str, Any]:
    """Declared where only entering a state pays and the card declares every state with its features; else estimated."""
    if "features" not in states or world.visit_reward.any() or world.lattice is not None:
        return {"kind": "estimate"}
    paid = {
        world.ends.get(int(s), world.raw_labels[s]): float(world.entry_reward[s])
        for s in world.entry_reward.nonzero()[0]
    }
    return {"kind": "on_entering", "on_entering": paid}


def _lattice(rewards: Array) -> dict[str, Any]:
    """Range and steps that hold every reward; from 0 where none is negative."""
    low, high = min(0.0, float(rewards[0])) if rewards[0] >= 0 else float(rewards[0]), float(rewards[-1])
    high = high if high > low else low + 1.0
    positions = (rewards - low) / (high - low)
    exact = [Fraction(float(x)).limit_denominator(_MOST_STEPS) for x in positions]
    steps = math.lcm(*(f.denominator for f in exact))
    near = max(abs(float(f) - x) for f, x in zip(exact, positions, strict=True)) < 1e-9
    return {"range": [low, high], "steps": steps if near and steps <= _MOST_STEPS else _MOST_STEPS}


def _with_total(values: dict[str, Any], world: World, horizon: int) -> dict[str, Any]:
    """Declare the most a user can be paid where that needs less noise than the range alone."""
    if values["reward"]["range"][0] != 0:
        return values
    total = most_paid(world, horizon) * values["unit"]["episodes_per_user"]
    if total <= 0:
        return values
    bounded = values | {"reward": values["reward"] | {"total": total}}
    less = reward_sensitivity(checked(bounded)).l2_squared < reward_sensitivity(checked(values)).l2_squared
    return bounded if less else values


def most_paid(world: World, horizon: int) -> float:
    """Largest sum of rewards of one episode, over everything that can happen."""
    to_go = np.zeros(len(world.start))
    visit = np.broadcast_to(world.visit_reward, (horizon, *world.shape))
    # of a large world few moves are possible: only these are looked at, and found once where all steps are alike
    alike = world.transition.ndim == 3
    possible = _possible_moves(world.transition) if alike else None
    for h in reversed(range(horizon)):
        onto, first = possible or _possible_moves(world.transition[h])
        after = np.maximum.reduceat((world.entry_reward + to_go)[onto], first).reshape(world.shape)
        to_go = np.where(world.terminal, 0.0, (visit[h] + after).max(-1))
    return float(to_go[world.start > 0].max())


def _possible_moves(transition: Array) -> tuple[Integers, Integers]:
    """The states that each state and action of ``(S, A, S)`` may lead to, and where each one's begin."""
    possible = transition.reshape(-1, transition.shape[-1]) > 0
    return possible.nonzero()[1], np.append(0, possible.sum(-1).cumsum()[:-1])


# first words of a card that this program wrote, and may therefore write again
_MARK = "Written by `reticent simulate`"
# budget of the recipe, unless the card's cap is smaller
_RHO = 1.0
_TABLES: Mapping[str, Any] = {"recipe": {"agent": "dp-apvi"}, "planner": {"constants": "practical", "bounds": "tail"}}


def toml_text(
    head: Sequence[str], values: Mapping[str, Any], comments: Mapping[str, str] | None = None, inner: Sequence[str] = ()
) -> str:
    """Lines of ``head`` as comments, then ``values``.

    ``values``: tables are written as ``[table]``, their content inline; None is left out.
    """
    remarks = comments or {}
    lines = [f"# {line}".rstrip() for line in head]
    lines += _pairs("", {k: v for k, v in values.items() if not isinstance(v, Mapping)}, remarks)
    for name, table in values.items():
        if isinstance(table, Mapping):
            own = {k: v for k, v in table.items() if f"{name}.{k}" in inner and isinstance(v, Mapping)}
            lines += ["", f"[{name}]", *_pairs(f"{name}.", {k: v for k, v in table.items() if k not in own}, remarks)]
            for key, below in own.items():
                lines += ["", f"[{name}.{key}]", *_pairs(f"{name}.{key}.", below, remarks)]
    return "\n".join(lines) + "\n"


def _pairs(prefix: str, values: Mapping[str, Any], remarks: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    for key, value in values.items():
        if value is not None:
            comment = f"   # {remarks[prefix + key]}" if prefix + key in remarks else ""
            lines.append(f"{_key(key)} = {toml_value(value)}{comment}")
    return lines


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "a").replace("-", "a").isalnum() else _text(key)


def _text(value: str) -> str:
    # JSON strings are TOML strings but for one control character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_value(value: Any) -> str:
    """One value; lists and mappings inline, a table of features by its file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, StateFeatures):
        return _text(value.file)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(k))} = {toml_value(v)}" for k, v in value.items() if v is not None) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return repr(value)


@dataclass(frozen=True)
class Simulated:
    """Content of the folder of a simulated log.

    ``world``: content of ``world.toml``; None where the true world is not known.
    """

    log: Callable[[Path], list[Path]]
    behaviour: str
    episodes: int
    values: Mapping[str, Any]
    about: Sequence[str]
    readme: str
    world: Mapping[str, Any] | None
    comments: Mapping[str, str] = field(default_factory=lambda: COMMENTS)
    learner: Mapping[str, Any] = field(default_factory=lambda: _TABLES)


def tabular_log(
    world: World, behaviour: str, values: Mapping[str, Any], episodes: int, seed: int
) -> Callable[[Path], list[Path]]:
    """Writer of the log of a world of states and actions."""
    horizon, per_user = values["domain"]["horizon"], values["unit"]["episodes_per_user"]
    return lambda to: stream_log(world, behaviour, horizon, episodes, np.random.default_rng(seed), to, per_user)


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder that this program did not write.

    ``folder``: where a log shall be written; it may be absent or empty.
    Raises CardError if the folder holds anything but an earlier simulated log.
    """
    card = folder / "card.toml"
    written_here = card.is_file() and card.read_text(encoding="utf-8").startswith(f"# {_MARK}")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not written_here):
        raise CardError(f"{folder}: is there and holds no simulated log; name an empty folder with --to")


def write_folder(s: Simulated, folder: Path, world_folder: Path | None = None) -> list[str]:
    """Write everything into an empty folder and return the names of the log files, in order."""
    values = dict(s.values)
    inner = tuple(f"domain.{table}" for table in ("states", "actions", "observation", "action", "start"))
    card = toml_text([f"{_MARK}: simulated, nobody is behind a row.", *s.about], values, s.comments, inner)
    (folder / "card.toml").write_text(card, encoding="utf-8")
    (folder / "recipe.toml").write_text(_recipe(s), encoding="utf-8")
    (folder / "README.md").write_text(s.readme, encoding="utf-8")
    if s.world is not None:
        head = ["The world behind this log: known, so that reports can say what is true."]
        (folder / WORLD_FILE).write_text(toml_text(head, s.world), encoding="utf-8")
        arrays = None if world_folder is None else arrays_file(s.world["name"], world_folder)
        if arrays is not None and arrays.is_file():
            shutil.copyfile(arrays, folder / WORLD_ARRAYS)
    if "features" in values["domain"].get("states", {}):
        values["domain"]["states"]["features"].write(folder)
    return [f.name for f in s.log(folder)]


def _recipe(s: Simulated) -> str:
    name, cap = s.values["name"], s.values["budget"]["rho"]
    values: dict[str, Any] = {
        "recipe": {"name": name, "card": "card.toml", **s.learner["recipe"]},
        "privacy": {"rho": min(_RHO, cap)},
        **{table: settings for table, settings in s.learner.items() if table != "recipe"},
    }
    if s.world is not None:
        values["evaluate"] = {"world": s.world["name"], "behaviour": s.behaviour}
    return toml_text(["`reticent ingest` this folder, then `reticent run` this file."], values)


def world_readme(
    *,
    name: str,
    world: str,
    params: Mapping[str, Any],
    log: Mapping[str, Any],
    values: Mapping[str, float],
    command: str,
) -> str:
    """README of a log of a known world.

    ``command``: the command line that writes the same bytes.
    ``values``: name of a policy -> exact value of one episode.
    """
    settings = ", ".join(f"{k} = {v}" for k, v in params.items()) or "its defaults"
    rows = "\n".join(f"| {policy} | {value:.6g} |" for policy, value in values.items())
    log_rows = "\n".join(f"| {k} | {v} |" for k, v in log.items())
    sections = {"settings": settings, "made": log_rows, "rows": rows, "command": command}
    return readme("world_readme.md", name=name, world=world, **sections)


# name of the logging policy of a released world
PRACTICE = "released practice"


@dataclass(frozen=True)
class ReleasedRun:
    """Content of a run's folder."""

    name: str
    dataset: DeclaredTables
    guarantee: Guarantee
    release: Release


def read_run(folder: Path) -> ReleasedRun:
    """Read a run's folder: report.json, certificate.json and the release; nothing else.

    Raises CardError if it is no run's folder, or its release is not the one it certifies.
    """
    try:
        report = read_report(folder)
        proof = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
        release = read_release(folder)
        certified = proof["sha256"]["release"]
    except (OSError, KeyError, ValueError) as e:
        raise CardError(f"{folder}: not a run's folder ({type(e).__name__}); name one that `run` wrote") from None
    if "n_sas" not in release.tables or not isinstance(report.dataset, DeclaredTables):
        raise CardError(f"{folder}: a linear run releases sums of features, no counts; name a run of dp-apvi")
    if sha256_file(folder / "release.parquet") != certified:
        raise CardError(f"{folder}: release.parquet is not the one its certificate names: it was edited")
    return ReleasedRun(report.run, report.dataset, report.guarantee, release)


def released_card(run: ReleasedRun, *, name: str, episodes: int, episodes_per_user: int, rho: float) -> dict[str, Any]:
    """Plain values of a synthetic card that declares what the run's card declared; states and actions by label.

    Raises CardError if the run's report is too old to hold the declared rewards or start.
    """
    d, (low, high) = run.dataset, run.dataset.reward_range
    lacks = {"reward_table": d.reward_kind == "table", "start_declared": d.start == "declared"}
    for missing in (key for key, needed in lacks.items() if needed and getattr(d, key) is None):
        raise CardError(f"{run.name}: report.json lacks {missing}; run its recipe again (a replay costs nothing)")
    live, actions = ([label for label in labels if label != OTHER] for labels in (d.live_states, d.actions))
    other = {"live_states": OTHER in d.live_states, "actions": OTHER in d.actions}
    columns = {"user_id": "user_id", "episode_id": "episode_id", "step": "step", "reward": "reward"}
    tables = {
        "domain": {
            "horizon": d.horizon,
            "dynamics": d.dynamics,
            "cell_cap": d.cell_cap,
            "markov": d.markov,
            "start": "released" if d.start == "released" else d.start_declared,
            "vetoes": [list(pair) for pair in d.vetoes],
            "states": {"column": "state", "labels": short(live), "ends": d.ends, "other": other["live_states"]},
            "actions": {"column": "action", "labels": short(actions), "other": other["actions"]},
        },
        "reward": {
            "kind": d.reward_kind,
            "range": [low, high],
            "steps": round((high - low) / d.reward_unit),
            "total": d.reward_total,
            "table": d.reward_table,
            "on_entering": d.reward_on_entering,
        },
        "source": {
            "layout": "long",
            "files": ["episodes-*.parquet"],
            "columns": columns | {"next_state": "next_state"},
        },
        "tolerance": {} if any(other.values()) else {"unknown_label": 0.0},
    }
    return simulated_card(name, tables, episodes=episodes, episodes_per_user=episodes_per_user, rho=rho)


def released_world(run: ReleasedRun, card: Card) -> World:
    """The released model over the card's labels; its one behaviour is :data:`PRACTICE`."""
    d, task = card.domain, task_of(card)
    counts = private_counts(run.release, card)
    visits = counts.n_sa
    L, A, S = len(d.live_states), len(d.action_labels), len(d.state_labels)  # noqa: N806
    transition = _with_ends(transition_estimate(counts, 0.0), np.broadcast_to(np.eye(S)[L:, None], (S - L, A, S)))
    declared = replace(task, entering=None).expected(counts.n_sas)
    mean = reward_estimate(counts, 0.0, *task.bounds) if declared is None else declared
    totals = visits.sum(-1, keepdims=True)
    even = task.allowed / task.allowed.sum(-1, keepdims=True)
    practice = np.where(totals > 0, visits / np.where(totals > 0, totals, 1.0), even)
    start = start_distribution(counts, declared_start(card))
    return World(
        name=card.name,
        transition=_squeezed(transition),
        visit_reward=_squeezed(_with_ends(mean, np.full((S - L, A), card.reward.range[0]))),
        entry_reward=np.zeros(S) if task.entering is None else task.entering,
        start=np.concatenate([start, np.zeros(S - L)]),
        raw_labels=d.state_labels,
        bin_values={},
        ends={s: d.state_labels[s] for s in range(L, S)},
        policies={PRACTICE: _squeezed(_with_ends(practice, np.full((S - L, A), 1 / A)))},
        action_labels=d.action_labels,
        horizon=d.horizon,
        lattice=(card.reward.range[0], card.reward.unit),
        most=card.reward.total,
    )


def _with_ends(live: Array, ends: Array) -> Array:
    """Rows of the ends behind those of the live states, at each step ``(G, L + ends, ...)``."""
    return np.concatenate([live, np.broadcast_to(ends, (len(live), *ends.shape))], axis=1)


def _squeezed(x: Array) -> Array:
    """Without the step axis where one table serves all steps."""
    return x[0] if x.shape[0] == 1 else x


def release_readme(*, name: str, run: ReleasedRun, episodes: int, seed: int, command: str) -> str:
    """README of a log sampled from a released model.

    ``command``: the command line that writes the same bytes.
    """
    log = {"name": name, "episodes": episodes, "seed": seed, "command": command}
    promise = {"sentence": run.guarantee.sentence, "claim": run.guarantee.claim}
    return readme("release_readme.md", run=run.name, dataset=run.dataset.name, **promise, **log)


def release_about(run: ReleasedRun, episodes: int) -> list[str]:
    """Head of the card of a log sampled from a released model: the README in four lines."""
    return [
        f"{episodes} episodes from what run {run.name} released of {run.dataset.name}; no record was read.",
        "Good for trying the pipeline, teaching, sharing the format, load tests.  No new evidence: any analysis",
        "re-reads the one release, small cells are noise, effects of actions cannot be estimated.  Costs nothing",
        "beyond that release and promises what it promises: see README.md.",
    ]
