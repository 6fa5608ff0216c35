"""The Python door: what the shell does, as functions with values for results; frames in place of files."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from typer.core import TyperGroup
from typer.main import get_command

import reticent
from flows.cli import app
from tests.flows.shop import lay_out
from tests.flows.verb import invoke

VERBS = Path(reticent.__file__).parent / "flows" / "verbs.py"


@pytest.fixture
def shop(tmp_path):
    return lay_out(tmp_path / "shop", kind="real", ledger="ledger.db")


@pytest.fixture
def store(tmp_path, shop, opened):
    return reticent.Store(opened(tmp_path)[1].root)


@pytest.fixture(scope="module")
def made(tmp_path_factory, opened):
    """A shop, its store, and a run that nobody changes."""
    shop, home = opened(tmp_path_factory.mktemp("made"))
    return shop, reticent.Store(home.root), reticent.run(shop / "private.toml", store=reticent.Store(home.root))


def told(home: Path, *command: str) -> dict:
    done = invoke("--home", home, *command, "--json", catch_exceptions=False)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_run_on_discounted_rewards_is_worth_the_discounted_return(tmp_path):
    """Everybody buys for 2 at each of three visits, whatever is offered: 2 + 1 + .5, and 6 without a discount."""
    folder, made = lay_out(tmp_path / "shop", kind="synthetic", ledger="home"), reticent.Store(tmp_path / "home")
    visits = [f"u{u},1,{t},cold,mail,2,{t == 2}" for u in range(400) for t in range(3)]
    (folder / "log.csv").write_text("\n".join(["customer,visit,t,mood,offer,sale,left", *visits]))
    (folder / "sure.toml").write_text('[recipe]\nname = "sure"\ncard = "card.toml"\nagent = "apvi"\n')
    (folder / "known.toml").write_text((folder / "sure.toml").read_text() + '[evaluate]\nworld = "riverswim"\n')
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


def test_a_run_is_its_values(made, monkeypatch):
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


def test_the_shell_says_what_python_says(made):
    (shop, store, run), home = made, made[1].home.root
    again = told(home, "run", str(shop / "private.toml"))
    assert again == {**run.said.model_dump(), "replayed": True}
    plan = reticent.plan(shop / "private.toml", people=50, store=store)
    said = told(home, "plan", str(shop / "private.toml"), "--people", "50")
    assert said == {**plan.model_dump(), "quality": {**plan.quality.model_dump(), "cached": True}}
    decision = told(home, "policy", "act", run.name, "--state", "warm", "--step", "0", "--card", str(shop))
    assert decision == {"run": run.name, **run.policy.act("warm", 0)}


def test_a_plan_shows_itself_as_the_shell_does_and_as_tables_in_a_notebook(made):
    shop, store, _ = made
    plan = reticent.plan(shop / "private.toml", quality=False, store=store)
    shell = invoke("--home", store.home.root, "plan", shop / "private.toml", "--no-quality")
    assert repr(plan) == str(plan) == shell.stdout.rstrip("\n") and len(repr(plan).splitlines()) > 8
    assert "<table>" in plan._repr_html_() and "lineage: cap 3" in plan._repr_html_()


def test_an_opened_run_says_the_same_but_not_what_was_left(made):
    shop, store, run = made
    there = store.open("private", shop)
    assert there.facts == run.facts and there.verify().vouched
    with pytest.raises(reticent.CardError, match="opened, not made here"):
        _ = there.said


def test_refusals_are_exceptions_with_the_words_of_the_shell(shop, store, tmp_path):
    with pytest.raises(reticent.BudgetError) as refused:
        reticent.run(shop / "greedy.toml", store=store)
        reticent.run(shop / "private.toml", store=store)
    with pytest.raises(Exception) as shell:
        invoke("--home", tmp_path / "home", "run", shop / "private.toml", catch_exceptions=False)
    assert type(shell.value) is reticent.BudgetError and str(shell.value) == str(refused.value)


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
        answer = store.ingest(shop, log)
        parts = sorted(Path(answer["folder"]).glob("part-*.parquet"))
        rows.append(pl.concat([pl.read_parquet(p) for p in parts]))
        assert not [p for p in (tmp_path / name).rglob("*") if "frame" in p.name]
    assert rows[0].equals(rows[1]) and len(rows[0])


def test_the_same_frame_twice_is_the_same_edition_twice(shop, tmp_path):
    store, frame = reticent.Store(tmp_path / "home"), pl.read_csv(shop / "log.csv")
    store.ingest(shop, frame)
    assert store.ingest(shop, frame)["same_as"] == 1


def test_what_is_no_table_is_refused(shop, tmp_path):
    with pytest.raises(reticent.CardError, match="a int is no table"):
        reticent.Store(tmp_path / "home").ingest(shop, 7)


def test_a_frame_lies_where_only_the_operator_reads_it(shop, tmp_path, monkeypatch):
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
    assert told(home, "ledger", "verify", "--card", str(shop)) == book.verify()
    assert told(home, "ledger", "head", "--card", str(shop)) == book.head()
    shown = told(home, "ledger", "show", "--card", str(shop))["datasets"]
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


def test_a_world_is_valued_and_its_log_written(tmp_path):
    store = reticent.Store(tmp_path / "home")
    written = reticent.simulate_logs("riverswim", reticent.LogOptions(episodes=50), store=store)
    assert Path(written["files"][0]).exists() and written["episodes"] == 50
    assert written["values"]["optimal"] > written["values"]["uniform"]
    with pytest.raises(reticent.CardError, match="name a world"):
        reticent.simulate_logs(store=store)


def test_the_door_names_few_things():
    assert set(reticent.__all__) <= set(dir(reticent)) and len(reticent.__all__) <= 34
