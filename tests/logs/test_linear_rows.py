"""Observation columns out of core: the same sums as in memory, whatever the batches, and one person is one person."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.agents.linear_backup import LinearConstants, linear_task
from pipeline.agents.vapvi import vapvi
from pipeline.environments.linear_world import ContinuousWorld, linear_world
from pipeline.logs.linear_rows import ParquetBatches, in_second_half
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.gram import Extent
from pipeline.statistics.interactive import RegressionDesk
from pipeline.statistics.linear_plan import LinearAsk, LinearDomain, LinearPlan
from pipeline.statistics.rows import Quantiser, StreamRows


def write_log(world: ContinuousWorld, episodes: int, folder: Path, part: int = 5000) -> tuple[Path, ...]:
    """Canonical observation columns of uniformly logged episodes, users whole in one part."""
    H, parts = world.horizon, []
    for i, (seen, actions, rewards) in enumerate(world.log(episodes, np.random.default_rng(7), part)):
        n, width = len(seen), seen.shape[-1]

        def lists(x: np.ndarray, width: int = width) -> pa.Array:
            flat = pa.array(x.reshape(-1).astype(np.float32))
            return pa.FixedSizeListArray.from_arrays(flat, width).cast(pa.list_(pa.float32()))

        columns = {
            "user_id": np.repeat(np.arange(n) + i * part, H),
            "step": np.tile(np.arange(H, dtype=np.int32), n),
            "observation": lists(seen[:, :-1]),
            "action": actions.reshape(-1).astype(np.int32),
            "reward": rewards.reshape(-1),
            "next_observation": lists(seen[:, 1:]),
            "terminated": np.zeros(n * H, dtype=bool),
        }
        parts.append(folder / f"part-{i:04d}.parquet")
        pq.write_table(pa.table(columns), parts[-1])
    return tuple(parts)


WORLD = linear_world(0, groups=3, actions=2, horizon=3)
MAP = WORLD.features(64)
QUANTISER = Quantiser(256, 0, 512, (0, 256), 384, 16)
EXTENT = Extent(10_000, MAP.square, 16, 1024)


def value(features: np.ndarray) -> np.ndarray:
    return features.sum(-1).max(-1) / 40


def sums(parts: tuple[Path, ...], side="both", h=1, episodes=1, **kwargs):
    rows = StreamRows(ParquetBatches(parts, MAP, "salt", episodes, **kwargs), MAP.dimension, "synthetic")
    return rows.sums(h, side, value, QUANTISER, lambda f: 1 / (1 + np.abs(f[..., 0]) / 64), EXTENT)


def test_batches_of_any_size_give_the_sums_of_the_rows_in_memory(tmp_path):
    parts = write_log(WORLD, 1200, tmp_path, 500)
    seen, actions, rewards = next(WORLD.log(1200, np.random.default_rng(7), 500))
    f = MAP.chosen(seen[:500, 1].astype(np.float32).astype(float), actions[:, 1])
    y = QUANTISER.rewards(rewards[:, 1]) + QUANTISER.values(value(MAP.every(seen[:, 2]))) - QUANTISER.offset
    w = QUANTISER.weights(1 / (1 + np.abs(f[:, 0]) / 64))
    gram, vectors = sums(parts[:1], size=64)
    assert (gram == ((f * w[:, None]).T @ f).astype(int)).all() and (vectors[0] == (y * w) @ f.astype(int)).all()
    for size in (7, 1000, 100_000):
        again = sums(parts, size=size)
        assert (again[0] == sums(parts)[0]).all() and (again[1] == sums(parts)[1]).all()


def test_the_halves_are_disjoint_whole_and_fixed_by_the_id_alone(tmp_path):
    parts = write_log(WORLD, 2000, tmp_path)
    one, two, both = (sums(parts, side)[0] for side in ("D", "D'", "both"))
    assert (one + two == both).all() and one.trace() > 0.4 * both.trace() < 0.6 * 2 * both.trace()
    ids = np.arange(50)
    np.testing.assert_array_equal(in_second_half(ids, "s")[::-1], in_second_half(ids[::-1], "s"))
    assert (in_second_half(ids, "s") != in_second_half(ids, "t")).any()


def edited(path: Path, **columns) -> Path:
    table = pq.read_table(path)
    for name, change in columns.items():
        at = table.column_names.index(name)
        table = table.set_column(at, name, change(table[name]))
    out = path.with_name("edited.parquet")
    pq.write_table(table, out)
    return out


def test_a_person_with_more_rows_at_a_step_than_declared_counts_once(tmp_path):
    (part,) = write_log(WORLD, 40, tmp_path)
    crowd = edited(
        part,
        user_id=lambda c: pa.array(np.zeros(len(c), dtype=np.int64)),
        step=lambda c: pa.array(np.ones(len(c), dtype=np.int32)),
    )
    one = sums((crowd,), size=9)[0]
    assert one.trace() <= MAP.square * 16
    assert sums((crowd,), episodes=3, size=9)[0].trace() > 1.5 * one.trace()


def test_an_unknown_successor_counts_in_no_sum_and_an_end_is_worth_nothing(tmp_path):
    (part,) = write_log(WORLD, 60, tmp_path)
    nothing = edited(part, next_observation=lambda c: pa.nulls(len(c), c.type))
    assert not sums((nothing,))[0].any()
    over = edited(nothing, terminated=lambda c: pa.array(np.ones(len(c), dtype=bool)))
    full = sums((part,))
    assert (sums((over,))[0] == full[0]).all() and (sums((over,))[1] < full[1]).any()


def test_lists_of_another_length_are_rows_of_zeros(tmp_path):
    (part,) = write_log(WORLD, 60, tmp_path)
    short = edited(part, observation=lambda c: pa.array([[1.0]] * len(c), pa.list_(pa.float32())))
    gram, vectors = sums((short,))
    assert gram.shape == (MAP.dimension,) * 2 and vectors.shape == (1, MAP.dimension)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [None, Fraction(1)])
def test_sixty_four_features_are_learnt_out_of_core(tmp_path, rho):
    world = linear_world(0)
    features = world.features()
    assert features.dimension == 64
    parts = write_log(world, 30_000, tmp_path)
    plan = LinearPlan(
        LinearDomain("cont", "synthetic", world.horizon, 30_000), LinearAsk(rho, value_steps=256), features
    )
    desk = RegressionDesk(plan, StreamRows(ParquetBatches(parts, features, "salt"), 64, "synthetic"), SeededNoise(0))
    public = np.column_stack([np.repeat(np.eye(8), 9, axis=0), np.tile(np.linspace(0, 1, 9), 8)])
    task = linear_task(plan, features.every(public))
    result = vapvi(desk, task, LinearConstants(), np.random.default_rng(0))
    found = world.value(lambda o, h: result.backups[h].q(features.every(o))[0].argmax(1))
    assert world.optimal_value() - 0.02 < found <= world.optimal_value() + 1e-6
