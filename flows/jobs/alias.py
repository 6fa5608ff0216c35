"""``runs/current``: the run in use.  A symbolic link that is moved in one step, and what it pointed to before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from flows.jobs.folder import write_json
from pipeline.declaration.card import CardError
from pipeline.files import sync, whole_file
from pipeline.transaction.place import one_at_a_time


class Kept(TypedDict):
    """Runs in use so far, the present one last, and those that were rolled back."""

    history: list[str]
    rejected: list[str]


@dataclass(frozen=True)
class Pointer:
    """A named pointer to one run of a home.

    Parameters
    ----------
    runs
        The home's folder of runs; the pointer, its history and its lock lie there.
    """

    runs: Path
    name: str = "current"

    def now(self) -> str | None:
        """Name of the run in use, or None."""
        path = self.runs / self.name
        if path.is_symlink():
            return path.readlink().name
        return path.read_text(encoding="utf-8").strip() if path.is_file() else None

    @property
    def rejected(self) -> frozenset[str]:
        """Runs that were rolled back; no rule promotes them again."""
        return frozenset(self._kept()["rejected"])

    def promote(self, run: str) -> None:
        """Point to ``run``.

        Raises
        ------
        CardError
            If there is no such run.
        """
        if not (self.runs / run / "report.json").is_file():
            raise CardError(f"{run}: no run of that name in {self.runs}")
        with one_at_a_time(self.runs):
            kept = self._kept()
            past = [r for r in self._past(kept) if r != run]
            # promoted by hand, a run that was rejected is trusted again
            self._keep([*past, run], [r for r in kept["rejected"] if r != run])
            self._point(run)

    def roll_back(self) -> str:
        """Point to the run before the one in use, and reject the latter; returns the name of the run now in use.

        Raises
        ------
        CardError
            If there is none, or it is gone.
        """
        with one_at_a_time(self.runs):
            kept = self._kept()
            past = self._past(kept)
            if len(past) < 2:
                raise CardError(f"{self.runs / self.name}: no earlier run to go back to")
            *before, gone = past
            if not (self.runs / before[-1] / "report.json").is_file():
                raise CardError(f"{before[-1]}: the run before is gone from {self.runs}; promote another by name")
            # pointed first: killed in between, the history still ends with the run that was in use
            self._point(before[-1])
            self._keep(before, [*(r for r in kept["rejected"] if r != gone), gone])
            return before[-1]

    def _past(self, kept: Kept) -> list[str]:
        """Runs in use so far, the present one last; what a kill between two writes left behind is cut off."""
        now, past = self.now(), kept["history"]
        if now is None:
            return []
        return past[: past.index(now) + 1] if now in past else [now]

    @property
    def _file(self) -> Path:
        return self.runs / f".{self.name}.json"

    def _kept(self) -> Kept:
        if not self._file.is_file():
            return {"history": [], "rejected": []}
        return json.loads(self._file.read_text(encoding="utf-8"))

    def _keep(self, history: Sequence[str], rejected: Sequence[str]) -> None:
        with whole_file(self._file) as fresh:
            write_json(fresh, {"schema_version": 1, "history": list(history), "rejected": list(rejected)})

    def _point(self, run: str) -> None:
        fresh = self.runs / f".{self.name}.new"
        fresh.unlink(missing_ok=True)
        try:
            fresh.symlink_to(run)
        except OSError:
            # a file system without links: the name as text
            fresh.write_text(f"{run}\n", encoding="utf-8")
        fresh.replace(self.runs / self.name)
        sync(self.runs)
