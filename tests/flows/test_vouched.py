"""A published run is what card, release and recipe make of it, and what the ledger vouches for: nothing else passes."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.config.home import Home
from flows.jobs.intake import ingest_job
from flows.jobs.run import register_job
from pipeline.declaration.card import CardError
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.privacy.release_file import sha256_file
from tests.flows.shop import lay_out
from tests.jobs import run_job
from tests.learners.test_registry import MODULE, recipe


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One run of people's data, made once and copied for each test."""
    root = tmp_path_factory.mktemp("made")
    folder, home = lay_out(root / "people", kind="real", ledger="ledger.db", cap=10.0), Home(root / "home")
    register_job(str(folder), home)
    ingest_job(str(folder), home)
    return root, run_job(str(folder / "private.toml"), home)["run"]


@pytest.fixture
def office(made, tmp_path):
    root, run = made
    shutil.copytree(root, tmp_path / "office")
    return tmp_path / "office", run


def reticent(root: Path, *args: object, card: bool = True):
    """Run a verb on the card's ledger; (exit code, JSON or None), or the error it raised."""
    named = ["--card", str(root / "people")] if card else []
    done = CliRunner().invoke(app, ["--home", str(root / "home"), *map(str, args), *named, "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, json.loads(done.stdout)


def edit(file: Path, change) -> None:
    facts = json.loads(file.read_text())
    change(facts)
    file.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def flip_policy(folder: Path) -> None:
    """Every action becomes another one, and the hashes beside it are updated."""
    table = pq.read_table(folder / "policy.parquet")
    other = pa.array((table["action"].to_numpy() + 1) % 3, table.schema.field("action").type)
    pq.write_table(table.set_column(table.schema.get_field_index("action"), "action", other), folder / "policy.parquet")
    digest = sha256_file(folder / "policy.parquet")
    edit(folder / "certificate.json", lambda f: f["sha256"].update(policy=digest))


def forge(folder: Path) -> None:
    """The whole lie: another policy, a tiny ε, a larger unit, no assumptions, a proud value, another page."""
    flip_policy(folder)

    def lie(facts) -> None:
        sentence = re.sub(r"ε = [0-9.]+", "ε = 0.01", facts["guarantee"]["sentence"])
        facts["guarantee"].update(unit="a whole hospital", sentence=sentence)
        facts["assumptions"] = ["none"]

    for file in ("certificate.json", "report.json"):
        edit(folder / file, lie)
    edit(folder / "certificate.json", lambda f: f["registry"].update(epsilon=0.01, unit_of_privacy="a whole hospital"))
    edit(folder / "report.json", lambda f: f["value"].update(lower=2.99, upper=3.0, status="bound"))
    (folder / "report.html").write_text("<html>trust us</html>")


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


def vouch_for(root: Path, run: str) -> None:
    from pipeline.ledger.keys import operator_key
    from pipeline.ledger.publication import file_digests, publications

    book = open_ledger(root / "people" / "ledger.db", create=False)
    [entry] = publications(book.entries(), run)
    told = {k: v for k, v in entry.body.items() if k not in ("key", "signature")}
    told["files"] = file_digests(root / "home" / "runs" / run)
    book.publish("shop", told, operator_key(root / "home" / "store"))


def test_a_run_that_is_replayed_is_not_published_again(office):
    root, run = office
    book = open_ledger(root / "people" / "ledger.db", create=False)
    before = book.entries()
    assert kinds_of(root) == ["REGISTER", "KEY", "INTENT", "COMMIT", "PUBLISH"]
    assert run_job(str(root / "people" / "private.toml"), Home(root / "home"))["replayed"]
    assert book.entries() == before
    shutil.rmtree(root / "home" / "runs" / run)
    run_job(str(root / "people" / "private.toml"), Home(root / "home"))
    assert book.entries() == before
    assert reticent(root, "ledger", "verify", run)[0] == 0


@pytest.mark.parametrize("kind", ["real", "synthetic"])
def test_not_even_the_first_run_of_a_ledger_passes_for_an_older_one_under_another_name(tmp_path, kind):
    ledger = "ledger.db" if kind == "real" else "home"
    shop, home = lay_out(tmp_path / "people", kind=kind, ledger=ledger, cap=10.0), Home(tmp_path / "home")
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

    recipe, home = str(root / "people" / "pure.toml"), Home(root / "home")
    with monkeypatch.context() as m:
        m.setattr(Ledger, "publish", die)
        with pytest.raises(Died):
            run_job(recipe, home)
    assert not list(home.runs.glob("pure-*"))
    run = run_job(recipe, home)
    kinds = kinds_of(root)[5:]
    assert kinds.count("PUBLISH") == kinds.count("COMMIT") == kinds.count("INTENT") == 1
    assert run["replayed"] and reticent(root, "ledger", "verify", run["run"])[1]["vouched"]


def kinds_of(root: Path) -> list[str]:
    """Kinds of the ledger's entries, but those that say that a draw begins."""
    book = open_ledger(root / "people" / "ledger.db", create=False)
    return [e.kind for e in book.entries() if e.kind != "DRAW"]


def test_nothing_of_a_person_is_in_the_entry(office):
    root, run = office
    entry = open_ledger(root / "people" / "ledger.db", create=False).entries()[-1]
    assert set(entry.body) == {
        "run", "run_key", "commit", "snapshot", "seen", "card_hash", "seed", "made_by", "files", "key", "signature",
    }  # fmt: skip
    assert set(entry.body["files"]) == {p.name for p in (root / "home" / "runs" / run).iterdir()}


def test_another_version_is_not_comparable_and_never_damaged(office, monkeypatch):
    """Here the maker says another version, and its numbers differ in the last digit."""
    import flows.jobs.publish as publishing
    import flows.jobs.read_back as reading

    root, run = office
    now = reading.maker()
    monkeypatch.setattr(reading, "maker", lambda: {**now, "numpy": "99.0"})
    original = publishing.render_html
    monkeypatch.setattr(publishing, "render_html", lambda *a: original(*a) + "<!-- newer -->")
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


def test_what_is_no_plain_file_is_noticed_and_never_opened(office):
    root, run = office
    os.mkfifo(root / "home" / "runs" / run / "pipe")
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 4 and "pipe was added" in proof["problem"]


def test_a_run_of_real_people_cannot_pass_for_a_simulation(office):
    root, run = office
    folder = root / "home" / "runs" / run
    lay_out(root / "games")
    games = Home(root / "home-of-games")
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
    run = run_job(recipe(root / "people", "own_agent:same"), Home(root / "home"))["run"]
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 0 and all(c["ok"] for c in proof["checks"])
    reticent(root, "ledger", "export", tmp_path / "all.json")
    code, proof = reticent(root, "ledger", "verify", run, "--ledger", tmp_path / "all.json")
    assert code == 0 and proof["vouched"] and any("was not run" in c["found"] for c in proof["checks"])
    # another text of the agent may make another policy: nothing is damaged
    (tmp_path / "own_agent.py").write_text(MODULE + "# edited")
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 0 and any("not comparable" in c["found"] for c in proof["checks"])


def test_a_head_is_signed_and_checked(office, tmp_path):
    root, _ = office
    _, head = reticent(root, "ledger", "head")
    file = tmp_path / "head.json"
    file.write_text(json.dumps(head))
    assert reticent(root, "ledger", "verify", "--head", file, "--public-key", head["key"])[0] == 0
    file.write_text(json.dumps({**head, "seq": 1}))
    with pytest.raises(CardError, match="not signed"):
        reticent(root, "ledger", "verify", "--head", file, "--public-key", head["key"])


def test_the_key_is_the_operators_alone(office):
    root, _ = office
    file = root / "home" / "store" / ".operator-key.pem"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(BudgetError, match="chmod 600"):
        register_job(str(root / "people"), Home(root / "home"))


def test_a_second_host_has_its_own_key_and_the_chain_knows_both(office, tmp_path):
    root, _run = office
    other = Home(tmp_path / "other")
    shutil.copytree(root / "home" / "store" / "shop", other.store / "shop")
    run_job(str(root / "people" / "private.toml"), other)
    # the files are the same, so the first host's word is enough
    assert kinds_of(root) == ["REGISTER", "KEY", "INTENT", "COMMIT", "PUBLISH", "KEY"]
    run_job(str(root / "people" / "both.toml"), other)
    assert kinds_of(root)[6:] == ["INTENT", "COMMIT", "PUBLISH"]
    book = open_ledger(root / "people" / "ledger.db", create=False).entries()
    assert len({e.body["public_key"] for e in book if e.kind == "KEY"}) == 2
    assert reticent(root, "ledger", "verify")[0] == 0


def test_an_entry_signed_by_nobody_the_ledger_knows_is_damage(office):
    from pipeline.ledger.keys import operator_key, signatures_problem

    root, _run = office
    entries = open_ledger(root / "people" / "ledger.db", create=False).entries()
    assert signatures_problem(entries) is None
    assert "another key" in (signatures_problem([e for e in entries if e.kind != "KEY"]) or "")
    key = operator_key(root / "home" / "store")
    assert signatures_problem(entries, frozenset([key.public])) is None
    from dataclasses import replace

    edited = [replace(e, body={**e.body, "run": "another"}) if e.kind == "PUBLISH" else e for e in entries]
    assert "signature is wrong" in (signatures_problem(edited) or "")


def test_without_a_ledger_nothing_is_promoted_or_exported(office, tmp_path):
    root, run = office
    with pytest.raises(BudgetError, match="--card"):
        reticent(root, "promote", run, card=False)
    with pytest.raises(BudgetError, match="--card"):
        reticent(root, "policy", "export", run, "--to", tmp_path / "p.csv", card=False)
    assert reticent(root, "promote", run)[1]["vouched"] is True


def test_a_page_that_another_version_draws_does_not_replace_the_vouched_one(office, monkeypatch):
    import flows.jobs.publish as publishing

    root, run = office
    page = root / "home" / "runs" / run / "report.html"
    before = page.read_bytes()
    page.unlink()
    reticent(root, "report", run)
    assert page.read_bytes() == before
    monkeypatch.setattr(publishing, "render_html", lambda *_: "<html>newer</html>")
    with pytest.raises(BudgetError, match="other pages"):
        reticent(root, "report", run)
    assert page.read_bytes() == before


def test_the_maker_knows_its_arithmetic():
    from pipeline.ledger.publication import maker, other_maker

    now = maker()
    assert set(now) >= {"reticent", "source", "python", "platform", "numpy", "arithmetic"}
    assert other_maker(now, now) is None
    assert "numpy 1.0, here" in (other_maker({**now, "numpy": "1.0"}, now) or "")
    assert other_maker(None, now) is not None


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
@pytest.mark.parametrize("verb", [["policy", "act", "RUN", "--state", "cold", "--step", 0], ["policy", "show", "RUN"]])
def test_no_policy_is_shown_that_the_ledger_at_hand_never_published(office, change, verb) -> None:
    root, run = office
    assert reticent(root, *[run if word == "RUN" else word for word in verb])[0] == 0
    change(root / "home" / "runs" / run)
    [found] = [p.name for p in (root / "home" / "runs").iterdir() if p.is_dir()]
    with pytest.raises(BudgetError):
        reticent(root, *[found if word == "RUN" else word for word in verb])


@pytest.mark.parametrize("put", ["copy", "link", "link with a history", "its name in a file"])
def test_another_valid_run_in_the_place_of_a_run_is_not_taken_for_it(office, put):
    root, run = office
    runs = root / "home" / "runs"
    other = run_job(str(root / "people" / "pure.toml"), Home(root / "home"))["run"]
    shutil.rmtree(runs / run)
    if put == "copy":
        shutil.copytree(runs / other, runs / run)
    elif put == "its name in a file":
        (runs / run).write_text(other)
    else:
        (runs / run).symlink_to(other)
    if put not in ("copy", "link"):
        history = {"schema_version": 1, "history": [other], "rejected": []}
        (runs / f".{run}.json").write_text(json.dumps(history))
    refused = f"no run begins with .*{run}" if put == "its name in a file" else f"{other}, not {run}"
    for verb in (["ledger", "verify", run], ["promote", run], ["policy", "show", runs / run]):
        with pytest.raises((BudgetError, CardError), match=refused):
            code, proof = reticent(root, *verb)
            raise BudgetError(proof["problem"] if code == 4 else f"{code}")
    with pytest.raises((BudgetError, CardError)):
        reticent(root, "report", run)
    assert run in reticent(root, "ledger", "verify")[1]["problem"]
    reticent(root, "promote", other)
    assert reticent(root, "ledger", "verify", "current")[1]["run"] == other
    with pytest.raises(CardError, match="is a run's name"):
        reticent(root, "promote", other, "--pointer", run)
