"""Errors of the operator's files and commands, and TOML files read with one line for each problem."""

import errno
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, cast, get_args

import pydantic

M = TypeVar("M", bound=pydantic.BaseModel)
# no card or recipe needs more than half of either; the parser takes 3.6 GB for a key of 30 000 parts
_DEEPEST = 20
_LARGEST = 4 << 20

_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
# texts of several lines and comments hold no keys; what is not closed is no TOML, so nothing behind it is read
_TOKENS = re.compile(
    r"""\"{3}(?:(?:[^\\]|\\.)*?\"{3,5}+|.*+)|'{3}(?:.*?'{3,5}+|.*+)|\#[^\n]*+"""
    rf"""|(?P<key>{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+)|["'].*+""",
    re.DOTALL,
)

Name = Annotated[str, pydantic.Field(pattern=r"^[a-z0-9][a-z0-9_\-]{0,62}$")]
"""Name of a dataset, a recipe or a pointer: safe as a file name."""


def _scalable(budget: float) -> float:
    """Refuse a budget so small that the squared scale of its noise overflows."""
    if budget < 1e-150:
        raise ValueError("so small a budget that its noise has no scale")
    return budget


Positive = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
Rho = Annotated[float, pydantic.Field(gt=0, le=1e9), pydantic.AfterValidator(_scalable)]
Epsilon = Annotated[float, pydantic.Field(gt=0, le=1e5), pydantic.AfterValidator(_scalable)]


class CardError(Exception):
    """The operator's file (a card or a recipe) or the command is wrong: exit code 2."""

    exit_code = 2


class DamagedError(Exception):
    """A file of the store is not as it was written (exit code 4); nothing was drawn from it."""

    exit_code = 4


class LogError(Exception):
    """The logs break the declared domain, or cannot be read: exit code 3.  Never names a value of a person."""

    exit_code = 3


def exit_code(error: Exception) -> int:
    """Exit code of design §5.1: 2 operator's file, 3 the log, 4 the budget, 1 anything else."""
    # such as the content of a file in place of its name
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return 2
    return getattr(error, "exit_code", 1)


class Strict(pydantic.BaseModel):
    """Unknown keys are errors, values do not change, and ``rho = "1"`` or ``rho = true`` is no number."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)
    # keys of later versions, with their defaults: a file that leaves them so keeps its digest
    later: ClassVar[Mapping[str, object]] = {}
    # keys of earlier versions, with what to do instead
    gone: ClassVar[Mapping[str, str]] = {}

    @pydantic.model_serializer(mode="wrap")
    def _without_later(self, plain: pydantic.SerializerFunctionWrapHandler) -> dict[str, object]:
        return {k: v for k, v in plain(self).items() if k not in self.later or v != self.later[k]}

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _take_whole_number(cls, value: object, info: pydantic.ValidationInfo) -> object:
        """Turn a whole float into an integer: TOML writes a million as ``1e6``."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        whole = annotation is int or int in get_args(annotation)
        return int(value) if whole and isinstance(value, float) and value.is_integer() else value


def validated(kind: type[M], values: object, where: str, **context: object) -> M:
    """The model of plain values.

    Raises CardError with one line for each wrong key: its name, its value, and the allowed ones.
    """
    try:
        return kind.model_validate(values, context=context or None)
    except pydantic.ValidationError as e:
        raise CardError(explain(e, where, kind)) from None


def explain(error: pydantic.ValidationError, where: str, model: type[pydantic.BaseModel]) -> str:
    """One line a problem: the key, its value, the allowed ones, and the known key nearest to an unknown one."""
    lines: list[str] = []
    for e in error.errors():
        key = ".".join(str(p) for p in e["loc"])
        found = "" if e["type"] in ("missing", "value_error") else f"; found {short(e['input'])}"
        message = e["msg"].removeprefix("Value error, ")
        if e["type"] == "extra_forbidden":
            last, models = str(e["loc"][-1]), _models_at(model, e["loc"][:-1])
            near = get_close_matches(last, [f.alias or n for m in models for n, f in m.model_fields.items()], n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            instead = [m.gone[last] for m in models if issubclass(m, Strict) and last in m.gone]
            message = f"unknown key; {hint}see the card and recipe tables in docs/card.md"
            message = f"no longer a key; {instead[0]}" if instead else message
        # a check across keys names them itself
        lines.append(f"{where}: {message}{found}" if not e["loc"] else f"{where}: {key}: {message}{found}")
    return "\n".join(lines)


def _models_at(model: type[pydantic.BaseModel], path: Sequence[int | str]) -> list[type[pydantic.BaseModel]]:
    """The tables that may stand at a path; places in lists and kinds of a union are no part of it."""
    models = [model]
    for part in path:
        fields = [m.model_fields[str(part)] for m in models if str(part) in m.model_fields]
        models = [inner for f in fields for inner in _models_in(f.annotation)] or models
    return models


def _models_in(annotation: Any) -> list[type[pydantic.BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    return [m for inner in get_args(annotation) for m in _models_in(inner)]


def short(value: object) -> str:
    """``repr`` of a value, in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_toml(path: Path) -> Mapping[str, Any]:
    """Parse a TOML file; a missing, malformed or oversized one is a :class:`CardError`.

    ``path``: of a file in UTF-8.
    Raises CardError if it is missing, malformed, larger or deeper than any card or recipe is.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
        if len(raw) > _LARGEST:
            raise CardError(f"{path}: larger than {_LARGEST >> 20} MiB; no card or recipe is; which file did you mean?")
        text = raw.decode("utf-8").replace("\r\n", "\n")
        values = None if _deep_key(text) else tomllib.loads(text)
    except FileNotFoundError:
        raise CardError(f"{path}: no such file") from None
    # ValueError: no TOML, no UTF-8, or a number of thousands of digits
    except (ValueError, OSError) as e:
        raise CardError(f"{path}: not readable as TOML: {e}") from None
    except RecursionError:
        values = None
    if values is None or _deeper(values, _DEEPEST):
        raise CardError(f"{path}: tables and lists stand more than {_DEEPEST} deep in each other")
    return values


def _deep_key(text: str) -> bool:
    """Whether a dotted key has too many parts: the parser must not see it, as its memory grows with their square."""
    keys = (m["key"] for m in _TOKENS.finditer(text))
    return any(key.count(".") >= _DEEPEST and len(re.findall(_PART, key)) > _DEEPEST for key in keys if key)


def _deeper(values: Mapping[str, object], levels: int) -> bool:
    level: list[object] = [values]
    for _ in range(levels):
        level = [inner for each in level for inner in _within(each) if isinstance(inner, dict | list)]
    return bool(level)


def _within(value: object) -> Collection[object]:
    """Values of a table or a list."""
    return cast("Sequence[object]", value) if (table := table_in(value)) is None else table.values()


def table_in(value: object) -> Mapping[str, object] | None:
    """The value, if it is a table of TOML or an object of JSON."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None


def read_pairs(params: Sequence[str], parse: Callable[[str], object]) -> dict[str, object]:
    """Values of ``key=value`` pairs by key.

    Raises CardError if a pair has no ``=``, or a key is no name or comes twice.
    """
    values: dict[str, object] = {}
    for pair in params:
        key, equals, value = pair.partition("=")
        if not (equals and key.isidentifier()) or key in values:
            raise CardError(f"--param {pair[:60]!r}: write key=value, e.g. states=5, and each key once")
        try:
            values[key] = parse(value)
        except (ValueError, RecursionError):
            values[key] = value
    return values
