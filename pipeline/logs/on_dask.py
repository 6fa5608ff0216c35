"""Partitions summed by the workers of a Dask scheduler; the workers are the operator's, behind the privacy wall.

What Dask keeps, shows and logs: keys (a random token and a number), code, paths and sizes.  Rows never leave a worker;
sums go through the scheduler to this process alone.  A task never raises, because Dask logs and shows what is raised:
its error comes back as a kind and, if this project wrote it, a text that names file and line.  A group whose worker
died is summed anew by another, and added once.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import CardError
from pipeline.declaration.code import code_digest
from pipeline.declaration.toml import DamagedError
from pipeline.logs.summing import Summation, Sums

Integers = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Packed:
    """Sums on their way between machines; where most cells are zero, only the others.

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


# groups a thread: enough that a slow one at the end is short
_GROUPS_EACH = 4
_ANSWERS_WITHIN = "20s"

Files = tuple[tuple[str, int], ...]


@dataclass(frozen=True, repr=False)
class Summed:
    """Sums of a group, and its rows."""

    sums: Packed
    rows: int


@dataclass(frozen=True, repr=False)
class Trouble:
    """What went wrong on a worker; ``text`` is empty where it might hold what a row says."""

    kind: str
    text: str = ""


@dataclass(frozen=True)
class OnDask:
    """See :class:`~pipeline.logs.summing.Elsewhere`.

    Parameters
    ----------
    address
        Of the scheduler, ``tcp://host:port`` or ``tls://host:port``; certificates are Dask's own settings.
    """

    address: str

    def ready(self, parts: Sequence[Path]) -> None:
        """Ask every worker whether it has this code and sees these files.

        Raises
        ------
        CardError
            If Dask is not installed, no scheduler answers, it has no worker, or one of them cannot sum.
        """
        if find_spec("distributed") is None:
            raise CardError("--dask needs the extra scale: pip install 'reticent[scale]'; nothing was charged")
        with self._client() as client:
            troubles = client.run(trouble_with, _files(parts), code_digest(), on_error="return")
        if not troubles:
            raise CardError(f"the Dask scheduler at {self.address} has no worker; start some. Nothing was charged")
        for worker, trouble in sorted(troubles.items()):
            if trouble:
                text = (
                    trouble if isinstance(trouble, str) else f"{type(trouble).__name__}; is reticent installed there?"
                )
                raise CardError(f"Dask worker {worker}: {text}. Nothing was charged")

    def run(self, work: Summation, parts: Sequence[Path], sums: Sums) -> Iterator[tuple[Sequence[Path], int]]:
        """Add groups to ``sums`` as they are done; yields their part files and rows.

        Raises
        ------
        DamagedError
            As summing here would.
        RuntimeError
            If a worker failed otherwise, or several died over one group.
        """
        from distributed import KilledWorker, as_completed

        with self._client() as client:
            threads = max(1, sum(client.nthreads().values()))
            size = min(work.together, math.ceil(len(parts) / (_GROUPS_EACH * threads))) or 1
            groups = [parts[first : first + size] for first in range(0, len(parts), size)]
            token = secrets.token_hex(8)
            by_key = {f"sum-{token}-{i}": group for i, group in enumerate(groups)}

            def submitted(key: str) -> Any:
                return client.submit(sum_group, work, _files(by_key[key]), code_digest(), key=key, pure=False)

            waiting = iter(by_key)
            # no more than the workers need, so that no sums wait in their memory
            first = [submitted(key) for key in islice(waiting, 2 * threads)]
            done = as_completed(first, loop=client.loop, with_results=True)
            try:
                for future, answer in done:
                    group = by_key[future.key]
                    if isinstance(answer, Trouble):
                        raise _error(answer, group)
                    answer.sums.add_to(sums)
                    yield group, answer.rows
                    done.update([submitted(key) for key in islice(waiting, 1)])
            except KilledWorker as e:
                names = _named(by_key.get(str(e.task), parts))
                raise RuntimeError(f"{names}: the workers that summed it died; give them more memory") from None

    def _client(self) -> Any:
        from distributed import Client

        try:
            return Client(self.address, timeout=_ANSWERS_WITHIN, set_as_default=False)
        except (OSError, ValueError) as e:
            raise CardError(f"no Dask scheduler answers at {self.address} ({type(e).__name__})") from None


def trouble_with(files: Files, code: str) -> str:
    """On a worker: why it cannot sum these files; empty if it can."""
    if code != code_digest():
        return "it runs another version of reticent, numpy, polars or pyarrow; install the same on all machines"
    for name, size in files:
        path = Path(name)
        if not path.is_file() or path.stat().st_size != size:
            return f"it does not see {path.name} as it is here; put the home on a file system that all machines share"
    return ""


def sum_group(work: Summation, files: Files, code: str) -> Summed | Trouble:
    """On a worker: the sums of whole part files; never raises."""
    rows = 0

    def seen(more: int) -> None:
        nonlocal rows
        rows += more

    try:
        if trouble := trouble_with(files, code):
            return Trouble("worker", trouble)
        sums = work.zero()
        work.add(sums, [Path(name) for name, _ in files], seen)
        return Summed(Packed.of(sums), rows)
    except DamagedError as e:
        return Trouble("DamagedError", str(e))
    except Exception as e:
        return Trouble(type(e).__name__)


def _files(parts: Sequence[Path]) -> Files:
    """Paths and sizes: another size is another file, or half of one."""
    return tuple((str(part.resolve()), part.stat().st_size) for part in parts)


def _named(group: Sequence[Path]) -> str:
    return group[0].name if len(group) == 1 else f"{group[0].name} to {group[-1].name}"


def _error(trouble: Trouble, group: Sequence[Path]) -> Exception:
    if trouble.kind == "DamagedError":
        return DamagedError(trouble.text)
    return RuntimeError(f"{_named(group)}: {trouble.text or f'{trouble.kind} on a worker; sum it here to see more'}")
