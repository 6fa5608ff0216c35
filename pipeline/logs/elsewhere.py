"""Tasks over files that all workers see, done in this process, on processes of this machine, or on Dask.

A task that is done twice writes the same bytes, so the death of a worker does no harm.  On a worker a task never
raises: libraries show what is raised, and it may quote a row.  Its error is returned as a type and, if this project
wrote it, a text that names file and line.

A process is a new interpreter, so it does not matter how this program was started; it takes tasks from a pipe, and
ends when its parent does.  A process pool of the standard library fails as a whole when one child is killed, and runs
the caller's script again in each child.

Dask's workers are the operator's, behind the privacy wall.  Dask keeps, shows and logs keys, code, paths and sizes.
Tasks of an ingest carry the ids of people whom a disjoint dataset has counted; the scheduler passes them on and does
not log them.  Rows never leave a worker; sums go through the scheduler to this process alone.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from pipeline.arrays import Integers
from pipeline.declaration.code import code_digest
from pipeline.declaration.toml import CardError, DamagedError, LogError

Seen = Callable[[int], None]
T = TypeVar("T", bound="FileTask")

_OURS: tuple[type[Exception], ...] = (CardError, DamagedError, LogError)


class FileTask(Protocol):
    """A task over files: a small value that can be sent to another process, and whose content is not shown."""

    @property
    def files(self) -> Sequence[Path]:
        """Files that a worker must see unchanged."""
        ...

    @property
    def named(self) -> str:
        """Name of the task in messages: names of files."""
        ...

    def __call__(self, seen: Seen) -> Any:
        """Do the task; call ``seen`` with the number of rows, batch after batch."""
        ...


@dataclass(frozen=True)
class Here:
    """Does tasks in this process, one after the other."""

    together: int = 1

    def ready(self, files: Sequence[Path]) -> None:
        """Do nothing: this process sees its files."""

    def each(self, tasks: Iterable[T], seen: Seen) -> Iterator[tuple[T, Any]]:
        """Do tasks in their order; errors are raised unchanged."""
        for task in tasks:
            yield task, task(seen)


Files = tuple[tuple[str, int], ...]


@dataclass(frozen=True, repr=False)
class Done:
    """Result of a task, and the number of rows that it saw."""

    result: Any
    rows: int


@dataclass(frozen=True, repr=False)
class Trouble:
    """Error on a worker; ``text`` is empty if it might quote a row."""

    kind: str
    text: str = ""

    def error(self, task: FileTask) -> Exception:
        """Exception that the task would have raised in this process."""
        if (ours := next((kind for kind in _OURS if kind.__name__ == self.kind), None)) is not None:
            return ours(self.text)
        return RuntimeError(f"{task.named}: {self.text or f'{self.kind} on a worker; do it here to see more'}")


def attempt(task: FileTask, files: Files, code: str) -> Done | Trouble:
    """Do a task on a worker; never raises."""
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
        # a library's panic is no Exception, and its text may quote a cell
        if isinstance(e, KeyboardInterrupt | SystemExit):
            raise
        return Trouble(type(e).__name__)


def trouble_with(files: Files, code: str) -> str:
    """Reason why a worker cannot work on these files; empty if it can."""
    if code != code_digest():
        return "it runs another version of reticent, numpy, polars or pyarrow; install the same on all machines"
    for name, size in files:
        path = Path(name)
        if not path.is_file() or path.stat().st_size != size:
            return f"it does not see {path.name} as it is here; put the home on a file system that all machines share"
    return ""


def sizes(files: Sequence[Path]) -> Files:
    """Paths and sizes of files, by which workers check that they see the same ones."""
    return tuple((str(file.resolve()), file.stat().st_size) for file in files)


@dataclass(frozen=True, repr=False)
class Packed:
    """Sums on their way between processes: indices of cells and their integers, table by table.

    Tables in which most cells are zero have only the other cells; of other tables the index is a slice of all.
    """

    tables: Mapping[str, tuple[Integers | slice, Integers]]

    @staticmethod
    def of(sums: Mapping[str, Integers]) -> Packed:
        """Pack sums, each table in the smaller of both forms."""
        tables: dict[str, tuple[Integers | slice, Integers]] = {}
        for name, table in sums.items():
            flat = table.reshape(-1)
            cells = np.flatnonzero(flat)
            tables[name] = (cells, flat[cells]) if 2 * len(cells) < len(flat) else (slice(None), flat)
        return Packed(tables)

    def add_to(self, sums: Mapping[str, Integers]) -> None:
        """Add to ``sums`` in place."""
        for name, (cells, values) in self.tables.items():
            # no cell occurs twice
            sums[name].reshape(-1)[cells] += values


class _Crew(ABC):
    """Workers behind an executor, which see the same files as this process."""

    @abstractmethod
    def executor(self) -> AbstractContextManager[tuple[Executor, int, Callable[[], bool]]]:
        """Executor; the number of tasks submitted at once, which bounds the results that wait in memory; and a check
        whether any worker is there.
        """

    def each(self, tasks: Iterable[T], seen: Seen) -> Iterator[tuple[T, Any]]:
        """Yield tasks and results in the order in which they are done.

        Raises CardError, DamagedError, LogError as the task would here.
        Raises RuntimeError if a worker failed otherwise, or several died over one task.
        """
        waiting, busy = iter(tasks), dict[Future[Any], T]()
        with self.executor() as (pool, most, staffed):

            def submit(count: int) -> None:
                for task in islice(waiting, count):
                    busy[pool.submit(attempt, task, sizes(task.files), code_digest())] = task

            submit(most)
            while busy:
                done = wait(busy, _PATIENCE, return_when=FIRST_COMPLETED).done
                if not done and not staffed():
                    gone = Trouble(_DIED, "all workers went away; start some, and run again")
                    raise gone.error(next(iter(busy.values())))
                for future in done:
                    task = busy.pop(future)
                    try:
                        answer = future.result()
                    except CancelledError:
                        answer = Trouble(_DIED, "the scheduler went away; start it, and run again")
                    except Exception as e:
                        if type(e).__name__ != "KilledWorker":
                            raise
                        answer = Trouble(_DIED, "the workers that did it died; give them more memory")
                    if isinstance(answer, Trouble):
                        raise answer.error(task)
                    seen(answer.rows)
                    submit(1)
                    yield task, answer.result


# seconds without a result after which somebody must be at work; a worker that is started again is there sooner
_PATIENCE = 60.0
# attempts of one task whose process dies
_DEATHS = 2
_DIED = "death"
_CHILD = "import sys; sys.path[:] = {path!r}; from pipeline.logs.elsewhere import serve; serve({handle})"


class OnProcesses(_Crew, Executor):
    """Processes of this machine, each fed by a thread of this one; a context that ends them."""

    def __init__(self, together: int) -> None:
        self.together = together
        self._threads = ThreadPoolExecutor(together)
        self._children: dict[Connection[Any, Any], subprocess.Popen[bytes]] = {}
        self._idle: list[Connection[Any, Any]] = []
        self._ended = False

    def __exit__(self, *_: object) -> None:
        """Kill every process."""
        self._ended = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in list(self._children.values()):
            process.kill()
            process.wait()

    def ready(self, files: Sequence[Path]) -> None:
        """Do nothing: processes of this machine see the same files."""

    @contextmanager
    def executor(self) -> Generator[tuple[Executor, int, Callable[[], bool]]]:
        """Yield itself; the processes stay for the next tasks, and are replaced if they die."""
        yield self, self.together, lambda: True

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Have a process do :func:`attempt` of a task."""
        assert fn is attempt
        return self._threads.submit(self._attempt, args)

    def _attempt(self, arguments: tuple[Any, ...]) -> Done | Trouble:
        """Have a process do a task, in a thread; a process that dies is replaced once."""
        code = 0
        for _ in range(_DEATHS):
            pipe = self._idle.pop() if self._idle else self._start()
            try:
                pipe.send(arguments)
                answer: Done | Trouble = pipe.recv()
            except (EOFError, ConnectionError):
                pipe.close()
                code = self._children.pop(pipe).wait()
                if self._ended:
                    break
                continue
            self._idle.append(pipe)
            return answer
        reason = f"{_DEATHS} processes that did it died (the last with code {code}); if memory ran out, "
        return Trouble(_DIED, reason + "give --memory less, so that fewer of them work at once")

    def _start(self) -> Connection[Any, Any]:
        ours, theirs = Pipe()
        with theirs:
            handle = theirs.fileno()
            command = [sys.executable, "-P", "-c", _CHILD.format(path=sys.path, handle=handle)]
            # one thread for each process
            limits = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
            self._children[ours] = subprocess.Popen(
                command, env=os.environ | limits, stdin=subprocess.DEVNULL, pass_fds=[handle]
            )
        return ours


def serve(handle: int) -> None:
    """Do tasks in a child process until the pipe is closed."""
    # the parent handles interrupts, and ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    with Connection(handle) as pipe, suppress(EOFError, ConnectionError):
        while True:
            pipe.send(attempt(*pipe.recv()))


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, so that the next ingest is alone."""
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(1)


_ANSWERS_WITHIN = "20s"


@dataclass(frozen=True)
class OnDask(_Crew):
    """Workers of a Dask scheduler."""

    address: str

    @property
    def together(self) -> int:
        """Threads of all workers."""
        with self._client() as client:
            return _threads(client)

    def ready(self, files: Sequence[Path]) -> None:
        """Ask every worker whether it has this code and sees these files.

        Raises CardError if Dask is not installed, no scheduler answers, it has no worker, or one of them cannot work.
        """
        if find_spec("distributed") is None:
            raise CardError("--dask needs the extra scale: pip install 'reticent[scale]'; nothing was charged")
        with self._client() as client:
            troubles = client.run(trouble_with, sizes(files), code_digest(), on_error="return")
        if not troubles:
            raise CardError(f"the Dask scheduler at {self.address} has no worker; start some. Nothing was charged")
        for worker, trouble in sorted(troubles.items()):
            if trouble:
                failed = "" if isinstance(trouble, str) else f"{type(trouble).__name__}; is reticent installed there?"
                raise CardError(f"Dask worker {worker}: {failed or trouble}. Nothing was charged")

    @contextmanager
    def executor(self) -> Generator[tuple[Executor, int, Callable[[], bool]]]:
        """Executor of a client; unfinished tasks are given up when the context ends."""
        with self._client() as client:
            # not pure: two tasks with the same arguments are both done
            pool = client.get_executor(pure=False)
            try:
                yield pool, 2 * _threads(client), lambda: bool(client.nthreads())
            finally:
                pool.shutdown(wait=False)

    def _client(self) -> Any:
        from distributed import Client

        try:
            return Client(self.address, timeout=_ANSWERS_WITHIN, set_as_default=False)
        except (OSError, ValueError) as e:
            raise CardError(f"no Dask scheduler answers at {self.address} ({type(e).__name__})") from None


# workers: their number (``together``), a check before a charge (``ready``), and the loop over tasks (``each``)
Elsewhere = Here | OnProcesses | OnDask


def _threads(client: Any) -> int:
    return max(1, sum(client.nthreads().values()))
