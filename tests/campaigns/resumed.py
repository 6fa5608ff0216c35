"""A long campaign goes on where it was stopped, as long as the program and the tests are what they were."""

import csv
import hashlib
import json
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.rows import ROOT, Row, write

OURS = ("pipeline", "flows", "reports", "tests")

# what one try of a campaign came to
Case = dict[str, str | int]


def resumed(name: str, keys: Sequence[str], do: Callable[[str], Case]) -> list[Case]:
    """A case for each key, in order; those that were measured before are read back.

    ``name``: of the campaign.
    ``keys``: what is to be measured; all different.
    ``do``: measures one.
    """
    # read, not imported: whoever tries mutants must not have loaded what they edit
    code = hashlib.sha256()
    for file in sorted(file for room in OURS for file in (ROOT / room).rglob("*.py")):
        code.update(file.read_bytes())
    kept = ROOT / "build" / f"{name}-{code.hexdigest()[:16]}.jsonl"
    kept.parent.mkdir(exist_ok=True)
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    done: dict[str, Case] = {row["key"]: row["told"] for row in map(json.loads, lines)}
    with kept.open("a", encoding="utf-8") as file:
        for i, key in enumerate(keys):
            if key not in done:
                done[key] = do(key)
                file.write(json.dumps({"key": key, "told": done[key]}) + "\n")
                file.flush()
            if i % 100 == 99:
                print(f"{name}: {i + 1} of {len(keys)}", file=sys.stderr, flush=True)
    return [done[key] for key in keys]


def tally(cases: Iterable[Case], *by: str) -> list[Case]:
    """Cases that agree in ``by`` as one row: numbers are added up, of other words the first stand."""
    found = dict[tuple[str | int, ...], Case]()
    for case in cases:
        row = found.setdefault(tuple(case[k] for k in by), {k: case[k] for k in by})
        for k, more in case.items():
            if k not in by:
                here = row.get(k, "")
                row[k] = here + more if isinstance(here, int) and isinstance(more, int) else here or more
    return list(found.values())


@contextmanager
def adding(path: Path, fields: Sequence[str]) -> Generator[Callable[[Row], None]]:
    """What adds a row to a file that keeps those of a campaign that was stopped."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, fields, lineterminator="\n")
        if not file.tell():
            out.writeheader()

        def add(row: Row) -> None:
            out.writerow(row)
            file.flush()

        yield add


def sampled(campaign: Callable[[int | None], tuple[str, list[Case]]]) -> int:
    """Run a campaign, or with ``--sample N`` so much of it; print its rows, and keep those of the whole.

    ``campaign``: given N, or None; answers with the name of its table, and rows.
    Returns 1 where a promise was broken.
    """
    sample = int(sys.argv[2]) if sys.argv[1:2] == ["--sample"] else None
    name, rows = campaign(sample)
    if sample is None:
        write(name, rows)
    print(json.dumps(rows, indent=1))
    return int(any(row["violations"] for row in rows))
