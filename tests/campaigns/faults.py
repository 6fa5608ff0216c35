"""One fault at every operation of the disk.  ``python -P -m tests.campaigns.faults`` rewrites its rows.

Ingest, run, a run that is published again, a promotion, a purge, a registration and a night meet one fault each at
every write, sync, rename and removal and at every commit of the ledger: EIO, a full disk, an error after the deed, and
kill -9 before, half-way and after.  Then nobody repairs anything: the verb is called once more, and must end right.
(What a sync is for is asked by ``power_cuts``.)
``--sample N``: N of them, and nothing is kept.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.campaigns.crash_world import Shop
from tests.campaigns.night_crashes import World as Nights
from tests.campaigns.resumed import Case, resumed, sampled, tally
from tests.campaigns.rows import markdown, read
from tests.disk import FAULTS, FaultyDisk, Operation

# where it makes no difference, or cannot happen, a fault is not tried
_ONLY = {"kill half": ("write",), "EIO late": ("commit", "move", "sync", "swap", "link")}


def count(call: Callable[[FaultyDisk], int], where: Path) -> list[Operation]:
    """The operations of a call without a fault."""

    def note(operation: Operation) -> None:
        with where.open("a") as file:
            file.write(json.dumps([operation.kind, Path(operation.path).name]) + "\n")

    assert call(FaultyDisk(note=note)) == 0
    return [Operation(*json.loads(line)) for line in where.read_text().splitlines()]


def cases_of(operations: list[Operation]) -> list[tuple[int, str, str]]:
    """Every operation with every fault that can happen to it, and what it does."""
    told = [(i, o.kind, f"{o.kind} {o.path}") for i, o in enumerate(operations)]
    return [(i, f, what) for i, kind, what in told for f in FAULTS if kind in _ONLY.get(f, (kind,))]


def try_shop(shop: Shop, verb: str, at: int, fault: str, what: str) -> Case:
    """One fault of one verb of a run, and the call that follows."""
    start, work = shop.verbs()[verb]
    shop.restore(start)
    ended = shop.call(work, FaultyDisk(at, fault).install)
    broken = shop.broken(verb, settled=False)
    again = shop.call(work)
    if again != 0:
        broken.append("the next call failed")
    broken += shop.broken(verb, settled=again == 0)
    # what is paid for is what may have been drawn: an attempt with a DRAW
    if verb == "run" and again == 0:
        draws = sum(e.kind == "DRAW" for e in shop.ledger().entries())
        if shop.ledger().account("shop").spent != draws * Fraction(shop.price or 0):
            broken.append("a retry paid for what was not drawn")
    return case(verb, fault, f"{at}, {what}", ended, broken)


def try_night(nights: Nights, at: int, fault: str, what: str) -> Case:
    """One fault of a night, the night once more, and the next."""
    nights.restore()
    ended = nights.night(FaultyDisk(at, fault).install)
    broken = nights.broken()
    broken += nights.settled() if nights.night() == 0 else ["the next call failed"]
    return case("night", fault, f"{at}, {what}", ended, broken)


def case(verb: str, fault: str, where: str, ended: int, broken: list[str]) -> Case:
    """One fault: where, how the verb ended, and every promise that was broken."""
    return {
        "verb": verb,
        "fault": fault,
        "tried": 1,
        "killed": int(ended < 0),
        "refused": int(ended > 0),
        "not noticed": int(ended == 0),
        "violations": int(bool(broken)),
        "first": f"{where}: {broken[0]}" if broken else "",
    }


def main(sample: int | None) -> tuple[str, list[Case]]:
    planned: list[tuple[Callable[..., Case], Any]] = []
    with tempfile.TemporaryDirectory(prefix="reticent-faults-") as folder, pytest.MonkeyPatch.context() as patch:
        shop = Shop(Path(folder) / "shop")
        for verb, (start, work) in shop.verbs().items():
            shop.restore(start)
            operations = count(lambda disk, work=work: shop.call(work, disk.install), Path(folder) / f"count-{verb}")
            planned += [(try_shop, (shop, verb, *case)) for case in cases_of(operations)]
        nights = Nights(Path(folder) / "nights", patch, "tree")
        nights.restore()
        operations = count(lambda disk: nights.night(disk.install), Path(folder) / "count-night")
        planned += [(try_night, (nights, *case)) for case in cases_of(operations)]
        # a fixed draw: steps of equal length would meet the same faults again and again
        chosen = planned if sample is None else Random(0).sample(planned, sample)
        doing = {"/".join(map(str, [do.__name__, *args[1:]])): partial(do, *args) for do, args in chosen}
        return "faults", tally(resumed("faults", list(doing), lambda key: doing[key]()), "verb", "fault")


def shown(name: str) -> str:
    """What each verb was put through."""
    counts = ("tried", "killed", "refused", "not noticed", "violations")
    rows = [{"verb": r["verb"], **{k: int(r[k]) for k in counts}} for r in read(name)]
    told = tally(rows, "verb") + tally(({**row, "verb": "**all**"} for row in rows), "verb")
    return markdown(["verb", *counts], ([row[k] for k in ("verb", *counts)] for row in told))


if __name__ == "__main__":
    sys.exit(sampled(main))
