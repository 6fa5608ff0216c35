"""One form of a user id over nights, claims and splits; and homes of before there was one."""

import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import reticent
from pipeline.ledger.ledger import Ledger
from pipeline.logs import contribution_bounding, ingest, sources, spills
from pipeline.logs.parts import Split
from pipeline.logs.store import latest
from tests.flows.nights import Shop, customers
from tests.flows.shop import lay_out, write_log
from tests.flows.test_nights import seen as counted
from tests.jobs import home_at, ingest_job, ledger_in, register_job
from tests.ledger.disjoint import disjoint

pytestmark = pytest.mark.usefixtures("unread")

HONEST = contribution_bounding._known_before
COLUMNS = {"customer": int, "visit": int, "t": int, "mood": str, "offer": str, "sale": int, "left": bool}
Spell = Callable[[str], str]
SPELLINGS: dict[str, Spell] = {
    "integers": lambda user: user[1:],
    "floats": lambda user: f"{user[1:]}.0",
    "composed": lambda user: f"é{user}",
    "decomposed": lambda user: unicodedata.normalize("NFD", f"é{user}"),
    "blanks": lambda user: f" {user}",
}


def delivery(first: int, count: int) -> pl.DataFrame:
    """Customers whose ids are numbers."""
    rows = [(int(user[1:]), *rest) for user, *rest in customers(first, count)]
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def with_nobodys(frame: pl.DataFrame) -> pl.DataFrame:
    """The same and one record without an id, as pandas holds it: every id becomes a float."""
    nobodys = frame[0].with_columns(pl.lit(None, dtype=pl.Int64).alias("customer"))
    return pl.concat([frame, nobodys]).with_columns(pl.col("customer").cast(pl.Float64))


def released(shop: Shop, night: int, frame: pl.DataFrame, form: str) -> float:
    """Transitions in the tables that a night releases."""
    shop.on(night)
    store = reticent.Store(shop.home.root)
    if form == "frame":
        store.ingest(shop.folder, frame)
    else:
        frame.write_csv(shop.folder / "log.csv")
        store.ingest(shop.folder)
    run = reticent.run(shop.recipe, store=store)
    return float(pl.read_parquet(run.folder / "release.parquet").filter(pl.col("table") == "n_sas")["value"].sum())


@pytest.mark.parametrize("form", ["csv", pytest.param("frame", marks=pytest.mark.slow)])
def test_one_record_without_an_id_makes_nobody_new(tmp_path, monkeypatch, form):
    shop = Shop(tmp_path, monkeypatch)
    first = released(shop, 1, delivery(0, 400), form)
    second = released(shop, 2, with_nobodys(delivery(0, 400)), form)
    assert first > 600
    assert abs(second - first) < first / 4


def spelt(log: list[tuple], how: str) -> list[tuple]:
    return [(SPELLINGS[how](user), *rest) for user, *rest in log]


@contextmanager
def older(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a version did that took ids as they were delivered, and knew all real people of a ledger."""
    with monkeypatch.context() as then:
        then.setattr(Ledger, "knows_people", lambda _: True)
        then.setattr(sources, "with_ids", lambda frame, _: frame.with_columns(pl.lit(None).alias("delivered")))
        then.setattr(ingest, "IDS", 0)
        for module in (ingest, contribution_bounding):
            then.setattr(module, "canonical", lambda text: text)
            then.setattr(module, "spellings", lambda person: [])
        yield


NEVER, CAPPED = 'recurs = "never"', 'episodes_per_user = 2\nrecurs = "capped"'
CHANGES = [("integers", "floats"), ("floats", "integers"), ("decomposed", "composed"), ("composed", "decomposed")]


@pytest.mark.parametrize(
    ("before", "now", "unit"),
    [
        pytest.param(*change, (NEVER, CAPPED)[i % 2], marks=pytest.mark.slow if i > 1 else ())
        for i, change in enumerate([*CHANGES, ("blanks", "blanks"), ("decomposed", "decomposed"), CHANGES[1]])
    ],
)
def test_nights_of_an_older_version_go_on_and_count_nobody_anew(tmp_path, monkeypatch, before, now, unit):
    shop = Shop(tmp_path, monkeypatch, unit=unit)
    with older(monkeypatch):
        shop.append(1, spelt(customers(0, 60), before))
    shop.append(2, spelt(customers(0, 80), now))
    assert counted(shop) == [60, 20]
    assert sum(e.kind == "INTENT" and e.body["rho"] != "0" for e in shop.ledger.entries()) == 1


def unclaimed(folder: Path, monkeypatch: pytest.MonkeyPatch, unit: str = "") -> Shop:
    """A ledger that knows nobody: its people are made up, so what nights keep is all there is to know them by."""
    shop = Shop(folder, monkeypatch, kind="synthetic", unit=unit)
    register_job(str(shop.folder), shop.home)
    return shop


def check_nights(folder: Path, monkeypatch: pytest.MonkeyPatch, before: str = "floats", now: str = "integers") -> None:
    shop = unclaimed(folder, monkeypatch)
    with older(monkeypatch):
        shop.append(1, spelt(customers(0, 30), before))
    shop.append(2, spelt(customers(0, 40), now))
    shop.append(3, spelt(customers(0, 40), before))
    assert counted(shop) == [30, 10, 0]


@pytest.mark.parametrize(
    ("before", "now"), [CHANGES[0], CHANGES[3], pytest.param("blanks", "blanks", marks=pytest.mark.slow)]
)
def test_nights_know_whom_they_counted_without_a_claim(tmp_path, monkeypatch, before, now):
    check_nights(tmp_path, monkeypatch, before, now)


def test_a_capped_person_has_m_episodes_in_all_spellings_together(tmp_path, monkeypatch):
    shop = unclaimed(tmp_path, monkeypatch, 'episodes_per_user = 3\nrecurs = "capped"')
    visits = lambda how, *numbers: [(u, n, *rest) for n in numbers for u, _, *rest in spelt(customers(0, 20), how)]  # noqa: E731
    with older(monkeypatch):
        shop.append(1, visits("floats", 0))
        shop.append(2, visits("integers", 1))
    # visits 0 and 1 are known under either text, and one more is left to each
    shop.append(3, visits("integers", 0) + visits("floats", 1, 2, 3))
    shop.append(4, visits("floats", 4))
    assert counted(shop) == [20, 20, 20, 0]


def check_an_old_edition(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who stands in it in two spellings counts once."""
    shop = Shop(folder, monkeypatch)
    with older(monkeypatch):
        shop.on(1)
        shop.deliver(spelt(customers(0, 30), "floats") + spelt(customers(0, 30), "integers"))
    assert shop.newest.users == 60
    shop.append(1)
    assert counted(shop) == [30]


def test_an_edition_of_an_older_version_counts_nobody_twice(tmp_path, monkeypatch):
    check_an_old_edition(tmp_path, monkeypatch)


def nobody_known(*args: Any) -> pl.DataFrame:
    return HONEST(*args).clear()


@pytest.mark.parametrize(
    ("part", "twin", "check"),
    [("canonical", lambda text: text, check_an_old_edition), ("_known_before", nobody_known, check_nights)],
)
def test_the_twin_whose_nights_know_ids_as_they_were_delivered_is_caught(tmp_path, monkeypatch, part, twin, check):
    monkeypatch.setattr(contribution_bounding, part, twin)
    with pytest.raises(AssertionError):
        check(tmp_path, monkeypatch)


def test_the_twin_whose_snapshots_hold_ids_as_they_were_delivered_is_caught(tmp_path, monkeypatch):
    """One form in the hash that chooses a partition, and in no other."""
    honest = spills.read_partition

    def delivered(*args):
        rows, beyond = honest(*args)
        return rows.with_columns(raw_user=pl.coalesce("delivered", "raw_user")) if "delivered" in rows else rows, beyond

    monkeypatch.setattr(spills, "read_partition", delivered)
    monkeypatch.setattr(contribution_bounding, "canonical", lambda text: text)
    monkeypatch.setattr(contribution_bounding, "spellings", lambda person: [])
    with pytest.raises(AssertionError):
        test_one_record_without_an_id_makes_nobody_new(tmp_path, monkeypatch, "csv")


def people_of(shop: Shop) -> pl.DataFrame:
    parts = shop.newest.part_files
    return pl.concat([pl.read_parquet(p) for p in parts]).with_columns(pl.col("user_id").cast(pl.String))


@pytest.mark.parametrize(
    ("before", "now"), [CHANGES[1], CHANGES[2], pytest.param("blanks", "blanks", marks=pytest.mark.slow)]
)
def test_an_old_lineage_keeps_its_split(tmp_path, monkeypatch, before, now):
    """Whom the ledger knows from before is hashed under the text of then; new people under the one form."""
    shop, split = Shop(tmp_path, monkeypatch), Split(Fraction(3, 10), bytes(32))
    with older(monkeypatch):
        shop.deliver(spelt(customers(0, 60), before))
    learnt, judged = (set(rows["user_id"]) for rows in split.cut(people_of(shop)))
    assert len(judged) > 5
    shop.deliver(spelt(customers(0, 90), now))
    learn, judge = (set(rows["user_id"]) for rows in split.cut(people_of(shop)))
    assert learnt < learn and judged < judge and len(learn | judge) == 90
    # all the same, whichever spelling comes next
    rows = people_of(shop)
    shop.deliver(spelt(customers(0, 90), before))
    assert people_of(shop).equals(rows)


def test_an_old_lineage_of_texts_is_ingested_and_run_from_integers(tmp_path, monkeypatch, constants):
    """Some partitions then hold ids of then as text, others integers."""
    shop = Shop(tmp_path, monkeypatch, cap=3.0)
    with older(monkeypatch):
        shop.deliver(spelt(customers(0, 3), "floats"))
    store = reticent.Store(shop.home.root)
    constants(partition=150)
    ingested = store.ingest(shop.folder, delivery(0, 400))
    assert {pl.read_parquet_schema(p)["user_id"] for p in shop.newest.part_files} == {pl.Int64(), pl.String()}
    assert ingested["users"] == 400 and ingested["report"]["people_lost"] == 0
    run = reticent.run(shop.folder / "private.toml", store=store)
    found = pl.read_parquet(run.folder / "release.parquet").filter(pl.col("table") == "n_sas")["value"].sum()
    assert abs(found - 1060) < 200
    assert store.inspect(shop.folder)["people"]["counted"] == 400


@pytest.mark.parametrize("old", [False, True])
def test_disjoint_lineages_know_a_person_in_every_spelling(tmp_path, monkeypatch, old):
    home = home_at(tmp_path / "home")
    for name in "ab":
        register_job(str(lay_out(tmp_path / name, name=name, kind="real", ledger="../ledger.db")), home)
    disjoint(ledger_in(tmp_path), "b", "a")

    def deliver(name: str, log: list[tuple]) -> int:
        write_log(tmp_path / name, log)
        ingest_job(str(tmp_path / name), home)
        return latest(home.store, name).users

    with older(monkeypatch) if old else nullcontext():
        assert deliver("a", spelt(customers(0, 30), "floats") + spelt(customers(0, 30), "decomposed")) == 60
    assert deliver("b", spelt(customers(0, 40), "integers") + spelt(customers(0, 40), "composed")) == 20
    assert deliver("a", spelt(customers(0, 40), "integers") + spelt(customers(0, 40), "composed")) == 60
