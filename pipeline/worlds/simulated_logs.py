"""Simulated logs of known worlds: rows, and count tables for studies.

Everything here is a simulation of a world whose parameters are public; no person is behind a row.

Simulated logs on disk, of tabular worlds and of linear plants: Parquet files with reproducible bytes.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.arrays import Array, Bools, Integers
from pipeline.declaration.card import AnyCard, Card, CardError, require_tabular
from pipeline.facts import promise
from pipeline.files import json_text
from pipeline.logs.aggregate import count_rows
from pipeline.logs.sources import digest
from pipeline.mdp.model import TabularMDP, is_stationary
from pipeline.statistics.layout import ExactSums
from pipeline.worlds.catalog import load_world
from pipeline.worlds.world import World, declared_actions, declared_states, world_features

# episodes simulated at once: bounds memory; another number changes the log of a seed
_CHUNK = 200_000


@dataclass(frozen=True)
class LogRows:
    """One row a step, sorted by (user, step); N rows.  Users are numbered from 0 and have one episode each here.

    ``user``, ``step``, ``state``, ``action``, ``next_state`` ``(N,)``: integers: raw states and actions, 0-based steps.
    ``reward`` ``(N,)``: reward units.
    ``last`` ``(N,)``: bool: the row ends its episode.
    """

    user: Integers
    step: Integers
    state: Integers
    action: Integers
    reward: Array
    next_state: Integers
    last: Bools


@dataclass(frozen=True)
class _Draws:
    """Categorical distributions of many rows, as one running sum over their positive entries."""

    column: Integers
    running: Array
    first: Integers
    end: Integers

    def sample(self, rows: Integers, rng: np.random.Generator) -> Integers:
        """One column for each of ``rows``, with that row's probabilities."""
        low = np.where(self.first[rows] > 0, self.running[self.first[rows] - 1], 0.0)
        high = self.running[self.end[rows] - 1]
        at = low + rng.random(len(rows)) * (high - low)
        # in order they are found near each other, which is four times as fast
        order, index = np.argsort(at), np.empty(len(rows), dtype=np.int64)
        index[order] = np.searchsorted(self.running, at[order], side="right")
        # rounding may step over the edge of a row
        return self.column[np.clip(index, self.first[rows], self.end[rows] - 1)]


def _draws(table: Array) -> _Draws:
    """Distributions in the rows of ``table (R, C)``."""
    row, column = np.nonzero(table)
    end = np.cumsum(np.bincount(row, minlength=len(table)))
    return _Draws(column, np.cumsum(table[row, column]), np.concatenate([[0], end[:-1]]), end)


def sample_log(world: World, behaviour: str | Array, horizon: int, episodes: int, rng: np.random.Generator) -> LogRows:
    """Simulate ``episodes`` episodes; each stops on entering a terminal state or after ``horizon`` steps.

    ``behaviour``: name of one of the world's logging policies, or probabilities ``(H, S, A)`` over raw states and
    actions.
    """
    chunks = list(simulate_chunks(world, behaviour, horizon, episodes, rng))
    return LogRows(*(np.concatenate([getattr(c, f.name) for c in chunks]) for f in fields(LogRows)))


def sample_counts(
    card: Card, world: World, behaviour: str | Array, episodes: int, rng: np.random.Generator
) -> ExactSums:
    """Count tables of a simulated log, without writing it: the rows of :func:`sample_log`, summed as a snapshot's are.

    Always marked synthetic, for no person is behind them.
    """
    states, actions = declared_states(card, world), declared_actions(card, world)
    tables: dict[str, Integers] = {}
    for rows in simulate_chunks(world, behaviour, card.domain.horizon, episodes, rng):
        for name, table in count_rows(canonical(rows, states, actions), card).items():
            tables[name] = tables[name] + table if name in tables else table
    return ExactSums(card.name, "synthetic", card.domain.dynamics, tables)


def sample_people(
    card: Card, mdp: TabularMDP, behaviour: Array, episodes: int, rng: np.random.Generator
) -> list[pl.DataFrame]:
    """Canonical rows of people who do not exist, one episode each, from a process over a card's labels.

    ``mdp``: mean rewards: where rows tell rewards, a step pays one of the lattice's two points beside the mean.
    ``behaviour`` ``(H, S, A)``: probabilities of the logging policy.
    Returns whole people, some in each frame.
    """
    d, r = card.domain, card.reward
    alike = mdp.transitions.strides[0] == 0 and mdp.rewards.strides[0] == 0
    world = World(
        name=card.name,
        transition=mdp.transitions[0] if alike else mdp.transitions,
        visit_reward=mdp.rewards[0] if alike else mdp.rewards,
        entry_reward=np.zeros(len(d.state_labels)),
        start=mdp.start,
        raw_labels=d.state_labels,
        bin_values={},
        ends={i: d.state_labels[i] for i in range(d.states.first_terminal, len(d.state_labels))},
        policies={},
        horizon=None if alike else d.horizon,
        lattice=(r.range[0], r.unit) if r.kind == "estimate" else None,
        most=r.total,
    )
    states, actions = (np.arange(n, dtype=np.int64) for n in world.shape)
    chunks = simulate_chunks(world, behaviour, d.horizon, episodes, rng)
    return [canonical(rows, states, actions) for rows in chunks]


def canonical(rows: LogRows, states: Integers, actions: Integers) -> pl.DataFrame:
    """The columns that sums read, with raw states and actions by index of their labels."""
    return pl.DataFrame(
        {
            "user_id": rows.user,
            "episode_id": np.zeros(len(rows.user), dtype=np.int64),
            "step": rows.step,
            "state": states[rows.state],
            "action": actions[rows.action],
            "reward": rows.reward,
            "next_state": states[rows.next_state],
            "terminated": np.zeros(len(rows.user), dtype=bool),
        }
    )


def simulate_chunks(
    world: World,
    behaviour: str | Array,
    horizon: int,
    episodes: int,
    rng: np.random.Generator,
    chunk: int | None = None,
) -> Iterator[LogRows]:
    """Rows of at most ``chunk`` episodes at a time; arguments as of :func:`sample_log`."""
    states, actions = world.shape
    policy = world.behaviours(behaviour, horizon) if isinstance(behaviour, str) else behaviour
    if policy.shape != (horizon, states, actions):
        raise ValueError(f"behaviour must be {(horizon, states, actions)}; got {policy.shape}")
    act = _draws_of_steps(policy, horizon)
    move = _draws_of_steps(world.transition.reshape(-1, states * actions, states), horizon)
    visit = np.broadcast_to(world.visit_reward, (horizon, states, actions))
    terminal, begin = world.terminal, _draws(world.start[None])
    size = chunk or _CHUNK
    for first in range(0, episodes, size):
        user = np.arange(first, min(first + size, episodes))
        state = begin.sample(np.zeros(len(user), dtype=np.int64), rng)
        left = np.full(len(user), np.inf if world.most is None else world.most)
        steps: list[LogRows] = []
        for h in range(horizon):
            action = act[h].sample(state, rng)
            after = move[h].sample(state * actions + action, rng)
            reward = visit[h, state, action] + world.entry_reward[after]
            if world.lattice is not None:
                reward = np.minimum(_beside(reward, *world.lattice, rng), left)
                left = left - reward
            last = terminal[after] | (h == horizon - 1)
            steps.append(LogRows(user, np.full(len(user), h), state, action, reward, after, last))
            user, state, left = user[~last], after[~last], left[~last]
        order = np.argsort(np.concatenate([s.user for s in steps]), kind="stable")
        yield LogRows(*(np.concatenate([getattr(s, f.name) for s in steps])[order] for f in fields(LogRows)))


def _draws_of_steps(tables: Array, horizon: int) -> list[_Draws]:
    """Distributions of tables ``(G, R, C)``, one a step; steps that are alike share theirs."""
    return [_draws(tables[0])] * horizon if is_stationary(tables) else [_draws(table) for table in tables]


def _beside(mean: Array, low: float, unit: float, rng: np.random.Generator) -> Array:
    """A lattice point next to each mean, drawn so that the mean stays."""
    position = (mean - low) / unit
    below = np.floor(position + 1e-9)
    return low + unit * (below + (rng.random(len(mean)) < position - below))


_SPLIT = "BYTE_STREAM_SPLIT"
# most rows of a file of a streamed log: bounds memory; another number changes the log of a seed
_ROWS_PER_FILE = 1_000_000


@dataclass(frozen=True)
class LogRecipe:
    """Recipe of a log: world or plant, behaviour, episodes (one a user), seed."""

    world: str
    behaviour: str
    episodes: int
    seed: int


def write_lq_log(log: LogRecipe, folder: Path) -> list[Path]:
    """Write the log of a plant: ``episodes-0000.parquet``; the same library versions give the same bytes.

    Columns: ``user_id``, ``episode_id`` (0), ``step``, ``observation`` and ``action`` (lists of float32), and
    ``next_observation``, which stands on an episode's last row only: elsewhere the next row tells it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    from pipeline.worlds.plants import explorer, load_lq_world, simulate

    system = load_lq_world(log.world)
    states, controls = simulate(system, explorer(system, log.behaviour, log.episodes), np.random.default_rng(log.seed))
    H, E = system.horizon, log.episodes  # noqa: N806
    last = np.tile(np.arange(H) == H - 1, E)
    table = pa.table(
        {
            "user_id": pa.array(np.repeat(np.arange(E, dtype=np.int32), H)),
            "episode_id": pa.array(np.zeros(E * H, dtype=np.int32)),
            "step": pa.array(np.tile(np.arange(H, dtype=np.int32), E)),
            "observation": _lists(states[:, :-1]),
            "action": _lists(controls),
            "next_observation": _lists(states[:, 1:], ~last),
        }
    )
    # of noise, the exponents are alike and the digits are not: bytes of a kind together
    vectors = dict.fromkeys((f"{v}.list.element" for v in ("observation", "action", "next_observation")), _SPLIT)
    _write(table, folder / "episodes-0000.parquet", 19, ["episode_id"], vectors)
    return [folder / "episodes-0000.parquet"]


def _lists(values: Array, absent: Bools | None = None) -> pa.Array:
    """``(E, H, k)`` as a list column of E H rows, null where ``absent``."""
    flat = values.reshape(-1, values.shape[-1]).astype(np.float32)
    present = np.ones(len(flat), dtype=bool) if absent is None else ~absent
    offsets = np.concatenate([[0], np.cumsum(present) * flat.shape[1]]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat[present].reshape(-1)))
    if absent is None:
        return lists
    mask = pa.array(absent)
    return pa.ListArray.from_arrays(pa.array(offsets), lists.values, mask=mask)


def write_log(
    world: World, rows: LogRows, folder: Path, users_per_file: int = 100_000, only: Collection[str] | None = None
) -> list[Path]:
    """Write ``episodes-0000.parquet, …``; the same rows and library versions give the same bytes.

    Columns: ``user_id``, ``episode_id``, ``step``, ``state`` (its label; a number where all labels are), each column
    the world can be binned by, ``action``, ``reward``, ``next_state``.  Where episodes never end early ``next_state``
    stands on every row.  Where they may, it is text and stands on an episode's last row only: the end label, or the
    label of a state reached at the horizon, whose bin columns are then given as ``next_<column>``.  Where ``only`` is
    given, other columns are left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    # users are consecutive and sorted: a file is a slice of the rows
    users = int(rows.user[-1]) + 1 if len(rows.user) else 0
    for i, first in enumerate(range(0, users, users_per_file)):
        low, high = np.searchsorted(rows.user, [first, first + users_per_file])
        part = LogRows(*(getattr(rows, f.name)[low:high] for f in fields(LogRows)))
        paths.append(folder / f"episodes-{i:04d}.parquet")
        table = _table(world, part, 1)
        _write(
            table if only is None else table.select([c for c in table.column_names if c in only]), paths[-1], level=19
        )
    return paths


def stream_log(
    world: World,
    behaviour: str | Array,
    horizon: int,
    episodes: int,
    rng: np.random.Generator,
    folder: Path,
    episodes_per_user: int = 1,
) -> list[Path]:
    """Simulate and write as :func:`write_log` does, holding about a million rows at a time.

    Consecutive episodes belong to one user, ``episodes_per_user`` each (the last user may have fewer), and a user's
    episodes stay in one file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    chunk = max(1, _ROWS_PER_FILE // (horizon * episodes_per_user)) * episodes_per_user
    for rows in simulate_chunks(world, behaviour, horizon, episodes, rng, chunk):
        paths.append(folder / f"episodes-{len(paths):04d}.parquet")
        _write(_table(world, rows, episodes_per_user), paths[-1], level=3)
    return paths


# by lineage; what version 0.1 shipped under the lineage icu_sepsis is made on demand
_SHIPPED = {
    "icu_sepsis_doses": LogRecipe("icu_sepsis", "clinician", 100_000, 20261122),
    "icu_sepsis": LogRecipe("icu_sepsis", "uniform", 100_000, 20240606),
    "icu_sepsis_ten_thousand": LogRecipe("icu_sepsis", "clinician", 10_000, 20261128),
    "riverswim": LogRecipe("riverswim", "right-0.8", 50_000, 2008),
}
_SHIPPED_PLANTS = {"double_integrator": LogRecipe("double-integrator", "sphere", 10_000, 2004)}


def is_shipped(name: str) -> bool:
    """Whether the log of a lineage of that name can be made anew."""
    return name in _SHIPPED or name in _SHIPPED_PLANTS


def regenerate(card: AnyCard, folder: Path) -> list[Path]:
    """Write a dataset's log anew where its card looks for it, byte for byte where the library versions are the same.

    Raises CardError if no log of that name is shipped, or the world's file is not beside the card.
    """
    if not is_shipped(card.name):
        names = ", ".join([*_SHIPPED, *_SHIPPED_PLANTS])
        raise CardError(f"no simulated log {card.name!r} is shipped; there are: {names}")
    if card.name in _SHIPPED_PLANTS:
        return write_lq_log(_SHIPPED_PLANTS[card.name], folder)
    recipe, tabular = _SHIPPED[card.name], require_tabular(card)
    below = folder / Path(tabular.source.files[0]).parent
    world, rng = load_world(recipe.world, card.folder), np.random.default_rng(recipe.seed)
    rows = sample_log(world, recipe.behaviour, tabular.domain.horizon, recipe.episodes, rng)
    log = write_log(world, rows, below, only=tabular.log.roles.values())
    write_record(below, recipe.world, recipe.behaviour, recipe.seed, recipe.episodes, log)
    features = world_features(world)
    # the table is read with the card, so that a card without its table has none yet
    return log if features is None or tabular.domain.states.bins is not None else [*log, features.write(folder)]


def _write(
    table: pa.Table, path: Path, level: int, few: list[str] | None = None, encodings: dict[str, str] | None = None
) -> None:
    # few distinct values suit a dictionary; sorted numbers suit their differences
    differences = dict.fromkeys(("user_id", "step"), "DELTA_BINARY_PACKED")
    few = few or [c for c in table.column_names if c not in differences]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=level,
        # a list of columns is documented, the stubs know a flag only
        use_dictionary=few,  # pyright: ignore[reportArgumentType]
        column_encoding=differences | (encodings or {}),
        row_group_size=len(table),
    )


def _table(world: World, rows: LogRows, episodes_per_user: int) -> pa.Table:
    live = [label for s, label in enumerate(world.raw_labels) if s not in world.ends]
    columns: dict[str, pa.Array] = {
        "user_id": pa.array(rows.user // episodes_per_user, pa.int32()),
        "episode_id": pa.array((rows.user % episodes_per_user).astype(np.int32)),
        "step": pa.array(rows.step, pa.int32()),
        "state": _labelled(rows.state, world.raw_labels, live, pa.int16()),
        **{name: pa.array(value[rows.state], pa.float32()) for name, value in world.bin_values.items()},
        "action": _labelled(rows.action, world.actions, world.actions, pa.int8()),
        "reward": pa.array(rows.reward, pa.float64()),
    }
    if not world.ends:
        return pa.table({**columns, "next_state": _labelled(rows.next_state, world.raw_labels, live, pa.int16())})
    named = np.array([world.ends.get(s, label) for s, label in enumerate(world.raw_labels)], dtype=object)
    columns["next_state"] = pa.array(named[rows.next_state], pa.string(), mask=~rows.last)
    unknown = ~rows.last | world.terminal[rows.next_state]
    for name, value in world.bin_values.items():
        columns[f"next_{name}"] = pa.array(value[rows.next_state], pa.float32(), mask=unknown)
    return pa.table(columns)


def _labelled(index: Integers, labels: list[str], used: list[str], small: pa.DataType) -> pa.Array:
    """Labels of ``index``: numbers (``small`` where they fit) if every label in use is one, else text."""
    if not all(label.isascii() and label.isdecimal() and str(int(label)) == label for label in used):
        return pa.array(np.array(labels, dtype=object)[index], pa.string())
    numbers = np.array([int(label) if label.isdecimal() else -1 for label in labels])
    fits = numbers.max(initial=0) < 2 ** (small.bit_width - 1)
    return pa.array(numbers[index], small if fits else pa.int64())


def write_record(folder: Path, world: str, behaviour: str, seed: int, episodes: int, files: Sequence[Path]) -> None:
    """Note how a log was made.

    ``files``: the log, in the order in which an ingest reads it.
    """
    record = promise.SimulatedLog(world=world, behaviour=behaviour, seed=seed, episodes=episodes, sha256=digest(files))
    (folder / promise.RECORD).write_text(json_text(record.model_dump()), encoding="utf-8")
