"""``ledger head|sign|verify``: heads kept elsewhere, sign-offs, and what verify says of both."""

from __future__ import annotations

import json
import shutil

import pytest

from reticent import BudgetError, CardError, Store
from tests.flows.office import made, office
from tests.flows.office import reticent as verb
from tests.flows.shop import lay_out
from tests.flows.verb import invoke
from tests.jobs import home_at, ingest_job, run_job

pytestmark = pytest.mark.usefixtures("unread")

__all__ = ["made", "office"]


def reticent(root, *args):
    """A ``ledger`` verb on the card's ledger."""
    return verb(root, "ledger", *args)


def test_a_head_kept_elsewhere_is_found_in_every_form(office, tmp_path):
    root, run = office
    _, head = reticent(root, "head")
    line = f"{head['seq']}:{head['hash']}"
    (tmp_path / "mail.txt").write_text(f"Kept on Friday: {line}\n")
    (tmp_path / "head.json").write_text(json.dumps(head))
    for form in (line, tmp_path / "mail.txt", tmp_path / "head.json"):
        assert reticent(root, "verify", "--head", form) == (0, {"ok": True, "entries": 6, "problem": None})
    certificate = root / "home" / "runs" / run / "certificate.json"
    assert reticent(root, "verify", "--certificate", certificate)[0] == 0


@pytest.mark.parametrize("kept", ["head", "certificate"])
def test_an_old_ledger_restored_with_its_store_is_refused_by_what_was_kept(office, tmp_path, kept):
    root, _ = office
    shutil.copytree(root, tmp_path / "old")
    run_job(str(root / "people" / "pure.toml"), home_at(root / "home"))
    _, head = reticent(root, "head")
    newest = max((root / "home" / "runs").glob("*/certificate.json"), key=lambda p: p.stat().st_mtime_ns)
    old = tmp_path / "old"
    assert reticent(old, "verify")[0] == 0, "nothing in the restored folders can tell"
    proof = ("--head", f"{head['seq']}:{head['hash']}") if kept == "head" else ("--certificate", newest)
    code, said = reticent(old, "verify", *proof)
    # a certificate names its COMMIT; the newest entry is the PUBLISH behind it
    lacking = head["seq"] if kept == "head" else head["seq"] - 1
    assert code == 4 and f"lacks entry {lacking}" in said["problem"]


@pytest.fixture
def forked(office, tmp_path):
    """Two ledgers of one past, where the same runs were made: entry by entry the same numbers, and other hashes."""
    root, _ = office
    shutil.copytree(root, tmp_path / "fork")
    for there in (root, tmp_path / "fork"):
        run_job(str(there / "people" / "pure.toml"), home_at(there / "home"))
    return root, tmp_path / "fork"


@pytest.mark.parametrize("kept", ["head", "certificate"])
def test_a_ledger_of_another_past_is_refused_by_what_was_kept_although_it_is_as_long(forked, kept):
    root, fork = forked
    (_, head), (_, other) = reticent(root, "head"), reticent(fork, "head")
    assert head["seq"] == other["seq"] and head["hash"] != other["hash"]
    newest = max((root / "home" / "runs").glob("*/certificate.json"), key=lambda p: p.stat().st_mtime_ns)
    proof = ("--head", f"{head['seq']}:{head['hash']}") if kept == "head" else ("--certificate", newest)
    assert reticent(root, "verify", *proof)[0] == 0
    code, said = reticent(fork, "verify", *proof)
    assert code == 4 and f"lacks entry {head['seq'] - (kept == 'certificate')}" in said["problem"]


def test_no_run_is_charged_to_a_ledger_of_another_past(forked):
    """It has an entry for all that this store drew, from the other draws: only an entry's hash can tell."""
    root, fork = forked
    # published runs would tell as well, where they were not moved elsewhere
    shutil.rmtree(root / "home" / "runs")
    shutil.copy2(fork / "people" / "ledger.db", root / "people" / "ledger.db")
    done = invoke("--home", root / "home", "run", root / "people" / "both.toml")
    assert isinstance(done.exception, BudgetError) and "which this store has seen" in str(done.exception)
    assert reticent(fork, "show")[1]["datasets"] == reticent(root, "show")[1]["datasets"]


def test_no_cap_is_amended_below_what_is_spent(office):
    root, _ = office
    card = root / "people" / "card.toml"
    text, spent = card.read_text(), reticent(root, "show")[1]["datasets"][0]["spent_rho"]
    before = reticent(root, "head")
    card.write_text(text.replace("rho = 10.0", f"rho = {spent / 2}"))
    done = invoke("--home", root / "home", "register", root / "people", "--amend")
    assert isinstance(done.exception, CardError) and f"is below what is spent, {spent:.6g}" in str(done.exception)
    card.write_text(text)
    assert reticent(root, "head") == before
    card.write_text(text.replace("rho = 10.0", f"rho = {spent + 1}"))
    assert invoke("--home", root / "home", "register", root / "people", "--amend").exit_code == 0


@pytest.mark.parametrize("head", ["", "none", "3:abc"])
def test_what_is_no_head_is_the_operators_mistake(office, head):
    with pytest.raises(CardError, match="--head"):
        reticent(office[0], "verify", "--head", head)


def test_several_people_sign_and_everybody_reads_it(office, tmp_path):
    root, run = office
    reticent(root, "sign", run, "--by", "Ada Lovelace", "--note", "scales checked by hand")
    _, signed = reticent(root, "sign", run[:10], "--by", "Grace Hopper")
    assert signed["entry"] == 8 and signed["run"] == run
    _, shown = reticent(root, "show")
    by = [(s["by"], s["note"]) for s in shown["datasets"][0]["signatures"]]
    assert by == [("Ada Lovelace", "scales checked by hand"), ("Grace Hopper", None)]
    reticent(root, "export", tmp_path / "all.json")
    entries = json.loads((tmp_path / "all.json").read_text())["entries"]
    assert [e["kind"] for e in entries[6:]] == ["SIGN", "SIGN"] and len(entries[6]["body"]["certificate_sha256"]) == 64
    assert reticent(root, "verify") == (0, {"ok": True, "entries": 8, "problem": None})


def test_a_certificate_that_changed_after_its_sign_off_is_said(office):
    root, run = office
    reticent(root, "sign", run, "--by", "Ada Lovelace")
    file = root / "home" / "runs" / run / "certificate.json"
    file.write_text(file.read_text() + "\n")
    code, said = reticent(root, "verify")
    assert code == 4 and "changed since Ada Lovelace signed it (entry 7)" in said["problem"]


def test_a_run_made_again_from_its_release_keeps_its_sign_off(office):
    root, run = office
    reticent(root, "sign", run, "--by", "Ada Lovelace")
    run_job(str(root / "people" / "private.toml"), home_at(root / "home"))
    assert reticent(root, "verify")[0] == 0


@pytest.mark.parametrize("file", ["release.parquet", "policy.parquet"])
def test_nobody_signs_what_is_not_what_its_certificate_says(office, file):
    root, run = office
    path = root / "home" / "runs" / run / file
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(BudgetError, match=f"does not verify: sha256 of {file}"):
        reticent(root, "sign", run, "--by", "Ada Lovelace")


def test_nobody_signs_in_another_ledger_or_without_a_name(office):
    root, run = office
    home_ledger = ["--home", str(root / "home"), "ledger", "sign", run, "--by", "Ada", "--json"]
    from pipeline.ledger.ledger import open_ledger

    open_ledger(root / "home" / "ledger.db", create=True)
    done = invoke(*home_ledger)
    assert isinstance(done.exception, BudgetError) and "--card" in str(done.exception)
    for by in ("", " ", "Ada\nLovelace"):
        with pytest.raises(CardError, match="--by"):
            reticent(root, "sign", run, "--by", by)


def test_a_simulation_has_nothing_to_sign(office):
    root, _ = office
    lay_out(root / "games")
    home = home_at(root / "home-of-games")
    ingest_job(str(root / "games"), home)
    run = run_job(str(root / "games" / "exact.toml"), home)["run"]
    command = ["--home", str(home.root), "ledger", "sign", run, "--by", "Ada"]
    done = invoke(*command)
    assert isinstance(done.exception, CardError) and "charged no ledger" in str(done.exception)


def test_verify_settles_what_a_dead_run_left_and_says_so(office, dies_at):
    root, _ = office
    with dies_at("pipeline.ledger.ledger.Ledger.commit"):
        run_job(str(root / "people" / "pure.toml"), home_at(root / "home"))
    code, said = reticent(root, "verify")
    assert code == 0 and said["entries"] == 9
    assert len(said["recovered"]) == 1 and "committed attempt 1" in said["recovered"][0]
    assert "recovered" not in reticent(root, "verify")[1]


def test_retry_lets_lost_draws_be_tried_again_and_everybody_reads_it(office):
    root, _ = office
    command = ["--home", str(root / "home"), "ledger", "retry", str(root / "people"), "--json"]
    done = invoke(*command)
    assert done.exit_code == 0 and json.loads(done.stdout) == {"dataset": "shop", "entry": 7}
    _, shown = reticent(root, "show")
    assert [e["entry"] for e in shown["datasets"][0]["retries"]] == [7] and shown["datasets"][0]["spent_rho"] == 1


def test_a_wide_range_of_rewards_says_how_many_steps_it_has(tmp_path):
    card = lay_out(tmp_path / "shop", kind="real", ledger="ledger.db") / "card.toml"
    written, register = card.read_text(), ("--home", str(tmp_path / "home"), "register", str(card))
    card.write_text(written.replace("steps = 2\n", ""))
    refused = invoke(*register).exception
    assert isinstance(refused, CardError)
    assert "would count as 0" in str(refused) and "steps = 2" in str(refused)
    card.write_text(written.replace("range = [0.0, 2.0]\nsteps = 2\n", "range = [0.0, 1.0]\n"))
    assert invoke(*register).exit_code == 0


def test_what_was_spent_is_shown_rounded_up_and_what_is_left_down(office):
    from flows.terminal.screen import plain
    from flows.verbs import _history

    root, _ = office
    spent = 0.30000051
    [facts] = Store(root / "home").ledger(root / "people").lineages()
    limit = facts.limit.model_copy(update={"left_rho": 0.7000009})
    charged = [facts.entries[0].model_copy(update={"rho": spent})]
    changed = {"spent_rho": spent, "limit": limit, "schedule": {"month": 1.0}, "entries": charged}
    words = "\n".join(plain(_history([facts.model_copy(update=changed)])))
    assert "spent ρ = 0.300001 of" in words and "left now 0.7 " in words and words.count("0.300001") == 2
