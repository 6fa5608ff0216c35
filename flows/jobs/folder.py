"""A run's folder (design §5.3): written beside, then renamed, so that a run is there whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.declaration.card import CardError


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Indented JSON with a final newline; a number that is no number is an error, not a ``NaN``."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def publish(partial: Path, final: Path) -> None:
    """Put a finished folder under its final name, in place of an older rendering of the same run."""
    old = final.with_name(f".{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    partial.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write a file at once or not at all; without ``force`` never over another.

    Raises
    ------
    CardError
        If the file exists and ``force`` is not set, or the place takes no file.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if force:
            partial.replace(path)
        else:
            # a link is refused where a file stands, also one that came this very moment
            os.link(partial, path)
    except FileExistsError:
        raise CardError(f"{path} exists; name another file, or replace it with --force") from None
    except OSError as e:
        raise CardError(f"{path}: cannot be written ({e.strerror}); name a file in a folder that exists") from None
    finally:
        partial.unlink(missing_ok=True)
