"""What the operator hands in and is wrong: its two errors, and TOML files read with one line for each problem."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator


class CardError(Exception):
    """The operator's file (a card or a recipe) or the command is wrong: exit code 2."""


class DamagedError(Exception):
    """What the store holds is not what was written into it (exit code 4); nothing was drawn from it."""


class LogError(Exception):
    """The logs break the declared domain, or cannot be read: exit code 3.  Never names a value of a person."""


class Strict(BaseModel):
    """Unknown keys are errors, values do not change, and ``rho = "1"`` or ``rho = true`` is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _take_whole_number(cls, value: object, info: ValidationInfo) -> object:
        """``1e6`` is how TOML lets a person write a million."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        whole = annotation is int or int in get_args(annotation)
        return int(value) if whole and isinstance(value, float) and value.is_integer() else value


def explain(error: ValidationError, where: str) -> str:
    """One line a problem: which key, what was found, what is allowed.

    Parameters
    ----------
    error
        Of pydantic, one entry a wrong key.
    where
        What the lines begin with: the file.
    """
    lines: list[str] = []
    for e in error.errors():
        key = ".".join(str(p) for p in e["loc"])
        found = "" if e["type"] in ("missing", "value_error") else f"; found {_short(e['input'])}"
        message = e["msg"].removeprefix("Value error, ")
        if e["type"] == "extra_forbidden":
            message = "unknown key; see the card and recipe tables in docs/card.md"
        # a check across keys names them itself
        lines.append(f"{where}: {message}{found}" if not e["loc"] else f"{where}: {key}: {message}{found}")
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_toml(path: Path) -> Mapping[str, Any]:
    """Parse a TOML file; a missing or malformed one is a :class:`CardError`.

    Parameters
    ----------
    path
        Of a file in UTF-8.

    Raises
    ------
    CardError
        If it is missing or malformed.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CardError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as e:
        raise CardError(f"{path}: not readable as TOML: {e}") from None
