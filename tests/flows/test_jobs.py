"""The offline job end to end: contracts of the folder, the ledger and the refusals; when a value is a bound."""

import csv
import json
from collections import Counter
from fractions import Fraction

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from flows.config.recipe import Setting, check_numbered
from flows.verbs import summary
from pipeline.facts.answers import RunAnswer
from pipeline.learners import tabular, tabular_facts
from pipeline.learners.tabular_facts import setting_key
from pipeline.ledger.certificate import Route, assumptions
from pipeline.privacy.noise import FastOsNoise, RealDataError, SeededNoise
from pipeline.worlds.simulated_logs import write_record
from reticent import BudgetError, CardError, load_card, load_recipe
from tests.campaigns.bad_input import toml
from tests.flows.office import edit
from tests.flows.shop import add, bare_recipe, change, contents, lay_out, rows, write_recipe
from tests.flows.verb import answer, reticent
from tests.jobs import (
    facts_of,
    home_at,
    ingest_job,
    ledger_in,
    ledger_of,
    plan_job,
    policy_of,
    proof_of,
    register_job,
    run_job,
)
from tests.logs.layouts import LOG, card_of, cards, write_minari_hdf5

pytestmark = pytest.mark.usefixtures("unread")


@pytest.fixture(scope="module")
def ran(tmp_path_factory, unread, opened):
    """A home with one run, for tests that only read, and what the run said."""
    folder, found = opened(tmp_path_factory.mktemp("ran"), kind="synthetic")
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
    rows = pq.read_table(home.runs / run_job(str(shop / "both.toml"), home)["run"] / "release.parquet")
    assert rows.column_names == ["table", "step", "state", "action", "next_state", "value"]
    assert Counter(rows["table"].to_pylist()) == {"n_sa": 3 * 2 * 3, "n_sas": 3 * 2 * 3 * 3, "r_sa": 18}
    assert str(rows.schema.field("value").type) == "int64"


def test_a_second_run_replays_the_release_at_no_cost_and_to_the_byte(shop, home):
    first = run_job(str(shop / "private.toml"), home)
    before = contents(home.runs / first["run"])
    second = run_job(str(shop / "private.toml"), home)
    assert second["replayed"] and second["run"] == first["run"] and second["ledger"] == first["ledger"]
    assert contents(home.runs / second["run"]) == before
    # other constants on the same release are free
    change(shop / "private.toml", 'constants = "practical"', 'constants = "paper"')
    third = run_job(str(shop / "private.toml"), home)
    assert third["replayed"] and third["run"] != first["run"] and third["ledger"] == first["ledger"]


def test_the_certificate_recomputes_to_what_the_ledger_was_charged(ran):
    home, r = ran
    proof = json.loads((home.runs / r["run"] / "certificate.json").read_text())
    total = sum(Fraction(m["l2_squared"], 2 * m["variance"]) for m in proof["mechanisms"])
    assert Fraction(proof["rho_exact"]) == total == ledger_of(home).account("shop").spent
    assert set(proof["sha256"]) == {"release", "policy", "labels"}
    assert (policy_of(home.runs / r["run"]).policy.probabilities[:, 0, 2] == 0).all(), "vetoed"
    text = json.dumps(proof)
    assert "data_digest" not in text and "quarantine" not in text


def test_a_pure_run_promises_delta_zero(shop, home):
    r = run_job(str(shop / "pure.toml"), home)
    assert r["guarantee"]["pure"] and r["guarantee"]["delta"] == 0 and 0.99 < r["guarantee"]["epsilon"] <= 1
    assert r["ledger"]["spent_rho"] == pytest.approx(r["guarantee"]["epsilon"] ** 2 / 2)


def test_more_than_is_left_is_refused_before_a_row_is_read(shop, home, monkeypatch):
    run_job(str(shop / "private.toml"), home)
    monkeypatch.setattr(tabular, "aggregate", lambda *_: pytest.fail("a row was read"))
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


def test_the_baseline_on_exact_counts_is_marked_and_free(shop, home):
    r = run_job(str(shop / "exact.toml"), home)
    assert r["run"].endswith("simulation-not-private") and r["guarantee"]["epsilon"] is None
    assert r["ledger"]["spent_rho"] == 0


def test_prices_in_cents_are_summed_to_the_cent(tmp_path):
    """0.29 of a hundredth each is the 29th point of the lattice, although 0.29 · 100 is less than 29 in binary."""
    log = [(*row[:5], f"0.{i % 100:02}", row[6]) for i, row in enumerate(rows(300))]
    shop = lay_out(tmp_path / "cents", log=log)
    change(shop / "card.toml", "range = [0.0, 2.0]\nsteps = 2", "range = [0.0, 1.0]\nsteps = 100")
    for words in (("ingest", shop), ("run", shop / "exact.toml")):
        assert reticent(*words, "--home", tmp_path / "home", cwd=tmp_path).returncode == 0
    summed = pq.read_table(next((tmp_path / "home" / "runs").glob("exact-*/release.parquet")))
    found = summed.filter(pc.equal(summed["table"], "r_sa"))["value"].to_pylist()
    # half steps around the middle of the range
    assert sum(found) == sum(2 * int(sale.removeprefix("0.")) - 100 for *_, sale, _ in log)


def test_real_data_needs_a_registration_and_noise_of_the_system_and_its_ledger_never_moves(tmp_path):
    real, home = lay_out(tmp_path / "people", kind="real", ledger="books/ledger.db"), home_at(tmp_path / "home")
    ingest_job(str(real), home)
    with pytest.raises(BudgetError, match="does not exist"):
        run_job(str(real / "private.toml"), home)
    register_job(str(real), home)
    for recipe, noise in (("private", SeededNoise(0)), ("exact", None)):
        with pytest.raises(RealDataError):
            run_job(str(real / f"{recipe}.toml"), home, noise=noise)
    assert ledger_in(real / "books").account("shop").spent == 0
    run_job(str(real / "private.toml"), home)
    assert (real / "books" / "ledger.db").exists() and not (home.root / "ledger.db").exists()
    other = home_at(tmp_path / "other-home")
    ingest_job(str(real), other)
    with pytest.raises(BudgetError, match="left"):
        run_job(str(real / "greedy.toml"), other)


def test_nobody_spends_more_than_the_cap_of_real_people_in_the_shell(tmp_path):
    """Leaving costs less than half of a run; whoever stays pays all of it."""
    shop = lay_out(tmp_path / "shop", kind="real", cap=1.0)
    change(shop / "private.toml", "rho = 1.0", "rho = 1.9")
    for verb in ("register", "ingest"):
        assert reticent(verb, shop, cwd=tmp_path).returncode == 0
    refused = reticent("run", shop / "private.toml", cwd=tmp_path)
    assert refused.returncode == 4 and ", left 1 of 1; ask for at most what is left" in refused.stderr
    assert answer(tmp_path / ".reticent", "ledger", "show", "--card", shop)["datasets"][0]["spent_rho"] == 0


def test_a_real_report_has_no_truth_and_no_behaviour(tmp_path, opened):
    real, home = opened(tmp_path)
    add(real / "private.toml", '[evaluate]\nworld = "riverswim"\n')
    r = run_job(str(real / "private.toml"), home)
    facts = json.loads((home.runs / r["run"] / "report.json").read_text())
    assert "truth" not in facts and "truth" not in r
    assert facts["guarantee"]["claim"].startswith("differential privacy") and facts["guarantee"]["noise"] == "os"
    assert set(facts["model_baselines"]) - {"practice"} == {"uniform", "best constant"}


def test_a_sampler_that_would_use_up_delta_is_refused_before_the_charge(tmp_path, opened):
    folder, home = opened(tmp_path, kind="synthetic", cap=50.0)
    with pytest.raises(CardError, match="sampler = 'exact'"):
        run_job(fast_in(folder), home)
    assert plan_job(str(folder / "private.toml"), home)["spent_before"] == 0


def test_a_refused_plan_says_what_would_still_fit(shop, home):
    run_job(str(shop / "private.toml"), home)
    refused = plan_job(str(shop / "greedy.toml"), home)
    assert not refused["allowed"] and refused["fits"]["rho"] <= 2.001
    change(shop / "greedy.toml", "rho = 2.5", f"rho = {refused['fits']['rho']!r}")
    assert plan_job(str(shop / "greedy.toml"), home)["allowed"]
    assert run_job(str(shop / "greedy.toml"), home)["ledger"]["remaining_rho"] < 0.01


def test_a_refused_pure_plan_says_the_epsilon_that_fits(shop, home):
    run_job(str(shop / "greedy.toml"), home)
    change(shop / "pure.toml", "epsilon = 1.0", "epsilon = 3.0")
    fits = plan_job(str(shop / "pure.toml"), home)["fits"]
    change(shop / "pure.toml", "epsilon = 3.0", f"epsilon = {fits['epsilon']!r}")
    assert 0.9 < fits["epsilon"] < 1.1 and plan_job(str(shop / "pure.toml"), home)["allowed"]


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
    return str(write_recipe(shop, "fast", privacy='[privacy]\nrho = 1.0\nsampler = "table"'))


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
    change(shop / "card.toml", "rho = 3.0", "rho = 4.0")
    register_job(str(shop), home, amend=True)
    assert run_job(fast, home)["replayed"]


def test_a_sampler_whose_share_of_delta_is_not_counted_is_refused(shop, home):
    with pytest.raises(ValueError, match="delta"):
        run_job(str(shop / "private.toml"), home, noise=FastOsNoise())
    # before anything is charged
    assert not (home.root / "ledger.db").exists()


@pytest.fixture
def measured(tmp_path):
    """A shop of made-up people with a containment row and a record that fit each other."""
    folder, home = lay_out(tmp_path / "people"), home_at(tmp_path / "home")
    recipe = folder / "private.toml"
    card = load_card(folder / "card.toml")
    row = setting_key(card, load_recipe(recipe).terms) | {"draws": "100", "inside": "100"}
    with (folder / "containment.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    write_record(folder, row["world"], row["behaviour"], 1, int(row["n"]), [folder / "log.csv"])
    ingest_job(str(folder), home)
    return folder, home


def status(folder, home) -> str:
    return run_job(str(folder / "private.toml"), home)["value"]["status"]


def test_it_is_a_bound_its_ledger_says_how_the_log_was_made_and_it_is_made_again(measured):
    folder, home = measured
    assert status(folder, home) == "bound"
    run = next(home.runs.iterdir())
    made = facts_of(run).made
    assert made is not None and made.episodes == 400
    assert [e for e in ledger_of(home).entries() if e.kind == "PUBLISH"][-1].body["made"] == made.model_dump()
    assert all(c.ok for c in proof_of(run, folder).checks)


def other_log(folder) -> None:
    """Another policy's log under the same card: a tenth of the people."""
    lines = (folder / "log.csv").read_text().splitlines(keepends=True)
    (folder / "log.csv").write_text("".join(lines[: len(lines) // 10]))


def record(**changes):
    """Writes another record of how the log was made."""
    return lambda folder: edit(folder / "generated.json", lambda f: f.update(changes))


OTHERS = {
    "log": other_log,
    "behaviour": record(behaviour="another"),
    "episodes": record(episodes=40),
    "no record": lambda folder: (folder / "generated.json").write_text("[]"),
    "none": lambda folder: (folder / "generated.json").unlink(),
}


@pytest.mark.parametrize("other", [pytest.param(o, marks=pytest.mark.slow if o[0] == "n" else ()) for o in OTHERS])
def test_with_any_other_log_under_the_same_card_it_is_none(measured, other):
    folder, home = measured
    OTHERS[other](folder)
    ingest_job(str(folder), home)
    assert status(folder, home) == "modelled"


def test_with_other_planner_code_it_is_none(measured, monkeypatch):
    folder, home = measured
    monkeypatch.setattr(tabular_facts, "syntax_digest", lambda _: "0" * 64)
    assert status(folder, home) == "modelled"


@pytest.mark.slow
def test_an_episode_that_is_the_unit_is_no_person_in_any_page(tmp_path):
    home, folder = home_at(tmp_path / "home"), tmp_path / "lake"
    write_minari_hdf5(folder, LOG * 50)
    (folder / "card.toml").write_text(toml(cards()["Minari in HDF5"]), encoding="utf-8")
    bare_recipe(folder, "private", "dp-apvi", "[privacy]\nrho = 0.5")
    assert ingest_job(str(folder), home)["users"] == 200
    result = run_job(str(folder / "private.toml"), home)
    assert "replace one episode" in str(summary(RunAnswer.model_validate(result))[0])
    told = json.loads((home.runs / result["run"] / "certificate.json").read_text(encoding="utf-8"))
    text = json.dumps(told, ensure_ascii=False)
    assert "Replacing one episode, meaning all rows of one episode (at most 4 steps; somebody with several" in text
    assert "the files name no people: one episode is protected" in text and "identifies a person" not in text


def card_of_records(folder, layout, **columns):
    values = cards()[layout]
    source = values["source"] | {"columns": values["source"]["columns"] | {"user_id": "episode"} | columns}
    unit, budget = {"user": source["columns"]["user_id"], "users_public": 4000}, values["budget"] | {"ledger": "l.db"}
    return card_of(values | {"kind": "real", "source": source, "unit": unit, "budget": budget}, folder)


def test_a_record_numbered_by_order_is_replaced_and_never_gone(tmp_path):
    with pytest.raises(ValueError, match="name a column of user ids"):
        card_of_records(tmp_path, "Flat transitions")
    text = " ".join(assumptions(card_of_records(tmp_path, "RLDS"), [], Route("hand")))
    assert "one id's rows may be any other" in text and "or none" not in text
    named = " ".join(assumptions(card_of_records(tmp_path, "Flat transitions", user_id="patient"), [], Route("hand")))
    assert "or none" in named


@pytest.mark.parametrize("extra", ["[nightly]\nnights = 4\nfirst = 2026-01-01\n", "[linear]\nhalves = true\n"])
def test_what_looks_at_a_records_number_needs_ids_of_its_own(extra, tmp_path):
    agent = "dp-apvi" if "nightly" in extra else "dp-vapvi"
    values = card_of_records(tmp_path, "RLDS")
    recipe = bare_recipe(tmp_path, "r", agent, f"[privacy]\nrho = 0.5\n{extra}")
    with pytest.raises(CardError, match=r"r.toml: \[.*needs ids that no other record changes"):
        check_numbered(Setting(load_recipe(recipe), values, home_at(tmp_path / "home")))
    made_up = values.model_copy(update={"kind": "synthetic"})
    check_numbered(Setting(load_recipe(recipe), made_up, home_at(tmp_path / "home")))
