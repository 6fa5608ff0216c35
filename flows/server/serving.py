"""``reticent serve``: the deployments, served from this process, with its own server where none is named.

Also requests to a service: start a flow (``trigger``), send a text (``alert``), check health (``doctor``).

The server is the one that ``PREFECT_API_URL`` names; the doctor looks at libraries, store and ledger too.
"""

from __future__ import annotations

import asyncio
import os
import platform
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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from flows.config.home import HOME, SERVED, Home
from flows.jobs.book import verify_export
from pipeline.declaration.card import CardError
from pipeline.facts.promise import Dump
from pipeline.files import private_folder, whole_file
from pipeline.ledger import chain, ledger

if TYPE_CHECKING:
    from prefect.client.schemas.objects import DeploymentSchedule


API = "PREFECT_API_URL"
SECRET = "PREFECT_API_AUTH_STRING"
ACCESS = "access.env"
"""File of the server's folder: address and secret, as environment variables of a user of the server."""
_SERVER = Path(__file__).with_name("deployments.py")


def check_schedule(cron: str, timezone: str) -> None:
    """Refuse a schedule that the server would not take, or that never comes due.

    Raises CardError if so, or if it has seconds.
    """
    from prefect.server.schemas.schedules import CronSchedule

    try:
        if len(cron.split()) > 5:
            raise ValueError(cron)
        asyncio.run(CronSchedule(cron=cron, timezone=timezone).get_dates(1))
    except ValueError:
        raise CardError(
            f"serve: --cron {cron!r} with --timezone {timezone!r} names no time that comes: give minute, hour, day, "
            "month and weekday, and a zone such as Europe/Paris; e.g. --cron '15 2 * * *'"
        ) from None


def serve_deployments(
    home: Path, recipe: str, cron: str | None, timezone: str, limit: int, say: Callable[[str], None]
) -> None:
    """Register the deployments and run what is due, until a signal ends it.

    Raises CardError as of :func:`check_schedule`.
    """
    if cron is not None:
        check_schedule(cron, timezone)
    # for the processes of the runs
    os.environ[HOME], os.environ[SERVED] = str(home), recipe
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, TerminationSignal
    from prefect.runner import Runner

    from flows.server.deployments import FLOWS, deploy

    schedules: dict[str, list[DeploymentSchedule]] = {}
    with get_client(sync_client=True) as client:
        for each in FLOWS:
            with suppress(ObjectNotFound):
                schedules[each.name] = client.read_deployment_by_name(f"{each.name}/{each.name}").schedules
    # a stopped service must not leave its schedule paused: nothing would switch it on again
    runner = Runner(name="reticent", pause_on_shutdown=False, limit=limit)
    deploy(runner, recipe, cron, timezone, schedules)
    say(f"serving nightly, simulate and reproduce for {home}; stop with Ctrl-C or SIGTERM")
    with suppress(KeyboardInterrupt, TerminationSignal):
        asyncio.run(runner.start())


@contextmanager
def server(home: Path, port: int, wait: float, say: Callable[[str], None]) -> Generator[None]:
    """The server that ``PREFECT_API_URL`` names; else one of our own on loopback, which ends with us.

    Our own asks every caller for a secret, and tells browsers to let no page but its own ask.

    ``port``: on loopback; 0: any that is free.
    Raises CardError if the port is taken, others may read the secret, the server does not answer, or Prefect is loaded.
    """
    if API in os.environ:
        answers(os.environ[API], wait)
        if is_open(os.environ[API]):
            say(f"warning: {os.environ[API]} asks nobody for a password; see docs/privacy.md")
        yield
        return
    # it reads its environment once, and without an address starts a server that asks nobody for a password
    if "prefect" in sys.modules:
        raise CardError(
            "serve: Prefect is loaded already, without our server's address; run `reticent serve` in a shell"
        )
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
                [sys.executable, "-P", str(_SERVER), str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[listening.fileno()],
                env={**os.environ, **server_settings(origin, secret, state)},
            )
    say(f"starting a Prefect server at {origin} (log: {state / 'server.log'}); its password, and what a shell needs: ")
    say(f"  {state / ACCESS}")
    os.environ[API], os.environ[SECRET] = f"{origin}/api", secret
    from flows.server import deployments

    over = threading.Event()
    # also before the runner listens to it, so that the server always ends
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(0))
    try:
        answers(os.environ[API], wait, process)
        threading.Thread(target=_end_with_the_server, args=(process, over), daemon=True).start()
        yield
    finally:
        over.set()
        died = process.poll() is not None
        process.terminate()
        try:
            process.wait(4 * deployments.GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if died:
            raise ChildProcessError(f"the Prefect server ended; its log: {state / 'server.log'}")


def server_settings(origin: str, secret: str, state: Path) -> dict[str, str]:
    """Prefect's settings for a server of our own, as environment variables.

    ``origin``: scheme, host and port: of the API, and of the only pages that may ask it.
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
        # automations can send requests to any address: none is ever carried out
        "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    }


def access(path: Path, address: str, names: tuple[str, str] = (API, SECRET), user: str = "reticent:") -> str:
    """The secret of a server, made once; the file is written anew where the address changed.

    ``path``: of the file, mode 0600: ``NAME=value`` a line.
    ``names``: of address and secret in it.
    Returns the secret: ``user`` and a password, as Prefect wants it.
    Raises CardError if others may read the file.
    """
    secret = f"{user}{secrets.token_urlsafe(32)}"
    if path.exists():
        about = path.stat()
        if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise CardError(f"{path}: others may read the secret; remove the file, and the next start makes a new one")
        lines = dict(line.split("=", 1) for line in path.read_text(encoding="utf-8").splitlines() if "=" in line)
        secret = lines.get(names[1]) or secret
    with whole_file(path, private=True) as fresh:
        fresh.write_text(f"{names[0]}={address}\n{names[1]}={secret}\n", encoding="utf-8")
    return secret


def answers(api: str, wait: float, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until a server answers.

    Raises CardError if it does not within ``wait`` seconds, or its process has ended.
    """
    end = time.monotonic() + wait
    while True:
        try:
            urllib.request.urlopen(f"{api}/health", timeout=5).read()
            return
        except urllib.error.HTTPError:
            # it answers; Prefect's client gives it the key
            return
        except (OSError, ValueError) as e:
            if time.monotonic() > end or (process is not None and process.poll() is not None):
                raise CardError(f"no Prefect server answers at {API}={api} ({type(e).__name__})") from None
            time.sleep(0.5)


def is_open(api: str) -> bool:
    """Whether a server answers without a password."""
    try:
        urllib.request.urlopen(f"{api}/admin/version", timeout=5).read()
    except OSError:
        return False
    return True


def _end_with_the_server(process: subprocess.Popen[bytes], over: threading.Event) -> None:
    """End a service without its server, which would go on sending its secret to any program that takes the port."""
    process.wait()
    if not over.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


def alert(block: str, text: str) -> None:
    """Send a text by a block of the server that ``PREFECT_API_URL`` names, which records nothing of it.

    Raises CardError if there is no server, no such block, or the block cannot notify or does not fit its type.
    Raises ConnectionError if nobody took the text.
    """
    if not os.environ.get("PREFECT_API_URL"):
        raise CardError("alert: PREFECT_API_URL names no server; a block lies on one")
    from httpx import HTTPError
    from prefect.blocks.abstract import NotificationBlock, NotificationError
    from prefect.blocks.core import Block
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from pydantic import ValidationError

    kind, _, name = block.partition("/")
    try:
        with get_client(sync_client=True) as client:
            stored: Any = client.read_block_document_by_name(name, kind)
    except ObjectNotFound:
        raise CardError(f"alert: no block {block!r} on the server; give KIND/NAME") from None
    except HTTPError as e:
        raise CardError(f"alert: the server that PREFECT_API_URL names gave no block ({type(e).__name__})") from None
    try:
        # Block.load leaves an event on the server, and one person's rows may be why there is an alert
        loaded = Block.get_block_class_from_schema(stored.block_schema).model_validate(stored.data)
    except ValidationError:
        # its words would hold the block's secrets
        raise CardError(f"alert: block {block!r} does not fit its type; save it again") from None
    if not isinstance(loaded, NotificationBlock):
        raise CardError(f"alert: {block!r} is no notification block")
    # declared as a coroutine, and called like a function all the same
    bell: Any = loaded
    try:
        with bell.raise_on_failure():
            bell.notify(text, subject="Reticent")
    except (NotificationError, HTTPError):
        raise ConnectionError(f"alert: {block!r} did not deliver the text") from None


_POLL = 1.0


def trigger(deployment: str, parameters: Mapping[str, object] | None = None, *, timeout: float | None = None) -> Dump:
    """Start a run of a deployment; wait for its end where ``timeout`` (seconds) is given.

    ``parameters``: of the flow, by name; None: its defaults.
    ``timeout``: seconds to wait for the end of the run; None: do not wait.
    Raises CardError if there is no server, no such deployment, or the parameters break its schema.
    """
    values, api = dict(parameters or {}), os.environ.get(API)
    if not api:
        raise CardError(f"trigger: no server; set {API} to that of the service, e.g. http://127.0.0.1:4200/api")
    answers(api, 0)
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.sorting import DeploymentSort
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    name = deployment if "/" in deployment else f"{deployment}/{deployment}"
    with get_client(sync_client=True) as client:
        try:
            stored = client.read_deployment_by_name(name)
            _check_names(deployment, values, stored.parameter_openapi_schema or {})
            run = client.create_flow_run_from_deployment(stored.id, parameters=values, tags=["reticent-trigger"])
        except ObjectNotFound:
            # limit and sort are said: fastapi 0.151 and newer refuse the nulls that Prefect's client sends instead
            deployments = client.read_deployments(limit=100, sort=DeploymentSort.NAME_ASC)
            names = ", ".join(d.name for d in deployments) or "none"
            raise CardError(f"no deployment {deployment!r} at {api}; there are: {names}") from None
        except PrefectHTTPStatusError as e:
            raise CardError(f"{deployment}: the server refused it: {_detail(e)}") from None
        end = None if timeout is None else time.monotonic() + timeout
        while end is not None and not (run.state and run.state.is_final()) and time.monotonic() < end:
            time.sleep(_POLL)
            run = client.read_flow_run(run.id)
    state = run.state
    return {
        "deployment": name,
        "flow_run": str(run.id),
        "name": run.name,
        "state": "UNKNOWN" if state is None else state.type.value,
        "final": state is not None and state.is_final(),
        "waited": timeout is not None,
        "message": None if state is None else state.message,
        "parameters": run.parameters,
    }


def _check_names(deployment: str, values: Mapping[str, object], schema: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse unknown parameters: the server checks types and patterns, but takes unknown ones, and the run fails."""
    names = list(schema.get("properties", {}))
    if unknown := sorted(set(values) - set(names)):
        raise CardError(f"{deployment} has no parameter {', '.join(unknown)}; there are: {', '.join(names) or 'none'}")


def _detail(error: Any) -> str:
    """The server's reason to refuse a request, on one line."""
    answer: Mapping[str, object] = {}
    with suppress(ValueError):
        answer = error.response.json()
    text = answer.get("detail") or answer.get("exception_message") or f"HTTP {error.response.status_code}"
    return " ".join(str(text).split())


_PATIENCE = 2.0


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    ``what``: the thing checked; ``ok``: whether it is well (None: it is absent, and may be); ``found``: its state.
    """

    what: str
    ok: bool | None
    found: str
    do: str = ""


@dataclass(frozen=True)
class Health:
    """Findings on libraries, store, ledger and server."""

    findings: Sequence[Finding]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not any(found.ok is False for found in self.findings)


def examine(home: Home) -> Health:
    """Check everything that a run needs; reads no row and writes nothing."""
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Health([Finding("python", True, python), *_libraries(), _store(home), _ledger(home), _server()])


def _libraries() -> Iterator[Finding]:
    try:
        requirements = [Requirement(text) for text in requires("reticent") or []]
        yield Finding("reticent", True, version("reticent"))
    except PackageNotFoundError:
        yield Finding("reticent", False, "not installed as a package", "pip install reticent")
        return
    extras: dict[str, list[Requirement]] = {}
    for one in requirements:
        if one.marker is None:
            yield _library(one)
        else:
            extra = str(one.marker).partition("==")[2].strip(" \"'")
            extras.setdefault(extra, []).append(one)
    for extra, needed in sorted(extras.items()):
        lacking = [one.name for one in needed if _library(one).ok is not True]
        state = "all there" if not lacking else f"lacks {', '.join(lacking)}"
        mend = f"pip install 'reticent[{extra}]'" if lacking else ""
        yield Finding(f"extra {extra}", None if lacking else True, state, mend)


def _library(needed: Requirement) -> Finding:
    mend = f"pip install '{needed.name}{needed.specifier}'"
    try:
        installed = version(needed.name)
    except PackageNotFoundError:
        return Finding(needed.name, False, "not installed", mend)
    ok = needed.specifier.contains(installed, prereleases=True)
    return Finding(needed.name, ok, installed if ok else f"{installed}, needed {needed.specifier}", "" if ok else mend)


def _store(home: Home) -> Finding:
    store = home.root / "store"
    if not store.is_dir():
        return Finding("store", None, f"none yet below {home.root}", "`reticent ingest` makes it")
    mode = stat.S_IMODE(store.stat().st_mode)
    if mode & 0o077:
        return Finding("store", False, f"{store} may be read by others (mode {mode:04o})", f"chmod 700 {store}")
    if not os.access(store, os.W_OK):
        return Finding("store", False, f"{store} may not be written", "run as the account that owns it")
    return Finding("store", True, str(store))


def _ledger(home: Home) -> Finding:
    where = home.root / "ledger.db"
    if not where.exists():
        return Finding("home's ledger", None, "none yet; real data has its own", "`reticent ledger verify --card CARD`")
    try:
        result = verify_export(ledger.open_ledger(where, create=False).entries())
    except (chain.BudgetError, CardError) as e:
        return Finding("home's ledger", False, str(e), "docs/operate.md")
    problem = result["problem"]
    if problem is not None:
        return Finding("home's ledger", False, problem, "docs/operate.md")
    return Finding("home's ledger", True, f"{result['entries']} entries, chain unbroken")


def _server() -> Finding:
    api = os.environ.get(API)
    if not api:
        return Finding("Prefect server", None, f"{API} names none: verbs run in this process", "`reticent serve`")
    try:
        answers(api, _PATIENCE)
    except CardError as e:
        return Finding("Prefect server", False, str(e), f"start it, or unset {API}")
    return Finding("Prefect server", True, api)
