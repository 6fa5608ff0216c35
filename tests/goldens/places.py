"""Where the goldens lie, and a copy of the home to work in: the committed one is never touched."""

from __future__ import annotations

import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOME = HERE / "home"
EXPECTED = HERE / "expected"


def copied(to: Path) -> Path:
    """The golden home, copied to ``to``; its shelf is in it."""
    shutil.copytree(HOME, to)
    return to
