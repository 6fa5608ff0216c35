"""A sum over partitions: what a killed one had finished is not read again, and the integers are the same."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.logs import summing
from pipeline.logs.aggregate import CountSums, aggregate
from pipeline.logs.elsewhere import Packed
from pipeline.logs.regression_sums import TallySums, tally
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources, forget, sum_snapshot

from .conftest import make_card
from .test_aggregate import capped_card, people, same, snapshot

ROOT = Path(__file__).parents[2]
PARTS = 6
# sums one partition a group and kills itself with SIGKILL before or after the n-th group, or while it keeps a sum
KILLED = """
import os, signal, sys
from pathlib import Path
from pipeline.logs import summing
from tests.logs import test_summing as here
folder, which, where, nth = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
summing.KEEP_AFTER = 0.0
summing._COST = 1.0e9
calls = []
def deadly(inner):
    def call(*args):
        calls.append(1)
        if where == "before" and len(calls) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        inner(*args)
        if where == "after" and len(calls) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
    return call
if where == "writing":
    inner = summing.KeptSums.save
    def save(self, partial):
        calls.append(1)
        if len(calls) == nth:
            self.paths[1].write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
        inner(self, partial)
    summing.KeptSums.save = save
else:
    kind = type(here.work(which))
    kind.add = deadly(kind.add)
    kind.together = 1
here.sums(which, here.opened(folder))
"""


def opened(folder: Path) -> Snapshot:
    return Snapshot("tiny", 1, folder, "synthetic", "", "", "", 90, 90, 0, 0, {}, PARTS)


def work(which: str) -> Any:
    if which == "counts":
        return CountSums(make_card(Path(), ["log.csv"]))
    if which == "capped":
        return CountSums(capped_card())
    return TallySums(make_card(Path(), ["log.csv"]), 64, (0, 64), split=True)


def sums(which: str, found: Snapshot, resources: Resources = summing.HERE) -> dict[str, np.ndarray]:
    return dict(sum_snapshot(work(which), found, resources))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    snapshot([people(5, seed) for seed in range(PARTS)], tmp_path)
    return tmp_path


@pytest.fixture
def keeps_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group is kept."""
    monkeypatch.setattr(summing, "KEEP_AFTER", 0.0)
    monkeypatch.setattr(summing, "_COST", 1e9)


def one_a_group(which: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The part files that are read from now on, in their order."""
    kind, read = type(work(which)), list[str]()
    add = kind.add

    def watched(self: Any, sums: Any, parts: Sequence[Path], seen: Callable[[int], None]) -> None:
        read.extend(part.name for part in parts)
        add(self, sums, parts, seen)

    monkeypatch.setattr(kind, "add", watched)
    monkeypatch.setattr(kind, "together", 1)
    return read


@pytest.mark.parametrize(
    ("which", "where", "nth", "done"),
    [
        ("counts", "before", 1, 0),
        ("counts", "after", 4, 3),
        ("linear", "before", PARTS, PARTS - 1),
        ("capped", "writing", 3, 2),
    ],
)
def test_a_killed_sum_goes_on_where_it_stopped_and_ends_in_the_same_integers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, which: str, where: str, nth: int, done: int
) -> None:
    whole = sums(which, opened(folder))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-P", "-c", KILLED, str(folder), which, where, str(nth)]
    died = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=120, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert {stat.S_IMODE(p.stat().st_mode) for p in folder.glob(".sums")} <= {0o600}
    read, told, progress = one_a_group(which, monkeypatch), list[str](), list[tuple[int, int | None]]()
    resources = Resources(say=told.append, progress=lambda *at: progress.append(at))
    again = sums(which, opened(folder), resources)
    assert read == [f"part-{i:04d}.parquet" for i in range(done, PARTS)]
    assert progress[-1] == (90, 90) and progress[0][0] > 15 * done
    assert told == ([f"resuming a sum of tiny that stopped: {done} of {PARTS} partitions are added"] if done else [])
    same(again, whole)


@pytest.mark.usefixtures("keeps_all")
def test_a_twin_that_forgets_which_partitions_are_in_counts_them_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sums("counts", opened(folder))
    load = summing.KeptSums.load

    def forgetful(self: summing.KeptSums, zero: Any) -> Any:
        found = load(self, zero)
        return found and summing.Partial(found.sums)

    monkeypatch.setattr(summing.KeptSums, "load", forgetful)
    assert sums("counts", opened(folder))["visits"].sum() == 2 * whole["visits"].sum()


def _other_rows(folder: Path) -> None:
    part = folder / "part-0001.parquet"
    pl.read_parquet(part).with_columns(pl.col("action").reverse()).write_parquet(part)


def _flip(folder: Path) -> None:
    raw = bytearray((folder / ".sums").read_bytes())
    raw[-1] ^= 1
    (folder / ".sums").write_bytes(raw)


SPOILT: dict[str, Callable[[Path], object]] = {
    "other rows": _other_rows,
    "another time": lambda folder: os.utime(folder / "part-0002.parquet", (1, 1)),
    "a flipped bit": _flip,
    "cut off": lambda folder: os.truncate(folder / ".sums", (folder / ".sums").stat().st_size - 8),
    "no sums": lambda folder: (folder / ".sums").write_bytes(b"{}\n"),
    "not even JSON": lambda folder: (folder / ".sums").write_bytes(b"\xff\n"),
}


@pytest.mark.usefixtures("keeps_all")
@pytest.mark.parametrize("spoilt", SPOILT)
def test_what_is_spoilt_or_of_other_rows_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, spoilt: str
) -> None:
    sums("counts", opened(folder))
    assert (folder / ".sums").exists()
    SPOILT[spoilt](folder)
    read = one_a_group("counts", monkeypatch)
    again = sums("counts", opened(folder))
    assert len(read) == PARTS
    (folder / ".sums").unlink()
    same(again, sums("counts", opened(folder)))


@pytest.mark.usefixtures("keeps_all")
def test_what_is_kept_of_another_sum_card_or_code_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = one_a_group("counts", monkeypatch)
    found, card = opened(folder), make_card(Path(), ["log.csv"])
    for other in (card, make_card(Path(), ["log.csv"], reward={"steps": 4}), card):
        sum_snapshot(CountSums(other), found)
    assert len(read) == 3 * PARTS
    sum_snapshot(CountSums(card), found)
    assert len(read) == 3 * PARTS
    monkeypatch.setattr(summing, "code_digest", lambda: "another version")
    sum_snapshot(CountSums(card), found)
    assert len(read) == 4 * PARTS


def test_a_short_sum_keeps_nothing_and_a_full_disk_stops_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aggregate(opened(folder), make_card(Path(), ["log.csv"]))
    tally(opened(folder), make_card(Path(), ["log.csv"]), 64, (0, 64), split=False)
    assert not list(folder.glob(".sums*"))

    def full(_: Path, **_more: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(summing, "KEEP_AFTER", 0.0)
    monkeypatch.setattr(summing, "whole_file", full)
    assert sums("counts", opened(folder))["visits"].sum() == 90


@pytest.mark.usefixtures("keeps_all")
def test_kept_sums_are_the_owners_alone_say_nothing_of_people_and_go_when_the_release_is_there(folder: Path) -> None:
    rows = people(5).with_columns(pl.format("u-schwalbe-{}", "user_id").alias("user_id"))
    snapshot([rows] * PARTS, folder)
    sums("linear", opened(folder))
    raw = (folder / ".sums").read_bytes()
    assert stat.S_IMODE((folder / ".sums").stat().st_mode) == 0o600 and b"schwalbe" not in raw
    assert sorted(json.loads(raw.split(b"\n")[0])) == ["done", "key", "rows", "sha256"]
    (folder / ".sums.partial").write_bytes(b"")
    forget(opened(folder))
    assert not list(folder.glob(".sums*"))


@given(st.lists(st.integers(-(2**40), 2**40) | st.just(0), min_size=1, max_size=60))
def test_packed_sums_add_up_to_what_they_were(values: list[int]) -> None:
    table = np.array(values, dtype=np.int64)
    total = {"a": np.ones((len(values), 1), dtype=np.int64)}
    Packed.of({"a": table.reshape(-1, 1)}).add_to(total)
    np.testing.assert_array_equal(total["a"][:, 0], table + 1)


def test_what_version_0_1_left_half_written_goes_with_the_rest(tmp_path):
    kept = snapshot([people(3)], tmp_path)
    for name in (".sums", ".sums.partial", ".sums.new"):
        (kept.folder / name).write_bytes(b"raw sums")
    forget(kept)
    assert not list(kept.folder.glob(".sums*"))
