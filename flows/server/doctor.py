"""``reticent doctor``: what is installed, whether store and ledger are well, and whether a server answers."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from flows.config.home import Home
from flows.jobs.book import verify_export
from flows.server.serving import API, answers
from pipeline.declaration.card import CardError
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.ledger import open_ledger

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
