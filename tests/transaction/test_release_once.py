"""Attacks on the curator that once worked, and no longer do."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipeline.learners.tabular_facts import setting_hash
from pipeline.ledger.chain import AttemptLostError
from pipeline.ledger.ledger import open_ledger
from pipeline.logs import spills
from pipeline.logs.aggregate import CountSums
from pipeline.logs.store import write_manifest
from pipeline.transaction import transaction
from pipeline.transaction.transaction import read_attempt, write_attempt
from reticent import BudgetError, CardError, load_card, load_recipe
from tests.flows.shop import HELD, lay_out, write_recipe
from tests.flows.verb import reticent
from tests.jobs import entries_of, home_at, ingest_job, plan_job, purge_job, register_job, run_job
from tests.ledger.conftest import in_file
from tests.transaction.released import ledger_of, newest, release


@pytest.fixture
def people(tmp_path, opened):
    return opened(tmp_path, cap=2.0)


def recipe(folder: Path, name: str, privacy: str) -> str:
    return str(write_recipe(folder, name, privacy=f"[privacy]\n{privacy}"))


@pytest.mark.parametrize("privacy", ["epsilon = 1e-25", "epsilon = 1e-12", "rho = 1e-40"])
def test_noise_that_would_saturate_is_refused_before_anything_is_charged(people, privacy):
    folder, home = people
    with pytest.raises(CardError, match="scale"):
        run_job(recipe(folder, "minute", privacy), home)
    assert [e["kind"] for e in entries_of(home, folder)] == ["REGISTER", "KEY"]


def test_a_delta_that_would_publish_somebody_is_refused_on_real_data(people):
    folder, home = people
    # a tenth of a person of 400 is 0.00025
    for delta in (0.01, 0.0003):
        with pytest.raises(CardError, match="too large for 400 people"):
            run_job(recipe(folder, "loose", f"epsilon = 1.0\ndelta = {delta}"), home)
    card = (folder / "card.toml").read_text()
    for delta, code in ((0.0003, 2), (0.00025, 0)):
        other = lay_out(folder.parent / f"delta-{code}")
        (other / "card.toml").write_text(card.replace("delta = 1e-6", f"delta = {delta}"))
        assert reticent("register", other, cwd=other).returncode == code


def test_a_real_snapshot_is_not_released_under_a_card_that_turned_synthetic(people):
    folder, home = people
    text = (folder / "card.toml").read_text().replace('kind = "real"', 'kind = "synthetic"')
    (folder / "card.toml").write_text(text.replace('ledger = "ledger.db"', 'ledger = "home"'))
    for name in ("exact", "private"):
        with pytest.raises(CardError, match="ingested as real"):
            run_job(str(folder / f"{name}.toml"), home)


@pytest.mark.parametrize("kept", [1, 3, 4, 5])
def test_a_ledger_cut_at_its_end_is_refused_for_any_recipe(people, kept):
    """Cut with care: its own head was set back as well, so only the store can tell."""
    folder, home = people
    run_job(str(folder / "private.toml"), home)
    book = in_file(folder / "ledger.db")
    book.execute(f"delete from entries where seq > {kept}")
    book.execute("update head set seq = (select max(seq) from entries)")
    book.execute("update head set hash = (select hash from entries order by seq desc limit 1)")
    with pytest.raises(BudgetError, match=r"lacks entry [456]"):
        run_job(recipe(folder, "other", "rho = 0.5"), home)


def test_only_a_snapshot_that_is_there_and_of_this_very_card_is_charged(people):
    """Episodes a person are capped at ingest: under a smaller cap the same rows would cost more than is charged."""
    snapshot = newest(people)
    for other in ({"domain_hash": "0" * 64}, {"dataset": "another"}):
        write_manifest(replace(snapshot, **other))
        with pytest.raises(CardError, match="another card"):
            release(people, edition=1)
    purge_job(str(people[0]), people[1], yes=True)
    with pytest.raises(CardError, match="nothing was charged"):
        release(people, edition=1)
    assert ledger_of(people).account("shop").spent == 0


def test_a_ledger_made_anew_is_refused_by_register_and_run(people):
    folder, home = people
    run_job(str(folder / "private.toml"), home)
    (folder / "ledger.db").unlink()
    with pytest.raises(BudgetError, match="gone, but this store has seen"):
        register_job(str(folder), home)
    # another store makes one
    register_job(str(folder), home_at(folder / "other"))
    with pytest.raises(BudgetError, match="lacks entry"):
        register_job(str(folder), home)


def test_a_ledger_named_by_url_holds_its_cap_and_is_its_owners_alone(tmp_path, make_card):
    url = f"sqlite:///{tmp_path}/by-url.db"
    book = open_ledger(url, create=True)
    book.register(make_card(budget={"rho": 1.0}))
    book.intent("tiny", "a", Fraction(9, 10), {})
    with pytest.raises(BudgetError):
        open_ledger(url, create=False).intent("tiny", "b", Fraction(9, 10), {})
    assert book.account("tiny").spent == Fraction(9, 10)
    assert (tmp_path / "by-url.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("privacy", ["rho = 1.0", "epsilon = 0.5"])
def test_paper_scales_that_spend_more_are_refused_in_rho_and_in_epsilon(people, privacy):
    folder, home = people
    asked = f'{privacy}\ncalibration = "paper"\nrelease = "two_tables"'
    # also where nothing would be charged: a release committed for another recipe keeps no promise of this one
    for job in (run_job, plan_job):
        with pytest.raises(CardError, match="'tight'"):
            job(recipe(folder, "printed", asked), home)


def test_two_runs_at_once_draw_once(people):
    folder, home = people
    gate = threading.Barrier(2)

    def go(_):
        gate.wait()
        return run_job(str(folder / "private.toml"), home)["replayed"]

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(go, range(2), timeout=120)) == [False, True]
    assert [e["body"]["rho"] for e in entries_of(home, folder) if e["kind"] == "INTENT"] == ["1"]


def test_a_replay_from_an_edited_description_is_refused(people):
    folder, home = people
    run_job(str(folder / "private.toml"), home)
    path = next((home.store / "shop" / "releases").glob("*/release.json"))
    facts = json.loads(path.read_text())
    facts["mechanisms"][0]["variance"] *= 10_000
    path.write_text(json.dumps(facts))
    with pytest.raises(BudgetError, match="edited"):
        run_job(str(folder / "private.toml"), home)


def test_a_bound_is_claimed_for_the_measured_setting_only():
    root = Path(__file__).resolve().parents[2]
    uniform = load_recipe(root / "flows" / "recipes" / "icu_sepsis_uniform.toml")
    card = load_card(root / "datasets" / "icu_sepsis_uniform" / "card.toml")
    measured = (card.folder / "containment.csv").read_text()
    assert setting_hash(card, uniform.terms) in measured
    values = uniform.dump()
    for table, key, value in (
        ("planner", "failure", 0.9),
        ("planner", "penalty", "hoeffding"),
        ("privacy", "rho", 1.1),
        ("privacy", "split", {"n_0": 0.9, "n_sas": 0.05, "r_sa": 0.05}),
        ("evaluate", "behaviour", "clinician"),
    ):
        other = type(uniform).model_validate(values | {table: values[table] | {key: value}})
        assert setting_hash(card, other.terms) not in measured, key
    seed = type(uniform).model_validate(values | {"planner": values["planner"] | {"seed": 7}})
    assert setting_hash(card, seed.terms) in measured


def test_a_run_that_died_in_its_sum_sums_anew_and_is_not_paid_twice(tmp_path, monkeypatch):
    """The dead attempt drew nothing, so the next takes over what it was charged; no sum stays on disk."""
    monkeypatch.setattr(spills, "ROWS_PER_PARTITION", 200)
    folder, home = lay_out(tmp_path / "people", kind="real", ledger="ledger.db", cap=2.0), home_at(tmp_path / "home")
    register_job(str(folder), home)
    parts = ingest_job(str(folder), home)["partitions"]
    add, read = CountSums.add, []

    def deadly(self, sums, files, seen):
        if len(read) == 3:
            raise KeyboardInterrupt
        read.extend(f.name for f in files)
        add(self, sums, files, seen)

    monkeypatch.setattr(CountSums, "together", 1)
    monkeypatch.setattr(CountSums, "add", deadly)
    with pytest.raises(KeyboardInterrupt):
        run_job(str(folder / "private.toml"), home)
    assert parts > 4 and not list(home.root.rglob(".sums*"))
    read.clear()
    monkeypatch.setattr(CountSums, "add", lambda *args: (read.extend(f.name for f in args[2]), add(*args)))
    run_job(str(folder / "private.toml"), home)
    assert read == [f"part-{i:04d}.parquet" for i in range(parts)]
    book = entries_of(home, folder)
    assert [e["kind"] for e in book] == ["REGISTER", "KEY", "INTENT", "INTENT", "DRAW", "COMMIT", "PUBLISH"]
    assert [e["body"]["rho"] for e in book if e["kind"] == "INTENT"] == ["1", "0"]


def test_a_card_that_was_changed_since_its_registration_draws_nothing(people):
    """Also where its rows are of the registered domain: what the ledger holds of it decides."""
    budget = load_card(people[0] / "card.toml").budget
    with pytest.raises(CardError, match="--amend"):
        release(people, budget=budget.model_copy(update={"rho": 9.0}))
    assert ledger_of(people).account("shop").spent == 0


def test_partial_sums_that_an_older_version_left_go_with_the_release_and_with_its_replay(people):
    """They are exact sums of people's rows: a run that died after its COMMIT leaves them to the next."""
    for replayed in (False, True):
        for name in (".sums", ".sums.partial", ".sums.new"):
            (newest(people).folder / name).write_bytes(b"sums")
        assert release(people).replayed is replayed and not list(people[1].root.rglob(".sums*"))


def test_a_release_that_was_edited_is_not_replayed_and_the_store_knows_its_commit(people):
    found = release(people)
    assert found.commit is not None
    head = json.loads((people[1].store / "shop" / "ledger-head.json").read_text(encoding="utf-8"))
    assert head == {"seq": found.commit.seq, "hash": found.commit.hash}
    file = found.folder / "release.parquet"
    table = pq.read_table(file)
    at = table.schema.get_field_index("value")
    file.chmod(0o600)
    pq.write_table(table.set_column(at, table.schema.field(at), pc.add(table["value"], 1)), file)
    with pytest.raises(BudgetError, match="does not match its COMMIT"):
        release(people)


def test_a_release_that_is_there_is_never_replaced(people):
    found = release(people)
    before = (found.folder / "release.parquet").read_bytes()
    other = replace(read_attempt(found.folder), attempt=7)
    with pytest.raises(AttemptLostError, match="drew this release first"):
        write_attempt(found.release, found.folder, other)
    assert (found.folder / "release.parquet").read_bytes() == before and read_attempt(found.folder) != other


def intents(home):
    return sum(e["kind"] == "INTENT" for e in entries_of(home_at(home)))


@pytest.fixture
def shop(tmp_path):
    folder = lay_out(tmp_path / "shop", people=4000)
    write_recipe(folder, "judged", more=HELD)
    for verb in ("register", "ingest"):
        assert reticent(verb, folder / "card.toml", cwd=tmp_path).returncode == 0
    return folder


def refused_after_the_charge(shop):
    done = reticent("run", shop / "judged.toml", cwd=shop.parent)
    assert done.returncode == 4, done.stderr
    said = done.stderr.lower()
    assert "damaged" in said or "may not write" in said or "does not exist" in said
    assert "nothing was read" not in said and "nothing was charged" not in said


def test_a_damaged_key_of_people_is_met_before_anything_is_charged(shop):
    home = shop.parent / ".reticent"
    (home / "ledger.db.people-key").write_text("no key")
    (home / "ledger.db.people-key").chmod(0o600)
    refused_after_the_charge(shop)
    assert intents(home) == 0


@pytest.mark.parametrize("content", [None, b"no ledger"], ids=["gone", "overwritten"])
def test_a_ledger_that_is_lost_before_the_commit(shop, monkeypatch, content):
    ledger, write = shop.parent / ".reticent" / "ledger.db", transaction.write_attempt

    def lose(*args):
        write(*args)
        ledger.rename(ledger.with_suffix(".kept"))
        for more in ledger.parent.glob("ledger.db-*"):
            more.unlink()
        if content is not None:
            ledger.write_bytes(content)
            ledger.chmod(0o600)

    monkeypatch.setattr(transaction, "write_attempt", lose)
    refused_after_the_charge(shop)
    ledger.unlink(missing_ok=True)
    ledger.with_suffix(".kept").rename(ledger)
    assert intents(shop.parent / ".reticent") == 1
