"""How large and how wide: memory, and other machines.  They belong to a place, not to a run: no recipe has them."""

from __future__ import annotations

import os
import re

from pipeline.declaration.card import CardError
from pipeline.logs.summing import DEFAULT_MEMORY, Resources

_UNITS = {"": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_LEAST = 640 << 20


def choose_resources(memory: str | None = None, dask: str | None = None) -> Resources:
    """What the options ask for, else ``RETICENT_MEMORY`` and ``RETICENT_DASK``, else a GiB and this process.

    Parameters
    ----------
    memory
        A size such as ``512MB``; None: the environment's, else a GiB.
    dask
        Address of a scheduler, e.g. ``tcp://10.0.0.5:8786``; None: the environment's, else this process.
    """
    memory, dask = memory or os.environ.get("RETICENT_MEMORY"), dask or os.environ.get("RETICENT_DASK")
    size = DEFAULT_MEMORY if memory is None else size_of(memory)
    if not dask:
        return Resources(size)
    if not re.fullmatch(r"[a-z]+://\S+", dask):
        raise CardError("--dask takes the address of a scheduler, e.g. tcp://10.0.0.5:8786")
    from pipeline.logs.on_dask import OnDask

    return Resources(size, OnDask(dask))


def size_of(text: str) -> int:
    """Bytes of ``512MB``, ``1.5 GiB`` or a plain number.

    Raises
    ------
    CardError
        If it is none of these, or less than 640 MiB.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if found is None or found[2].upper() not in _UNITS:
        raise CardError(f"--memory {text!r}: give a size such as 512MB or 1.5GiB")
    size = int(float(found[1]) * _UNITS[found[2].upper()])
    if size < _LEAST:
        raise CardError(f"--memory {text!r}: at least {_LEAST >> 20} MiB is needed")
    return size
