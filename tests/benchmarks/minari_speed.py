"""Minari's own reader beside a scan of the same rows: ``python -P -m tests.benchmarks.minari_speed``.

Needs minari and h5py (extra formats).  Episodes of 20 steps are written as Minari's HDF5 by Minari; then every step is
read back and counted, by Minari's iterator and, from one Parquet file of the same steps, by polars.  CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

H, S, A = 20, 100, 10


def written(folder: Path, episodes: int) -> tuple[Any, Path]:
    """The same steps as a Minari dataset and as Parquet."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    import gymnasium as gym
    import minari
    from minari.data_collector import EpisodeBuffer

    rng = np.random.default_rng(20261121)
    state = rng.integers(S, size=(episodes, H + 1))
    action, reward = rng.integers(A, size=(episodes, H)), rng.integers(11, size=(episodes, H)) / 10
    ends = [False] * (H - 1) + [True]
    buffers = [
        EpisodeBuffer(
            id=i,
            observations=state[i],
            actions=action[i],
            rewards=reward[i].tolist(),
            terminations=ends,
            truncations=[False] * H,
        )
        for i in range(episodes)
    ]
    made = minari.create_dataset_from_buffers(
        dataset_id="bench/speed-v0",
        buffer=buffers,
        observation_space=gym.spaces.Discrete(S),
        action_space=gym.spaces.Discrete(A),
    )
    frame = pl.DataFrame(
        {
            "step": np.tile(np.arange(H), episodes),
            "state": state[:, :-1].reshape(-1),
            "action": action.reshape(-1),
            "reward": reward.reshape(-1),
            "next_state": state[:, 1:].reshape(-1),
        }
    )
    frame.write_parquet(folder / "flat.parquet")
    return made, folder / "flat.parquet"


def by_minari(made: Any) -> np.ndarray:
    """Transitions, an episode at a time."""
    n = np.zeros((H, S, A, S), dtype=np.int64)
    h = np.arange(H)
    for episode in made.iterate_episodes():
        np.add.at(n, (h, episode.observations[:-1], episode.actions, episode.observations[1:]), 1)
    return n


def by_scan(path: Path) -> np.ndarray:
    """Transitions, all at once."""
    n = np.zeros((H, S, A, S), dtype=np.int64)
    rows = pl.read_parquet(path, columns=["step", "state", "action", "next_state"])
    np.add.at(n, tuple(rows[c].to_numpy() for c in rows.columns), 1)
    return n


def main() -> None:
    """One line a size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, nargs="+", default=(500, 5_000))
    asked = parser.parse_args()
    print(f"{'rows':>10} {'write CPU s':>12} {'Minari CPU s':>13} {'scan CPU s':>11} {'Mrow/CPU s':>11} {'(scan)':>8}")
    for episodes in asked.episodes:
        with tempfile.TemporaryDirectory() as place:
            began = time.process_time()
            made, flat = written(Path(place), episodes)
            times, tables = [time.process_time() - began], list[np.ndarray]()
            for work in (lambda made=made: by_minari(made), lambda flat=flat: by_scan(flat)):
                began = time.process_time()
                tables.append(work())
                times.append(time.process_time() - began)
            assert (tables[0] == tables[1]).all()
            rows = episodes * H
            print(
                f"{rows:>10,} {times[0]:>12.2f} {times[1]:>13.2f} {times[2]:>11.3f} {rows / times[1] / 1e6:>11.3f} "
                f"{rows / times[2] / 1e6:>8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
