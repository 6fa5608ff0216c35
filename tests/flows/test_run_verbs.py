"""``compare-runs``, ``promote`` and ``nightly`` from the shell, and what the name ``current`` means to other verbs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.jobs.promotion import Alias
from tests.flows.made_runs import publish
from tests.flows.shop import lay_out
from tests.flows.verb import reticent

GOLDENS = Path(__file__).parents[1] / "goldens"


@pytest.fixture
def runs(tmp_path):
    found = tmp_path / ".reticent" / "runs"
    publish(found, "shop-aaa", 0, 0.5)
    publish(found, "shop-bbb", 1, 0.25)
    return found


def test_compare_runs_says_what_changed(runs, tmp_path):
    done = reticent("compare-runs", "shop-aaa", "shop-bbb", cwd=tmp_path)
    assert done.returncode == 0 and "1 of" in done.stdout
    # a paired difference may tell apart what two intervals do not
    assert "they overlap: alone they do not tell the two policies apart" in done.stdout
    assert "keep current practice" not in done.stdout
    told = json.loads(reticent("compare-runs", "shop-aaa", "shop-bbb", "--json", cwd=tmp_path).stdout)
    assert [(r["step"], r["a"]["action"], r["b"]["action"]) for r in told["cells"]["rows"]] == [(1, "@go", "-3")]
    assert told["value"]["lower_gain"] == -0.25
    missing = reticent("compare-runs", "shop-aaa", "shop-zzz", cwd=tmp_path)
    assert missing.returncode == 2 and "shop-zzz" in missing.stderr


def test_a_report_that_contradicts_itself_is_named_with_what_to_do(tmp_path):
    judged, runs = next((GOLDENS / "second" / "runs").glob("judged-*")), tmp_path / ".reticent" / "runs"

    def changed(name: str, change: Callable[[dict], object]) -> None:
        folder = shutil.copytree(judged, runs / name)
        facts = json.loads((folder / "report.json").read_text())
        change(facts)
        (folder / "report.json").write_text(json.dumps(facts))

    changed("whole", lambda facts: None)
    changed("no-gain", lambda facts: facts["verdict"].update(improvement=None))
    changed("nobody", lambda facts: facts["evaluation"].update(share=0))
    changed("one-action", lambda facts: facts["dataset"].update(actions=facts["dataset"]["actions"][:1]))
    for verb in (
        ("report", "no-gain"),
        ("report", "nobody"),
        ("report", "one-action"),
        ("compare-runs", "whole", "no-gain"),
    ):
        done = reticent(*verb, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "report.json" in done.stderr and verb[-1] in done.stderr and "run again" not in done.stderr
        assert "`reticent run` its recipe again" in done.stderr


def test_promote_and_back_and_other_verbs_know_current(runs, tmp_path):
    # the verb takes runs that verify; these are folders alone
    for run in ("shop-aaa", "shop-bbb"):
        Alias(runs).promote(run)
    compare = ["compare-runs", "current", "shop-aaa", "--json"]
    assert json.loads(reticent(*compare, cwd=tmp_path).stdout)["a"] == "shop-bbb"
    assert reticent("promote", "--rollback", cwd=tmp_path).stdout == "current is shop-aaa, was shop-bbb\n"
    assert json.loads(reticent(*compare, cwd=tmp_path).stdout)["a"] == "shop-aaa"
    for wrong in (["promote"], ["promote", "shop-aaa", "--rollback"], ["promote", "--rollback"], ["promote", "nix"]):
        assert reticent(*wrong, cwd=tmp_path).returncode == 2, wrong
    # a pointer is no run: the beginning of its name finds nothing
    assert reticent("report", "curr", cwd=tmp_path).returncode == 2


def test_a_name_does_not_lead_out_of_the_runs(runs, tmp_path):
    outside = publish(tmp_path / "outside", "shop-aaa", 1, 0.0)
    before = {p: p.read_bytes() for p in outside.iterdir()}
    there = str(outside)
    for wrong in (
        ["report", "../../outside/shop-aaa"],
        ["policy", "show", "../../outside/shop-aaa"],
        ["compare-runs", "shop-aaa", "../../outside/shop-aaa"],
        ["report", ""],
        ["report", "x" * 300],
        # no run: it has no certificate
        ["promote", "shop-aaa"],
        # what is written as a path from here may be read, but it is no run of this home
        ["promote", there],
        ["promote", "shop-aaa", "--pointer", "../../x"],
        ["policy", "act", "shop-aaa", "--state", "=1+1", "--step", str(10**20)],
    ):
        assert reticent(*wrong, cwd=tmp_path).returncode == 2, wrong
    assert reticent("compare-runs", "shop-aaa", there, cwd=tmp_path).returncode == 0
    assert {p: p.read_bytes() for p in outside.iterdir()} == before


def test_a_check_before_any_night_asks_for_a_look(tmp_path):
    shop = lay_out(tmp_path / "shop")
    done = reticent("nightly", shop / "private.toml", "--check", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert done.returncode == 1 and not told["ok"] and "no night of private" in told["problem"]
    assert "alert: no night of private" in done.stderr
