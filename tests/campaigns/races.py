"""Who gets the last of the budget?  ``python -P -m tests.campaigns.races [rounds]`` rewrites ``results/races.csv``.

Each round starts eight processes at one gate, on SQLite and on PostgreSQL: all want the last of a lineage's budget, and
all want to draw one release from stores of their own.  Exactly one may get it, and the account must say so.
"""

import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from pipeline.declaration.card import Card
from pipeline.ledger.ledger import open_ledger
from tests.campaigns.resumed import Case, tally
from tests.campaigns.rows import plain, write
from tests.conftest import card_dict
from tests.ledger.postgres import postgres_server
from tests.ledger.racing import draw, race, spend

RUNNERS = 8
PRICES = {spend: Fraction(3, 2), draw: Fraction(1, 100)}


def one_round(where: str, todo: Callable[..., None]) -> Case:
    """One race in a new ledger: whether it has one winner, and the account says so."""
    book = open_ledger(where, create=True)
    book.register(Card.model_validate(card_dict(budget={"rho": 2.0})))
    # forked: nothing here has threads, and eight interpreters to start would take longer than the race
    wins, _ = race(todo, where, RUNNERS, "fork")
    charged = book.account("tiny").spent
    whole = book.problem() is None and len(book.entries()) == 2
    held = wins == 1 and charged == PRICES[todo] and whole
    return {"race": todo.__name__, "processes": RUNNERS, "rounds": 1, "exactly one winner": int(held)}


def main(rounds: int) -> int:
    """Run all rounds, print and keep their result; 1 where a race had not exactly one winner."""
    found: list[Case] = []
    with postgres_server() as server, tempfile.TemporaryDirectory(prefix="reticent-races-") as folder:
        for i in range(rounds):
            for todo in (spend, draw):
                name = f"{todo.__name__}_{i}"
                server.psql(f"create database {name}")
                found.append({"engine": "sqlite", **one_round(str(Path(folder) / f"{name}.db"), todo)})
                found.append({"engine": "postgresql", **one_round(server.url(name), todo)})
                server.psql(f"drop database {name} with (force)")
            print(f"round {i + 1} of {rounds}", file=sys.stderr, flush=True)
    told = sorted(tally(found, "engine", "race", "processes"), key=lambda row: row["engine"] != "sqlite")
    write("races", told)
    print(plain("races"))
    return int(any(row["rounds"] != row["exactly one winner"] for row in told))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
