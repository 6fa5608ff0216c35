"""Modules that one row crosses on its way to a report: ``python -P -m tests.house.journey``.

The small shop's log is ingested and run, and a night of a counter is drawn, in this process through the shell's own
entry; every call of a function of the product is watched.  Printed: modules whose functions ran, and moves from one to
another.
"""

import contextlib
import io
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from flows.cli import main as reticent
from tests.flows import shop

TOPS = ("pipeline.", "flows.", "reports.")


class Watch:
    """Counts the product's modules while it stands as the profiler."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.moves, self._last, self.frames = 0, "", 0

    def __call__(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and not self.frames and _sums(called):
            self.frames = _depth(frame)
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith(TOPS) and frame.f_code.co_name not in ("<module>", "<lambda>"):
            self.modules.add(name)
            self.moves += name != self._last
            self._last = name


def _sums(called: Any) -> bool:
    """Whether a C function is one that adds rows into cells."""
    of_ufunc = isinstance(getattr(called, "__self__", None), np.ufunc)
    return called is np.bincount or (of_ufunc and called.__name__ == "at")


def _depth(frame: FrameType | None) -> int:
    """The product's frames up to this one, lambdas included."""
    depth = 0
    while frame is not None:
        depth += frame.f_globals.get("__name__", "").startswith(TOPS)
        frame = frame.f_back
    return depth


def watched(arguments: Sequence[str]) -> Watch:
    """Run the command once, watched."""
    watch, printed, said = Watch(), io.StringIO(), io.StringIO()
    sys.argv = ["reticent", *arguments]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        sys.setprofile(watch)
        try:
            reticent()
        except SystemExit as end:
            assert not end.code, (arguments, printed.getvalue(), said.getvalue())
        finally:
            sys.setprofile(None)
    return watch


def lay_out(folder: Path) -> None:
    """Write a card, a log of sixty people and two recipes."""
    shop.lay_out(folder, log=shop.rows(60), people=60)
    shop.write_recipe(folder, "once")
    shop.write_recipe(folder, "night", more=f'[nightly]\nnights = 4\nfirst = "{datetime.now(UTC).date()}"\n')


def crossed() -> dict[str, str]:
    """Modules that ``run`` and a night cross, and the frames from the shell to the first sum over rows."""
    found = journeys()
    return {
        "modules crossed by a run / a night": f"{len(found['run'].modules)} / {len(found['night'].modules)}",
        "frames from the shell to the first sum over rows": str(found["run"].frames),
    }


def journeys() -> dict[str, Watch]:
    """Ingest, run and a night, watched."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lay_out(folder)
        found: dict[str, Watch] = {}
        # the first time imports modules, whose class bodies are calls too
        for home in ("warm", "home"):
            at = ["--home", str(folder / home)]
            found = {
                "ingest": watched([*at, "ingest", str(folder / "card.toml")]),
                "run": watched([*at, "run", str(folder / "once.toml")]),
                "night": watched([*at, "nightly", str(folder / "night.toml")]),
            }
        return found


if __name__ == "__main__":
    for name, w in journeys().items():
        print(f"{name:12} {len(w.modules):4} modules {w.moves:6} moves")
