"""``ledger head|sign|verify``: heads kept elsewhere, sign-offs, who vouches up to which entry, and older versions."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import flows.jobs.run as reading
from flows.jobs.made_again import Check
from flows.terminal.screen import plain
from flows.verbs import _history
from pipeline.ledger.ledger import open_ledger
from reticent import BudgetError, CardError, Store
from tests.flows.office import Office, chained, edit, exported, reticent, vouch_for
from tests.flows.shop import add, change, lay_out
from tests.flows.verb import answer, invoke, refusal
from tests.jobs import home_at, ingest_job, register_job, run_job


def test_a_head_kept_elsewhere_is_found_in_every_form(office, tmp_path):
    _, head = office.verb("ledger", "head")
    line = f"{head['seq']}:{head['hash']}"
    (tmp_path / "mail.txt").write_text(f"Kept on Friday: {line}\n")
    (tmp_path / "head.json").write_text(json.dumps(head))
    for form in (line, tmp_path / "mail.txt", tmp_path / "head.json"):
        assert office.verb("ledger", "verify", "--head", form) == (0, {"ok": True, "entries": 6, "problem": None})
    certificate = office.folder / "certificate.json"
    assert office.verb("ledger", "verify", "--certificate", certificate)[0] == 0


def kept_of(root, kept):
    """What was kept of the newest run: options of ``verify``, and the entry that they name."""
    _, head = reticent(root, "ledger", "head")
    if kept == "head":
        return ("--head", f"{head['seq']}:{head['hash']}"), head["seq"]
    newest = max((root / "home" / "runs").glob("*/certificate.json"), key=lambda p: p.stat().st_mtime_ns)
    # it names its COMMIT; the newest entry is the PUBLISH behind it
    return ("--certificate", newest), head["seq"] - 1


@pytest.mark.parametrize("kept", ["head", "certificate"])
def test_an_old_ledger_restored_with_its_store_is_refused_by_what_was_kept(office, tmp_path, kept):
    old = shutil.copytree(office.root, tmp_path / "old")
    office.make("pure")
    assert reticent(old, "ledger", "verify")[0] == 0, "nothing in the restored folders can tell"
    proof, lacking = kept_of(office.root, kept)
    code, said = reticent(old, "ledger", "verify", *proof)
    assert code == 4 and f"lacks entry {lacking}" in said["problem"]


@pytest.fixture
def forked(office, tmp_path):
    """Two ledgers of one past, where the same runs were made: entry by entry the same numbers, and other hashes."""
    shutil.copytree(office.root, tmp_path / "fork")
    for there in (office.root, tmp_path / "fork"):
        run_job(str(there / "people" / "pure.toml"), home_at(there / "home"))
    return office.root, tmp_path / "fork"


@pytest.mark.parametrize("kept", ["head", "certificate"])
def test_a_ledger_of_another_past_is_refused_by_what_was_kept_although_it_is_as_long(forked, kept):
    root, fork = forked
    (_, head), (_, other) = reticent(root, "ledger", "head"), reticent(fork, "ledger", "head")
    assert head["seq"] == other["seq"] and head["hash"] != other["hash"]
    proof, lacking = kept_of(root, kept)
    assert reticent(root, "ledger", "verify", *proof)[0] == 0
    code, said = reticent(fork, "ledger", "verify", *proof)
    assert code == 4 and f"lacks entry {lacking}" in said["problem"]


def test_no_run_is_charged_to_a_ledger_of_another_past(forked):
    """It has an entry for all that this store drew, from the other draws: only an entry's hash can tell."""
    root, fork = forked
    # published runs would tell as well, where they were not moved elsewhere
    shutil.rmtree(root / "home" / "runs")
    shutil.copy2(fork / "people" / "ledger.db", root / "people" / "ledger.db")
    refused = refusal(root / "home", "run", root / "people" / "both.toml", kind=BudgetError)
    assert "which this store has seen" in refused
    assert reticent(fork, "ledger", "show")[1]["datasets"] == reticent(root, "ledger", "show")[1]["datasets"]


def test_no_cap_is_amended_below_what_is_spent(office):
    card = office.people / "card.toml"
    text, spent = card.read_text(), office.verb("ledger", "show")[1]["datasets"][0]["spent_rho"]
    before = office.verb("ledger", "head")
    card.write_text(text.replace("rho = 10.0", f"rho = {spent / 2}"))
    assert f"is below what is spent, {spent:.6g}" in refusal(office.home.root, "register", office.people, "--amend")
    card.write_text(text)
    assert office.verb("ledger", "head") == before
    card.write_text(text.replace("rho = 10.0", f"rho = {spent + 1}"))
    answer(office.home.root, "register", office.people, "--amend")


@pytest.mark.parametrize("head", ["", "none", "3:abc"])
def test_what_is_no_head_is_the_operators_mistake(office, head):
    with pytest.raises(CardError, match="--head"):
        office.verb("ledger", "verify", "--head", head)


def test_several_people_sign_and_everybody_reads_it(office, tmp_path):
    office.verb("ledger", "sign", office.run, "--by", "Ada Lovelace", "--note", "scales checked by hand")
    _, signed = office.verb("ledger", "sign", office.run[:10], "--by", "Grace Hopper")
    assert signed["entry"] == 8 and signed["run"] == office.run
    _, shown = office.verb("ledger", "show")
    by = [(s["by"], s["note"]) for s in shown["datasets"][0]["signatures"]]
    assert by == [("Ada Lovelace", "scales checked by hand"), ("Grace Hopper", None)]
    office.verb("ledger", "export", tmp_path / "all.json")
    entries = json.loads((tmp_path / "all.json").read_text())["entries"]
    assert [e["kind"] for e in entries[6:]] == ["SIGN", "SIGN"] and len(entries[6]["body"]["certificate_sha256"]) == 64
    # made again from its release, the run keeps its sign-offs
    office.make("private")
    assert office.verb("ledger", "verify") == (0, {"ok": True, "entries": 8, "problem": None})
    add(office.folder / "certificate.json", "\n")
    code, said = office.verb("ledger", "verify")
    assert code == 4 and "changed since Ada Lovelace signed it (entry 7)" in said["problem"]


@pytest.mark.parametrize("file", ["release.parquet", "policy.parquet"])
def test_nobody_signs_what_is_not_what_its_certificate_says(office, file):
    path = office.folder / file
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(BudgetError, match=f"does not verify: sha256 of {file}"):
        office.verb("ledger", "sign", office.run, "--by", "Ada Lovelace")


def test_nobody_signs_in_another_ledger_or_without_a_name(office):
    open_ledger(office.home.root / "ledger.db", create=True)
    assert "--card" in refusal(office.home.root, "ledger", "sign", office.run, "--by", "Ada", kind=BudgetError)
    for by in ("", " ", "Ada\nLovelace"):
        with pytest.raises(CardError, match="--by"):
            office.verb("ledger", "sign", office.run, "--by", by)


def test_a_simulation_has_nothing_to_sign(office):
    lay_out(office.root / "games")
    home = home_at(office.root / "home-of-games")
    ingest_job(str(office.root / "games"), home)
    run = run_job(str(office.root / "games" / "exact.toml"), home)["run"]
    assert "charged no ledger" in refusal(home.root, "ledger", "sign", run, "--by", "Ada")


def test_verify_settles_what_a_dead_run_left_and_says_so(office, dies_at):
    with dies_at("pipeline.ledger.ledger.Ledger.commit"):
        office.make("pure")
    code, said = office.verb("ledger", "verify")
    assert code == 0 and said["entries"] == 9
    assert len(said["recovered"]) == 1 and "committed attempt 1" in said["recovered"][0]
    assert "recovered" not in office.verb("ledger", "verify")[1]


def test_retry_lets_lost_draws_be_tried_again_and_everybody_reads_it(office):
    assert answer(office.home.root, "ledger", "retry", office.people) == {"dataset": "shop", "entry": 7}
    _, shown = office.verb("ledger", "show")
    assert [e["entry"] for e in shown["datasets"][0]["retries"]] == [7] and shown["datasets"][0]["spent_rho"] == 1


def test_a_wide_range_of_rewards_says_how_many_steps_it_has(tmp_path):
    card = lay_out(tmp_path / "shop", kind="real") / "card.toml"
    change(card, "steps = 2\n", "")
    refused = refusal(tmp_path / "home", "register", card)
    assert "would count as 0" in refused and "steps = 2" in refused
    change(card, "range = [0.0, 2.0]\n", "range = [0.0, 1.0]\n")
    answer(tmp_path / "home", "register", card)


def test_what_was_spent_is_shown_rounded_up_and_what_is_left_down(office):
    spent = 0.30000051
    [facts] = Store(office.home.root).ledger(office.people).lineages()
    limit = facts.limit.model_copy(update={"left_rho": 0.7000009})
    charged = [facts.entries[0].model_copy(update={"rho": spent})]
    changed = {"spent_rho": spent, "limit": limit, "schedule": {"month": 1.0}, "entries": charged}
    words = "\n".join(plain(_history([facts.model_copy(update=changed)])))
    assert "spent ρ = 0.300001 of" in words and "left now 0.7 " in words and words.count("0.300001") == 2


def verify(root: Path, file: Path, key: str, *more: object) -> tuple[int, dict]:
    return reticent(root, "ledger", "verify", "--ledger", file, "--public-key", key, *more, card=False)


def stripped(office: Office, folder: Path) -> Path:
    """The exported ledger without its PUBLISH entry."""
    kept = [e for e in exported(office.root, folder / "all.json") if e["kind"] != "PUBLISH"]
    return chained(kept, folder / "stripped.json")


@pytest.fixture
def key(office) -> str:
    return office.verb("ledger", "head")[1]["key"]


def test_a_ledger_without_a_signature_by_the_given_key_is_vouched_for_by_nobody(office, key, tmp_path):
    code, found = verify(office.root, stripped(office, tmp_path), key)
    assert code == 4 and "no entry is signed by a key that was given" in found["problem"]
    assert "vouched" not in found
    code, found = verify(office.root, tmp_path / "all.json", "ab" * 32)
    assert code == 4 and "signed by another key" in found["problem"]


def test_a_ledger_that_was_only_registered_is_vouched_for_by_nobody(tmp_path):
    shop, home = lay_out(tmp_path / "people", kind="real"), home_at(tmp_path / "home")
    public = register_job(str(shop), home)["public_key"]
    code, found = reticent(tmp_path, "ledger", "verify", "--public-key", public)
    assert code == 4 and not found["ok"]
    assert reticent(tmp_path, "ledger", "verify")[0] == 0
    # a signed head is enough
    _, head = reticent(tmp_path, "ledger", "head")
    (tmp_path / "head.json").write_text(json.dumps(head))
    code, found = reticent(tmp_path, "ledger", "verify", "--public-key", public, "--head", tmp_path / "head.json")
    assert code == 0 and (found["vouched"], found["unsigned"]) == (head["seq"], 0)


def test_entries_behind_the_last_signature_are_counted_and_said(office, key, tmp_path):
    entries = exported(office.root, tmp_path / "all.json")
    whole = verify(office.root, tmp_path / "all.json", key)[1]
    assert entries[-1]["kind"] == "PUBLISH" and (whole["vouched"], whole["unsigned"]) == (len(entries), 0)
    tail = {**entries[-1], "kind": "RETRY", "body": {}}
    for behind, words in ((1, "1 entry behind it is not signed"), (2, "2 entries behind it are not signed")):
        file = chained([*entries, *[tail] * behind], tmp_path / f"{behind}.json")
        code, found = verify(office.root, file, key)
        assert code == 0 and (found["vouched"], found["unsigned"]) == (len(entries), behind)
        done = invoke("--home", office.home.root, "ledger", "verify", "--ledger", file, "--public-key", key)
        assert f"vouched up to entry {len(entries)}; {words}" in " ".join(done.stdout.split())
    # the ledger's own database says the same
    found = office.verb("ledger", "verify", "--public-key", key)[1]
    assert found["ok"] and (found["vouched"], found["unsigned"]) == (len(entries), 0)


def test_only_the_head_that_is_signed_counts(office, key, tmp_path):
    """A file may hold the text of another head beside the signed one."""
    _, head = office.verb("ledger", "head")
    last = json.loads((file := stripped(office, tmp_path)).read_text())["entries"][-1]
    (tmp_path / "head.json").write_text(json.dumps({**head, "note": f"{last['seq']}:{last['hash']}"}))
    code, found = verify(office.root, file, key, "--head", tmp_path / "head.json")
    assert code == 4 and f"lacks entry {head['seq']}" in found["problem"]


OLDER = "not made again: older version (source 0123456789abcdef"


@pytest.fixture
def aged(office, monkeypatch) -> Office:
    """A run whose PUBLISH entry says that another version of the program made it."""
    now = reading.maker()
    with monkeypatch.context() as then:
        then.setattr(reading, "maker", lambda: {**now, "source": "0123456789abcdef"})
        return Office(office.root, office.make("both")["run"])


def no_recipe(*_: object) -> Any:
    raise CardError("recipe.toml: [privacy] release = 'two_tables' is gone; take one_table")


FORM = Check("the certificate has the form of its schema", False, "top: 'survives' is a required property")
# what another version does otherwise
CHANGES = {
    "the version of what is released is part of its key": ("flows.jobs.made_again.key_of", lambda *_: "0" * 64),
    "the mechanism moves further with a person": (
        "flows.jobs.made_again._charge_problem",
        lambda *_: "entry 3 was charged for other mechanisms",
    ),
    "the recipe asks for what no longer is": ("flows.jobs.made_again.load_recipe", no_recipe),
    "the page has other words": ("reports.run.run_page.render_html", lambda *_: "<html>newer</html>"),
    # the run has no joint loss, so its certificate's form stands for bounds and forms of files
    "forms of files are others": ("pipeline.ledger.verify._against_schema", lambda _: FORM),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_an_older_version_made_is_proved_by_the_ledger_and_called_so(aged, monkeypatch, change):
    monkeypatch.setattr(*CHANGES[change])
    code, proof = aged.verb("ledger", "verify", aged.run)
    assert code == 0 and proof["ok"] and proof["vouched"] and proof["problem"] is None
    unproved = [c for c in proof["checks"] if not c["ok"]]
    assert unproved and all(c["ok"] is None and c["found"].startswith(OLDER) for c in unproved)
    proved = {c["what"] for c in proof["checks"] if c["ok"]}
    assert {
        "the ledger vouches for every file of the folder",
        "that entry is signed by a key that is trusted",
        "the loss, recomputed from the listed mechanisms",
        "the ledger holds this very entry",
        "the ledger was charged for these mechanisms",
    } <= proved
    assert aged.verb("promote", aged.run)[1]["vouched"]


@pytest.mark.parametrize("change", CHANGES)
def test_what_todays_version_made_is_wrong_all_the_same(office, monkeypatch, change):
    monkeypatch.setattr(*CHANGES[change])
    code, proof = office.verb("ledger", "verify", office.run)
    assert code == 4 and not proof["ok"]


def test_an_older_version_that_charged_too_little_is_wrong_even_where_it_vouches_for_it(aged):
    """Of an insider's claim the charge is proved all the same: what the files list is not what the ledger has."""
    folder = aged.folder

    for file in ("certificate.json", "release.json", "report.json"):
        edit(folder / file, lambda f: f["mechanisms"][0].update(variance=4 * f["mechanisms"][0]["variance"]))
    vouch_for(aged.root, aged.run)
    assert aged.verb("ledger", "verify", aged.run)[0] == 4


def test_nobody_becomes_an_older_version_by_saying_so(office, tmp_path, monkeypatch):
    """A ledger whose PUBLISH was rewritten to name another version: its chain is whole, and its signature is not."""
    entries = exported(office.root, tmp_path / "all.json")
    assert entries[-1]["kind"] == "PUBLISH"
    entries[-1]["body"]["made_by"]["source"] = "0" * 16
    monkeypatch.setattr(*CHANGES["the mechanism moves further with a person"])
    code, proof = office.verb("ledger", "verify", office.run, "--ledger", chained(entries, tmp_path / "forged.json"))
    assert code == 4 and any("signature is wrong" in c["found"] for c in proof["checks"])
    assert not any("older version" in c["found"] for c in proof["checks"])
