"""A published run is what card, release and recipe make of it, and what the ledger vouches for: nothing else passes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pipeline.ledger.ledger import Ledger
from reticent import BudgetError, CardError
from tests.flows.office import edit, flip_policy, forge, kinds_of, made, office, reticent, vouch_for
from tests.flows.shop import lay_out
from tests.jobs import home_at, ingest_job, ledger_in, register_job, run_job
from tests.learners.test_registry import MODULE, recipe

__all__ = ["made", "office"]


def test_an_honest_run_is_vouched_for_and_made_again(office):
    root, run = office
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 0 and proof["ok"] and proof["vouched"]
    assert all(c["ok"] for c in proof["checks"]), [c for c in proof["checks"] if not c["ok"]]
    made = {c["what"].split(",")[0] for c in proof["checks"] if "made again" in c["what"]}
    assert made == {
        "release.json", "policy.parquet", "policy.json", "report.json", "certificate.json", "report.html", "report.md",
    }  # fmt: skip


def test_a_forged_run_is_refused_by_every_verb(office, tmp_path):
    root, run = office
    forge(root / "home" / "runs" / run)
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 4 and not proof["ok"] and not proof["vouched"]
    for verb in (
        ("ledger", "sign", run, "--by", "Ada"),
        ("promote", run),
        ("policy", "export", run, "--to", tmp_path / "p.csv"),
        ("policy", "act", run, "--state", "warm", "--step", 0),
        ("policy", "show", run),
    ):
        with pytest.raises(BudgetError):
            reticent(root, *verb)
    assert not (tmp_path / "p.csv").exists()


def test_the_ledger_itself_says_which_run_was_changed(office):
    root, run = office
    assert reticent(root, "ledger", "verify")[0] == 0
    (root / "home" / "runs" / run / "report.html").write_text("<html>trust us</html>")
    code, said = reticent(root, "ledger", "verify")
    assert code == 4 and said["problem"].startswith(f"{run}: report.html was changed")


def test_a_forgery_that_the_ledger_vouches_for_is_found_by_making_it_again(office):
    """Whoever holds the key and the ledger can vouch for anything; the derivation still tells."""
    root, run = office
    folder = root / "home" / "runs" / run
    flip_policy(folder)
    vouch_for(root, run)
    code, proof = reticent(root, "ledger", "verify", run)
    wrong = [c["what"].split(",")[0] for c in proof["checks"] if c["ok"] is False]
    assert code == 4 and proof["vouched"] and "policy.parquet" in wrong


def test_a_run_that_is_replayed_is_not_published_again(office):
    root, run = office
    book = ledger_in(root / "people")
    before = book.entries()
    assert kinds_of(root) == ["REGISTER", "KEY", "INTENT", "COMMIT", "PUBLISH"]
    assert run_job(str(root / "people" / "private.toml"), home_at(root / "home"))["replayed"]
    assert book.entries() == before
    shutil.rmtree(root / "home" / "runs" / run)
    run_job(str(root / "people" / "private.toml"), home_at(root / "home"))
    assert book.entries() == before
    assert reticent(root, "ledger", "verify", run)[0] == 0


@pytest.mark.parametrize("kind", ["real", pytest.param("synthetic", marks=pytest.mark.slow)])
def test_not_even_the_first_run_of_a_ledger_passes_for_an_older_one_under_another_name(tmp_path, kind):
    ledger = "ledger.db" if kind == "real" else "home"
    shop, home = lay_out(tmp_path / "people", kind=kind, ledger=ledger, cap=10.0), home_at(tmp_path / "home")
    if kind == "real":
        register_job(str(shop), home)
    ingest_job(str(shop), home)
    folder = Path(run_job(str(shop / "private.toml"), home)["folder"])
    edit(folder / "report.json", lambda f: f.update(run="an-older-one"))
    flip_policy(folder)
    folder.rename(home.runs / "an-older-one")
    with pytest.raises(BudgetError, match="no PUBLISH entry is of it"):
        reticent(tmp_path, "promote", "an-older-one")


@pytest.mark.parametrize("place", ["before PUBLISH", "after PUBLISH"])
def test_a_run_that_dies_around_its_publish_entry_is_published_by_the_next_once(office, monkeypatch, place):
    class Died(BaseException):
        pass

    root, _ = office
    publish = Ledger.publish

    def die(*args):
        if place == "after PUBLISH":
            publish(*args)
        raise Died

    recipe, home = str(root / "people" / "pure.toml"), home_at(root / "home")
    with monkeypatch.context() as m:
        m.setattr(Ledger, "publish", die)
        with pytest.raises(Died):
            run_job(recipe, home)
    assert not list(home.runs.glob("pure-*"))
    run = run_job(recipe, home)
    kinds = kinds_of(root)[5:]
    assert kinds.count("PUBLISH") == kinds.count("COMMIT") == kinds.count("INTENT") == 1
    assert run["replayed"] and reticent(root, "ledger", "verify", run["run"])[1]["vouched"]


def test_nothing_of_a_person_is_in_the_entry(office):
    root, run = office
    entry = ledger_in(root / "people").entries()[-1]
    assert set(entry.body) == {
        "run", "run_key", "commit", "snapshot", "seen", "card_hash", "seed", "made_by", "files", "key", "signature",
    }  # fmt: skip
    assert set(entry.body["files"]) == {p.name for p in (root / "home" / "runs" / run).iterdir()}


def test_another_version_is_not_comparable_and_never_damaged(office, newer):
    root, run = office
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 0 and proof["ok"] and proof["vouched"]
    [page] = [c for c in proof["checks"] if c["ok"] is None]
    assert page["what"].startswith("report.html") and "not comparable" in page["found"] and "numpy" in page["found"]


def test_on_another_machine_folder_card_export_and_public_key_are_enough(office, tmp_path):
    root, run = office
    _, registered = reticent(root, "register", root / "people", card=False)
    reticent(root, "ledger", "export", tmp_path / "all.json")
    there = tmp_path / "auditor"
    shutil.copytree(root / "home" / "runs" / run, there / "copy")
    shutil.copyfile(root / "people" / "card.toml", there / "card.toml")
    shutil.move(root, tmp_path / "gone")

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
    root, run = office
    (tmp_path / "evil.py").write_text("raise SystemExit('code of the folder was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    recipe = root / "home" / "runs" / run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('agent = "dp-apvi"', 'agent = "evil:agent"'))
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 4 and any("was not run" in c["found"] for c in proof["checks"])


def test_a_byte_of_any_file_or_its_removal_is_caught(office):
    root, run = office
    for file in sorted(p for p in (root / "home" / "runs" / run).rglob("*") if p.is_file()):
        whole = file.read_bytes()
        for changed in (bytes([whole[0] ^ 1]) + whole[1:], whole[:-1] + bytes([whole[-1] ^ 1]), None):
            file.unlink()
            if changed is not None:
                file.write_bytes(changed)
            try:
                code, proof = reticent(root, "ledger", "verify", run)
                assert code == 4 and not proof["vouched"], (file.name, changed is None)
            except CardError:
                assert file.name in ("certificate.json", "report.json")  # without them a folder is no run
        file.write_bytes(whole)
    assert reticent(root, "ledger", "verify", run)[0] == 0


def test_what_is_no_plain_file_is_noticed_and_never_opened(office):
    root, run = office
    os.mkfifo(root / "home" / "runs" / run / "pipe")
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 4 and "pipe was added" in proof["problem"]


def test_a_run_of_real_people_cannot_pass_for_a_simulation(office):
    root, run = office
    folder = root / "home" / "runs" / run
    lay_out(root / "games")
    games = home_at(root / "home-of-games")
    ingest_job(str(root / "games"), games)
    exact = Path(run_job(str(root / "games" / "exact.toml"), games)["folder"])
    shutil.rmtree(folder)
    shutil.copytree(exact, folder)
    with pytest.raises(BudgetError, match="registered as real"):
        reticent(root, "promote", run)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"entries": [{}]}', '{"entries": [[1]]}', "[" * 100_000, '{"entries": [{"seq": "1"}]}']
)
def test_what_is_no_exported_ledger_is_said(office, tmp_path, text):
    root, run = office
    (tmp_path / "all.json").write_text(text)
    with pytest.raises(CardError, match="no exported ledger"):
        reticent(root, "ledger", "verify", run, "--ledger", tmp_path / "all.json")


def test_an_agent_of_ones_own_is_run_on_the_word_of_ones_own_ledger_alone(office, tmp_path, monkeypatch):
    root, _ = office
    (tmp_path / "own_agent.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    run = run_job(recipe(root / "people", "own_agent:same"), home_at(root / "home"))["run"]
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 0 and all(c["ok"] for c in proof["checks"])
    reticent(root, "ledger", "export", tmp_path / "all.json")
    code, proof = reticent(root, "ledger", "verify", run, "--ledger", tmp_path / "all.json")
    assert code == 0 and proof["vouched"] and any("was not run" in c["found"] for c in proof["checks"])
    # another text of the agent may make another policy: nothing is damaged
    (tmp_path / "own_agent.py").write_text(MODULE + "# edited")
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 0 and any("not made again: older version (agent" in c["found"] for c in proof["checks"])
