"""Edit every field and every file of a run, one at a time: is each edit caught?

Four runs are edited: of counts, of a linear planner, of
a plant's controller and of a night.  Each edit is made by two hands:

* *outside*: whoever can write the folder; hashes that stand beside are updated where the folder has them.  The ledger's
  PUBLISH entry is as it was.
* *inside*: whoever holds the ledger and the operator's key as well, and has it vouch for the edited files.  Only making
  the files again can tell.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from flows.config.home import Home
from flows.jobs import made_again, publish
from flows.jobs.intake import ingest_job
from flows.jobs.proof import verify_run_job
from pipeline.declaration.card import AnyCard, load_any_card
from pipeline.ledger import ledger as book
from pipeline.ledger.chain import Entry, canonical, entry_hash, unsigned_hash
from pipeline.ledger.ledger import open_ledger
from pipeline.ledger.publication import file_digests, operator_key
from pipeline.privacy.release_file import file_of, sha256_file
from tests.flows.shop import RECIPE
from tests.jobs import run_job
from tests.learners.linear_shop import lay_out_linear
from tests.learners.lq_shop import lay_out_plant

FIRST = date(2026, 1, 1)
_INPUTS = ("release.parquet", "release.json", "recipe.toml")
Edit = Callable[[Path], None]


@dataclass(frozen=True)
class Run:
    """A published run, and what its verifier holds."""

    name: str
    folder: Path
    card: AnyCard
    entries: list[Entry]
    store: Path


def publish_runs(root: Path) -> Iterator[Run]:
    """One run of each kind."""
    home = Home(root / "home")
    shop, plant = lay_out_linear(root / "shop"), lay_out_plant(root / "plant")
    nightly = f"[privacy]\nrho = 1.0\n[nightly]\nnights = 8\nfirst = {FIRST}\n"
    (shop / "night.toml").write_text(RECIPE.format(name="night", agent="dp-apvi", privacy=nightly))
    (shop / "tabular.toml").write_text(RECIPE.format(name="tabular", agent="dp-apvi", privacy="[privacy]\nrho = 1.0"))
    with mock.patch.object(book, "now", lambda: datetime(2026, 1, 2, 3, tzinfo=UTC)):
        for folder in (shop, plant):
            ingest_job(str(folder), home)
        made = {
            "tabular": (shop, "tabular"),
            "linear": (shop, "linear"),
            "lq": (plant, "private"),
            "nightly": (shop, "night"),
        }
        folders = {name: Path(run_job(str(f / f"{r}.toml"), home)["folder"]) for name, (f, r) in made.items()}
    entries = open_ledger(home.root / "ledger.db", create=False).entries()
    for name, (folder, _) in made.items():
        yield Run(name, folders[name], load_any_card(folder / "card.toml"), entries, home.store)


def edits(folder: Path) -> Iterator[tuple[str, Edit]]:
    """Every edit of every file, by name: of its bytes, of JSON by value, of tables by cell, of recipes by line."""
    for path in sorted(folder.iterdir()):
        name, size = path.name, path.stat().st_size
        yield f"{name}: removed", partial(_on, name, lambda p: p.unlink())
        yield f"{name}: emptied", partial(_on, name, lambda p: p.write_bytes(b""))
        yield f"{name}: cut", partial(_on, name, lambda p: p.write_bytes(p.read_bytes()[:-1]))
        yield f"{name}: a byte more", partial(_on, name, lambda p: p.write_bytes(p.read_bytes() + b"\n"))
        for at in sorted({0, size // 4, size // 2, 3 * size // 4, size - 1}):
            yield f"{name}: bit at {at}", partial(_on, name, partial(_flip, at))
        if path.suffix == ".json":
            told = json.loads(path.read_text(encoding="utf-8"))
            for where, change in _values(told, ()):
                path_of = "/".join(map(str, where))
                yield f"{name}: {change} at /{path_of}", partial(_on, name, partial(_set, where, change))
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            for column in table.column_names:
                for row in range(table.num_rows):
                    if table[column][row].is_valid:
                        yield f"{name}: {column} of row {row}", partial(_on, name, partial(_cell, column, row))
        if path.suffix == ".toml":
            for i, line in enumerate(path.read_text().splitlines()):
                if line.strip():
                    yield f"{name}: line {i} out: {line}", partial(_on, name, partial(_line, i, None))
                if "=" in line:
                    yield f"{name}: line {i} other: {line}", partial(_on, name, partial(_line, i, _other(line)))
    yield "another file beside", partial(_on, "notes.txt", _write)
    yield "another folder beside", partial(_on, "more/notes.txt", _write)
    yield "a file that became a link", _as_link


def _on(name: str, change: Edit, folder: Path) -> None:
    change(folder / name)


def _write(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("trust us")


def _flip(at: int, path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def _as_link(folder: Path) -> None:
    page = folder / "report.html"
    page.rename(folder.parent / "elsewhere.html")
    page.symlink_to(folder.parent / "elsewhere.html")


def _values(told: Any, at: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Places of a JSON value, each with what is done there."""
    if isinstance(told, dict):
        yield at, "a key more"
        for key, value in told.items():
            yield (*at, key), "key gone"
            yield from _values(value, (*at, key))
    elif isinstance(told, list):
        yield at, "an item more"
        for i, value in enumerate(told):
            yield (*at, i), "item gone"
            yield from _values(value, (*at, i))
    else:
        yield at, "another value"
        yield at, "null" if told is not None else "a value"


def _set(where: tuple[str | int, ...], change: str, path: Path) -> None:
    told = json.loads(path.read_text(encoding="utf-8"))
    holder, last = told, where[-1] if where else None
    for key in where[:-1]:
        holder = holder[key]
    value = holder[last] if where else told
    if change in ("key gone", "item gone"):
        del holder[last]
    elif change == "a key more":
        value["more"] = 0
    elif change == "an item more":
        value.append(value[-1] if value else "more")
    else:
        holder[last] = {"null": None, "a value": 1}.get(change, _another(value))
    path.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2 if value else 1.0
    return f"{value}x"


def _cell(column: str, row: int, path: Path) -> None:
    table = pq.read_table(path)
    values = table[column].to_pylist()
    values[row] = _another(values[row])
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, column, pa.array(values, table.schema.field(column).type)), path)


def _line(at: int, text: str | None, path: Path) -> None:
    lines = path.read_text().splitlines()
    lines[at : at + 1] = [] if text is None else [text]
    path.write_text("\n".join(lines) + "\n")


def _other(line: str) -> str:
    key, value = (part.strip() for part in line.split("=", 1))
    return f"{key} = {value[:-1]}x{value[-1]}" if value.endswith('"') else f"{key} = {value}1"


def hashes_beside(folder: Path) -> None:
    """Write the digests of the files as they are now into certificate and report, as a careful forger would."""
    try:
        file = folder / "certificate.json"
        proof = json.loads(file.read_text(encoding="utf-8"))
        old = dict(proof["sha256"])
        proof["sha256"] = {kind: sha256_file(folder / file_of(kind)) for kind in old}
        if proof["sha256"] == old:
            return
        file.write_text(json.dumps(proof, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        page = folder / "report.json"
        text = page.read_text(encoding="utf-8")
        for kind, digest in old.items():
            text = text.replace(digest, proof["sha256"][kind])
        page.write_text(text, encoding="utf-8")
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return


def vouched_again(run: Run, folder: Path) -> list[Entry]:
    """The ledger of an operator who vouches for the edited files: the same chain up to there, signed anew."""
    at = next(i for i, e in enumerate(run.entries) if e.kind == "PUBLISH" and e.body["run"] == run.folder.name)
    e, key = run.entries[at], operator_key(run.store)
    body = json.loads(canonical({**e.body, "files": file_digests(folder)}))
    forged = replace(e, body=body)
    body["signature"] = key.sign_entry(unsigned_hash(forged))
    forged = replace(forged, hash=entry_hash(e.seq, e.lineage, e.kind, e.at, body, e.previous))
    return [*run.entries[:at], forged]


def judge(run: Run, edit: Edit, place: Path) -> tuple[str, str]:
    """How an edit is caught by an outsider's and by an insider's verifier: the first wrong check; ``-``: not at all."""
    found = list[str]()
    for entries in (lambda _: run.entries, partial(vouched_again, run)):
        folder = place / "run"
        shutil.copytree(run.folder, folder)
        edit(folder)
        hashes_beside(folder)
        if file_digests(folder) == file_digests(run.folder):
            # the edit was of a hash, which was put right again
            edit(folder)
        try:
            proof = verify_run_job(folder, partial(entries, folder), run.card)
            wrong = next((c for c in proof.checks if c.ok is False), None)
            found.append("-" if wrong is None else wrong.what)
        except Exception as e:  # a folder that is refused is caught, whatever the words
            found.append(f"refused: {type(e).__name__}")
        for path in place.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return found[0], found[1]


def remembered(compose: Callable[..., None], runs: list[Run]) -> Callable[..., None]:
    """Files are made again once for the same release, recipe and card: most edits are of what is made.

    Of another release or recipe than the run's the pages are left out, which take longest: fewer checks, never more.
    """
    honest = {tuple(sha256_file(run.folder / n) for n in _INPUTS) for run in runs}
    made: dict[str, dict[str, bytes] | Exception] = {}

    def composed(*given: Any) -> None:
        folder, place = given[0], given[-1]
        held = next(x for x in given if isinstance(x, made_again.Vouched))
        inputs = tuple(sha256_file(folder / n) for n in _INPUTS)
        whole = inputs in honest
        key = canonical([*inputs, held.said.get("seen"), held.commit.seq if held.commit is not None else None])
        if key not in made:
            try:
                with nullcontext() if whole else mock.patch.object(publish, "drawn_pages", lambda *_: ("", "")):
                    compose(*given)
                for page in () if whole else publish.PAGES:
                    (place / page).unlink()
                made[key] = {p.name: p.read_bytes() for p in place.iterdir()}
            except Exception as e:
                made[key] = e
        found = made[key]
        if isinstance(found, Exception):
            raise found
        for name, content in found.items():
            (place / name).write_bytes(content)

    return composed


def campaign(runs: list[Run], take: Callable[[int], bool]) -> list[dict[str, str]]:
    """Judge the edits that ``take`` picks by number; a row each."""
    rows = list[dict[str, str]]()
    with (
        tempfile.TemporaryDirectory(prefix="reticent-mutations-") as place,
        mock.patch.object(made_again, "_compose", remembered(made_again._compose, runs)),
    ):
        for run in runs:
            for i, (name, edit) in enumerate(edits(run.folder)):
                if take(i):
                    outside, inside = judge(run, edit, Path(place))
                    rows.append({"run": run.name, "edit": name, "outside": outside, "inside": inside})
            print(f"{run.name}: {sum(r['run'] == run.name for r in rows)} edits", file=sys.stderr, flush=True)
    return rows
