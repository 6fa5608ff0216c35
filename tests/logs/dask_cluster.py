"""A Dask scheduler and workers of our own: real processes on loopback, in folders of the test."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass
class Cluster:
    """A running scheduler; ``folder`` holds the logs and the workers' scratch."""

    address: str
    dashboard: str
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        return self.processes[1:]

    def start_worker(self, **env: str) -> subprocess.Popen[bytes]:
        """One thread, no nanny: a worker that is killed stays dead."""
        options = ["--nthreads", "1", "--no-nanny", "--local-directory", str(self.folder), "--dashboard-address", ":0"]
        return self._start(["worker", self.address, *options], f"worker-{len(self.workers)}", env)

    def _start(self, arguments: list[str], name: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        limits = {"PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
        limits["DASK_TEMPORARY_DIRECTORY"] = str(self.folder)
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "dask", *arguments],
                cwd=self.folder,
                env={**os.environ, **limits, **env},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.processes.append(process)
        return process

    def logs(self) -> str:
        return "\n".join(f"{p.name}:\n{p.read_text()}" for p in sorted(self.folder.glob("*.log")))

    def page(self, path: str) -> str:
        return urllib.request.urlopen(f"{self.dashboard}/{path}", timeout=20).read().decode()

    def wait_for(self, line: str, times: int = 1) -> None:
        """Until something was logged as often."""
        end = time.monotonic() + 120
        while self.logs().count(line) < times:
            assert time.monotonic() < end, self.logs()
            time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def dask_cluster(folder: Path, workers: int = 2) -> Generator[Cluster]:
    """A scheduler with workers; all are gone afterwards."""
    folder.mkdir(exist_ok=True)
    port, page = free_port(), free_port()
    cluster = Cluster(f"tcp://127.0.0.1:{port}", f"http://127.0.0.1:{page}", folder)
    options = ["--host", "127.0.0.1", "--port", str(port), "--dashboard-address", f"127.0.0.1:{page}"]
    try:
        cluster._start(["scheduler", *options], "scheduler", {})
        for _ in range(workers):
            cluster.start_worker()
        cluster.wait_for("Register worker addr", workers)
        yield cluster
    finally:
        for process in cluster.processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
