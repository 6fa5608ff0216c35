"""``ledger verify --public-key K``: somebody with that key vouches for the ledger, up to an entry that is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flows.office import chained, exported, made, office, reticent
from tests.flows.shop import lay_out
from tests.flows.verb import invoke
from tests.jobs import home_at, register_job

__all__ = ["made", "office"]


def verify(root: Path, file: Path, key: str, *more: object) -> tuple[int, dict]:
    return reticent(root, "ledger", "verify", "--ledger", file, "--public-key", key, *more, card=False)


@pytest.fixture
def key(office) -> str:
    return reticent(office[0], "ledger", "head")[1]["key"]


def test_a_ledger_without_one_signature_is_vouched_for_by_nobody(office, key, tmp_path):
    root, _ = office
    stripped = [e for e in exported(root, tmp_path / "all.json") if e["kind"] != "PUBLISH"]
    code, found = verify(root, chained(stripped, tmp_path / "stripped.json"), key)
    assert code == 4 and "no entry is signed by a key that was given" in found["problem"]
    assert "vouched" not in found


def test_a_ledger_that_was_only_registered_is_vouched_for_by_nobody(tmp_path):
    shop, home = lay_out(tmp_path / "people", kind="real", ledger="ledger.db"), home_at(tmp_path / "home")
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
    root, _ = office
    entries = exported(root, tmp_path / "all.json")
    whole = verify(root, tmp_path / "all.json", key)[1]
    assert entries[-1]["kind"] == "PUBLISH" and (whole["vouched"], whole["unsigned"]) == (len(entries), 0)
    tail = {**entries[-1], "kind": "RETRY", "body": {}}
    for behind, words in ((1, "1 entry behind it is not signed"), (2, "2 entries behind it are not signed")):
        file = chained([*entries, *[tail] * behind], tmp_path / f"{behind}.json")
        code, found = verify(root, file, key)
        assert code == 0 and (found["vouched"], found["unsigned"]) == (len(entries), behind)
        done = invoke("--home", root / "home", "ledger", "verify", "--ledger", file, "--public-key", key)
        assert f"vouched up to entry {len(entries)}; {words}" in " ".join(done.stdout.split())
    # the ledger's own database says the same
    found = reticent(root, "ledger", "verify", "--public-key", key)[1]
    assert found["ok"] and (found["vouched"], found["unsigned"]) == (len(entries), 0)


def test_a_signed_head_vouches_for_what_no_run_was_published_in(office, key, tmp_path):
    root, _ = office
    reticent(root, "ledger", "retry", root / "people", card=False)
    assert reticent(root, "ledger", "verify", "--public-key", key)[1]["unsigned"] == 1
    _, head = reticent(root, "ledger", "head")
    (tmp_path / "head.json").write_text(json.dumps(head))
    code, found = reticent(root, "ledger", "verify", "--public-key", key, "--head", tmp_path / "head.json")
    assert code == 0 and (found["vouched"], found["unsigned"]) == (head["seq"], 0)


def test_only_the_head_that_is_signed_counts(office, key, tmp_path):
    """A file may hold the text of another head beside the signed one."""
    root, _ = office
    _, head = reticent(root, "ledger", "head")
    entries = exported(root, tmp_path / "all.json")
    file = chained([e for e in entries if e["kind"] != "PUBLISH"], tmp_path / "stripped.json")
    last = json.loads(file.read_text())["entries"][-1]
    both = {**head, "note": f"{last['seq']}:{last['hash']}"}
    (tmp_path / "head.json").write_text(json.dumps(both))
    code, found = verify(root, file, key, "--head", tmp_path / "head.json")
    assert code == 4 and f"lacks entry {head['seq']}" in found["problem"]


def test_a_key_of_another_is_no_signature(office, tmp_path):
    root, _ = office
    exported(root, tmp_path / "all.json")
    code, found = verify(root, tmp_path / "all.json", "ab" * 32)
    assert code == 4 and "signed by another key" in found["problem"]
