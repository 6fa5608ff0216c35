"""Night after night under one charge: the ledger, the store, the folder of each run, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from flows.config.recipe import nightly_counter, setting
from pipeline.ledger.steps import committed_steps, counters_problem
from pipeline.logs.aggregate import aggregate
from pipeline.privacy.continual import continual
from pipeline.privacy.noise import RealDataError, SeededNoise
from pipeline.privacy.release_file import read_release
from pipeline.transaction.continual_step import KeptSteps
from reticent import BudgetError, CardError, Store, load_card
from tests.flows.nights import FIRST, Shop, customers
from tests.flows.shop import RECIPE
from tests.jobs import page_of, proof_of, purge_job, run_job

pytestmark = pytest.mark.usefixtures("unread")

KINDS = ("tree", "toeplitz")


def seen(shop):
    """How many people each night counted for the first time."""
    return [len(np.load(p)) for p in sorted(shop.kept.glob("seen-*"))]


@pytest.mark.parametrize("kind", [pytest.param(k, marks=() if k == "toeplitz" else pytest.mark.slow) for k in KINDS])
def test_every_night_has_a_policy_from_all_data_so_far_under_one_charge(tmp_path, monkeypatch, kind):
    shop = Shop(tmp_path, monkeypatch, counter=kind)
    everybody, runs, said = [], [], list[str]()
    for night in (1, 2, 3, 6):
        tonight = customers(200 * night, 200, seed=night)
        everybody += tonight
        runs.append(shop.night(night, tonight, say=said.append))
    # no fraction of twenty digits
    assert [line.partition(": ")[2] for line in said if "charged" in line] == ["charged ρ = 1", *3 * ["charged ρ = 0"]]
    charges = [Fraction(e.body["rho"]) for e in shop.ledger.entries() if e.kind == "INTENT"]
    assert 0.99 < charges[0] <= 1 and charges[1:] == [0, 0, 0]
    assert runs[-1]["ledger"]["spent_rho"] == float(charges[0])
    assert [r["counter"]["night"] for r in runs] == [1, 2, 3, 6] and runs[-1]["counter"]["since"] == 4
    # the noise is that of a sum of all nights, so the sum is near the exact counts of everybody
    shop.deliver(everybody)
    exact = aggregate(shop.newest, load_card(shop.folder / "card.toml")).tables
    release, squares = read_release(shop.home.runs / runs[-1]["run"]), []
    for m in release.mechanisms:
        off = (release.tables[m.table] - exact[m.table]) / m.standard_deviation
        squares += list(off.ravel() ** 2)
        assert np.abs(off).max() < 5.5
        assert m.standard_deviation**2 == pytest.approx(m.variance * continual(kind, 8).error(6))
        assert np.abs(exact[m.table]).max() > 2 * m.standard_deviation
    assert 1e-6 < chi2(len(squares)).cdf(sum(squares)) < 1 - 1e-6
    for r in runs:
        proof = proof_of(shop.home.runs / r["run"], shop.folder)
        assert proof.ok and all(c.ok for c in proof.checks), proof


def test_an_unchanged_night_is_an_empty_leaf_that_costs_nothing_and_a_second_snapshot_waits(tmp_path, monkeypatch):
    shop, said = Shop(tmp_path, monkeypatch), []
    first = shop.night(1, customers(0, 100))
    again = shop.night(2, customers(0, 100))
    assert not again["replayed"] and (again["counter"]["night"], again["counter"]["since"]) == (2, 2)
    assert again["ledger"] == first["ledger"]
    assert np.load(next(shop.kept.glob("leaf-00002*"))).shape == (2, 0)
    third = shop.night(3, customers(100, 100))
    before = shop.ledger.entries()
    waits = shop.night(3, customers(300, 100), say=said.append)
    assert (waits["run"], waits["replayed"]) == (third["run"], True) and shop.ledger.entries() == before
    assert any("what came in since waits for the next night" in s for s in said)
    assert json.loads((shop.home.runs / waits["run"] / "report.json").read_text())["dataset"]["snapshot"] is None
    fourth = shop.night(4, customers(500, 100))
    # both snapshots since night 3 are counted
    total = read_release(shop.home.runs / fourth["run"]).tables["n_sas"].sum()
    assert total == pytest.approx(len(customers(0, 100)) * 4, abs=400)


def test_whoever_was_counted_is_not_counted_again(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch)
    shop.append(1, customers(0, 200))
    kept = sorted(shop.kept.glob("leaf-*"))
    corrected = [(u, v, t, mood, "none", 0, left) for u, v, t, mood, _, _, left in customers(0, 200)]
    late = [(u, 7, t, *rest) for u, _, t, *rest in customers(0, 50)]
    shop.append(2, corrected + late)
    shop.append(3, customers(190, 20))
    leaves = [np.load(p) for p in sorted(shop.kept.glob("leaf-*"))]
    assert len(leaves) == 3 and leaves[1].shape == (2, 0) and kept[0].name.startswith("leaf-00001.1")
    assert seen(shop) == [200, 0, 10]


def test_a_capped_person_adds_at_most_m_episodes_over_all_nights(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, unit='episodes_per_user = 2\nrecurs = "capped"')
    visits = lambda *numbers: [(u, n, t, *rest) for n in numbers for u, _, t, *rest in customers(0, 30)]  # noqa: E731
    for night, numbers in enumerate([(0,), (0, 1, 2), (0, 1, 2, 3)], 1):
        shop.append(night, visits(*numbers))
    pairs = [np.load(p) for p in sorted(shop.kept.glob("seen-*"))]
    assert len(pairs[0]) == 30
    users, counted = np.unique(np.concatenate(pairs)[:, :2], axis=0, return_counts=True)
    assert len(users) == 30 and counted.max() == 2
    entry = next(e for e in shop.ledger.entries() if e.kind == "INTENT")
    n_sas = next(m for m in entry.body["mechanisms"] if m["table"] == "n_sas")
    # 2 H m^2 of one release in place of 2 H m
    assert n_sas["l2_squared"] == 2 * 3 * 2**2


def test_the_nights_end_and_other_dates_are_refused(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, nights=2)
    shop.on(1)
    shop.deliver(customers(0, 50))
    with pytest.raises(CardError, match="2026-01-02 is to come"):
        run_job(shop.recipe, shop.home, day=date(2026, 1, 2))
    with pytest.raises(CardError, match="before the counter's first night"):
        run_job(shop.recipe, shop.home, day=date(2025, 12, 31))
    shop.night(2)
    # whether or not something came in
    for log in (None, customers(50, 50)):
        with pytest.raises(BudgetError, match="2 nights ended on 2026-01-02"):
            shop.night(9, log)
    assert run_job(shop.recipe, shop.home, day=date(2026, 1, 2))["counter"]["night"] == 2
    assert sum(e.kind == "INTENT" for e in shop.ledger.entries()) == 1


def test_a_counter_beyond_the_cap_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, cap=0.5)
    with pytest.raises(BudgetError, match=r"asked ρ = 1, left 0\.5 of 0\.5"):
        shop.night(1, customers(0, 50))
    assert not list((shop.home.store / "shop").glob("counters/*/leaf-*"))


def test_rows_can_leave_the_store_and_the_counter_goes_on(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch)
    shop.append(1, customers(0, 200))
    purged = purge_job(str(shop.folder), shop.home, yes=True)
    assert "a nightly counter keeps its exact leaf tables" in purged["not_undone"][-1]
    shop.append(2, customers(0, 300))
    assert seen(shop) == [200, 100]
    assert Store(shop.home.root).ledger(shop.folder).verify()["ok"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A counter's first night, and what is delivered for the second."""
    with pytest.MonkeyPatch.context() as patch:
        shop = Shop(tmp_path_factory.mktemp("begun"), patch)
        shop.night(1, customers(0, 60))
        shop.deliver(customers(100, 60))
    return shop


def test_what_the_counter_keeps_is_missed_and_a_flipped_byte_noticed_before_anything_is_charged(
    begun, tmp_path, monkeypatch
):
    shop = begun.copied(tmp_path, monkeypatch)
    before = shop.ledger.entries()
    for name in ("leaf", "seen", "rows", "note", "key"):
        path = next(shop.kept.glob(f"{name}*"))
        content = path.read_bytes()
        for at in (0, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            with pytest.raises(BudgetError, match=r"not what (its night wrote|entry 5 committed)"):
                shop.night(2)
        path.write_bytes(content)
        away = path.rename(tmp_path / name)
        with pytest.raises(BudgetError, match="of a counter that has begun is gone"):
            shop.night(2)
        away.rename(path)
    assert shop.ledger.entries() == before
    assert shop.night(2)["counter"]["night"] == 2
    first, second = sorted(shop.kept.glob("seen-*"))
    first.write_bytes(second.read_bytes())
    with pytest.raises(BudgetError, match=r"seen-00001\.1\.npy is not what its night wrote"):
        shop.night(3)


def test_what_is_kept_is_checked_whenever_it_is_read(begun, tmp_path, monkeypatch):
    shop = begun.copied(tmp_path, monkeypatch)
    nightly = shop.counter()
    nights = committed_steps(shop.ledger.entries(), "shop", nightly.key)
    kept = KeptSteps(shop.kept, nightly.counter, nights, 1000)
    for kind, length, read in (("leaf", 1000, lambda: kept.exact(1)), ("seen", 60, lambda: kept.seen(2))):
        assert len(read()) == length
        path = next(shop.kept.glob(f"{kind}-*"))
        raw = path.read_bytes()
        path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        with pytest.raises(BudgetError, match="edited or damaged"):
            read()


def test_real_people_want_the_operating_systems_noise_and_the_folder_is_theirs_alone(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch)
    with pytest.raises(RealDataError):
        shop.night(1, customers(0, 100), noise=SeededNoise(0))
    run = shop.night(1, noise=None)
    for path in (shop.home.store / "shop" / "counters").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    for path in (shop.home.runs / run["run"]).iterdir():
        assert not path.name.startswith(("leaf", "seen", "rows", "key"))


def test_another_budget_is_another_counter_and_starts_with_everybody(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch)
    shop.night(1, customers(0, 200))
    other = shop.write("other", 'nights = 30\nfirst = "2026-01-01"', rho=0.5)
    found = run_job(other, shop.home)
    assert found["counter"]["night"] == 1 and found["ledger"]["spent_rho"] > 1.4
    assert [len(np.load(p)) for p in (shop.home.store / "shop").glob("counters/*/seen-*")] == [200, 200]


def test_the_nightly_job_goes_on_with_the_counter_and_says_what_a_night_cost(tmp_path, monkeypatch):
    shop, said = Shop(tmp_path, monkeypatch), []
    for night, log in ((1, customers(0, 100)), (2, customers(100, 100)), (3, customers(100, 100))):
        found = shop.job(night, log, say=said.append)
        assert found["night"]["charged_rho"] == (pytest.approx(1, abs=0.01) if night == 1 else 0)
        assert not found["night"]["unchanged"] and found["night"]["snapshot"] is None
        assert found["counter"]["night"] == night
    assert f"night 3 of 8 ({FIRST.replace(day=3)}); nothing was charged" in page_of(found).markdown
    assert [(c["rho"] > 0, c["night"]) for c in found["night"]["charges"]] == [(True, 1), (False, 2), (False, 3)]
    assert all("snapshot" not in c for c in found["night"]["charges"])
    assert shop.job(3)["night"]["unchanged"] and "drawn already" in page_of(shop.job(3)).markdown


def test_a_person_without_an_episode_column_cannot_be_capped_over_nights(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, kind="synthetic", unit='episodes_per_user = 2\nrecurs = "capped"')
    card = shop.folder / "card.toml"
    text = card.read_text().replace('episode_id = "visit", step = "t", ', "").replace("horizon = 3", "horizon = 1")
    card.write_text(text.replace('terminated = "left"', 'next_state = "then", terminated = "left"'))
    with pytest.raises(CardError, match=r"\[nightly\] with recurs = 'capped' needs source.columns.episode_id"):
        shop.job(1, customers(0, 60))
    assert shop.newest is None


def test_records_told_by_their_place_in_a_file_make_no_counter(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, kind="synthetic")
    s = setting(shop.recipe, shop.home)
    source = s.tabular.source.model_copy(update={"format": "transitions"})
    placed = replace(s, card=s.tabular.model_copy(update={"source": source}))
    with pytest.raises(CardError, match=r"needs rows that name their person; source.format = 'transitions'"):
        nightly_counter(placed)


def test_an_edition_without_rows_is_released_like_any_other(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch)
    shop.job(1, customers(0, 60))
    shop.job(2, [])
    path = shop.folder / "plain.toml"
    path.write_text(RECIPE.format(name="plain", agent="dp-apvi", privacy="[privacy]\nrho = 1.0\n"))
    spent = shop.ledger.account("shop").spent
    assert not run_job(str(path), shop.home)["replayed"]
    assert shop.ledger.account("shop").spent == spent + 1


def test_an_episode_waits_for_its_end_and_the_ledger_knows_the_counter_by_it(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch)
    first = 'nights = 8\nfirst = "2026-01-01"'
    waits = shop.write("waits", f'{first}\nepisodes = "closed"')
    log = customers(0, 60)
    over = {u for u, *_, left in log if left and (u, 2) not in {(r[0], r[2]) for r in log}}
    shop.append(1, [r for r in log if r[2] < 2], waits)
    shop.append(2, log, waits)
    assert 0 < len(over) < 60 and seen(shop) == [len(over), 60 - len(over)]
    told = [e.body["counter"] for e in shop.ledger.entries() if e.kind == "INTENT"]
    assert [t["episodes"] for t in told] == ["closed", "closed"] and Store(shop.home.root).ledger(shop.folder).verify()[
        "ok"
    ]
    window = shop.write("window", f"{first}\nwindow = 4")
    keys = {shop.counter(r).key for r in (shop.recipe, waits, window)}
    assert len(keys) == 3
    # an INTENT that says another window than its counter's is of another counter
    shop.append(3, customers(100, 60), window)
    entries = shop.ledger.entries()
    lying = [e for e in entries if e.kind == "INTENT"][-1]
    said = {**lying.body, "counter": {**lying.body["counter"], "window": 5}}
    broken = [replace(e, body=said) if e.seq == lying.seq else e for e in entries]
    assert counters_problem(entries) is None
    assert "than its counter" in (counters_problem(broken) or "")
