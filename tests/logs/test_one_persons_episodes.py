"""Recorded episodes: whatever one of them holds, the rows of all others stay; beside each, what it once did to them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.logs.readers.batch import RECORD_BYTES
from tests.conftest import slow
from tests.logs import layouts
from tests.logs.conftest import canonical, ingest, write_arrow
from tests.logs.layouts import LOG, card_of, cards, changed, steps_of

# the odd one is the second of these
EPISODES = [*LOG, *LOG]
ODD = 1
HUGE = b"z" * (RECORD_BYTES + 1)
Spoil = Callable[[Path], None]
READ: dict[str, pl.DataFrame] = {}


def rows_of_others(card: dict[str, Any], folder: Path, odd: Any) -> dict[Any, list[tuple[Any, ...]]]:
    """Rows by person; the same files under the same card, as the sound ones of most tests are, are read once."""
    told = hashlib.sha256(json.dumps(card).encode())
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        told.update(f"{path.relative_to(folder)} {path.stat().st_size} ".encode() + path.read_bytes())
    if (key := told.hexdigest()) not in READ:
        READ[key] = canonical(ingest(card_of(card, folder), folder / "home"))
    found = READ[key].filter(pl.col("user_id").cast(pl.String) != str(odd)).partition_by("user_id", as_dict=True)
    return {str(user[0]): part.drop("user_id").rows() for user, part in found.items()}


def with_people(head: str) -> dict[str, Any]:
    """The card below a heading, of people that a column names."""
    return changed(head, {"user_id": "who"}, unit={"user": "who", "episodes_per_user": 3})


def replaced(name: str, value: Any = None, **how: Any) -> Spoil:
    """Something else of the odd one: see :func:`~tests.logs.layouts.put`."""
    return lambda folder: layouts.put(folder / "data" / "main_data.hdf5", f"episode_{ODD}{name}", value, **how)


TEXTS = h5py.string_dtype("utf-8")
HUGE_ARRAY = {"shape": (10**12,), "dtype": "f8", "chunks": (10**6,), "compression": "gzip"}
IN_HDF5: dict[str, Spoil] = {
    "no rewards": replaced("/rewards"),
    "words for rewards": replaced("/rewards", data=["a", "b", "c", "d"], dtype=TEXTS),
    "bytes that are no text": replaced("/actions", data=[b"0", b"\xff", b"1", b"0"], dtype=TEXTS),
    "a huge cell": replaced("/actions", data=["z" * (RECORD_BYTES + 1)] * 4, dtype=TEXTS),
    "lists for numbers": replaced("/actions", np.zeros((4, 3))),
    "pairs of a struct": replaced("/actions", np.zeros(4, dtype=[("a", "i4"), ("b", "f8")])),
    "NaN": replaced("/rewards", [np.nan, np.inf, 0.0, 0.0]),
    "complex numbers": replaced("/rewards", np.zeros(4, dtype="c16")),
    "a number for a group": replaced("", [1, 2, 3]),
    "a link": replaced("/rewards", h5py.SoftLink("/episode_0/rewards")),
    "an array without end": replaced("/rewards", **HUGE_ARRAY),
    "another length": replaced("/observations", [1, 2]),
}
# the first episodes once told the types of all
TYPES = ("words for rewards", "lists for numbers")


@pytest.mark.parametrize(
    ("name", "at"),
    [
        *((name, ODD) for name in IN_HDF5),
        *(pytest.param(name, 0, marks=() if name in TYPES else pytest.mark.slow) for name in IN_HDF5),
    ],
)
def test_an_odd_group_of_minari(name, at, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ODD", at)
    card = cards()["Minari in HDF5"]
    for folder in (tmp_path / "good", tmp_path / "odd"):
        layouts.write_minari_hdf5(folder, [EPISODES[1]] * 3)
    IN_HDF5[name](tmp_path / "odd")
    mark = f"data/main_data.hdf5#{at}"
    good, odd = (rows_of_others(card, tmp_path / which, mark) for which in ("good", "odd"))
    assert len(good) == 2 and odd == good


def _in_file(change: Callable[[Path], object]) -> Spoil:
    def spoil(folder: Path) -> None:
        change(folder / "data" / str(ODD) / "part-0.arrow")

    return spoil


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _typed(column: str, dtype: Any) -> Spoil:
    def change(path: Path) -> None:
        empty = pl.Series(column, [None] * 5, dtype=dtype)
        pl.read_ipc(path.read_bytes()).with_columns(empty).write_ipc(path)

    return _in_file(change)


def _not_text(path: Path) -> None:
    table = pa.table({"observations": pa.array([b"\xff"] * 5).view(pa.string()), "actions": [[0.0]] * 5})
    write_arrow(path, table)


IN_ARROW: dict[str, Spoil] = {
    "cut off": _in_file(_cut),
    "empty": _in_file(lambda path: path.write_bytes(b"")),
    "no columns": _in_file(lambda path: pl.DataFrame({"x": [1]}).write_ipc(path)),
    "text for a vector": _typed("observations", pl.String()),
    "a struct": _typed("actions", pl.Struct({"a": pl.Int8()})),
    "words for flags": _typed("terminations", pl.String()),
    "no text": _in_file(_not_text),
    "a note that is none": _in_file(lambda path: path.with_name("metadata.json").write_text("[")),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if i % 2 else ()) for i, name in enumerate(IN_ARROW)]
)
def test_an_odd_file_of_minari(name, tmp_path):
    card = cards()["Minari in Arrow"]
    for folder in (tmp_path / "good", tmp_path / "odd"):
        layouts.write_minari_arrow(folder, EPISODES)
    IN_ARROW[name](tmp_path / "odd")
    good, odd = (rows_of_others(card, tmp_path / which, ODD) for which in ("good", "odd"))
    assert len(good) == len(EPISODES) - 1 and odd == good


def _rlds(flag: str | bytes, nested: bool, whose: Callable[[int], str | None]) -> Callable[[Path], None]:
    """Flags as text or bytes, so that one may be no flag at all; nobody's rows where ``whose`` says None."""

    def write(folder: Path) -> None:
        rows: list[dict[str, Any]] = [{"who": whose(i), "steps": steps_of(told)} for i, told in enumerate(EPISODES)]
        for i, row in enumerate(rows):
            for step in row["steps"]:
                told = {name: str(step[name]).lower() for name in ("is_first", "is_last", "is_terminal")}
                step |= {k: v.encode() for k, v in told.items()} if isinstance(flag, bytes) else told
            if i == ODD:
                row["steps"][1] |= {"is_last": flag}
        flat = [{"who": row["who"], **step} for row in rows for step in row["steps"]]
        pl.DataFrame(rows if nested else flat).write_parquet(folder / "episodes.parquet")

    return write


@pytest.mark.parametrize("nested", [True, slow(False)])
@pytest.mark.parametrize(
    ("flag", "batch"), [slow("perhaps", 1), *((flag, 1 << 18) for flag in ("perhaps", "true", "", b"\xff"))]
)
def test_odd_flags_of_rlds(nested, flag, batch, tmp_path, constants, monkeypatch):
    """``true`` in the middle leaves steps behind that are in no episode."""
    if batch == 1:
        constants(batch=batch)
        monkeypatch.setattr(f"{__name__}.READ", {})
    card, found = with_people("RLDS"), []
    for which, whose in (("false", "odd"), (flag, "odd"), (flag, None)):
        folder = tmp_path / f"{which}{whose}"
        folder.mkdir()
        _rlds(which, nested, lambda i, whose=whose: whose if i == ODD else f"p{i}")(folder)
        found.append(rows_of_others(card, folder, "odd"))
    assert len(found[0]) == len(EPISODES) - 1 and found[1] == found[2] == found[0]


LINES = [b"odd,\xff,1,0,3,0", b"odd,1,1,0,3,perhaps", b",1,1,0,3,0", b"odd,1", b"", b'odd,"']


@pytest.mark.parametrize("odd", [LINES, [LINES[0]] * 2, *(slow([line]) for line in LINES)])
def test_odd_lines_where_order_tells_the_episodes(odd, tmp_path):
    found: list[Any] = []
    for more in ([], odd):
        path = layouts.write_flat(tmp_path / str(len(more)), EPISODES)
        lines = path.read_bytes().splitlines()
        path.write_bytes(b"\n".join([*lines[:4], *more, *lines[4:]]))
        found.append(rows_of_others(cards()["Flat transitions"], path.parent, "odd"))
    assert len(found[0]) == len(EPISODES) and found[1] == found[0]


@pytest.mark.parametrize("odd", [{"who": b"odd\xff"}, {"who": HUGE}, {"terminals": np.nan},
                                 {"terminals": 7.0}, {"rewards": np.nan}, {"who": b""}])  # fmt: skip
def test_odd_entries_of_d4rl(odd, tmp_path):
    found: list[Any] = []
    for which in ({}, odd):
        path = layouts.write_d4rl(tmp_path / str(len(which)), EPISODES)
        owners = [f"p{i}" if i != ODD else "odd" for i, told in enumerate(EPISODES) for _ in told.actions]
        with h5py.File(path, "a") as file:
            cells: dict[str, Any] = {"who": [x.encode() for x in owners], "terminals": file["terminals"][()] * 1.0}
            cells["rewards"] = file["rewards"][()]
            for name, value in which.items():
                cells[name][owners.index("odd")] = value
            for name, values in cells.items():
                if name in file:
                    del file[name]
                file.create_dataset(name, data=values, dtype=TEXTS if name == "who" else "f8")
        found.append(rows_of_others(with_people("D4RL"), path.parent, "odd"))
    assert len(found[0]) == len(EPISODES) - 1 and found[1] == found[0]


EVENTS: list[tuple[int | None, int | None, bytes, float | None]] = [
    (None, 0, b"LAB//state", 1.0),
    (2, 0, b"\xff", 1.0),
    (2, 0, b"z" * (RECORD_BYTES + 1), 1.0),
    (2, None, b"LAB//state", None),
    (2, -(2**63), b"HOSPITAL_ADMISSION//ER", float("nan")),
    (2, 2**63 - 1, b"HOSPITAL_ADMISSION//ER", float("inf")),
    (2, 2**63 - 1, b"LAB//state", 1.0),
]


@pytest.mark.parametrize(
    ("events", "at"),
    [*(slow([event], 20) for event in EVENTS), *[(EVENTS[:1] * 2, 0), (EVENTS[-1:] * 2, 60), (EVENTS, 20)]],
)
def test_odd_events_of_meds(events, at, tmp_path):
    """Wherever a row of theirs stands in the shard."""
    found: list[Any] = []
    for odd in ([], events):
        path = layouts.write_meds(tmp_path / str(len(odd)), EPISODES)
        rows = pq.read_table(path).to_pydict()
        cells = {"subject_id": pa.int64(), "time": pa.int64(), "code": pa.binary(), "numeric_value": pa.float32()}
        rows["time"] = pl.read_parquet(path)["time"].cast(pl.Int64).to_list()
        rows["code"] = [code.encode() for code in rows["code"]]
        for i, name in enumerate(cells):
            rows[name][at:at] = [one[i] for one in odd]
        columns = {name: pa.array(rows[name], kind) for name, kind in cells.items()}
        columns["time"] = columns["time"].view(pa.timestamp("us"))
        columns["code"] = columns["code"].view(pa.string())
        pq.write_table(pa.table(columns), path)
        found.append(rows_of_others(cards()["MEDS"], path.parents[2], 2))
    assert len(found[0]) == len(EPISODES) - 1 and found[1] == found[0]


@pytest.mark.parametrize(
    "odd", [{"episode_index": None}, {"frame_index": None}, {"frame_index": -1}, {"next.reward": None}]
)
def test_odd_frames_of_lerobot(odd, tmp_path):
    found: list[Any] = []
    for which in ({}, odd):
        path = layouts.write_lerobot(tmp_path / str(len(which)), EPISODES, files=1)
        frame = pl.read_parquet(path)
        row = frame["episode_index"].index_of(ODD)
        for name, value in which.items():
            place = pl.int_range(pl.len()) == row
            frame = frame.with_columns(pl.when(~place).then(name).otherwise(pl.lit(value)).alias(name))
        frame.write_parquet(path)
        found.append(rows_of_others(cards()["LeRobot"], path.parents[2], ODD))
    assert len(found[0]) == len(EPISODES) - 1 and found[1] == found[0]


def test_an_episode_in_one_row_may_be_longer_than_other_records(tmp_path, constants):
    path = layouts.write_rlds(tmp_path, EPISODES)
    image = pl.element().struct.with_fields(image=pl.lit("z" * (RECORD_BYTES // 3)))
    pl.read_parquet(path).with_columns(pl.col("steps").list.eval(image)).write_parquet(path)
    card = card_of(cards()["RLDS"], tmp_path)
    assert ingest(card, tmp_path / "home").quarantined == {}
    constants(episode=5 * RECORD_BYTES // 3)
    assert set(ingest(card, tmp_path / "again").quarantined) == {"malformed_line"}
