"""How a simulated log was made: a record beside it, and whether a snapshot holds that very log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from pipeline.declaration.card import AnyCard
from pipeline.files import json_text
from pipeline.logs.sources import digest
from pipeline.logs.store import Snapshot
from pipeline.logs.work import source_digest_of
from reports.facts.dataset import RECORD, Made, record_of


def write_record(folder: Path, world: str, behaviour: str, seed: int, episodes: int, files: Sequence[Path]) -> None:
    """Note how a log was made.

    Parameters
    ----------
    folder
        Of the log.
    world, behaviour, seed, episodes
        World and policy that made it, seed of the draws, and how many there are.
    files
        The log, in the order in which an ingest reads it.
    """
    made = Made(world=world, behaviour=behaviour, seed=seed, episodes=episodes, sha256=digest(files))
    (folder / RECORD).write_text(json_text(made.model_dump()), encoding="utf-8")


def made_of(card: AnyCard, snapshot: Snapshot | None) -> Made | None:
    """The record of the log that a snapshot was read from; None for any other log under the same card.

    Parameters
    ----------
    card
        Of the snapshot.
    snapshot
        None: of several, or none at all.
    """
    file = record_of(card)
    if card.kind == "real" or snapshot is None or not file.is_file():
        return None
    try:
        made = Made.model_validate_json(file.read_bytes())
    except ValidationError:
        return None
    return made if snapshot.source_digest == source_digest_of(made.sha256, card) else None
