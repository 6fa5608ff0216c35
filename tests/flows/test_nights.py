"""Night after night under one charge: the ledger, the store, what is refused, and nights whatever is delivered."""

import json
import shutil
from dataclasses import replace
from datetime import date
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from flows.config.home import plain_step
from flows.config.recipe import nightly_counter, setting
from flows.jobs import nightly
from flows.jobs.registration import refuse_forgotten_runs
from flows.server import deployments
from pipeline.ledger.ledger import open_ledger
from pipeline.ledger.steps import committed_steps, counters_problem
from pipeline.logs.aggregate import aggregate
from pipeline.privacy.continual import continual
from pipeline.privacy.noise import RealDataError, SeededNoise
from pipeline.privacy.release_file import read_release
from pipeline.transaction.continual_step import KeptSteps
from reticent import BudgetError, CardError, LogError, Store, load_card
from tests.flows.nights import FIRST, Shop, customers, shop
from tests.flows.shop import change, contents, lay_out, rows, write_recipe
from tests.flows.test_side_outputs import RECORDS
from tests.flows.verb import invoke
from tests.jobs import (
    check_night,
    home_at,
    ingest_job,
    ledger_of,
    nightly_job,
    page_of,
    proof_of,
    purge_job,
    register_job,
    run_job,
)
from tests.ledger.disjoint import disjoint

__all__ = ["shop"]
pytestmark = pytest.mark.usefixtures("unread")


def seen(shop):
    """How many people each night counted for the first time."""
    return [len(np.load(p)) for p in sorted(shop.kept.glob("seen-*"))]


@pytest.mark.parametrize("kind", [pytest.param("tree", marks=pytest.mark.slow), "toeplitz"])
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


def test_whoever_was_counted_is_not_counted_again(shop):
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


def test_rows_can_leave_the_store_and_the_counter_goes_on(shop):
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


def test_what_the_counter_keeps_is_missed_and_a_flipped_byte_noticed_before_a_charge(begun, tmp_path, monkeypatch):
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


def test_real_people_want_the_operating_systems_noise_and_the_folder_is_theirs_alone(shop):
    with pytest.raises(RealDataError):
        shop.night(1, customers(0, 100), noise=SeededNoise(0))
    run = shop.night(1, noise=None)
    for path in (shop.home.store / "shop" / "counters").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    for path in (shop.home.runs / run["run"]).iterdir():
        assert not path.name.startswith(("leaf", "seen", "rows", "key"))


def test_another_budget_is_another_counter_and_starts_with_everybody(shop):
    shop.night(1, customers(0, 200))
    found = run_job(shop.write("other", 'nights = 30\nfirst = "2026-01-01"', rho=0.5), shop.home)
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
    for old, new in (('episode_id = "visit", step = "t", ', 'next_state = "then", '), ("horizon = 3", "horizon = 1")):
        change(shop.folder / "card.toml", old, new)
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


def test_an_edition_without_rows_is_released_like_any_other(shop):
    shop.job(1, customers(0, 60))
    shop.job(2, [])
    path = write_recipe(shop.folder, "plain")
    spent = shop.ledger.account("shop").spent
    assert not run_job(str(path), shop.home)["replayed"]
    assert shop.ledger.account("shop").spent == spent + 1


def test_an_episode_waits_for_its_end_and_the_ledger_knows_the_counter_by_it(shop):
    first = 'nights = 8\nfirst = "2026-01-01"'
    waits = shop.write("waits", f'{first}\nepisodes = "closed"')
    log = customers(0, 60)
    over = {u for u, *_, left in log if left and (u, 2) not in {(r[0], r[2]) for r in log}}
    shop.append(1, [r for r in log if r[2] < 2], waits)
    shop.append(2, log, waits)
    assert 0 < len(over) < 60 and seen(shop) == [len(over), 60 - len(over)]
    told = [e.body["counter"] for e in shop.ledger.entries() if e.kind == "INTENT"]
    assert [t["episodes"] for t in told] == ["closed", "closed"]
    assert Store(shop.home.root).ledger(shop.folder).verify()["ok"]
    window = shop.write("window", f"{first}\nwindow = 4")
    assert len({shop.counter(r).key for r in (shop.recipe, waits, window)}) == 3
    # an INTENT that says another window than its counter's is of another counter
    shop.append(3, customers(100, 60), window)
    entries = shop.ledger.entries()
    lying = [e for e in entries if e.kind == "INTENT"][-1]
    said = {**lying.body, "counter": {**lying.body["counter"], "window": 5}}
    broken = [replace(e, body=said) if e.seq == lying.seq else e for e in entries]
    assert counters_problem(entries) is None
    assert "than its counter" in (counters_problem(broken) or "")


@pytest.fixture
def restored(tmp_path, monkeypatch):
    """Two nights, and store and ledger as they were after the first."""
    shop = Shop(tmp_path, monkeypatch)
    shop.night(1, customers(0, 60))
    store, ledger = shutil.copytree(shop.home.store, tmp_path / "store"), shop.folder / "ledger.db"
    shutil.copy2(ledger, tmp_path / "copy.db")
    shop.night(2, customers(60, 60))
    shutil.rmtree(shop.home.store)
    store.rename(shop.home.root / "store")
    shutil.copy2(tmp_path / "copy.db", ledger)
    return shop


def test_an_older_ledger_and_store_agree_with_each_other_and_published_runs_know_better(restored):
    before = restored.ledger.entries()
    for job in (run_job, nightly_job):
        with pytest.raises(BudgetError, match=r"lacks entry 9, of which run night-\w+ was made"):
            job(restored.recipe, restored.home)
    assert restored.ledger.entries() == before
    found = Store(restored.home.root).ledger(restored.folder).verify()
    assert not found["ok"] and "lacks entry 9" in found["problem"]


def test_a_published_release_is_never_replaced_by_another_draw_of_it(restored):
    [night] = [p for p in restored.home.runs.glob("night-*") if '"night": 2' in (p / "certificate.json").read_text()]
    # without its certificate a run is no witness
    (night / "certificate.json").unlink()
    kept = contents(night)
    with pytest.raises(BudgetError, match="holds another release than entry 9 committed"):
        restored.night(2, customers(60, 60))
    assert contents(night) == kept
    # out of the way, the draw that was paid for is published
    night.rename(restored.folder / "aside")
    assert restored.night(2)["run"] == night.name


def test_runs_of_other_lineages_and_runs_without_a_charge_are_no_witnesses(tmp_path):
    restored, home = lay_out(tmp_path / "shop", log=rows(60)), home_at(tmp_path / "home")
    nightly_job(str(restored / "private.toml"), home)
    run_job(str(restored / "exact.toml"), home)
    ledger = ledger_of(home)
    refuse_forgotten_runs("shop", ledger, home.runs)
    (home.root / "ledger.db").unlink()
    fresh = open_ledger(home.root / "ledger.db", create=True)
    refuse_forgotten_runs("another", fresh, home.runs)
    with pytest.raises(BudgetError, match="or the run is another ledger's"):
        refuse_forgotten_runs("shop", fresh, home.runs)


STRICT = "[tolerance]\nunknown_label = 0.0\n"


def leaves(shop):
    return [np.load(p).shape[1] > 0 for p in sorted(shop.kept.glob("leaf-*"))]


def test_no_rows_are_an_empty_leaf(tmp_path, monkeypatch):
    shop, said = Shop(tmp_path, monkeypatch), []
    shop.job(1, customers(0, 60))
    assert shop.job(2, [], say=said.append)["exit"] == 0
    (shop.folder / "log.csv").write_bytes(b"")
    assert shop.job(3, say=said.append)["exit"] == 0
    shop.job(4, customers(60, 60))
    assert leaves(shop) == [True, False, False, True]
    assert not any("alert" in s for s in said)
    assert sum(e.kind == "INTENT" for e in shop.ledger.entries()) == 4


def test_a_log_without_rows_is_an_edition_and_its_operator_hears_of_it(shop):
    for number, content in enumerate((b"", b"customer,visit,t,mood,offer,sale,left\n"), 1):
        (shop.folder / "log.csv").write_bytes(content)
        done = invoke("--home", shop.home.root, "ingest", shop.folder)
        assert done.exit_code == 3 and "the files hold no rows" in done.stderr
        assert shop.newest.number == number


def test_without_any_edition_a_night_whose_files_cannot_be_read_fails_and_charges_nothing(shop):
    (shop.folder / "log.csv").write_bytes(b"nobody,knows,these\n")
    for recipe in (shop.recipe, str(shop.folder / "private.toml")):
        with pytest.raises(LogError):
            nightly_job(recipe, shop.home)
    assert shop.newest is None and not [e for e in shop.ledger.entries() if e.kind == "INTENT"]
    with pytest.raises(CardError, match="no snapshot"):
        run_job(shop.recipe, shop.home)


def test_an_empty_file_beside_others_takes_nothing_from_them(shop):
    change(shop.folder / "card.toml", '["log.csv"]', '["log.csv", "more*.csv"]')
    (shop.folder / "more-1.csv").write_text((shop.folder / "log.csv").read_text().splitlines()[0] + "\n")
    shop.job(1, customers(0, 60))
    (shop.folder / "more-1.csv").write_bytes(b"")
    shop.job(2, customers(60, 50))
    assert shop.newest.users == 50 and leaves(shop) == [True, True]


BROKEN = {
    # how many people each leaf counts; the third night brings it mended
    "beyond its tolerance": [60, 60, 1],
    "gone": [60, 0, 61],
    "unreadable": [60, 0, 61],
}


@pytest.mark.parametrize("how", [pytest.param(h, marks=() if h != "gone" else pytest.mark.slow) for h in BROKEN])
def test_a_log_that_breaks_its_card_stops_no_night_and_the_operator_hears_of_it(tmp_path, monkeypatch, how):
    shop, said = Shop(tmp_path, monkeypatch, budget=STRICT), []
    shop.job(1, customers(0, 60))
    shop.lay([*customers(60, 60), *RECORDS["labels outside the domain"]])
    if how == "gone":
        (shop.folder / "log.csv").unlink()
    if how == "unreadable":
        (shop.folder / "log.csv").write_bytes(b"customer,visit\n1,0\n")
    found = shop.job(2, say=said.append)
    assert (found["exit"], found["counter"]["night"]) == (3, 2)
    told = "the log of night breaks its card (LogError, exit 3); tonight has what can be read of it"
    assert said[-1] == f"alert: {told}"
    assert check_night(shop.recipe, shop.home)["problem"] == "the last night of night failed (LogError, exit 3)"
    done = invoke("--home", shop.home.root, "nightly", shop.recipe, "--json")
    assert done.exit_code == 3 and json.loads(done.stdout[done.stdout.index("{") :])["exit"] == 3
    assert shop.job(3, [*customers(60, 60), *RECORDS["one step"]])["exit"] == 0
    assert seen(shop) == BROKEN[how]
    assert check_night(shop.recipe, shop.home)["problem"] is None


def damage_what_is_set_aside(monkeypatch):
    """The next ingest's quarantine is cut short before anybody reads it."""
    made = nightly.ingest_edition

    def damaged(*args, **more):
        found = made(*args, **more)
        for file in found.folder.glob("quarantine-*.parquet"):
            file.write_bytes(file.read_bytes()[:-20])
        return found

    monkeypatch.setattr(nightly, "ingest_edition", damaged)


def test_a_damaged_quarantine_fails_no_night_that_is_published_and_its_operator_hears_of_it(tmp_path, monkeypatch):
    shop, said = Shop(tmp_path, monkeypatch, budget=STRICT), []
    shop.job(1, customers(0, 60))
    with monkeypatch.context() as patch:
        damage_what_is_set_aside(patch)
        log = [*customers(60, 60), *RECORDS["labels outside the domain"]]
        found = shop.job(2, log, say=said.append)
    assert (found["exit"], found["counter"]["night"]) == (4, 2)
    told = "the log of night cannot be judged (DamagedError, exit 4); tonight has what can be read of it"
    assert said[-1] == f"alert: {told}"
    assert check_night(shop.recipe, shop.home)["problem"] == "the last night of night failed (DamagedError, exit 4)"
    last = check_night(shop.recipe, shop.home)["last"]
    assert "damaged" in last["text"] and last["run"] == found["run"]
    assert shop.job(3, customers(120, 60))["exit"] == 0 and check_night(shop.recipe, shop.home)["problem"] is None


def test_a_server_shows_a_completed_run_whatever_became_of_the_log(tmp_path, monkeypatch):
    shop, shown = Shop(tmp_path, monkeypatch, budget=STRICT), []
    monkeypatch.setattr(deployments, "task_step", plain_step)
    monkeypatch.setattr(deployments, "publish", shown.append)
    monkeypatch.setenv("RETICENT_HOME", str(shop.home.root))
    (shop.home.root / "allowed.toml").write_text(f'recipes = ["{shop.folder}"]\n')
    for night, log in ((1, customers(0, 60)), (2, RECORDS["labels outside the domain"])):
        shop.on(night)
        shop.lay(log)
        deployments.nightly.fn(shop.recipe)
    assert [page.key for page in shown] == ["night-night", "night-night"]
    assert "night 2 of 8" in shown[1].markdown and "breaks" not in shown[1].markdown


def another(shop, tmp_path):
    """The same people's log as a lineage of another name in the same ledger."""
    other = shutil.copytree(shop.folder, tmp_path / "other")
    change(other / "card.toml", 'name = "shop"', 'name = "other"')
    change(other / "card.toml", '"ledger.db"', '"../shop/ledger.db"')
    register_job(str(other), shop.home)
    return other


def test_a_night_on_which_nothing_came_in_keeps_a_dataset_that_was_declared_apart(shop, tmp_path):
    """Nobody's rows were read then, so the ledger knows of all whose were."""
    another(shop, tmp_path)
    disjoint(shop.ledger, "other", "shop")
    shop.append(1, [])
    shop.append(2)
    shop.append(3, customers(100, 40))
    # whoever leaves the counter and joins the other is charged as if replaced in it: never too little
    paid = [e.body for e in shop.ledger.entries("shop") if e.kind == "INTENT"]
    assert not any("rho_add_remove" in body for body in paid)
    shop.ledger.intent("other", "a" * 64, Fraction(1), {"rho_add_remove": "1/2", "claimed": True})
    assert shop.ledger.account("other").lost == sum(Fraction(body["rho"]) for body in paid) + Fraction(1, 2)


def test_no_night_reads_what_came_in_before_its_dataset_was_declared_disjoint(shop, tmp_path):
    """Two deliveries wait: of the first nobody asked who is in the other dataset too."""
    ingest_job(str(another(shop, tmp_path)), shop.home)
    shop.deliver(customers(0, 40))
    disjoint(shop.ledger, "shop", "other")
    shop.on(2)
    shop.deliver(customers(1000, 40))
    with pytest.raises(CardError, match=r"before it was declared disjoint from other.*ingest again"):
        shop.append(2)
    assert shop.ledger.account("shop").spent == 0
