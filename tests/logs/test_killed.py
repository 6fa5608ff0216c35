"""A killed ingest leaves nothing; numbers are never given twice; two ingests of a lineage do not meet."""

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
from collections.abc import Generator
from datetime import date
from pathlib import Path

import pytest

from pipeline.files import open_private
from pipeline.logs.ingest import ingest
from pipeline.logs.store import Snapshot, snapshots
from pipeline.logs.summing import Resources
from reticent import LogError

from .conftest import ingest as by_hand
from .conftest import make_card

ROOT = Path(__file__).parents[2]
PARTITIONS = 2
# For each line: a child that kills itself with SIGKILL when the named function of the ingest is called for the n-th
# time, before or after its work.  What all of them import is imported once.
MOTHER = """
import json, os, signal, sys
from pathlib import Path
from pipeline.logs import ingest as room
from pipeline.logs import spills, store
from tests.logs.conftest import make_card
def die_in(folder, name, nth, when):
    owner = next(module for module in (room, spills, store) if hasattr(module, name))
    inner, calls = getattr(owner, name), []
    def deadly(*args, **more):
        calls.append(name)
        if when == "before" and len(calls) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        result = inner(*args, **more)
        if when == "after" and len(calls) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    # `end_edition` is asked under the lineage's lock, and once the edition is published
    setattr(owner, name, deadly)
    room.ingest(make_card(Path(folder), ["*.csv"]), Path(folder) / "store", partitions=2)
for line in sys.stdin:
    child = os.fork()
    if not child:
        die_in(*json.loads(line))
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture(scope="module")
def mother() -> Generator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", MOTHER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as running:
        yield running
        assert running.stdin is not None
        running.stdin.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in "ab":
        lines = [f"{part}{i},1,{t},{'xy?'[i % 3]},{i % 2},{t / 2}" for i in range(40) for t in range(3)]
        text = "\n".join(["user,episode,t,s,a,r", *lines, "short,line"])
        (tmp_path / f"log-{part}.csv").write_text(text + "\n", encoding="utf-8")
    return tmp_path


def files_of(snapshot: Snapshot) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in snapshot.folder.iterdir()}


@pytest.mark.parametrize(
    ("name", "nth", "when", "number"),
    [
        ("screen", 2, "before", 1),
        ("note_number", 1, "after", 1),
        ("_publish", 1, "after", 2),
        *(
            pytest.param(*death, marks=pytest.mark.slow)
            for death in (
                ("_read", 1, "before", 1),
                ("gather_nameless", 1, "after", 1),
                ("note_number", 1, "before", 1),
                ("end_edition", 2, "after", 2),
            )
        ),
    ],
)
def test_after_a_killed_ingest_the_next_begins_anew_under_a_number_of_no_row_and_ends_in_the_same_bytes(
    folder: Path, mother: subprocess.Popen[str], name: str, nth: int, when: str, number: int
) -> None:
    assert mother.stdin is not None and mother.stdout is not None
    print(json.dumps([str(folder), name, nth, when]), file=mother.stdin, flush=True)
    assert os.waitstatus_to_exitcode(int(mother.stdout.readline())) == -signal.SIGKILL
    work = folder / "store" / "tiny" / ".ingest"
    if number == 1:
        assert stat.S_IMODE(work.stat().st_mode) == stat.S_IMODE((work / "built").stat().st_mode) == 0o700
        assert {stat.S_IMODE(p.stat().st_mode) for p in work.rglob("*") if p.is_file()} <= {0o600}
        assert snapshots(folder / "store", "tiny") == []
    changed = shutil.copytree(folder, folder / "changed")
    (changed / "log-a.csv").write_text("user,episode,t,s,a,r\nz,1,0,x,0,1\n")
    assert ingest(make_card(changed, ["*.csv"]), changed / "store", partitions=PARTITIONS).number == number
    progress, card = list[tuple[int, int | None]](), make_card(folder, ["*.csv"])
    heard = Resources(progress=lambda done, total: progress.append((done, total)))
    again = ingest(card, folder / "store", partitions=PARTITIONS, resources=heard)
    assert again.number == number and (number == 2 or progress[-1] == (242, 242))
    other = ingest(card, folder / "other", partitions=PARTITIONS)
    apart = {"manifest.json"} if number == 2 else set[str]()
    mine, new = ({n: c for n, c in files_of(s).items() if n not in apart} for s in (again, other))
    assert mine == new and not work.exists()


@pytest.mark.parametrize("night", [None, date(2024, 1, 1)])
def test_an_ingest_removes_what_is_left_of_dead_ones_and_of_their_sums_even_where_it_reads_nothing(
    folder: Path, night: date | None
) -> None:
    store, card = folder / "store", make_card(folder, ["*.csv"])
    made = ingest(card, store, night=night)
    left = [made.folder / ".sums", made.folder / ".sums.partial", made.folder / ".sums.new"]
    for path in left:
        path.write_bytes(b"exact sums")
    (store / "tiny/.ingest/spilt-1").mkdir(parents=True)
    (store / "tiny/.ingest/spilt-1/spill-0000.arrow").write_bytes(b"rows")
    again = ingest(card, store, night=night)
    assert again.number == (2 if night is None else 1)
    assert not [p for p in left if p.exists()] and not (store / "tiny/.ingest").exists()


def test_an_ingest_that_is_interrupted_leaves_no_row(folder: Path) -> None:
    def stop(done: int, total: int | None) -> None:
        if (folder / "store/tiny/.ingest/built/part-0000.parquet").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(make_card(folder, ["*.csv"]), folder / "store", partitions=4, resources=Resources(progress=stop))
    assert [p.name for p in (folder / "store/tiny").iterdir()] == [".lock"]


def test_a_file_that_grows_while_it_is_read_is_refused(folder: Path) -> None:
    grown = folder.joinpath("log-a.csv").read_text() + "z,1,0,x,0,1\n"

    def grow(done: int, total: int | None) -> None:
        (folder / "log-a.csv").write_text(grown, encoding="utf-8")

    with pytest.raises(LogError, match="a file changed while it was read"):
        ingest(make_card(folder, ["*.csv"]), folder / "store", resources=Resources(progress=grow))
    assert [p.name for p in (folder / "store/tiny").iterdir()] == [".lock"]


def test_a_number_is_never_given_twice(folder: Path) -> None:
    store, card = folder / "store", make_card(folder, ["*.csv"])
    first = by_hand(card, folder)
    shutil.rmtree(first.folder)
    assert (first.number, by_hand(card, folder).number) == (1, 2)
    shutil.rmtree(store / "tiny")
    third = by_hand(card, folder)
    assert third.number == 3 and third.data_digest == first.data_digest
    shutil.rmtree(third.folder)
    (note := store / ".last-snapshot-tiny").write_text("one")
    with pytest.raises(LogError, match="write the highest snapshot number ever given"):
        by_hand(card, folder)
    note.unlink()
    assert by_hand(card, folder).number == 1


@pytest.mark.slow
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
