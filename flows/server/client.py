"""What a person asks of a service: to start a flow (``trigger``), to send a text (``alert``), whether all is well.

The server is the one that ``PREFECT_API_URL`` names; the doctor looks at libraries, store and ledger too.
"""

from __future__ import annotations

import os
import platform
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, TypedDict

from packaging.requirements import Requirement

from flows.config.home import Home
from flows.jobs.book import verify_export
from flows.server.serving import API, answers
from pipeline.declaration.card import CardError
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.ledger import open_ledger


def alert(block: str, text: str) -> None:
    """Send a text by a block of the server that ``PREFECT_API_URL`` names.

    Parameters
    ----------
    block
        Kind and name of a saved block, e.g. ``slack-webhook/ops``.
    text
        Without data: the recipe's name, the kind of an error, its exit code.

    Raises
    ------
    CardError
        If there is no server, no such block, or the block cannot notify.
    """
    if not os.environ.get("PREFECT_API_URL"):
        raise CardError("alert: PREFECT_API_URL names no server; a block lies on one")
    from prefect.blocks.core import Block

    try:
        found: Any = Block.load(block)
    except ValueError as e:
        raise CardError(f"alert: no block {block!r} on the server ({type(e).__name__}); give KIND/NAME") from None
    if not hasattr(found, "notify"):
        raise CardError(f"alert: {block!r} is no notification block")
    found.notify(text, subject="Reticent")


_POLL = 1.0


class Triggered(TypedDict):
    """What ``trigger --json`` prints: the flow run that was started, and its state."""

    deployment: str
    flow_run: str
    name: str
    state: str
    final: bool
    message: str | None
    parameters: dict[str, object]


def trigger(
    deployment: str, parameters: Mapping[str, object] | None = None, *, timeout: float | None = None
) -> Triggered:
    """Start a run of a deployment; wait for its end where ``timeout`` (seconds) is given.

    Parameters
    ----------
    deployment
        ``nightly``, ``simulate``, ``reproduce``, or ``flow/deployment``.
    parameters
        Of the flow, by name; None: its defaults.
    timeout
        Seconds to wait for the end of the run; None: do not wait.

    Raises
    ------
    CardError
        If there is no server, no such deployment, or the parameters break its schema.
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
            found = client.read_deployment_by_name(name)
            _check_names(deployment, values, found.parameter_openapi_schema or {})
            run = client.create_flow_run_from_deployment(found.id, parameters=values, tags=["reticent-trigger"])
        except ObjectNotFound:
            # limit and sort are said: fastapi 0.151 and newer refuse the nulls that Prefect's client sends instead
            there = client.read_deployments(limit=100, sort=DeploymentSort.NAME_ASC)
            known = ", ".join(d.name for d in there) or "none"
            raise CardError(f"no deployment {deployment!r} at {api}; there are: {known}") from None
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
        "message": None if state is None else state.message,
        "parameters": run.parameters,
    }


def _check_names(deployment: str, values: Mapping[str, object], schema: Mapping[str, Mapping[str, object]]) -> None:
    """The server checks types and patterns but takes a parameter nobody knows, whose run then fails."""
    known = list(schema.get("properties", {}))
    if strange := sorted(set(values) - set(known)):
        raise CardError(f"{deployment} has no parameter {', '.join(strange)}; there are: {', '.join(known) or 'none'}")


def _detail(error: Any) -> str:
    """What the server says of a request it refuses, on one line."""
    told: Mapping[str, object] = {}
    with suppress(ValueError):
        told = error.response.json()
    text = told.get("detail") or told.get("exception_message") or f"HTTP {error.response.status_code}"
    return " ".join(str(text).split())


_PATIENCE = 2.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Parameters
    ----------
    what, ok, found
        What, whether it is well (None: it is not there, and need not be), and what was found.
    do
        What to do where it is not.
    """

    what: str
    ok: bool | None
    found: str
    do: str = ""


@dataclass(frozen=True)
class Health:
    """What was found of libraries, store, ledger and server.

    Parameters
    ----------
    findings
        One a thing that was looked at.
    """

    findings: Sequence[Finding]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not any(found.ok is False for found in self.findings)


def examine(home: Home) -> Health:
    """Look at everything that a run rests on; reads no row and writes nothing.

    Parameters
    ----------
    home
        Whose store and ledger are looked at.
    """
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Health([Finding("python", True, python), *_libraries(), _store(home), _ledger(home), _server()])


def _libraries() -> Iterator[Finding]:
    try:
        told = [Requirement(text) for text in requires("reticent") or []]
        yield Finding("reticent", True, version("reticent"))
    except PackageNotFoundError:
        yield Finding("reticent", False, "not installed as a package", "pip install reticent")
        return
    extras: dict[str, list[Requirement]] = {}
    for one in told:
        if one.marker is None:
            yield _library(one)
        else:
            extra = str(one.marker).partition("==")[2].strip(" \"'")
            extras.setdefault(extra, []).append(one)
    for extra, needed in sorted(extras.items()):
        lacking = [one.name for one in needed if _library(one).ok is not True]
        found = "all there" if not lacking else f"lacks {', '.join(lacking)}"
        mend = f"pip install 'reticent[{extra}]'" if lacking else ""
        yield Finding(f"extra {extra}", None if lacking else True, found, mend)


def _library(needed: Requirement) -> Finding:
    mend = f"pip install '{needed.name}{needed.specifier}'"
    try:
        found = version(needed.name)
    except PackageNotFoundError:
        return Finding(needed.name, False, "not installed", mend)
    ok = needed.specifier.contains(found, prereleases=True)
    return Finding(needed.name, ok, found if ok else f"{found}, needed {needed.specifier}", "" if ok else mend)


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
        told = verify_export(open_ledger(where, create=False).entries(), (), frozenset())
    except (BudgetError, CardError) as e:
        return Finding("home's ledger", False, str(e), "docs/recover.md")
    problem = told["problem"]
    if problem is not None:
        return Finding("home's ledger", False, problem, "docs/recover.md")
    return Finding("home's ledger", True, f"{told['entries']} entries, chain unbroken")


def _server() -> Finding:
    api = os.environ.get(API)
    if not api:
        return Finding("Prefect server", None, f"{API} names none: verbs run in this process", "`reticent serve`")
    try:
        answers(api, _PATIENCE)
    except CardError as e:
        return Finding("Prefect server", False, str(e), f"start it, or unset {API}")
    return Finding("Prefect server", True, api)
