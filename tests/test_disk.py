"""A disk that fails at any one operation leaves files and folders whole, and private ones are for their owner alone.

Of one that loses power: what is forced to it stays, what is not may go, and a sync that is left out is missed.
"""

import errno
import os
import pickle
import shutil
import signal
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from sqlalchemy.engine.default import DefaultDialect

from pipeline.files import DISK, Disk, remove_tree, share, whole_file, whole_folder, write_file, write_folder
from tests.disk import FAULTS, FaultyDisk, Operation
from tests.power import History, Tree, lay_down
from tests.sqlite_writes import SqliteWrites


def one_file(folder: Path) -> None:
    with whole_file(folder / "one") as fresh:
        write_file(fresh, "new")


OLD, NEW = dict.fromkeys(("a", "b", "gone"), "old"), dict.fromkeys(("a", "b", "fresh"), "new")
SWAPLESS = "a folder, on a disk that swaps no names"
WORK: dict[str, Callable[[Path], None]] = {
    "a file": one_file,
    "a folder": lambda folder: write_folder(folder / "run", NEW),
    SWAPLESS: lambda folder: write_folder(folder / "run", NEW),
    "a removal": lambda folder: remove_tree(folder / "run"),
}


def begun(folder: Path) -> Path:
    folder.mkdir()
    (folder / "one").write_text("old")
    (folder / "run").mkdir()
    for name, text in OLD.items():
        (folder / "run" / name).write_text(text)
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir()}


def inside(work: Callable[[], object]) -> int:
    """What a process of its own ends with: minus a signal, an errno, or 0."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except OSError as e:
            os._exit(e.errno or 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def here(work: Callable[[], object]) -> int:
    """What it ends with in this process, where nothing kills it: an errno, or 0; the disk is whole again afterwards."""
    kept, commit = dict(vars(DISK)), DefaultDialect.do_commit
    try:
        work()
        return 0
    except OSError as e:
        return e.errno or 1
    finally:
        vars(DISK).clear()
        vars(DISK).update(kept)
        DefaultDialect.do_commit = commit


def failing(disk: FaultyDisk, name: str, folder: Path) -> Callable[[], None]:
    def call() -> None:
        if name == SWAPLESS:
            disk._real.swap = lambda *_: False
        disk.install()
        WORK[name](folder)

    return call


def operations(name: str, folder: Path) -> list[str]:
    told = folder.with_suffix(".told")

    def note(operation: Operation) -> None:
        with told.open("a") as file:
            file.write(f"{operation.kind}\n")

    assert inside(failing(FaultyDisk(note=note), name, begun(folder))) == 0
    return told.read_text().split()


# a file whose making fails late is nobody's to close
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", WORK)
def test_whatever_fails_files_and_folders_are_whole_and_the_next_call_ends_right(tmp_path: Path, name: str) -> None:
    """Between two renames there once was no folder of that name: whoever was killed there had no run in use."""
    kinds = operations(name, whole := tmp_path / "count")
    assert not name.startswith("a folder") or texts(whole / "run") == NEW
    assert len(kinds) >= (3 if name == "a removal" else 6)
    ended: set[int] = set()
    for at, kind in enumerate(kinds):
        for fault in FAULTS if name != SWAPLESS else ("kill before",):
            folder = begun(tmp_path / f"{at}-{fault}")
            ended.add((inside if fault.startswith("kill") else here)(failing(FaultyDisk(at, fault), name, folder)))
            if name != "a removal":
                told = texts(folder / "run")
                apart = {"a", "b"} <= set(told) and set(told.values()) <= {"old", "new"}
                assert apart if name == SWAPLESS else told in (OLD, NEW), (kind, fault)
                assert (folder / "one").read_text() in ("old", "new"), (kind, fault)
            WORK[name](folder)
            assert not name.startswith("a folder") or texts(folder / "run") == NEW
            left = sorted(p.name for p in folder.iterdir())
            assert left == (["one"] if name == "a removal" else ["one", "run"]), (kind, fault)
    assert ended >= ({-signal.SIGKILL} if name == SWAPLESS else {-signal.SIGKILL, errno.EIO, errno.ENOSPC})


def test_every_operation_of_the_disk_can_fail() -> None:
    public = {name for name in vars(Disk) if not name.startswith("_")}
    assert public <= set(vars(FaultyDisk))


def test_what_is_written_down_can_be_played_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with (folder := begun(tmp_path / "first")).joinpath("told").open("wb"):
        file = disk.create(folder / "two", 0o600)
        file.write(b"abc")
        file.close()
        disk.sync(folder / "two")
        disk.move(folder / "two", folder / "three")
    found = [(o.kind, Path(o.path).name, o.data) for o in disk.operations]
    assert found == [("create", "two", b""), ("write", "two", b"abc"), ("sync", "two", b""), ("move", "two", b"")]
    assert Path(disk.operations[-1].to).read_bytes() == b"abc" and disk.operations[0].mode == 0o600


def test_a_file_and_a_list_of_names_are_forced_to_disk(tmp_path, monkeypatch):
    forced = []
    monkeypatch.setattr(os, "fsync", lambda handle: forced.append(os.fstat(handle).st_ino))
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path):
        Disk().sync(path)
    assert forced == [(tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino]


@pytest.mark.parametrize(("work", "written"), [("a file", [".one.partial"]), ("a folder", ["a", "b"])])
def test_what_gets_its_name_is_on_disk_before_and_the_name_after(tmp_path, work, written):
    folder, log = begun(tmp_path / "work"), tmp_path / "log"

    def call() -> None:
        disk = FaultyDisk()
        failing(disk, work, folder)()
        log.write_text("\n".join(f"{o.kind} {Path(o.path).name}" for o in disk.operations))

    assert inside(call) == 0
    done = log.read_text().splitlines()
    named = next(i for i, line in enumerate(done) if line.split()[0] in ("move", "swap"))
    assert {f"sync {name}" for name in written} <= set(done[:named])
    # the list of names of the folder above
    assert f"sync {folder.name}" in done[named:]


@pytest.mark.parametrize("fault", ["EIO late", "EIO", "ENOSPC"])
def test_a_second_name_that_fails_leaves_the_first_file_whole(tmp_path, fault):
    """The name may have come with the error: a copy over it emptied the file that both names lead to."""
    (tmp_path / "part").write_text("rows")

    def call() -> None:
        FaultyDisk(0, fault).install()
        share(tmp_path / "part", tmp_path / "other")

    assert inside(call) in (errno.EIO, errno.ENOSPC)
    assert (tmp_path / "part").read_text() == "rows"


def test_where_a_disk_knows_no_second_names_a_copy_is_made(tmp_path, monkeypatch):
    (tmp_path / "part").write_text("rows")

    def refused(path: Path, to: Path) -> None:
        raise OSError(errno.EPERM, "")

    monkeypatch.setattr(DISK, "link", refused)
    share(tmp_path / "part", tmp_path / "other")
    assert (tmp_path / "other").read_text() == "rows" and _mode(tmp_path / "other") == 0o600


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_private_folder_and_all_that_it_needs_are_for_the_owner_alone(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a" / "b" / "c", private=True) as partial:
        (partial / "inner").mkdir(mode=0o755)
        (partial / "inner" / "rows").write_text("x")
        (partial / "inner" / "rows").chmod(0o644)
    made = tmp_path / "a"
    assert [_mode(p) for p in (made, made / "b", made / "b" / "c", made / "b" / "c" / "inner")] == [0o700] * 4
    assert _mode(made / "b" / "c" / "inner" / "rows") == 0o600


def test_a_folder_that_was_there_keeps_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with whole_folder(tmp_path / "here", private=True):
        pass
    assert _mode(tmp_path) == 0o755 and _mode(tmp_path / "here") == 0o700


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "half") as partial:
        (partial / "some").write_text("x")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_a_link_to_a_folder_is_removed_and_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "people").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "people")
    remove_tree(tmp_path / "link")
    assert [p.name for p in tmp_path.iterdir()] == ["people"]


def recorded(name: str, folder: Path) -> list[Operation]:
    """What a piece of work did; its folder is as it was before."""
    kept = folder.with_suffix(".kept")

    def call() -> None:
        disk = FaultyDisk()
        failing(disk, name, folder)()
        kept.write_bytes(pickle.dumps(disk.done))

    begun(folder)
    assert inside(call) == 0
    shutil.rmtree(folder)
    begun(folder)
    return pickle.loads(kept.read_bytes())


def trees(history: History) -> list[Tree]:
    return [tree for upto in range(len(history.operations) + 1) for tree in history.cuts(upto, Random(0))]


def syncs(operations: list[Operation], folder: Path, *, of_folders: bool) -> frozenset[int]:
    return frozenset(i for i, o in enumerate(operations) if o.kind == "sync" and (Path(o.path) == folder) == of_folders)


@pytest.mark.parametrize(("work", "files"), [("a file", ["one"]), ("a folder", ["run/a", "run/b"])])
def test_all_files_are_the_old_or_the_new_ones_after_any_cut(tmp_path: Path, work: str, files: list[str]) -> None:
    history = History(tmp_path / "work", recorded(work, tmp_path / "work"))
    found = {tuple(tree[name][1] for name in files) for tree in trees(history)}
    assert found == {(b"old",) * len(files), (b"new",) * len(files)}


def test_a_twin_that_does_not_force_what_it_wrote_is_caught(tmp_path: Path) -> None:
    operations = recorded("a file", tmp_path / "work")
    without = syncs(operations, tmp_path / "work", of_folders=False)
    found = {tree["one"][1] for tree in trees(History(tmp_path / "work", operations, without))}
    assert len(without) == 1 and b"" in found


def test_a_twin_that_does_not_force_the_name_is_caught(tmp_path: Path) -> None:
    operations = recorded("a file", tmp_path / "work")
    end = len(operations)
    for without, left in ((frozenset[int](), b"new"), (syncs(operations, tmp_path / "work", of_folders=True), b"old")):
        history = History(tmp_path / "work", operations, without)
        assert history.tree(end, frozenset(history.pending(end)))["one"][1] == left


def test_what_is_recorded_ends_as_the_work_ended(tmp_path: Path) -> None:
    for name, work in WORK.items():
        folder = tmp_path / name.replace(" ", "-")
        history = History(folder, recorded(name, folder))
        told = {k: v[1] for k, v in history.tree(len(history.operations)).items()}
        work(folder)
        assert told == {k: v[1] for k, v in History(folder, ()).tree(0).items()}


def entered(folder: Path, kept: Path) -> None:
    """An entry more, in a database whose writes are told."""
    done: list[Operation] = []

    def do(operation: Operation, work):
        found = work()
        done.append(operation)
        return found

    told = SqliteWrites(do)
    book = sqlite3.connect(folder / "ledger.db")
    book.execute("pragma synchronous=extra")
    with book:
        book.execute("insert into entries values (zeroblob(5000))")
    kept.write_bytes(pickle.dumps(done))
    del told


@pytest.mark.parametrize("without", [None, "journal", "journal there", "database", "journal gone"])
def test_a_database_is_whole_after_any_cut_and_each_of_its_syncs_is_needed(tmp_path: Path, without: str | None) -> None:
    folder, kept = tmp_path / "work", tmp_path / "kept"
    folder.mkdir()
    book = sqlite3.connect(folder / "ledger.db")
    with book:
        book.execute("create table entries (body)")
        book.executemany("insert into entries values (zeroblob(3000))", [()] * 4)
    book.close()
    shutil.copytree(folder, tmp_path / "before")
    assert inside(lambda: entered(folder, kept)) == 0
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "before", folder)
    operations: list[Operation] = pickle.loads(kept.read_bytes())
    taken = frozenset(i for i, o in enumerate(operations) if o.kind == "sync" and o.to == without)
    history, found = History(folder, operations, taken), set[object]()
    for upto in range(len(operations) + 1):
        for tree in history.cuts(upto, Random(0)):
            lay_down(tree, folder)
            found.add((rows(folder), upto == len(operations)))
    whole = {(4, False), (5, False), (5, True)}
    assert (found <= whole) == (without is None), found


def rows(folder: Path) -> object:
    book = sqlite3.connect(folder / "ledger.db")
    try:
        sound = book.execute("pragma integrity_check").fetchone()[0]
        return book.execute("select count(*) from entries").fetchone()[0] if sound == "ok" else sound[:20]
    except sqlite3.DatabaseError as e:
        return type(e).__name__
    finally:
        book.close()
