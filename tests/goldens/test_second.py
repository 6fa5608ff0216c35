"""(e) The second home: what later versions change or remove was made by an older one, and stays provable and usable."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ledger.ledger import open_ledger
from pipeline.ledger.steps import counters_problem, noise_problem
from tests.goldens.adapter import reticent, said
from tests.goldens.places import SECOND, copied, expected, names_a_machine
from tests.goldens.second_shelf import charged, ward

CARD_OF = dict.fromkeys(("judged", "beside", "fitted", "careful"), "clinic")
CARD_OF |= {"renewed": "epochs", "asked": "dates", "first_ward": "ward_a", "other_ward": "ward_b"}
RUNS = sorted(p.name for p in (SECOND / "runs").iterdir() if p.is_dir())
# of each family one, and of the real ones
SOME = [next(r for r in RUNS if r.startswith(name)) for name in ("demo", *CARD_OF)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return copied(tmp_path / "home", SECOND)


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which nothing is changed."""
    return copied(tmp_path_factory.mktemp("second") / "home", SECOND)


def of_card(home: Path, run: str) -> tuple[object, ...]:
    """Its card, so that it is made again too; not the demo, whose planning alone would take longer than all others."""
    name = CARD_OF.get(run.rsplit("-", 1)[0])
    return () if name is None else ("--card", home / "shelf" / name)


def test_the_committed_home_is_whole_and_names_no_machine():
    assert len(RUNS) == 14 and not [p for p in SECOND.rglob("*") if p.is_symlink() or p.suffix == ".pem"]
    assert not names_a_machine(SECOND)


def test_both_chains_verify_and_every_charge_is_as_recorded(read):
    assert said(read, "ledger", "verify") == {"ok": True, "entries": 56, "problem": None}
    assert said(read, "ledger", "verify", *ward(read)) == {"ok": True, "entries": 11, "problem": None}
    assert charged(read) == expected("second")


def test_what_people_were_asked_is_in_the_home():
    told = {run: json.loads((SECOND / "runs" / run / "report.json").read_text()) for run in RUNS}
    looks = {run: facts["evaluation"]["look"] for run, facts in told.items() if "evaluation" in facts}
    assert sorted(looks[run] for run in looks if CARD_OF.get(run.rsplit("-", 1)[0]) == "clinic") == [1, 2, 3, 4, 5]
    assert [facts["evaluation"]["against"]["run"] for run, facts in told.items() if run.startswith("beside")] == [
        next(run for run, look in looks.items() if run.startswith("judged") and look == 1)
    ]
    assert len([run for run in looks if run.startswith("asked")]) == 1


@pytest.mark.parametrize("run", RUNS)
def test_hashes_and_charge_of_every_run_are_proved(read, run):
    proof = said(read, "ledger", "verify", run, *of_card(read, run))
    assert proof["ok"] and proof["vouched"] and proof["run"] == run
    proved = {c["what"] for c in proof["checks"] if c["ok"]}
    assert {
        "the ledger vouches for every file of the folder",
        "that entry is signed by a key that is trusted",
        "the ledger holds this very entry",
        "the ledger was charged for these mechanisms",
        "the ledger says the same of this release",
    } <= proved
    listed = json.loads((read / "runs" / run / "certificate.json").read_text())["sha256"]
    assert len([what for what in proved if what.startswith("sha256 of ")]) == len(listed) > 2
    assert not [c for c in proof["checks"] if c["ok"] is False]


@pytest.mark.parametrize("run", SOME)
def test_it_is_reported_read_asked_exported_and_promoted(home, tmp_path, run):
    card = of_card(home, run)
    assert Path(said(home, "report", run, *card)["report"]).is_file()
    assert said(home, "policy", "show", run, *card)
    labels = json.loads((home / "runs" / run / "policy.json").read_text())
    assert said(home, "policy", "act", run, "--state", labels["states"][0], "--step", "0", *card)
    told = said(home, "policy", "export", run, "--to", tmp_path / "policy.csv", *card)
    assert told["vouched"] and (tmp_path / "policy.csv").is_file()
    assert said(home, "promote", run, *card)["vouched"]
    assert said(home, "ledger", "verify", "current", *card)["run"] == run


def test_two_looks_are_laid_side_by_side(read):
    a, b = (run for run in RUNS if run.startswith("judged"))
    assert {said(read, "compare-runs", a, b)[k] for k in ("a", "b")} == {a, b}


def test_a_committed_release_of_real_people_is_replayed_for_nothing(home):
    before = charged(home)
    (run,) = (r for r in RUNS if r.startswith("first_ward"))
    answer = said(home, "run", home / "shelf" / "ward_a" / "first_ward.toml")
    assert answer["replayed"] and answer["run"] == run and charged(home) == before


def test_lineages_that_were_declared_disjoint_stay_so(home):
    """Whom the first ward has is set aside in the second, whatever is ingested now."""
    log = home / "shelf" / "ward_b" / "log.csv"
    log.write_text(log.read_text() + "u400,0,0,low,wait,0.0,true\n")
    found = said(home, "ingest", home / "shelf" / "ward_b")
    assert found["quarantined"]["elsewhere"] > 0 and found["users"] == 181


def test_an_ingest_that_was_killed_leaves_nothing_behind_the_next_one(home):
    store = home / "store" / "second_cut_ingest"
    assert [p.name for p in store.iterdir() if p.is_dir()] == [".ingest"]
    found = said(home, "ingest", home / "shelf" / "cut_ingest")
    assert (found["snapshot"], found["users"]) == (1, 200)
    assert [p.name for p in store.iterdir() if p.is_dir()] == ["snapshot-0001"]


def test_a_purge_removes_what_a_killed_ingest_left(home):
    said(home, "store", "purge", home / "shelf" / "cut_ingest", "--yes")
    assert not [p for p in (home / "store" / "second_cut_ingest").iterdir() if p.is_dir()]


def test_a_sum_that_was_killed_is_not_paid_twice(home):
    before = charged(home)["second_cut_sum"]["spent_rho"]
    snapshot = home / "store" / "second_cut_sum" / "snapshot-0001"
    assert (snapshot / ".sums").is_file()
    answer = said(home, "run", home / "shelf" / "cut_sum" / "again.toml")
    assert not answer["replayed"] and answer["ledger"]["spent_rho"] == before == 1.0
    assert not (snapshot / ".sums").exists()
    assert said(home, "ledger", "verify", answer["run"], "--card", home / "shelf" / "cut_sum")["ok"]


def test_a_run_of_an_older_version_that_was_edited_is_wrong(home):
    """Whatever version its files claim: what the ledger vouches for is another folder."""
    (run,) = (r for r in RUNS if r.startswith("careful"))
    file = home / "runs" / run / "report.json"
    file.write_text(file.read_text().replace('"not_told_apart"', '"better"'))
    found = reticent("ledger", "verify", run, *of_card(home, run), home=home, shelf=home / "shelf")
    assert found.code == 4 and any("report.json was changed" in c["found"] for c in found.answer["checks"])


@pytest.mark.parametrize("verb", ["run", "nightly", "plan"])
@pytest.mark.parametrize("recipe", ["epochs/renewed", "dates/asked"])
def test_no_night_is_added_to_an_older_counter(home, verb, recipe):
    """What only one-step agents and evaluated nights had; a calendar does both."""
    before = charged(home)
    found = reticent(verb, home / "shelf" / f"{recipe}.toml", home=home, shelf=home / "shelf")
    assert found.code == 2 and "[schedule]" in found.err and charged(home) == before


def test_noise_and_first_charge_of_older_counters_are_still_proved(read):
    entries = open_ledger(read / "ledger.db", create=False).entries()
    assert counters_problem(entries) is None
    for name in ("renewed", "asked"):
        run = next(r for r in RUNS if r.startswith(name))
        proof = json.loads((SECOND / "runs" / run / "certificate.json").read_text())
        assert noise_problem(proof) is None
        assert noise_problem({**proof, "counter": {**proof["counter"], "error": 2 * proof["counter"]["error"]}})
        first = next(e for e in entries if e.body.get("counter", {}).get("key") == proof["counter"]["key"])
        cheap = replace(first, body={**first.body, "rho": "1/2"})
        found = counters_problem([cheap if e is first else e for e in entries])
        assert found == f"entry {first.seq} drew rows again without paying for them"
