"""Imported by every interpreter that has this folder on its path: on order, kill -9 around a release's rename.

The order is a file that says ``before`` or ``after``; the process that draws takes it, kills its worker, then itself.
"""

import os
import re
import signal
from pathlib import Path

ORDER = Path(os.environ.get("DEADLY_ORDER", "/nowhere"))
_RELEASE = re.compile(r"/releases/[0-9a-f]{24}$")
_rename = os.rename


def _die() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _deadly(source, target, **kwargs) -> None:
    when = ""
    if _RELEASE.search(os.fspath(target)) and ORDER.is_file():
        when = ORDER.read_text()
        ORDER.unlink()
    if when == "before":
        _die()
    _rename(source, target, **kwargs)
    if when == "after":
        _die()


if ORDER.name != "nowhere":
    os.rename = _deadly
