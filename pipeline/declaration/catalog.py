"""Where datasets and the files of worlds are looked for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE = "RETICENT_SHELF"


def catalogs(asked: Path | None = None) -> list[Path]:
    """Shelves in order: ``--shelf`` / ``RETICENT_SHELF``, ``./datasets``, the checkout's, the installed one."""
    env = os.environ.get(VARIABLE)
    named = [asked] if asked else ([Path(env)] if env else [])
    checkout = Path(__file__).resolve().parents[2] / "datasets"
    return [*named, Path("datasets"), checkout, Path(sys.prefix) / "share" / "reticent" / "datasets"]
