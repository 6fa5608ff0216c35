"""TOML as a person would write it: tables in order, a comment behind a key where one is due."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def toml_text(
    head: Sequence[str],
    values: Mapping[str, Any],
    comments: Mapping[str, str] | None = None,
    inner: Sequence[str] = (),
) -> str:
    """Lines of ``head`` as comments, then ``values``.

    Parameters
    ----------
    values
        Tables are written as ``[table]``, what they hold inline; None is left out.
    comments
        Dotted key -> what stands behind its line.
    inner
        Dotted names of tables in tables that get a header of their own.
    """
    said = comments or {}
    lines = [f"# {line}".rstrip() for line in head]
    lines += _pairs("", {k: v for k, v in values.items() if not isinstance(v, Mapping)}, said)
    for name, table in values.items():
        if isinstance(table, Mapping):
            own = {k: v for k, v in table.items() if f"{name}.{k}" in inner}
            lines += ["", f"[{name}]", *_pairs(f"{name}.", {k: v for k, v in table.items() if k not in own}, said)]
            for key, below in own.items():
                lines += ["", f"[{name}.{key}]", *_pairs(f"{name}.{key}.", below, said)]
    return "\n".join(lines) + "\n"


def _pairs(prefix: str, values: Mapping[str, Any], said: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    for key, value in values.items():
        if value is not None:
            comment = f"   # {said[prefix + key]}" if prefix + key in said else ""
            found.append(f"{_key(key)} = {toml_value(value)}{comment}")
    return found


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "a").replace("-", "a").isalnum() else _text(key)


def _text(value: str) -> str:
    # JSON strings are TOML strings but for one control character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_value(value: Any) -> str:
    """One value; lists and mappings inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(k))} = {toml_value(v)}" for k, v in value.items() if v is not None) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return repr(value)
