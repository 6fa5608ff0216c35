"""Tasks on processes of this machine; each is started anew, so it matters not how this program was.

A child is an interpreter that takes tasks from a pipe, and ends when its parent does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Self, TypeVar

from pipeline.declaration.code import code_digest
from pipeline.logs.elsewhere import Seen, Task, Trouble, attempt, sizes

T = TypeVar("T", bound=Task[Any])
# over one task
_DEATHS = 2
_CHILD = "import sys; sys.path[:] = {path!r}; from pipeline.logs.on_processes import serve; serve({handle})"


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
