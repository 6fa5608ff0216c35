"""Damaged logs into ``reticent ingest``.  ``python -P -m tests.campaigns.bad_input [COUNT]`` rewrites its rows.

Each case is one good log, damaged in one way, ingested by the command line in a worker process.  It must end with 0, 2
or 3 within the time limit, in one line that quotes nobody's cell; and where something was published, every source row
is canonical or in the quarantine, and the transitions of every episode that the damage did not touch are all there.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tests.campaigns.damages import DAMAGES, EVERY, PEOPLE, SECRET, Case, drawn, layouts
from tests.campaigns.resumed import Case as Told
from tests.campaigns.resumed import resumed, tally
from tests.campaigns.rows import plain, write
from tests.conftest import toml
from tests.flows.verb import reticent

# of the processor; and of the clock, for who waits and does not work
SECONDS, WAIT = 60, 900
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
    layout = layouts()[case.layout]
    touched, card = DAMAGES[case.damage](layout.write(folder), case), layout.card
    (folder / "card.toml").write_text(toml(card), encoding="utf-8")
    done = reticent("--home", folder / "home", "ingest", folder / "card.toml", "--json", cwd=folder)
    code, err = done.returncode, done.stderr
    said = err.strip().splitlines()[-1] if err.strip() else ""
    found: list[str] = []
    if code not in (0, 2, 3):
        found.append(f"exit {code}")
    if "Traceback" in err or (code and (not said.startswith("reticent: ") or err.count("reticent: ") != 1)):
        found.append("not one clear line")
    if code and SECRET in said:
        found.append("quotes a cell")
    if code == 0:
        found += lost(case, folder, card["name"], json.loads(done.stdout), touched)
    return Outcome(case, code, said.replace(str(folder), "…"), tuple(found))


def lost(case: Case, folder: Path, dataset: str, told: dict[str, Any], touched: frozenset[int]) -> list[str]:
    """Source rows that stand nowhere, and transitions of untouched episodes that are gone."""
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
        begun, end, ready = processor_seconds(process.pid), time.monotonic() + WAIT, list[Any]()
        # on a busy machine a minute of the clock is no minute of work
        while not ready and processor_seconds(process.pid) - begun < SECONDS and time.monotonic() < end:
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


def campaign(cases: list[Case]) -> list[Told]:
    """Judge them all; what is wrong with one is printed."""
    worker, of = Worker(), {case.told(): case for case in cases}

    def told(key: str) -> Told:
        found = worker.judge(of[key])
        if found.violations:
            print(key, found.code, found.violations, found.said, file=sys.stderr, flush=True)
        return {
            "layout": of[key].layout,
            "damage": of[key].damage,
            "cases": 1,
            **{f"exit {code}": int(found.code == code) for code in (0, 2, 3)},
            "violations": int(bool(found.violations)),
            "first": f"{key}: {found.violations[0]}" if found.violations else "",
        }

    try:
        return resumed("bad_input", list(of), told)
    finally:
        worker.close()


def main() -> int:
    """Run the campaign, print and keep its rows; 1 where a promise was broken."""
    if "--worker" in sys.argv:
        work()
        return 0
    found = campaign(drawn(int(sys.argv[1]) if len(sys.argv) > 1 else 1200))
    for by, other in (("layout", "damage"), ("damage", "layout")):
        rows = tally(({k: v for k, v in case.items() if k != other} for case in found), by)
        rows.sort(key=lambda row: str(row[by]))
        rows += tally(({**row, by: "**all**"} for row in rows), by)
        write(f"bad_input_{by}s", rows)
        print(plain(f"bad_input_{by}s"))
    return int(any(row["violations"] for row in found))


if __name__ == "__main__":
    sys.exit(main())
