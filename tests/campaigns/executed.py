"""Which of our modules a campaign executes: ``depends.toml`` lists them, or names them with why its rows need them not.

A list that is narrower than what runs would let a number pass for today's though what made it has changed.
"""

from __future__ import annotations

import sys
import threading
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

from tests.campaigns.rows import ROOT, listed

_OURS = ("pipeline", "flows", "reports")


@contextmanager
def executed() -> Generator[set[str]]:
    """The modules of which a function ran in the block, in this thread or one begun in it; filled at its end."""
    codes, found = set[CodeType](), set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code not in codes and not _importing(frame):
            codes.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = {Path(code.co_filename) for code in codes}
    ours = (file.relative_to(ROOT).with_suffix("").parts for file in files if file.is_relative_to(ROOT))
    found |= {".".join(parts) for parts in ours if parts[0] in _OURS}


def _importing(frame: FrameType | None) -> bool:
    """Whether some import is under way: what it runs depends on what was imported before."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def unexplained(campaign: str, table: str, modules: set[str]) -> list[str]:
    """Modules that a campaign executed, and that its table neither depends on nor has a reason for; stale reasons too.

    Parameters
    ----------
    campaign, table
        A heading of ``[outside]``, and one of ``[rooms]``.
    modules
        From :func:`executed`.
    """
    told = tomllib.loads(Path(__file__).with_name("depends.toml").read_text(encoding="utf-8"))["outside"][campaign]
    outside = [word for rooms in told.values() for word in rooms.split()]
    beyond = modules - listed(table)
    found = {word: {m for m in beyond if f"{m}.".startswith(f"{word}.")} for word in outside}
    return sorted(beyond - set().union(*found.values())) + [word for word, of in found.items() if not of]
