"""An ingest on several processes, here or on Dask's workers, is that of one process to the last byte."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.declaration.card import AnyCard
from pipeline.declaration.code import code_digest
from pipeline.logs.elsewhere import FileTask, Here, OnDask, OnProcesses, Seen, Trouble, attempt
from pipeline.logs.ingest import ingest
from pipeline.logs.sources import Sources
from pipeline.logs.spills import likely_processes
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from reticent import LogError
from tests.logs.conftest import make_card, quarantine
from tests.logs.dask_cluster import dask_cluster
from tests.logs.layouts import WRITERS, card_of, cards
from tests.logs.test_one_persons_bytes import FORMATS, GOOD, NASTY
from tests.logs.test_store import files_of

ROOT = Path(__file__).parents[2]
BROKEN = (
    "-inf,1,0,x,0,inf",
    "-late,1,2,x,0,1",
    "-far,1,0,x,0,7",
    "-off,1,0,x,0,.3",
    "-long,1,5,x,0,1",
    *(f"-cap,{e},0,x,0,1" for e in range(9)),
)


@dataclass(frozen=True)
class Elsewhere:
    """Claims: every third person is counted in another lineage."""

    since: int = 7
    apart: Sequence[str] = ("other",)

    def claim(self, people: Sequence[Sequence[str]]) -> Sequence[str | None]:
        return [None if texts[0].endswith("3") else texts[0] for texts in people]


@dataclass(frozen=True)
class Backwards(Here):
    """Whoever was asked last answers first."""

    together: int = 2

    def each(self, tasks: Iterable[Any], seen: Seen) -> Iterator[tuple[Any, Any]]:
        yield from reversed(list(super().each(tasks, seen)))


@pytest.fixture(scope="module")
def crew():
    with OnProcesses(2) as running:
        yield running


def write_tables(folder: Path) -> AnyCard:
    """Clean people in CSV, and in each format people with cells that are none."""
    rng = random.Random(1)
    for part in "ab":
        lines = [f"{part}{i},1,{t},{'xy?'[i % 3]},{i % 2},{t / 2}" for i in range(60) for t in range(3)]
        broken = [*(f"{part}{row}" for row in BROKEN), "short,line", ",1,0,x,0,1"]
        text = "\n".join(["user,episode,t,s,a,r", *lines, *broken, ""])
        (folder / f"log-{part}.csv").write_text(text, encoding="utf-8")
    for i, form in enumerate(FORMATS):
        odd = [[rng.choice([b"odd", None, b"\xff"]), *GOOD[1:]] for _ in range(4)]
        for row in odd:
            row[rng.randrange(1, len(row))] = rng.choice(NASTY)
        (folder / f"odd-{i}{Path(form.name).suffix}").write_bytes(form.write(odd))
    return make_card(folder, ["*.csv", "*.ndjson", "*.parquet", "*.arrow", "*.arrows"])


def write_layout(head: str, folder: Path) -> AnyCard:
    WRITERS[head](folder)
    return card_of(cards()[head], folder)


CORPUS: dict[str, Callable[[Path], AnyCard]] = {"tables": write_tables} | {
    head: (lambda folder, head=head: write_layout(head, folder)) for head in WRITERS
}


@pytest.mark.parametrize(
    ("what", "claims"),
    [
        ("tables", Elsewhere()),
        *(pytest.param(what, None, marks=() if what == "MEDS" else pytest.mark.slow) for what in CORPUS),
    ],
)
def test_the_corpus_is_the_same_to_the_byte_whoever_reads_it(what, claims, crew, tmp_path):
    card = CORPUS[what](tmp_path)

    def made(store: str, elsewhere: Any) -> Snapshot:
        return ingest(card, tmp_path / store, partitions=2, claims=claims, resources=Resources(elsewhere=elsewhere))

    alone = made("alone", Here())
    assert alone.rows > 0 and (what != "tables" or len(quarantine(alone.folder)["rule"].unique()) > 5)
    for store, elsewhere in (("several", crew), ("backwards", Backwards())):
        other = made(store, elsewhere)
        assert files_of(other) == files_of(alone)
        assert not (tmp_path / store / card.name / ".ingest").exists()


def test_an_error_is_the_one_of_a_single_process(crew, tmp_path):
    card = write_tables(tmp_path)
    (tmp_path / "odd-2.parquet").write_bytes((tmp_path / "odd-2.parquet").read_bytes()[:-200] + b"\0" * 192 + b"PAR1")
    told = list[str]()
    for elsewhere in (Here(), crew):
        with pytest.raises(LogError) as refused:
            ingest(card, tmp_path / "store", resources=Resources(elsewhere=elsewhere))
        told.append(str(refused.value))
    assert told[0] == told[1]


@dataclass(frozen=True)
class Mortal:
    """A task over which its process dies, once or whenever it is done."""

    task: Any
    marker: Path | None

    @property
    def files(self) -> Sequence[Path]:
        return self.task.files

    @property
    def named(self) -> str:
        return self.task.named

    def __call__(self, seen: Seen) -> Any:
        if self.marker is None or not self.marker.exists():
            if self.marker is not None:
                self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.task(seen)


class Dying(OnProcesses):
    """Processes that die over some tasks; where a marker is named, once."""

    def __init__(self, over: dict[str, Path | None]) -> None:
        super().__init__(2)
        self.over = over

    def each(self, tasks: Iterable[Any], seen: Seen) -> Iterator[tuple[Any, Any]]:
        def chosen() -> Iterator[FileTask]:
            for task in tasks:
                over = next((name for name in self.over if name in task.named), None)
                yield task if over is None else Mortal(task, self.over[over])

        for task, result in super().each(chosen(), seen):
            yield (task.task if isinstance(task, Mortal) else task), result


@pytest.mark.slow
def test_killed_processes_change_no_byte_and_those_that_die_again_end_the_ingest(tmp_path):
    card, died = write_tables(tmp_path), tmp_path / "died"
    with Dying({"log-b.csv": died}) as dying:
        made = ingest(card, tmp_path / "store", partitions=2, resources=Resources(elsewhere=dying))
        assert died.exists()
        dying.over = {"partition 1": None}
        with pytest.raises(RuntimeError, match=r"partition 1: 2 processes .* -9.*mem"):
            ingest(card, tmp_path / "again", partitions=2, resources=Resources(elsewhere=dying))
    assert not (tmp_path / "again" / card.name / ".ingest").exists()
    alone = files_of(ingest(card, tmp_path / "other", partitions=2))
    assert files_of(made) == files_of(ingest(card, tmp_path / "again", partitions=2)) == alone


SCRIPT = """
import sys
from pathlib import Path
from pipeline.logs.ingest import ingest
from pipeline.logs.elsewhere import OnProcesses
from pipeline.logs.summing import Resources
from tests.logs.test_on_processes import write_tables
folder = Path(sys.argv[1])
with OnProcesses(2) as crew:
    print(ingest(write_tables(folder), folder / "store", resources=Resources(elsewhere=crew)).rows, flush=True)
    print(*[child.pid for child in crew._children.values()], flush=True)
    if sys.argv[2:]:
        import time
        time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_a_script_without_a_guard_may_ingest_and_leaves_no_process(killed, tmp_path):
    """Children do not run the script again, and end when it does, whatever ends it."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-P", str(script), str(tmp_path), *(["wait"] if killed else [])]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        rows, pids = process.stdout.readline(), [int(pid) for pid in process.stdout.readline().split()]
        if killed:
            process.kill()
        assert process.wait(60) == (-signal.SIGKILL if killed else 0)
    assert int(rows) > 0 and len(pids) == 2
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_as_many_processes_as_memory_holds_partitions_of(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    card, rows = make_card(tmp_path, ["log.csv"]), 10_000_000
    sources = Sources((), {}, {}, rows, rows)
    assert [likely_processes(card, sources, 11, gib << 30) for gib in (1, 2, 4, 64)] == [1, 2, 4, 5]
    # a small log is done before a process has begun
    assert [likely_processes(card, Sources((), {}, {}, n, n), 256, 64 << 30) for n in (1000, 3_000_000)] == [1, 1]


@pytest.mark.slow
@pytest.mark.service
def test_workers_of_dask_ingest_the_same_bytes_and_the_last_of_them_alone(tmp_path):
    card, made = write_tables(tmp_path), list[Snapshot]()
    with dask_cluster(tmp_path / "dask") as cluster:

        def kill(done: int, total: int | None) -> None:
            if made and cluster.workers[0].poll() is None:
                cluster.workers[0].kill()

        resources = Resources(progress=kill, elsewhere=OnDask(cluster.address))
        for store in ("both", "one"):
            made.append(ingest(card, tmp_path / store, partitions=5, resources=resources))
            assert (store == "one") == (cluster.workers[0].poll() is not None)
        logs = cluster.logs()
    alone = files_of(ingest(card, tmp_path / "other", partitions=5))
    assert [files_of(one) for one in made] == [alone] * 2
    assert "odd-" not in logs and "log-a" not in logs


@dataclass(frozen=True)
class Fails:
    """A task in which a library gives up, with a cell in what it says."""

    error: type[BaseException]
    files = ()
    named = "partition 3"

    def __call__(self, seen: Seen) -> Any:
        raise self.error("cannot cast 'patient-4711'")


@pytest.mark.parametrize("error", [ValueError, pl.exceptions.PanicException])
def test_what_a_library_raises_is_trouble_without_its_text(error):
    """A panic is no Exception, so it once went through, cell and all, to the logs of whoever asked."""
    assert attempt(Fails(error), (), code_digest()) == Trouble(error.__name__)
