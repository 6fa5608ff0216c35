"""A linear policy on observations that other people measure: one charge, two stages, a replay, an audit."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from pipeline.ledger.verify import verify_run
from pipeline.privacy.release_file import read_release
from pipeline.statistics.held_out import held_out_loss
from pipeline.statistics.linear_plan import declared_map
from tests.campaigns.cartpole_log import write_minari
from tests.flows.observed import cartpole, lay_out
from tests.flows.verb import invoke
from tests.jobs import home_at, ingest_job, ledger_of, plan_job, run_job

PEOPLE, STEPS = 3000, 5
HELD = "[evaluate]\npeople = 0.3\n"
AGENTS = {
    "adaptive": ("dp-vapvi", f"[privacy]\nrho = 4.0\n{HELD}"),
    "once": ("dp-one-shot", f"[privacy]\nrho = 4.0\n{HELD}"),
    "bare": ("vapvi", HELD),
    "halves": ("dp-vapvi", f"[privacy]\nrho = 4.0\n[linear]\nhalves = true\n{HELD}"),
}


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    root = tmp_path_factory.mktemp("judged")
    shop, home = lay_out(root / "shop", cartpole(PEOPLE, STEPS, "affine"), AGENTS), home_at(root / "home")
    write_minari(shop / "data", PEOPLE, STEPS)
    ingest_job(str(shop), home)
    return shop, home, {name: run_job(str(shop / f"{name}.toml"), home) for name in AGENTS if name != "halves"}


def report(run):
    return json.loads((Path(run["folder"]) / "report.json").read_text())


@pytest.mark.parametrize("name", ["adaptive", "once", "bare"])
def test_other_people_say_what_the_policy_is_worth(pole, name):
    found = report(pole[2][name])["evaluation"]
    assert found["estimator"] == "observed-dr"
    assert found["practice"]["lower"] <= STEPS <= found["practice"]["upper"] + 1
    assert abs(found["misfit"]) < 20 and "placebo" in found and found["placebo"] is None
    assert found["calibrated"] is False, "900 people who judge are too few"


@pytest.mark.parametrize("name", ["adaptive", "once", "bare"])
def test_an_honest_run_passes_every_check(pole, name):
    _, home, runs = pole
    checks = verify_run(Path(runs[name]["folder"]), ledger_of(home).entries())
    assert all(c.ok for c in checks), checks


@pytest.mark.parametrize("name", ["adaptive", "once"])
def test_what_both_parts_cost_is_computed_again_and_a_replay_is_free(pole, name):
    shop, home, runs = pole
    folder = Path(runs[name]["folder"])
    release, labels = read_release(folder), json.loads((folder / "policy.json").read_text())
    assert release.joint_rho is not None and release.joint is not None
    again = held_out_loss(release.mechanisms, release.joint, declared_map(labels["features"]))
    assert Fraction(99, 100) * 4 < again <= release.joint_rho <= 4
    assert plan_job(str(shop / f"{name}.toml"), home)["rho"] == pytest.approx(4.0, rel=0.01)
    replayed = run_job(str(shop / f"{name}.toml"), home)
    assert replayed["run"] == runs[name]["run"]
    assert replayed["ledger"]["spent_rho"] <= 8.0


def test_an_audit_attacks_both_stages(pole):
    shop, home, _ = pole
    done = invoke("--home", home.root, "audit", shop / "once.toml", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert "moments of observed features" in json.dumps(told) and not told["violates"]


def test_halves_are_refused_before_anything_is_charged(pole):
    shop, home, _ = pole
    done = invoke("--home", home.root, "run", shop / "halves.toml")
    assert done.exit_code == 2 and "splits people as well" in done.output
