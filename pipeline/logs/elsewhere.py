"""Tasks over files that all workers see, and where they are done: here, on processes of this machine, or on Dask.

A task that is done twice writes the same bytes, so a worker that died is survived.  On its way a task never raises:
libraries show what is raised, and a row may stand in it.  Its error comes back as a kind and, if this project wrote it,
a text that names file and line.

A process is an interpreter that is started anew, so it does not matter how this program was started; it takes tasks
from a pipe, and ends when its parent does.  A process pool of the standard library fails whole when one child is
killed, and runs the caller's script again in each child.

Dask's workers are the operator's, behind the privacy wall.  What Dask keeps, shows and logs: keys, code, paths and
sizes.  Tasks of an ingest carry the ids of people whom a disjoint dataset has counted; the scheduler passes them on and
logs none.  Rows never leave a worker; sums go through the scheduler to this process alone.
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
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
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
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T", bound="FileTask[Any]")

_OURS: tuple[type[Exception], ...] = (CardError, DamagedError, LogError)


class FileTask(Protocol[R_co]):
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


@dataclass(frozen=True)
class Here:
    """In this process, one after the other."""

    together: int = 1

    def ready(self, files: Sequence[Path]) -> None:
        """Nothing to ask: nothing can fail later that does not now."""

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

    def error(self, task: FileTask[Any]) -> Exception:
        """As it would have been raised here."""
        for ours in _OURS:
            if self.kind == ours.__name__:
                return ours(self.text)
        return RuntimeError(f"{task.named}: {self.text or f'{self.kind} on a worker; do it here to see more'}")


def attempt(task: FileTask[Any], files: Files, code: str) -> Done | Trouble:
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


class _Crew(ABC):
    """Workers behind an executor, which see the same files."""

    @abstractmethod
    def executor(self) -> AbstractContextManager[tuple[Executor, int]]:
        """Who does tasks, and how many are handed out at once: no more, so that no results wait in memory."""

    def each(self, tasks: Iterable[T], seen: Seen) -> Iterator[tuple[T, Any]]:
        """Tasks in the order in which they are done.

        Raises CardError, DamagedError, LogError as the task would here.
        Raises RuntimeError if a worker failed otherwise, or several died over one task.
        """
        waiting, busy = iter(tasks), dict[Future[Any], T]()
        with self.executor() as (pool, most):

            def submit(count: int) -> None:
                for task in islice(waiting, count):
                    busy[pool.submit(attempt, task, sizes(task.files), code_digest())] = task

            submit(most)
            while busy:
                for future in wait(busy, return_when=FIRST_COMPLETED).done:
                    task = busy.pop(future)
                    try:
                        answer = future.result()
                    except Exception as e:
                        if type(e).__name__ != "KilledWorker":
                            raise
                        answer = Trouble(_DIED, "the workers that did it died; give them more memory")
                    if isinstance(answer, Trouble):
                        raise answer.error(task)
                    seen(answer.rows)
                    submit(1)
                    yield task, answer.result


# over one task
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
        """End every process, whatever it does."""
        self._ended = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in list(self._children.values()):
            process.kill()
            process.wait()

    def ready(self, files: Sequence[Path]) -> None:
        """They see what this process sees."""

    @contextmanager
    def executor(self) -> Generator[tuple[Executor, int]]:
        """Itself: the processes stay for the next tasks."""
        yield self, self.together

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Have a process do :func:`attempt` of a task."""
        assert fn is attempt
        return self._threads.submit(self._attempt, args)

    def _attempt(self, asked: tuple[Any, ...]) -> Done | Trouble:
        """In a thread: a process that died over a task is replaced once."""
        code = 0
        for _ in range(_DEATHS):
            pipe = self._idle.pop() if self._idle else self._start()
            try:
                pipe.send(asked)
                answer: Done | Trouble = pipe.recv()
            except (EOFError, ConnectionError):
                pipe.close()
                code = self._children.pop(pipe).wait()
                if self._ended:
                    break
                continue
            self._idle.append(pipe)
            return answer
        said = f"{_DEATHS} processes that did it died (the last with code {code}); if memory ran out, "
        return Trouble(_DIED, said + "give --memory less, so that fewer of them work at once")

    def _start(self) -> Connection[Any, Any]:
        ours, theirs = Pipe()
        with theirs:
            handle = theirs.fileno()
            command = [sys.executable, "-P", "-c", _CHILD.format(path=sys.path, handle=handle)]
            # as many threads as processes: one each
            limits = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
            self._children[ours] = subprocess.Popen(
                command, env=os.environ | limits, stdin=subprocess.DEVNULL, pass_fds=[handle]
            )
        return ours


def serve(handle: int) -> None:
    """In a child: answer tasks until the pipe is closed."""
    # an interrupt is the parent's, which ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    with Connection(handle) as pipe, suppress(EOFError, ConnectionError):
        while True:
            pipe.send(attempt(*pipe.recv()))


def _end_with(parent: int) -> None:
    """Whoever begins anew after a dead parent must be alone."""
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
                text = (
                    trouble if isinstance(trouble, str) else f"{type(trouble).__name__}; is reticent installed there?"
                )
                raise CardError(f"Dask worker {worker}: {text}. Nothing was charged")

    @contextmanager
    def executor(self) -> Generator[tuple[Executor, int]]:
        """Of a client of the scheduler; what is not done when the block is left is given up."""
        with self._client() as client:
            # a task that is done anew counts once; two with the same arguments are two
            pool = client.get_executor(pure=False)
            try:
                yield pool, 2 * _threads(client)
            finally:
                pool.shutdown(wait=False)

    def _client(self) -> Any:
        from distributed import Client

        try:
            return Client(self.address, timeout=_ANSWERS_WITHIN, set_as_default=False)
        except (OSError, ValueError) as e:
            raise CardError(f"no Dask scheduler answers at {self.address} ({type(e).__name__})") from None


# where tasks are done: how many ``together``, what is refused before a charge, and each with its result
Elsewhere = Here | OnProcesses | OnDask


def _threads(client: Any) -> int:
    return max(1, sum(client.nthreads().values()))
