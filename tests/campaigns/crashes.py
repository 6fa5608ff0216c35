"""Kill -9 at every step of a run.  ``python -P -m tests.campaigns.crashes`` rewrites ``results/crashes.json``.

A run reads a registered snapshot: INTENT, draw, write, COMMIT, publish.  It is killed at its first step, its second and
so on to its last, on a fresh lineage and while it recovers what a killed run left.  After each kill the state is
checked, a normal run follows, and the state is checked again.  Planning and figures are canned: they keep no state.
``--sample N`` kills N times on SQLite alone, spread over all steps.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from pipeline.privacy.release_file import sha256_file
from tests.campaigns.crash_world import World
from tests.ledger.postgres import Server, postgres_server

RESULTS = Path(__file__).resolve().parent / "results" / "crashes.json"


@dataclass(frozen=True)
class Kill:
    """One kill: where, and what stood in the ledger and the store before and after the run that followed."""

    engine: str
    scenario: str
    step: int
    label: str
    charged: str
    drawn: str
    committed: int
    charged_in_the_end: str
    drawn_in_the_end: str
    violations: tuple[str, ...]


def violations(world: World) -> list[str]:
    """Every promise of the ledger that does not hold now, in words."""
    ledger = world.ledger()
    if problem := ledger.problem():
        return [problem]
    entries, found = ledger.entries("shop"), []
    spent = ledger.account("shop").spent
    if spent != sum((Fraction(e.body["rho"]) for e in entries if e.kind == "INTENT"), Fraction(0)):
        found.append("total is not the sum of the INTENTs")
    if spent < world.drawn():
        found.append("more was drawn than charged")
    commits = [e for e in entries if e.kind == "COMMIT"]
    keys = [e.body["run_key"] for e in commits]
    if len(keys) != len(set(keys)):
        found.append("a key has two COMMITs")
    digests = {e.body["release_sha256"] for e in commits}
    runs = [p for p in world.home.runs.glob("*") if not p.name.startswith(".")]
    if any(sha256_file(p / "release.parquet") not in digests for p in runs):
        found.append("an uncommitted release is published")
    return found


def settled(world: World) -> list[str]:
    """What a normal run must have put in order."""
    releases = world.home.store / "shop" / "releases"
    left = [p.name for p in releases.glob("*.attempt-*")]
    keys = {e.body["run_key"][:24] for e in world.ledger().entries("shop") if e.kind == "COMMIT"}
    found = [f"left over: {name}" for name in left]
    if {p.name for p in releases.iterdir()} - set(left) != keys:
        found.append("store and COMMITs differ")
    if len([p for p in world.home.runs.glob("*") if not p.name.startswith(".")]) != 1:
        found.append("nothing, or twice, published")
    if sum(e.kind == "PUBLISH" for e in world.ledger().entries("shop")) != 1:
        found.append("vouched for not once")
    return found


def kill(world: World, start: str, step: int) -> Kill:
    """Kill a run at one step, look, run normally, look again."""
    world.restore(start)
    code = world.run(step)
    found = [] if code == -signal.SIGKILL else [f"not killed: {code}"]
    label = world.steps()[-1]
    charged, drawn = world.ledger().account("shop").spent, world.drawn()
    committed = sum(e.kind == "COMMIT" for e in world.ledger().entries("shop"))
    found += violations(world)
    if world.run() != 0:
        found.append("the normal run failed")
    else:
        found += violations(world) + settled(world)
    end = world.ledger().account("shop").spent
    return Kill(
        world.engine,
        start,
        step,
        label,
        str(charged),
        str(drawn),
        committed,
        str(end),
        str(world.drawn()),
        tuple(found),
    )


def _last(labels: list[str], label: str) -> int:
    """Where a label stands for the last time: the ledger says DRAW before the sum draws."""
    return len(labels) - 1 - labels[::-1].index(label)


def scenarios(world: World) -> dict[str, int]:
    """States to start from, with the number of steps of a run from there."""
    counts: dict[str, int] = {}
    world.restore("registered")
    assert world.run() == 0
    labels = world.steps()
    counts["registered"] = len(labels)
    # died between the release's rename and its COMMIT: the next run recovers it
    renamed = labels.index("before commit") + 1
    # died with a half-written draw: the next run deletes it and draws again
    half = labels.index("before create", _last(labels, "after draw")) + 1
    for name, at in (("uncommitted", renamed), ("half_written", half)):
        world.restore("registered")
        assert world.run(at) == -signal.SIGKILL
        left = [p.name for p in (world.home.store / "shop" / "releases").iterdir()]
        assert [".attempt-" in n for n in left] == [name == "half_written"], left
        world.keep(name)
        assert world.run() == 0
        counts[name] = len(world.steps())
    return counts


def campaign(world: World, sample: int | None) -> list[Kill]:
    """Kill at every step of every scenario, or at ``sample`` of them spread evenly."""
    places = [(name, step) for name, count in scenarios(world).items() for step in range(1, count + 1)]
    if sample is not None:
        places = [places[i * len(places) // sample] for i in range(sample)]
    return [kill(world, name, step) for name, step in places]


def main(sample: int | None) -> int:
    """Run the campaign, print and keep its result; 1 where a promise was broken."""
    kills: list[Kill] = []
    with ExitStack() as stack:
        worlds: list[Server | None] = [None] if sample else [None, stack.enter_context(postgres_server())]
        for server in worlds:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reticent-crashes-")))
            kills += campaign(World(folder, server), sample)
            print(f"{kills[-1].engine}: {len(kills)} kills so far", file=sys.stderr, flush=True)
    broken = [k for k in kills if k.violations]
    result = {
        "command": "python -P -m tests.campaigns.crashes",
        "date": datetime.now(UTC).date().isoformat(),
        "kills": len(kills),
        "kills_by_engine": {name: sum(k.engine == name for k in kills) for name in ("sqlite", "postgresql")},
        "charged_and_not_committed_when_killed": sum(k.charged != "0" and k.committed == 0 for k in kills),
        "drawn_twice_in_the_end": sum(Fraction(k.drawn_in_the_end) > Fraction(k.drawn) > 0 for k in kills),
        "violations": len(broken),
    }
    print(json.dumps(result | {"broken": [asdict(k) for k in broken]}))
    if sample is None:
        rows = ",\n  ".join(json.dumps(asdict(k)) for k in kills)
        RESULTS.write_text(json.dumps(result, indent=1)[:-2] + f',\n "rows": [\n  {rows}\n ]\n}}\n', encoding="utf-8")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[2]) if sys.argv[1:2] == ["--sample"] else None))
