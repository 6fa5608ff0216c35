"""Nights that die, are tried again, or are drawn wrongly: what is charged is never less than what was drawn."""

from fractions import Fraction

import numpy as np
import pytest

import pipeline.ledger.steps
import pipeline.privacy.continual
import pipeline.transaction.continual_step
import pipeline.transaction.transaction
from pipeline.ledger.chain import Entry
from pipeline.ledger.steps import committed_steps, mispriced, overtaken, step_price
from pipeline.privacy.continual import NoiseBlocks, continual, squared_weights
from pipeline.privacy.release import Mechanism
from pipeline.privacy.release_file import describe_mechanism, read_release
from pipeline.transaction.continual_step import KeptSteps, digest
from reticent import BudgetError
from tests.flows.nights import Shop, customers

AFTER_THE_DRAW = "pipeline.transaction.continual_step.KeptSteps.write"
# where a night dies, whether its rows were drawn, whether the release survives
DEATHS = {
    "after INTENT": ("pipeline.transaction.continual_step.draw_step", False, False),
    "after the draw": (AFTER_THE_DRAW, True, False),
    "before the rename": ("pipeline.transaction.transaction.write_attempt", True, False),
    "before COMMIT": ("pipeline.ledger.ledger.Ledger.commit", True, True),
}


def charged(shop):
    return sum((Fraction(e.body["rho"]) for e in shop.ledger.entries() if e.kind == "INTENT"), Fraction(0))


def truly_spent(shop, drawn, kind):
    """Largest loss of one person: every draw of every row counts, however often it was drawn."""
    rows = [row for since, night in drawn for t in range(since, night + 1) for row in continual(kind, 8).rows(t)]
    e = next(e for e in shop.ledger.entries() if e.kind == "INTENT")
    once = sum(Fraction(m["l2_squared"], 2 * m["variance"]) for m in e.body["mechanisms"])
    return squared_weights(rows) * once


@pytest.fixture
def draws(monkeypatch):
    """Leaves (since, night) of every call that drew noise."""
    found, draw, exact_rows = [], NoiseBlocks.draw, pipeline.privacy.continual.exact_rows
    due = []

    def noted(rows, leaf, size):
        due.append(rows)
        return exact_rows(rows, leaf, size)

    def drawn(self, rows):
        ends = sorted({r.first + len(r.weights) - 1 for r in due[-1]})
        found.append((ends[0], ends[-1]))
        return draw(self, rows)

    monkeypatch.setattr(pipeline.privacy.continual, "exact_rows", noted)
    monkeypatch.setattr(NoiseBlocks, "draw", drawn)
    return found


# the two counters differ in what a second draw costs, and in nothing else of a death
@pytest.mark.parametrize(("death", "kind"), [*((death, "tree") for death in DEATHS), ("after the draw", "toeplitz")])
def test_a_night_that_died_is_recovered_or_pays_for_what_it_draws_again(
    tmp_path, monkeypatch, dies_at, draws, death, kind
):
    place, drew, survives = DEATHS[death]
    shop = Shop(tmp_path, monkeypatch, counter=kind)
    shop.append(1, customers(0, 60))
    whole = charged(shop)
    with dies_at(place):
        shop.append(3, customers(60, 60))
    assert charged(shop) == whole and len(draws) == 1 + drew
    again = shop.append(3)
    assert len(draws) == (2 if survives else 2 + drew)
    assert again.replayed == survives and bool(again.recovered.committed) == survives
    # nodes that end at leaf 2 or 3, or square-root rows 2 and 3, once more
    rows = [row for t in (2, 3) for row in continual(kind, 8).rows(t)]
    part = Fraction(squared_weights(rows), continual(kind, 8).cost)
    assert charged(shop) == whole * (1 + (part if drew and not survives else 0))
    assert charged(shop) >= truly_spent(shop, draws, kind) * Fraction(99, 100)
    shop.append(4, customers(120, 60))
    assert charged(shop) == whole * (1 + (part if drew and not survives else 0))
    kept = {p.name.split("-")[1] for p in shop.kept.glob("rows-*")}
    assert kept == {"00001.1.npy", "00003.1.npy" if survives else "00003.2.npy", "00004.1.npy"}
    assert mispriced(shop.ledger.entries(), "shop", shop.counter().key) is None


def test_a_first_night_that_died_and_is_skipped_pays_once_more_for_its_own_rows_alone(tmp_path, monkeypatch, dies_at):
    shop = Shop(tmp_path, monkeypatch)
    with dies_at(AFTER_THE_DRAW):
        shop.append(1, customers(0, 60))
    whole = charged(shop)
    shop.append(2)
    assert charged(shop) == whole * (1 + Fraction(1, 4))


def test_rows_once_released_stay_what_they_are_and_every_sum_is_read_off_them(tmp_path, monkeypatch):
    for kind in ("tree", "toeplitz"):
        shop = Shop(tmp_path / kind, monkeypatch, counter=kind)
        kept: dict[str, bytes] = {}
        for night in (1, 2, 4, 5):
            found = shop.append(night, customers(60 * night, 60))
            now = {p.name: p.read_bytes() for p in shop.kept.iterdir()}
            assert all(now[name] == content for name, content in kept.items())
            kept = now
            assert_read_off(shop, found, kind, night)


def assert_read_off(shop, found, kind, night):
    counter, nights = continual(kind, 8), committed_steps(shop.ledger.entries(), "shop", shop.counter().key)
    assert digest(np.load(sorted(shop.kept.glob("rows-*"))[-1])) == nights[-1].commit.body["drawn_sha256"]
    size = sum(m.cells for m in found.release.mechanisms)
    kept = KeptSteps(shop.kept, counter, nights, size)
    total = np.rint(counter.total(night, kept.rows)).astype(np.int64)
    released = read_release(found.folder)
    published = np.concatenate([released.tables[m.table].reshape(-1) for m in released.mechanisms])
    assert np.array_equal(total, published), "the sum is not read off the released rows"


def test_noise_that_is_drawn_again_on_reading_is_caught(tmp_path, monkeypatch):
    rows = KeptSteps.rows
    shop = Shop(tmp_path, monkeypatch)
    shop.append(1, customers(0, 60))
    with monkeypatch.context() as broken:
        noise = np.random.default_rng(0).integers
        broken.setattr(KeptSteps, "rows", lambda self, t: rows(self, t) + noise(-9, 9, self.size))
        found = shop.append(3, customers(60, 60))
    with pytest.raises(AssertionError, match="not read off"):
        assert_read_off(shop, found, "tree", 3)


@pytest.mark.parametrize("forgets", ["a table", "what was drawn before"])
def test_a_counter_that_is_charged_too_little_is_caught(tmp_path, monkeypatch, dies_at, forgets):
    shop = Shop(tmp_path, monkeypatch)
    key = shop.counter().key

    def cheap(entries, before, counter, mechanisms, joint=None):
        if forgets == "a table":
            return step_price(entries, before, counter, mechanisms[:-1])
        return step_price(entries, before, counter, mechanisms) if not before else Fraction(0)

    monkeypatch.setattr(pipeline.transaction.continual_step, "step_price", cheap)
    shop.append(1, customers(0, 60))
    with dies_at(AFTER_THE_DRAW):
        shop.append(2, customers(60, 60))
    shop.append(2)
    caught = mispriced(shop.ledger.entries(), "shop", key)
    assert caught is not None and caught.body["counter"]["night"] == (1 if forgets == "a table" else 2)


def test_a_retry_that_the_cap_does_not_allow_is_refused_and_the_release_stands(tmp_path, monkeypatch, dies_at):
    shop = Shop(tmp_path, monkeypatch, cap=1.05)
    first = shop.append(1, customers(0, 60))
    with dies_at(AFTER_THE_DRAW):
        shop.append(2, customers(60, 60))
    with pytest.raises(BudgetError, match=r"asked ρ = 0\.5"):
        shop.append(2)
    assert first.folder.is_dir() and not list(shop.kept.glob("*-00002*"))


def test_a_night_that_another_store_overtook_is_neither_drawn_nor_committed():
    """Two stores on one ledger: intervals that overlap would count people twice and pay once."""
    first, other = night_entries((1, 1), (2, 3))
    assert overtaken(first, "shop", {"key": "k", "since": 2, "night": 2}).t == 3
    # the last night of the other's interval is counted there as well
    assert overtaken(first, "shop", {"key": "k", "since": 3, "night": 4}).t == 3
    assert overtaken(first, "shop", {"key": "k", "since": 4, "night": 4}) is None
    assert mispriced(other, "shop", "k") is None
    # nothing was charged for it yet
    assert mispriced(other, "shop", "another") is None
    twice, _ = night_entries((1, 1), (2, 3), (2, 2))
    assert mispriced(twice, "shop", "k").body["counter"]["night"] == 2
    touching, _ = night_entries((1, 1), (2, 3), (3, 4))
    assert mispriced(touching, "shop", "k").body["counter"]["night"] == 4


def night_entries(*intervals):
    """A chain of committed nights of the counter ``k``, each fully paid, and the same without the last."""
    listed = [describe_mechanism(Mechanism("n_sas", (2,), "transitions", 2, 2, "", variance=10))]
    found = []
    for seq, (since, night) in enumerate(intervals):
        counter = {"key": "k", "since": since, "night": night, "kind": "tree", "nights": 8}
        said = {"run_key": f"{seq}" * 64, "attempt": 1, "rho": "9", "counter": counter, "mechanisms": listed}
        found.append(entry(2 * seq, "INTENT", said))
        found.append(entry(2 * seq + 1, "COMMIT", {"run_key": said["run_key"], "intent": 2 * seq, "attempt": 1}))
    return found, found[:-2]


def entry(seq, kind, body):
    return Entry(seq=seq, at="2026-01-01T00:00:00+00:00", lineage="shop", kind=kind, body=body, previous="", hash="")
