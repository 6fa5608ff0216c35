"""Kill -9 of Prefect's worker and its run.  ``python -P -m tests.campaigns.worker_kills`` rewrites its rows.

A night of a registered lineage of people runs on a real server: trigger, work pool, worker.  Worker and run are killed
together at a random moment: half of the moments are traces on the disk, half are seconds of the job.  A new worker
starts, a new log comes and its night is killed too; every fourth time the same log is tried again and left alone, and
must be finished.  The ledger is checked after every kill and every night.  Then cron ticks are timed, from the minute
to the report's file.
``--sample N`` kills N times, times no tick and writes nothing; ``--ticks`` times ticks alone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from flows.config.home import Home
from flows.jobs.run import register_job
from pipeline.ledger.ledger import open_ledger
from pipeline.logs.store import latest
from tests.campaigns.rows import Row, write
from tests.flows.service import PrefectServer, end_group, prefect_server, wait_for
from tests.flows.shop import lay_out, rows

DEADLY = Path(__file__).resolve().parents[1] / "flows" / "deadly"
KILLS, IN_A_ROW, TICKS, CAP = 20, 4, 5, 100.0
ENDS = ("COMPLETED", "FAILED", "CRASHED")


class World:
    """A shop of people with a ledger of its own, its deployment, and one worker at a time."""

    def __init__(self, server: PrefectServer, folder: Path) -> None:
        self.server, self.shop, self.home, self.order = server, folder / "shop", Home(folder / "home"), folder / "order"
        self.nights = 0
        lay_out(self.shop, kind="real", ledger="ledger.db", cap=CAP)
        register_job(str(self.shop), self.home)
        (self.home.root / "allowed.toml").write_text(f'recipes = ["{self.shop}"]\n')
        self.start_worker()
        wait_for(lambda: server.ask("work_pools/filter", {}), 600, "a work pool", server)
        self.deployment = server.deploy("nightly")["id"]

    @property
    def parameters(self) -> dict[str, str]:
        return {"recipe": str(self.shop / "private.toml")}

    def start_worker(self, poll: int = 1) -> None:
        env = {"DEADLY_ORDER": str(self.order), "PYTHONPATH": f"{DEADLY}:{self.server.env['PYTHONPATH']}"}
        env["PREFECT_WORKER_QUERY_SECONDS"] = str(poll)
        self.worker = self.server.start_worker(RETICENT_HOME=str(self.home.root), **env)

    def new_log(self) -> None:
        self.nights += 1
        lay_out(self.shop, kind="real", ledger="ledger.db", cap=CAP, log=rows(seed=self.nights))
        # a date has one edition, and one release for each noise: a budget whose variance is another integer
        recipe = self.shop / "private.toml"
        recipe.write_text(recipe.read_text().replace("rho = 1.0", f"rho = {6 / (6 + self.nights):.6f}"))

    def trigger(self) -> str:
        return self.server.ask(f"deployments/{self.deployment}/create_flow_run", {"parameters": self.parameters})["id"]

    def state(self, run: str) -> str:
        return self.server.ask(f"flow_runs/{run}")["state_type"]

    def night(self) -> None:
        """A whole night; the run must complete."""
        run = self.trigger()
        wait_for(lambda: self.state(run) in ENDS, 900, "the end of a night", self.server)
        assert self.state(run) == "COMPLETED", self.server.logs()

    def killed(self, order: str) -> bool:
        """A night under an order to kill; False where the moment came after its end."""
        self.order.write_text(order)
        run = self.trigger()
        wait_for(lambda: self.worker.poll() is not None or self.state(run) in ENDS, 900, "an end", self.server)
        time.sleep(1)
        if self.worker.poll() is not None:
            return True
        assert self.state(run) == "COMPLETED", self.server.logs()
        return False

    def entries(self) -> tuple[list[Any], list[Any]]:
        entries = open_ledger(self.shop / "ledger.db", create=False).entries("shop")
        return tuple([e for e in entries if e.kind == kind] for kind in ("INTENT", "COMMIT"))  # type: ignore[return-value]

    def violations(self) -> list[str]:
        """Every promise of the ledger that does not hold now, in words."""
        ledger = open_ledger(self.shop / "ledger.db", create=False)
        if problem := ledger.problem():
            return [problem]
        intents, commits = self.entries()
        found = []
        if ledger.account("shop").spent != sum((Fraction(e.body["rho"]) for e in intents), Fraction(0)):
            found.append("total is not the sum of the INTENTs")
        keys = [e.body["run_key"] for e in commits]
        if len(keys) != len(set(keys)):
            found.append("a key has two COMMITs")
        folders = list((self.home.store / "shop" / "releases").glob("*/attempt.json"))
        if not {p.parent.name for p in folders if ".attempt-" not in p.parent.name} <= {
            e.body["run_key"][:24] for e in intents
        }:
            found.append("a release was drawn without an INTENT")
        return found

    def settled(self) -> list[str]:
        """What a finished night must have put in order; a log whose night died early may never have been released."""
        _, commits = self.entries()
        names = {p.name for p in (self.home.store / "shop" / "releases").iterdir()}
        found = [f"left over: {name}" for name in sorted(names) if ".attempt-" in name]
        if {n for n in names if ".attempt-" not in n} != {e.body["run_key"][:24] for e in commits}:
            found.append("store and COMMITs differ")
        newest = latest(self.home.store, "shop")
        runs = [
            json.loads((p / "report.json").read_text())
            for p in self.home.runs.iterdir()
            if (p / "report.json").is_file()
        ]
        if newest is None or newest.number not in {facts["dataset"]["snapshot"] for facts in runs}:
            found.append("the newest log has no run")
        return found


def ticks(world: World) -> list[float]:
    """Seconds from the minute of a cron run to its report's file, for runs with a new log each."""
    every = {"active": True, "schedule": {"cron": "* * * * *"}, "parameters": world.parameters}
    world.server.ask(f"deployments/{world.deployment}", {"schedules": [every]}, method="PATCH")
    found: list[float] = []
    for _ in range(TICKS):
        before = {p.name for p in world.home.runs.iterdir()}
        world.new_log()

        def fresh(before: set[str] = before) -> list[Path]:
            return [p for p in world.home.runs.iterdir() if p.name.startswith("private-") and p.name not in before]

        (folder,) = wait_for(fresh, 900, "a run's folder", world.server)
        written = (folder / "report.html").stat().st_mtime
        found.append(written - wait_for(lambda f=folder: tick_of(world, f.name), 300, "a page", world.server))
    world.server.ask(f"deployments/{world.deployment}", {"schedules": []}, method="PATCH")
    return found


def tick_of(world: World, run: str) -> float | None:
    """The minute of the first flow run whose page names ``run``, in seconds since 1970."""
    pages = [a for a in world.server.ask("artifacts/filter", {"sort": "CREATED_DESC"}) if a["key"] == "night-private"]
    made = [a["flow_run_id"] for a in pages if run in a["data"].split("Against")[0]]
    if not made:
        return None
    return datetime.fromisoformat(world.server.ask(f"flow_runs/{made[-1]}")["expected_start_time"]).timestamp()


def campaign(world: World, kills: int) -> list[Row]:
    """A new log, a kill, a look; after every fourth kill, and the last, a night that nobody kills."""
    world.new_log()
    world.order.write_text("count")
    world.night()
    traces, seconds = map(float, world.order.with_name("counted").read_text().split())
    rng = np.random.default_rng(0)
    found: list[Row] = []
    while len(found) < kills:
        world.new_log()
        step = f"step {rng.integers(1, int(traces) + 1)}"
        moment = step if len(found) % 2 else f"time {rng.uniform(0, seconds):.3f}"
        if not world.killed(moment):
            # the moment came after the night's end
            world.order.unlink(missing_ok=True)
            continue
        end_group(world.worker)
        broken, (intents, commits) = world.violations(), world.entries()
        world.start_worker()
        if (len(found) + 1) % IN_A_ROW == 0 or len(found) + 1 == kills:
            world.night()
            broken += world.violations() + world.settled()
        found.append({"moment": moment, "INTENTs": len(intents), "COMMITs": len(commits), "broken": "; ".join(broken)})
        print(found[-1], file=sys.stderr, flush=True)
    return found


def main(sample: int | None, *, kill: bool) -> int:
    """Run the campaign, print and keep its rows; 1 where a promise was broken."""
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="reticent-kills-") as name:
        folder = Path(name)
        (folder / "prefect").mkdir()
        with prefect_server(folder / "prefect") as server:
            world = World(server, folder)
            if kill:
                found = campaign(world, sample or KILLS)
                if sample is None:
                    write("worker_kills", found, "0")
            if sample is None:
                write("worker_ticks", timed(world), "none")
    print(json.dumps(found, indent=1))
    return int(any(row["broken"] for row in found))


def timed(world: World) -> list[Row]:
    """Seconds from cron ticks to their reports, with the machine's load beside them."""
    end_group(world.worker)
    # Prefect's own pace
    world.start_worker(10)
    return [{"seconds": round(t, 1), "load": round(os.getloadavg()[1], 1)} for t in ticks(world)]


if __name__ == "__main__":
    asked = sys.argv[1:]
    sys.exit(main(int(asked[1]) if asked[:1] == ["--sample"] else None, kill=asked != ["--ticks"]))
