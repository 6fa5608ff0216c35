"""The second home: what the first does not hold.  Its cards, recipes and logs, and how it was made, once.

Evaluated runs of three families, several looks at one lineage, a run beside another, a one-step counter with epochs, a
counter whose people evaluate on dates, real lineages that were declared disjoint, an ingest and a sum that were killed,
and the demo.  An older version made it, which also kept what a killed ingest and a killed sum had done;
later versions cannot make it, and need not.
"""

from __future__ import annotations

import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.goldens.adapter import clock, reticent
from tests.goldens.places import SECOND, write_expected
from tests.goldens.shelf import FEATURES, SHOP, walk

HEAD = '[recipe]\nname = "{name}"\ncard = "card.toml"\nagent = "{agent}"\n\n[privacy]\nrho = {rho}\n'
PEOPLE = 900
# folder -> recipe -> agent, rho and the rest
RECIPES: dict[str, dict[str, tuple[str, float, str]]] = {
    "clinic": {
        "judged": ("dp-apvi", 4.0, "[evaluate]\npeople = 0.3\n"),
        "beside": ("dp-apvi", 4.0, '[evaluate]\npeople = 0.3\nagainst = "{first}"\n'),
        "fitted": ("dp-vapvi", 4.0, "[evaluate]\npeople = 0.3\n"),
        "careful": ("dp-one-step", 4.0, "[evaluate]\npeople = 0.3\n"),
    },
    "epochs": {
        "renewed": (
            "dp-one-step",
            2.0,
            '[nightly]\nnights = 6\nfirst = 2024-02-01\ncounter = "toeplitz"\nepoch = 2\n',
        ),
    },
    "dates": {
        "asked": (
            "dp-apvi",
            2.0,
            '[nightly]\nnights = 6\nfirst = 2024-02-01\ncounter = "tree"\n\n'
            "[evaluate]\npeople = 0.3\ndates = [2024-02-02, 2024-02-04]\n",
        ),
    },
    "ward_a": {"first_ward": ("dp-apvi", 1.0, "")},
    "ward_b": {"other_ward": ("dp-apvi", 1.0, "[evaluate]\npeople = 0.3\n")},
    "cut_ingest": {"later": ("dp-apvi", 1.0, "")},
    "cut_sum": {"again": ("dp-apvi", 1.0, "")},
}
NIGHTS = (1, 2, 3)
# one person in ten of the second ward is in the first one too
WARDS = {"ward_a": range(200), "ward_b": range(180, 380)}


def _card(name: str, what: str, people: int) -> str:
    once = "episodes_per_user = 1" + ('\nrecurs = "never"' if name in ("epochs", "dates") else "")
    text = SHOP.format(name=f"second_{name}", what=what, unit=once, domain="", people=people)
    if name in WARDS:
        text = text.replace('kind = "synthetic"', 'kind = "real"').replace('"home"', '"../wards.db"')
        text = text.replace("rho = 50.0", "rho = 3.0").replace("delta = 1e-6", "delta = 1e-5")
    return text + FEATURES


CARDS = {
    "clinic": _card("clinic", "who evaluate on one another", 3000),
    "epochs": _card("epochs", "night by night, values that stand for an epoch", 2000),
    "dates": _card("dates", "night by night, evaluated on dates", 3000),
    "ward_a": _card("ward_a", "said to be real, to be charged as such", 200),
    "ward_b": _card("ward_b", "said to be real, declared disjoint from the first ward", 2000),
    "cut_ingest": _card("cut_ingest", "whose ingest was killed", 200),
    "cut_sum": _card("cut_sum", "whose sum was killed", 200),
}
LOGS = {
    "clinic": walk(range(PEOPLE), 11),
    "ward_a": walk(WARDS["ward_a"], 12),
    "ward_b": walk(WARDS["ward_b"], 13),
    "cut_ingest": walk(range(200), 14),
    "cut_sum": walk(range(200), 15),
}


def lay_out(shelf: Path) -> None:
    """Write cards, recipes and logs below ``shelf``."""
    for name, card in CARDS.items():
        folder = shelf / name
        folder.mkdir(parents=True)
        (folder / "card.toml").write_text(card, encoding="utf-8")
        if name in LOGS:
            (folder / "log.csv").write_text(LOGS[name], encoding="utf-8")
        for recipe in RECIPES[name]:
            _write_recipe(folder, recipe)


def _write_recipe(folder: Path, recipe: str, first: str = "") -> None:
    agent, rho, rest = RECIPES[folder.name][recipe]
    text = HEAD.format(name=recipe, agent=agent, rho=rho) + rest.replace("{first}", first)
    (folder / f"{recipe}.toml").write_text(text, encoding="utf-8")


def say(*args: object) -> Any:
    """A verb on the second home."""
    found = reticent(*args, home=SECOND, shelf=SECOND / "shelf")
    if found.code:
        raise SystemExit(f"{args}: {found.err}")
    return found.answer


def make() -> None:
    """Make the second home; refused where it is there."""
    if SECOND.exists():
        raise SystemExit(f"{SECOND} is there: this golden never changes")
    shelf = SECOND / "shelf"
    lay_out(shelf)
    clinic = shelf / "clinic"
    with clock(datetime(2024, 1, 1, 2, tzinfo=UTC)):
        say("ingest", clinic)
        first = say("run", clinic / "judged.toml")["run"]
        (clinic / "log.csv").write_text(walk(range(PEOPLE, 2 * PEOPLE), 21), encoding="utf-8")
    with clock(datetime(2024, 1, 8, 2, tzinfo=UTC)):
        say("ingest", clinic)
        _write_recipe(clinic, "beside", first)
        for recipe in RECIPES["clinic"]:
            say("run", clinic / f"{recipe}.toml")
        for name in WARDS:
            say("register", shelf / name, *(["--disjoint-from", "second_ward_a"] if name == "ward_b" else []))
        for name in WARDS:
            say("ingest", shelf / name)
        for name in WARDS:
            say("run", *(shelf / name / f"{recipe}.toml" for recipe in RECIPES[name]))
    for night in NIGHTS:
        with clock(datetime(2024, 2, night, 3, tzinfo=UTC)):
            for i, (name, recipe) in enumerate((("epochs", "renewed"), ("dates", "asked"))):
                came = walk(range(150 * (night - 1), 150 * night), 30 + 10 * i + night)
                (shelf / name / "log.csv").write_text(came, encoding="utf-8")
                say("ingest", shelf / name)
                say("run", shelf / name / f"{recipe}.toml")
    with clock(datetime(2024, 3, 1, 2, tzinfo=UTC)):
        say("demo")
        say("store", "purge", "icu_sepsis", "--yes")
    _tidy()
    write_expected("second", charged(SECOND))


def charged(home: Path) -> dict[str, Any]:
    """Cap, spending and every charge of both ledgers, by lineage."""
    shown = [reticent("ledger", "show", *of, home=home, shelf=home / "shelf").answer for of in ((), ward(home))]
    return {
        d["name"]: {
            "cap_rho": d["cap_rho"],
            "spent_rho": d["spent_rho"],
            "entries": [{k: e.get(k) for k in ("entry", "run", "state", "rho", "night")} for e in d["entries"]],
        }
        for answer in shown
        for d in answer["datasets"]
    }


def ward(home: Path) -> tuple[str, Path]:
    """How a verb is told of the ledger of the two wards."""
    return "--card", home / "shelf" / "ward_a"


def _tidy() -> None:
    """What is of this machine alone: the private key, which no replay needs, and SQLite's journal."""
    (SECOND / "store" / ".operator-key.pem").unlink()
    for ledger in SECOND.rglob("*.db"):
        with sqlite3.connect(ledger) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
    for page in SECOND.rglob("store/*/snapshot-*/*.html"):
        page.unlink()
    for folder in SECOND.rglob("store/*/releases/exact-*"):
        shutil.rmtree(folder)
