"""The one state machine: at every crash point of both callers, one recovery; nothing is drawn that is not paid for."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline.transaction.transaction as machine
from flows.config.home import Home
from flows.config.recipe import setting
from pipeline.files import DISK
from pipeline.learners import tabular
from pipeline.ledger import attempts
from pipeline.ledger.attempts import MOST_LOST
from pipeline.ledger.chain import AttemptLostError
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.steps import counters_problem
from pipeline.privacy.continual import NoiseBlocks, continual, squared_weights
from pipeline.privacy.noise import AnnouncedNoise, NoiseSource, OsNoise, SimulatedWorld
from pipeline.privacy.release_file import read_release
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction import continual_step
from pipeline.transaction.continual_step import KeptSteps
from pipeline.transaction.transaction import (
    State,
    Transaction,
    drawn_folders,
    one_at_a_time,
    open_lineage,
    recover,
    transaction,
)
from reticent import BudgetError
from tests.flows.nights import Shop, customers
from tests.flows.shop import Opened
from tests.jobs import ledger_in
from tests.transaction.released import release

# every transition of the machine, and every write on the way
TRANSITIONS = (
    (Ledger, "intent"),
    (Ledger, "draw"),
    (machine, "remember_head"),
    (Transaction, "stage"),
    (KeptSteps, "write"),
    (machine, "write_attempt"),
    (DISK, "sync"),
    (DISK, "move"),
    (Ledger, "commit"),
    (attempts, "end_leases"),
)
# what a process that is killed does not come to
CLEAN_UPS = ((attempts, "end_leases"), (shutil, "rmtree"), (DISK, "remove"))


class DiedError(BaseException):
    """The process is gone: nobody catches it."""


@dataclass
class Caller:
    """One way into the machine: its store, how it is called once more, what it costs, and what drew noise.

    ``whole`` pays for the first draws, ``again`` for each further one; ``before`` counts releases committed earlier.
    """

    home: Home
    ledger: Callable[[], Ledger]
    call: Callable[[], Any]
    whole: Fraction
    again: Fraction
    before: int = 0
    draws: list[int] = field(default_factory=list[int])

    def entries(self) -> list[Any]:
        return self.ledger().entries("shop")

    def charged(self, entries: list[Any] | None = None) -> Fraction:
        """By these entries, which are those of now where none are given: a ledger is checked whenever it is read."""
        read = self.entries() if entries is None else entries
        return sum((Fraction(e.body["rho"]) for e in read if e.kind == "INTENT"), Fraction(0))

    def paid_for(self, entries: list[Any]) -> int:
        """How many draws the charges cover; the first charge of a counter covers its first draw of every step."""
        more = (self.charged(entries) - self.whole) / self.again
        return 0 if more < 0 else self.before + 1 + int(more)


def one_off(folder: Path, patch: pytest.MonkeyPatch, opened: Opened, recipe: str = "private") -> Caller:
    shop, home = opened(folder, cap=100.0)
    rho = setting(str(shop / f"{recipe}.toml"), home).plan.charge()[0]
    assert rho is not None
    found = Caller(home, lambda: ledger_in(shop), lambda: release((shop, home), recipe), rho, rho)
    watch(patch, PrivateSum, found.draws)
    return found


def step(folder: Path, patch: pytest.MonkeyPatch, _: Opened) -> Caller:
    shop = Shop(folder, patch, cap=100.0)
    shop.append(1, customers(0, 40))
    shop.on(3)
    shop.deliver(customers(40, 40))
    whole = sum((Fraction(e.body["rho"]) for e in shop.ledger.entries() if e.kind == "INTENT"), Fraction(0))
    counter = continual("tree", 8)
    due = squared_weights([row for t in (2, 3) for row in counter.rows(t)])
    again = whole * Fraction(due, counter.cost)
    found = Caller(shop.home, lambda: shop.ledger, lambda: shop.append(3), whole, again, before=1)
    watch(patch, NoiseBlocks, found.draws)
    return found


# of pure ε all noise is Laplace's
CALLERS = {
    "a one-off release": one_off,
    "pure": partial(one_off, recipe="pure"),
    "a step of a continual release": step,
}


def watch(patch: pytest.MonkeyPatch, owner: Any, draws: list[int]) -> None:
    """Write down every draw of ``owner`` when the operating system is first asked for noise."""
    draw, asked = owner.draw, [True]

    def begins(*args: Any) -> Any:
        asked[0] = False
        return draw(*args)

    def witnessed(noise: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(*args: Any) -> Any:
            if not asked[0]:
                draws.append(1)
            asked[0] = True
            return noise(*args)

        return drawn

    patch.setattr(owner, "draw", begins)
    for law in ("gaussian", "laplace"):
        patch.setattr(OsNoise, law, witnessed(getattr(OsNoise, law)))


@contextmanager
def dying(at: int | None, *, killed: bool) -> Iterator[list[str]]:
    """Raise at the ``at``-th beginning or end of a transition; ``killed``: nothing is cleaned up."""
    said: list[str] = []

    def reached(label: str) -> None:
        if at is not None and len(said) > at:
            # dead: what runs now are clean-ups of a process that was not killed
            return
        said.append(label)
        if len(said) - 1 == at:
            if killed:
                for owner, name in CLEAN_UPS:
                    patch.setattr(owner, name, lambda *_, **_more: None)
            raise DiedError

    def armed(work: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            reached(f"before {name}")
            result = work(*args, **kwargs)
            reached(f"after {name}")
            return result

        return run

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in TRANSITIONS:
            patch.setattr(owner, name, armed(getattr(owner, name), name))
        yield said


def broken(caller: Caller) -> list[str]:
    """Every promise of the machine that does not hold after a death and one more call, in words."""
    left = [read_release(p) for p in drawn_folders(caller.home.store, "shop")]
    whole = len(left) > caller.before
    found, wrong, ledger = caller.call(), [], caller.ledger()
    entries, drawn = ledger.entries("shop"), caller.before + len(caller.draws)
    if ledger.problem():
        wrong.append("the chain is broken")
    keys = [e.body["run_key"] for e in entries if e.kind == "COMMIT"]
    if sorted(keys) != sorted(set(keys)) or found.run_key not in keys:
        wrong.append("a release has no COMMIT, or two")
    attempts = [e for e in entries if e.kind == "INTENT" and e.body["run_key"] == found.run_key]
    if caller.before + len(attempts) < drawn or caller.paid_for(entries) < drawn:
        wrong.append("more was drawn than charged")
    if whole and (not found.replayed or not any(same(found.release, r) for r in left)):
        wrong.append("a finished release was lost")
    if list((caller.home.store / "shop" / "releases").glob("*.attempt-*")):
        wrong.append("an unfinished draw is still there")
    spent, drawn = caller.charged(entries), len(caller.draws)
    again = caller.call()
    if not again.replayed or caller.charged() != spent or len(caller.draws) != drawn:
        wrong.append("a committed release was charged or drawn again")
    return wrong


def same(one: Any, other: Any) -> bool:
    return one.tables.keys() == other.tables.keys() and all(
        np.array_equal(table, other.tables[name]) for name, table in one.tables.items()
    )


# the machine does not know the law of its noise: Laplace's dies in the tests of draws below
DEATHS = [
    pytest.param(name, death, marks=pytest.mark.slow if death == "killed" else ())
    for name in CALLERS
    if name != "pure"
    for death in ("raised", "killed")
] + [pytest.param("a one-off release", "raised, anywhere", marks=pytest.mark.slow)]


def places(alive: list[str], *, everywhere: bool) -> list[int]:
    """Crash points that differ.

    A sync of what the sync before it found as well changes nothing.  Between the end of one transition and the
    beginning of the next, and after the last sync of a file, nothing is written: to a process that is killed, and to a
    caller that adds no clean-ups of its own, they are one place.
    """
    found = [0]
    for i, (before, label) in enumerate(pairwise(alive), 1):
        synced_again = label.endswith("sync") and alive[max(i - 2, 0)] == label and before.endswith("sync")
        if not synced_again and (everywhere or (label.startswith("after") and before != "after sync")):
            found.append(i)
    return found


@pytest.mark.parametrize(("name", "death"), DEATHS)
def test_every_crash_point_has_one_recovery(tmp_path, monkeypatch, opened, name, death):
    killed = death == "killed"
    now, begun = tmp_path / "now", tmp_path / "begun"
    caller = CALLERS[name](now, monkeypatch, opened)
    shutil.copytree(now, begun)
    with dying(None, killed=False) as alive:
        caller.call()
    # every transition of the machine is among the crash points, in order
    order = ["intent", "remember_head", "draw", "stage", "write_attempt", "commit", "end_leases", "remember_head"]
    seen = iter(alive)
    assert all(f"after {transition}" in seen for transition in order), alive
    differ = places(alive, everywhere=death == "raised, anywhere")
    if (name, death) == ("a step of a continual release", "raised"):
        # what a step adds to the machine lies within its stage; what clears up elsewhere is the machine's own
        differ = [at for at in differ if alive.index("before stage") <= at <= alive.index("after stage")]
        assert len(differ) > 5
    for at in differ:
        shutil.rmtree(now)
        shutil.copytree(begun, now)
        caller.draws.clear()
        with dying(at, killed=killed) as said, pytest.raises(DiedError):
            caller.call()
        entries = caller.entries()
        kinds, spent = [e.kind for e in entries], caller.charged(entries)
        whole = len(drawn_folders(caller.home.store, "shop")) > caller.before
        assert not broken(caller), said
        # spend as documented: again where the first died after its DRAW and before its rename, and only there
        if kinds.count("INTENT") == caller.before:
            due = spent if caller.before else caller.whole
        else:
            due = spent + (kinds.count("DRAW") > caller.before and not whole) * caller.again
        assert caller.charged() == due, said


class Late(Transaction):
    """A broken twin: it draws first, and charges when it has something to write."""

    @contextmanager
    def charge(self, rho, told):
        self.state, self._terms = State.LEASED, (rho, told)
        yield

    def _announce(self):
        pass

    def commit(self, release, data_digest):
        rho, told = self._terms
        self._intent = self.lineage.ledger.intent(self.lineage.name, self.run_key, rho, told)
        return super().commit(release, data_digest)


def test_a_twin_that_draws_before_its_charge_is_caught(tmp_path, monkeypatch, opened):
    caller = one_off(tmp_path, monkeypatch, opened)
    with monkeypatch.context() as twin:
        twin.setattr(machine, "Transaction", Late)
        twin.setattr(Late, "stage", dies_after(Late.stage))
        with pytest.raises(DiedError):
            caller.call()
    assert broken(caller) == ["more was drawn than charged"]


def dies_after(work: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **_: Any) -> Any:
        work(*args)
        raise DiedError

    return run


class Silent(Transaction):
    """A broken twin: it draws and does not say so."""

    def _announce(self):
        pass


@pytest.mark.parametrize("name", CALLERS)
def test_a_twin_that_draws_without_saying_so_is_caught(tmp_path, monkeypatch, opened, name):
    caller = CALLERS[name](tmp_path, monkeypatch, opened)
    with monkeypatch.context() as twin:
        twin.setattr(machine, "Transaction", Silent)
        twin.setattr(Silent, "stage", dies_after(Silent.stage))
        with pytest.raises(DiedError):
            caller.call()
    assert broken(caller) == ["more was drawn than charged"]


@pytest.mark.parametrize("name", [name for name in CALLERS if name != "pure"])
def test_a_schedule_whose_sums_die_for_ever_pays_once(tmp_path, monkeypatch, opened, name):
    """Each retry once paid anew for an attempt that had not come to its noise: 2, 3, 4, 5 … until the cap was gone."""
    caller = CALLERS[name](tmp_path, monkeypatch, opened)
    for _ in range(4):
        with monkeypatch.context() as dead, pytest.raises(DiedError):
            for owner, sums in ((tabular, "aggregate"), (continual_step, "count_new")):
                dead.setattr(owner, sums, dies_after(lambda *_: None))
            dead.setattr(attempts, "end_leases", lambda *_: None)
            caller.call()
    assert caller.charged() == caller.whole and not caller.draws
    assert not caller.call().replayed and caller.charged() == caller.whole and len(caller.draws) == 1
    assert counters_problem(caller.entries()) is None and caller.call().replayed


@pytest.mark.parametrize("name", CALLERS)
def test_a_schedule_whose_draws_die_for_ever_stops_until_somebody_looks(tmp_path, monkeypatch, opened, name):
    caller = CALLERS[name](tmp_path, monkeypatch, opened)

    def retry(times: int) -> None:
        for _ in range(times):
            with monkeypatch.context() as dead, pytest.raises((DiedError, BudgetError)):
                dead.setattr(machine, "write_attempt", dies_after(lambda *_: None))
                caller.call()

    retry(MOST_LOST + 2)
    assert len(caller.draws) == MOST_LOST and caller.charged() == caller.whole + ((MOST_LOST - 1) * caller.again)
    with pytest.raises(BudgetError, match="ledger retry"):
        caller.call()
    caller.ledger().note("shop", "RETRY", {})
    assert not broken(caller)
    assert caller.charged() == caller.whole + MOST_LOST * caller.again


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_whoever_was_taken_over_draws_nothing(tmp_path, monkeypatch, dies_at, opened, law):
    """A machine slept past its lease before it drew: the one that took its charge over may draw, and it may not."""
    caller = one_off(tmp_path, monkeypatch, opened)
    with dies_at("pipeline.learners.tabular.aggregate"):
        caller.call()
    slept = caller.entries()[-1]
    caller.call()
    drawn = list[int]()
    with pytest.raises(BudgetError, match="took this one over"):
        announced = AnnouncedNoise(OsNoise(), lambda: (caller.ledger().draw(slept), drawn.append(1)))
        getattr(announced, law)(1, 10, SimulatedWorld("a"))
    assert not drawn and caller.charged() == caller.whole


class Unleased(Transaction):
    """A broken twin: nobody is told that it draws."""

    @contextmanager
    def charge(self, rho, told):
        self._intent = self.lineage.ledger.intent(self.lineage.name, self.run_key, rho, told)
        self.state = State.LEASED
        yield


@pytest.mark.parametrize("twin", [None, Unleased])
def test_while_one_draws_nobody_else_does_and_a_twin_without_a_lease_is_caught(tmp_path, monkeypatch, opened, twin):
    caller = one_off(tmp_path, monkeypatch, opened)
    found: list[str] = []

    def meanwhile(ledger: Ledger) -> None:
        intent = caller.entries()[-1]
        with pytest.MonkeyPatch.context() as patch:
            # as another store would ask: what lives here is alive to it
            patch.setattr(machine, "one_at_a_time", lambda folder: one_at_a_time(tmp_path / "other" / folder.name))
            try:
                with open_lineage("shop", ledger, tmp_path / "other") as there:
                    terms = Fraction(1), {"mechanisms": intent.body["mechanisms"]}
                    with transaction(there, intent.body["run_key"], *terms, ["release"], OsNoise()):
                        found.append("two draw at once")
            except BudgetError as e:
                found.append(str(e))
            except RuntimeError:
                pass

    draw = PrivateSum.draw

    def watched(*args: Any) -> Any:
        meanwhile(caller.ledger())
        return draw(*args)

    with monkeypatch.context() as patch:
        patch.setattr(PrivateSum, "draw", watched)
        if twin is None:
            caller.call()
        else:
            patch.setattr(machine, "Transaction", twin)
            # what was taken over may not draw
            with pytest.raises(AttemptLostError):
                caller.call()
    assert len(found) == 1
    assert (found == ["two draw at once"]) if twin else ("being drawn elsewhere" in found[0])


@pytest.fixture
def lineage(tmp_path, monkeypatch, opened):
    caller = one_off(tmp_path, monkeypatch, opened)
    with open_lineage("shop", caller.ledger(), caller.home.store) as found:
        yield found


TERMS = (Fraction(1, 2), {"mechanisms": []})


@contextmanager
def refused(lineage, says, key, *stages):
    with pytest.raises(RuntimeError, match=says), transaction(lineage, key, *TERMS, list(stages), OsNoise()) as t:
        yield t


def test_a_later_stage_rests_on_an_earlier_answer_and_one_charge_covers_both(lineage):
    with pytest.raises(DiedError), transaction(lineage, "a" * 64, *TERMS, ["where", "how many"], OsNoise()) as t:
        assert t.state is State.LEASED and t.intent.body["rho"] == "1/2"
        # nor is it charged by whoever enters its charge a second time: another attempt is another transaction
        with pytest.raises(RuntimeError, match="leased, not idle"), t.charge(*TERMS):
            pytest.fail("charged twice")
        where = t.stage("where", lambda _: 3)
        assert t.state is State.LEASED
        assert t.stage("how many", lambda _: 10 * where) == 30
        assert t.state is State.DRAWN
        raise DiedError
    assert lineage.ledger.account("shop").spent == Fraction(1, 2)


def test_what_is_not_declared_is_not_drawn_and_what_is_left_out_is_not_committed(lineage):
    drawn: list[int] = []
    for wrong in ("how many", "never declared"):
        with refused(lineage, "is not what comes next", wrong, "where", "how many") as t:
            t.stage(wrong, lambda _: drawn.append(1))
    with refused(lineage, "leased, not drawn", "half", "where", "how many") as t:
        t.stage("where", lambda _: 1)
        t.commit(None, "")
    with refused(lineage, "drawn, not leased", "twice", "where") as t:
        t.stage("where", lambda _: 1)
        t.stage("where", lambda _: drawn.append(1))
    with refused(lineage, "without a COMMIT", "forgotten", "where"):
        pass
    assert not drawn


def test_a_stage_that_failed_is_not_drawn_again_and_ends_its_transaction(lineage):
    """It may have drawn before it failed: twice under one charge would be a second release."""
    drawn: list[int] = []

    def fails(_: NoiseSource) -> None:
        drawn.append(1)
        raise OSError

    with refused(lineage, "without a COMMIT", "failed", "where", "how many") as t:
        with pytest.raises(OSError):
            t.stage("where", fails)
        for name in ("where", "how many"):
            with pytest.raises(RuntimeError, match="is not what comes next"):
                t.stage(name, fails)
    assert drawn == [1]


def test_nothing_is_drawn_by_what_is_not_charged(lineage):
    t = Transaction(lineage, "b" * 64, ("where",), OsNoise())
    with pytest.raises(RuntimeError, match="idle, not leased"):
        t.stage("where", lambda _: pytest.fail("drawn before INTENT"))
    with pytest.raises(RuntimeError, match="not charged yet"):
        assert t.intent
    assert lineage.ledger.account("shop").spent == 0 and not str(
        recover("shop", lineage.ledger, lineage.store, lineage.place)
    )
