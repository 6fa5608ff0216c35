"""Tasks over files that all workers see, and where they are done: here, on processes of this machine, or on Dask.

A task that is done twice writes the same bytes, so a worker that died is survived.  On its way a task never raises:
libraries show what is raised, and a row may stand in it.  Its error comes back as a kind and, if this project wrote it,
a text that names file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.code import code_digest
from pipeline.declaration.toml import CardError, DamagedError, LogError

Integers = NDArray[np.int64]
Seen = Callable[[int], None]
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T", bound="Task[Any]")

_OURS: tuple[type[Exception], ...] = (CardError, DamagedError, LogError)


class Task(Protocol[R_co]):
    """A small value that can be sent to another process; nothing of it is shown."""

    @property
    def files(self) -> Sequence[Path]:
        """What a worker must see as it is here."""
        ...

    @property
    def named(self) -> str:
        """What a message calls it: names of files."""
        ...

    def __call__(self, seen: Seen) -> R_co:
        """Do it; call ``seen`` with the number of rows, batch after batch."""
        ...


class Elsewhere(Protocol):
    """Workers that see the same files."""

    @property
    def together(self) -> int:
        """Tasks that are done at once."""
        ...

    def ready(self, files: Sequence[Path]) -> None:
        """Refuse, before anything is charged, what would only fail later."""
        ...

    def each(self, tasks: Iterable[T], seen: Seen) -> Iterator[tuple[T, Any]]:
        """Do every task, and yield it with its result once, as they are done; tasks are asked for when needed."""
        ...


@dataclass(frozen=True)
class Here:
    """See :class:`~pipeline.logs.elsewhere.Elsewhere`: in this process, one after the other."""

    together: int = 1

    def ready(self, files: Sequence[Path]) -> None:
        """Nothing to ask."""

    def each(self, tasks: Iterable[T], seen: Seen) -> Iterator[tuple[T, Any]]:
        """In their order; errors are raised as they are."""
        for task in tasks:
            yield task, task(seen)


Files = tuple[tuple[str, int], ...]


@dataclass(frozen=True, repr=False)
class Done:
    """What a task gave, and how many rows it saw."""

    result: Any
    rows: int


@dataclass(frozen=True, repr=False)
class Trouble:
    """What went wrong on a worker; ``text`` is empty where it might hold what a row says."""

    kind: str
    text: str = ""

    def error(self, task: Task[Any]) -> Exception:
        """As it would have been raised here."""
        for ours in _OURS:
            if self.kind == ours.__name__:
                return ours(self.text)
        return RuntimeError(f"{task.named}: {self.text or f'{self.kind} on a worker; do it here to see more'}")


def attempt(task: Task[Any], files: Files, code: str) -> Done | Trouble:
    """On a worker: do a task; never raises."""
    rows = 0

    def seen(more: int) -> None:
        nonlocal rows
        rows += more

    try:
        if trouble := trouble_with(files, code):
            return Trouble("worker", trouble)
        return Done(task(seen), rows)
    except _OURS as e:
        return Trouble(type(e).__name__, str(e))
    except BaseException as e:
        # a panic of a library is no Exception, and its text may quote a cell
        if isinstance(e, KeyboardInterrupt | SystemExit):
            raise
        return Trouble(type(e).__name__)


def trouble_with(files: Files, code: str) -> str:
    """On a worker: why it cannot work on these files; empty if it can."""
    if code != code_digest():
        return "it runs another version of reticent, numpy, polars or pyarrow; install the same on all machines"
    for name, size in files:
        path = Path(name)
        if not path.is_file() or path.stat().st_size != size:
            return f"it does not see {path.name} as it is here; put the home on a file system that all machines share"
    return ""


def sizes(files: Sequence[Path]) -> Files:
    """Paths and sizes: another size is another file, or half of one."""
    return tuple((str(file.resolve()), file.stat().st_size) for file in files)


@dataclass(frozen=True, repr=False)
class Packed:
    """Sums on their way between processes; where most cells are zero, only the others.

    Cells ``at`` and their integers, table by table; ``at`` is None where every cell is there.
    """

    tables: Mapping[str, tuple[Integers | None, Integers]]

    @staticmethod
    def of(sums: Mapping[str, Integers]) -> Packed:
        """The smaller of both ways."""
        tables: dict[str, tuple[Integers | None, Integers]] = {}
        for name, table in sums.items():
            flat = table.reshape(-1)
            at = np.flatnonzero(flat)
            tables[name] = (at, flat[at]) if 2 * len(at) < len(flat) else (None, flat)
        return Packed(tables)

    def add_to(self, sums: Mapping[str, Integers]) -> None:
        """Add in place."""
        for name, (at, found) in self.tables.items():
            flat = sums[name].reshape(-1)
            # no cell is named twice
            flat[slice(None) if at is None else at] += found
