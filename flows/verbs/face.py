"""A function of the Python door as a verb of the shell: keyword-only parameters are options, its docstring is help."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import asdict
from inspect import Parameter, Signature, getdoc, signature
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import typer

from flows.terminal.screen import Block, Json, show

if TYPE_CHECKING:
    from flows.api import Store

F = TypeVar("F", bound=Callable[..., Any])
# the shell names what Python may hold, and repeats an option for each of several values
_TYPED = {"RecipeLike": str, "CardLike": str, "Sequence": list}
# set by the options that every verb has
CHOSEN: ContextVar[Callable[[], Store]] = ContextVar("store")


def chosen_store() -> Store:
    """The store that the options of the command name."""
    return CHOSEN.get()()


def dumped(found: Any) -> Mapping[str, object]:
    """What ``--json`` prints of a value."""
    if hasattr(found, "model_dump"):
        return found.model_dump()
    return asdict(found) if hasattr(found, "__dataclass_fields__") else found


def verb(
    into: typer.Typer,
    page: Callable[[Any], Sequence[Block]],
    *,
    name: str = "",
    told: Callable[[Any], Mapping[str, object]] = dumped,
    code: Callable[[Any], int] = lambda _: 0,
) -> Callable[[F], F]:
    """Make a function a verb: the shell prints what it returns, and it stays the same function.

    ``page``, ``told``: what a person reads, and what ``--json`` prints of it.
    ``code``: the exit code.
    """

    def listed(of: F) -> F:
        parameters = list(signature(of).parameters.values())
        store = next((p.name for p in parameters if p.name in ("self", "store")), None)
        text, helps = _documented(getdoc(of) or "")

        def run(as_json: bool, **given: Any) -> None:
            asked = {name: x for name, x in given.items() if x is not None}
            found = of(**asked) if store is None else of(**{store: chosen_store()}, **asked)
            show(told(found), as_json, lambda: page(found))
            if exit_code := code(found):
                raise typer.Exit(exit_code)

        options = [_option(p, of.__globals__, helps.get(p.name)) for p in parameters if p.name != store]
        options.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json))
        setattr(run, "__signature__", Signature(options))  # noqa: B010
        run.__annotations__ = {p.name: p.annotation for p in options}
        into.command(name or of.__name__.replace("_", "-"), help=text)(run)
        return of

    return listed


def _option(p: Parameter, names: Mapping[str, Any], text: str | None) -> Parameter:
    """A parameter as typer takes it: a type that the shell can read, and its help."""
    found = eval(p.annotation, {**names, **_TYPED})
    kind, *said = get_args(found) if get_origin(found) is Annotated else (found,)
    if isinstance(kind, UnionType) and str in get_args(kind):
        kind = str | None if type(None) in get_args(kind) else str
    # a switch that is off has no second name that leaves it off
    off = [f"--{p.name.replace('_', '-')}"] if p.default is False else []
    asked = typer.Option(*off) if p.kind is Parameter.KEYWORD_ONLY else typer.Argument()
    info = copy(said[0]) if said else asked
    info.help = info.help or text
    default = None if p.default == () else p.default
    return Parameter(p.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _documented(text: str) -> tuple[str, dict[str, str]]:
    """A docstring's text before its sections, and what its section of parameters says of each of them."""
    text, *sections = re.split(r"\n\n(?=\w+\n-+\n)", text)
    entries = re.findall(r"^(\w+(?:, \w+)*)\n((?:    .+\n?)+)", sections[0] if sections else "", re.MULTILINE)
    return text, {name: " ".join(words.split()) for names, words in entries for name in names.split(", ")}
