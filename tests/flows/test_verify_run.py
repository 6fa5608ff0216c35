"""``ledger verify RUN``: an honest folder passes every check, and every edit of it fails the check that names it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flows.jobs.intake import inspect_job
from pipeline.ledger.verify import schema, verify_run
from pipeline.privacy.losses import safe_epsilon
from tests.flows.shop import lay_out
from tests.jobs import home_at, ingest_job, ledger_of, run_job


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    root = tmp_path_factory.mktemp("verify")
    shop, home = lay_out(root / "shop"), home_at(root / "home")
    ingest_job(str(shop), home)
    names = {n: run_job(str(shop / f"{n}.toml"), home)["folder"] for n in ("private", "pure", "exact")}
    return names, home


@pytest.fixture
def folder(published, tmp_path):
    return shutil.copytree(published[0]["private"], tmp_path / "run")


def entries(published):
    return ledger_of(published[1]).entries()


@pytest.mark.parametrize("name", ["private", "pure", "exact"])
def test_an_honest_run_passes_with_the_ledger_and_without(published, name):
    run = Path(published[0][name])
    assert all(c.ok for c in verify_run(run, entries(published)))
    alone = verify_run(run)
    assert all(c.ok is not False for c in alone)
    assert any(c.ok is None for c in alone) == (name != "exact")


def edit(folder, file, change):
    facts = json.loads((folder / file).read_text())
    change(facts)
    (folder / file).write_text(json.dumps(facts))


def better_noise(facts):
    facts["mechanisms"][0]["variance"] *= 2


def smaller_epsilon(facts):
    facts["guarantee"]["epsilon"] /= 2


EDITS = {
    "a smaller loss": ("certificate.json", lambda f: f.update(rho_exact="1/100"), "recomputed"),
    "more noise claimed": ("certificate.json", better_noise, "recomputed"),
    "a smaller epsilon": ("certificate.json", smaller_epsilon, "recomputed"),
    "a mechanism left out": ("certificate.json", lambda f: f["mechanisms"].pop(), "recomputed"),
    "more noise in release.json": ("release.json", better_noise, "same mechanisms"),
    "another sampler": ("release.json", lambda f: f.update(sampler="none"), "same mechanisms"),
    "a report that promises more": ("report.json", smaller_epsilon, "same guarantee"),
    "a report of another form": ("report.json", lambda f: f.update(rows=7), "same guarantee"),
    "another hash": ("certificate.json", lambda f: f["sha256"].update(policy="0" * 64), "policy.parquet"),
    "another entry": ("certificate.json", lambda f: f["ledger"].update(entry=1), "very entry"),
    "an entry to come": ("certificate.json", lambda f: f["ledger"].update(entry=99), "very entry"),
    "another entry hash": ("certificate.json", lambda f: f["ledger"].update(hash="0" * 64), "very entry"),
    "no entry": ("certificate.json", lambda f: f.update(ledger=None), "nothing was charged"),
    "a key gone": ("certificate.json", lambda f: f.pop("not_covered"), "schema"),
    "seeded noise on real data": (
        "certificate.json",
        lambda f: f["guarantee"].update(data_kind="real", noise="seeded"),
        "schema",
    ),
}


@pytest.mark.parametrize("what", EDITS)
def test_every_edit_is_caught(published, folder, what):
    file, change, named = EDITS[what]
    edit(folder, file, change)
    wrong = [c for c in verify_run(folder, entries(published)) if c.ok is False]
    assert any(named in c.what for c in wrong), wrong
    assert all(c.found for c in wrong)


def larger_delta(guarantee):
    """A smaller epsilon at a delta that nobody registered: the arithmetic is right."""
    guarantee.update(delta=1e-3, epsilon=safe_epsilon(guarantee["rho"], 1e-3))


FORGERIES = {
    "delta": larger_delta,
    "sampler": lambda g: g.update(sampler="another"),
    "data_kind": lambda g: g.update(data_kind="real", claim="differential privacy for the people in the log"),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forgery_that_is_consistent_in_all_files_differs_from_the_ledger(published, folder, what):
    for file in ("certificate.json", "report.json"):
        edit(folder, file, lambda f: FORGERIES[what](f["guarantee"]))
    if what != "delta":
        edit(folder, "release.json", lambda f: FORGERIES[what](f))
    wrong = [c for c in verify_run(folder, entries(published)) if c.ok is False]
    assert [(c.what, c.found) for c in wrong] == [("the ledger says the same of this release", f"{what} differ")]


def test_a_look_before_the_release_cannot_be_left_out(tmp_path):
    shop, home = lay_out(tmp_path / "shop"), home_at(tmp_path / "home")
    ingest_job(str(shop), home)
    looks = [inspect_job(str(shop), home)["ledger_entry"] for _ in range(2)]
    run = Path(run_job(str(shop / "private.toml"), home)["folder"])
    inspect_job(str(shop), home)
    book = ledger_of(home).entries()
    assert all(c.ok for c in verify_run(run, book))
    edit(run, "certificate.json", lambda f: f.update(assumptions=[a for a in f["assumptions"] if "look" not in a]))
    wrong = [c.found for c in verify_run(run, book) if c.ok is False]
    assert wrong == [f"the assumptions do not name the look of entry {looks[0]}"]


def test_a_certificate_that_says_less_was_spent_before_is_caught(published, folder):
    edit(folder, "certificate.json", lambda f: f["ledger"].update(spent_rho_exact="1/1000", spent_rho=0.001))
    wrong = [c for c in verify_run(folder, entries(published)) if c.ok is False]
    assert [c.found for c in wrong] == ["spent_rho_exact, spent_rho differ"]


@pytest.mark.parametrize("kind", ["release", "policy"])
def test_a_changed_table_is_caught_with_no_ledger_at_hand(folder, kind):
    path = folder / f"{kind}.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert [c.what for c in verify_run(folder) if c.ok is False] == [f"sha256 of {kind}.parquet"]


def test_another_release_with_its_own_hash_is_not_what_the_ledger_committed(published, folder):
    from pipeline.privacy.release_file import sha256_file

    other = folder / "release.parquet"
    other.write_bytes((folder / "policy.parquet").read_bytes())
    edit(folder, "certificate.json", lambda f: f["sha256"].update(release=sha256_file(other)))
    assert all(c.ok is not False for c in verify_run(folder))
    wrong = [c for c in verify_run(folder, entries(published)) if c.ok is False]
    assert ["another release" in c.found for c in wrong] == [True]


def test_a_folder_that_is_no_run_says_so(tmp_path):
    with pytest.raises(ValueError, match="name the folder of a run"):
        verify_run(tmp_path)
    (tmp_path / "certificate.json").write_text("[]")
    with pytest.raises(ValueError, match="name the folder of a run"):
        verify_run(tmp_path)


def test_the_schema_is_itself_valid_and_in_the_pyramids_order(published):
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(schema())
    proof = json.loads((Path(published[0]["private"]) / "certificate.json").read_text())
    order = ["guarantee", "mechanisms", "implementation", "data", "assumptions", "not_covered"]
    assert [k for k in proof if k in order] == order
