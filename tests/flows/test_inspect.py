"""``inspect``: in the ledger before a row is read; and what ``ingest`` tells of people: who was lost, by which rule."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import reticent
from flows.config.home import card_at
from flows.terminal.pages import inspection_page as page
from flows.terminal.screen import plain
from pipeline.ledger.chain import entries_of
from pipeline.logs.store import check_delivery, snapshots
from pipeline.privacy.noise import SeededNoise
from reticent import BudgetError, CardError, LogError
from tests.flows.shop import add, change, lay_out, rows
from tests.flows.test_store_verbs import Purge
from tests.flows.verb import answer, invoke
from tests.flows.verb import reticent as shell
from tests.jobs import home_at, ingest_job, inspect_job, ledger_of, register_job, run_job

KEYS = {
    "dataset", "kind", "snapshot", "source_rows", "rows", "users", "episodes", "rules", "people", "steps", "coverage",
    "behaviour", "shares", "reward", "noise", "hidden_state", "warnings", "ledger_entry",
}  # fmt: skip


def test_a_look_is_entered_at_no_cost_and_shown(tmp_path, shop, home):
    facts = inspect_job(str(shop), home)
    assert set(facts) == KEYS
    book = ledger_of(home)
    (entry,) = entries_of(book.entries(), "shop", "INSPECT")
    assert entry.seq == facts["ledger_entry"] and book.account("shop").spent == 0
    counted = {str(facts[k]) for k in ("rows", "users", "episodes")}
    assert not counted & set(re.findall(r"\d+", json.dumps(dict(entry.body))))
    assert answer(home.root, "ledger", "show")["datasets"][0]["inspections"][0]["entry"] == entry.seq


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
    r = shell("--home", home, "inspect", real, cwd=tmp_path)
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


def test_the_certificate_says_that_the_card_was_changed_after_a_look_also_if_it_was_amended(shop, home):
    inspect_job(str(shop), home)
    assert "the card was changed" not in told(run_folder(home, shop))
    change(shop / "card.toml", '[["cold", "call"]]', '[["cold", "call"], ["warm", "none"]]')
    folder = run_folder(home, shop)
    # the release is the one of before; the policy is not
    assert "the card was changed after somebody had looked at the data (entry 2)" in told(folder)
    assert "the card was changed after somebody had looked" in (folder / "report.html").read_text()
    change(shop / "card.toml", ', ["warm", "none"]', "")
    assert "the card was changed" not in told(run_folder(home, shop))
    change(shop / "card.toml", "steps = 2", "steps = 4")
    register_job(str(shop), home, amend=True)
    ingest_job(str(shop), home)
    assert "the card was changed after somebody had looked" in told(run_folder(home, shop))


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


def test_the_verb_is_no_flow_and_prints_one_object_or_a_page(tmp_path, shop, home):
    # a server that is not there would fail a recorded flow
    env = {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    r = shell("--home", home.root, "inspect", shop, "--json", cwd=tmp_path, **env)
    assert r.returncode == 0, r.stderr
    assert set(json.loads(r.stdout)) == KEYS
    r = shell("--home", home.root, "inspect", shop, cwd=tmp_path, **env)
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


@pytest.fixture
def torn(tmp_path) -> Path:
    """Of 400 customers 40 are lost, all of them warm and called; one line is broken, two offers are written anew."""
    log = [list(r) for r in rows()]
    for r in log:
        if int(r[0][1:]) < 40:
            r[3], r[4], r[5] = "warm", "call", "much"
        elif int(r[0][1:]) in (50, 51):
            r[4] = "e-mail"
    shop = lay_out(tmp_path / "shop", log=log)
    add(shop / "log.csv", "torn,line\n")
    return shop


def test_people_and_rows_are_counted_by_rule_label_and_step_and_those_lost_compared_with_those_kept(torn, tmp_path):
    r = reticent.Store(tmp_path / "home").ingest(torn)["report"]
    assert (r["people_lost"], r["people_kept"], r["share_lost"]) == (42, 358, 42 / 400)
    by = {one["rule"]: one for one in r["rules"]}
    assert (by["bad_reward"]["people"], by["bad_reward"]["episodes"]) == (40, 40)
    assert by["malformed_line"]["people"] is None and by["malformed_line"]["rows"] == 1
    assert {"column": "offer", "label": "e-mail", "rows": by["unknown_label"]["rows"]} in r["labels"]
    assert {"column": "sale", "label": "much", "rows": by["bad_reward"]["rows"]} in r["labels"]
    assert len(r["labels"]) == 2
    assert [one["step"] for one in r["steps"]] == ["0", "1", "2"]
    differs = {d["column"]: d for d in r["differences"]}
    assert differs["mood"]["speaks"] and differs["offer"]["speaks"] and differs["offer"]["label"] == "call"
    assert differs["offer"]["share_lost"] > 0.9 > differs["offer"]["share_kept"]


@pytest.mark.parametrize(
    ("column", "text"), [("t", "first"), ("t", "-1"), ("t", None), ("sale", "1,5"), ("sale", None), ("left", "perhaps")]
)
def test_what_cannot_be_read_is_shown_with_its_column(tmp_path, column, text):
    names = (lay_out(tmp_path / "shop") / "log.csv").read_text().splitlines()[0].split(",")
    log = [list(r) for r in rows()]
    for r in log[:20]:
        r[names.index(column)] = "" if text is None else f'"{text}"'
    lay_out(tmp_path / "odd", log=log)
    r = reticent.Store(tmp_path / "home").ingest(tmp_path / "odd")["report"]
    assert {"column": column, "label": text, "rows": 20} in r["labels"]


def test_people_lost_at_random_are_like_those_kept(tmp_path):
    log = [(*r[:5], "much" if int(r[0][1:]) % 7 == 0 else r[5], r[6]) for r in rows(2000)]
    r = reticent.Store(tmp_path / "home").ingest(lay_out(tmp_path / "shop", log=log))["report"]
    assert r["people_lost"] > 200 and r["differences"] and not any(d["speaks"] for d in r["differences"])


def test_a_label_that_is_missing_alike_among_lost_and_kept_is_no_difference(tmp_path):
    """A third of all lack a group; it was OTHER among those kept, and nothing among those lost."""
    lines = [f"p{i},{('a', 'b', '')[i % 3]},{'xy'[i % 2]},{'' if i % 5 == 0 else i % 7 % 2}" for i in range(3_000)]
    (tmp_path / "log.csv").write_text("\n".join(["user,group,offer,paid", *lines]) + "\n")
    reticent.draft(tmp_path / "log.csv", action="offer").save(tmp_path)
    differences = reticent.Store(tmp_path / "home").ingest(tmp_path / "card.toml")["report"]["differences"]
    assert {d["column"] for d in differences} == {"group", "offer"} and not any(d["speaks"] for d in differences)


def test_losing_many_people_is_said_loudly_and_the_page_lies_in_the_store(torn, tmp_path):
    done = invoke("--home", tmp_path / "home", "ingest", torn)
    assert done.exit_code == 0 and "warning: 42 people (10.5%) have no row left" in done.stderr
    assert "those lost differ from those kept" in done.stderr
    [page] = (tmp_path / "home").rglob("ingest.html")
    assert page.stat().st_mode & 0o077 == 0 and page.parent.name == "snapshot-0001"
    text = page.read_text()
    assert "e-mail" in text and "http" not in text.replace("http-equiv", "") and "default-src 'none'" in text


def test_a_good_log_is_told_in_one_breath(tmp_path):
    done = invoke("--home", tmp_path / "home", "ingest", lay_out(tmp_path / "shop"))
    assert "warning" not in done.stderr and "people lost" not in done.stdout


@pytest.mark.parametrize(
    ("declared", "fits"), [("range = [-0.5, 1.0]\nsteps = 1", 15), ("range = [0.0, 1.0]\nsteps = 3", 30)]
)
def test_rewards_that_are_rounded_down_are_said_loudly_with_the_lattice_that_fits(tmp_path, declared, fits):
    log = [(*r[:5], 0.3 if r[5] else 0, r[6]) for r in rows()]
    shop = lay_out(tmp_path / "shop", log=log)
    change(shop / "card.toml", "range = [0.0, 2.0]\nsteps = 2", declared)
    done = invoke("--home", tmp_path / "home", "ingest", shop)
    assert "ROUNDED DOWN" in done.stderr and f"write steps = {fits} under [reward]" in done.stderr
    change(shop / "card.toml", declared.split("\n")[1], f"steps = {fits}")
    assert "ROUNDED DOWN" not in invoke("--home", tmp_path / "other", "ingest", shop).stderr


def test_rewards_beyond_the_declared_range_are_said_loudly_though_few(tmp_path):
    people = sorted({r[0] for r in rows()})
    few = people[: len(people) // 60]
    log = [(*r[:5], -50 if r[0] in few and r[2] == 0 else r[5], r[6]) for r in rows()]
    done = invoke("--home", tmp_path / "home", "ingest", lay_out(tmp_path / "shop", log=log))
    assert f"{len(few)} people have rewards beyond reward.range" in done.stderr
    shop = lay_out(tmp_path / "wider", log=log)
    change(shop / "card.toml", "range = [0.0, 2.0]\nsteps = 2", "range = [-50.0, 2.0]\nsteps = 52")
    assert "reward.range" not in invoke("--home", tmp_path / "other", "ingest", shop).stderr


def test_people_who_are_paid_more_than_the_declared_total_are_counted(tmp_path):
    log = [r for r in rows() if r[2] < 2]
    shop = lay_out(tmp_path / "shop", log=log)
    change(shop / "card.toml", "steps = 2", "steps = 2\ntotal = 1.0")
    # a row before the last step that nothing follows leads nowhere, and what it pays counts nowhere
    more = {r[0] for r, after in zip(log, [*log[1:], ("",)], strict=True) if r[5] and (r[6] or after[0] == r[0])}
    assert len(more) < len({r[0] for r in log if r[5]})
    said = f"{len(more)} people are paid more than reward.total"
    assert said in invoke("--home", tmp_path / "home", "ingest", shop).stderr
    change(shop / "card.toml", "total = 1.0", "total = 6.0")
    assert "reward.total" not in invoke("--home", tmp_path / "other", "ingest", shop).stderr


def test_a_look_into_the_quarantine_is_entered_in_the_ledger_and_a_purge_takes_its_page(torn, tmp_path):
    home = tmp_path / "home"
    ingested = reticent.Store(home).ingest(torn)
    told = answer(home, "inspect", torn, "--quarantine")
    assert told["report"] == ingested["report"] and told["ledger_entry"]
    assert "e-mail" in invoke("--home", home, "inspect", torn, "--quarantine").stdout
    shown = answer(home, "ledger", "show")["datasets"][0]["inspections"]
    assert [one["snapshot"] for one in shown] == [1, 1]
    answer(home, "store", "purge", torn, "--quarantine-only", "--yes")
    assert not list(home.rglob("ingest.html"))
    assert answer(home, "inspect", torn, "--quarantine")["report"]["purged"]


def test_a_damaged_quarantine_is_named_and_says_what_to_do(torn, tmp_path):
    home = tmp_path / "home"
    assert invoke("--home", home, "ingest", torn).exit_code == 0
    [file, *_] = sorted(home.rglob("quarantine-*.parquet"))
    whole = file.read_bytes()
    for damage in (whole[:-20], whole[: len(whole) // 2] + b"\0" * (len(whole) - len(whole) // 2), b""):
        file.write_bytes(damage)
        for verb in (["inspect", torn, "--quarantine"], ["inspect", torn]):
            done = shell(*verb, "--home", home, cwd=tmp_path)
            assert done.returncode == 4 and f"{file.name}: damaged" in done.stderr
            assert "ingest the log again" in done.stderr
    invoke("--home", home, "store", "purge", torn, "--quarantine-only", "--yes")
    assert invoke("--home", home, "inspect", torn, "--quarantine").exit_code == 0


def test_no_purge_comes_between_the_listing_of_the_quarantine_and_its_reading(torn, tmp_path, monkeypatch):
    home = home_at(tmp_path / "home")
    add(torn / "card.toml", "\n[tolerance]\nbad_reward = 0.0\n")
    invoke("--home", home.root, "ingest", torn)
    scan, purge = pl.scan_parquet, Purge(torn, home)
    monkeypatch.setattr(pl, "scan_parquet", lambda files: purge() or scan(files))
    with pytest.raises(LogError, match=r"bad_reward.*first at log\.csv, line"):
        check_delivery(card_at(str(torn), home.shelf), snapshots(home.store, "shop")[-1])
    purge.join()


@pytest.mark.slow
def test_four_million_rows_of_one_person_in_a_small_file_are_set_aside_within_memory(tmp_path):
    """A small file of Parquet; where what was set aside was read whole, this took 1.7 GB."""
    shop = lay_out(tmp_path / "shop")
    change(shop / "card.toml", "log.csv", "log.parquet")
    names = ["customer", "visit", "t", "mood", "offer", "sale", "left"]
    one = pl.DataFrame([rows()[0]], schema=names, orient="row")
    pl.concat([one] * 400).select(pl.all().repeat_by(10_000).explode()).write_parquet(shop / "log.parquet")
    assert (shop / "log.parquet").stat().st_size < 1 << 20
    words = [sys.executable, "-P", "-m", "flows.cli", "--home", tmp_path / "home", "ingest", "--memory", "1GiB", shop]
    with (tmp_path / "said").open("w") as said, subprocess.Popen(words, stdout=said, stderr=said) as child:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 3 and "2,951,424" in (tmp_path / "said").read_text()
    # kilobytes; 0.8 million where it is read by streams
    assert used.ru_maxrss < 1.2e6
