"""``reticent simulate --logs WORLD``: simulated logs of a known world."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.screen import Context, Json, show


def simulate(
    context: typer.Context,
    dataset: str,
    logs: Annotated[bool, typer.Option("--logs", help="Write the dataset's shipped log anew, byte for byte.")] = False,
    to: Annotated[Path | None, typer.Option(help="Folder to write to; default: the dataset's own.")] = None,
    as_json: Json = False,
) -> None:
    """Regenerate the simulated log of a synthetic dataset on the shelf (same seed, same bytes)."""
    from flows.shelf import find_card
    from pipeline.card import CardError, load_card
    from pipeline.simulate import regenerate

    if not logs:
        raise CardError("simulate: only `--logs` is there so far; online agents come with their issues")
    options: Context = context.obj
    card = load_card(find_card(dataset, options.shelf))
    files = regenerate(card, to or card.folder)
    result = {"dataset": card.name, "card": str(card.folder / "card.toml"), "files": [str(f) for f in files]}
    show(result, as_json, lambda: result["files"])
