"""Power cuts: every prefix of what each verb writes, with what was not forced to disk dropped, torn or reordered.

``python -P -m tests.campaigns.power_cuts`` rewrites ``results/power_cuts.json`` and ``docs/lab/power_cuts.md``.

Registration, ingest, a run, a run published again, a promotion, a purge and a night are recorded once, each write, sync
and renaming of theirs and of SQLite's.  Each state that a power cut may leave (``tests/power.py``) is laid down; the
promises are checked; the verb is called again, must end right, and they are checked again.  Then every sync is taken
out, one place of the code at a time: some state must now break a promise, or the sync is listed as unneeded, with why.
``--verb NAME`` does one verb and keeps the others' results; ``--sample N`` tries N states of each and writes nothing.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipeline.declaration.toml import DamagedError
from pipeline.ledger.chain import BudgetError, NoLedgerError
from pipeline.ledger.ledger import Ledger
from pipeline.logs.store import check_parts, load, numbers, snapshot_folder
from pipeline.privacy.release_file import sha256_file
from tests.campaigns.crash_world import child, witness_draws
from tests.campaigns.night_crashes import World as Nights
from tests.campaigns.verbs import Shop, told
from tests.disk import FaultyDisk, Operation
from tests.power import History, Tree, digest, lay_down
from tests.sqlite_writes import SqliteWrites

RESULTS = Path(__file__).resolve().parent / "results" / "power_cuts.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "lab" / "power_cuts.md"
# what may come back or be gone without harm: locks, and what a verb wrote beside and had finished with
_BESIDE = (".lock", ".releasing", ".partial", ".ingest", ".edition", ".attempt-", ".purging-", "steps", "witness")


class Recorder(FaultyDisk):
    """Writes down what succeeded, SQLite's writes too, who asked for each sync, and when noise was drawn.

    Parameters
    ----------
    witness
        The file in which whoever draws says so first.
    """

    def __init__(self, witness: Path) -> None:
        super().__init__()
        self.witness, self.done, self.drawn = witness, list[Operation](), list[int]()

    def install(self) -> None:
        """Take the disk's place, and SQLite's."""
        super().install()
        # kept: SQLite holds no reference of its own
        self.sqlite = SqliteWrites(self._do)

    def _do(self, operation: Operation, work: Callable[[], Any], half: Callable[[], object] | None = None) -> Any:
        drawn, found = len(lines_of(self.witness)), work()
        if not (operation.kind == "swap" and found is False):
            by = asked_by(operation) if operation.kind == "sync" else ""
            self.done.append(replace(operation, by=by))
            self.drawn.append(drawn)
        return found


def lines_of(witness: Path) -> list[str]:
    """What those said who drew noise."""
    return witness.read_text().splitlines() if witness.exists() else []


def asked_by(o: Operation) -> str:
    """Which place of the code asks for a sync: the function that forces, and whoever called it."""
    if o.to:
        return f"SQLite: {o.to}"
    kind, helper, frame = "folder" if Path(o.path).is_dir() else "file", "", sys._getframe(1)
    while frame is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module == "pipeline.files":
            # of nested helpers the outermost says what is written
            helper = f", {name}"
        elif module.startswith(("pipeline.", "flows.")):
            line = frame.f_lineno - frame.f_code.co_firstlineno
            return f"{kind}{helper} < {module.removeprefix('pipeline.')}.{name}:{line}"
        frame = frame.f_back
    return kind


@dataclass(frozen=True)
class Recorded:
    """What a verb wrote, in order, how often noise was drawn before each, who drew, and what is there in the end."""

    operations: list[Operation]
    drawn: list[int]
    draws: list[str]
    end: Tree


class Bench:
    """One verb on one world: how it is put back, called, and what must hold.

    Parameters
    ----------
    name, root, witness
        Of the verb, the folder whose files are watched, and the file in which whoever draws says so.
    restore, work
        Back to the state before the verb; and the verb.
    ledger
        Of the world, as it is now.
    broken, store
        Promises that do not hold, in words, given whether the verb has ended right; and the operator's store.
    """

    def __init__(self, name: str, root: Path, restore: Callable[[], None], work: Callable[[], object],
                 ledger: Callable[[], Ledger], broken: Callable[[bool], list[str]], home: Path) -> None:  # fmt: skip
        self.name, self.root, self.witness = name, root, root / "witness"
        self.restore, self.work, self.ledger, self.broken = restore, work, ledger, broken
        self.home = home
        self._known: dict[Any, list[str]] = {}

    def record(self) -> Recorded:
        """The verb, once, on a disk that writes everything down."""
        kept = self.root.parent / "recorded"

        def inside() -> None:
            recorder = Recorder(self.witness)
            recorder.install()
            self.work()
            kept.write_bytes(pickle.dumps((recorder.done, [*recorder.drawn, len(lines_of(self.witness))])))

        self.restore()
        assert child(inside, told) == 0
        return Recorded(*pickle.loads(kept.read_bytes()), lines_of(self.witness), History(self.root, ()).tree(0))

    def judge(self, tree: Tree, draws: Sequence[str], seen: frozenset[str]) -> list[str]:
        """Promises that a state breaks, at once or after the verb was called again.

        Parameters
        ----------
        tree, draws, seen
            What is on disk, who had drawn noise, and the digests of the releases that people could read.
        """
        key = (digest(tree), len(draws), seen)
        if key not in self._known:
            lay_down(tree, self.root)
            self.witness.write_text("".join(f"{line}\n" for line in draws))
            self._known[key] = self._judged(seen)
        return self._known[key]

    def _judged(self, seen: frozenset[str]) -> list[str]:
        found = list[str]()
        try:
            found += [*self._sound(seen), *self.broken(False)]
            if again := child(self.work, told):
                return [*found, f"the next call ended with {again}"]
            return [*found, *self._sound(seen), *self.broken(True)]
        except BudgetError as e:
            return [*found, str(e).replace(str(self.root), "…")]

    def _sound(self, seen: frozenset[str]) -> list[str]:
        """Of what is committed nothing is lost, and of what is kept nothing is half there."""
        found = list[str]()
        try:
            entries = self.ledger().entries()
        except NoLedgerError:
            return [] if self.name == "register" else ["the ledger is gone"]
        commits = [e for e in entries if e.kind == "COMMIT"]
        for e in commits:
            kept = self.home / "store" / e.lineage / "releases" / e.body["run_key"][:24] / "release.parquet"
            if not kept.exists() or sha256_file(kept) != e.body["release_sha256"]:
                found.append("a committed release is lost")
        if not seen <= {e.body["release_sha256"] for e in commits}:
            found.append("what people read is not committed")
        store = self.home / "store"
        if not all(sound(store, number) for number in numbers(store, "shop")):
            found.append("a snapshot is not what ingest wrote")
        return found


def sound(store: Path, number: int) -> bool:
    """Whether a snapshot is what ingest wrote."""
    try:
        check_parts(load(snapshot_folder(store / "shop", number)))
    except DamagedError:
        return False
    return True


def readable(tree: Tree) -> frozenset[str]:
    """Digests of the releases in published folders."""
    found = set[str]()
    for path, (_, what) in tree.items():
        parts = Path(path).parts
        if len(parts) == 4 and parts[1] == "runs" and parts[3] == "release.parquet" and not parts[2].startswith("."):
            assert isinstance(what, bytes)
            found.add(hashlib.sha256(what).hexdigest())
    return frozenset(found)


def states(history: History, recorded: Recorded) -> Iterator[tuple[int, Tree, int, frozenset[str]]]:
    """Every state that a cut may leave, once: the operation before which it is cut, and what is known by then."""
    random, met = Random(0), set[Any]()
    for upto in range(len(recorded.operations) + 1):
        drawn, seen = recorded.drawn[upto], readable(history.tree(upto))
        for tree in history.cuts(upto, random):
            if (key := (digest(tree), drawn, seen)) not in met:
                met.add(key)
                yield upto, tree, drawn, seen


def taken_back(history: History, end: int) -> list[str]:
    """What a verb had done, and a power cut after its end undoes."""
    return differing(history.tree(end), history.tree(end, frozenset(history.pending(end))))


def differing(one: Tree, other: Tree) -> list[str]:
    """Paths at which two trees differ, but for what is written beside."""
    paths = sorted(p for p in {*one, *other} if one.get(p, (0, 0))[1] != other.get(p, (0, 0))[1])
    return [p for p in paths if not any(mark in p for mark in _BESIDE)]


def benches(folder: Path, patch: pytest.MonkeyPatch, wanted: str | None) -> Iterator[Bench]:
    """Every verb, or the one that is wanted."""
    if wanted != "night":
        shop = Shop(folder / "shop")
        world = shop.world
        for verb, (start, work) in shop.verbs().items():
            if wanted in (None, verb):

                def begun(start: str = start) -> None:
                    world.restore(start)

                def called(work: Callable[[], object] = work) -> None:
                    shop.canned()
                    work()

                def broken(settled: bool, verb: str = verb) -> list[str]:
                    return shop.broken(verb, settled)

                yield Bench(verb, world.now, begun, called, world.ledger, broken, world.home.root)
    if wanted in (None, "night"):
        nights = Nights(folder / "nights", patch, "tree")

        def night() -> None:
            witness_draws(nights.folder / "now" / "witness", "drawn")
            nights.shop.append(3)

        yield Bench("night", nights.folder / "now", nights.restore, night, lambda: nights.shop.ledger,
                    lambda settled: nights.settled() if settled else nights.broken(),
                    nights.shop.home.root)  # fmt: skip


def trial(bench: Bench, sample: int | None) -> dict[str, Any]:
    """A verb, with all its syncs, and with each place's syncs taken out: a row of the table, and those of its syncs."""
    bench.restore()
    recorded = bench.record()
    bench.restore()
    history = History(bench.root, recorded.operations)
    if missed := differing(history.tree(len(recorded.operations)), recorded.end):
        raise AssertionError(f"not everything passes the disk: {missed}")
    syncs = dict[str, list[int]]()
    for number, o in enumerate(recorded.operations):
        if o.kind == "sync":
            syncs.setdefault(o.by, []).append(number)
    told = tried(bench, history, recorded, sample)
    print(json.dumps({"verb": bench.name, **told}), file=sys.stderr, flush=True)
    without = list[dict[str, Any]]()
    for place, taken in syncs.items():
        bench.restore()
        less = History(bench.root, recorded.operations, frozenset(taken))
        row = {
            "verb": bench.name,
            "sync": place,
            "times": len(taken),
            **tried(bench, less, recorded, sample, first=True),
        }
        without.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    counts = {"operations": len(recorded.operations), "syncs": sum(map(len, syncs.values()))}
    return {"verb": bench.name, **counts, **told, "without": without}


def tried(
    bench: Bench, history: History, recorded: Recorded, sample: int | None, *, first: bool = False
) -> dict[str, Any]:
    """Lay down every state, or a sample; at the ``first`` broken promise no more."""
    broken, number, end = list[str](), 0, len(recorded.operations)
    if lost := taken_back(history, end):
        broken.append(f"after its end: taken back: {', '.join(lost[:3])}")
    found = list(states(history, recorded)) if not (first and broken) else []
    for upto, tree, drawn, seen in found if sample is None else Random(1).sample(found, min(sample, len(found))):
        number += 1
        if problems := bench.judge(tree, recorded.draws[:drawn], seen):
            last = recorded.operations[upto - 1]
            broken.append(f"after {last.kind} {Path(last.path).name}: {'; '.join(dict.fromkeys(problems))}")
            if first:
                break
    return {"states": number, "violations": len(broken), "first": broken[:3]}


def main(wanted: str | None, sample: int | None) -> int:
    """Run the campaign, print and keep its result; 1 where a promise was broken."""
    with tempfile.TemporaryDirectory(prefix="reticent-power-") as folder, pytest.MonkeyPatch.context() as patch:
        rows = [trial(bench, sample) for bench in benches(Path(folder), patch, wanted)]
    if sample is None:
        before = json.loads(RESULTS.read_text())["verbs"] if wanted is not None else []
        kept = {row["verb"]: row for row in [*before, *rows]}
        result = {
            "command": "python -P -m tests.campaigns.power_cuts",
            "date": datetime.now(UTC).date().isoformat(),
            "states": sum(row["states"] for row in kept.values()),
            "violations": sum(row["violations"] for row in kept.values()),
            "verbs": list(kept.values()),
        }
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps([{k: v for k, v in row.items() if k != "without"} for row in rows]))
    return int(any(row["violations"] for row in rows))


def _asked(flag: str) -> str | None:
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else None


if __name__ == "__main__":
    number = _asked("--sample")
    sys.exit(main(_asked("--verb"), None if number is None else int(number)))
