"""The disk that loses power: what is forced to it stays, what is not may go, and a sync that is left out is missed."""

from __future__ import annotations

import pickle
import shutil
import sqlite3
from pathlib import Path
from random import Random

import pytest

from tests.disk import FaultyDisk, Operation
from tests.power import History, Tree, lay_down
from tests.sqlite_writes import SqliteWrites
from tests.test_disk import WORK, begun, inside


def recorded(name: str, folder: Path) -> list[Operation]:
    """What a piece of work did; its folder is as it was before."""
    kept = folder.with_suffix(".kept")

    def call() -> None:
        disk = FaultyDisk()
        disk.install()
        WORK[name](folder)
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
