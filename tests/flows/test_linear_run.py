"""``run`` with a linear agent on a log: what is particular to it; the rest is in test_regression_runs.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from reticent import Store
from tests.flows.test_side_outputs import reticent
from tests.jobs import policy_of, run_job


@pytest.mark.parametrize("name", ["linear", "halves", "printed", "once"])
def test_what_an_adaptive_planner_will_ask_is_in_its_charge(linear, name):
    key = json.loads((linear.folder(name) / "certificate.json").read_text())["ledger"]["run_key"]
    entries = linear.ledger.entries()
    charged = next(e.body for e in entries if e.kind == "INTENT" and e.body["run_key"] == key)
    planned = charged.get("planned_calls")
    assert (planned is None) == (name == "once")
    if planned is not None:
        assert all({"name", "sensitivity", "adaptive", "rho"} <= set(c) for c in planned)
        assert charged["planner"]["constants"]["C"] == 0.1


def test_the_files_hold_weights_sums_and_decisions(linear):
    folder = linear.folder("halves")
    policy, release = pq.read_table(folder / "policy.parquet"), pq.read_table(folder / "release.parquet")
    assert policy.column_names == ["step", "index", "weight"]
    assert release.column_names[0] == "table" and {"row", "col", "value"} <= set(release.column_names)
    assert {"gram_D", "target_D", "n_0"} <= set(release["table"].to_pylist())
    told = json.loads((folder / "policy.json").read_text())
    d, H = told["dimension"], told["horizon"]
    assert len(policy) == H * (d + d * (d + 1) // 2)
    w = policy["weight"].to_numpy().reshape(H, -1)
    phi = np.array(told["features"]["integers"]) * told["unit"]
    inverse, upper = np.zeros((H, d, d)), np.triu_indices(d)
    inverse[:, upper[0], upper[1]] = inverse[:, upper[1], upper[0]] = w[:, d:]
    found = policy_of(folder).policy.probabilities
    for h in range(H):
        width = told["multiplier"][h] * np.sqrt(((phi @ inverse[h]) * phi).sum(-1)) + told["constant"][h]
        Q = np.clip(phi @ w[h, :d] + told["offset"][h] - width, *told["clip"][h])
        # the vetoed pair is never chosen, whatever it promises
        Q[0, 2] = -np.inf
        assert (np.take_along_axis(Q, found[h].argmax(-1)[:, None], 1)[:, 0] == Q.max(-1)).all()
    assert (found[:, 0, 2] == 0).all()


def test_the_report_says_what_kind_of_value_it_is(linear):
    for name, has_upper in (("linear", False), ("once", True)):
        facts = json.loads((linear.folder(name) / "report.json").read_text())
        assert (facts["value"]["upper"] is not None) == has_upper == (facts["value"]["upper_flag"] is None)
        assert facts["value"]["status"] == "modelled" and ("uniform" in facts["model_baselines"]) == has_upper
        assert "Together they cost" in (linear.folder(name) / "report.md").read_text()


def test_a_table_of_another_name_is_named_by_the_verifier(linear, tmp_path):
    folder = shutil.copytree(linear.folder("once"), tmp_path / linear.folder("once").name)
    facts = json.loads((folder / "certificate.json").read_text())
    next(m for m in facts["mechanisms"] if m["table"] == "target")["table"] = "goal"
    (folder / "certificate.json").write_text(json.dumps(facts))
    problems = {c.what: c.found for c in Store(linear.home.root).open(str(folder)).verify().checks}
    found = problems["the joint loss, recomputed from scales and declarations"]
    assert found == "tables of no linear release: ['goal', 'gram']"


def test_a_policy_that_cannot_be_read_is_named_by_the_verifier(linear, tmp_path):
    folder = shutil.copytree(linear.folder("once"), tmp_path / linear.folder("once").name)
    (folder / "policy.json").write_text("{")
    assert "no readable policy.json" in (Store(linear.home.root).open(str(folder)).verify().problem or "")


@pytest.mark.parametrize("verb", [("report",), ("policy", "show"), ("policy", "act", "--state", "warm", "--step", "1")])
def test_the_verbs_of_a_run_read_its_decisions(linear, verb, capfd):
    run = linear.runs["linear"]["run"]
    words = [*verb[:2], run, *verb[2:]] if len(verb) > 1 else [*verb, run]
    assert reticent(linear.home.root.parent, *words) == 0, capfd.readouterr()


def test_zero_noise_is_vapvi(linear, silent):
    """The private run with noise of 0 differs from the baseline in nothing but the shift its scales ask for."""
    shop, home = linear.shop, linear.home
    wide = "[privacy]\nrho = 1.0\n[linear]\nridge = 0.02"
    for name, agent, rest in (("zero", "dp-vapvi", wide), ("base", "vapvi", "[linear]\nridge = 0.02")):
        (shop / f"{name}.toml").write_text(
            f'[recipe]\nname = "{name}"\ncard = "card.toml"\nagent = "{agent}"\n{rest}\n'
        )
    found = {n: run_job(str(shop / f"{n}.toml"), home) for n in ("zero", "base")}
    same = [policy_of(Path(r["folder"])).policy.probabilities for r in found.values()]
    np.testing.assert_array_equal(*same)
    assert found["zero"]["value"]["lower"] == found["base"]["value"]["lower"]
