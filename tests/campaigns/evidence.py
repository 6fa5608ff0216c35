"""Make the tables of ``docs/lab/evidence.toml`` anew, and compare what they say: ``make evidence BUDGET=2h``.

``python -P -m tests.campaigns.evidence [--budget 2h] [NAME..]``: the oldest table first, and none that would not end
within the budget; two at once, but for those that need the machine alone, which come last.  A table is made by its
commands, which rewrite its rows; then every number is held against the old one, and ``docs/lab/made.csv`` says when it
was made, how long that took, on how busy a machine, and which number moved beyond the table's tolerance.  A command
that fails leaves the old rows.  Whatever was stopped goes on where it was: a table that was made has its line, and long
campaigns keep their cases in ``build/``.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock

from tests.campaigns.rows import ROOT, STAMP, as_rows, draw_pages, markdown, place, put_in, read, rows_in, status, write

LAB = ROOT / "docs" / "lab"
FIELDS = ("table", "date", "seconds", "load", "outcome")
# load of two tables at once and little beside
_ALONE = 2.5
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
Rows = Sequence[dict[str, str]]


@dataclass(frozen=True)
class Table:
    """One table of evidence.

    ``learns``: what a user learns from it.
    ``page``: where it stands, as a link from ``docs/lab``.
    ``commands``: they make it; ``prints``: what each of them prints is one of its files.
    ``seconds``: of a processor, all commands together; where it is ``alone``, of the clock on two idle cores.
    ``seeds``: in words.
    ``rows``: files of its rows; none: one of its own name.
    ``keys``: columns that name a row; none: its place does.
    ``tolerance``, ``slack``: how far a number may move: by this share of the larger one, and by so much besides.
    ``free``: columns that may say anything: times of the clock, where noise is the operating system's.
    ``suite``: the default suite makes it anew.
    ``alone``: it measures a clock, or keeps both cores busy by itself.
    """

    name: str
    learns: str
    page: str
    commands: tuple[str, ...]
    seconds: int
    seeds: str
    rows: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tolerance: float = 0.0
    slack: float = 0.0
    free: tuple[str, ...] = ()
    prints: bool = False
    suite: bool = False
    alone: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        return self.rows or (self.name,)


def tables() -> dict[str, Table]:
    """The manifest."""
    told = tomllib.loads((LAB / "evidence.toml").read_text(encoding="utf-8"))["table"]
    listed = ({k: tuple(v) if isinstance(v, list) else v for k, v in row.items()} for row in told)
    return {row["name"]: Table(**row) for row in listed}


def made() -> dict[str, dict[str, str]]:
    """What ``made.csv`` says of each table."""
    return {row["table"]: row for row in rows_in(LAB / "made.csv")}


def moved(table: Table, old: Rows, new: Rows) -> list[str]:
    """Every cell in which a number moved beyond the tolerance, or a word changed."""
    known, found = dict(_keyed(table, old)), list[str]()
    for key, row in _keyed(table, new):
        before = known.pop(key, None)
        if before is None:
            found.append(f"{key}: a new row")
            continue
        for column, cell in row.items():
            if column not in (*table.free, *STAMP) and not _alike(table, before.get(column, ""), cell):
                found.append(f"{key}, {column}: {_change(before.get(column, 'nothing'), cell)}")
    return found + [f"{key}: gone" for key in known]


def _keyed(table: Table, rows: Rows) -> Iterable[tuple[str, dict[str, str]]]:
    for number, row in enumerate(rows, 1):
        keys = [row[k] for k in table.keys if k in row]
        yield ", ".join(keys) or f"row {number}", row


def _alike(table: Table, old: str, new: str) -> bool:
    """Whether the words are the same but for blanks, and each number is within the tolerance of the other."""
    before, after = ([float(x.replace(",", "")) for x in _NUMBER.findall(cell)] for cell in (old, new))
    words = [re.sub(r"[\s|-]+", " ", _NUMBER.sub("#", cell)) for cell in (old, new)]
    near = (
        abs(a - b) <= table.tolerance * max(abs(a), abs(b)) + table.slack for a, b in zip(before, after, strict=False)
    )
    return words[0] == words[1] and len(before) == len(after) and all(near)


def _change(old: str, new: str) -> str:
    """Both cells; of long ones the numbers that moved furthest, or how they begin."""
    if max(len(old), len(new)) < 40:
        return f"{old} → {new}"
    pairs = [*zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=False)]
    if _NUMBER.sub("#", old).split() != _NUMBER.sub("#", new).split() or not pairs:
        return f"{' '.join(old.split())[:30]} … → {' '.join(new.split())[:30]} …"
    size = [(float(x.replace(",", "")) for x in pair) for pair in pairs]
    furthest = max(zip((abs(a - b) / max(abs(a), abs(b), 1e-9) for a, b in size), pairs, strict=True))
    return " → ".join(furthest[1])


def make(table: Table) -> dict[str, str]:
    """Run a table's commands, compare its rows, and say what came of it; the old rows stay where a command fails."""
    old = {name: place(name).read_bytes() for name in table.files if place(name).is_file()}
    before = {name: read(name) for name in old}
    began, load = time.monotonic(), os.getloadavg()[0]
    outcome = _made(table)
    took, load = time.monotonic() - began, max(load, os.getloadavg()[0])
    if outcome:
        for name, text in old.items():
            place(name).write_bytes(text)
    else:
        found = [line for name in table.files for line in moved(table, before.get(name, ()), read(name))]
        outcome = f"{len(found)} moved; first: {found[0]}" if found and old else "as before" if old else "first time"
    today = datetime.now(UTC).date().isoformat()
    return dict(zip(FIELDS, (table.name, today, f"{took:.0f}", f"{load:.1f}", outcome), strict=True))


_ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}


def _made(table: Table) -> str:
    """Run the commands; what failed, else nothing."""
    env = os.environ | ({} if table.alone else _ONE_CORE)
    for number, words in enumerate(table.commands):
        command = [sys.executable, *shlex.split(words)[1:]]
        said = subprocess.run(command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, check=False)
        if said.returncode:
            return f"failed: `{words}` ended with {said.returncode}"
        if table.prints:
            write(table.files[number], as_rows(said.stdout))
    return ""


def due(found: dict[str, Table], lines: dict[str, dict[str, str]]) -> list[Table]:
    """Tables, the oldest first, and of one day the quickest."""
    return sorted(found.values(), key=lambda t: (lines[t.name]["date"] if t.name in lines else "", seconds(t, lines)))


def seconds(table: Table, lines: dict[str, dict[str, str]]) -> float:
    """How long a table took last time, where nobody else kept the machine busy; else what the manifest expects."""
    last = lines.get(table.name, {})
    return float(last["seconds"]) if last.get("seconds") and float(last["load"]) <= _ALONE else table.seconds


def campaign(asked: Sequence[str], budget: float, do: Callable[[Table], dict[str, str]] = make) -> int:
    """Make what is asked for (nothing: all) as long as the budget lasts; 1 where something failed or moved."""
    lines, found, end, writing = made(), tables(), time.monotonic() + budget, Lock()

    def one(table: Table) -> bool:
        if seconds(table, lines) > end - time.monotonic():
            print(f"{table.name}: not begun, {seconds(table, lines) / 60:.0f} minutes are not left", flush=True)
            return False
        line = do(table)
        with writing:
            print(f"{table.name}: {line['outcome']} ({line['seconds']} s)", flush=True)
            lines[table.name] = line
            put_in(LAB / "made.csv", FIELDS, (lines[name] for name in found if name in lines))
        return line["outcome"] not in ("as before", "first time")

    asked_for = due({n: t for n, t in found.items() if not asked or n in asked}, lines)
    with ThreadPoolExecutor(2) as two:
        bad = [*two.map(one, (t for t in asked_for if not t.alone))]
    bad += [one(t) for t in asked_for if t.alone]
    draw_pages()
    return int(any(bad))


def index(_name: str) -> str:
    """One screen: what was measured, when, how, and what came of it."""
    lines, found = made(), list[Sequence[str]]()
    for t in tables().values():
        line = lines.get(t.name, {})
        took = f"{float(line['seconds']) / 60:.1f}, load {line['load']}" if line.get("seconds") else "–"
        outcome = "its rows name the code of today" if took == "–" and _of_today(t) else line.get("outcome", "")
        found.append([f"[{t.name}]({t.page})", t.learns, line.get("date", "never"), took, outcome])
    return markdown(["table", "what it shows", "made", "minutes", "outcome"], found)


def _of_today(table: Table) -> bool:
    """Whether the table switches a status, and each of its rows that names code names that of today."""
    from pipeline.evaluation.coverage import code_of

    named = {
        (row["code"], code_of(of))
        for name in table.files
        if (of := status().get(name, (None, None))[1])
        for row in read(name)
    }
    return bool(named) and all(code == today for code, today in named)


def how(name: str) -> str:
    t, line = tables()[name], made().get(name, {})
    commands = "; ".join(f"`{words}`" for words in t.commands)
    return f"{t.learns[0].upper()}{t.learns[1:]}. {commands}; seeds: {t.seeds}; {line.get('date', 'never made')}."


def budget_of(text: str) -> float:
    """Seconds of ``90m`` or ``2h``."""
    return float(text[:-1]) * {"m": 60, "h": 3600}[text[-1]]


if __name__ == "__main__":
    ask = argparse.ArgumentParser(prog="tests.campaigns.evidence")
    ask.add_argument("--budget", type=budget_of, default="3h")
    ask.add_argument("names", nargs="*", choices=[[], *tables()])
    given = ask.parse_args()
    sys.exit(campaign(given.names, given.budget))
