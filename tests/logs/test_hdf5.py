"""HDF5 and Minari: the quick way against h5py's own, episodes that do not fit, links, bombs, and what Minari writes."""

import shutil
import warnings
import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import minari
import numpy as np
import polars as pl
import pytest
from minari.data_collector import EpisodeBuffer

from pipeline.logs.readers import hdf5
from reticent import CardError, LogError
from tests.conftest import slow
from tests.logs import layouts
from tests.logs.conftest import canonical, ingest, quarantine
from tests.logs.layouts import LOG, Told, card_of, cards, flags, put, taken

N = 12
KINDS = ["?", "i1", "u1", "<i2", ">i4", "<i8", ">u8", "<f2", ">f4", "<f8", ">f8"]
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "one chunk": {"chunks": (N,)},
    "fixed array": {"chunks": (5,)},
    "extensible array": {"chunks": (5,), "maxshape": (None,)},
    "gzip": {"chunks": (5,), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"chunks": (5,), "compression": "lzf"},
    "fill value": {"chunks": (5,), "fillvalue": 1},
    "fill value, contiguous": {"fillvalue": 1},
}


def entries(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Numbers of a kind, the odd ones first."""
    if np.dtype(kind).kind == "f":
        odd = np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(kind).max, np.finfo(kind).tiny])
        return np.concatenate([odd, rng.normal(size=N - len(odd))]).astype(kind)
    low, high = (0, 1) if kind == "?" else (np.iinfo(kind).min, np.iinfo(kind).max)
    return np.array([low, high, *rng.integers(0, 2, N - 2).tolist()], kind)


def hdf5_corpus(file: Any) -> Iterator[tuple[str, Any]]:
    """Data sets of every kind and layout: whole, half written, and never written."""
    rng = np.random.default_rng(23)
    for (layout, made), kind, written in product(LAYOUTS.items(), KINDS, (N, N // 2, 0)):
        data = file.create_dataset(f"{layout} {kind} {written}", (N,), kind, **made)
        data[:written] = entries(kind, rng)[:written]
        yield data.name[1:], data
    for name, shape, chunks in [("wide", (N, 3), (5, 2)), ("cube", (N, 2, 2), (5, 1, 2)), ("trees", (N, 3), (5, 2))]:
        unlimited = {"maxshape": (None, None)} if name == "trees" else {}
        yield name, file.create_dataset(name, shape, ">f4", rng.normal(size=shape), chunks=chunks, **unlimited)
    repeats = np.repeat(rng.normal(size=40), rng.integers(1, 200, 40))
    for made in ({"compression": "lzf"}, {"compression": "lzf", "shuffle": True, "fletcher32": True}):
        yield "repeats", file.create_dataset(f"repeats {len(made)}", data=repeats, chunks=(1000,), **made)
    labels = h5py.enum_dtype({"left": 0, "right": 1}, basetype=">i2")
    yield "enum", file.create_dataset("enum", data=rng.integers(0, 2, N), dtype=labels)


@pytest.mark.parametrize("version", ["earliest", slow("latest")])
def test_whole_arrays_are_those_that_h5py_gives(version, tmp_path):
    with h5py.File(tmp_path / "x.h5", "w", libver=version) as file:
        for _ in hdf5_corpus(file):
            pass
    with h5py.File(tmp_path / "x.h5") as file:
        found = hdf5.arrays(file, tmp_path / "x.h5", "/")
        assert len(found) == len(LAYOUTS) * len(KINDS) * 3 + 6
        for name, data in found.items():
            whole, own = hdf5.values(data, 0, len(data) + 1), file[name][:].reshape(len(data), -1)
            assert whole.dtype == own.dtype and whole.tobytes() == own.tobytes(), name
            halves = [hdf5.values(data, *ends).tobytes() for ends in ((0, 7), (7, len(data)))]
            assert b"".join(halves) == whole.tobytes(), name


def never_filled(file: Any, steps: int) -> None:
    """Beside somebody's numbers, a chunk that was never written and of which the file says: leave what lies there."""
    file.create_dataset("others", data=np.full(steps, 0.25))
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((steps,))
    made.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    made.set_alloc_time(h5py.h5d.ALLOC_TIME_INCR)
    h5py.h5d.create(file.id, b"bare", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((steps,)), made)


@pytest.mark.parametrize("broken", [False, True])
def test_a_chunk_that_was_never_written_holds_nobodys_numbers(broken, tmp_path, monkeypatch):
    if broken:
        # memory that was somebody's, in place of zeros
        monkeypatch.setattr(hdf5.np, "zeros", lambda shape, dtype: np.full(shape, 0.25, dtype))  # pyright: ignore[reportPrivateImportUsage]
    with h5py.File(tmp_path / "m.hdf5", "w") as file:
        never_filled(file, steps := 8)
        found = hdf5.arrays(file, tmp_path / "m.hdf5", "/")
        for low, high in ((0, steps), (0, steps - 1)) if not broken else ((0, steps),):
            assert (hdf5.values(found["others"], low, high) == 0.25).all()
            assert (hdf5.values(found["bare"], low, high) == 0).all() != broken


SHORT: dict[str, tuple[dict[str, Any], bytes, int]] = {
    "gzip": ({"compression": "gzip"}, zlib.compress(np.ones(4).tobytes()), 0),
    "gzip that stops": ({"compression": "gzip"}, zlib.compress(np.ones(64).tobytes())[:-6], 0),
    "gzip of more": ({"compression": "gzip"}, zlib.compress(np.ones(65).tobytes()), 0),
    "not gzip": ({"compression": "gzip"}, np.ones(4).tobytes(), 0),
    "not compressed": ({"compression": "gzip"}, np.ones(4).tobytes(), 1),
    "shuffled": ({"shuffle": True}, np.ones(4).tobytes(), 0),
    "lzf": ({"compression": "lzf"}, b"\x1f" + bytes(32), 0),
    "shuffled and lzf": ({"shuffle": True, "compression": "lzf"}, b"\x00\x07\xe0\xf0\x00", 0),
    "lzf that stops": ({"compression": "lzf"}, b"\x00\x07\xe0", 0),
    "as it is": ({}, np.ones(4).tobytes(), 0),
    "shuffled and gzip": ({"shuffle": True, "compression": "gzip"}, zlib.compress(np.ones(63).tobytes()), 0),
}


@pytest.mark.parametrize("name", [*SHORT, ""])
def test_a_chunk_that_is_not_of_its_size_gives_no_memory(name, tmp_path, monkeypatch):
    if broken := not name:
        monkeypatch.setattr(hdf5, "_check_chunks", lambda *_: None)
    made, content, skipped = SHORT[name or "shuffled"]
    with h5py.File(path := tmp_path / "x.h5", "w") as file:
        data = file.create_dataset("episode_0/rewards", (160,), "f8", chunks=(64,), **made)
        data[:] = 0.5
        data.id.write_direct_chunk((64,), content, filter_mask=skipped)
    with h5py.File(path) as file:
        found = hdf5.arrays(file, path, "/")["episode_0/rewards"]
        assert (hdf5.values(found, 0, 64) == 0.5).all() and (hdf5.values(found, 128, 160) == 0.5).all()
        for low, high in ((0, 160), (0, 65), (127, 160)):
            if broken:
                hdf5.values(found, low, high)
                continue
            # h5py itself gives whatever lies in memory
            with pytest.raises(LogError, match=r"^x\.h5: /episode_0/rewards: a chunk is not of its size, or passed"):
                hdf5.values(found, low, high)


def test_a_chunk_that_passed_another_filter_is_refused(tmp_path):
    with h5py.File(path := tmp_path / "x.h5", "w") as file:
        file.create_dataset("rewards", data=np.ones(64), chunks=(64,), scaleoffset=3)
        stored = hdf5.array(file, "rewards", path, "/")
        assert stored is not None
        with pytest.raises(LogError, match="passed another filter than gzip, lzf, shuffle and fletcher32"):
            hdf5.values(stored, 0, 64)


@pytest.mark.parametrize("made", [{}, {"compression": "gzip"}, {"compression": "lzf", "shuffle": True}])
@pytest.mark.parametrize("length", [None, 4])
def test_text_in_chunks_is_read(length, made, tmp_path):
    told = [f"u{i}" for i in range(20)]
    with h5py.File(path := tmp_path / "x.h5", "w") as file:
        file.create_dataset("user", data=told, dtype=h5py.string_dtype(length=length), chunks=(8,), **made)
        stored = hdf5.array(file, "user", path, "/")
        assert stored is not None and hdf5.values(stored, 0, 20).tolist() == told


def test_episodes_of_minari_come_in_the_order_of_their_numbers(tmp_path):
    layouts.write_minari_hdf5(tmp_path, LOG * 4)
    filed = quarantine(taken("Minari in HDF5", tmp_path, domain={"horizon": 2}).folder)
    order = filed.sort("line")["source"].struct.field("episode").str.split("#").list.last().cast(int).to_list()
    assert order == sorted(order) and max(order) > 10


def test_an_episode_whose_arrays_do_not_fit_is_filed_and_the_others_stay(tmp_path):
    path = layouts.write_minari_hdf5(tmp_path)
    put(path, "episode_1/rewards", [0.0, 1.0])
    put(path, "episode_2/actions")
    snapshot = taken("Minari in HDF5", tmp_path)
    assert snapshot.quarantined == {"malformed_line": 2} and snapshot.rows == 3
    assert quarantine(snapshot.folder)["text"].to_list() == [
        "episode_1: rewards holds 2 entries, total_steps is another number", "episode_2: no actions",
    ]  # fmt: skip


@pytest.mark.parametrize("told", ["x", [1, 2], 7])
def test_a_number_of_steps_that_is_wrong_costs_one_episode(told, tmp_path):
    path = layouts.write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        file["episode_2"].attrs["total_steps"] = told
    assert taken("Minari in HDF5", tmp_path).quarantined == {"malformed_line": 1}


def test_fewer_episodes_than_the_metadata_tells_refuse_the_log(tmp_path):
    path = layouts.write_minari_hdf5(tmp_path)
    put(path, "episode_3")
    with pytest.raises(LogError, match=r"main_data.hdf5: 3 episodes, metadata.json tells of 4"):
        taken("Minari in HDF5", tmp_path)


def test_a_person_in_the_infos_is_the_unit_where_the_card_says_so(tmp_path):
    path = layouts.write_minari_hdf5(tmp_path)
    for i, told in enumerate(LOG):
        put(path, f"episode_{i}/infos/patient", [f"p{i % 2}"] * (told.steps + 1))
    unit = {"user": "infos/patient", "episodes_per_user": 2}
    snapshot = taken("Minari in HDF5", tmp_path, {"user_id": "infos/patient"}, unit=unit)
    assert (snapshot.users, snapshot.episodes, snapshot.rows) == (2, 4, 10)


def test_two_files_with_an_episode_0_hold_two(tmp_path):
    for half in ("one", "two"):
        layouts.write_minari_hdf5(tmp_path / half)
    snapshot = taken("Minari in HDF5", tmp_path, source={"files": ["*/data/*.hdf5"]})
    assert (snapshot.users, snapshot.episodes, snapshot.quarantined) == (8, 8, {})


def test_a_part_of_an_arrow_episode_is_filed_and_a_missing_one_refuses(tmp_path):
    path = layouts.write_minari_arrow(tmp_path)
    pl.read_ipc(path.read_bytes()).head(3).write_ipc(path)
    snapshot = taken("Minari in Arrow", tmp_path)
    assert snapshot.quarantined == {"malformed_line": 1} and snapshot.rows == 6
    shutil.rmtree(tmp_path / "data" / "2")
    with pytest.raises(LogError, match="episode 2 is missing"):
        taken("Minari in Arrow", tmp_path)
    (tmp_path / "data" / "metadata.json").write_text('{"total_episodes": "x"}')
    with pytest.raises(LogError, match=r"data/metadata.json: total_episodes is no whole number"):
        taken("Minari in Arrow", tmp_path)


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("episode_0", h5py.ExternalLink("../other/data/main_data.hdf5", "episode_0")),
        ("episode_0/rewards", h5py.SoftLink("/episode_1/rewards")),
        ("episode_0/rewards", h5py.ExternalLink("../other/data/main_data.hdf5", "/episode_0/rewards")),
    ],
)
def test_links_in_hdf5_are_not_followed(name, link, tmp_path):
    path = layouts.write_minari_hdf5(tmp_path)
    layouts.write_minari_hdf5(tmp_path / "other")
    put(path, name, link)
    snapshot = taken("Minari in HDF5", tmp_path)
    assert "is a link" in quarantine(snapshot.folder)["text"].item() and snapshot.episodes == 3


def test_data_that_lies_in_another_file_is_refused(tmp_path):
    path = layouts.write_d4rl(tmp_path)
    with h5py.File(path, "a") as file:
        rows = len(file["rewards"])
        del file["rewards"]
        layout = h5py.VirtualLayout((rows,), dtype="f4")
        layout[:] = h5py.VirtualSource("elsewhere.hdf5", "rewards", (rows,))
        file.create_virtual_dataset("rewards", layout)
    with pytest.raises(LogError, match="rewards lies in another file"):
        taken("D4RL", tmp_path)


def test_an_array_that_claims_more_than_the_file_holds_is_refused(tmp_path):
    path = layouts.write_d4rl(tmp_path)
    put(path, "rewards", shape=(10**12,), dtype="f8", chunks=(10**6,), compression="gzip")
    with pytest.raises(LogError, match="claims to hold far more"):
        taken("D4RL", tmp_path)


def test_a_group_that_holds_itself_has_an_end(tmp_path):
    path = layouts.write_d4rl(tmp_path)
    with h5py.File(path, "a") as file:
        file["infos"] = file["/"]
    with pytest.raises(LogError, match="groups inside groups"):
        taken("D4RL", tmp_path)


def test_without_h5py_the_error_names_the_extra(tmp_path, monkeypatch):
    layouts.write_d4rl(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(CardError, match=r"maze.hdf5: HDF5 files need h5py; pip install 'reticent\[formats\]'"):
        taken("D4RL", tmp_path)


def test_numbers_of_any_width_and_byte_order_are_columns(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for kind in (">i4", "<f2", ">f8", "u1", "?"):
            file[kind] = np.array([0, 1], dtype=kind)
        file["text"], file["image"] = ["a", "ü"], np.zeros((2, 64, 64), np.uint8)
        file["one"], file["two"] = np.ones((2, 1)), np.ones((2, 2), ">i2")
        data = hdf5.arrays(file, tmp_path / "x.h5", "/")
        found = {name: hdf5.type_of(stored) for name, stored in data.items()}
        assert found["image"] == pl.Object() and found["one"] == pl.Float64() and found["two"] == pl.Array(pl.Int16, 2)
        for kind in (">i4", "<f2", ">f8", "u1", "?"):
            assert hdf5.series(hdf5.values(data[kind], 0, 2)).cast(pl.Float64).to_list() == [0.0, 1.0]
            assert hdf5.series(hdf5.values(data[kind], 0, 2)).dtype == found[kind]
        assert hdf5.series(hdf5.values(data["text"], 1, 2)).to_list() == ["ü"]


LAKE = cards()["Minari in HDF5"]
FILES = {"hdf5": "data/main_data.hdf5", "arrow": "data/*/part-*.arrow", "parquet": "data/*/part-*.parquet"}


def written(home: Path, form: str, log: list[Told], monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Path:
    """A dataset by Minari's own writer: Discrete(5, start=1)."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(home))
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
def test_a_dataset_that_minari_wrote_is_read_in_order_and_without_padding(form, tmp_path, monkeypatch):
    log = LOG * 3
    folder = written(tmp_path, form, log, monkeypatch)
    snapshot = ingest(lake(folder, form), tmp_path / "home")
    assert by_number(canonical(snapshot)) == expected(log) and snapshot.quarantined == {}


@pytest.mark.parametrize("form", ["hdf5", "arrow"])
def test_a_dict_space_is_read_by_its_parts(form, tmp_path, monkeypatch):
    space = gym.spaces.Dict({"at": gym.spaces.Discrete(5, start=1), "speed": gym.spaces.Box(-9, 9, (2,))})
    dicts = {"observations": lambda t: {"at": np.array(t.states), "speed": np.ones((t.steps + 1, 2), np.float32)}}
    folder = written(tmp_path, form, LOG, monkeypatch, arrays=dicts, space=space)
    states = {"states": LAKE["domain"]["states"] | {"column": "observations/at"}}
    card = lake(folder, form, domain=states, columns={"next_state": "next_observations/at"})
    assert by_number(canonical(ingest(card, tmp_path / "home"))) == expected(LOG)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_an_episode_whose_order_the_writer_lost_is_set_aside(form, tmp_path, monkeypatch):
    """Minari writes record batches as they are done, in any order (Minari#351): now and then these are shuffled."""
    steps = 140_000
    log = [Told([1] * (steps + 1), [0] * steps, [0.0] * steps, False), LOG[0]]
    folder = written(tmp_path, form, log, monkeypatch)
    snapshot = ingest(lake(folder, form, horizon=1000), tmp_path / "home")
    assert snapshot.quarantined == {"malformed_line": 1}
    assert by_number(canonical(snapshot)) == [expected(LOG[:1])[0]]


@pytest.mark.parametrize(("form", "steps"), [("arrow", 2**16 - 1), slow("hdf5", 140_000)])
def test_a_long_episode_is_whole(form, steps, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    states = rng.integers(1, 5, steps + 1).tolist()
    log = [Told(states, rng.integers(0, 2, steps).tolist(), [0.0] * steps, False), LOG[0]]
    folder = written(tmp_path, form, log, monkeypatch)
    snapshot = ingest(lake(folder, form, horizon=1000), tmp_path / "home")
    rows = canonical(snapshot)
    assert snapshot.source_rows == steps + 2 and snapshot.quarantined == {"beyond_horizon": steps - 1000}
    assert by_number(rows)[1] == expected(LOG[:1])[0]
    assert [row[3] for row in by_number(rows)[0]] == [s - 1 for s in states[1:1001]]
