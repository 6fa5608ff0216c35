"""A published run is what card, release and recipe make of it, and what the ledger vouches for: nothing else passes."""

import json
import os
import shutil
from pathlib import Path

import pytest

from pipeline.ledger.ledger import Ledger
from reticent import BudgetError, CardError
from tests.flows.office import chained, edit, exported, flip_policy, forge, kinds_of, reticent, vouch_for
from tests.flows.shop import change, lay_out, write_recipe
from tests.jobs import home_at, ingest_job, ledger_in, register_job, run_job
from tests.learners.test_registry import MODULE


def test_an_honest_run_is_vouched_for_and_made_again(office):
    code, proof = office.verb("ledger", "verify", office.run)
    assert code == 0 and proof["ok"] and proof["vouched"]
    assert all(c["ok"] for c in proof["checks"]), [c for c in proof["checks"] if not c["ok"]]
    made = {c["what"].split(",")[0] for c in proof["checks"] if "made again" in c["what"]}
    assert made == {
        "release.json", "policy.parquet", "policy.json", "report.json", "certificate.json", "report.html", "report.md",
    }  # fmt: skip


def test_a_forged_run_is_refused_by_every_verb(office, tmp_path):
    forge(office.folder)
    code, proof = office.verb("ledger", "verify", office.run)
    assert code == 4 and not proof["ok"] and not proof["vouched"]
    for verb in (
        ("ledger", "sign", office.run, "--by", "Ada"),
        ("promote", office.run),
        ("policy", "export", office.run, "--to", tmp_path / "p.csv"),
        ("policy", "act", office.run, "--state", "warm", "--step", 0),
        ("policy", "show", office.run),
    ):
        with pytest.raises(BudgetError):
            office.verb(*verb)
    assert not (tmp_path / "p.csv").exists()


def test_the_ledger_itself_says_which_run_was_changed(office):
    assert office.verb("ledger", "verify")[0] == 0
    # what is no plain file is never opened
    os.mkfifo(office.folder / "pipe")
    code, proof = office.verb("ledger", "verify", office.run)
    assert code == 4 and "pipe was added" in proof["problem"]
    (office.folder / "pipe").unlink()
    (office.folder / "report.html").write_text("<html>trust us</html>")
    code, said = office.verb("ledger", "verify")
    assert code == 4 and said["problem"].startswith(f"{office.run}: report.html was changed")


def test_a_forgery_that_the_ledger_vouches_for_is_found_by_making_it_again(office):
    """Whoever holds the key and the ledger can vouch for anything; the derivation still tells."""
    flip_policy(office.folder)
    vouch_for(office.root, office.run)
    code, proof = office.verb("ledger", "verify", office.run)
    wrong = [c["what"].split(",")[0] for c in proof["checks"] if c["ok"] is False]
    assert code == 4 and proof["vouched"] and "policy.parquet" in wrong


def test_a_run_that_is_replayed_is_not_published_again(office):
    book = ledger_in(office.people)
    before = book.entries()
    assert kinds_of(office.root) == ["REGISTER", "KEY", "INTENT", "COMMIT", "PUBLISH"]
    assert office.make("private")["replayed"]
    assert book.entries() == before
    shutil.rmtree(office.folder)
    office.make("private")
    assert book.entries() == before
    assert office.verb("ledger", "verify", office.run)[0] == 0


@pytest.mark.parametrize("place", ["before PUBLISH", "after PUBLISH"])
def test_a_run_that_dies_around_its_publish_entry_is_published_by_the_next_once(office, monkeypatch, place):
    publish = Ledger.publish

    def die(*args):
        if place == "after PUBLISH":
            publish(*args)
        raise KeyboardInterrupt

    recipe, home = str(office.people / "pure.toml"), office.home
    with monkeypatch.context() as m:
        m.setattr(Ledger, "publish", die)
        with pytest.raises(KeyboardInterrupt):
            run_job(recipe, home)
    assert not list(home.runs.glob("pure-*"))
    run = run_job(recipe, home)
    kinds = kinds_of(office.root)[5:]
    assert kinds.count("PUBLISH") == kinds.count("COMMIT") == kinds.count("INTENT") == 1
    assert run["replayed"] and office.verb("ledger", "verify", run["run"])[1]["vouched"]


def test_nothing_of_a_person_is_in_the_entry(office):
    entry = ledger_in(office.people).entries()[-1]
    assert set(entry.body) == {
        "run", "run_key", "commit", "snapshot", "seen", "card_hash", "seed", "made_by", "files", "key", "signature",
    }  # fmt: skip
    assert set(entry.body["files"]) == {p.name for p in office.folder.iterdir()}


def test_another_version_is_not_comparable_and_never_damaged(office, newer):
    code, proof = office.verb("ledger", "verify", office.run)
    assert code == 0 and proof["ok"] and proof["vouched"]
    [page] = [c for c in proof["checks"] if c["ok"] is None]
    assert page["what"].startswith("report.html") and "not comparable" in page["found"] and "numpy" in page["found"]


def test_on_another_machine_folder_card_export_and_public_key_are_enough(office, tmp_path):
    _, registered = office.verb("register", office.people, card=False)
    office.verb("ledger", "export", tmp_path / "all.json")
    there = tmp_path / "auditor"
    shutil.copytree(office.folder, there / "copy")
    shutil.copyfile(office.people / "card.toml", there / "card.toml")
    shutil.move(office.root, tmp_path / "gone")

    def auditor(*more: object):
        args = ["verify", there / "copy", "--card", there / "card.toml", "--ledger", tmp_path / "all.json", *more]
        return reticent(there, "ledger", *args, card=False)

    code, proof = auditor("--public-key", registered["public_key"])
    assert code == 0 and proof["vouched"] and all(c["ok"] for c in proof["checks"]), proof
    code, proof = auditor("--public-key", "ab" * 32)
    assert code == 4 and "signed by another key" in proof["problem"]
    args = ["ledger", "verify", "--ledger", tmp_path / "all.json", "--public-key", registered["public_key"]]
    assert reticent(there, *args, card=False)[0] == 0
    forge(there / "copy")
    assert auditor("--public-key", registered["public_key"])[0] == 4


def test_a_recipe_in_a_folder_cannot_make_its_verifier_run_code(office, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('code of the folder was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    change(office.folder / "recipe.toml", 'agent = "dp-apvi"', 'agent = "evil:agent"')
    code, proof = office.verb("ledger", "verify", office.run)
    assert code == 4 and any("was not run" in c["found"] for c in proof["checks"])


def test_a_byte_of_any_file_or_its_removal_is_caught(office):
    for file in sorted(p for p in office.folder.rglob("*") if p.is_file()):
        whole = file.read_bytes()
        for changed in (bytes([whole[0] ^ 1]) + whole[1:], whole[:-1] + bytes([whole[-1] ^ 1]), None):
            file.unlink()
            if changed is not None:
                file.write_bytes(changed)
            try:
                code, proof = office.verb("ledger", "verify", office.run)
                assert code == 4 and not proof["vouched"], (file.name, changed is None)
            except CardError:
                assert file.name in ("certificate.json", "report.json")  # without them a folder is no run
        file.write_bytes(whole)
    assert office.verb("ledger", "verify", office.run)[0] == 0


def test_a_run_of_real_people_cannot_pass_for_a_simulation(office):
    folder = office.folder
    lay_out(office.root / "games")
    games = home_at(office.root / "home-of-games")
    ingest_job(str(office.root / "games"), games)
    exact = Path(run_job(str(office.root / "games" / "exact.toml"), games)["folder"])
    shutil.rmtree(folder)
    shutil.copytree(exact, folder)
    with pytest.raises(BudgetError, match="registered as real"):
        office.verb("promote", office.run)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"entries": [{}]}', '{"entries": [[1]]}', "[" * 100_000, '{"entries": [{"seq": "1"}]}']
)
def test_what_is_no_exported_ledger_is_said(office, tmp_path, text):
    (tmp_path / "all.json").write_text(text)
    with pytest.raises(CardError, match="no exported ledger"):
        office.verb("ledger", "verify", office.run, "--ledger", tmp_path / "all.json")


def test_an_agent_of_ones_own_is_run_on_the_word_of_ones_own_ledger_alone(office, tmp_path, monkeypatch):
    (tmp_path / "own_agent.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    run = run_job(str(write_recipe(office.people, "own_agent", "own_agent:same")), office.home)["run"]
    code, proof = office.verb("ledger", "verify", run)
    assert code == 0 and all(c["ok"] for c in proof["checks"])
    office.verb("ledger", "export", tmp_path / "all.json")
    code, proof = office.verb("ledger", "verify", run, "--ledger", tmp_path / "all.json")
    assert code == 0 and proof["vouched"] and any("was not run" in c["found"] for c in proof["checks"])
    # another text of the agent may make another policy: nothing is damaged
    (tmp_path / "own_agent.py").write_text(MODULE + "# edited")
    code, proof = office.verb("ledger", "verify", run)
    assert code == 0 and any("not made again: older version (agent" in c["found"] for c in proof["checks"])


def test_a_head_is_signed_and_checked(office, tmp_path):
    _, head = office.verb("ledger", "head")
    file = tmp_path / "head.json"
    file.write_text(json.dumps(head))
    assert office.verb("ledger", "verify", "--head", file, "--public-key", head["key"])[0] == 0
    file.write_text(json.dumps({**head, "seq": 1}))
    with pytest.raises(CardError, match="not signed"):
        office.verb("ledger", "verify", "--head", file, "--public-key", head["key"])


def test_the_key_is_the_operators_alone(office):
    file = office.home.store / ".operator-key.pem"
    assert file.stat().st_mode & 0o777 == 0o600
    public = register_job(str(office.people), office.home)["public_key"]
    for right in (0o040, 0o020, 0o010, 0o004, 0o002, 0o001):
        file.chmod(0o600 | right)
        with pytest.raises(BudgetError, match=r"others may read.*chmod 600"):
            register_job(str(office.people), office.home)
    file.chmod(0o600)
    assert register_job(str(office.people), office.home)["public_key"] == public


def test_a_second_host_has_its_own_key_and_the_chain_knows_both(office, tmp_path):
    other = home_at(tmp_path / "other")
    shutil.copytree(office.home.store / "shop", other.store / "shop")
    run_job(str(office.people / "private.toml"), other)
    # the files are the same, so the first host's word is enough
    assert kinds_of(office.root) == ["REGISTER", "KEY", "INTENT", "COMMIT", "PUBLISH", "KEY"]
    run_job(str(office.people / "both.toml"), other)
    assert kinds_of(office.root)[6:] == ["INTENT", "COMMIT", "PUBLISH"]
    assert len({e.body["public_key"] for e in ledger_in(office.people).entries() if e.kind == "KEY"}) == 2
    assert office.verb("ledger", "verify")[0] == 0


def test_an_entry_signed_by_nobody_the_ledger_knows_is_damage(office, tmp_path):
    entries = exported(office.root, tmp_path / "all.json")
    edited = [e | ({"body": e["body"] | {"run": "another"}} if e["kind"] == "PUBLISH" else {}) for e in entries]
    for told, problem in (
        (entries, None),
        ([e for e in entries if e["kind"] != "KEY"], "another key"),
        (edited, "signature is wrong"),
    ):
        _, found = office.verb("ledger", "verify", "--ledger", chained(told, tmp_path / "told.json"), card=False)
        assert found["problem"] is None if problem is None else problem in found["problem"]


def test_without_a_ledger_nothing_is_promoted_or_exported(office, tmp_path):
    for verb in (("promote", office.run), ("policy", "export", office.run, "--to", tmp_path / "p.csv")):
        with pytest.raises(BudgetError, match="--card"):
            office.verb(*verb, card=False)
    assert office.verb("promote", office.run)[1]["vouched"] is True


def test_a_page_that_another_version_draws_does_not_replace_the_vouched_one(office, request):
    """The vouched page stands, and is the report; where it is gone, no other takes its place."""
    page = office.folder / "report.html"
    before = page.read_bytes()
    page.unlink()
    office.verb("report", office.run)
    assert page.read_bytes() == before
    request.getfixturevalue("newer")
    assert office.verb("report", office.run)[0] == 0
    assert page.read_bytes() == before
    page.unlink()
    with pytest.raises(BudgetError, match="other pages"):
        office.verb("report", office.run)
    assert not page.exists()


@pytest.mark.parametrize("place", ["without its card", "under another name"])
def test_no_page_is_drawn_from_a_report_that_no_ledger_vouches_for(office, place):
    folder = office.folder
    page, name = (folder / "report.html").read_bytes(), office.run
    assert office.verb("report", office.run, card=False)[0] == 0

    if place == "under another name":
        name = "shop-0123456789"
        folder = folder.rename(folder.with_name(name))
    edit(folder / "report.json", lambda f: f.update(run=name, guarantee=f["guarantee"] | {"epsilon": 0.01}))
    with pytest.raises(BudgetError, match="made it with --home, or" if name == office.run else "no PUBLISH entry"):
        office.verb("report", name, card=name != office.run)
    assert (folder / "report.html").read_bytes() == page


def another_dataset(folder: Path) -> None:
    """A certificate of a dataset that no ledger knows: nothing vouches for it, and its digests are its own."""
    flip_policy(folder)
    edit(folder / "certificate.json", lambda facts: facts.update(dataset="elsewhere"))


def another_name(folder: Path) -> None:
    """The files of a run in a folder of another name, whose digests and claims are brought up to date."""
    flip_policy(folder)
    edit(folder / "report.json", lambda facts: facts.update(run="private-0123456789"))
    folder.rename(folder.with_name("private-0123456789"))


@pytest.mark.parametrize("change", [another_dataset, another_name])
@pytest.mark.parametrize(
    "verb", [["policy", "act", "RUN", "--state", "cold", "--step", 0], ["policy", "show", "RUN"], ["promote", "RUN"]]
)
def test_no_policy_is_shown_or_promoted_that_the_ledger_at_hand_never_published(office, change, verb) -> None:
    assert office.verb(*[office.run if word == "RUN" else word for word in verb])[0] == 0
    change(office.folder)
    [found] = [p.name for p in office.home.runs.iterdir() if p.is_dir() and not p.is_symlink()]
    with pytest.raises(BudgetError):
        office.verb(*[found if word == "RUN" else word for word in verb])


SLOW_PLACES = ("link with a history", "link", "its name in a file")


@pytest.mark.parametrize("put", ["copy", *(pytest.param(p, marks=pytest.mark.slow) for p in SLOW_PLACES)])
def test_another_valid_run_in_the_place_of_a_run_is_not_taken_for_it(office, put):
    runs = office.home.runs
    other = office.make("pure")["run"]
    shutil.rmtree(runs / office.run)
    if put == "copy":
        shutil.copytree(runs / other, runs / office.run)
    elif put == "its name in a file":
        (runs / office.run).write_text(other)
    else:
        (runs / office.run).symlink_to(other)
    if put not in ("copy", "link"):
        history = {"schema_version": 1, "history": [other], "rejected": []}
        (runs / f".{office.run}.json").write_text(json.dumps(history))
    refused = f"no run begins with .*{office.run}" if put == "its name in a file" else f"{other}, not {office.run}"
    for verb in (["ledger", "verify", office.run], ["promote", office.run], ["policy", "show", runs / office.run]):
        with pytest.raises((BudgetError, CardError), match=refused):
            code, proof = office.verb(*verb)
            raise BudgetError(proof["problem"] if code == 4 else f"{code}")
    with pytest.raises((BudgetError, CardError)):
        office.verb("report", office.run)
    assert office.run in office.verb("ledger", "verify")[1]["problem"]
    office.verb("promote", other)
    assert office.verb("ledger", "verify", "current")[1]["run"] == other
    with pytest.raises(CardError, match="is a run's name"):
        office.verb("promote", other, "--pointer", office.run)


@pytest.mark.parametrize(
    ("form", "where"),
    [
        pytest.param(form, where, marks=pytest.mark.slow if i and j else ())
        for i, form in enumerate(("current", "runs/current", "a prefix of a path"))
        for j, where in enumerate(("elsewhere", "beside, by its path", "a name in a file"))
    ],
)
def test_a_pointer_leads_to_a_run_beside_it_and_nowhere_else(office, tmp_path, monkeypatch, form, where):
    """A forged folder of the same name elsewhere, to which the pointer was redirected, passed for the run in use."""
    runs = office.home.runs
    office.verb("promote", office.run)
    forged = tmp_path / "elsewhere" / office.run
    shutil.copytree(runs / office.run, forged)
    flip_policy(forged)
    (runs / "current").unlink()
    if where == "a name in a file":
        (runs / "current").write_text(f"{forged}\n")
    else:
        (runs / "current").symlink_to(forged if where == "elsewhere" else runs / ".." / "runs" / office.run)
    monkeypatch.chdir(runs)
    named = {"current": "current", "runs/current": runs / "current", "a prefix of a path": "./current"}[form]
    for verb in (["ledger", "verify", named], ["policy", "show", named], ["report", named], ["promote", named]):
        with pytest.raises(CardError, match=r"leads to|no run begins|link, and no pointer"):
            office.verb(*verb)
    code, said = office.verb("ledger", "verify")
    assert code == 4 and "leads to" in said["problem"]
    # what to do, as it says
    (runs / "current").unlink()
    assert office.verb("promote", office.run)[1]["now"] == office.run
    assert office.verb("ledger", "verify", named)[1]["run"] == office.run and office.verb("ledger", "verify")[0] == 0
    # the run behind it is what is verified, whatever form its name takes
    flip_policy(runs / office.run)
    code, proof = office.verb("ledger", "verify", named)
    assert code == 4 and proof["run"] == office.run
