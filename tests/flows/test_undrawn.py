"""Pictures under a limit of address space, which the renderer answers by ending its process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from flows.server.serving import server_settings
from reports.page import NOT_DRAWN
from tests.flows.shop import lay_out
from tests.flows.verb import reticent

# enough for a run, too little for the renderer
LIMIT = 6 << 30


def limited(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A verb as a process of its own, under a limit."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RETICENT_")}
    command = [sys.executable, "-P", "-m", "flows.cli", *map(str, words)]
    root = str(Path(__file__).resolve().parents[2])
    return subprocess.run(
        command, cwd=cwd, env={**clean, "PYTHONPATH": root}, text=True,
        capture_output=True, check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
    )  # fmt: skip


@pytest.mark.slow
def test_a_run_whose_pictures_cannot_be_drawn_is_published_without_them_and_verified(tmp_path):
    shop = lay_out(tmp_path / "shop")
    assert reticent("ingest", shop, cwd=tmp_path).returncode == 0
    done = limited("run", shop / "private.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    [run] = (tmp_path / ".reticent" / "runs").glob("private-*")
    page = (run / "report.html").read_text()
    assert NOT_DRAWN in page and "new policy" in page
    here = reticent("ledger", "verify", run, "--card", shop / "card.toml", cwd=tmp_path)
    assert here.returncode == 0 and "pictures were drawn on one machine only" in here.stdout, here.stdout + here.stderr
    # a run again, where they can be drawn, publishes them
    assert reticent("run", shop / "private.toml", cwd=tmp_path).returncode == 0
    assert NOT_DRAWN not in (run / "report.html").read_text()


@pytest.mark.slow
def test_our_own_server_carries_out_no_automations(monkeypatch, tmp_path):
    """They can send requests to any address: read by Prefect's own settings, as its services do."""
    from prefect.server.events.services.actions import Actions
    from prefect.server.events.services.triggers import ReactiveTriggers
    from prefect.settings import get_current_settings, temporary_settings
    from prefect.settings.models.root import Settings

    assert get_current_settings().server.services.triggers.enabled
    for name, value in server_settings("http://127.0.0.1:4200", "a:b", tmp_path).items():
        monkeypatch.setenv(name, value)
    told = Settings()
    assert not told.server.services.triggers.enabled
    with temporary_settings():
        monkeypatch.setattr("prefect.server.events.services.actions.get_current_settings", lambda: told)
        monkeypatch.setattr("prefect.server.events.services.triggers.get_current_settings", lambda: told)
        assert not Actions.enabled() and not ReactiveTriggers.enabled()
