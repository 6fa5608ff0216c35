"""A Prefect server, a work pool and workers of our own, on loopback, in folders of the test."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
# Prefect's empty tables as the first server of this process made them: half of a server's start
_TABLES = list[bytes]()


def lay_tables(home: Path) -> None:
    """Give a server that will begin in ``home`` its tables, where an earlier one has made them."""
    for tables in _TABLES:
        (home / "prefect.db").write_bytes(tables)


def _keep_tables(home: Path) -> None:
    if _TABLES:
        return
    with closing(sqlite3.connect(home / "prefect.db")) as ours, closing(sqlite3.connect(":memory:")) as kept:
        ours.backup(kept)
        names = kept.execute("select name from sqlite_master where type = 'table' and name != 'alembic_version'")
        for (name,) in names.fetchall():
            kept.execute(f'delete from "{name}"')
        kept.commit()
        _TABLES.append(kept.serialize())


def clean_environment() -> dict[str, str]:
    """Ours, without anything that names a home or a server."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RETICENT_", "PREFECT_"))}
    return {**kept, "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PYTHONPATH": str(ROOT)}


@dataclass
class PrefectServer:
    """A running server; ``home`` holds its database, its log and those of the workers."""

    api: str
    home: Path
    env: dict[str, str]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def ask(self, path: str, body: Any = None, method: str = "POST") -> Any:
        """Send ``body`` as JSON (GET without one)."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        if secret := self.env.get("PREFECT_API_AUTH_STRING"):
            headers["authorization"] = f"Basic {b64encode(secret.encode()).decode()}"
        request = urllib.request.Request(f"{self.api}/{path}", data, headers, method=method if data else "GET")
        for patience in (1, 2, 4, 8, 16, 32, None):
            try:
                return json.loads(urllib.request.urlopen(request, timeout=60).read() or "null")
            except urllib.error.HTTPError as e:
                # its SQLite was locked; Prefect's own client tries again too
                if e.code != 503 or patience is None:
                    raise
                time.sleep(patience)
        return None

    def runs(self, **wanted: Any) -> list[dict[str, Any]]:
        """Flow runs, oldest first, whose fields are as wanted."""
        found = self.ask("flow_runs/filter", {"sort": "EXPECTED_START_TIME_ASC"})
        return [r for r in found if all(r[k] == v for k, v in wanted.items())]

    def start(self, name: str, /, **parameters: Any) -> str:
        """Start a deployment, as anybody may who knows the secret; the id of its run."""
        deployment = self.ask(f"deployments/name/{name}/{name}")["id"]
        return str(self.ask(f"deployments/{deployment}/create_flow_run", {"parameters": parameters})["id"])

    def ended(self, name: str, /, **parameters: Any) -> str:
        """The same; how the run ended."""
        run, final = self.start(name, **parameters), ("COMPLETED", "FAILED", "CRASHED")
        ended = lambda: (s := self.ask(f"flow_runs/{run}")["state"]["type"]) in final and s  # noqa: E731
        return str(wait_for(ended, 300, "an end", self))

    def deploy(self, name: str) -> dict[str, Any]:
        """Register one deployment of prefect.yaml, for which the pool must be there; what the server has of it."""
        command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--name", name]
        done = subprocess.run(command, cwd=ROOT, env=self.env, capture_output=True, text=True, check=False)
        # with fastapi 0.151 or newer the command fails after it has registered (docs/operate.md): ask the server
        try:
            return self.ask(f"deployments/name/{name}/{name}")
        except OSError:
            raise AssertionError(done.stdout + done.stderr) from None

    def start_worker(self, **env: str) -> subprocess.Popen[bytes]:
        """A worker of the pool ``reticent``; a group of its own, so that what it leaves behind can be ended with it."""
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "reticent", "--type", "process"]
        env = {"PREFECT_WORKER_QUERY_SECONDS": "1", **env}
        log = (self.home / f"worker-{len(self.workers)}.log").open("wb")
        how = {"cwd": self.home, "env": {**self.env, **env}, "stdout": log, "stderr": subprocess.STDOUT}
        worker = subprocess.Popen(command, start_new_session=True, **how)
        log.close()
        self.workers.append(worker)
        return worker

    def logs(self) -> str:
        """The ends of all logs, for a test that fails."""
        return "\n".join(f"{p.name}:\n{p.read_text()[-1500:]}" for p in sorted(self.home.glob("*.log")))


class Served:
    """A ``reticent serve`` with a server of its own, in a home of its own."""

    def __init__(self, folder: Path, *args: str, **env: str) -> None:
        self.folder, self.home, self.log = folder, folder / "home", folder / "serve.log"
        command = [sys.executable, "-P", "-m", "flows.cli", "--home", str(self.home), "serve", "--port", "0", *args]
        with self.log.open("ab") as log:
            began = log.tell()
            env = {**clean_environment(), "PREFECT_RUNNER_POLL_FREQUENCY": "1", **env}
            how = {"cwd": folder, "env": env, "stdout": log, "stderr": log}
            self.process = subprocess.Popen(command, start_new_session=True, **how)
        wait_for(lambda: self.process.poll() is not None or b"serving nightly" in self.said(began), 300, "a service")
        assert self.process.poll() is None, self.log.read_text()
        lines = (self.home / "prefect" / "access.env").read_text().splitlines()
        self.access = dict(line.split("=", 1) for line in lines)
        self.server = PrefectServer(self.access["PREFECT_API_URL"], folder, {**clean_environment(), **self.access})
        wait_for(self.registered, 120, "three deployments", self.server)
        _keep_tables(self.home / "prefect")

    def said(self, since: int = 0) -> bytes:
        return self.log.read_bytes()[since:]

    def registered(self) -> bool:
        try:
            return len(self.server.ask("deployments/filter", {})) == 3
        except OSError:
            return False

    def trigger(self, *args: str) -> tuple[int, dict[str, Any]]:
        """``reticent trigger`` in a shell that has the service's ``access.env``; its exit code and JSON."""
        command = [sys.executable, "-P", "-m", "flows.cli", "trigger", *args, "--json"]
        how = {"cwd": self.folder, "env": self.server.env, "capture_output": True, "text": True}
        done = subprocess.run(command, check=False, **how)
        return done.returncode, json.loads(done.stdout)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            end_group(self.process)


@contextmanager
def prefect_server(home: Path, *flags: str, **settings: str) -> Generator[PrefectServer]:
    """A server that answers; it and its workers are gone afterwards."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    own = "PREFECT_SERVER_DATABASE_CONNECTION_URL" not in settings
    if own:
        lay_tables(home)
    env = clean_environment() | {
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home}/prefect.db",
        **settings,
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port), *flags]
    with (home / "server.log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, cwd=home)
    api = f"http://127.0.0.1:{port}/api"
    server = PrefectServer(api, home, {**env, "PREFECT_API_URL": api})
    try:
        wait_for(lambda: _healthy(api), 240, "a server that answers", server)
        if own:
            _keep_tables(home)
        yield server
    finally:
        for worker in server.workers:
            # it ignores SIGTERM for as long as it likes
            end_group(worker)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process we started and its children: flow runs have groups of their own and outlive their worker."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except OSError:
        children = []
    for group in [process.pid, *map(int, children)]:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    process.wait()


def wait_for(look: Callable[[], T], seconds: float, what: str, server: PrefectServer | None = None) -> T:
    """The first true answer of ``look`` within ``seconds``."""
    end = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > end:
            raise AssertionError(f"within {seconds:g} s there was not {what}\n{server.logs() if server else ''}")
        time.sleep(0.25)


def _healthy(api: str) -> bool:
    try:
        return urllib.request.urlopen(f"{api}/health", timeout=2).status == 200
    except OSError:
        return False
