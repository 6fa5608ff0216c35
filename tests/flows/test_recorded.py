"""The same job as a recorded Prefect flow on a real server: the same bytes, and nothing raw in its records."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.flows.shop import lay_out

pytestmark = pytest.mark.service
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A Prefect server of our own on loopback."""
    home = tmp_path_factory.mktemp("prefect")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = os.environ | {
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home}/prefect.db",
    }
    env.pop("PREFECT_API_URL", None)
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    log = (home / "server.log").open("w")
    process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, cwd=home)
    api = f"http://127.0.0.1:{port}/api"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{api}/health", timeout=2).read()
                break
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail((home / "server.log").read_text()[-2000:])
        yield api, home
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def reticent(*args: object, cwd: Path, **env: str) -> dict:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RETICENT_", "PREFECT_"))}
    command = [sys.executable, "-m", "flows.cli", *map(str, args), "--json"]
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**clean, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_shell_and_flow_write_the_same_bytes_and_the_server_holds_nothing_raw(tmp_path, server):
    api, home = server
    user, label, reward = "canary-7f3a", "kanarienvogel", "31415.92653"
    odd = [(user, 0, 0, "cold", "mail", reward, True), ("c50", 0, 0, label, "none", 0, True)]
    log = [*odd, *[(f"c{i}", 0, 0, "cold", "none", 0, True) for i in range(50)]]
    shop = lay_out(tmp_path / "shop", log=log)
    env = {"PREFECT_API_URL": api, "PREFECT_HOME": str(home / "client")}
    reticent("ingest", shop, cwd=tmp_path, **env)
    recorded = reticent("run", shop / "private.toml", cwd=tmp_path, **env)
    folder = Path(recorded["folder"])
    first = {p.name: p.read_bytes() for p in folder.iterdir()}
    plain = reticent("run", shop / "private.toml", cwd=tmp_path)
    assert plain["run"] == recorded["run"] and plain["replayed"] and not recorded["replayed"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == first
    request = urllib.request.Request(
        f"{api}/task_runs/filter", data=b"{}", headers={"content-type": "application/json"}, method="POST"
    )
    deadline = time.time() + 60
    while time.time() < deadline:
        tasks = json.loads(urllib.request.urlopen(request, timeout=10).read())
        names = {t["name"].rsplit("-", 1)[0] for t in tasks if t["state_type"] == "COMPLETED"}
        if {"ingest", "release", "plan", "report"} <= names:
            break
        time.sleep(1)
    assert {"ingest", "release", "plan", "report"} <= names
    assert all(t["empirical_policy"]["retries"] in (0, None) for t in tasks)
    for path in home.rglob("*"):
        if path.is_file():
            found = path.read_bytes()
            assert not [canary for canary in (user, label, reward) if canary.encode() in found], path


def test_a_failed_flow_leaves_its_kind_on_the_server_and_its_text_in_the_shell(tmp_path, server):
    api, home = server
    log = [(f"c{i}", 0, 0, "cold" if i else "lukewarm", "none", 0, True) for i in range(50)]
    shop = lay_out(tmp_path / "shop", log=log)
    (shop / "card.toml").write_text((shop / "card.toml").read_text() + "[tolerance]\nunknown_label = 0.0\n")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RETICENT_", "PREFECT_"))}
    env = {**clean, "PYTHONPATH": str(ROOT), "PREFECT_API_URL": api, "PREFECT_HOME": str(home / "client")}
    command = [sys.executable, "-m", "flows.cli", "ingest", str(shop)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3 and "unknown_label" in done.stderr
    body = json.dumps({"flow_runs": {"state": {"type": {"any_": ["FAILED"]}}}}).encode()
    for kind in ("flow_runs", "task_runs"):
        request = urllib.request.Request(
            f"{api}/{kind}/filter", data=body, headers={"content-type": "application/json"}, method="POST"
        )
        deadline, records = time.time() + 60, []
        while not records and time.time() < deadline:
            records = [r for r in json.loads(urllib.request.urlopen(request, timeout=10).read()) if r["name"]]
            time.sleep(1)
        text = json.dumps(records)
        assert "LogError" in text and "unknown_label" not in text and "line 2" not in text
