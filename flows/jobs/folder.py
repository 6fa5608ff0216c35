"""The files of a run's folder (design §5.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.declaration.card import CardError
from pipeline.files import whole_file


def json_text(value: Mapping[str, Any]) -> str:
    """Indented JSON with a final newline; a number that is no number is an error, not a ``NaN``."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write :func:`json_text` of a value."""
    path.write_text(json_text(value), encoding="utf-8")


def write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write a file at once or not at all; without ``force`` never over another.

    Parameters
    ----------
    path, text
        Where and what.
    force
        Whether a file that stands there is replaced.

    Raises
    ------
    CardError
        If the file exists and ``force`` is not set, or the place takes no file.
    """
    try:
        with whole_file(path, over=force, alone=False) as fresh:
            fresh.write_text(text, encoding="utf-8", newline="")
    except FileExistsError:
        raise CardError(f"{path} exists; name another file, or replace it with --force") from None
    except OSError as e:
        raise CardError(f"{path}: cannot be written ({e.strerror}); name a file in a folder that exists") from None
