"""Damage to the bytes of a file, its lines, its place, the notes beside it; each tells the episodes it may touch."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.campaigns.bad_layouts import EVERY, PEOPLE, SECRET, Case

Damage = Callable[[Path, Case], frozenset[int]]


def _owners(path: Path, low: int, high: int, layout: str) -> frozenset[int]:
    """Episodes whose lines lie within bytes ``low … high`` of a text file; all of any other."""
    if layout not in ("csv", "ndjson", "wide"):
        return EVERY
    starts = [0, *(i + 1 for i, byte in enumerate(path.read_bytes()) if byte == 10)]
    first, last = (int(np.searchsorted(starts, x, side="right")) - 1 for x in (low, high))
    owner = [i for i, told in enumerate(PEOPLE) for _ in range(1 if layout == "wide" else told.steps)]
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
    garbage = [b"\xff\xfe\xfa", b"\0\0\0", b'"', SECRET.encode(), b"\r", b"\n\n", b",,,,", b"\x1a", b"{[", b"'" * 50][
        case.pick % 10
    ]
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
        b"ARROW1\0\0" * 3,
        b"\x89HDF\r\n\x1a\n" + b"\0" * 100, b"user,episode\n", b"[]", b"{}\n", data.decode("latin-1").encode("utf-16"),
        b"\xef\xbb\xbf" + data, b"PK\x03\x04" + data, bytes(range(256)) * 16,
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
