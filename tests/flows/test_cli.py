"""The command line from outside: exit codes, one line an error, one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows import verb
from tests.flows.shop import lay_out


def reticent(*args: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    import os

    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RETICENT_", "PREFECT_"))}
    command = [sys.executable, "-m", "flows.cli", *map(str, args)]
    root = str(Path(__file__).resolve().parents[2])
    return subprocess.run(
        command,
        cwd=cwd,
        env={**clean, "PYTHONPATH": root, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def shop(tmp_path):
    return lay_out(tmp_path / "shop")


@pytest.mark.slow
def test_the_whole_path_in_the_shell_and_one_json_object_each(tmp_path, shop):
    r = reticent("register", shop, "--json", cwd=tmp_path)
    assert r.returncode == 0 and json.loads(r.stdout)["action"] == "register"
    r = reticent("ingest", shop, "--json", cwd=tmp_path)
    facts = json.loads(r.stdout)
    assert {"dataset", "snapshot", "rows", "users", "episodes", "quarantined", "partitions"} <= set(facts)
    r = reticent("plan", shop / "private.toml", "--json", cwd=tmp_path)
    facts = json.loads(r.stdout)
    assert {"dataset", "mechanisms", "rho", "epsilon", "delta", "spent_before", "remaining_after", "allowed"} <= set(
        facts
    )
    r = reticent("run", shop / "private.toml", "--json", cwd=tmp_path)
    facts = json.loads(r.stdout)
    assert {"run", "folder", "report", "ledger", "value"} <= set(facts)
    assert Path(facts["folder"]).is_absolute() and Path(facts["report"]).name == "report.html"
    assert (tmp_path / ".reticent" / "runs" / facts["run"]).is_dir()
    r = reticent("policy", "show", facts["run"], "--json", cwd=tmp_path)
    assert len(json.loads(r.stdout)["rows"]) == 6
    r = reticent("ledger", "show", "--json", cwd=tmp_path)
    lineage = json.loads(r.stdout)["datasets"][0]
    assert lineage["name"] == "shop" and lineage["entries"][0]["state"] == "committed"
    r = reticent("ledger", "verify", "--json", cwd=tmp_path)
    assert json.loads(r.stdout) == {"ok": True, "entries": 6, "problem": None}
    r = reticent("ledger", "export", tmp_path / "all.json", "--json", cwd=tmp_path)
    assert len(json.loads((tmp_path / "all.json").read_text())["entries"]) == 6
    page = Path(facts["report"]).read_bytes()
    Path(facts["report"]).unlink()
    assert reticent("report", facts["run"], cwd=tmp_path).returncode == 0
    assert Path(facts["report"]).read_bytes() == page


@pytest.mark.parametrize(
    ("break_it", "args", "code", "says"),
    [
        (lambda s: (s / "card.toml").write_text("x = ["), ("ingest", "{s}"), 2, "not readable as TOML"),
        (lambda s: None, ("run", "{s}/private.toml"), 2, "ingest"),
        (lambda s: None, ("run", "no-such"), 2, "no recipe"),
        (lambda s: (s / "log.csv").unlink(), ("ingest", "{s}"), 2, "nothing matches"),
        (lambda s: (s / "log.csv").write_text("a,b\n1,2\n"), ("ingest", "{s}"), 3, "log.csv"),
        (lambda s: (s / "log.csv").write_bytes(b"\xff\xfe\x00"), ("ingest", "{s}"), 3, "log.csv"),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(tmp_path, shop, break_it, args, code, says):
    break_it(shop)
    r = verb.reticent(*(a.format(s=shop) for a in args), cwd=tmp_path)
    assert r.returncode == code, r.stderr
    lines = [line for line in r.stderr.splitlines() if line.startswith("reticent: ")]
    assert len(lines) == 1 and says in lines[0]
    assert "Traceback" not in r.stderr


@pytest.mark.slow
def test_over_budget_is_exit_four_and_json_says_why(tmp_path, shop):
    assert reticent("ingest", shop, cwd=tmp_path).returncode == 0
    assert reticent("run", shop / "private.toml", cwd=tmp_path).returncode == 0
    r = reticent("run", shop / "greedy.toml", "--json", cwd=tmp_path)
    assert r.returncode == 4
    assert json.loads(r.stdout)["error"]["code"] == 4 and "left" in json.loads(r.stdout)["error"]["message"]


def test_a_wrong_command_is_exit_two(tmp_path):
    assert reticent("dance", cwd=tmp_path).returncode == 2
    assert verb.reticent("run", cwd=tmp_path).returncode == 2


def test_home_and_shelf_can_be_named_by_environment(tmp_path, shop):
    home = tmp_path / "elsewhere"
    r = verb.reticent("ingest", "shop", cwd=tmp_path, RETICENT_HOME=str(home), RETICENT_SHELF=str(tmp_path))
    assert r.returncode == 0, r.stderr
    assert (home / "store" / "shop").is_dir() and not (tmp_path / ".reticent").exists()


def test_a_variable_that_is_set_to_nothing_names_nothing(tmp_path, shop):
    (place := tmp_path / "somewhere").mkdir()
    r = verb.reticent("ingest", shop, cwd=place, RETICENT_HOME="", RETICENT_MEMORY="", RETICENT_SHELF="")
    assert r.returncode == 0, r.stderr
    assert [p.name for p in place.iterdir()] == [".reticent"]
