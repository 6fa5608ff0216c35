"""PUBLISH: the ledger vouches for every file of a run that people read, by digest.

The entry is appended when the run is published, after its COMMIT, signed by the operator's key.  It names what made the
files: where all of that is the same, the same inputs make the same bytes, and a difference means an edit.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np

from pipeline.ledger.chain import Body, Entry
from pipeline.ledger.chain_tables import Page
from pipeline.ledger.keys import OperatorKey, registered_keys
from pipeline.privacy.release_file import sha256_file

NO_FILE = "no file"
_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("pipeline", "flows", "reports")
_LIBRARIES = ("numpy", "scipy", "pyarrow", "polars", "cvxpy", "clarabel", "pydantic", "jinja2", "vl-convert-python")


class Publication(TypedDict):
    """The body of a PUBLISH entry, beside ``key`` and ``signature``; no fact about a person.

    Parameters
    ----------
    run
        Name of the folder.
    run_key, commit
        Of the release, and the entry that committed it (None: exact tables of made-up people).
    snapshot
        Number of the snapshot, as the INTENT has it; None for a night of a counter.
    seen
        Newest entry of the ledger when the files were written: later looks at the data are not told in them.
    card_hash
        Of all that the card declared.
    seed
        Of ties, as the recipe says.
    made
        How a simulated log was made; absent of any other.
    made_by
        See :func:`maker`.
    files
        sha256 by name, of every file of the folder.
    """

    run: str
    run_key: str
    commit: int | None
    snapshot: int | None
    seen: int
    card_hash: str
    seed: int
    made_by: dict[str, str]
    made: NotRequired[Body]
    files: dict[str, str]


def file_digests(folder: Path) -> dict[str, str]:
    """sha256 of every file of a run's folder, by its path in the folder; of all else there, that it is no file."""
    # a link may point anywhere, and a pipe may never end: what is no plain file is no file of a run, and is not opened
    return {
        p.relative_to(folder).as_posix(): sha256_file(p) if p.is_file() and not p.is_symlink() else NO_FILE
        for p in sorted(folder.rglob("*"))
    }


def key_body(key: OperatorKey) -> dict[str, object]:
    """The body of a KEY entry: the public key of one host's operator."""
    return {"public_key": key.public, "algorithm": "ed25519"}


def vouch(page: Page, lineage: str, told: Publication, key: OperatorKey) -> Entry:
    """Append PUBLISH, unless the newest one of this run vouches for the very same files.

    Parameters
    ----------
    page, lineage
        Of the ledger, and the dataset.
    told
        What is published.
    key
        Signs it; registered on its first use.
    """
    there = publications(page.entries, told["run"])
    if there and there[-1].body["files"] == told["files"]:
        return there[-1]
    if key.public not in registered_keys(page.entries):
        page.append(lineage, "KEY", key_body(key))
    return page.append(lineage, "PUBLISH", {**told, "key": key.public}, sign=key.sign_entry)


def publications(entries: Sequence[Entry], run: str) -> list[Entry]:
    """All PUBLISH entries of a run, oldest first, whatever dataset its files say that it is of.

    Parameters
    ----------
    entries, run
        Of the ledger, and the name of the run's folder.
    """
    return [e for e in entries if e.kind == "PUBLISH" and e.body.get("run") == run]


def publication_of(entries: Sequence[Entry], run: str, files: Mapping[str, str]) -> Entry | None:
    """The PUBLISH entry that vouches for these very files, else the newest one of the run; None where there is none."""
    there = publications(entries, run)
    return next((e for e in reversed(there) if e.body["files"] == files), there[-1] if there else None)


def files_problem(e: Entry, files: Mapping[str, str]) -> str | None:
    """Which file of a run is not what its PUBLISH entry says, in words, or None."""
    stated: Mapping[str, str] = e.body["files"]
    for name in sorted({*stated, *files}):
        if name not in files:
            return f"{name} is gone"
        if name not in stated:
            return f"{name} was added; entry {e.seq} knows nothing of it"
        if files[name] != stated[name]:
            return f"{name} was changed: entry {e.seq} vouches for {stated[name][:16]}…, it has {files[name][:16]}…"
    return None


def was_unvouched(entries: Sequence[Entry], commit: Entry | None) -> bool:
    """Whether a run without PUBLISH may be older than PUBLISH: its COMMIT precedes every key of the ledger.

    A version that publishes registers its host's key before it draws.

    Parameters
    ----------
    entries, commit
        Of the ledger, and what the run rests on; None where nothing was charged.
    """
    first = next((e.seq for e in entries if e.kind in ("KEY", "PUBLISH")), None)
    return commit is None or first is None or commit.seq < first


@cache
def maker() -> dict[str, str]:
    """Program, its source, Python, machine, libraries and how the machine rounds; as PUBLISH entries hold it."""
    return {
        "reticent": _version("reticent"),
        "source": _source()[:16],
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{library: _version(library) for library in _LIBRARIES},
        "arithmetic": _arithmetic()[:16],
    }


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def _source() -> str:
    """Sha256 over all files of the program but what Python makes of them."""
    whole = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest = hashlib.sha256(path.read_bytes()).digest()
                whole.update(f"{path.relative_to(_ROOT)}\0".encode() + digest)
    return whole.hexdigest()


def _arithmetic() -> str:
    """Sha256 of the last digits of a fixed computation: processors with other vector units round sums otherwise."""
    x = (np.arange(1, 129 * 129 + 1, dtype=np.float64) % 977.0).reshape(129, 129) / 977.0
    square = x @ x.T + np.eye(129)
    found = [x @ square, x[0] @ x[1], x.sum(axis=1), np.exp(x), np.log(x + 1.0), np.sqrt(x)]
    found += [np.linalg.solve(square, x), np.linalg.eigvalsh(square), np.tanh(x), x.sum()]
    whole = hashlib.sha256()
    for values in found:
        whole.update(np.ascontiguousarray(values).tobytes())
    return whole.hexdigest()


def other_maker(made_by: object, now: Mapping[str, str]) -> str | None:
    """What is not as it was when a run was made, in words; None where all is the same.

    Parameters
    ----------
    made_by
        Of the run's PUBLISH entry; None of a run without one.
    now
        What would make it here.
    """
    if not isinstance(made_by, dict):
        return "nobody noted which version made it"
    differ = [key for key in sorted({*now, *made_by}) if now.get(key) != made_by.get(key)]
    if not differ:
        return None
    told = ", ".join(f"{key} {made_by.get(key)}, here {now.get(key)}" for key in differ[:3])
    return f"made under another version or machine ({told}{', …' if len(differ) > 3 else ''})"
