"""Reading Minari beside Minari's own reader.  ``python -P -m tests.benchmarks.format_speed [EPISODES]``.

The data sets are written by Minari itself: Discrete states, 20 steps an episode.  Each reader runs once to warm up,
then the median of three counts.  Minari reads every episode into its own arrays and sums one of them; we write a
validated snapshot.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from pipeline.logs.ingest import ingest
from pipeline.logs.sources import examine, read_batches
from tests.logs.layouts import card_of, cards

STEPS = 20
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


def seconds(work: Any) -> float:
    """Median CPU seconds of three runs, after one."""
    work()
    found = []
    for _ in range(3):
        before = process_time()
        work()
        found.append(process_time() - before)
    return median(found)


def main() -> None:
    """Print one line a storage."""
    import minari

    for form, episodes in (("hdf5", int(sys.argv[1]) if len(sys.argv) > 1 else 5000), ("arrow", 250)):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            values = cards()["Minari in HDF5"]
            values["domain"]["horizon"] = STEPS
            values["source"]["files"] = [FILES[form]]
            card = card_of(values, written(home, form, episodes))
            rows = episodes * STEPS

            def own() -> float:
                return sum(e.rewards.sum() for e in minari.load_dataset(f"speed-{form}-v0").iterate_episodes())  # noqa: B023

            def read() -> int:
                sources = examine(card)  # noqa: B023
                return sum(len(f) for i in range(len(sources.paths)) for _, f in read_batches(sources, card, i))  # noqa: B023

            def whole() -> None:
                with tempfile.TemporaryDirectory() as store:
                    assert ingest(card, Path(store)).rows == rows  # noqa: B023

            assert read() == rows
            for name, work in (("Minari's reader", own), ("our reader", read), ("ingest, whole", whole)):
                took = seconds(work)
                print(f"{form} {rows:>8,} rows  {name:16} {took:7.2f} CPU s  {rows / took:>10,.0f} rows a CPU second")


if __name__ == "__main__":
    main()
