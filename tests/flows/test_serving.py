"""``reticent serve`` with a server of its own: registers, keeps what the operator set, runs what is triggered, ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.service import PrefectServer, clean_environment, end_group, prefect_server, wait_for
from tests.flows.shop import lay_out
from tests.ledger.postgres import USER, binaries, postgres_server

pytestmark = [pytest.mark.service, pytest.mark.slow]


class Served:
    """A ``reticent serve`` and its server in a home of their own."""

    def __init__(self, folder: Path, port: int, *args: str) -> None:
        self.home = folder / "home"
        command = [sys.executable, "-m", "flows.cli", "--home", str(self.home), "serve", "--port", str(port), *args]
        self.log = folder / "serve.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=clean_environment(), stdout=log, stderr=log, start_new_session=True
            )
        self.server = PrefectServer(f"http://127.0.0.1:{port}/api", folder, clean_environment())
        wait_for(
            lambda: self.process.poll() is not None or b"serving nightly" in self.log.read_bytes(), 300, "a service"
        )
        assert self.process.poll() is None, self.log.read_text()
        wait_for(self.registered, 120, "three deployments", self.server)

    def registered(self) -> bool:
        try:
            return len(self.server.ask("deployments/filter", {})) == 3
        except OSError:
            return False

    def schedules(self) -> list[tuple[str, bool]]:
        nightly = self.server.ask("deployments/name/nightly/nightly")
        return [(s["schedule"]["cron"], s["active"]) for s in nightly["schedules"]]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            end_group(self.process)


def trigger(folder: Path, port: int, *args: str) -> tuple[int, dict, str]:
    env = clean_environment() | {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    command = [sys.executable, "-m", "flows.cli", "trigger", *args, "--json"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture
def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_serve_registers_runs_what_is_triggered_and_leaves_the_operators_schedule(tmp_path, port):
    shop = lay_out(tmp_path / "shop")
    served = Served(tmp_path, port, str(shop / "private.toml"))
    try:
        assert served.schedules() == [("15 2 * * *", False)]
        code, run, _ = trigger(tmp_path, port, "nightly", "--wait", "--timeout", "300")
        assert (code, run["state"]) == (0, "COMPLETED"), served.log.read_text()[-3000:]
        assert run["parameters"] == {"recipe": str(shop / "private.toml"), "home": str(served.home)}
        assert len(list((served.home / "runs").glob("private-*"))) == 1
        away = (shop / "card.toml").rename(shop / "away.toml")
        code, run, _ = trigger(tmp_path, port, "nightly", "--wait", "--timeout", "300")
        assert (code, run["state"]) == (1, "FAILED") and "card.toml" not in json.dumps(run)
        away.rename(shop / "card.toml")
        for args in (["nightly", "--param", "recipe=../x.toml"], ["nightly", "--param", "no=1"], ["nonsense"]):
            code, told, _ = trigger(tmp_path, port, *args)
            assert code == 2 and told["error"]["code"] == 2, args
        # the operator switches a schedule of their own on; the next start of the service leaves it
        mine = {"schedules": [{"active": True, "schedule": {"cron": "7 3 * * *"}}]}
        nightly = served.server.ask("deployments/name/nightly/nightly")["id"]
        served.server.ask(f"deployments/{nightly}", mine, method="PATCH")
    finally:
        served.stop()
    assert not served.registered()
    again = Served(tmp_path, port, str(shop / "private.toml"))
    try:
        assert again.schedules() == [("7 3 * * *", True)]
        assert not again.server.ask("deployments/name/nightly/nightly")["paused"]
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
