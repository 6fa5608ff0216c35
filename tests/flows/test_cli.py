"""The command line: exit codes, one line an error, one JSON object; the goldens run it as processes."""

from __future__ import annotations

import json

import pytest

from tests.flows.shop import lay_out
from tests.flows.verb import reticent


@pytest.fixture
def shop(tmp_path):
    return lay_out(tmp_path / "shop")


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
    r = reticent(*(a.format(s=shop) for a in args), cwd=tmp_path)
    assert r.returncode == code, r.stderr
    lines = [line for line in r.stderr.splitlines() if line.startswith("reticent: ")]
    assert len(lines) == 1 and says in lines[0]
    assert "Traceback" not in r.stderr


def test_over_budget_is_exit_four_and_json_says_why(tmp_path, shop):
    assert reticent("ingest", shop, cwd=tmp_path).returncode == 0
    assert reticent("run", shop / "private.toml", cwd=tmp_path).returncode == 0
    r = reticent("run", shop / "greedy.toml", "--json", cwd=tmp_path)
    told = json.loads(r.stdout)["error"]
    assert (r.returncode, told["code"]) == (4, 4) and "left" in told["message"]


def test_a_wrong_command_is_exit_two(tmp_path):
    assert reticent("dance", cwd=tmp_path).returncode == 2
    assert reticent("run", cwd=tmp_path).returncode == 2


def test_home_and_shelf_can_be_named_by_environment(tmp_path, shop):
    home = tmp_path / "elsewhere"
    r = reticent("ingest", "shop", cwd=tmp_path, RETICENT_HOME=str(home), RETICENT_SHELF=str(tmp_path))
    assert r.returncode == 0, r.stderr
    assert (home / "store" / "shop").is_dir() and not (tmp_path / ".reticent").exists()


def test_a_variable_that_is_set_to_nothing_names_nothing(tmp_path, shop):
    (place := tmp_path / "somewhere").mkdir()
    r = reticent("ingest", shop, cwd=place, RETICENT_HOME="", RETICENT_MEMORY="", RETICENT_SHELF="")
    assert r.returncode == 0, r.stderr
    assert [p.name for p in place.iterdir()] == [".reticent"]
