"""Snapshots: numbered, private, found again, and made once; a killed ingest leaves nothing."""

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import fsspec
import polars as pl
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from pipeline.files import open_private
from pipeline.logs.ingest import ingest as ingest_night
from pipeline.logs.store import Snapshot, check_delivery, load, snapshots
from pipeline.logs.summing import Resources
from reticent import CardError, LogError, Store
from tests.conftest import slow
from tests.flows.shop import lay_out
from tests.logs.conftest import HEAD, Edition, canonical, ingest, make_card, quarantine

TEXT = "user,episode,t,s,a,r\nu,1,0,x,0,1\nv,1,0,y,1,0.7\nv,1,1\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "log.csv").write_text(TEXT, encoding="utf-8")
    return tmp_path


def problems(folder: Path) -> list[str | None]:
    """What is wrong with each edition, oldest first."""
    return [s["problem"] for s in Store(folder / "home").verify(make_card(folder, ["log.csv"]))["snapshots"]]


def test_nobody_but_the_owner_may_look(folder):
    store = folder / "home" / "store"
    store.mkdir(mode=0o755, parents=True)
    ingest(make_card(folder, ["log.csv"]), folder / "home")
    modes = {(p.is_dir(), stat.S_IMODE(p.stat().st_mode)) for p in [store, *store.rglob("*")]}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_every_ingest_makes_an_edition_and_equal_bytes_are_stored_once(folder):
    card, home = make_card(folder, ["log.csv"]), folder / "home"
    first, second = ingest(card, home), ingest(card, home)
    assert (first.number, second.number, first.same_as, second.same_as) == (1, 2, None, 1)
    assert first.data_digest == second.data_digest and first.quarantined == second.quarantined
    assert [p.stat().st_nlink for p in second.folder.iterdir() if p.suffix == ".parquet"] == [2] * 3
    assert ingest(make_card(folder, ["log.csv"], domain={"horizon": 2}), home).number == 3
    (folder / "log.csv").write_text(TEXT + "w,1,0,x,0,1\n", encoding="utf-8")
    fourth = ingest(card, home)
    assert (fourth.number, fourth.same_as) == (4, None)
    # what the first was purged of is still whole in the second
    shutil.rmtree(first.folder)
    assert problems(folder) == [None] * 3 and len(canonical(second)) == 2


def test_damaged_bytes_are_not_shared_but_made_anew(folder):
    card = make_card(folder, ["log.csv"])
    first = ingest(card, folder / "home")
    whole = first.part_files[0].read_bytes()
    first.part_files[0].write_bytes(whole[:-1] + b"?")
    for file in first.folder.glob("quarantine-*.parquet"):
        file.write_bytes(file.read_bytes()[:40])
    second = ingest(card, folder / "home")
    assert second.part_files[0].read_bytes() == whole and len(quarantine(second.folder)) == 2
    assert second.set_aside == first.set_aside
    broken, whole_again = problems(folder)
    assert broken is not None and whole_again is None


def test_a_night_has_one_edition_and_that_before_it_where_nothing_can_be_read(folder):
    card, store, night = make_card(folder, ["log.csv"]), folder / "store", date(2026, 1, 1)
    (folder / "log.csv").unlink()
    with pytest.raises(CardError):
        ingest_night(card, store, night=night)
    (folder / "log.csv").write_text(TEXT, encoding="utf-8")
    first = ingest_night(card, store, night=night)
    (folder / "log.csv").write_text(TEXT + "w,1,0,x,0,1\n", encoding="utf-8")
    assert ingest_night(card, store, night=night) == first == load(first.folder)
    (folder / "log.csv").unlink()
    second = ingest_night(card, store, night=date(2026, 1, 2))
    assert (second.number, second.night, second.data_digest) == (2, "2026-01-02", first.data_digest)
    with pytest.raises(LogError, match="nothing matches"):
        check_delivery(card, second)
    with pytest.raises(CardError):
        ingest_night(card, store)


def test_a_tightened_tolerance_holds_for_an_edition_of_the_same_rows(folder):
    assert ingest(make_card(folder, ["log.csv"]), folder / "home").problem is None
    tight = make_card(folder, ["log.csv"], tolerance={"reward_off_lattice": 0.1})
    told = ingest(tight, folder / "home")
    assert told.same_as == 1 and "reward_off_lattice" in told.problem and "log.csv, line 3;" in told.problem


def test_the_manifest_tells_what_was_read_and_what_became_of_it(folder):
    told = ingest(make_card(folder, ["log.csv"]), folder / "home")
    assert told.quarantined == {"malformed_line": 1, "reward_off_lattice": 1}
    assert (told.source_rows, told.rows, told.users, told.episodes, told.partitions) == (3, 2, 2, 2, 1)
    assert len(canonical(told)) == 2
    group = pq.ParquetFile(told.part_files[0]).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    for needed in ("step", "state", "action", "reward", "next_state"):
        assert "RLE_DICTIONARY" in columns[needed].encodings and columns[needed].compression == "ZSTD", needed
    assert told.domain_hash == make_card(folder, ["log.csv"]).domain_hash()


def _manifest(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Edition], object]:
    def spoil(made: Edition) -> None:
        manifest = made.folder / "manifest.json"
        manifest.write_text(json.dumps(change(json.loads(manifest.read_text(encoding="utf-8")))), encoding="utf-8")

    return spoil


def _of_before(told: dict[str, Any]) -> dict[str, Any]:
    """Without the digest of itself, as the manifests of before."""
    return {k: v for k, v in told.items() if k != "sha256"}


MANIFEST = "missing or damaged"
SPOILT: list[tuple[str, Callable[[Edition], object]]] = [
    *((MANIFEST, lambda made, t=t: (made.folder / "manifest.json").write_text(t)) for t in ("", "{", "[]", "{}")),
    (MANIFEST, lambda made: (made.folder / "manifest.json").write_text('{"schema_version": 1}')),
    (MANIFEST, lambda made: (made.folder / "manifest.json").unlink()),
    (MANIFEST, _manifest(lambda told: _of_before(told) | {"rows": "2"})),
    (MANIFEST, _manifest(lambda told: _of_before(told) | {"rows": True})),
    (MANIFEST, _manifest(lambda told: _of_before(told) | {"quarantined": {"malformed_line": 1.5}})),
    # the gate counts people by it: what it says once decided a run, and was copied to the next edition
    (MANIFEST, _manifest(lambda told: told | {"set_aside": {"reward_off_lattice": 9}})),
    ("part-0000.parquet cannot be read", lambda made: made.part_files[0].unlink()),
]


@pytest.mark.parametrize(("says", "spoil"), SPOILT)
def test_what_is_damaged_says_so_and_is_not_repeated(folder, says, spoil):
    card = make_card(folder, ["log.csv"])
    first = ingest(card, folder / "home")
    spoil(first)
    [problem] = problems(folder)
    assert problem is not None and says in problem
    assert ingest(card, folder / "home").set_aside == first.set_aside


def test_a_manifest_of_before_has_no_digest_of_itself(folder):
    made = ingest(make_card(folder, ["log.csv"]), folder / "home")
    _manifest(_of_before)(made)
    assert problems(folder) == [None]


def test_progress_reaches_the_number_of_rows_twice(folder):
    seen: list[tuple[int, int | None]] = []
    heard = Resources(progress=lambda done, total: seen.append((done, total)))
    ingest_night(make_card(folder, ["log.csv"]), folder / "store", resources=heard)
    assert seen == [(3, None), (3, 3)]


@pytest.mark.parametrize("partitions", [0, 2049])
def test_a_partition_count_out_of_range_is_the_programmers_fault(folder, partitions):
    with pytest.raises(ValueError, match="partitions must be 1 to "):
        ingest_night(make_card(folder, ["log.csv"]), folder / "store", partitions=partitions)


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
def mother():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", MOTHER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as running:
        yield running
        assert running.stdin is not None
        running.stdin.close()


@pytest.fixture
def two_files(tmp_path):
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
            slow(*death)
            for death in (
                ("_read", 1, "before", 1),
                ("gather_nameless", 1, "after", 1),
                ("note_number", 1, "before", 1),
                ("end_edition", 2, "after", 2),
            )
        ),
    ],
)
def test_after_a_killed_ingest_the_next_begins_anew_and_ends_in_the_same_bytes(
    two_files, mother, name, nth, when, number
):
    assert mother.stdin is not None and mother.stdout is not None
    print(json.dumps([str(two_files), name, nth, when]), file=mother.stdin, flush=True)
    assert os.waitstatus_to_exitcode(int(mother.stdout.readline())) == -signal.SIGKILL
    work = two_files / "store" / "tiny" / ".ingest"
    if number == 1:
        assert stat.S_IMODE(work.stat().st_mode) == stat.S_IMODE((work / "built").stat().st_mode) == 0o700
        assert {stat.S_IMODE(p.stat().st_mode) for p in work.rglob("*") if p.is_file()} <= {0o600}
        assert snapshots(two_files / "store", "tiny") == []
    changed = shutil.copytree(two_files, two_files / "changed")
    (changed / "log-a.csv").write_text("user,episode,t,s,a,r\nz,1,0,x,0,1\n")
    assert ingest_night(make_card(changed, ["*.csv"]), changed / "store", partitions=PARTITIONS).number == number
    progress, card = list[tuple[int, int | None]](), make_card(two_files, ["*.csv"])
    heard = Resources(progress=lambda done, total: progress.append((done, total)))
    again = ingest_night(card, two_files / "store", partitions=PARTITIONS, resources=heard)
    assert again.number == number and (number == 2 or progress[-1] == (242, 242))
    other = ingest_night(card, two_files / "other", partitions=PARTITIONS)
    apart = {"manifest.json"} if number == 2 else set[str]()
    mine, new = ({n: c for n, c in files_of(s).items() if n not in apart} for s in (again, other))
    assert mine == new and not work.exists()


@pytest.mark.parametrize("night", [None, date(2024, 1, 1)])
def test_an_ingest_removes_what_is_left_of_dead_ones_and_of_their_sums_even_where_it_reads_nothing(two_files, night):
    store, card = two_files / "store", make_card(two_files, ["*.csv"])
    made = ingest_night(card, store, night=night)
    left = [made.folder / ".sums", made.folder / ".sums.partial", made.folder / ".sums.new"]
    for path in left:
        path.write_bytes(b"exact sums")
    (store / "tiny/.ingest/spilt-1").mkdir(parents=True)
    (store / "tiny/.ingest/spilt-1/spill-0000.arrow").write_bytes(b"rows")
    again = ingest_night(card, store, night=night)
    assert again.number == (2 if night is None else 1)
    assert not [p for p in left if p.exists()] and not (store / "tiny/.ingest").exists()


def test_an_ingest_that_is_interrupted_leaves_no_row(two_files):
    def stop(done: int, total: int | None) -> None:
        if (two_files / "store/tiny/.ingest/built/part-0000.parquet").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest_night(
            make_card(two_files, ["*.csv"]), two_files / "store", partitions=4, resources=Resources(progress=stop)
        )
    assert [p.name for p in (two_files / "store/tiny").iterdir()] == [".lock"]


def test_a_file_that_grows_while_it_is_read_is_refused(two_files):
    grown = two_files.joinpath("log-a.csv").read_text() + "z,1,0,x,0,1\n"

    def grow(done: int, total: int | None) -> None:
        (two_files / "log-a.csv").write_text(grown, encoding="utf-8")

    with pytest.raises(LogError, match="a file changed while it was read"):
        ingest_night(make_card(two_files, ["*.csv"]), two_files / "store", resources=Resources(progress=grow))
    assert [p.name for p in (two_files / "store/tiny").iterdir()] == [".lock"]


def test_a_number_is_never_given_twice(two_files):
    store, card = two_files / "store", make_card(two_files, ["*.csv"])
    first = ingest(card, two_files)
    shutil.rmtree(first.folder)
    assert (first.number, ingest(card, two_files).number) == (1, 2)
    shutil.rmtree(store / "tiny")
    third = ingest(card, two_files)
    assert third.number == 3 and third.data_digest == first.data_digest
    shutil.rmtree(third.folder)
    (note := store / ".last-snapshot-tiny").write_text("one")
    with pytest.raises(LogError, match="write the highest snapshot number ever given"):
        ingest(card, two_files)
    note.unlink()
    assert ingest(card, two_files).number == 1


@pytest.mark.slow
def test_a_second_ingest_waits_for_the_first_and_shares_its_bytes(two_files):
    store, card = two_files / "store", make_card(two_files, ["*.csv"])
    first = ingest_night(card, store)
    told, found, waits = list[str](), list[Snapshot](), threading.Event()

    def say(message: str) -> None:
        told.append(message)
        waits.set()

    with open_private(store / "tiny" / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=lambda: found.append(ingest_night(card, store, resources=Resources(say=say))))
        second.start()
        assert waits.wait(60)
        assert found == []
    second.join(60)
    assert told == ["another ingest of tiny is running; waiting for it to end"]
    assert [s.number for s in found] == [2] and files_of(found[0]).keys() == files_of(first).keys()
    assert all(a.samefile(b) for a, b in zip(first.part_files, found[0].part_files, strict=True))


LINES = [",".join(HEAD), *(f"u{i},1,{t},{'xy'[i % 2]},{i % 2},0.5" for i in range(20) for t in range(3))]


def test_files_copied_from_another_file_system_give_the_same_snapshot(tmp_path):
    remote, source, text = fsspec.filesystem("memory"), "/bucket/logs", ("\n".join(LINES) + "\n").encode()
    remote.makedirs(source, exist_ok=True)
    remote = fs.PyFileSystem(fs.FSSpecHandler(remote))
    with remote.open_output_stream(f"{source}/log.csv") as out:
        out.write(text)
    (tmp_path / "plain.csv").write_bytes(text)
    (tmp_path / "logs").mkdir()
    to = str(tmp_path / "logs")
    fs.copy_files(source, to, source_filesystem=remote, destination_filesystem=fs.LocalFileSystem())
    copied = ingest(make_card(tmp_path, ["logs/*.csv"]), tmp_path / "home")
    plain = ingest(make_card(tmp_path, ["plain.csv"]), tmp_path / "other")
    assert copied.rows == 60 and copied.data_digest == plain.data_digest


def test_a_url_is_no_path_of_a_card(tmp_path):
    with pytest.raises((CardError, ValueError)):
        ingest(make_card(tmp_path, ["s3://bucket/logs/*.csv"]), tmp_path / "home")


COUNT = """
import sys
from pathlib import Path
from pipeline.declaration.card import load_any_card
from pipeline.logs.ingest import count_people
print(count_people(Path(sys.argv[1]), load_any_card(sys.argv[2])))
"""
BARE = """
import sys
import polars as pl
pl.scan_parquet(sys.argv[1] + "/*.parquet").unique().collect(engine="streaming")
"""


@pytest.mark.parametrize(
    ("code", "spills"),
    [(COUNT, False), (f"import polars{COUNT}", False), (BARE, True)],
    ids=["ours", "ours after polars", "polars alone"],
)
def test_what_memory_does_not_hold_is_not_written_beside_the_store(tmp_path, code, spills):
    """No purge empties such a folder; with a budget of a few megabytes, as on a machine that has no more left."""
    n = 600_000
    source = pl.struct(customer=pl.format("person-{}", pl.int_range(n)), mood=pl.lit("odd"))
    rows = pl.select(rule=pl.lit("unknown_label"), source=source)
    rows.write_parquet(tmp_path / "quarantine-0000.parquet", row_group_size=50_000)
    card, spilt = lay_out(tmp_path / "shop", log=[]) / "card.toml", tmp_path / "spill"
    short = {"POLARS_OOC_MEMORY_BUDGET_MB": "4", "POLARS_OOC_SPILL_MIN_BYTES": "1", "POLARS_OOC_SPILL_DIR": str(spilt)}
    command = [sys.executable, "-c", code, str(tmp_path), str(card)]
    told = subprocess.run(command, env={**os.environ, **short}, capture_output=True, text=True, check=True)
    assert spilt.exists() is spills, told.stderr
    assert spills or told.stdout.strip() == f"{{'unknown_label': {n}}}"
