"""Damaged logs: one good log in every layout under the card that reads it, and what may happen to its file.

A damage writes over the file and returns the episodes that it may touch.  Cases are drawn by hypothesis from a fixed
seed.
"""

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import polars as pl
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.logs.layouts import (
    LOG,
    cards,
    write_d4rl,
    write_flat,
    write_lerobot,
    write_meds,
    write_minari_arrow,
    write_minari_hdf5,
    write_obp,
    write_rlds,
)

SECRET = "zzSECRETzz"
PEOPLE = LOG * 3
EVERY = frozenset(range(len(PEOPLE)))
# episode of each row
_OWNERS = [i for i, told in enumerate(PEOPLE) for _ in range(told.steps)]
_WRITERS = {".csv": "write_csv", ".ndjson": "write_ndjson", ".parquet": "write_parquet", ".arrow": "write_ipc"}


class Layout(NamedTuple):
    """How the good log is written, under which card."""

    write: Callable[[Path], Path]
    card: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One damage: ``at`` in [0, 1) says where, ``pick`` which of several ways."""

    layout: str
    damage: str
    at: float
    pick: int

    def told(self) -> str:
        return json.dumps(asdict(self))


Damage = Callable[[Path, Case], frozenset[int]]


def _write_plain(folder: Path, suffix: str) -> Path:
    rows = [
        (f"{SECRET}{i}", i, t, told.states[t], told.actions[t], told.rewards[t], told.states[t + 1])
        for i, told in enumerate(PEOPLE)
        for t in range(told.steps)
    ]
    path = folder / f"log{suffix}"
    _put(pl.DataFrame(rows, orient="row", schema=["user", "episode", "t", "s", "a", "r", "s2"]), path)
    return path


def _write_wide(folder: Path) -> Path:
    lines = [",".join(["user", *(f"{c}{h}" for h in range(4) for c in "sar")])]
    for i, told in enumerate(PEOPLE):
        steps = [(told.states[h], told.actions[h], told.rewards[h]) if h < told.steps else None for h in range(4)]
        cells = (",," if step is None else "{},{},{:g}".format(*step) for step in steps)
        lines.append(",".join([f"{SECRET}{i}", *cells]))
    (folder / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "log.csv"


def _card(source: dict[str, Any], **domain: dict[str, Any]) -> dict[str, Any]:
    """The card of flat transitions, of another source and with more said of its domain."""
    flat = cards()["Flat transitions"]
    found = flat["domain"] | {name: flat["domain"][name] | told for name, told in domain.items()}
    return flat | {"unit": {"user": "user", "users_public": 12}, "domain": found, "source": source}


def layouts() -> dict[str, Layout]:
    known, found = cards(), dict[str, Layout]()
    columns = {"user_id": "user", "episode_id": "episode", "step": "t", "reward": "r", "next_state": "s2"}
    for suffix in _WRITERS:
        card = _card({"files": [f"log{suffix}"], "columns": columns})
        found[suffix[1:]] = Layout(lambda folder, suffix=suffix: _write_plain(folder, suffix), card)
    wide = {"layout": "wide", "first_step": 0, "files": ["log.csv"]}
    wide["columns"] = {"user_id": "user", "reward": "r{step}"}
    card = _card(wide, states={"column": "s{step}"}, actions={"column": "a{step}"})
    found["wide"] = Layout(_write_wide, card)
    own = {
        "minari-hdf5": (write_minari_hdf5, "Minari in HDF5"), "minari-arrow": (write_minari_arrow, "Minari in Arrow"),
        "d4rl": (write_d4rl, "D4RL"), "rlds": (write_rlds, "RLDS"), "lerobot": (write_lerobot, "LeRobot"),
        "obp": (write_obp, "obp"), "meds": (write_meds, "MEDS"), "flat": (write_flat, "Flat transitions"),
    }  # fmt: skip
    for name, (write, head) in own.items():
        found[name] = Layout(lambda folder, write=write: write(folder, PEOPLE), known[head])
    found["rlds-steps"] = Layout(lambda folder: write_rlds(folder, PEOPLE, nested=False), known["RLDS"])
    return found


def _owners(path: Path, low: int, high: int, layout: str) -> frozenset[int]:
    """Episodes whose lines lie within bytes ``low … high`` of a text file; all of any other."""
    if layout not in ("csv", "ndjson", "wide"):
        return EVERY
    starts = [0, *(i + 1 for i, byte in enumerate(path.read_bytes()) if byte == 10)]
    first, last = (int(np.searchsorted(starts, x, side="right")) - 1 for x in (low, high))
    owner = list(range(len(PEOPLE))) if layout == "wide" else _OWNERS
    shift = 0 if layout == "ndjson" else 1
    if first < shift:
        return EVERY
    return frozenset(owner[line - shift] for line in range(first, last + 1) if line - shift < len(owner))


def truncated(path: Path, case: Case) -> frozenset[int]:
    data = path.read_bytes()
    cut = int(case.at * len(data))
    touched = _owners(path, max(0, cut - 1), len(data), case.layout)
    path.write_bytes(data[:cut])
    return touched


def bent(path: Path, case: Case) -> frozenset[int]:
    data = bytearray(path.read_bytes())
    low = int(case.at * len(data))
    high = min(len(data), low + 1 + case.pick % 16)
    touched = _owners(path, low, high, case.layout)
    data[low:high] = bytes((b ^ (0x55 + case.pick % 64)) & 0xFF for b in data[low:high])
    path.write_bytes(data)
    return touched if b"\n" not in data[low:high] else EVERY


def inserted(path: Path, case: Case) -> frozenset[int]:
    data = path.read_bytes()
    low = int(case.at * len(data))
    odd = [b"\xff\xfe\xfa", b"\0\0\0", b'"', SECRET.encode(), b"\r", b"\n\n", b",,,,", b"\x1a", b"{[", b"'" * 50]
    garbage = odd[case.pick % 10]
    touched = _owners(path, max(0, low - 1), min(len(data), low + 1), case.layout)
    path.write_bytes(data[:low] + garbage + data[low:])
    return touched


def glued(path: Path, case: Case) -> frozenset[int]:
    path.write_bytes(path.read_bytes() * (2 + case.pick % 2))
    return EVERY


def replaced(path: Path, case: Case) -> frozenset[int]:
    data = path.read_bytes()
    whole = [
        b"", b"\n", b"\0" * 4096, data[::-1], gzip.compress(data), SECRET.encode() * 100, b"PAR1" * 3,
        b"ARROW1\0\0" * 3, b"\x89HDF\r\n\x1a\n" + b"\0" * 100, b"user,episode\n", b"[]", b"{}\n",
        data.decode("latin-1").encode("utf-16"), b"\xef\xbb\xbf" + data, b"PK\x03\x04" + data, bytes(range(256)) * 16,
    ]  # fmt: skip
    path.write_bytes(whole[case.pick % len(whole)])
    return EVERY


# folders between that of the card and the file
_DEPTH = {"minari-hdf5": 1, "minari-arrow": 2, "lerobot": 2, "meds": 2}


def linked(path: Path, case: Case) -> frozenset[int]:
    """Links out of the folder, loops, broken ones, and things that are no files."""
    away = path.parent.parent / f"away-{path.name}"
    path.rename(away if case.pick % 6 != 5 else path)
    match case.pick % 6:
        case 0:
            folder = path.parents[_DEPTH.get(case.layout, 0)]
            outside = folder.parent / f"outside-{folder.name}-{path.name}"
            away.rename(outside)
            path.symlink_to(outside)
        case 1:
            path.symlink_to(path)
        case 2:
            path.symlink_to("nowhere")
        case 3:
            path.mkdir()
        case 4:
            os.mkfifo(path)
        case _:
            (path.parent / "loop").symlink_to(path.parent, target_is_directory=True)
            return frozenset()
    return EVERY


def beside(path: Path, case: Case) -> frozenset[int]:
    """Damage to the JSON file that a data set has beside its rows; of formats without one, a stray file."""
    homes = [path.parent, path.parent.parent, path.parents[2] / "meta"]
    notes = [note for home in homes for note in sorted(home.glob("*.json"))]
    note = notes[case.pick // 12 % len(notes)] if notes else path.with_name("metadata.json")
    texts = ["", "{", "[]", "null", "{}", "[" * 100_000, "\0", '"\\ud800"',
             '{"total_episodes": 1e999, "total_frames": -1, "total_steps": "x"}',
             '{"total_episodes": 10000000000000000000000, "total_steps": [], "total_frames": {}}',
             '{"total_episodes": "x", "total_frames": "x", "total_steps": []}']  # fmt: skip
    if case.pick % 12 == 11:
        note.unlink(missing_ok=True)
    else:
        note.write_text(texts[case.pick % 12], encoding="utf-8")
    return EVERY


def lines(path: Path, case: Case) -> frozenset[int]:
    """One line of a text file: too deep, too long, too wide, quoted to the end."""
    good = path.read_bytes().splitlines(keepends=True)
    at = 1 + int(case.at * (len(good) - 1))
    odd = [b"[" * 200_000, b'{"a":' * 50_000, b"x" * 20_000_000, b"," * 100_000, b'"' * 3, b'{"user":"a","user":"b"}',
           b"\xe9", b"\r\r", b'"' + SECRET.encode(), b"\xed\xa0\x80"][case.pick % 10]  # fmt: skip
    path.write_bytes(b"".join([*good[:at], odd + b"\n", *good[at:]]))
    return frozenset()


def _frame(path: Path) -> pl.DataFrame:
    match path.suffix:
        case ".csv":
            return pl.read_csv(path, infer_schema=False)
        case ".ndjson":
            return pl.read_ndjson(path)
        case ".parquet":
            return pl.read_parquet(path)
        case _:
            return pl.read_ipc(path.read_bytes())


def _put(frame: pl.DataFrame, path: Path) -> None:
    if path.suffix == ".csv" and any(t.is_nested() for t in frame.schema.values()):
        # no cell of text holds a list
        frame = frame.select(
            pl.lit("[1]").alias(c) if t.is_nested() else pl.col(c).cast(pl.String) for c, t in frame.schema.items()
        )
    getattr(frame, _WRITERS.get(path.suffix, "write_ipc"))(path)


def _owner_of_row(layout: str, row: int, height: int) -> frozenset[int]:
    if layout in ("csv", "ndjson", "parquet", "arrow"):
        return frozenset({_OWNERS[row]})
    return frozenset({row}) if layout in ("wide", "rlds") and height == len(PEOPLE) else EVERY


def columns(path: Path, case: Case) -> frozenset[int]:
    """Whole columns: gone, renamed, retyped, nested, in another order, many more."""
    frame = _frame(path)
    name = frame.columns[int(case.at * frame.width)]
    # in place of the column; None: the layout cannot hold it, and it is gone
    binary = pl.lit(b"\xff") if path.suffix in (".parquet", ".arrow") else None
    text = None if frame.schema[name].is_nested() else pl.col(name).cast(pl.String)
    days = pl.duration(days=1) if path.suffix != ".csv" else None
    ways: list[Any] = [
        None, frame.rename({name: f"{name} "}), frame.select(frame.columns[::-1]), pl.lit(SECRET), pl.lit(None),
        pl.lit(float("nan")), pl.lit(2**62), pl.lit(1e308), pl.lit([[["x"]]]), pl.lit([1, 2]),
        pl.struct(pl.lit(1).alias("a")), pl.lit(True), pl.datetime(2020, 1, 1), binary,
        frame.with_columns(**{f"extra{i}": i for i in range(400)}), frame.clear(), text, days,
    ]  # fmt: skip
    way = case.pick % len(ways)
    made = frame.with_columns(ways[way].alias(name)) if isinstance(ways[way], pl.Expr) else ways[way]
    _put(frame.drop(name) if made is None else made, path)
    return frozenset() if way in (2, 14) and case.layout not in ("minari-arrow",) else EVERY


def rows(path: Path, case: Case) -> frozenset[int]:
    """Rows twice, gone, in another order; many copies."""
    frame = _frame(path)
    row = int(case.at * frame.height)
    touched = _owner_of_row(case.layout, row, frame.height)
    before, one, after = frame[:row], frame[row : row + 1], frame[row + 1 :]
    ways = [[frame, one], [before, after], [frame], [before, one, one, after], [frame, *[one] * 50_000]]
    frame = pl.concat(ways[case.pick % 5])
    if case.pick % 5 == 2:
        frame = frame.sample(fraction=1, shuffle=True, seed=case.pick)
        touched = frozenset() if case.layout in ("csv", "ndjson", "parquet", "arrow", "wide") else EVERY
    _put(frame, path)
    return touched


def cells(path: Path, case: Case) -> frozenset[int]:
    """One cell: missing, another number, text."""
    frame = _frame(path)
    row, name = int(case.at * frame.height), frame.columns[case.pick % frame.width]
    touched = _owner_of_row(case.layout, row, frame.height)
    values = [None, "", "NaN", "inf", "-1", "99999999999999999999", "1e400", SECRET]
    values += ["1.5", "x" * 100_000, "\u202e", "=1+1", "0x1"]
    value = values[(case.pick // 7) % len(values)]
    dtype = frame.schema[name]
    here = pl.int_range(pl.len()) == row
    if dtype.is_nested():
        cell = pl.lit(None, dtype=dtype)
    elif path.suffix in (".csv", ".ndjson"):
        frame, cell = frame.with_columns(pl.col(name).cast(pl.String)), pl.lit(value, dtype=pl.String)
    elif dtype == pl.String:
        cell = pl.lit(value, dtype=pl.String)
    else:
        whole = dtype.is_integer() or dtype == pl.Boolean or dtype.is_temporal()
        odd = [None, -1, 1, 127] if whole else [None, float("nan"), float("inf"), -1e30]
        cell = pl.lit(odd[case.pick % 4]).cast(dtype)
    _put(frame.with_columns(pl.when(here).then(cell).otherwise(pl.col(name)).alias(name)), path)
    return touched


def bombs(path: Path, case: Case) -> frozenset[int]:
    """Small files that hold many rows: a few hundred thousand."""
    frame = _frame(path)
    times = 300_000 // frame.height
    _put(pl.concat([frame[:1]] * times * frame.height) if case.pick % 2 else pl.concat([frame] * (times // 4)), path)
    return EVERY


def arrays(path: Path, case: Case) -> frozenset[int]:
    """One array (or group): gone, shorter, of another type or shape, a link, nested, far too big."""
    with h5py.File(path, "a") as file:
        victim = int(case.at * len(PEOPLE))
        home = file[f"episode_{victim}"] if "episode_0" in file else file
        names = sorted(home)
        name = names[case.pick % len(names)]
        touched = frozenset({victim}) if "episode_0" in file else EVERY
        old = home[name][()]
        n = len(old)
        way = (case.pick // 5) % 18
        if way == 0:
            home.attrs["total_steps"] = [7, -1, "x", 2.5, [1, 2], float("nan")][case.pick % 6]
            return touched
        if way == 1:
            home.create_group("infos").create_group("a/b/c/d/e/f/g/h/i/j/k")
            return EVERY
        if way == 2:
            file["episode_x"], file["stray"] = [1.0], SECRET
            return frozenset()
        if way == 3:
            file.create_group("episode_999")
            return frozenset() if "episode_0" in file else EVERY
        del home[name]
        if way == 4:
            return touched
        if way in (5, 6, 7):
            links = h5py.SoftLink("/nowhere"), h5py.ExternalLink("other.hdf5", "/x"), h5py.SoftLink(home.name)
            home[name] = links[way - 5]
            return EVERY
        if way == 8:
            home.create_group(name)["inner"] = old
            return touched
        if way in (9, 10):
            huge = {"shape": 10**11, "dtype": "f8", "chunks": (10**6,)} if way == 9 else {"data": np.zeros(3_000_000)}
            home.create_dataset(name, **huge, compression="gzip")
            return EVERY
        made: list[Callable[[], Any]] = [
            lambda: old[:-1], lambda: np.concatenate([old, old]), lambda: np.full(old.shape, np.nan),
            lambda: [SECRET] * n, lambda: np.zeros((n, 2, 2, 40)),
            lambda: np.zeros(n, dtype=[("a", "i4"), ("b", "f8")]),
            lambda: np.zeros(n, dtype="c16"),
        ]  # fmt: skip
        home[name] = made[way - 11]()
        return touched


DAMAGES: dict[str, Damage] = {
    f.__name__: f
    for f in (truncated, bent, inserted, glued, replaced, linked, beside, columns, rows, cells, lines, bombs, arrays)
}
_BYTES = ("truncated", "bent", "inserted", "glued", "replaced", "linked")


def damages_of(layout: str) -> tuple[str, ...]:
    """What makes sense for a layout; every one at least has its bytes damaged."""
    if layout in ("minari-hdf5", "d4rl"):
        return (*_BYTES, "beside", "arrays", "arrays", "arrays", "arrays")
    tables = (*_BYTES, "columns", "columns", "rows", "cells", "cells", "bombs")
    if layout in ("csv", "ndjson", "wide", "obp", "flat"):
        return (*tables, "lines", "lines")
    return (*tables, "beside") if layout in ("minari-arrow", "lerobot") else tables


def drawn(count: int, start: int = 0) -> list[Case]:
    """Different cases, the same ones for the same arguments.

    Drawn from coins: hypothesis draws numbers near the constants of whatever modules happen to be loaded.
    """
    found: dict[str, Case] = {}
    names = sorted(layouts())
    number = st.tuples(*[st.booleans()] * 10).map(lambda bits: sum(bit << i for i, bit in enumerate(bits)))
    alone = {"database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}

    @seed(start)
    @settings(max_examples=count, phases=[Phase.generate], **alone)
    @given(st.tuples(number, number, number, number))
    def draw(numbers: tuple[int, int, int, int]) -> None:
        layout = names[numbers[0] % len(names)]
        damages = damages_of(layout)
        case = Case(layout, damages[numbers[1] % len(damages)], numbers[2] / 1024, numbers[3])
        found.setdefault(case.told(), case)

    draw()
    return list(found.values())
