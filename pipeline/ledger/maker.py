"""What made a run: where all of it is the same, the same inputs make the same bytes, and a difference means an edit."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("pipeline", "flows", "reports")
_LIBRARIES = ("numpy", "scipy", "pyarrow", "polars", "cvxpy", "clarabel", "pydantic", "jinja2", "altair")


@cache
def maker() -> dict[str, str]:
    """Program, its source, Python, machine, libraries and how the machine rounds; as PUBLISH entries hold it."""
    return {
        "reticent": version_of("reticent"),
        "source": _source()[:16],
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{library: version_of(library) for library in _LIBRARIES},
        "arithmetic": _arithmetic()[:16],
    }


def version_of(distribution: str) -> str:
    """The version of an installed distribution, or ``unknown``.

    Parameters
    ----------
    distribution
        As ``pip`` names it.
    """
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def _source() -> str:
    """Sha256 over all files of the program but what Python makes of them."""
    whole = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest = hashlib.sha256(path.read_bytes()).digest()
                whole.update(f"{path.relative_to(_ROOT)}\0".encode() + digest)
    return whole.hexdigest()


def _arithmetic() -> str:
    """Sha256 of the last digits of a fixed computation: processors with other vector units round sums otherwise."""
    x = (np.arange(1, 129 * 129 + 1, dtype=np.float64) % 977.0).reshape(129, 129) / 977.0
    square = x @ x.T + np.eye(129)
    found = [x @ square, x[0] @ x[1], x.sum(axis=1), np.exp(x), np.log(x + 1.0), np.sqrt(x)]
    found += [np.linalg.solve(square, x), np.linalg.eigvalsh(square), np.tanh(x), x.sum()]
    whole = hashlib.sha256()
    for values in found:
        whole.update(np.ascontiguousarray(values).tobytes())
    return whole.hexdigest()


def other_maker(made_by: object, now: Mapping[str, str]) -> str | None:
    """What is not as it was when a run was made, in words; None where all is the same.

    Parameters
    ----------
    made_by
        Of the run's PUBLISH entry; None of a run without one.
    now
        What would make it here.
    """
    if not isinstance(made_by, dict):
        return "nobody noted which version made it"
    differ = [key for key in sorted({*now, *made_by}) if now.get(key) != made_by.get(key)]
    if not differ:
        return None
    told = ", ".join(f"{key} {made_by.get(key)}, here {now.get(key)}" for key in differ[:3])
    return f"made under another version or machine ({told}{', …' if len(differ) > 3 else ''})"
