"""Power cuts: every prefix of what each verb writes, with what was not forced to disk dropped, torn or reordered.

``python -P -m tests.campaigns.power_cuts`` rewrites ``results/power_cuts.csv``; ``make figures`` its page.

Registration, ingest, a run, a run published again, a promotion, a purge and a night, the first ingest and the first
night too, are recorded once: each write, sync and renaming of theirs and of SQLite's.  Each state that a power cut may
leave (``tests/power.py``) is laid down; the promises are checked; the verb is called again, must end right, and they
are checked again.  Then every sync is taken out, one place of the code at a time: some state of at most 300 drawn ones
must now break a promise, or the sync is listed as unneeded, with why (``syncs.toml``).
"""

import hashlib
import json
import pickle
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from flows.jobs.intake import ingest_job
from flows.jobs.registration import register_job
from pipeline.declaration.toml import DamagedError
from pipeline.ledger.chain import BudgetError, NoLedgerError
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.people import key_file
from pipeline.ledger.steps import committed_steps
from pipeline.logs.store import check_parts, load, numbers, snapshot_folder
from pipeline.privacy.release_file import sha256_file
from tests.campaigns.crash_world import Shop, child, told, witness_draws
from tests.campaigns.night_crashes import World as Nights
from tests.campaigns.resumed import Case, resumed
from tests.campaigns.rows import Row, read, write
from tests.disk import FaultyDisk, Operation
from tests.flows.nights import customers
from tests.power import History, Tree, digest, lay_down
from tests.sqlite_writes import SqliteWrites

NAME, ALL = "power_cuts", "nothing"
# reasons are prose: they expire no row
REASONS = tomllib.loads(Path(__file__).with_name("syncs.toml").read_text(encoding="utf-8"))
# states without some syncs: where a promise breaks, it broke within the first 112
_WITHOUT = 300
# what may come back or be gone without harm: locks, and what a verb wrote beside and had finished with
_BESIDE = (".lock", ".partial", ".ingest", ".edition", ".attempt-", "steps", "witness")


class Recorder(FaultyDisk):
    """Writes down what succeeded, SQLite's writes too, who asked for each sync, and when noise was drawn.

    ``witness``: the file in which whoever draws says so first.
    """

    def __init__(self, witness: Path) -> None:
        super().__init__()
        self.witness, self.drawn = witness, list[int]()

    def install(self) -> None:
        """Take the disk's place, and SQLite's."""
        super().install()
        # kept: SQLite holds no reference of its own
        self.sqlite = SqliteWrites(self._do)

    def _do(self, operation: Operation, work: Callable[[], Any], half: Callable[[], object] | None = None) -> Any:
        drawn = len(lines_of(self.witness))
        by = asked_by(operation) if operation.kind == "sync" else ""
        found = super()._do(replace(operation, by=by), work, half)
        # a commit holds writes of its own, which are counted by now
        self.drawn += [drawn] * (len(self.done) - len(self.drawn))
        return found


class FirstIngest(Shop):
    """The shop's verbs, and the ingest that finds neither a store nor the key by which the ledger knows people."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.restore("registered")
        assert child(self._begin) == 0
        self.keep("not ingested")
        self.rows["first ingest"] = self.rows["ingest"]

    def _begin(self) -> None:
        self._unregister()
        key_file(str(self.now / "people" / "ledger.db"), self.home.store).unlink()
        register_job(self.card, self.home)

    def verbs(self) -> dict[str, tuple[str, Callable[[], object]]]:
        return super().verbs() | {"first ingest": ("not ingested", lambda: ingest_job(self.card, self.home))}


class FirstNight(Nights):
    """A shop before its first night, which is delivered: the counter has no folder yet."""

    def _begin(self) -> None:
        self.shop.deliver(customers(0, 40))

    def settled(self) -> list[str]:
        found = self.broken()
        nights = committed_steps(self.shop.ledger.entries(), "shop", self.nightly.key)
        if [n.t for n in nights] != [1]:
            return [*found, f"committed nights are {[n.t for n in nights]}"]
        stands = {f"{kind}-00001.{nights[0].attempt}.npy" for kind in ("leaf", "seen", "rows")}
        return found if stands <= {p.name for p in self.shop.kept.iterdir()} else [*found, "a committed file is gone"]


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

    ``name``, ``root``, ``witness``: of the verb, the folder whose files are watched, and the file in which whoever
    draws says so.
    ``restore``, ``work``: back to the state before the verb; and the verb.
    ``ledger``: of the world, as it is now.
    ``broken``, ``store``: promises that do not hold, in words, given whether the verb has ended right; and the
    operator's store.
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

        ``tree``, ``draws``, ``seen``: what is on disk, who had drawn noise, and the digests of the releases that people
        could read.
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


def differing(one: Tree, other: Tree) -> list[str]:
    """Paths at which two trees differ, but for what is written beside."""
    paths = sorted(p for p in {*one, *other} if one.get(p, (0, 0))[1] != other.get(p, (0, 0))[1])
    return [p for p in paths if not any(mark in p for mark in _BESIDE)]


def benches(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Every verb."""
    shop = FirstIngest(folder / "shop")
    for verb, (start, work) in shop.verbs().items():

        def called(work: Callable[[], object] = work) -> None:
            shop.canned()
            work()

        begun, broken = partial(shop.restore, start), partial(shop.broken, verb)
        yield Bench(verb, shop.now, begun, called, shop.ledger, broken, shop.home.root)
    for name, kind, night in (("night", Nights, 3), ("first night", FirstNight, 1)):
        nights = kind(folder / name, patch, "tree")

        def drawn(nights: Nights = nights, night: int = night) -> None:
            witness_draws(nights.witness, "drawn")
            nights.shop.append(night)

        def broken(settled: bool, nights: Nights = nights) -> list[str]:
            return nights.settled() if settled else nights.broken()

        def ledger(nights: Nights = nights) -> Ledger:
            return nights.shop.ledger

        yield Bench(name, nights.now, nights.restore, drawn, ledger, broken, nights.shop.home.root)


def trials(bench: Bench, most: int | None = None) -> Iterator[Row]:
    """A verb with all its syncs, then with those of each place taken out.

    ``most``: how many states are laid down, drawn at random; a fifth of that without some syncs.
    """
    bench.restore()
    recorded = bench.record()
    bench.restore()
    history, syncs = History(bench.root, recorded.operations), dict[str, list[int]]()
    if missed := differing(history.tree(len(recorded.operations)), recorded.end):
        raise AssertionError(f"not everything passes the disk: {missed}")
    for number, o in enumerate(recorded.operations):
        if o.kind == "sync":
            syncs.setdefault(o.by, []).append(number)

    def measure(place: str) -> Case:
        bench.restore()
        without = History(bench.root, recorded.operations, frozenset(syncs.get(place, ())))
        return tried(bench, without, recorded, most, alone=place == ALL)

    places = {f"{bench.name}: {place}": place for place in (ALL, *syncs)}
    found = resumed("power_cuts", list(places), lambda key: measure(places[key]))
    for place, row in zip(places.values(), found, strict=True):
        times = sum(map(len, syncs.values())) if place == ALL else len(syncs[place])
        yield {"verb": bench.name, "taken out": place, "syncs": times, **row}


def tried(bench: Bench, history: History, recorded: Recorded, most: int | None, *, alone: bool) -> Case:
    """Lay down the states of a history in a drawn order: all (``alone``), or 300 until one breaks a promise."""
    broken, number, end = list[str](), 0, len(recorded.operations)
    # what a verb had done, and a power cut after its end undoes
    if lost := differing(history.tree(end), history.tree(end, frozenset(history.pending(end)))):
        broken.append(f"after its end: {Path(lost[0]).name} taken back")
    found = list(states(history, recorded)) if alone or not broken else []
    Random(1).shuffle(found)
    for upto, tree, drawn, seen in found[: most if alone else _WITHOUT if most is None else most // 5]:
        number += 1
        if problems := bench.judge(tree, recorded.draws[:drawn], seen):
            last = recorded.operations[upto - 1]
            broken.append(f"after {last.kind} of {Path(last.path).name}: {problems[0]}")
            if not alone:
                break
    return {"states": len(found), "laid down": number, "broken": len(broken), "first": broken[0] if broken else ""}


def main() -> int:
    """Run the campaign, print and keep its rows; 1 where a promise was broken with all syncs in place."""
    rows = list[Row]()
    with tempfile.TemporaryDirectory(prefix="reticent-power-") as folder, pytest.MonkeyPatch.context() as patch:
        for bench in benches(Path(folder), patch):
            for row in trials(bench):
                rows.append(row)
                print(json.dumps(row), flush=True)
    write(NAME, rows)
    return int(any(row["broken"] for row in rows if row["taken out"] == ALL))


def verbs_line(name: str) -> str:
    """How many states of how many verbs were laid down with all syncs in place, and how many broke a promise."""
    whole = [r for r in read(name) if r["taken out"] == ALL]
    states, laid, broken = (sum(int(r[column]) for r in whole) for column in ("states", "laid down", "broken"))
    return f"{len(whole)} verbs: {laid} of {states} states laid down, {broken} violations."


def syncs_line(name: str) -> str:
    """How many places break a promise without their syncs, and that every other one is explained."""
    places = dict[str, bool]()
    for r in read(name):
        if r["taken out"] != ALL:
            places[r["taken out"]] = places.get(r["taken out"], False) or bool(r["first"])
    needed = sum(places.values())
    idle = [place for place, breaks in places.items() if not breaks]
    unexplained = [place for place in idle if not any(known in place for known in REASONS["unneeded"])]
    others = f"not explained: {', '.join(sorted(unexplained))}" if unexplained else "the others are explained"
    return f"Without the syncs of {needed} of {len(places)} places a promise breaks; {others} (`syncs.toml`)."


if __name__ == "__main__":
    sys.exit(main())
