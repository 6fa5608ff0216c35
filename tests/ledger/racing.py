"""Processes that start at one gate and want the same thing from one ledger; for tests and for the campaign."""

from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pipeline.declaration.card import Card
from pipeline.ledger.attempts import Holder
from pipeline.ledger.ledger import open_ledger
from pipeline.privacy.noise import OsNoise
from pipeline.privacy.release import Mechanism, Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.transaction.transaction import open_lineage, transaction
from reticent import BudgetError
from tests.conftest import card_dict


def spend(where: str, number: int) -> None:
    """The last of the budget, under a key of one's own."""
    open_ledger(where, create=False).intent("tiny", f"key-{number}", Fraction(3, 2), {})


def draw(where: str, number: int) -> None:
    """One release, from a store of one's own: the budget would allow all."""
    holder = Holder(f"{number}", f"place-{number}")
    open_ledger(where, create=False).intent("tiny", "one", Fraction(1, 100), {}, holder=holder)


def release(where: str, number: int) -> None:
    """One release through the one machine, from a store of one's own, drawn and committed."""
    table = Mechanism("n_sas", (1, 1, 1, 2), "transitions", 2, 2, "", variance=10)
    book, mechanisms = open_ledger(where, create=False), [describe_mechanism(table)]
    with TemporaryDirectory() as folder, open_lineage("tiny", book, Path(folder)) as lineage:
        terms = Fraction(1, 10), {"mechanisms": mechanisms, "epsilon": None}
        with transaction(lineage, "1" * 64, *terms, ["counts"], OsNoise()) as t:
            drawn = t.stage("counts", lambda _: np.full(table.shape, number))
            noise = {"noise": "seeded", "sampler": "none, a test"}
            t.commit(Release("tiny", "synthetic", "stationary", (table,), {"n_sas": drawn}, **noise), "")


def commit(where: str, number: int) -> None:
    """One COMMIT for a key at which everybody has an attempt."""
    book = open_ledger(where, create=False)
    mine = next(e for e in book.entries() if e.kind == "INTENT" and e.body["attempt"] == number + 1)
    book.commit(mine, {"release_sha256": str(number)})


def register(where: str, number: int) -> None:
    """The first to come creates the ledger and the lineage; the others must find both and agree."""
    if open_ledger(where, create=True).register(Card.model_validate(card_dict())) is None:
        raise BudgetError("it stood already")


def _runner(gate: Any, wins: Any, failures: Any, todo: Any, where: str, number: int) -> None:
    gate.wait()
    try:
        todo(where, number)
    except BudgetError as e:
        failures.put(str(e))
    else:
        with wins.get_lock():
            wins.value += 1


def race(todo: Any, where: str, runners: int, how: str = "forkserver") -> tuple[int, list[str]]:
    """How many of the processes got what they wanted, and what the others were told."""
    context = get_context(how)
    # what all of them import is imported once
    context.set_forkserver_preload([__name__])
    gate, wins, failures = context.Barrier(runners), context.Value("i", 0), context.Queue()
    started = [context.Process(target=_runner, args=(gate, wins, failures, todo, where, i)) for i in range(runners)]
    for p in started:
        p.start()
    for p in started:
        p.join(300)
    assert all(p.exitcode == 0 for p in started), [p.exitcode for p in started]
    told = [failures.get(timeout=60) for _ in range(runners - wins.value)]
    return wins.value, told
