"""The offline job end to end, in process: contracts of the folder, the ledger and the refusals."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipeline.learners import tabular
from pipeline.privacy.noise import FastOsNoise, RealDataError, SeededNoise
from reticent import BudgetError, CardError
from tests.flows.shop import lay_out, rows
from tests.flows.verb import reticent
from tests.jobs import home_at, ingest_job, ledger_of, plan_job, policy_of, proof_of, register_job, run_job

pytestmark = pytest.mark.usefixtures("unread")


@pytest.fixture
def shop(tmp_path):
    return lay_out(tmp_path / "shop")


@pytest.fixture
def home(tmp_path, shop, opened):
    return opened(tmp_path, kind="synthetic", ledger="home")[1]


@pytest.fixture(scope="module")
def ran(tmp_path_factory, unread, opened):
    """A home with one run, for tests that only read, and what the run said."""
    folder, found = opened(tmp_path_factory.mktemp("ran"), kind="synthetic", ledger="home")
    return found, run_job(str(folder / "private.toml"), found)


def test_a_run_writes_the_whole_folder_and_charges_once(ran):
    home, r = ran
    folder = home.runs / r["run"]
    assert {p.name for p in folder.iterdir()} == {
        "release.parquet", "release.json", "policy.parquet", "policy.json", "certificate.json",
        "report.html", "report.md", "report.json", "recipe.toml",
    }  # fmt: skip
    assert 0.9 < r["ledger"]["spent_rho"] <= 1.0
    assert r["ledger"]["spent_rho"] + r["ledger"]["remaining_rho"] == pytest.approx(3.0)
    assert "truth" not in r and r["value"]["status"] == "modelled"
    for file in folder.glob("*.json"):
        assert json.loads(file.read_text())["schema_version"] == 1


def test_every_declared_cell_is_released_visited_or_not(shop, home):
    r = run_job(str(shop / "both.toml"), home)
    rows = pq.read_table(home.runs / r["run"] / "release.parquet")
    assert rows.column_names == ["table", "step", "state", "action", "next_state", "value"]
    names, sizes = np.unique(rows["table"].to_pylist(), return_counts=True)
    assert dict(zip(names.tolist(), sizes.tolist(), strict=True)) == {
        "n_sa": 3 * 2 * 3,
        "n_sas": 3 * 2 * 3 * 3,
        "r_sa": 18,
    }
    assert str(rows.schema.field("value").type) == "int64"


def test_a_second_run_replays_the_release_at_no_cost_and_to_the_byte(shop, home):
    first = run_job(str(shop / "private.toml"), home)
    before = {p.name: p.read_bytes() for p in (home.runs / first["run"]).iterdir()}
    second = run_job(str(shop / "private.toml"), home)
    assert second["replayed"] and second["run"] == first["run"]
    assert second["ledger"] == first["ledger"]
    assert {p.name: p.read_bytes() for p in (home.runs / second["run"]).iterdir()} == before


def test_other_constants_on_the_same_release_are_free(shop, home):
    first = run_job(str(shop / "private.toml"), home)
    text = (shop / "private.toml").read_text().replace('constants = "practical"', 'constants = "paper"')
    (shop / "paper.toml").write_text(text)
    second = run_job(str(shop / "paper.toml"), home)
    assert second["replayed"] and second["run"] != first["run"]
    assert second["ledger"] == first["ledger"]


def test_the_certificate_recomputes_to_what_the_ledger_was_charged(ran):
    home, r = ran
    proof = json.loads((home.runs / r["run"] / "certificate.json").read_text())
    total = sum(Fraction(m["l2_squared"], 2 * m["variance"]) for m in proof["mechanisms"])
    assert Fraction(proof["rho_exact"]) == total == ledger_of(home).account("shop").spent
    assert set(proof["sha256"]) == {"release", "policy", "labels"}
    text = json.dumps(proof)
    assert "data_digest" not in text and "quarantine" not in text


def test_a_pure_run_promises_delta_zero(shop, home):
    r = run_job(str(shop / "pure.toml"), home)
    assert r["guarantee"]["pure"] and r["guarantee"]["delta"] == 0 and 0.99 < r["guarantee"]["epsilon"] <= 1
    assert r["ledger"]["spent_rho"] == pytest.approx(r["guarantee"]["epsilon"] ** 2 / 2)


def test_more_than_is_left_is_refused_before_a_row_is_read(shop, home, monkeypatch):
    run_job(str(shop / "private.toml"), home)

    def read(*_: object) -> None:
        raise AssertionError("a row was read")

    monkeypatch.setattr(tabular, "aggregate", read)
    with pytest.raises(BudgetError, match="Nothing was read"):
        run_job(str(shop / "greedy.toml"), home)


def test_plan_reads_no_rows_and_agrees_with_the_run(tmp_path, shop):
    home = home_at(tmp_path / "fresh")
    (shop / "log.csv").unlink()
    p = plan_job(str(shop / "private.toml"), home)
    assert p["allowed"] and p["spent_before"] == 0 and {m["table"] for m in p["mechanisms"]} == {"n_sas", "r_sa"}
    lay_out(shop)
    ingest_job(str(shop), home)
    r = run_job(str(shop / "private.toml"), home)
    assert r["guarantee"]["rho"] == p["rho"] and r["guarantee"]["epsilon"] == p["epsilon"]
    assert plan_job(str(shop / "greedy.toml"), home)["allowed"] is False


def test_vetoes_hold_in_the_written_policy(ran):
    home, r = ran
    assert (policy_of(home.runs / r["run"]).policy.probabilities[:, 0, 2] == 0).all()


def test_the_baseline_on_exact_counts_is_marked_and_free(shop, home):
    r = run_job(str(shop / "exact.toml"), home)
    assert r["run"].endswith("simulation-not-private") and r["guarantee"]["epsilon"] is None
    assert r["ledger"]["spent_rho"] == 0


def test_prices_in_cents_are_summed_to_the_cent(tmp_path):
    """0.29 of a hundredth each is the 29th point of the lattice, although 0.29 · 100 is less than 29 in binary."""
    log = [(*row[:5], f"0.{i % 100:02}", row[6]) for i, row in enumerate(rows(300))]
    shop = lay_out(tmp_path / "cents", log=log)
    card = shop / "card.toml"
    card.write_text(card.read_text().replace("range = [0.0, 2.0]\nsteps = 2", "range = [0.0, 1.0]\nsteps = 100"))
    for words in (("ingest", shop), ("run", shop / "exact.toml")):
        assert reticent(*words, "--home", tmp_path / "home", cwd=tmp_path).returncode == 0
    summed = pq.read_table(next((tmp_path / "home" / "runs").glob("exact-*/release.parquet")))
    found = summed.filter(pc.equal(summed["table"], "r_sa"))["value"].to_pylist()
    # half steps around the middle of the range
    assert sum(found) == sum(2 * int(sale.removeprefix("0.")) - 100 for *_, sale, _ in log)


@pytest.fixture
def real(tmp_path):
    return lay_out(tmp_path / "people", kind="real", ledger="books/ledger.db")


def test_real_data_needs_a_registration_and_its_ledger_never_moves(tmp_path, real):
    home = home_at(tmp_path / "home")
    ingest_job(str(real), home)
    with pytest.raises(BudgetError, match="does not exist"):
        run_job(str(real / "private.toml"), home)
    register_job(str(real), home)
    run_job(str(real / "private.toml"), home)
    assert (real / "books" / "ledger.db").exists() and not (home.root / "ledger.db").exists()
    other = home_at(tmp_path / "other-home")
    ingest_job(str(real), other)
    with pytest.raises(BudgetError, match="left"):
        run_job(str(real / "greedy.toml"), other)


def test_nobody_spends_more_than_the_cap_of_real_people_in_the_shell(tmp_path):
    """Leaving costs less than half of a run; whoever stays pays all of it."""
    shop = lay_out(tmp_path / "shop", kind="real", ledger="ledger.db", cap=1.0)
    recipe = (shop / "private.toml").read_text()
    (shop / "more.toml").write_text(recipe.replace("rho = 1.0", "rho = 1.9"))
    for words in (("register", shop), ("ingest", shop)):
        assert reticent(*words, cwd=tmp_path).returncode == 0
    refused = reticent("run", shop / "more.toml", cwd=tmp_path)
    assert refused.returncode == 4 and ", left 1 of 1; ask for at most what is left" in refused.stderr
    account = json.loads(reticent("ledger", "show", "--card", shop, "--json", cwd=tmp_path).stdout)["datasets"][0]
    assert account["spent_rho"] == 0


def test_real_data_refuses_seeded_and_no_noise_before_any_row(tmp_path, real):
    home = home_at(tmp_path / "home")
    register_job(str(real), home)
    with pytest.raises(RealDataError):
        run_job(str(real / "private.toml"), home, noise=SeededNoise(0))
    with pytest.raises(RealDataError):
        run_job(str(real / "exact.toml"), home)


def test_a_real_report_has_no_truth_and_no_behaviour(tmp_path, real):
    home = home_at(tmp_path / "home")
    register_job(str(real), home)
    ingest_job(str(real), home)
    (real / "private.toml").write_text((real / "private.toml").read_text() + '[evaluate]\nworld = "riverswim"\n')
    r = run_job(str(real / "private.toml"), home)
    facts = json.loads((home.runs / r["run"] / "report.json").read_text())
    assert "truth" not in facts and "truth" not in r
    assert facts["guarantee"]["claim"].startswith("differential privacy") and facts["guarantee"]["noise"] == "os"
    assert set(facts["model_baselines"]) - {"practice"} == {"uniform", "best constant"}


def test_a_sampler_that_would_use_up_delta_is_refused_before_the_charge(tmp_path):
    folder, home = lay_out(tmp_path / "shop", cap=50.0), home_at(tmp_path / "home")
    ingest_job(str(folder), home)
    with pytest.raises(CardError, match="sampler = 'exact'"):
        run_job(fast_in(folder), home)
    assert plan_job(str(folder / "private.toml"), home)["spent_before"] == 0


def test_a_refused_plan_says_what_would_still_fit(shop, home):
    run_job(str(shop / "private.toml"), home)
    refused = plan_job(str(shop / "greedy.toml"), home)
    assert not refused["allowed"] and refused["fits"]["rho"] <= 2.001
    text = (shop / "greedy.toml").read_text().replace("rho = 2.5", f"rho = {refused['fits']['rho']!r}")
    (shop / "fitting.toml").write_text(text)
    assert plan_job(str(shop / "fitting.toml"), home)["allowed"]
    assert run_job(str(shop / "fitting.toml"), home)["ledger"]["remaining_rho"] < 0.01


def test_a_refused_pure_plan_says_the_epsilon_that_fits(shop, home):
    run_job(str(shop / "greedy.toml"), home)
    text = (shop / "pure.toml").read_text()
    (shop / "loud.toml").write_text(text.replace("epsilon = 1.0", "epsilon = 3.0"))
    fits = plan_job(str(shop / "loud.toml"), home)["fits"]
    (shop / "fitting.toml").write_text(text.replace("epsilon = 1.0", f"epsilon = {fits['epsilon']!r}"))
    assert 0.9 < fits["epsilon"] < 1.1 and plan_job(str(shop / "fitting.toml"), home)["allowed"]


@pytest.mark.slow
def test_a_plan_shows_less_and_more_budget_fewer_and_more_people(shop, home):
    plan = plan_job(str(shop / "private.toml"), home)
    assert len(plan["what_if"]) == 15
    asked = [row for row in plan["what_if"] if row["rho"] == 1.0 and row["people"] == 400]
    assert asked[0]["visits"] == plan["visits_per_cell_if_even"]
    assert list(plan["people_needed"].values()) == sorted(plan["people_needed"].values())
    assert plan["epsilon_before"] == 0 < plan["epsilon_after"] == pytest.approx(plan["epsilon"])
    assert plan_job(str(shop / "exact.toml"), home)["what_if"] == []


def fast_in(shop):
    text = (shop / "private.toml").read_text().replace("rho = 1.0", 'rho = 1.0\nsampler = "table"')
    (shop / "fast.toml").write_text(text)
    return str(shop / "fast.toml")


def test_the_fast_sampler_is_named_counted_in_delta_and_checked(shop, home):
    slow = run_job(str(shop / "private.toml"), home)
    fast = run_job(fast_in(shop), home)
    assert not fast["replayed"] and fast["ledger"]["spent_rho"] == pytest.approx(2 * slow["ledger"]["spent_rho"])
    proof = json.loads((home.runs / fast["run"] / "certificate.json").read_text())
    assert "inversion with lazy bits" in proof["guarantee"]["sampler"] and proof["guarantee"]["noise"] == "os"
    slack = [Fraction(m["delta_slack"]) for m in proof["mechanisms"]]
    assert all(0 < s < Fraction(1, 10**20) for s in slack)
    assert proof["guarantee"]["delta"] == slow["guarantee"]["delta"]
    assert proof["guarantee"]["epsilon"] >= slow["guarantee"]["epsilon"]
    assert all(c.ok for c in proof_of(home.runs / fast["run"], shop).checks)


def test_a_larger_cap_replays_what_the_fast_sampler_drew(shop, home):
    run_job(fast := fast_in(shop), home)
    card = shop / "card.toml"
    card.write_text(card.read_text().replace("rho = 3.0", "rho = 4.0"))
    register_job(str(shop), home, amend=True)
    assert run_job(fast, home)["replayed"]


def test_a_sampler_whose_share_of_delta_is_not_counted_is_refused(shop, home):
    with pytest.raises(ValueError, match="delta"):
        run_job(str(shop / "private.toml"), home, noise=FastOsNoise())
    # before anything is charged
    assert not (home.root / "ledger.db").exists()
