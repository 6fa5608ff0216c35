"""``reticent serve`` with a server of its own: registers, keeps what the operator set, runs what is triggered, ends."""

import json
import subprocess
import sys

import pytest

from tests.flows.service import Served, prefect_server
from tests.flows.shop import lay_out
from tests.ledger.postgres import USER, binaries, postgres_server

pytestmark = [pytest.mark.service, pytest.mark.slow]


# what no shell may start, asked in one process; the exit code of a refusal is in test_threats.py
REFUSED = """
from reticent import CardError, trigger
for name, asked, said in (
    ("nightly", {"recipe": "../x.toml"}, "the server refused it"),
    ("nightly", {"no": 1}, "has no parameter"),
    ("nonsense", {}, "no deployment"),
):
    try:
        trigger(name, asked)
    except CardError as e:
        assert said in str(e), e
        continue
    raise SystemExit(f"{name} {asked} was not refused")
"""


def schedules(served: Served) -> list[tuple[str, bool]]:
    nightly = served.server.ask("deployments/name/nightly/nightly")
    return [(s["schedule"]["cron"], s["active"]) for s in nightly["schedules"]]


def test_serve_registers_runs_what_is_triggered_and_leaves_the_operators_schedule(tmp_path):
    shop = lay_out(tmp_path / "shop")
    served = Served(tmp_path, str(shop / "private.toml"))
    try:
        assert schedules(served) == [("15 2 * * *", False)]
        code, run = served.trigger("nightly", "--wait", "--timeout", "300")
        assert (code, run["state"]) == (0, "COMPLETED"), served.log.read_text()[-3000:]
        assert run["parameters"] == {"recipe": str(shop / "private.toml")}
        assert len(list((served.home / "runs").glob("private-*"))) == 1
        away = (shop / "card.toml").rename(shop / "away.toml")
        code, run = served.trigger("nightly", "--wait", "--timeout", "300")
        assert (code, run["state"]) == (1, "FAILED") and "card.toml" not in json.dumps(run)
        away.rename(shop / "card.toml")
        refused = subprocess.run([sys.executable, "-P", "-c", REFUSED], env=served.server.env, check=False)
        assert refused.returncode == 0
        # the operator switches a schedule of their own on; the next start of the service leaves it
        mine = {"schedules": [{"active": True, "schedule": {"cron": "7 3 * * *"}}]}
        nightly = served.server.ask("deployments/name/nightly/nightly")["id"]
        served.server.ask(f"deployments/{nightly}", mine, method="PATCH")
    finally:
        served.stop()
    assert not served.registered()
    secret = served.access["PREFECT_API_AUTH_STRING"]
    again = Served(tmp_path, str(shop / "private.toml"))
    try:
        assert schedules(again) == [("7 3 * * *", True)]
        assert not again.server.ask("deployments/name/nightly/nightly")["paused"]
        assert again.access["PREFECT_API_AUTH_STRING"] == secret
    finally:
        again.stop()


@pytest.mark.skipif(binaries() is None, reason="no PostgreSQL server: apt-get install postgresql")
def test_a_prefect_server_lives_on_postgresql(tmp_path):
    with postgres_server() as database:
        database.psql("create database prefect")
        database.psql("create extension pg_trgm", "prefect")
        url = f"postgresql+asyncpg://{USER}@/prefect?host={database.folder}"
        with prefect_server(tmp_path, PREFECT_SERVER_DATABASE_CONNECTION_URL=url) as server:
            assert server.ask("deployments/filter", {}) == []
            assert not list(tmp_path.glob("*.db"))
