"""Who does tasks elsewhere: processes of this machine, or the workers of a Dask scheduler.

A process is started anew, so it matters not how this program was: an interpreter that takes tasks from a pipe, and ends
when its parent does.

The workers are the operator's, behind the privacy wall.  What Dask keeps, shows and logs: keys (a random token and a
number), code, paths and sizes.  Tasks of an ingest carry the ids of people whom a disjoint dataset has counted; the
scheduler passes them on and logs none.  Rows never leave a worker; sums go through the scheduler to this process alone.
A task whose worker died is done anew by another, and counts once.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Self, TypeVar

from pipeline.declaration.code import code_digest
from pipeline.declaration.toml import CardError
from pipeline.logs.elsewhere import Seen, Task, Trouble, attempt, sizes, trouble_with

T = TypeVar("T", bound=Task[Any])
# over one task
_DEATHS = 2
_CHILD = "import sys; sys.path[:] = {path!r}; from pipeline.logs.crews import serve; serve({handle})"


class OnProcesses:
    """See :class:`~pipeline.logs.elsewhere.Elsewhere`; a context that ends its processes.

    Parameters
    ----------
    together
        How many processes; they are started with the first task.
    """

    def __init__(self, together: int) -> None:
        self.together = together
        self._children: dict[Connection[Any, Any], subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Starts nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every process, whatever it does."""
        for pipe in list(self._children):
            self._end(pipe)

    def ready(self, files: Sequence[Path]) -> None:
        """They see what this process sees."""

    def each(self, tasks: Iterable[T], seen: Seen) -> Iterator[tuple[T, Any]]:
        """Tasks in the order in which processes finish them.

        Raises
        ------
        CardError, DamagedError, LogError
            As the task would here.
        RuntimeError
            If a process failed otherwise, or two died over one task.
        """
        busy: dict[Connection[Any, Any], T] = {}
        waiting, deaths = iter(tasks), Counter[str]()
        while len(self._children) < self.together:
            self._start()
        for pipe in list(self._children):
            self._give(pipe, next(waiting, None), busy)
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                task = busy.pop(pipe)
                try:
                    answer = pipe.recv()
                except (EOFError, ConnectionResetError):
                    code = self._end(pipe)
                    deaths[task.named] += 1
                    if deaths[task.named] == _DEATHS:
                        raise RuntimeError(
                            f"{task.named}: {_DEATHS} processes that did it died (the last with code {code}); "
                            "if memory ran out, give --memory less, so that fewer of them work at once"
                        ) from None
                    self._give(self._start(), task, busy)
                    continue
                if isinstance(answer, Trouble):
                    raise answer.error(task)
                seen(answer.rows)
                self._give(pipe, next(waiting, None), busy)
                yield task, answer.result

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

    def _give(self, pipe: Connection[Any, Any], task: T | None, busy: dict[Connection[Any, Any], T]) -> None:
        if task is None:
            return
        busy[pipe] = task
        try:
            pipe.send((task, sizes(task.files), code_digest()))
        except (BrokenPipeError, ConnectionResetError):
            # it died while it had nothing to do; waiting for its answer tells
            return

    def _end(self, pipe: Connection[Any, Any]) -> int:
        process = self._children.pop(pipe)
        pipe.close()
        process.kill()
        return process.wait()


def serve(handle: int) -> None:
    """In a child: answer tasks until the pipe is closed."""
    # an interrupt is the parent's, which ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    with Connection(handle) as pipe, suppress(EOFError, ConnectionError):
        while True:
            task, files, code = pipe.recv()
            pipe.send(attempt(task, files, code))


def _end_with(parent: int) -> None:
    """Whoever goes on with what a dead parent left must be alone with it."""
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(1)


_ANSWERS_WITHIN = "20s"


@dataclass(frozen=True)
class OnDask:
    """See :class:`~pipeline.logs.elsewhere.Elsewhere`.

    Parameters
    ----------
    address
        Of the scheduler, ``tcp://host:port`` or ``tls://host:port``; certificates are Dask's own settings.
    """

    address: str

    @property
    def together(self) -> int:
        """Threads of all workers."""
        with self._client() as client:
            return _threads(client)

    def ready(self, files: Sequence[Path]) -> None:
        """Ask every worker whether it has this code and sees these files.

        Raises
        ------
        CardError
            If Dask is not installed, no scheduler answers, it has no worker, or one of them cannot work.
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

    def each(self, tasks: Iterable[T], seen: Seen) -> Iterator[tuple[T, Any]]:
        """Tasks in the order in which workers finish them.

        Raises
        ------
        CardError, DamagedError, LogError
            As the task would here.
        RuntimeError
            If a worker failed otherwise, or several died over one task.
        """
        from distributed import KilledWorker, as_completed

        with self._client() as client:
            token, by_key = secrets.token_hex(8), dict[str, T]()

            def submitted(task: T) -> Any:
                key = f"task-{token}-{len(by_key)}"
                by_key[key] = task
                return client.submit(attempt, task, sizes(task.files), code_digest(), key=key, pure=False)

            waiting = iter(tasks)
            # no more than the workers need, so that no sums wait in their memory
            first = [submitted(task) for task in islice(waiting, 2 * _threads(client))]
            done = as_completed(first, loop=client.loop, with_results=True)
            try:
                for future, answer in done:
                    task = by_key[future.key]
                    if isinstance(answer, Trouble):
                        raise answer.error(task)
                    seen(answer.rows)
                    yield task, answer.result
                    done.update([submitted(task) for task in islice(waiting, 1)])
            except KilledWorker as e:
                named = by_key[str(e.task)].named if str(e.task) in by_key else "a task"
                raise RuntimeError(f"{named}: the workers that did it died; give them more memory") from None

    def _client(self) -> Any:
        from distributed import Client

        try:
            return Client(self.address, timeout=_ANSWERS_WITHIN, set_as_default=False)
        except (OSError, ValueError) as e:
            raise CardError(f"no Dask scheduler answers at {self.address} ({type(e).__name__})") from None


def _threads(client: Any) -> int:
    return max(1, sum(client.nthreads().values()))
