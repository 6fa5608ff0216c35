"""``inspect`` as a job and a verb: in the ledger before a row is read, and nowhere else."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from flows.terminal.pages import inspection_page as page
from flows.terminal.screen import plain
from pipeline.ledger.chain import entries_of
from pipeline.privacy.noise import SeededNoise
from reticent import BudgetError, CardError
from tests.flows.shop import lay_out
from tests.flows.verb import reticent
from tests.jobs import home_at, ingest_job, inspect_job, ledger_of, register_job, run_job

KEYS = {
    "dataset", "kind", "snapshot", "source_rows", "rows", "users", "episodes", "rules", "people", "steps", "coverage",
    "behaviour", "shares", "reward", "noise", "hidden_state", "warnings", "ledger_entry",
}  # fmt: skip


@pytest.fixture
def shop(tmp_path):
    return lay_out(tmp_path / "shop")


@pytest.fixture
def home(tmp_path, shop, opened):
    return opened(tmp_path, kind="synthetic", ledger="home")[1]


def test_a_look_is_entered_at_no_cost_and_shown(tmp_path, shop, home):
    facts = inspect_job(str(shop), home)
    assert set(facts) == KEYS
    book = ledger_of(home)
    (entry,) = entries_of(book.entries(), "shop", "INSPECT")
    assert entry.seq == facts["ledger_entry"] and book.account("shop").spent == 0
    counted = {str(facts[k]) for k in ("rows", "users", "episodes")}
    assert not counted & set(re.findall(r"\d+", json.dumps(dict(entry.body))))
    r = reticent("--home", home.root, "ledger", "show", "--json", cwd=tmp_path)
    assert json.loads(r.stdout)["datasets"][0]["inspections"][0]["entry"] == entry.seq


def test_the_entry_is_there_before_a_row_is_read(shop, home):
    for part in (home.store / "shop").rglob("part-*.parquet"):
        part.write_bytes(b"unreadable")
    with pytest.raises(Exception, match=r"(?i)parquet"):
        inspect_job(str(shop), home)
    assert len(entries_of(ledger_of(home).entries(), "shop", "INSPECT")) == 1


def test_a_ledger_cut_after_a_look_is_noticed(shop, home):
    register_job(str(shop), home)
    shutil.copy(home.root / "ledger.db", home.root / "old.db")
    inspect_job(str(shop), home)
    shutil.copy(home.root / "old.db", home.root / "ledger.db")
    with pytest.raises(BudgetError, match="lacks entry"):
        run_job(str(shop / "private.toml"), home)


def test_an_unregistered_real_card_must_be_registered_first(tmp_path):
    real, home = lay_out(tmp_path / "people", kind="real", ledger="books/ledger.db"), tmp_path / "home"
    ingest_job(str(real), home_at(home))
    r = reticent("--home", home, "inspect", real, cwd=tmp_path)
    assert r.returncode == 4 and "register" in r.stderr and not r.stdout
    register_job(str(real), home_at(home))
    assert inspect_job(str(real), home_at(home))["rows"] > 0


def test_without_a_snapshot_it_says_ingest(tmp_path, shop):
    with pytest.raises(CardError, match="ingest"):
        inspect_job(str(shop), home_at(tmp_path / "fresh"))


def run_folder(home, shop):
    return home.runs / run_job(str(shop / "private.toml"), home, noise=SeededNoise(7))["run"]


def told(folder):
    return "".join(json.loads((folder / "certificate.json").read_text())["assumptions"])


def without_the_ledgers_numbers(folder, name):
    """A page without its INSPECT sentences, and with its ledger's entry, hash and time blotted out."""
    proof = json.loads((folder / "certificate.json").read_text())["ledger"]
    text = (folder / name).read_text().replace(proof["hash"], "HASH").replace(proof["at"], "TIME")
    text = re.sub(r"\s*(?:<li>|- |\* |\")[^\n<]*looked at the data[^\n<]*(?:</li>|\"|(?=\n))", "", text)
    text = re.sub(r"((?i:entry)(?:\W|</?\w+[^>]*>)*)\d+", r"\1N", text)
    return re.sub(r",(?=\s*\])", "", text)


def test_a_run_after_a_look_differs_in_that_sentence_and_the_ledgers_numbers_only(tmp_path, shop, home):
    other = home_at(tmp_path / "other")
    ingest_job(str(shop), other)
    looked = inspect_job(str(shop), other)
    before, after = run_folder(home, shop), run_folder(other, shop)
    assert {p.name for p in before.iterdir()} == {p.name for p in after.iterdir()}
    pages = {"certificate.json", "report.json", "report.html", "report.md"}
    for name in (p.name for p in before.iterdir()):
        old, new = (before / name).read_bytes(), (after / name).read_bytes()
        if name not in pages:
            assert old == new, name
            continue
        assert b"looked at the data" in new and b"looked at the data" not in old, name
        assert without_the_ledgers_numbers(before, name) == without_the_ledgers_numbers(after, name), name
        for count in (looked["rows"], looked["steps"]["rows_by_step"][1]):
            assert not re.search(rf"\b(?:{count}|{count:,})\b", new.decode()), (name, count)


def test_the_certificate_says_that_the_card_was_changed_after_a_look(shop, home):
    text = (shop / "card.toml").read_text()
    inspect_job(str(shop), home)
    assert "the card was changed" not in told(run_folder(home, shop))
    (shop / "card.toml").write_text(text.replace('[["cold", "call"]]', '[["cold", "call"], ["warm", "none"]]'))
    folder = run_folder(home, shop)
    # the release is the one of before; the policy is not
    assert "the card was changed after somebody had looked at the data (entry 2)" in told(folder)
    assert "the card was changed after somebody had looked" in (folder / "report.html").read_text()
    (shop / "card.toml").write_text(text)
    assert "the card was changed" not in told(run_folder(home, shop))


def test_a_look_at_the_same_people_under_another_name_is_told(tmp_path):
    home, folders = home_at(tmp_path / "home"), []
    for name in ("shop", "again"):
        folders.append(lay_out(tmp_path / name, name=name, kind="real", ledger="../ledger.db"))
        register_job(str(folders[-1]), home)
        ingest_job(str(folders[-1]), home)
    assert "somebody looked" not in told(home.runs / run_job(str(folders[0] / "private.toml"), home)["run"])
    entry = inspect_job(str(folders[1]), home)["ledger_entry"]
    # the release is the one of before
    folder = home.runs / run_job(str(folders[0] / "private.toml"), home)["run"]
    assert f"somebody looked at the data of again (entry {entry}), whose people may be the same" in told(folder)
    assert "the card was changed" not in told(folder) and "data of again" in (folder / "report.html").read_text()


def test_a_domain_changed_and_amended_after_a_look_is_told_too(shop, home):
    inspect_job(str(shop), home)
    card = shop / "card.toml"
    card.write_text(card.read_text().replace("steps = 2", "steps = 4"))
    register_job(str(shop), home, amend=True)
    ingest_job(str(shop), home)
    assert "the card was changed after somebody had looked" in told(run_folder(home, shop))


def test_the_verb_is_no_flow_and_prints_one_object_or_a_page(tmp_path, shop, home):
    # a server that is not there would fail a recorded flow
    env = {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    r = reticent("--home", home.root, "inspect", shop, "--json", cwd=tmp_path, **env)
    assert r.returncode == 0, r.stderr
    assert set(json.loads(r.stdout)) == KEYS
    r = reticent("--home", home.root, "inspect", shop, cwd=tmp_path, **env)
    assert r.returncode == 0, r.stderr
    for words in ("OPERATOR ONLY", "Coverage", "Visits against the noise", "mail"):
        assert words in r.stdout


def test_the_page_shows_labels_as_they_are_and_every_warning_in_three_parts(shop, home):
    facts = inspect_job(str(shop), home)
    facts["behaviour"][0]["top_action"] = "[red]call[/red]"
    facts["rules"] = [{"rule": "gap", "effect": "drop_episode", "rows": 7, "share": 0.01, "tolerance": 0.5}]
    facts["warnings"] = [{"code": "delta", "what": "one", "means": "two", "do": "three"}]
    text = "\n".join(plain(page(facts)))
    assert "[red]call[/red]" in text and "50.000%" in text
    assert "WARNING delta: one." in text and "means: two." in text and "do: three." in text
