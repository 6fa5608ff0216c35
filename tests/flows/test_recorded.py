"""The same job as a recorded Prefect flow on a real server: the same bytes, and nothing raw in its records."""

import json
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.flows.service import PrefectServer, prefect_server, wait_for
from tests.flows.shop import lay_out, rows

pytestmark = [pytest.mark.service, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A Prefect server of our own on loopback."""
    with prefect_server(tmp_path_factory.mktemp("prefect")) as found:
        yield found


def run(server: PrefectServer, cwd: Path, *command: object, recorded: bool = True) -> subprocess.CompletedProcess[str]:
    env = server.env if recorded else {k: v for k, v in server.env.items() if k != "PREFECT_API_URL"}
    command = (sys.executable, *map(str, command))
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)


def reticent(server: PrefectServer, cwd: Path, *args: object, recorded: bool = True) -> dict:
    done = run(server, cwd, "-m", "flows.cli", *args, "--json", recorded=recorded)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def log_with_canaries(user: str, label: str, reward: str) -> list[tuple]:
    odd = [(user, 0, 0, "cold", "mail", reward, True), ("c50", 0, 0, label, "none", 0, True)]
    return [*odd, *[(f"c{i}", 0, 0, "cold", "none", 0, True) for i in range(50)]]


def assert_nothing_raw(server: PrefectServer, *canaries: str) -> None:
    """No canary in any file of the server or its clients; its database is among them."""
    for path in server.home.rglob("*"):
        if path.is_file():
            found = path.read_bytes()
            assert not [c for c in canaries if c.encode() in found], path


def test_shell_and_flow_write_the_same_bytes_and_the_server_holds_nothing_raw(tmp_path, server):
    canaries = "canary-7f3a", "kanarienvogel", "31415.92653"
    shop = lay_out(tmp_path / "shop", log=log_with_canaries(*canaries))
    reticent(server, tmp_path, "ingest", shop)
    recorded = reticent(server, tmp_path, "run", shop / "private.toml")
    folder = Path(recorded["folder"])
    first = {p.name: p.read_bytes() for p in folder.iterdir()}
    plain = reticent(server, tmp_path, "run", shop / "private.toml", recorded=False)
    assert plain["run"] == recorded["run"] and plain["replayed"] and not recorded["replayed"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == first
    wanted = {"ingest", "release", "plan", "report"}
    wait_for(lambda: wanted <= done_tasks(server), 60, "the four tasks of a run", server)
    assert all(t["empirical_policy"]["retries"] in (0, None) for t in server.ask("task_runs/filter", {}))
    assert_nothing_raw(server, *canaries)


def done_tasks(server: PrefectServer) -> set[str]:
    tasks = server.ask("task_runs/filter", {"task_runs": {"state": {"type": {"any_": ["COMPLETED"]}}}})
    return {t["name"].rsplit("-", 1)[0] for t in tasks}


def test_a_night_shows_released_facts_alone(tmp_path, server):
    canaries = "canary-51c0", "zaunkoenig", "27182.81828"
    shop = lay_out(tmp_path / "shop", log=log_with_canaries(*canaries))
    (shop / "private.toml").write_text((shop / "private.toml").read_text() + "[promote]\nmost_changed = 0.0\n")
    first = reticent(server, tmp_path, "nightly", shop / "private.toml", "--night", "2026-01-01")
    assert first["promotion"]["promoted"]
    lay_out(shop, log=[*log_with_canaries(*canaries), *rows(300, seed=4)])
    (shop / "private.toml").write_text((shop / "private.toml").read_text() + "[promote]\nmost_changed = 0.0\n")
    night = reticent(server, tmp_path, "nightly", shop / "private.toml", "--night", "2026-01-02")
    shown = {a["key"]: a for a in reversed(server.ask("artifacts/filter", {"sort": "CREATED_DESC"})) if a["key"]}
    assert set(shown) == {"night-private", "night-private-report", "night-private-ledger"}
    text = shown["night-private"]["data"]
    assert "charged ρ = 1" in text and night["run"].replace("_", "\\_") in text and first["run"] in text
    assert shown["night-private-report"]["data"] == Path(night["report"]).with_suffix(".md").read_text()
    assert "file://" not in json.dumps([a["data"] for a in shown.values()])
    charged = json.loads(shown["night-private-ledger"]["data"])
    assert [row["total_rho"] for row in charged] == [1.0, 2.0] and charged == night["night"]["charges"]
    # what only the operator may know: how many rows and people there were, when and how long they were read
    manifest = json.loads(next((tmp_path / ".reticent/store/shop").glob("snapshot-0002/manifest.json")).read_text())
    told = json.dumps([a["data"] for a in shown.values()])
    secrets = [str(manifest[k]) for k in ("rows", "users", "episodes", "source_digest", "data_digest")]
    # as numbers of their own: three digits stand in some hash or noisy number by chance
    assert int(manifest["rows"]) > 300 and not [s for s in secrets if re.search(rf"(?<![\w.]){s}(?![\w.])", told)]
    assert not [e for e in charged if "at" in e]
    assert_nothing_raw(server, *canaries)


DEPLOYED = """
import os, sys
os.environ["RETICENT_HOME"] = sys.argv[2]
from flows.server.deployments import nightly
nightly(recipe=sys.argv[1])
"""


def test_a_failed_flow_leaves_its_kind_on_the_server_and_its_text_in_the_shell(tmp_path, server):
    log = [(f"c{i}", 0, 0, "cold" if i else "lukewarm", "none", 0, True) for i in range(50)]
    shop = lay_out(tmp_path / "shop", log=log)
    (shop / "card.toml").write_text((shop / "card.toml").read_text() + "[tolerance]\nunknown_label = 0.0\n")
    done = run(server, tmp_path, "-m", "flows.cli", "ingest", shop)
    assert done.returncode == 3 and "unknown_label" in done.stderr
    # whether it breaks its card is the operator's to know
    assert not server.ask("flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": ["FAILED"]}}}})
    (shop / "log.csv").write_text("lukewarm,visit\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / "allowed.toml").write_text(f'recipes = ["{shop}"]\n')
    deployed = run(server, tmp_path, "-c", DEPLOYED, shop / "private.toml", home)
    assert deployed.returncode == 1 and "missing_column" in deployed.stderr
    assert "alert: the night of private failed (LogError, exit 3)" in deployed.stderr
    for kind in ("flow_runs", "task_runs"):
        failed = {kind: {"state": {"type": {"any_": ["FAILED"]}}}}
        records = wait_for(lambda k=kind, f=failed: server.ask(f"{k}/filter", f), 60, f"failed {kind}", server)
        text = json.dumps(records)
        assert "LogError" in text and "missing_column" not in text and "line 1" not in text
    logs = wait_for(lambda: server.ask("logs/filter", {}), 30, "logs", server)
    assert "missing_column" not in json.dumps(logs) and "lukewarm" not in json.dumps(logs)


@pytest.fixture
def sink():
    """An address on loopback, and what was sent to it."""
    got: list[bytes] = []

    class Taken(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Taken) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        yield f"json://127.0.0.1:{http.server_port}/", got
        http.shutdown()


def save_block(server: PrefectServer, cwd: Path, name: str, url: str, after: str = "") -> None:
    code = f"from prefect.blocks.notifications import SlackWebhook as S; S(url={url!r}).save({name!r}); {after}"
    done = run(server, cwd, "-W", "ignore", "-c", code)
    assert done.returncode == 0, done.stderr


def test_an_alert_leaves_no_event_on_the_server_and_fails_where_nobody_takes_it(tmp_path, server, sink):
    address, got = sink
    save_block(server, tmp_path, "ops", address)
    save_block(server, tmp_path, "nobody", "json://127.0.0.1:1/")
    sent = run(server, tmp_path, "-m", "flows.cli", "alert", "slack-webhook/ops", "the log of x breaks its card")
    assert sent.returncode == 0 and b"the log of x breaks its card" in got[0]
    lost = run(server, tmp_path, "-m", "flows.cli", "alert", "slack-webhook/nobody", "the log of x breaks its card")
    assert lost.returncode == 1 and "did not deliver" in lost.stderr
    # an event that comes later has come
    save_block(server, tmp_path, "probe", address, "S.load('probe')")

    def loaded() -> list[str]:
        events = server.ask("events/filter", {"limit": 50})["events"]
        return [e["resource"]["prefect.resource.name"] for e in events if e["event"].endswith(".loaded")]

    wait_for(lambda: "probe" in loaded(), 60, "the probe's event", server)
    assert loaded() == ["probe"]
