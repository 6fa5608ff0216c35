"""``reticent trigger`` starts a flow on the server that ``PREFECT_API_URL`` names; alerts go out by its blocks."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, TypedDict

from flows.server.serving import API, answers
from pipeline.declaration.card import CardError


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
    try:
        told = error.response.json()
    except ValueError:
        told = {}
    text = told.get("detail") or told.get("exception_message") or f"HTTP {error.response.status_code}"
    return " ".join(str(text).split())
