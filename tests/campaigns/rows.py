"""Figures that expire: what a campaign measured is committed with what made it, and pages are generated from that.

``results/NAME.csv`` has a row a measurement; its last columns are the command, its seeds, the date, the hash of
``constraints.txt`` and the hash of the code that the number depends on: the command's own module, what that imports
from this project, and what ``depends.toml`` adds (neither prose nor this book of rows changes it); of some tables, the
files that a row names.  A page has
``<!-- figure: NAME -->`` and ``<!-- end -->``; ``make figures`` writes what stands between.  ``<!-- figure: NAME
module:function -->`` has a function of the rows write it.  Rows whose code has changed are out of date: the page says
so, and nothing else may rest on them.

``python -P -m tests.campaigns.rows NAME MODULE [ARGUMENT..]`` runs a module and keeps what it prints as a table.
"""

from __future__ import annotations

import csv
import hashlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pathlib import Path

from pipeline.declaration.code import imported_by, syntax_digest

Row = Mapping[str, object]
ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results")
STAMP = ("command", "seeds", "date", "lock", "code")
OURS = ("pipeline", "flows", "reports", "tests")
_BOOKS = {"tests.campaigns.rows", "tests.campaigns.resumed"}
# one column of this name is text as a program printed it
PRINTED = "printed"
_BLOCK = re.compile(r"(?m)^<!-- figure: (\S+)(?: (\S+))? -->\n(.*?)^<!-- end -->$", re.DOTALL)


@cache
def places() -> dict[str, Path]:
    """Every committed table by its name; those that a run reads lie beside what they are of."""
    told = _depends()["elsewhere"]
    return {p.stem: p for p in sorted(RESULTS.glob("*.csv"))} | {name: ROOT / at for name, at in told.items()}


@cache
def _depends() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("depends.toml").read_text(encoding="utf-8"))


def place(name: str) -> Path:
    """Where the table of this name is, or will be."""
    return places().get(name, RESULTS / f"{name}.csv")


def read(name: str) -> list[dict[str, str]]:
    """All rows of a table, as text."""
    with place(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(name: str, rows: Sequence[Row], seeds: str, keys: Sequence[str] = (), of: str = "") -> None:
    """Stamp rows and keep them in place of those that agree with one of them in ``keys`` (no keys: of all).

    Parameters
    ----------
    name
        Of the table.
    rows
        All with the same columns; numbers as they shall be shown.
    seeds
        What was drawn from which seed, in words: ``0 .. 19``, ``the operating system's``.
    keys
        Columns that say what was measured.
    of
        The command that measured; empty: this process.
    """
    stamp = {"command": of or command(), "seeds": seeds, "date": datetime.now(UTC).date().isoformat(), "lock": lock()}
    fresh = [{**row, **stamp, "code": code_of(name, stamp["command"], named=named_in(name, row))} for row in rows]
    new = {tuple(str(row[k]) for k in keys) for row in fresh}
    old = read(name) if keys and place(name).is_file() else []
    store(name, [*(r for r in old if tuple(r[k] for k in keys) not in new), *fresh])


def printed_by(of: str) -> list[dict[str, str]]:
    """The rows of the table of Markdown that a command prints; of anything else each line."""
    words = shlex.split(of)
    told = subprocess.run([sys.executable, *words[1:]], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    lines = told.splitlines()
    if not told.startswith("|"):
        return [{PRINTED: line} for line in lines]
    # a column without a name has one of a blank, as the file of rows has no other
    head, _, *cells = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    return [dict(zip([name or " " for name in head], row, strict=True)) for row in cells]


def store(name: str, rows: Sequence[Row]) -> None:
    """Write a table of stamped rows."""
    with place(name).open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def command() -> str:
    """What was typed to start this process."""
    spec = sys.modules["__main__"].__spec__
    return shlex.join(["python", "-P", *(["-m", spec.name] if spec else sys.argv[:1]), *sys.argv[1:]])


@cache
def lock(root: Path = ROOT) -> str:
    """Which versions of the libraries: the hash of the lock file."""
    return hashlib.sha256((root / "constraints.txt").read_bytes()).hexdigest()[:16]


@cache
def code_of(name: str, of: str, root: Path = ROOT, named: tuple[str, ...] = ()) -> str:
    """Hash of the code on which rows of a table depend that this command made.

    Parameters
    ----------
    name
        Of the table.
    of
        The command.
    root
        A checkout.
    named
        Modules that a row names: that row depends on them, and on what the tests among them import.
    """
    if (measured_by := _depends()["measured"].get(name)) is not None:
        module, _, names = measured_by.partition(":")
        return syntax_digest(getattr(import_module(module), names), root)[:16]
    module = re.search(r"-m (tests\.\S+)", of)
    # a row that names its files is none of another file's, the book-keeping of its campaign included
    modules = imported_by(module[1], OURS, root) - _BOOKS if module and not named else set[str]()
    # what a verb of the program printed depends on all of it, unless depends.toml says on what
    modules |= listed(name, root, "" if module else "pipeline")
    for file in named:
        modules |= imported_by(file, OURS, root) if file.startswith("tests.") else {file}
    return syntax_digest(modules, root)[:16]


def listed(name: str, root: Path = ROOT, unlisted: str = "") -> set[str]:
    """Modules that ``depends.toml`` lists for a table; where it has none, those of the room that is given."""
    rooms, groups, modules = _depends()["rooms"].get(name, unlisted).split(), _depends()["groups"], set[str]()
    for room in [word for told in rooms for word in groups.get(told, told).split()]:
        folder = root.joinpath(*room.split("."))
        found = {".".join(p.relative_to(root).with_suffix("").parts) for p in folder.rglob("*.py")}
        modules |= found or {room}
    return modules


def named_in(name: str, row: Row) -> tuple[str, ...]:
    """Modules of the files that a row names, of a table whose rows have code of their own: paths, or ids of tests."""
    words = (w for column in _depends()["named"].get(name, "").split() for w in str(row[column]).split())
    return tuple(sorted({w.partition("::")[0].removesuffix(".py").replace("/", ".") for w in words}))


def out_of_date(name: str, row: Mapping[str, str]) -> bool:
    """Whether the code that a number depends on is not what measured it."""
    return row["code"] != code_of(name, row["command"], named=named_in(name, row))


def state(name: str) -> str:
    """What made a table, and how much of it still holds."""
    rows, own = read(name), name in _depends()["named"]
    made = list(dict.fromkeys((r["command"], r["seeds"], r["date"], r["lock"], "" if own else r["code"]) for r in rows))
    told = [
        f"`{c}`, seeds {s or 'not kept'}, {day}, lock {at[:8] or 'not kept'}, "
        f"code {of[:8] or ('of each row' if own else 'not kept')}"
        for c, s, day, at, of in made[:4]
    ]
    told += [f"{len(made) - 4} more commands in the file"] if len(made) > 4 else []
    stale = sum(out_of_date(name, r) for r in rows)
    if stale:
        few = "" if stale == len(rows) else f"{stale} of {len(rows)} rows "
        told.append(f"**{few}out of date: the code has changed since**")
    return f"*{'; '.join(told)}. Rows: `{place(name).relative_to(ROOT)}`.*"


def plain(name: str) -> str:
    """All rows as a table of Markdown, or as they were printed; a row that is out of date says so beside others."""
    rows = read(name)
    columns = [c for c in rows[0] if c not in STAMP]
    if columns == [PRINTED]:
        return "\n".join(["```", *(r[PRINTED] for r in rows), "```"])
    stale = [out_of_date(name, r) for r in rows]
    lines = [columns, ["---"] * len(columns), *([r[c] for c in columns] for r in rows)]
    if any(stale) and not all(stale):
        lines = [
            [*cells, mark] for cells, mark in zip(lines, ["", "---", *("out of date" * s for s in stale)], strict=True)
        ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def drawn(page: str) -> str:
    """The text of a page with all its figures made anew from the rows."""
    return _BLOCK.sub(_figure, page)


def _figure(block: re.Match[str]) -> str:
    name, by = block[1], block[2]
    show: Callable[[str], str] = plain
    if by:
        module, _, function = by.partition(":")
        show = getattr(import_module(module), function)
    head = block[0].partition("\n")[0]
    return f"{head}\n{show(name).rstrip()}\n\n{state(name)}\n<!-- end -->"


def pages() -> list[Path]:
    """Every page that may hold figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    """Write all pages anew, after keeping what a module prints where one is named."""
    if sys.argv[1:]:
        name, *words = sys.argv[1:]
        of = shlex.join(["python", "-P", "-m", *words])
        write(name, printed_by(of), "as the text says", of=of)
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (fresh := drawn(text)) != text:
            page.write_text(fresh, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
