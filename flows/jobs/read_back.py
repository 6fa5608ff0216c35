"""A run that stands: where the ledger vouches for its files and this program would write the same, it is read back.

Publishing is a function of the committed release, of card and recipe, of the looks at the data and of the program; all
of them are in the PUBLISH entry.  A replay therefore makes nothing again, and imports nothing that makes it; whoever
wants it made again asks for `ledger verify RUN`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.config.home import Home
from flows.config.recipe import Recipe
from pipeline.declaration.card import AnyCard
from pipeline.declaration.code import is_plugin, plugin_digest
from pipeline.environments.worlds import WORLD_FILE, arrays_file
from pipeline.ledger.account import card_hash
from pipeline.ledger.chain import Entry, canonical
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.publication import Publication, file_digests, maker, publications
from pipeline.privacy.release_file import sha256_file
from pipeline.transaction.transaction import Curated
from reports.facts.dataset import record_of
from reports.facts.report import Report, read_report


@dataclass(frozen=True)
class Published:
    """A run as it was published.

    Parameters
    ----------
    name, folder
        Of the run.
    report
        All that it says.
    """

    name: str
    folder: Path
    report: Report


def run_name(recipe: Recipe, curated: Curated) -> str:
    """Recipe name and a hash of release key and recipe: one release and one recipe make one folder.

    Parameters
    ----------
    recipe, curated
        What was asked, and the release; a folder without private noise says so in its name.
    """
    own = _own_code(recipe)
    digest = hashlib.sha256(canonical([curated.run_key, recipe.dump(), *own.values()]).encode()).hexdigest()[:10]
    return f"{recipe.recipe.name}-{digest}" + ("" if curated.release.noise == "os" else "-simulation-not-private")


def made_by(card: AnyCard, recipe: Recipe) -> dict[str, str]:
    """What makes a run: :func:`~pipeline.ledger.publication.maker`, and the code and files that are its own.

    Parameters
    ----------
    card, recipe
        What the dataset declares, and what is asked.
    """
    return {**maker(), **_own_code(recipe), **_beside(card, recipe)}


def _own_code(recipe: Recipe) -> dict[str, str]:
    """Another text of an agent of your own may make another policy of the same release."""
    agent = recipe.recipe.agent
    return {"agent": plugin_digest(agent)} if is_plugin(agent) else {}


def _beside(card: AnyCard, recipe: Recipe) -> dict[str, str]:
    """What a synthetic run tells beside its release: measured containment, how the log was made, its world's values."""
    if card.kind == "real":
        return {}
    files, told = [card.folder / "containment.csv", record_of(card)], list[str]()
    if (known := recipe.terms.known) is not None:
        world = known.world
        files += [card.folder / WORLD_FILE, arrays_file(world, card.folder)]
        told = [plugin_digest(world)] if is_plugin(world) else []
    told += [sha256_file(file) for file in files if file.is_file()]
    return {"beside": hashlib.sha256("".join(told).encode()).hexdigest()[:16]}


def looks_of(entries: Sequence[Entry], lineage: str) -> list[Entry]:
    """The INSPECT entries of a lineage, of which a certificate tells.

    Parameters
    ----------
    entries, lineage
        Of the ledger up to when the files are written, and the name of the dataset.
    """
    return [e for e in entries if e.kind == "INSPECT" and e.lineage == lineage]


def publication(
    card: AnyCard, recipe: Recipe, curated: Curated, snapshot: int | None, entries: Sequence[Entry], folder: Path
) -> Publication:
    """What a PUBLISH entry says of a run's folder as it is now.

    Parameters
    ----------
    card, recipe, curated, snapshot
        As for :func:`read_back`.
    entries
        Of the ledger, whose last one was seen.
    folder
        With all files of the run.
    """
    return {
        "run": run_name(recipe, curated),
        "run_key": curated.run_key,
        "commit": None if curated.commit is None else curated.commit.seq,
        "snapshot": snapshot,
        "seen": entries[-1].seq,
        "card_hash": card_hash(card),
        "seed": recipe.planner.seed,
        "made_by": made_by(card, recipe),
        "files": file_digests(folder),
    }


def read_back(
    card: AnyCard, recipe: Recipe, home: Home, snapshot: int | None, curated: Curated, ledger: Ledger
) -> Published | None:
    """The run as it stands; None where it has to be written: nothing would be the same, or a file was changed.

    Parameters
    ----------
    card, recipe
        What the dataset declares, and what is asked.
    home
        Where its folder would be.
    snapshot
        Of the release; None for a night of a counter.
    curated
        The committed release.
    ledger
        That of the card.
    """
    name, entries = run_name(recipe, curated), ledger.entries()
    there, folder = publications(entries, name), home.runs / name
    if not (curated.replayed and there and folder.is_dir()):
        return None
    told = there[-1].body
    now = publication(card, recipe, curated, snapshot, entries, folder)
    looked = any(e.seq > told["seen"] for e in looks_of(entries, card.name))
    if looked or any(told[key] != value for key, value in now.items() if key != "seen"):
        return None
    # remarks of a recipe are no part of what it asks, and are copied all the same
    if sha256_file(recipe.path) != told["files"]["recipe.toml"]:
        return None
    return Published(name, folder, read_report(folder))
