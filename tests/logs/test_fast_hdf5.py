"""The quick way of HDF5 against h5py's own: every kind of number in every storage, and storage that is not whole."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pipeline.logs.readers import hdf5
from reticent import LogError

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


@pytest.mark.parametrize("version", ["earliest", pytest.param("latest", marks=pytest.mark.slow)])
def test_whole_arrays_are_those_that_h5py_gives(version: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w", libver=version) as file:
        for _ in hdf5_corpus(file):
            pass
    with h5py.File(tmp_path / "x.h5") as file:
        found = hdf5.arrays(file, tmp_path / "x.h5", "/")
        assert len(found) == len(LAYOUTS) * len(KINDS) * 3 + 6
        for name, data in found.items():
            whole, own = hdf5.values(data, 0, len(data) + 1), file[name][:].reshape(len(data), -1)
            assert whole.dtype == own.dtype and whole.tobytes() == own.tobytes(), name
            assert (
                b"".join(hdf5.values(data, *ends).tobytes() for ends in ((0, 7), (7, len(data)))) == whole.tobytes()
            ), name


def never_filled(file: Any, steps: int) -> None:
    """Beside somebody's numbers, a chunk that was never written and of which the file says: leave what lies there."""
    file.create_dataset("others", data=np.full(steps, 0.25))
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((steps,))
    made.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    made.set_alloc_time(h5py.h5d.ALLOC_TIME_INCR)
    h5py.h5d.create(file.id, b"bare", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((steps,)), made)


@pytest.mark.parametrize("broken", [False, True])
def test_a_chunk_that_was_never_written_holds_nobodys_numbers(
    broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_a_chunk_that_is_not_of_its_size_gives_no_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_chunk_that_passed_another_filter_is_refused(tmp_path: Path) -> None:
    with h5py.File(path := tmp_path / "x.h5", "w") as file:
        file.create_dataset("rewards", data=np.ones(64), chunks=(64,), scaleoffset=3)
        stored = hdf5.array(file, "rewards", path, "/")
        assert stored is not None
        with pytest.raises(LogError, match="passed another filter than gzip, lzf, shuffle and fletcher32"):
            hdf5.values(stored, 0, 64)


@pytest.mark.parametrize("made", [{}, {"compression": "gzip"}, {"compression": "lzf", "shuffle": True}])
@pytest.mark.parametrize("length", [None, 4])
def test_text_in_chunks_is_read(length: int | None, made: dict[str, Any], tmp_path: Path) -> None:
    told = [f"u{i}" for i in range(20)]
    with h5py.File(path := tmp_path / "x.h5", "w") as file:
        file.create_dataset("user", data=told, dtype=h5py.string_dtype(length=length), chunks=(8,), **made)
        stored = hdf5.array(file, "user", path, "/")
        assert stored is not None and hdf5.values(stored, 0, 20).tolist() == told
