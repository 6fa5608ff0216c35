"""Tasks on the workers of a Dask scheduler; the workers are the operator's, behind the privacy wall.

What Dask keeps, shows and logs: keys (a random token and a number), code, paths and sizes.  Tasks of an ingest carry
the ids of people whom a disjoint dataset has counted; the scheduler passes them on and logs none.  Rows never leave a
worker; sums go through the scheduler to this process alone.  A task whose worker died is done anew by another, and
counts once.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from pipeline.declaration.code import code_digest
from pipeline.declaration.toml import CardError
from pipeline.logs.elsewhere import Seen, Task, Trouble, attempt, sizes, trouble_with

T = TypeVar("T", bound=Task[Any])
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
