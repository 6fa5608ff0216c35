"""The command line: ``reticent [--home DIR] VERB …``.  Heavy imports wait until a verb runs."""

import gc
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flows import verbs
from flows.api import Store
from flows.terminal.screen import fail

# of every verb, before it or behind it; whether a value follows
_EVERYWHERE = {"--home": True, "--shelf": True, "--memory": True, "--dask": True, "--debug": False}
# verb and option, or verb and verb below it, of earlier versions, and what to do instead
_GONE = {
    "register --disjoint-from": "separate people, separate ledgers: name one of their own in the card, [budget] ledger",
    "simulate --values": "`simulate WORLD --logs` says a world's exact values, and docs/research.md those of all",
    "store export": "raw rows leave the store no more; the card names the files that they came from",
}


class _Anywhere(TyperGroup):
    """Takes the options of every verb wherever they stand, and says what to do instead of those that are gone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put them first, where click looks for them."""
        first, rest, words = list[str](), list[str](), iter(args)
        for word in words:
            if word == "--":
                rest += [word, *words]
            elif word.partition("=")[0] in _EVERYWHERE:
                first.append(word)
                if _EVERYWHERE.get(word):
                    first += [value] if (value := next(words, None)) is not None else []
            else:
                rest.append(word)
        behind = [word.partition("=")[0] for i, word in enumerate(rest) if i == 1 or word.startswith("--")]
        if gone := next((pair for pair in _GONE if pair in {f"{rest[0]} {word}" for word in behind}), None):
            from pipeline.declaration.toml import CardError

            raise CardError(f"{gone}: is no more; {_GONE[gone]}")
        return super().parse_args(ctx, first + rest)


app = typer.Typer(
    name="reticent",
    cls=_Anywhere,
    help="Learn decision policies from logged trajectories under differential privacy, and say what they give away.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.registered_commands += verbs.top.registered_commands
groups = {"datasets": verbs.catalog, "policy": verbs.policy, "ledger": verbs.ledger, "store": verbs.store}
for name, group in groups.items():
    app.add_typer(group, name=name)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print("reticent", version("reticent"))
        raise typer.Exit()


@app.callback()
def _options(
    home: Annotated[Path | None, typer.Option(help="Store and runs; default $RETICENT_HOME, else ./.reticent.")] = None,
    shelf: Annotated[
        Path | None, typer.Option(help="Folder of datasets; default $RETICENT_SHELF, else ./datasets.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Most that ingest may take, e.g. 2GiB; default $RETICENT_MEMORY, else 2GiB.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(help="Dask scheduler whose workers sum the rows; default $RETICENT_DASK, else none.")
    ] = None,
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    verbs.CHOSEN.set(lambda: Store(home, shelf=shelf, memory=memory, dask=dask))


def main() -> None:
    """Run a verb; every error is one line and an exit code of design §5.1."""
    # set before anything imports Prefect: its state stays in our home, its server sends no statistics
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    # what imports make stays: looking for garbage among it took a tenth of a second of every verb
    gc.set_threshold(100_000)
    try:
        app()
    except Exception as e:
        if "--debug" in sys.argv:
            raise
        sys.exit(fail(e, as_json="--json" in sys.argv))


if __name__ == "__main__":
    main()
