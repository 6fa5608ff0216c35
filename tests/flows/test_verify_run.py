"""``ledger verify RUN``: every edit of a folder fails the check that names it; a replay writes anew what changed."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from pipeline.facts.report import shipped_schema
from pipeline.ledger.verify import SCHEMA_FILE
from pipeline.privacy.losses import safe_epsilon
from reticent import CardError, Store
from tests.flows.office import edit
from tests.flows.shop import add, change, contents, lay_out
from tests.jobs import home_at, inspect_job, run_job, wrong_of

pytestmark = pytest.mark.usefixtures("unread")


@pytest.fixture(scope="module")
def published(tmp_path_factory, unread, opened):
    shop, home = opened(tmp_path_factory.mktemp("verify"), kind="synthetic")
    return {n: run_job(str(shop / f"{n}.toml"), home)["folder"] for n in ("private", "pure", "exact")}, home


@pytest.fixture
def folder(published, tmp_path):
    honest = Path(published[0]["private"])
    return shutil.copytree(honest, tmp_path / honest.name)


@pytest.mark.parametrize("name", ["private", "pure", "exact"])
def test_an_honest_run_passes_with_the_ledger_and_without(published, name, tmp_path):
    names, home = published
    with_it, alone = (Store(root).open(names[name]).verify() for root in (home.root, tmp_path))
    assert with_it.ok and {c.what for c in with_it.checks if c.ok is None} <= {"the files, made again"}
    assert alone.ok and any(c.ok is None for c in alone.checks)


def better_noise(facts):
    facts["mechanisms"][0]["variance"] *= 2


def smaller_epsilon(facts):
    facts["guarantee"]["epsilon"] /= 2


def seeded_noise_on_real_data(facts):
    facts["guarantee"].update(data_kind="real", noise="seeded")


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
    "seeded noise on real data": ("certificate.json", seeded_noise_on_real_data, "schema"),
}


@pytest.mark.parametrize("what", EDITS)
def test_every_edit_is_caught(published, folder, what):
    file, change, named = EDITS[what]
    edit(folder / file, change)
    found = wrong_of(folder, published[1].root)
    assert any(named in c.what for c in found) and all(c.found for c in found), found


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
        edit(folder / file, lambda f: FORGERIES[what](f["guarantee"]))
    if what != "delta":
        edit(folder / "release.json", lambda f: FORGERIES[what](f))
    found = [(c.what, c.found) for c in wrong_of(folder, published[1].root)]
    assert found == [("the ledger says the same of this release", f"{what} differ")]


def test_a_look_before_the_release_cannot_be_left_out(shop, home):
    looks = [inspect_job(str(shop), home)["ledger_entry"] for _ in range(2)]
    run = Path(run_job(str(shop / "private.toml"), home)["folder"])
    inspect_job(str(shop), home)
    assert not wrong_of(run, home.root)
    edit(run / "certificate.json", lambda f: f.update(assumptions=[a for a in f["assumptions"] if "look" not in a]))
    found = [c.found for c in wrong_of(run, home.root)]
    assert found == [f"the assumptions do not name the look of entry {looks[0]}"]


def test_a_certificate_that_says_less_was_spent_before_is_caught(published, folder):
    edit(folder / "certificate.json", lambda f: f["ledger"].update(spent_rho_exact="1/1000", spent_rho=0.001))
    assert [c.found for c in wrong_of(folder, published[1].root)] == ["spent_rho_exact, spent_rho differ"]


@pytest.mark.parametrize("kind", ["release", "policy"])
def test_a_changed_table_is_caught_with_no_ledger_at_hand(folder, kind, tmp_path):
    path = folder / f"{kind}.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert [c.what for c in wrong_of(folder, tmp_path)] == [f"sha256 of {kind}.parquet"]


def test_another_release_with_its_own_hash_is_not_what_the_ledger_committed(published, folder, tmp_path):
    other = (folder / "policy.parquet").read_bytes()
    (folder / "release.parquet").write_bytes(other)
    edit(folder / "certificate.json", lambda f: f["sha256"].update(release=hashlib.sha256(other).hexdigest()))
    assert not wrong_of(folder, tmp_path)
    assert ["another release" in c.found for c in wrong_of(folder, published[1].root)] == [True]


def test_a_folder_that_is_no_run_says_so(folder, tmp_path):
    (folder / "certificate.json").write_text("[]")
    for _ in range(2):
        with pytest.raises(CardError, match="name the folder of a run"):
            wrong_of(folder, tmp_path)
        (folder / "certificate.json").unlink(missing_ok=True)


def test_the_schema_is_itself_valid_and_in_the_pyramids_order(published):
    Draft202012Validator.check_schema(shipped_schema(SCHEMA_FILE))
    proof = json.loads((Path(published[0]["private"]) / "certificate.json").read_text())
    order = ["guarantee", "mechanisms", "implementation", "data", "assumptions", "not_covered"]
    assert [k for k in proof if k in order] == order


def test_a_run_that_lost_its_report_is_found_and_the_file_named(published, tmp_path):
    home, run = shutil.copytree(published[1].root, tmp_path / "home"), Path(published[0]["private"]).name
    (home / "runs" / run / "report.json").unlink()
    for name in (run, str(home / "runs" / run)):
        with pytest.raises(CardError, match=r"no readable report\.json"):
            Store(home).open(name).verify()


def test_a_run_is_made_again_by_the_card_of_its_dataset_whatever_its_folder_is_called(published, tmp_path):
    for name in ("broken", "elsewhere"):
        lay_out(tmp_path / name)
    (tmp_path / "broken" / "card.toml").write_text("name = ")
    run = lambda: Store(published[1].root, shelf=tmp_path).open(published[0]["private"]).verify()  # noqa: E731
    assert run().ok and any("made again from card" in c.what and c.ok for c in run().checks)
    # of copies it is the one in the folder of its name
    lay_out(tmp_path / "shop")
    change(lay_out(tmp_path / "a_copy") / "card.toml", "horizon = 3", "horizon = 2")
    assert any("made again from card" in c.what and c.ok for c in run().checks)


@pytest.fixture
def office(published, tmp_path):
    """A copy of all of it: the shop's folder, the home, and the run's folder."""
    names, home = published
    root = shutil.copytree(home.root.parent, tmp_path / "office")
    return root / "shop", home_at(root / "home"), root / "home" / "runs" / Path(names["private"]).name


def again(office) -> bool:
    """Whether a replay writes the run again: then its folder is another one."""
    folder, home, run = office
    before = run.stat().st_ino if run.exists() else None
    ran = run_job(str(folder / "private.toml"), home)
    assert ran["replayed"] and ran["run"] == run.name
    return run.stat().st_ino != before


def test_an_untouched_run_is_read_back_and_says_the_same(shop, home):
    first = run_job(str(shop / "private.toml"), home)
    assert not again((shop, home, Path(first["folder"])))
    said = run_job(str(shop / "private.toml"), home)
    assert {key for key in said if said[key] != first[key]} == {"replayed"}


@pytest.mark.parametrize("file", ["report.html", "report.json", "policy.parquet", "certificate.json", "release.json"])
def test_a_changed_file_is_written_anew(office, file):
    before = contents(office[2])
    (office[2] / file).write_bytes(b"changed")
    assert again(office) and contents(office[2]) == before


CHANGES = {
    "a missing folder": lambda _, __, run: shutil.rmtree(run),
    "a strange file": lambda _, __, run: (run / "strange.txt").write_text("x"),
    "another remark in the recipe": lambda folder, *_: add(folder / "private.toml", "# why\n"),
    "a measured containment beside the card": lambda folder, *_: (folder / "containment.csv").write_text("world\n"),
    "a look at the data": lambda folder, home, _: inspect_job(str(folder), home),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_not_as_it_was_is_mended_copied_or_told(office, what):
    CHANGES[what](*office)
    assert again(office)


def test_another_program_writes_again(office, newer):
    assert again(office)
