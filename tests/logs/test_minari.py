"""Minari itself writes what is read here."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import polars as pl
import pytest

from .conftest import canonical, ingest
from .layouts import LOG, Told, card_of, cards, flags

LAKE = cards()["Minari in HDF5"]
FILES = {"hdf5": "data/main_data.hdf5", "arrow": "data/*/part-*.arrow", "parquet": "data/*/part-*.parquet"}


def written(home: Path, form: str, log: list[Told], monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Path:
    """A dataset by Minari's own writer: Discrete(5, start=1)."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(home))
    from minari.data_collector import EpisodeBuffer

    buffers = []
    for told in log:
        terminated, truncated = flags(told)
        given = {"observations": np.array(told.states), "actions": np.array(told.actions), "rewards": told.rewards}
        given |= {key: change(told) for key, change in changes.get("arrays", {}).items()}
        buffers.append(EpisodeBuffer(**given, terminations=list(terminated), truncations=list(truncated)))
    space = changes.get("space", gym.spaces.Discrete(5, start=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            f"lake-{form}-v0", buffers, observation_space=space, action_space=gym.spaces.Discrete(2), data_format=form
        )
    return home / f"lake-{form}-v0"


def lake(folder: Path, form: str, horizon: int = 4, **source: Any) -> Any:
    values = LAKE | {"domain": LAKE["domain"] | {"horizon": horizon} | source.pop("domain", {})}
    columns = LAKE["source"]["columns"] | source.pop("columns", {})
    values |= {"source": LAKE["source"] | {"files": [FILES[form]], "columns": columns}, "unit": LAKE["unit"] | source}
    return card_of(values, folder)


def by_number(rows: pl.DataFrame) -> list[list[tuple[Any, ...]]]:
    """Transitions by the number of the episode."""
    number = rows["user_id"].str.split("#").list.last().cast(pl.Int64)
    parts = rows.with_columns(n=number).sort("n", "step").partition_by("n", maintain_order=True)
    return [part.select("state", "action", "reward", "next_state", "terminated", "truncated").rows() for part in parts]


def expected(log: list[Told]) -> list[list[tuple[Any, ...]]]:
    return [
        [
            (t.states[h] - 1, t.actions[h], t.rewards[h], t.states[h + 1] - 1,
             t.terminated and h == t.steps - 1, not t.terminated and h == t.steps - 1)
            for h in range(t.steps)
        ]
        for t in log
    ]  # fmt: skip


@pytest.mark.parametrize("form", list(FILES))
def test_a_dataset_that_minari_wrote_is_read_in_order_and_without_padding(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LOG * 3
    folder = written(tmp_path, form, log, monkeypatch)
    snapshot = ingest(lake(folder, form), tmp_path / "home")
    assert by_number(canonical(snapshot)) == expected(log) and snapshot.quarantined == {}


@pytest.mark.parametrize("form", ["hdf5", "arrow"])
def test_a_dict_space_is_read_by_its_parts(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = gym.spaces.Dict({"at": gym.spaces.Discrete(5, start=1), "speed": gym.spaces.Box(-9, 9, (2,))})
    dicts = {"observations": lambda t: {"at": np.array(t.states), "speed": np.ones((t.steps + 1, 2), np.float32)}}
    folder = written(tmp_path, form, LOG, monkeypatch, arrays=dicts, space=space)
    states = {"states": LAKE["domain"]["states"] | {"column": "observations/at"}}
    card = lake(folder, form, domain=states, columns={"next_state": "next_observations/at"})
    assert by_number(canonical(ingest(card, tmp_path / "home"))) == expected(LOG)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_an_episode_whose_order_the_writer_lost_is_set_aside(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minari writes record batches as they are done, in any order (Minari#351): now and then these are shuffled."""
    steps = 140_000
    log = [Told([1] * (steps + 1), [0] * steps, [0.0] * steps, False), LOG[0]]
    folder = written(tmp_path, form, log, monkeypatch)
    snapshot = ingest(lake(folder, form, horizon=1000), tmp_path / "home")
    assert snapshot.quarantined == {"malformed_line": 1}
    assert by_number(canonical(snapshot)) == [expected(LOG[:1])[0]]


@pytest.mark.parametrize(
    ("form", "steps"), [("arrow", 2**16 - 1), pytest.param("hdf5", 140_000, marks=pytest.mark.slow)]
)
def test_a_long_episode_is_whole(form: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    states = rng.integers(1, 5, steps + 1).tolist()
    log = [Told(states, rng.integers(0, 2, steps).tolist(), [0.0] * steps, False), LOG[0]]
    folder = written(tmp_path, form, log, monkeypatch)
    snapshot = ingest(lake(folder, form, horizon=1000), tmp_path / "home")
    rows = canonical(snapshot)
    assert snapshot.source_rows == steps + 2 and snapshot.quarantined == {"beyond_horizon": steps - 1000}
    assert by_number(rows)[1] == expected(LOG[:1])[0]
    assert [row[3] for row in by_number(rows)[0]] == [s - 1 for s in states[1:1001]]
