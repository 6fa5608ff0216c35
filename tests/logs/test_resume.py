"""A killed ingest continues; numbers are never given twice; two ingests of a lineage do not meet."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.declaration.toml import LogError
from pipeline.files import open_private
from pipeline.logs import ingest as room
from pipeline.logs import second_pass, sources, spills
from pipeline.logs.editions import check_delivery
from pipeline.logs.ingest import ingest
from pipeline.logs.store import Snapshot, snapshots
from pipeline.logs.summing import Resources

from .conftest import make_card

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
# kills itself with SIGKILL when the named function of the ingest is called for the n-th time, before or after its work
KILLED = """
import os, signal, sys
from pathlib import Path
from pipeline.logs import editions, second_pass
from pipeline.logs import ingest as room
from pipeline.logs.work import Work
from tests.logs.conftest import make_card
folder, name, nth, when = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
owner = Work if name == "save" else second_pass if name == "screen" else room
inner, calls = getattr(owner, name), []
def deadly(*args, **more):
    calls.append(name)
    if when == "before" and len(calls) == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    result = inner(*args, **more)
    if when == "after" and len(calls) == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(owner, name, deadly)
if name == "end_edition":
    # asked under the lineage's lock, and once the edition is published
    editions.end_edition = deadly
room.ingest(make_card(folder, ["*.csv"]), folder / "store", partitions=4)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in "ab":
        lines = [f"{part}{i},1,{t},{'xy?'[i % 3]},{i % 2},{t / 2}" for i in range(40) for t in range(3)]
        text = "\n".join(["user,episode,t,s,a,r", *lines, "short,line"])
        (tmp_path / f"log-{part}.csv").write_text(text + "\n", encoding="utf-8")
    return tmp_path


def files_of(snapshot: Snapshot) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in snapshot.folder.iterdir()}


def killed(folder: Path, name: str, nth: int, when: str) -> Path:
    """Run an ingest until it dies; the folder of its work in progress."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-P", "-c", KILLED, str(folder), name, str(nth), when]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return folder / "store" / "tiny" / ".ingest"


def count_calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    calls = {"batches": 0, "screen": 0, "digest": 0}

    def counted(name: str, inner: Any) -> Any:
        def call(*args: Any) -> Any:
            calls[name] += 1
            return inner(*args)

        return call

    monkeypatch.setattr(spills, "read_batches", counted("batches", sources.read_batches))
    monkeypatch.setattr(second_pass, "screen", counted("screen", second_pass.screen))
    monkeypatch.setattr(room, "digest", counted("digest", sources.digest))
    return calls


@pytest.mark.parametrize(
    ("name", "nth", "when", "read_again", "screened", "said"),
    [
        ("gather_nobodys", 1, "after", 2, PARTITIONS, None),
        ("save", 1, "after", 0, PARTITIONS, "0 of 4"),
        ("screen", 3, "before", 0, 2, "2 of 4"),
        ("save", 3, "before", 0, 3, "1 of 4"),
        ("note_number", 1, "after", 0, 0, "4 of 4"),
    ],
)
def test_a_killed_ingest_continues_and_ends_in_the_same_bytes(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    nth: int,
    when: str,
    read_again: int,
    screened: int,
    said: str | None,
) -> None:
    work = killed(folder, name, nth, when)
    assert stat.S_IMODE(work.stat().st_mode) == stat.S_IMODE((work / "built").stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in work.rglob("*") if p.is_file()} == {0o600}
    assert snapshots(folder / "store", "tiny") == []
    calls, told, progress = count_calls(monkeypatch), list[str](), list[tuple[int, int | None]]()
    card = make_card(folder, ["*.csv"])
    heard = Resources(say=told.append, progress=lambda done, total: progress.append((done, total)))
    resumed = ingest(card, folder / "store", partitions=PARTITIONS, resources=heard)
    assert (calls["batches"], calls["screen"], calls["digest"] == 0) == (read_again, screened, said is not None)
    assert [said is not None and said in line for line in told] == ([True] if said else [])
    assert screened == 0 or progress[-1] == (242, 242)
    whole = ingest(card, folder / "other", partitions=PARTITIONS)
    assert files_of(resumed) == files_of(whole)
    assert not work.exists()


def _spilt_as_before(folder: Path) -> None:
    state = folder / "store/tiny/.ingest/state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"version": 3}))
    for spill in folder.glob("store/tiny/.ingest/spilt-*/spill-*.arrow"):
        # as long as its state says, and nothing that today's code can read
        spill.write_bytes(bytes(spill.stat().st_size))


CHANGES: dict[str, Any] = {
    "work of an older form": _spilt_as_before,
    "other rows": lambda folder: (folder / "log-a.csv").write_text("user,episode,t,s,a,r\nz,1,0,x,0,1\n"),
    "another time": lambda folder: os.utime(folder / "log-a.csv", (1, 1)),
    "a file more": lambda folder: (folder / "log-c.csv").write_text("user,episode,t,s,a,r\nz,1,0,x,0,1\n"),
    "a lost spill": lambda folder: next(folder.glob("store/tiny/.ingest/spilt-*/spill-0003.arrow")).unlink(),
    "a cut part": lambda folder: os.truncate(folder / "store/tiny/.ingest/built/part-0000.parquet", 9),
    "a damaged state": lambda folder: (folder / "store/tiny/.ingest/state.json").write_text("{"),
}


@pytest.fixture
def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ingest that was interrupted after its first partition; the work stays, as after a kill."""

    def stop(done: int, total: int | None) -> None:
        if (folder / "store/tiny/.ingest/built/part-0000.parquet").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        card = make_card(folder, ["*.csv"])
        ingest(card, folder / "store", partitions=PARTITIONS, resources=Resources(progress=stop))
    assert (folder / "store/tiny/.ingest/state.json").exists()
    return folder


@pytest.mark.parametrize("change", CHANGES)
def test_changed_files_or_damaged_work_start_over(stopped: Path, change: str) -> None:
    CHANGES[change](stopped)
    told: list[str] = []
    card = make_card(stopped, ["*.csv"])
    again = ingest(card, stopped / "store", partitions=PARTITIONS, resources=Resources(say=told.append))
    assert told == []
    assert files_of(again) == files_of(ingest(card, stopped / "other", partitions=PARTITIONS))


@pytest.mark.parametrize(
    "change", [{"domain": {"horizon": 2}}, {"reward": {"steps": 4}}, {"columns": {"truncated": "a"}}]
)
def test_a_card_that_means_something_else_starts_over(stopped: Path, change: Any) -> None:
    told: list[str] = []
    card = make_card(stopped, ["*.csv"], **change)
    again = ingest(card, stopped / "store", partitions=PARTITIONS, resources=Resources(say=told.append))
    assert told == []
    assert again.data_digest == ingest(card, stopped / "other", partitions=PARTITIONS).data_digest


def test_a_changed_tolerance_still_continues(stopped: Path) -> None:
    told: list[str] = []
    card = make_card(stopped, ["*.csv"], tolerance={"unknown_label": 0.0})
    made = ingest(card, stopped / "store", partitions=PARTITIONS, resources=Resources(say=told.append))
    assert len(told) == 1
    assert sorted(p.name for p in (stopped / "store/tiny").iterdir()) == [".lock", "snapshot-0001"]
    with pytest.raises(LogError, match="unknown_label"):
        check_delivery(card, made)


def test_a_file_that_grows_while_it_is_read_is_refused(folder: Path) -> None:
    grown = folder.joinpath("log-a.csv").read_text() + "z,1,0,x,0,1\n"

    def grow(done: int, total: int | None) -> None:
        (folder / "log-a.csv").write_text(grown, encoding="utf-8")

    with pytest.raises(LogError, match="a file changed while it was read"):
        ingest(make_card(folder, ["*.csv"]), folder / "store", resources=Resources(progress=grow))
    assert [p.name for p in (folder / "store/tiny").iterdir()] == [".lock"]


def test_a_number_is_never_given_twice(folder: Path) -> None:
    store, card = folder / "store", make_card(folder, ["*.csv"])
    first = ingest(card, store)
    shutil.rmtree(first.folder)
    second = ingest(card, store)
    assert (first.number, second.number) == (1, 2)
    shutil.rmtree(store / "tiny")
    third = ingest(card, store)
    assert third.number == 3
    assert third.data_digest == first.data_digest
    (store / ".last-snapshot-tiny").unlink()
    shutil.rmtree(third.folder.parent / "snapshot-0003", ignore_errors=False)
    assert ingest(card, store).number == 1


def test_a_damaged_note_of_the_highest_number_says_so(folder: Path) -> None:
    card = make_card(folder, ["*.csv"])
    shutil.rmtree(ingest(card, folder / "store").folder)
    (folder / "store" / ".last-snapshot-tiny").write_text("one")
    with pytest.raises(LogError, match="write the highest snapshot number ever given"):
        ingest(card, folder / "store")


def test_a_second_ingest_waits_for_the_first_and_shares_its_bytes(folder: Path) -> None:
    store, card = folder / "store", make_card(folder, ["*.csv"])
    first = ingest(card, store)
    told, found, waits = list[str](), list[Snapshot](), threading.Event()

    def say(message: str) -> None:
        told.append(message)
        waits.set()

    with open_private(store / "tiny" / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=lambda: found.append(ingest(card, store, resources=Resources(say=say))))
        second.start()
        assert waits.wait(60)
        assert found == []
    second.join(60)
    assert told == ["another ingest of tiny is running; waiting for it to end"]
    assert [s.number for s in found] == [2] and files_of(found[0]).keys() == files_of(first).keys()
    assert all(a.samefile(b) for a, b in zip(first.part_files, found[0].part_files, strict=True))


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize(
    ("name", "when", "number"),
    [
        ("_read", "before", 1),
        ("save", "after", 1),
        ("note_number", "before", 1),
        ("note_number", "after", 1),
        ("_publish", "after", 2),
        ("end_edition", "after", 2),
    ],
)
def test_the_number_of_a_retry_depends_on_no_row(
    folder: Path, name: str, when: str, number: int, changed: bool
) -> None:
    killed(folder, name, 2 if name == "end_edition" else 1, when)
    if changed:
        CHANGES["other rows"](folder)
    card, store = make_card(folder, ["*.csv"]), folder / "store"
    assert ingest(card, store, partitions=PARTITIONS).number == number
    assert ingest(card, store, partitions=PARTITIONS).number == number + 1
