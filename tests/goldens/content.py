"""What is compared: the content of tables and of JSON, whatever the bytes of the files."""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

REL = 1e-9
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z)?")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_WORD = re.compile(r"[A-Za-z0-9_.:/<>=+\-]{0,60}")


def table(path: Path) -> dict[str, Any]:
    """Digest of the sorted rows of all columns that are not floats, and sums over each float column."""
    found = pl.read_parquet(path)
    found = found.select(sorted(found.columns)).sort(sorted(found.columns), nulls_last=True)
    floats = [name for name, kind in found.schema.items() if kind.is_float()]
    exact = json.dumps([[name for name in found.columns if name not in floats], found.drop(floats).rows()], default=str)
    told: dict[str, Any] = {"rows": found.height, "sha256": hashlib.sha256(exact.encode()).hexdigest()}
    for name in floats:
        values = [float(v) for v in found[name].drop_nulls()]
        weighted = math.fsum(v * (1 + i % 97) for i, v in enumerate(values))
        told[name] = [math.fsum(values), math.fsum(map(abs, values)), weighted]
    return told


def numbers(value: Any) -> Any:
    """The numbers, booleans, nulls and one-word strings of a JSON value; sentences may be reworded."""
    if isinstance(value, dict):
        return {k: numbers(v) for k, v in value.items() if _stays(v)}
    if isinstance(value, list):
        return [numbers(v) for v in value if _stays(v)]
    return value


def _stays(value: Any) -> bool:
    if not isinstance(value, str):
        return True
    return bool(_WORD.fullmatch(value)) and not _TIME.search(value) and not _HASH.search(value)


def steady(value: Any, places: dict[str, str], *, hashes: bool = False, times: bool = False) -> Any:
    """The same value with placeholders for places of this machine, and for times and hashes where they are fresh."""
    if isinstance(value, dict):
        return {k: steady(v, places, hashes=hashes, times=times) for k, v in value.items()}
    if isinstance(value, list):
        return [steady(v, places, hashes=hashes, times=times) for v in value]
    if not isinstance(value, str):
        return value
    for place, name in places.items():
        value = value.replace(place, name)
    value = _TIME.sub("<time>", value) if times else value
    return _HASH.sub("<hash>", value) if hashes else value


def differences(expected: Any, found: Any, at: str = "") -> Iterator[str]:
    """Where two JSON values differ, floats beyond ``REL``; a path and both values each."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in {**expected, **found}:
            if key not in found or key not in expected:
                yield f"{at}.{key}: {'gone' if key in expected else 'new'}"
            else:
                yield from differences(expected[key], found[key], f"{at}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for i, (a, b) in enumerate(zip(expected, found, strict=True)):
            yield from differences(a, b, f"{at}[{i}]")
    elif any(isinstance(x, bool) or not isinstance(x, int | float) for x in (expected, found)):
        if expected != found or type(expected) is not type(found):
            yield f"{at}: {expected!r} became {found!r}"
    elif not math.isclose(expected, found, rel_tol=REL, abs_tol=1e-12):
        yield f"{at}: {expected!r} became {found!r}"


def same(expected: Any, found: Any) -> None:
    """Fail with the first differences of two JSON values."""
    wrong = list(differences(expected, found))
    assert not wrong, f"{len(wrong)} differ, among them:\n" + "\n".join(wrong[:20])
