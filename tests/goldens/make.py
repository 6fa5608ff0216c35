"""Makes the goldens.  The home was made once, at commit 142d930, and is never made again.

``python -m tests.goldens.make home`` makes the home (refused where it is there), ``keys`` the keys of (d), ``numbers``
those of (b), ``answers`` those of (c); README.md says which of them may ever be made anew, and how.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.goldens import answers, keys, numbers, second_shelf, shelf
from tests.goldens.adapter import clock, reticent
from tests.goldens.places import HOME, write_expected


def make_home() -> None:
    """Lay out the shelf, and make releases, runs and nights with the operating system's noise."""
    if (HOME / "ledger.db").exists():
        raise SystemExit(f"{HOME} is there: this golden never changes")
    shelf.lay_out(HOME / "shelf")

    def say(*args: object) -> None:
        said = reticent(*args, home=HOME, shelf=HOME / "shelf")
        if said.code:
            raise SystemExit(f"{args}: {said.err}")

    shop, plant, loop = (HOME / "shelf" / name for name in ("shop", "plant", "loop"))
    with clock(datetime(2024, 1, 1, 2, tzinfo=UTC)):
        say("ingest", shop)
        say("inspect", shop)
        for recipe in ("count", "linear", "exact"):
            say("run", shop / f"{recipe}.toml")
        say("ingest", plant)
        say("run", plant / "control.toml")
        # entries of the other kinds
        card = loop / "card.toml"
        whole = card.read_text(encoding="utf-8")
        card.write_text(whole.replace("rho = 50.0", "rho = 40.0"), encoding="utf-8")
        say("register", loop)
        card.write_text(whole, encoding="utf-8")
        say("register", loop, "--amend")
        say("ledger", "sign", "count", "--by", "Golden Signer", "--note", "made once")
    for kind, nights in shelf.NIGHTS.items():
        folder = HOME / "shelf" / kind
        for night in nights:
            with clock(datetime(2024, 1, night, 3, tzinfo=UTC)):
                (folder / f"night-{night}.csv").rename(folder / "log.csv")
                say("ingest", folder)
                say("run", folder / f"{kind}.toml")
    with clock(datetime(2024, 1, 5, 3, tzinfo=UTC)):
        say("store", "purge", HOME / "shelf" / "tree", "--keep", "1", "--yes")
    # pages are half of the bytes, and every replay draws them again
    for page in (HOME / "runs").glob("*/report.html"):
        page.unlink()
    with sqlite3.connect(HOME / "ledger.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def make_keys() -> None:
    """(d), once."""
    with TemporaryDirectory() as place:
        write_expected("keys", keys.all_keys(Path(place)))


def make_numbers() -> None:
    """(b)."""
    with TemporaryDirectory() as place:
        at = Path(place)
        shipped = {card: numbers.shipped(card, at / card) for card in numbers.SHIPPED}
        shipped |= {"version 0.1": numbers.before(at / "before")}
        write_expected("shipped", shipped | {name: numbers.people(name, at / name) for name in numbers.PEOPLE})
        write_expected("tiny", {card: numbers.tiny(card, at / "tiny" / card) for card in numbers.TINY})
        write_expected("nights", {kind: numbers.nights(kind, at / "nights" / kind) for kind in shelf.NIGHTS})
        online = {agent: numbers.online(agent, at / "online" / agent) for agent in numbers.ONLINE}
        write_expected("online", online | {"riverswim_joint": numbers.joint(at / "joint")})


def make_answers() -> None:
    """(c)."""
    with TemporaryDirectory() as place:
        write_expected("answers", answers.all_answers(Path(place)))


def make_slow() -> None:
    """(c), what takes longer."""
    with TemporaryDirectory() as place:
        write_expected("slow", answers.slow_answers(Path(place)))


MAKERS: dict[str, Callable[[], None]] = {
    "home": make_home,
    "second": second_shelf.make,
    "keys": make_keys,
    "numbers": make_numbers,
    "answers": make_answers,
    "slow": make_slow,
}

if __name__ == "__main__":
    # as in the tests: what is played is played in this process
    os.sched_getaffinity = lambda _: {0}
    for word in sys.argv[1:]:
        MAKERS[word]()
