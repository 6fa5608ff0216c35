"""``run`` with dp-lqr on a log: what is particular to it; the rest is in test_regression_runs.py."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.mdp.riccati import QuadraticCost, clip_norm, riccati
from tests.flows.test_side_outputs import assert_nowhere_but_in_the_store, reticent
from tests.jobs import home_at, ingest_job, policy_of, run_job, wrong_of
from tests.learners.lq_shop import NUMBER, ODD, RECIPES, USER, WORD, A, B, lay_out_plant, rows


def facts(run, name="report"):
    return json.loads((Path(run["folder"]) / f"{name}.json").read_text())


@pytest.mark.parametrize(("name", "loss", "asked"), [("private", "rho", 1.0), ("asked", "epsilon", 4.0)])
def test_both_sums_are_listed_and_the_budget_is_used_up(plant, name, loss, asked):
    proof = facts(plant.runs[name], "certificate")
    tables = [[m["table"] for m in told["mechanisms"]] for told in (proof, plant.plans[name])]
    assert tables == [["gram", "target"]] * 2
    # bounded jointly, they cost less than their sum
    assert sum(Fraction(m["rho_exact"]) for m in proof["mechanisms"]) > Fraction(proof["rho_exact"])
    assert 0.999 * asked < plant.runs[name]["guarantee"][loss] <= asked * (1 + 1e-6)


def test_the_files_hold_sums_and_gains_that_anybody_can_recompute(plant):
    runs = plant.runs
    folder = Path(runs["private"]["folder"])
    policy, release = pq.read_table(folder / "policy.parquet"), pq.read_table(folder / "release.parquet")
    assert policy.column_names == ["step", "index", "weight"] and len(policy) == 4 * 2
    assert set(release["table"].to_pylist()) == {"gram", "target"} and release["step"].null_count == len(release)
    G, X = np.zeros((3, 3)), np.zeros((3, 2))
    for r in release.to_pylist():
        (G if r["table"] == "gram" else X)[r["row"], r["col"]] = r["value"] / 4096**2
    stored = policy_of(folder)
    told, gains = json.loads((folder / "policy.json").read_text()), stored.gains
    assert told["bounds"] == [1.0, 1.0, 1.4] and told["observation"]["names"] == ["place", "pace"]
    # ridge regression; one draw in a hundred leaves an eigenvalue (77, floor 47, noise 13) below the floor
    constants = facts(runs["private"])["constants"]
    found, along = np.linalg.eigh(G)
    assert constants["raised"] == (found < constants["floor"]).sum()
    raised = along @ np.diag(found.clip(constants["floor"])) @ along.T
    theta = np.linalg.solve(raised + np.eye(3), X).T * np.array([1.4, 1.4, 1.4])
    cost = QuadraticCost(np.eye(2), 0.1 * np.eye(1), 4)
    # |u| <= 1 wherever |x| <= 2
    wanted = clip_norm(riccati(theta[:, :2], theta[:, 2:], cost)[0], 0.5)
    np.testing.assert_allclose(gains, wanted, rtol=1e-9, atol=1e-12)


def test_without_noise_the_true_plant_is_found(plant):
    runs = plant.runs
    model = facts(runs["exact"])["model"]
    assert np.abs(np.array(model["A"]) - A).max() < 0.05 and np.abs(np.array(model["B"]) - B).max() < 0.05
    assert runs["exact"]["guarantee"]["rho"] is None and "simulation-not-private" in runs["exact"]["run"]


def test_the_report_says_what_was_learnt_and_what_its_value_is_worth(plant):
    runs = plant.runs
    told, page = facts(runs["private"]), (Path(runs["private"]["folder"]) / "report.md").read_text()
    assert told["value"]["status"] == "modelled" and told["value"]["upper"] is None and told["value"]["gap"] is None
    assert told["value"]["lower"] == told["value"]["lower_trivial"] == pytest.approx(-4 * (4 + 0.1))
    assert told["policy"]["left_zero"] and "truth" not in told
    for words in ("linear controller", "place", "pace", "Doing nothing", "not a guarantee", "Together they cost"):
        assert words in page
    html = (Path(runs["private"]["folder"]) / "report.html").read_text()
    assert 'id="guarantee"' in html and "<svg" in html and 'src="http' not in html


def test_the_verbs_of_a_run_read_its_gains(plant, tmp_path, capfd):
    home, runs = plant.home, plant.runs
    root, run = home.root.parent, runs["private"]["run"]
    gains = policy_of(Path(runs["private"]["folder"])).gains
    for verb in (("policy", "show", run), ("policy", "export", run, "--to", tmp_path / "gains.csv")):
        assert reticent(root, *verb) == 0, capfd.readouterr()
    lines = (tmp_path / "gains.csv").read_text().splitlines()
    assert lines[0].startswith('"step","control","observed","gain"') and len(lines) == 9
    # pace is logged in halves: its gain is half as large in logged units
    assert float(lines[2].split(",")[3]) == pytest.approx(gains[0, 0, 1] / 2)
    capfd.readouterr()
    assert reticent(root, "policy", "act", run, "--observation", "0.5, -0.4", "--step", 1, "--json") == 0
    one = json.loads(capfd.readouterr().out)
    assert one["action"] == pytest.approx(gains[1] @ [0.5, -0.2]) and not one["cut"] and not one["outside"]
    (tmp_path / "many.csv").write_text("place,pace,step\n0.5,-0.4,1\n900,0,0\n")
    (tmp_path / "many.ndjson").write_text(
        '{"observation": [0.5, -0.4], "step": 1}\n{"observation": [900, 0], "step": 0}\n'
    )
    for file in ("many.csv", "many.ndjson"):
        assert reticent(root, "policy", "act", run, "--batch", tmp_path / file) == 0
        found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert found[0]["action"] == one["action"] and found[1]["cut"] and found[1]["outside"]
        assert abs(found[1]["action"][0]) == pytest.approx(1.0)
    for wrong in (
        ("--observation", "0.5", "--step", 1),
        ("--observation", "0.5,0.5", "--step", 4),
        ("--observation", "0.5,nan", "--step", 0),
        ("--state", "x", "--step", 0),
        ("--observation", "0.5,0.5"),
    ):
        assert reticent(root, "policy", "act", run, *wrong) == 2, wrong


def test_inspect_shows_rows_rules_and_what_is_cut(tmp_path, capfd):
    log = [*rows(60), ("far", 0, 0, "9", "0", "3", ""), ("odd", 0, 0, "x", "0", "0.1", "")]
    lay_out_plant(tmp_path / "shop", log=log)
    assert reticent(tmp_path, "ingest", tmp_path / "shop") == 0
    capfd.readouterr()
    assert reticent(tmp_path, "inspect", tmp_path / "shop", "--json") == 0
    seen = json.loads(capfd.readouterr().out)
    assert seen["rows"] == 241 and seen["users"] == 61 and seen["shares"]["shortened"] == pytest.approx(1 / 241)
    broken = {r["rule"]: r["rows"] for r in seen["rules"]}
    assert broken == {"closing_row": 60, "unparsable": 1, "beyond_radius": 1}
    assert seen["vectors"]["action"]["longer_than"]["1"] == pytest.approx(1 / 241)
    assert any(w["code"] == "people_declared_and_counted" for w in seen["warnings"])
    assert reticent(tmp_path, "inspect", tmp_path / "shop") == 0
    assert "OPERATOR ONLY" in capfd.readouterr().out


def test_canaries_of_the_log_stand_nowhere_outside_the_store(tmp_path, capfd):
    log = [*rows(40), *(row for found in ODD.values() for row in found)]
    shop = lay_out_plant(tmp_path / "shop", kind="real", ledger="ledger.db", log=log)
    for verb in (
        ["register", shop],
        ["ingest", shop],
        ["plan", shop / "private.toml"],
        ["run", shop / "private.toml", "--json"],
        ["ledger", "verify", "--card", shop],
    ):
        assert reticent(tmp_path, *verb) == 0, verb
    [run] = (tmp_path / "home" / "runs").iterdir()
    for verb in (["report", run.name], ["policy", "show", run.name], ["ledger", "verify", run.name, "--card", shop]):
        assert reticent(tmp_path, *verb) == 0, verb
    said = capfd.readouterr()
    assert_nowhere_but_in_the_store(tmp_path, said.out + said.err, (WORD, USER), NUMBER)


def test_zero_noise_is_lqr(plant, silent, tmp_path):
    """The private run with noise of 0 and no floor is the baseline, to the last bit."""
    shop, home = lay_out_plant(tmp_path / "shop"), home_at(tmp_path / "home")
    ingest_job(str(shop), home)
    for name, (agent, rest) in (("zero", RECIPES["private"]), ("base", ("lqr", ""))):
        text = f'[recipe]\nname = "{name}"\ncard = "card.toml"\nagent = "{agent}"\n{rest}\n[lq]\nfloor = 0.0\n'
        (shop / f"{name}.toml").write_text(text)
    found = [run_job(str(shop / f"{n}.toml"), home) for n in ("zero", "base")]
    np.testing.assert_array_equal(*(policy_of(Path(r["folder"])).gains for r in found))
    assert found[0]["value"]["estimate"] == found[1]["value"]["estimate"]


def test_a_scale_edited_in_policy_json_is_noticed(plant, tmp_path):
    """Gains mean nothing without their scales: the certificate digests both."""
    runs = plant.runs
    copy = shutil.copytree(runs["private"]["folder"], tmp_path / runs["private"]["run"])
    told = json.loads((copy / "policy.json").read_text())
    told["observation"]["scale"] = [100 * x for x in told["observation"]["scale"]]
    (copy / "policy.json").write_text(json.dumps(told))
    assert [c.what for c in wrong_of(copy, plant.home.root)] == ["sha256 of policy.json"]
