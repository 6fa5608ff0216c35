"""One fault at every operation of the disk.  ``python -P -m tests.campaigns.faults`` rewrites ``results/faults.json``.

Ingest, run, a run that is published again, a promotion, a purge, a registration and a night meet one fault each at
every write, sync, rename and removal and at every commit of the ledger: EIO, a full disk, an error after the deed, a
sync that does nothing before a power cut, and kill -9 before, half-way and after.  Then nobody repairs anything: the
verb is called once more, and must end right.  After a lost sync it may also refuse, with nothing drawn.
``--sample N``: N of them, and with ``--keep`` the result is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest

import flows.jobs.publish
import pipeline.learners.tabular
from flows.config.exit_codes import exit_code
from flows.jobs.intake import ingest_job
from flows.jobs.promotion import Alias
from flows.jobs.run import register_job
from flows.jobs.snapshots import purge_job
from pipeline.ledger.steps import mispriced
from tests.campaigns.crash_world import World, child, witness_draws
from tests.campaigns.crashes import violations
from tests.campaigns.night_crashes import World as Nights
from tests.disk import FAULTS, FaultyDisk, Operation
from tests.jobs import run_job

RESULTS = Path(__file__).resolve().parent / "results" / "faults.json"
# where it makes no difference, or cannot happen, a fault is not tried
_ONLY = {"lost sync": ("sync",), "kill half": ("write",), "EIO late": ("commit", "move", "sync", "swap", "link")}


@dataclass(frozen=True)
class Case:
    """One fault: what failed, how the verb and the next call ended, and every promise that was broken."""

    verb: str
    operation: int
    what: str
    fault: str
    ended: int
    again: int
    charged: str
    broken: tuple[str, ...]


class Shop:
    """States to start from, verbs, and what must hold of a dataset of people."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder, None)
        self.world.restore("registered")
        for name, work in (("registered", lambda: None), ("used", self._use), ("unregistered", self._unregister)):
            self.world.restore("registered")
            assert child(work) == 0
            if name != "registered":
                self.world.keep(name)

    @property
    def card(self) -> str:
        return str(self.world.now / "people")

    def _use(self) -> None:
        """Two editions, a run in use, and a log that was refused once."""
        self._canned()
        run = run_job(self.card + "/private.toml", self.world.home)["run"]
        Alias(self.world.home.runs).promote(run)
        ingest_job(self.card, self.world.home)
        refused = self.world.home.store / "shop" / "refused"
        refused.mkdir(mode=0o700)
        (refused / "quarantine-0000.parquet").write_bytes(b"rows")

    def _unregister(self) -> None:
        for name in ("home", "people/ledger.db"):
            path = self.world.now / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _canned(self) -> None:
        """Planning and pages keep no state; and whoever draws says so first."""
        pipeline.learners.tabular.learn = lambda *_: self.world.learnt
        flows.jobs.publish.drawn_pages = lambda *_: (str(os.getpid()), "")  # pages differ: each is published anew
        witness_draws(self.world.witness, str(self.world.price))

    def verbs(self) -> dict[str, tuple[str, Callable[[], object]]]:
        """Verb -> state it begins from, and the call."""
        run = self.card + "/private.toml"
        return {
            "register": ("unregistered", lambda: register_job(self.card, self.world.home)),
            "ingest": ("registered", lambda: ingest_job(self.card, self.world.home)),
            "run": ("registered", lambda: run_job(run, self.world.home)),
            "run, edition 2": ("used", lambda: run_job(run, self.world.home)),
            "promote": ("used", self._promote),
            "purge": ("used", lambda: purge_job(self.card, self.world.home, keep=1, yes=True)),
        }

    def _promote(self) -> None:
        alias = Alias(self.world.home.runs)
        alias.promote(str(alias.now()))

    def call(self, work: Callable[[], object], disk: FaultyDisk | None) -> int:
        """A call in a process of its own: its exit code, or minus the signal that killed it."""

        def inside() -> None:
            self._canned()
            if disk is not None:
                disk.install()
            work()

        return child(inside, told)

    def broken(self, verb: str, settled: bool) -> list[str]:
        """Every promise that does not hold, in words."""
        found: list[str] = []
        if (self.world.now / "people" / "ledger.db").exists():
            found += violations(self.world) if self.world.ledger().lineages() else []
        elif settled:
            found.append("no ledger")
        alias = Alias(self.world.home.runs)
        now = alias.now()
        if verb in ("run, edition 2", "promote", "purge") and (
            now is None or not (self.world.home.runs / now / "report.json").is_file()
        ):
            found.append("the run in use is gone")
        lineage = self.world.home.store / "shop"
        if settled and list(lineage.glob(".purging-*")):
            found.append("what a purge had begun to remove is left")
        if settled and verb.startswith("run") and list((lineage / "releases").glob("*.attempt-*")):
            found.append("an unfinished draw is left")
        return found


def told(e: BaseException) -> int:
    """How a process ends that was told of a fault."""
    return exit_code(e) if isinstance(e, Exception) else 99


def count(call: Callable[[FaultyDisk], int], where: Path) -> list[Operation]:
    """The operations of a call without a fault."""

    def note(operation: Operation) -> None:
        with where.open("a") as file:
            file.write(json.dumps([operation.kind, Path(operation.path).name]) + "\n")

    assert call(FaultyDisk(note=note)) == 0
    return [Operation(*json.loads(line)) for line in where.read_text().splitlines()]


def cases_of(operations: list[Operation]) -> list[tuple[int, str]]:
    """Every operation with every fault that can happen to it."""
    return [(i, f) for i, o in enumerate(operations) for f in FAULTS if o.kind in _ONLY.get(f, (o.kind,))]


def try_shop(shop: Shop, verb: str, at: int, fault: str, what: str) -> Case:
    """One fault of one verb of a run, and the call that follows."""
    start, work = shop.verbs()[verb]
    shop.world.restore(start)
    ended = shop.call(work, FaultyDisk(at, fault))
    broken = shop.broken(verb, settled=False)
    again = shop.call(work, None)
    refused = fault == "lost sync" and again in (2, 3, 4)
    if again != 0 and not refused:
        broken.append("the next call failed")
    broken += shop.broken(verb, settled=again == 0)
    ledger = shop.world.now / "people" / "ledger.db"
    charged = shop.world.ledger().account("shop").spent if ledger.exists() and again == 0 else Fraction(0)
    # what is paid for is what may have been drawn: an attempt with a DRAW
    draws = sum(e.kind == "DRAW" for e in shop.world.ledger().entries()) if ledger.exists() and again == 0 else 0
    if verb == "run" and again == 0 and charged != draws * Fraction(shop.world.price or 0):
        broken.append("a retry paid for what was not drawn")
    return Case(verb, at, what, fault, ended, again, str(charged), tuple(dict.fromkeys(broken)))


def try_night(nights: Nights, at: int, fault: str, what: str) -> Case:
    """One fault of a night, the night once more, and the next."""
    nights.restore()
    ended = night(nights, FaultyDisk(at, fault))
    broken = nights.broken()
    again = night(nights, None)
    refused = fault == "lost sync" and again == 4
    if again != 0 and not refused:
        broken.append("the next call failed")
    if again == 0:
        broken += nights.settled()
        if mispriced(nights.shop.ledger.entries(), "shop", nights.nightly.key) is not None:
            broken.append("a redraw was not priced")
    return Case("night", at, what, fault, ended, again, str(nights.charged() / nights.whole), tuple(broken))


def night(nights: Nights, disk: FaultyDisk | None) -> int:
    """Night 3 in a process of its own."""

    def inside() -> None:
        witness_draws(nights.folder / "now" / "witness", "drawn")
        if disk is not None:
            disk.install()
        nights.shop.append(3)

    return child(inside, told)


def main(sample: int | None) -> int:
    """Run the campaign, print and keep its result; 1 where a promise was broken."""
    cases: list[Case] = []
    planned: list[tuple[Callable[..., Case], Any]] = []
    with tempfile.TemporaryDirectory(prefix="reticent-faults-") as folder, pytest.MonkeyPatch.context() as patch:
        shop = Shop(Path(folder) / "shop")
        for verb, (start, work) in shop.verbs().items():
            shop.world.restore(start)
            operations = count(lambda disk, work=work: shop.call(work, disk), Path(folder) / f"count-{verb}")
            for at, fault in cases_of(operations):
                what = f"{operations[at].kind} {operations[at].path}"
                planned.append((try_shop, (shop, verb, at, fault, what)))
        nights = Nights(Path(folder) / "nights", patch, "tree")
        nights.restore()
        operations = count(lambda disk: night(nights, disk), Path(folder) / "count-night")
        planned += [
            (try_night, (nights, at, fault, f"{operations[at].kind} {operations[at].path}"))
            for at, fault in cases_of(operations)
        ]
        # a fixed draw: steps of equal length would meet the same faults again and again
        chosen = planned if sample is None else Random(0).sample(planned, sample)
        for i, (attempt, args) in enumerate(chosen):
            cases.append(attempt(*args))
            if i % 50 == 49:
                print(f"{i + 1} of {len(chosen)}", file=sys.stderr, flush=True)
    broken = [c for c in cases if c.broken]
    result = {
        "command": "python -P -m tests.campaigns.faults" + ("" if sample is None else f" --sample {sample}"),
        "date": datetime.now(UTC).date().isoformat(),
        "faults": len(cases),
        "possible": len(planned),
        "by_verb": {verb: sum(c.verb == verb for c in cases) for verb in dict.fromkeys(c.verb for c in cases)},
        "by_fault": {fault: sum(c.fault == fault for c in cases) for fault in FAULTS},
        "refused_after_a_lost_sync": sum(c.again != 0 for c in cases if not c.broken),
        "violations": len(broken),
    }
    print(json.dumps(result | {"broken": [asdict(c) for c in broken]}, indent=1))
    if sample is None or "--keep" in sys.argv:
        rows = ",\n  ".join(json.dumps(asdict(c)) for c in cases)
        RESULTS.write_text(json.dumps(result, indent=1)[:-2] + f',\n "rows": [\n  {rows}\n ]\n}}\n', encoding="utf-8")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[2]) if sys.argv[1:2] == ["--sample"] else None))
