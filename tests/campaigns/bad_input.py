"""Damaged logs into ``reticent ingest``.  ``python -P -m tests.campaigns.bad_input [COUNT]`` rewrites the results.

Each case is one good log, damaged in one way, ingested by the command line in a worker process.  It must end with 0, 2
or 3 within the time limit, in one line that quotes nobody's cell; and where something was published, every source row
is canonical or in the quarantine, and the transitions of every episode that the damage did not touch are all there.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from tests.campaigns.bad_files import apply, drawn
from tests.campaigns.bad_layouts import EVERY, PEOPLE, SECRET, Case, layouts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "lab" / "bad_input.md"
SECONDS = 60
# in these a broken-off episode does not say where its last step led
_UNTOLD = ("lerobot", "meds", "wide")


@dataclass(frozen=True)
class Outcome:
    """What became of a case: exit code (-1: hang, -2: the process died) and what was wrong with it."""

    case: Case
    code: int
    said: str
    violations: tuple[str, ...]


def judge(case: Case, folder: Path) -> Outcome:
    """Damage, ingest through the command line, look at the store."""
    touched = apply(case, folder)
    card = layouts()[case.layout].card
    (folder / "card.toml").write_text(toml(card), encoding="utf-8")
    code, out, err = command(["--home", str(folder / "home"), "ingest", str(folder / "card.toml"), "--json"])
    said = err.strip().splitlines()[-1] if err.strip() else ""
    found: list[str] = []
    if code not in (0, 2, 3):
        found.append(f"exit {code}")
    if "Traceback" in err or (code and (not said.startswith("reticent: ") or err.count("reticent: ") != 1)):
        found.append("not one clear line")
    if code and SECRET in said:
        found.append("quotes a cell")
    if code == 0:
        found += lost(case, folder, card["name"], json.loads(out), touched)
    return Outcome(case, code, said.replace(str(folder), "…"), tuple(found))


def command(words: list[str]) -> tuple[int, str, str]:
    """Exit code, output and messages of the command line."""
    from flows.cli import main

    out, err, before = StringIO(), StringIO(), sys.argv
    sys.argv = ["reticent", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def lost(case: Case, folder: Path, dataset: str, told: dict[str, Any], touched: frozenset[int]) -> list[str]:
    """Source rows that stand nowhere, and transitions of untouched episodes that are gone."""
    import polars as pl

    home = folder / "home" / "store" / dataset / f"snapshot-{told['snapshot']:04d}"
    rows = pl.concat([pl.read_parquet(p) for p in sorted(home.glob("part-*.parquet"))])
    filed = pl.concat(
        [pl.read_parquet(p, columns=["effect", "file", "line"]) for p in home.glob("quarantine-*.parquet")]
    )
    gone = filed.filter(pl.col("effect") != "coerce")
    manifest = json.loads((home / "manifest.json").read_text())
    wide = case.layout == "wide"
    if not wide and manifest["source_rows"] != len(rows) + len(gone):
        return [f"{manifest['source_rows']} rows read, {len(rows)} canonical, {len(gone)} filed"]
    if touched == EVERY or case.layout in ("minari-arrow", "obp"):
        return []
    here = Counter(
        tuple(e.sort("step").select("state", "action", "reward", "next_state").rows())
        for e in rows.partition_by("user_id", "episode_id")
    )
    return ["a good episode is lost"] if Counter(good(case.layout, touched)) - here else []


def good(layout: str, touched: frozenset[int]) -> list[tuple[Any, ...]]:
    """Transitions of the episodes that were not touched."""
    found: list[tuple[Any, ...]] = []
    for i, t in enumerate(PEOPLE):
        if i not in touched:
            after = [s - 1 for s in t.states[1:]]
            if layout in _UNTOLD and not t.terminated:
                after[-1] = 4
            if layout == "wide" and t.terminated:
                # one row an episode and no column that says how it ended
                after[-1] = 4 if t.steps == 4 else None  # type: ignore[call-overload]
            found.append(tuple(zip((s - 1 for s in t.states), t.actions, t.rewards, after, strict=False)))
    return found


def toml(values: dict[str, Any], head: str = "") -> str:
    """Plain values as TOML."""
    plain = {k: v for k, v in values.items() if not isinstance(v, dict) or head == "leaf"}
    text = "".join(f"{k} = {_value(v)}\n" for k, v in plain.items())
    for name, table in values.items():
        if isinstance(table, dict):
            inside = "".join(f"{json.dumps(k)} = {_value(v)}\n" for k, v in table.items())
            text += f"\n[{name}]\n{inside}"
    return text


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


def processor_seconds(pid: int) -> float:
    """What a process has worked so far."""
    told = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


class Worker:
    """A process that judges one case after another; replaced when it hangs or dies."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def judge(self, case: Case) -> Outcome:
        if self._process is None:
            command = [sys.executable, "-P", "-m", "tests.campaigns.bad_input", "--worker"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(case.told() + "\n")
        process.stdin.flush()
        begun, ready = processor_seconds(process.pid), list[Any]()
        # on a busy machine a minute of the clock is no minute of work
        while not ready and processor_seconds(process.pid) - begun < SECONDS:
            ready, _, _ = select.select([process.stdout], [], [], 5)
        answer = process.stdout.readline() if ready else ""
        if not answer:
            self.close()
            how = ("died", -2) if ready else ("hung", -1)
            return Outcome(case, how[1], "", (f"the process {how[0]}",))
        found = json.loads(answer)
        return Outcome(case, found["code"], found["said"], tuple(found["violations"]))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            # closes the pipes too
            with self._process:
                pass
        self._process = None


def work() -> None:
    """Judge the cases that come on the standard input."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "log").mkdir()
            outcome = judge(Case(**json.loads(line)), Path(folder) / "log")
        answers.write(json.dumps(asdict(outcome)) + "\n")
        answers.flush()


def campaign(count: int, start: int = 0) -> Iterator[Outcome]:
    """Judge ``count`` drawn cases."""
    worker = Worker()
    try:
        yield from map(worker.judge, drawn(count, start))
    finally:
        worker.close()


def page(outcomes: list[Outcome], command: str) -> str:
    """The results as ``docs/lab/bad_input.md`` has them."""

    def counted(key: Any) -> list[str]:
        lines = []
        for name in sorted({key(o) for o in outcomes}):
            mine = [o for o in outcomes if key(o) == name]
            codes = Counter(o.code for o in mine)
            bad = sum(bool(o.violations) for o in mine)
            lines.append(f"| {name} | {len(mine)} | {codes[0]} | {codes[2]} | {codes[3]} | {bad} |")
        return lines

    head = ["cases", "exit 0", "exit 2", "exit 3", "violations"]
    rule = "|---" * 6 + "|"
    worst = [f"- `{o.case.told()}`: {'; '.join(o.violations)}" for o in outcomes if o.violations]
    return "\n".join(
        [
            "# Damaged logs into `reticent ingest`",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}, `{command}`: {len(outcomes)} files, each a good log damaged in one way "
            "(tests/campaigns/bad_files.py; drawn by hypothesis from a fixed seed).",
            f"A violation: an exit other than 0, 2 and 3; more than {SECONDS} s of processor time; no clear line, or "
            "one that quotes a cell; a source row that is neither canonical nor filed; a transition of an episode that "
            "the damage did not touch and that was not published although the rest was.",
            "Exit 0: published, with what broke a rule in the quarantine. 2: nothing that the card names is there, or "
            "it is a link out of the folder. 3: the file is refused, with its name, place and what to do.",
            "",
            "| " + " | ".join(["layout", *head]) + " |", rule, *counted(lambda o: o.case.layout),
            f"| **all** | {len(outcomes)} | " + " | ".join(str(sum(o.code == c for o in outcomes)) for c in (0, 2, 3))
            + f" | {sum(bool(o.violations) for o in outcomes)} |",
            "",
            "| " + " | ".join(["damage", *head]) + " |", rule, *counted(lambda o: o.case.damage),
            *(["", "Violations:", *worst] if worst else []),
            "",
        ]
    )  # fmt: skip


def main() -> None:
    """Run the campaign and rewrite its page."""
    if "--worker" in sys.argv:
        work()
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1200
    outcomes: list[Outcome] = []
    for outcome in campaign(count):
        outcomes.append(outcome)
        if outcome.violations or "--all" in sys.argv:
            said = (outcome.case.told(), outcome.code, outcome.violations, outcome.said)
            print(*said, file=sys.stderr, flush=True)
    text = page(outcomes, f"python -P -m tests.campaigns.bad_input {count}")
    print(text)
    if "--dry" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
