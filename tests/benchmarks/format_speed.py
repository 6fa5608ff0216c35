"""Readers beside those of the formats' own: ``python -P -m tests.benchmarks.format_speed [EPISODES]``.

The Minari data sets are written by Minari itself: Discrete states, 20 steps an episode; Minari reads every episode into
its own arrays and sums one of them; polars reads the same steps from one Parquet file.  NDJSON is read by polars into
text, as here no row decides how another is read, and into numbers.  Readers take turns; least processor seconds of the
rounds.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import polars as pl

from pipeline.logs.readers.ndjson import read_ndjson
from pipeline.logs.sources import examine, read_batches
from tests.logs.layouts import card_of, cards

STEPS, ROUNDS = 20, 4
FILES = {"hdf5": "data/main_data.hdf5", "arrow": "data/*/part-*.arrow"}


def written(home: Path, form: str, episodes: int) -> Path:
    """A data set of Minari's making."""
    import gymnasium as gym
    import minari
    from minari.data_collector import EpisodeBuffer

    rng = np.random.default_rng(0)
    last = np.arange(STEPS) == STEPS - 1
    buffers = [
        EpisodeBuffer(
            observations=rng.integers(1, 5, STEPS + 1),
            actions=rng.integers(0, 2, STEPS),
            rewards=rng.integers(0, 2, STEPS).astype(float).tolist(),
            terminations=np.zeros(STEPS, bool).tolist(),
            truncations=last.tolist(),
        )
        for _ in range(episodes)
    ]
    os.environ["MINARI_DATASETS_PATH"] = str(home)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spaces: dict[str, Any] = {
            "observation_space": gym.spaces.Discrete(5, start=1),
            "action_space": gym.spaces.Discrete(2),
        }
        minari.create_dataset_from_buffers(f"speed-{form}-v0", buffers, data_format=form, **spaces)
    return home / f"speed-{form}-v0"


def lines(folder: Path, episodes: int) -> Path:
    """The same steps a line each, as polars writes NDJSON."""
    rng, rows = np.random.default_rng(0), episodes * STEPS
    frame = pl.DataFrame(
        {
            "episode": np.repeat(np.arange(episodes), STEPS),
            "step": np.tile(np.arange(STEPS), episodes),
            "state": rng.integers(1, 5, rows),
            "action": rng.integers(0, 2, rows),
            "reward": rng.integers(0, 2, rows).astype(float),
        }
    )
    frame.write_ndjson(folder / "log.ndjson")
    return folder / "log.ndjson"


def compare(form: str, rows: int, works: dict[str, Callable[[], object]]) -> None:
    """Print a line each: least CPU seconds of the rounds, and how many times the first one's."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            before = process_time()
            work()
            found[name].append(process_time() - before)
    first = min(next(iter(found.values())))
    for name, times in found.items():
        print(f"{form:6} {rows:>8,} rows  {name:22} {min(times):7.2f} CPU s  x {min(times) / first:5.2f}", flush=True)


def main(episodes: int = 2000) -> None:
    """Compare each storage's own reader with ours."""
    import minari

    for form, count in (("hdf5", episodes), ("arrow", episodes // 8)):
        with tempfile.TemporaryDirectory() as folder:
            values = cards()["Minari in HDF5"]
            values["domain"]["horizon"] = STEPS
            values["source"]["files"] = [FILES[form]]
            card = card_of(values, written(Path(folder), form, count))

            def own() -> float:
                return sum(e.rewards.sum() for e in minari.load_dataset(f"speed-{form}-v0").iterate_episodes())  # noqa: B023

            def frames() -> Iterator[pl.DataFrame]:
                sources = examine(card)  # noqa: B023
                return (f for i in range(len(sources.paths)) for _, f in read_batches(sources, card, i))  # noqa: B023

            flat = Path(folder) / "flat.parquet"
            pl.concat(frames()).write_parquet(flat)
            assert len(pl.read_parquet(flat)) == count * STEPS
            works = {"Minari's reader": own, "our reader": lambda: sum(map(len, frames()))}
            compare(form, count * STEPS, {**works, "polars, from Parquet": lambda: pl.read_parquet(flat)})  # noqa: B023
    with tempfile.TemporaryDirectory() as folder:
        path, many = lines(Path(folder), 10 * episodes), 10 * episodes * STEPS
        columns = ["episode", "step", "state", "action", "reward"]
        text = dict.fromkeys(columns, pl.String)
        works: dict[str, Callable[[], object]] = {
            "polars, as text": lambda: pl.read_ndjson(path, schema=text),
            "polars, as numbers": lambda: pl.read_ndjson(path),
            "our reader": lambda: sum(len(batch.frame) for batch in read_ndjson(path, columns)),
        }
        compare("ndjson", many, works)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
