"""The only module of the goldens that knows where the code lives: it alone follows moves and renames.

Everything else reaches the code through the command line, files and the names below.  Where something moves, change
an import here; where a golden changes, that is another commit (see README.md).
"""

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pipeline.ledger.ledger
from flows.cli import main
from flows.config.home import Home
from flows.config.recipe import nightly_counter, setting
from pipeline.privacy.noise import SeededNoise
from pipeline.transaction.drawing import key_of
from tests.jobs import run_job


@dataclass(frozen=True)
class Said:
    """What a command said: exit code, the object on stdout (None where there is none), stderr."""

    code: int
    answer: Any
    err: str


def reticent(*args: object, home: Path, shelf: Path | None = None, form: bool = True) -> Said:
    """``reticent --home HOME [--shelf SHELF] ARGS --json`` in this process, through the script's entry point."""
    where = ["--home", str(home), *([] if shelf is None else ["--shelf", str(shelf)])]
    words = ["reticent", *where, *map(str, args), *(["--json"] if form else [])]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else int(e.code is not None)
    text = out.getvalue()
    return Said(code, json.loads(text) if form and text.strip() else None, err.getvalue())


def said(home: Path, *args: object, shelf: Path | None = None) -> Any:
    """What a command answers that ends well; without a shelf, on that of the home where it has one."""
    own = home / "shelf"
    found = reticent(*args, home=home, shelf=own if shelf is None and own.is_dir() else shelf)
    assert found.code == 0, found.err
    return found.answer


def clock(at: datetime) -> Any:
    """A context in which the ledger's clock stands still."""
    return mock.patch.object(pipeline.ledger.ledger, "now", lambda: at)


def shipped_study(path: Path) -> Any:
    """A context in which a study is the one that ships under its name."""
    return mock.patch("flows.jobs.studies.paper_studies", lambda name: {path.stem: path})


def seeded_run(recipe: str, home: Path, shelf: Path | None, seed: int, day: date | None = None) -> dict[str, Any]:
    """``run RECIPE [--night DAY]`` with fixed noise and a fixed secret of the ledger, which no command line offers."""
    with mock.patch.object(pipeline.ledger.ledger.Ledger, "people_key", lambda ledger, store: bytes(32)):
        return run_job(recipe, Home(home, shelf), noise=SeededNoise(seed), day=day)


def key_of_release(recipe: str, home: Path, shelf: Path | None, snapshot: int) -> str:
    """Hex key of what a recipe without nights would release of a snapshot."""
    s = setting(recipe, Home(home, shelf))
    return key_of(s.card, snapshot, s.plan)


def key_of_counter(recipe: str, home: Path, shelf: Path | None) -> tuple[str, list[str]]:
    """Hex key of a recipe's counter, and those of its first four nights."""
    counter = nightly_counter(setting(recipe, Home(home, shelf)))
    return counter.key, [counter.step_key(leaf) for leaf in range(1, 5)]
