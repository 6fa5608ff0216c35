"""``reticent serve``: the deployments, served from this process; with a server of its own where none is named."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from flows.config.home import HOME, SERVED
from flows.server import prefect_api
from pipeline.declaration.card import CardError
from pipeline.files import private_folder, whole_file

if TYPE_CHECKING:
    from prefect.client.schemas.objects import DeploymentSchedule

API = "PREFECT_API_URL"
SECRET = "PREFECT_API_AUTH_STRING"
ACCESS = "access.env"
"""File of the server's folder: address and secret, as environment variables of whoever may use the server."""


@dataclass(frozen=True)
class Service:
    """What is served: the home of the jobs, the recipe of ``nightly`` and its schedule.

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


def serve_deployments(service: Service, say: Callable[[str], None]) -> None:
    """Register the deployments and run what is due, until a signal ends it."""
    # for the processes of the runs
    os.environ[HOME], os.environ[SERVED] = str(service.home), service.recipe
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, TerminationSignal
    from prefect.runner import Runner

    from flows.server.deployments import FLOWS, deploy

    there: dict[str, list[DeploymentSchedule]] = {}
    with get_client(sync_client=True) as client:
        for each in FLOWS:
            with suppress(ObjectNotFound):
                there[each.name] = client.read_deployment_by_name(f"{each.name}/{each.name}").schedules
    # a stopped service must not leave its schedule paused: nobody would switch it on again
    runner = Runner(name="reticent", pause_on_shutdown=False, limit=service.limit)
    deploy(runner, service.recipe, service.cron, service.timezone, there)
    say(f"serving nightly, simulate and reproduce for {service.home}; stop with Ctrl-C or SIGTERM")
    with suppress(KeyboardInterrupt, TerminationSignal):
        asyncio.run(runner.start())


@contextmanager
def server(home: Path, port: int, wait: float, say: Callable[[str], None]) -> Generator[None]:
    """The server that ``PREFECT_API_URL`` names; else one of our own on loopback, which ends with us.

    Our own asks every caller for a secret, and tells browsers to let no page but its own ask.

    Parameters
    ----------
    home
        Where its database is kept, and the secret.
    port
        On loopback; 0: any that is free.
    wait
        Seconds it has to answer.
    say
        Tells the operator.

    Raises
    ------
    CardError
        If the port is taken, others may read the secret, or the server does not answer.
    """
    if API in os.environ:
        answers(os.environ[API], wait)
        if is_open(os.environ[API]):
            say(f"warning: {os.environ[API]} asks nobody for a password; see docs/threat_model.md")
        yield
        return
    home.mkdir(parents=True, exist_ok=True)
    state = private_folder(Path(os.environ.setdefault("PREFECT_HOME", str(home / "prefect"))))
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as e:
            raise CardError(f"serve: port {port} cannot be had ({e.strerror}); give another --port") from None
        listening.listen(128)
        origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
        secret = access(state / ACCESS, f"{origin}/api")
        with (state / "server.log").open("a") as log:
            process = subprocess.Popen(
                # -P: nothing is imported from the folder we happen to be started in
                [sys.executable, "-P", prefect_api.__file__, str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[listening.fileno()],
                env={**os.environ, **server_settings(origin, secret, state)},
            )
    say(f"starting a Prefect server at {origin} (log: {state / 'server.log'}); its password, and what a shell needs: ")
    say(f"  {state / ACCESS}")
    os.environ[API], os.environ[SECRET] = f"{origin}/api", secret
    over = threading.Event()
    # also before the runner listens to it, so that the server is ended whatever we are doing
    signal.signal(signal.SIGTERM, _leave)
    try:
        answers(os.environ[API], wait, process)
        threading.Thread(target=_end_with_the_server, args=(process, over), daemon=True).start()
        yield
    finally:
        over.set()
        died = process.poll() is not None
        process.terminate()
        try:
            process.wait(4 * prefect_api.GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if died:
            raise ChildProcessError(f"the Prefect server ended; its log: {state / 'server.log'}")


def server_settings(origin: str, secret: str, state: Path) -> dict[str, str]:
    """Prefect's settings for a server of our own, as environment variables.

    Parameters
    ----------
    origin
        Scheme, host and port: of the API, and of the only pages that may ask it.
    secret
        ``user:password``.
    state
        Folder of the database and the pages.
    """
    host, _, port = origin.removeprefix("http://").partition(":")
    return {
        "PREFECT_SERVER_API_HOST": host,
        "PREFECT_SERVER_API_PORT": port,
        "PREFECT_SERVER_API_AUTH_STRING": secret,
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": origin,
        "PREFECT_SERVER_UI_API_URL": f"{origin}/api",
        # the pages are copied there; the installed package may not be ours to write
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(state / "pages"),
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    }


def access(path: Path, api: str) -> str:
    """The secret of the server, made once; the file is written anew where the address changed.

    Parameters
    ----------
    path
        Of the file, mode 0600: ``NAME=value`` a line.
    api
        Address of the server.

    Returns
    -------
    ``user:password``, as Prefect wants it.

    Raises
    ------
    CardError
        If others may read the file.
    """
    secret = f"reticent:{secrets.token_urlsafe(32)}"
    if path.exists():
        about = path.stat()
        if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise CardError(f"{path}: others may read the secret; remove the file, and the next start makes a new one")
        lines = dict(line.split("=", 1) for line in path.read_text(encoding="utf-8").splitlines() if "=" in line)
        secret = lines.get(SECRET) or secret
    with whole_file(path, private=True) as fresh:
        fresh.write_text(f"{API}={api}\n{SECRET}={secret}\n", encoding="utf-8")
    return secret


def answers(api: str, wait: float, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until a server answers.

    Raises
    ------
    CardError
        If it does not within ``wait`` seconds, or its process has ended.
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
            if time.monotonic() > end or (process is not None and process.poll() is not None):
                raise CardError(f"no Prefect server answers at {API}={api} ({type(e).__name__})") from None
            time.sleep(0.5)


def is_open(api: str) -> bool:
    """Whether a server answers those who name no password."""
    try:
        urllib.request.urlopen(f"{api}/admin/version", timeout=5).read()
    except OSError:
        return False
    return True


def _leave(signum: int, frame: FrameType | None) -> None:
    sys.exit(0)


def _end_with_the_server(process: subprocess.Popen[bytes], over: threading.Event) -> None:
    """A service without its server would go on telling its secret to whoever takes the port."""
    process.wait()
    if not over.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
