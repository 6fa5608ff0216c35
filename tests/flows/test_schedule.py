"""Nights on a real Prefect server: cron, triggers, and a worker that is killed while it draws."""

import json
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.flows.service import ROOT, PrefectServer, clean_environment, end_group, prefect_server, wait_for
from tests.flows.shop import lay_out
from tests.jobs import ledger_in

pytestmark = pytest.mark.service
DEADLY = Path(__file__).resolve().parent / "deadly"
# the scheduler looks at fresh deployments every five seconds
SOON = 60


def folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


class Night:
    """A server with the shipped deployments, a shop whose recipe they run, and one worker at a time."""

    def __init__(self, server: PrefectServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.home, self.shop, self.order = folder / "home", folder / "shop", folder / "order"
        self.asked = {"recipe": str(self.shop / "private.toml")}
        lay_out(self.shop, cap=9.0)
        self.home.mkdir()
        (self.home / "allowed.toml").write_text(f'recipes = ["{self.shop}"]\n')
        self.start_worker()
        # it makes the pool
        wait_for(lambda: server.ask("work_pools/filter", {}), 300, "a work pool", server)
        self.deployment = server.deploy("nightly")

    def start_worker(self) -> subprocess.Popen[bytes]:
        env = {"DEADLY_ORDER": str(self.order), "PYTHONPATH": f"{DEADLY}:{self.server.env['PYTHONPATH']}"}
        self.worker = self.server.start_worker(RETICENT_HOME=str(self.home), **env)
        return self.worker

    def trigger(self, *args: str) -> dict:
        recipe = f"recipe={self.asked['recipe']}"
        command = [sys.executable, "-m", "flows.cli", "trigger", "nightly", "--param", recipe, *args, "--json"]
        env = {**clean_environment(), "PREFECT_API_URL": self.server.api, "PREFECT_HOME": str(self.folder / "client")}
        done = subprocess.run(command, env=env, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + self.server.logs()
        return json.loads(done.stdout)

    def killed(self, when: str) -> None:
        """A night whose worker and process are killed before or after the release is renamed."""
        self.order.write_text(when)
        self.server.start("nightly", **self.asked)
        wait_for(lambda: self.worker.poll() is not None, 300, "a killed worker", self.server)
        assert not self.order.exists()

    def schedule(self) -> None:
        """Three times a minute, as a deploy with ``active: true`` would say it; seconds are the sixth field."""
        every = {"active": True, "schedule": {"cron": "* * * * * */20"}, "parameters": self.asked}
        self.server.ask(f"deployments/{self.deployment['id']}", {"schedules": [every]}, method="PATCH")

    def scheduled(self, **wanted: str) -> list[dict]:
        return self.server.runs(auto_scheduled=True, deployment_id=self.deployment["id"], **wanted)

    def published(self) -> int:
        return len([p for p in (self.home / "runs").iterdir() if p.name.startswith("private-")])

    def ledger(self) -> tuple[list[str], list[bool]]:
        """What every INTENT charged, and which of them have their COMMIT."""
        entries = ledger_in(self.home).entries("shop")
        done = {e.body["intent"] for e in entries if e.kind == "COMMIT"}
        intents = [e for e in entries if e.kind == "INTENT"]
        assert ledger_in(self.home).account("shop").spent == sum(Fraction(e.body["rho"]) for e in intents)
        return [e.body["rho"] for e in intents], [e.seq in done for e in intents]


def a_scheduled_run(night: Night, seconds: float) -> list[dict]:
    """The check of a living scheduler: within ``seconds`` it has planned a run of the deployment."""
    return wait_for(night.scheduled, seconds, "a run the scheduler planned", night.server)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    with prefect_server(tmp_path_factory.mktemp("prefect")) as found:
        yield found


@pytest.mark.slow
@pytest.mark.skipif(tuple(map(int, version("fastapi").split(".")[:2])) >= (0, 151), reason="fastapi breaks the command")
def test_deploy_all_registers_everything_that_is_shipped(server):
    prefect = [sys.executable, "-m", "prefect"]
    for command in (["work-pool", "create", "--type", "process", "reticent"], ["--no-prompt", "deploy", "--all"]):
        done = subprocess.run(
            [*prefect, *command], cwd=ROOT, env=server.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert {d["name"] for d in server.ask("deployments/filter", {})} == {"nightly", "simulate", "reproduce"}


@pytest.mark.slow
def test_cron_plans_and_runs_a_night_and_finishes_one_that_was_killed_after_its_rename_for_one_charge(tmp_path, server):
    night = Night(server, tmp_path)
    assert [s["active"] for s in night.deployment["schedules"]] == [False] and night.scheduled() == []
    night.killed("after")
    assert night.ledger() == (["1"], [False])
    night.schedule()
    night.start_worker()
    assert a_scheduled_run(night, SOON)
    done = wait_for(lambda: night.scheduled(state_type="COMPLETED"), 300, "a cron run that completed", server)
    assert night.ledger() == (["1"], [True])
    assert night.published() == 1
    # what the schedule says, as the server shows it
    assert done[0]["parameters"] == night.asked
    end_group(night.worker)


@pytest.mark.slow
def test_a_dead_scheduler_fails_the_check_and_a_night_killed_before_its_rename_is_charged_again(tmp_path):
    off = {"PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false"}
    with prefect_server(folder(tmp_path, "prefect"), **off) as server:
        night = Night(server, folder(tmp_path, "night"))
        night.schedule()
        night.killed("before")
        assert night.ledger() == (["1"], [False])
        night.start_worker()
        again = night.trigger("--wait", "--timeout", "300")
        # what the shell asked for, as the server shows it
        assert again["state"] == "COMPLETED" and server.runs(auto_scheduled=False)[-1]["parameters"] == night.asked
        assert night.ledger() == (["1", "1"], [False, True])
        assert night.published() == 1
        # three nights a minute are due since before the first of them was killed
        with pytest.raises(AssertionError, match="the scheduler planned"):
            a_scheduled_run(night, 1)
