"""Committed releases in the operator's store: ``releases/<key>/`` whole or not there, unfinished draws beside."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.files import whole_folder, write_file
from pipeline.ledger.chain import AttemptLostError, BudgetError
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import release_files

_PARTIAL = re.compile(r"(?P<key>[0-9a-f]{24})\.attempt-(?P<attempt>\d+)")


@dataclass(frozen=True)
class Attempt:
    """Which draw a folder holds.

    Parameters
    ----------
    run_key, attempt
        Hex key of the release, and which try at it, counted from 1.
    data_digest
        Sha256 of the rows' files; for the operator alone, as it would confirm guesses.
    """

    run_key: str
    attempt: int
    data_digest: str


def folder_of(store: Path, lineage: str, run_key: str, *, exact: bool) -> Path:
    """Where the release of a key is kept.

    Parameters
    ----------
    store, lineage
        The operator's store, and the name of the dataset.
    run_key
        64 hex digits.
    exact
        Whether it has no noise: exact tables of a simulation are no private release.
    """
    return store / lineage / "releases" / f"{'exact-' if exact else ''}{run_key[:24]}"


def drawn_folders(store: Path, lineage: str) -> list[Path]:
    """Folders of finished private releases; the exact tables of a simulation are not among them."""
    found = sorted((store / lineage / "releases").glob("*/attempt.json"))
    return [p.parent for p in found if re.fullmatch(r"[0-9a-f]{24}", p.parent.name)]


def unfinished(store: Path, lineage: str) -> list[tuple[Path, str, int]]:
    """Folders of draws that were never finished, with the beginning of their key and their attempt."""
    found = [(p, _PARTIAL.fullmatch(p.name)) for p in sorted((store / lineage / "releases").glob("*.attempt-*"))]
    return [(p, m["key"], int(m["attempt"])) for p, m in found if m is not None]


def read_attempt(folder: Path) -> Attempt:
    """Which draw a folder holds, as its ``attempt.json`` says.

    Raises
    ------
    BudgetError
        If that cannot be read.
    """
    try:
        facts: Any = json.loads((folder / "attempt.json").read_text(encoding="utf-8"))
        return Attempt(str(facts["run_key"]), int(facts["attempt"]), str(facts["data_digest"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise BudgetError(f"{folder / 'attempt.json'} is damaged; restore the store. Nothing was read") from None


def write_attempt(release: Release, folder: Path, attempt: Attempt) -> None:
    """Write a release beside and rename it: a folder under its final name is whole.

    Parameters
    ----------
    release
        What was drawn.
    folder
        From :func:`folder_of`.
    attempt
        Which draw it is; kept beside the release, and in the name of the unfinished folder.

    Raises
    ------
    AttemptLostError
        If another attempt's release is there already: a release that is there is never replaced.
    """
    exact, beside = release.noise == "none", f"{folder.name}.attempt-{attempt.attempt}"
    try:
        with whole_folder(folder, private=True, over=exact, beside=beside) as partial:
            for name, content in release_files(release).items():
                write_file(partial / name, content)
            write_file(partial / "attempt.json", json.dumps(asdict(attempt)))
    except OSError:
        if exact or not folder.exists() or read_attempt(folder) == attempt:
            raise
        raise AttemptLostError(f"{release.dataset}: another attempt drew this release first; its spend stays") from None
