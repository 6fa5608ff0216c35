"""The rows that campaigns measure, and the pages that print them.

``results/NAME.csv`` has a row a measurement.  A page has ``<!-- figure: NAME -->`` and ``<!-- end -->``; ``make
figures`` writes what stands between, with a function of the rows where one is named: ``<!-- figure: NAME
module:function -->``.  When and how a table was made stands once, in ``docs/lab/made.csv`` (:mod:`~.evidence`).

Rows that switch a status are read by the product, lie beside it, and name the code that they measured: they count for
no other.
"""

import csv
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pathlib import Path

Row = Mapping[str, object]
ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results")
# of rows that switch a status; the others have none
STAMP = ("command", "seeds", "date", "code")
# one column of this name is text as a program printed it
PRINTED = "printed"
_BLOCK = re.compile(r"(?m)^<!-- figure: (\S+)(?: (\S+))? -->\n(.*?)^<!-- end -->$", re.DOTALL)


@cache
def status() -> dict[str, tuple[Path, str | None]]:
    """Tables of the product: where they are, and whose coverage they are."""
    # not where this is imported: whoever tries mutants must not have loaded what they edit
    from pipeline.evaluation.coverage import MEASURED

    return {path.stem: (path, estimator) for estimator, (path, _) in MEASURED.items()} | {
        "containment_riverswim": (ROOT / "datasets/riverswim/containment.csv", None),
        "containment_icu_sepsis": (ROOT / "datasets/icu_sepsis_uniform/containment.csv", None),
    }


def place(name: str) -> Path:
    """Where the table of this name is, or will be."""
    of_status = name.startswith(("coverage_", "containment_"))
    return status()[name][0] if of_status else RESULTS / f"{name}.csv"


def read(name: str) -> list[dict[str, str]]:
    """All rows of a table, as text."""
    return rows_in(place(name))


def rows_in(path: Path) -> list[dict[str, str]]:
    """All rows of a file, as text; of one that is not there none."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def put_in(path: Path, fields: Sequence[str], rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, fields, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def write(name: str, rows: Sequence[Row], seeds: str = "", keys: Sequence[str] = ()) -> None:
    """Keep rows in place of those that agree with one of them in ``keys`` (no keys: of all).

    ``seeds``: of rows that switch a status, what was drawn from which seed, in words.
    """
    stamp: dict[str, str] = {}
    if place(name).parent != RESULTS:
        from pipeline.evaluation.coverage import code_of

        stamp = {"command": command(), "seeds": seeds, "date": datetime.now(UTC).date().isoformat()}
        stamp |= {"code": code_of(of)} if (of := status()[name][1]) else {}
    fresh = [{**row, **stamp} for row in rows]
    new = {tuple(str(row[k]) for k in keys) for row in fresh}
    old = read(name) if keys else []
    kept = [*(r for r in old if tuple(r[k] for k in keys) not in new), *fresh]
    put_in(place(name), [*kept[0]], kept)


def as_rows(text: str) -> list[dict[str, str]]:
    """The rows of a table of Markdown that a command printed; of anything else each line."""
    lines = text.splitlines()
    if not text.startswith("|"):
        return [{PRINTED: line} for line in lines]
    # a column without a name has one of a blank, as the file of rows has no other
    head, _, *cells = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    return [dict(zip([name or " " for name in head], row, strict=True)) for row in cells]


def command() -> str:
    """What was typed to start this process."""
    spec = sys.modules["__main__"].__spec__
    return shlex.join(["python", "-P", *(["-m", spec.name] if spec else sys.argv[:1]), *sys.argv[1:]])


def plain(name: str) -> str:
    """All rows as a table of Markdown, or as they were printed."""
    rows = read(name)
    columns = [c for c in rows[0] if c not in STAMP]
    if columns == [PRINTED]:
        return "\n".join(["```", *(r[PRINTED] for r in rows), "```"])
    return markdown(columns, ([r[c] for c in columns] for r in rows))


def markdown(head: Sequence[str], lines: Iterable[Iterable[object]] = ()) -> str:
    return "\n".join(markdown_row(row) for row in (head, ["---"] * len(head), *lines))


def markdown_row(cells: Iterable[object]) -> str:
    """One row of such a table, for a command that prints each as it is measured."""
    return f"| {' | '.join(map(str, cells))} |"


def drawn(page: str) -> str:
    """The text of a page with all its figures made anew from the rows."""
    return _BLOCK.sub(_figure, page)


def _figure(block: re.Match[str]) -> str:
    name, by = block[1], block[2]
    show: Callable[[str], str] = plain
    if by:
        module, _, function = by.partition(":")
        show = getattr(import_module(module), function)
    return f"{block[0].partition(chr(10))[0]}\n{show(name).rstrip()}\n<!-- end -->"


def pages() -> list[Path]:
    """Every page that may hold figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def draw_pages() -> None:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (fresh := drawn(text)) != text:
            page.write_text(fresh, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    draw_pages()
