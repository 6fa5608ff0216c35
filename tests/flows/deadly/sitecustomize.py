"""Imported by every interpreter that has this folder on its path: on order, kill -9 of a worker and of its run.

The order is a file; the first process that touches a store takes it.  It says ``before`` or ``after`` (the rename of a
release), ``step N`` (the N-th trace left on the disk from there on), ``time S`` (seconds from there on), or ``count``
(kill nobody, write the number of traces and the seconds beside the order).
"""

import os
import re
import signal
import threading
import time
from pathlib import Path

ORDER = Path(os.environ.get("DEADLY_ORDER", "/nowhere"))
_STORE = re.compile(r"/store(/|$)")
_RELEASE = re.compile(r"/releases/[0-9a-f]{24}$")
_TRACES = ("mkdir", "rename", "replace", "fsync", "link")
_order: list[str] = []
_count = 0
_began = 0.0


def _die() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _take() -> None:
    global _began
    _order.extend(ORDER.read_text().split())
    ORDER.unlink()
    _began = time.monotonic()
    if _order[0] == "time":
        threading.Timer(float(_order[1]), _die).start()


def _trace(target: str) -> None:
    global _count
    if not _order and _STORE.search(target) and ORDER.is_file():
        _take()
    if not _order:
        return
    _count += 1
    if _order[0] == "step" and _count == int(_order[1]):
        _die()
    if _order[0] == "count":
        ORDER.with_name("counted").write_text(f"{_count} {time.monotonic() - _began:.3f}")


def _watched(name: str):
    work = getattr(os, name)

    def traced(*args, **kwargs):
        target = str(args[1 if name in ("rename", "replace", "link") else 0])
        _trace(target)
        drawn = bool(_order) and bool(_RELEASE.search(target))
        if drawn and _order[0] == "before":
            _die()
        result = work(*args, **kwargs)
        if drawn and _order[0] == "after":
            _die()
        return result

    return traced


if ORDER.name != "nowhere":
    for _name in _TRACES:
        setattr(os, _name, _watched(_name))
