"""``reticent serve``: the deployments, served from this process; with a server of its own where none is named."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.declaration.card import CardError

API = "PREFECT_API_URL"
_GRACE = 20


@dataclass(frozen=True)
class Service:
    """What is served: the home of the jobs, the recipe of ``nightly`` and its schedule; ``wait`` in seconds.

    Parameters
    ----------
    home
        Where the jobs keep store, runs and the ledger of synthetic cards.
    recipe
        Path or name, of the deployment ``nightly``.
    cron, timezone
        Its schedule; None: none.
    limit
        Most runs at the same time.
    """

    home: Path
    recipe: str
    cron: str | None
    timezone: str
    limit: int
    wait: float


def serve(service: Service, say: Callable[[str], None]) -> None:
    """Register the deployments and run what is due, until a signal ends it.

    Parameters
    ----------
    service
        What is served.
    say
        Tells the operator.
    """
    answers(os.environ[API], service.wait)
    from prefect import serve as run_deployments
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    from flows.server.deployments import deployments

    with get_client(sync_client=True) as client:
        try:
            client.read_deployment_by_name("nightly/nightly")
            there = True
        except ObjectNotFound:
            there = False
    found = deployments(service.home, service.recipe, service.cron, service.timezone, there=there)
    say(f"serving nightly, simulate and reproduce for {service.home}; stop with Ctrl-C or SIGTERM")
    # a stopped service must not leave its schedule paused: nobody would switch it on again
    run_deployments(*found, pause_on_shutdown=False, print_starting_message=False, limit=service.limit)


@contextmanager
def server(home: Path, port: int, say: Callable[[str], None]) -> Generator[None]:
    """The server that ``PREFECT_API_URL`` names; else one of our own on loopback, which ends with us.

    Parameters
    ----------
    home
        Where its database is kept.
    port
        On loopback.
    say
        Tells the operator.
    """
    if os.environ.get(API):
        yield
        return
    state = Path(os.environ.setdefault("PREFECT_HOME", str(home / "prefect")))
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (state / "server.log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        say(f"starting a Prefect server (log: {state / 'server.log'}); elsewhere: export {API}={url}")
        os.environ[API] = url
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def answers(api: str, wait: float) -> None:
    """Wait until a server answers.

    Raises
    ------
    CardError
        If it does not within ``wait`` seconds.
    """
    end = time.monotonic() + wait
    while True:
        try:
            urllib.request.urlopen(f"{api}/health", timeout=5).read()
            return
        except urllib.error.HTTPError:
            # it answers; what it asks of us (a key) is Prefect's client's matter
            return
        except (OSError, ValueError) as e:
            if time.monotonic() > end:
                raise CardError(f"no Prefect server answers at {API}={api} ({type(e).__name__})") from None
            time.sleep(0.5)
