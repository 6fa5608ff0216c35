"""``run`` with dp-lqr on a log: charged first, replayed for nothing, certified, usable; and no side outputs."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import pipeline.learners.lq as drawing_module
from flows.config.home import Home
from flows.jobs.ingest import ingest_job
from flows.jobs.plan import plan_job
from flows.jobs.run import register_job, run_job
from pipeline.declaration.card import CardError
from pipeline.learners.registry import read_stored
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.ledger import open_ledger
from pipeline.ledger.verify import verify_run
from pipeline.logs.regression_sums import LqSums
from pipeline.mdp.riccati import QuadraticCost, clip_norm, riccati
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise
from pipeline.privacy.release_file import read_release
from tests.flows.same_key import same_key
from tests.flows.test_side_outputs import Clock, published, readable, reticent
from tests.learners.lq_shop import RECIPES, A, B, lay_out_plant, rows

FIRST = ("private", "asked", "exact")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    root = tmp_path_factory.mktemp("lq")
    shop, home = lay_out_plant(root / "shop"), Home(root / "home")
    ingest_job(str(shop), home)
    plans = {n: plan_job(str(shop / f"{n}.toml"), home) for n in FIRST}
    return shop, home, plans, {n: run_job(str(shop / f"{n}.toml"), home) for n in FIRST}


def entries(home):
    return open_ledger(home.root / "ledger.db", create=False).entries()


def facts(run, name="report"):
    return json.loads((Path(run["folder"]) / f"{name}.json").read_text())


@pytest.mark.parametrize("name", FIRST)
def test_an_honest_run_passes_every_check(ran, name):
    _, home, _, runs = ran
    checks = verify_run(Path(runs[name]["folder"]), entries(home))
    assert all(c.ok for c in checks), checks
    assert any("joint loss" in c.what for c in checks)


@pytest.mark.parametrize("name", ["private", "asked"])
def test_the_plan_is_what_was_charged_and_certified(ran, name):
    _, home, plans, runs = ran
    proof = facts(runs[name], "certificate")
    charged = next(e for e in entries(home) if e.kind == "INTENT" and e.body["run_key"] == proof["ledger"]["run_key"])
    assert charged.body["rho"] == proof["rho_exact"] == proof["joint"]["rho_exact"] == plans[name]["joint"]["rho_exact"]
    assert sum(Fraction(m["rho_exact"]) for m in proof["mechanisms"]) > Fraction(proof["rho_exact"])
    assert (
        [m["table"] for m in proof["mechanisms"]]
        == [m["table"] for m in plans[name]["mechanisms"]]
        == ["gram", "target"]
    )
    asked = 1.0 if name == "private" else 4.0
    assert 0.999 * asked < runs[name]["guarantee"]["rho" if name == "private" else "epsilon"] <= asked * (1 + 1e-6)


def test_a_replay_writes_the_same_bytes_and_spends_nothing(ran):
    shop, home, _, runs = ran
    folder = Path(runs["private"]["folder"])
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    spent = open_ledger(home.root / "ledger.db", create=False).account("plant").spent
    assert run_job(str(shop / "private.toml"), home)["replayed"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert reticent(home.root.parent, "report", folder.name) == 0
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert open_ledger(home.root / "ledger.db", create=False).account("plant").spent == spent
    assert plan_job(str(shop / "private.toml"), home)["replays"]


def test_planning_again_is_free_and_another_cut_is_a_new_charge(ran):
    shop, home, _, _ = ran
    assert run_job(str(shop / "ridged.toml"), home)["replayed"]
    assert not plan_job(str(shop / "wider.toml"), home)["replays"]
    assert not run_job(str(shop / "wider.toml"), home)["replayed"]


def test_the_files_hold_sums_and_gains_that_anybody_can_recompute(ran):
    _, _, _, runs = ran
    folder = Path(runs["private"]["folder"])
    policy, release = pq.read_table(folder / "policy.parquet"), pq.read_table(folder / "release.parquet")
    assert policy.column_names == ["step", "index", "weight"] and len(policy) == 4 * 2
    assert set(release["table"].to_pylist()) == {"gram", "target"} and release["step"].null_count == len(release)
    G, X = np.zeros((3, 3)), np.zeros((3, 2))
    for r in release.to_pylist():
        (G if r["table"] == "gram" else X)[r["row"], r["col"]] = r["value"] / 4096**2
    stored = read_stored(folder)
    told, gains = json.loads((folder / "policy.json").read_text()), stored.gains
    assert told["bounds"] == [1.0, 1.0, 1.4] and told["observation"]["names"] == ["place", "pace"]
    # a strong signal: no eigenvalue is raised, so this is plain ridge regression
    assert facts(runs["private"])["constants"]["raised"] == 0
    theta = np.linalg.solve(G + np.eye(3), X).T * np.array([1.4, 1.4, 1.4])
    cost = QuadraticCost(np.eye(2), 0.1 * np.eye(1), 4)
    # |u| <= 1 wherever |x| <= 2
    wanted = clip_norm(riccati(theta[:, :2], theta[:, 2:], cost)[0], 0.5)
    np.testing.assert_allclose(gains, wanted, rtol=1e-9, atol=1e-12)


def test_without_noise_the_true_plant_is_found(ran):
    _, _, _, runs = ran
    model = facts(runs["exact"])["model"]
    assert np.abs(np.array(model["A"]) - A).max() < 0.05 and np.abs(np.array(model["B"]) - B).max() < 0.05
    assert runs["exact"]["guarantee"]["rho"] is None and "simulation-not-private" in runs["exact"]["run"]


def test_the_report_says_what_was_learnt_and_what_its_value_is_worth(ran):
    _, _, _, runs = ran
    told, page = facts(runs["private"]), (Path(runs["private"]["folder"]) / "report.md").read_text()
    assert told["value"]["status"] == "modelled" and told["value"]["upper"] is None and told["value"]["gap"] is None
    assert told["value"]["lower"] == told["value"]["lower_trivial"] == pytest.approx(-4 * (4 + 0.1))
    assert told["policy"]["left_zero"] and "truth" not in told
    for words in ("linear controller", "place", "pace", "Doing nothing", "not a guarantee", "Together they cost"):
        assert words in page
    html = (Path(runs["private"]["folder"]) / "report.html").read_text()
    assert 'id="guarantee"' in html and "<svg" in html and 'src="http' not in html


def test_the_verbs_of_a_run_read_its_gains(ran, tmp_path, capfd):
    _, home, _, runs = ran
    root, run = home.root.parent, runs["private"]["run"]
    gains = read_stored(Path(runs["private"]["folder"])).gains
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


def test_compare_runs_lays_gains_side_by_side(ran, capfd):
    _, home, _, runs = ran
    assert reticent(home.root.parent, "compare-runs", runs["private"]["run"], runs["exact"]["run"], "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["gains"]["total"] == 8 and 0 < told["gains"]["differ"] == len(told["gains"]["rows"])
    assert told["gains"]["change"] > 0 and told["value"]["lower_gain"] is None


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


EDITS = {
    "rows cut elsewhere": ("policy.json", lambda f: f.update(bounds=[9.0, 1.0, 1.4]), "joint loss"),
    "a smaller joint cost": ("certificate.json", lambda f: f["joint"].update(rho_exact="1/3"), "recomputed"),
    "both smaller": (
        "certificate.json",
        lambda f: (f["joint"].update(rho_exact="1/3"), f.update(rho_exact="1/3")),
        "joint loss",
    ),
    "fewer episodes": ("certificate.json", lambda f: f["joint"].update(horizon=2), "joint loss"),
    "a coarser lattice": ("certificate.json", lambda f: f["joint"].update(steps=4), "joint loss"),
    "no joint bound": ("certificate.json", lambda f: f.pop("joint"), "recomputed"),
    "more noise": ("certificate.json", lambda f: f["mechanisms"][0].update(variance=10**25), "same mechanisms"),
}


@pytest.mark.parametrize("what", EDITS)
def test_every_edit_of_a_run_is_caught(ran, tmp_path, what):
    _, home, _, runs = ran
    folder = shutil.copytree(runs["private"]["folder"], tmp_path / "run")
    file, change, named = EDITS[what]
    told = json.loads((folder / file).read_text())
    change(told)
    (folder / file).write_text(json.dumps(told))
    wrong = [c for c in verify_run(folder, entries(home)) if c.ok is False]
    assert any(named in c.what for c in wrong) and all(c.found for c in wrong), wrong


@pytest.fixture
def people(tmp_path):
    shop = lay_out_plant(tmp_path / "shop", kind="real", ledger="ledger.db", cap=3.0)
    home = Home(tmp_path / "home")
    register_job(str(shop), home)
    ingest_job(str(shop), home)
    return shop, home


def test_real_people_get_operating_system_noise_or_nothing_is_read(people, monkeypatch):
    shop, home = people
    monkeypatch.setattr(LqSums, "add", lambda *_: pytest.fail("rows were read"))
    with pytest.raises(RealDataError):
        run_job(str(shop / "exact.toml"), home)
    with pytest.raises(RealDataError):
        run_job(str(shop / "private.toml"), home, noise=SeededNoise(0))
    assert open_ledger(shop / "ledger.db", create=False).account("plant").spent == 0


def test_the_charge_is_on_disk_before_a_row_is_read_and_a_cap_stops_it(people, monkeypatch):
    shop, home = people
    add, seen = LqSums.add, []

    def watched(*args):
        seen.append(open_ledger(shop / "ledger.db", create=False).account("plant").spent)
        add(*args)

    monkeypatch.setattr(LqSums, "add", watched)
    result = run_job(str(shop / "private.toml"), home)
    assert len(seen) == 1 and seen[0] > Fraction(99, 100)
    assert result["guarantee"]["claim"] == "differential privacy for the people in the log" and "truth" not in result
    run_job(str(shop / "wider.toml"), home)
    (shop / "greedy.toml").write_text((shop / "private.toml").read_text().replace("rho = 1.0", "rho = 2.5"))
    with pytest.raises(BudgetError, match="Nothing was read"):
        run_job(str(shop / "greedy.toml"), home)
    assert len(seen) == 2


def test_a_draw_that_dies_stays_spent_and_a_finished_one_is_committed_later(people, monkeypatch):
    shop, home = people
    with monkeypatch.context() as m:
        m.setattr("pipeline.ledger.ledger.Ledger.commit", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_job(str(shop / "private.toml"), home)
    lines = []
    assert run_job(str(shop / "private.toml"), home, say=lines.append)["replayed"]
    assert any("recovered after a crash: committed" in line for line in lines)


WRONG = {
    "pure": ("dp-lqr", "[privacy]\nepsilon = 1.0", "Gaussian"),
    "no budget": ("dp-lqr", "", r"\[privacy\] is missing"),
    "a budget for nothing": ("lqr", "[privacy]\nrho = 1.0", "use agent = 'dp-lqr'"),
    "counts": ("dp-apvi", "[privacy]\nrho = 1.0", "use agent dp-lqr or lqr"),
    "linear": ("dp-vapvi", "[privacy]\nrho = 1.0", "use agent dp-lqr or lqr"),
    "lq of others": ("dp-apvi", "[privacy]\nrho = 1.0\n[lq]\nridge = 1.0", "belongs to dp-lqr"),
    "linear of lq": ("dp-lqr", "[privacy]\nrho = 1.0\n[linear]\nC = 1.0", "has \\[lq\\]"),
    "printed": ("dp-lqr", '[privacy]\nrho = 1.0\ncalibration = "paper"', "do not apply"),
    "a wild lattice": ("dp-lqr", "[privacy]\nrho = 1e-9\n[lq]\nsteps = 1000000", "fewer lattice steps|coarser"),
    "a cut beyond the ball": ("dp-lqr", "[privacy]\nrho = 1.0\n[lq]\ncut = [1.5, 1.0]", "less than or equal to 1"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_recipe_that_cannot_be_says_why(tmp_path, what):
    agent, rest, told = WRONG[what]
    shop = lay_out_plant(tmp_path / "shop")
    (shop / "wrong.toml").write_text(f'[recipe]\nname = "w"\ncard = "card.toml"\nagent = "{agent}"\n{rest}\n')
    with pytest.raises(CardError, match=told):
        plan_job(str(shop / "wrong.toml"), Home(tmp_path / "home"))


# a number, a word and a user id that stand nowhere else
NUMBER, WORD, USER = "31415.92653", "kanarienvogel-4711", "u-schwalbe-0815"
RECORDS = {
    "too many steps": [(USER, 0, t, -1, 1, -1, "") for t in range(9)],
    "far away": [(USER, 0, t, NUMBER, NUMBER, NUMBER, "") for t in range(4)],
    "no numbers": [(USER, 0, 0, WORD, 0, 0, ""), (USER, 0, 1, "nan", "inf", "", "")],
    "many episodes": [(USER, e, t, 1, 0, 1, "") for e in range(7) for t in range(2)],
    "a line that is no row": [(USER, 0, 0, f'"{WORD}', 0, 0, ""), (USER, 0, 1, 1)],
}


@pytest.mark.parametrize("record", RECORDS)
def test_every_published_byte_is_the_same_for_neighbours(tmp_path, monkeypatch, capfd, record):
    """The release of the second run is made that of the first, as if its noise had fallen so."""
    import pipeline.ledger.ledger as ledger_module

    monkeypatch.setattr(ledger_module, "datetime", Clock)
    pages, said, first = [], [], None
    original = drawing_module.draw_lq
    for name, record_rows in (("a", []), ("b", RECORDS[record])):
        root = tmp_path / name
        shop = lay_out_plant(root / "shop", kind="real", ledger="ledger.db", log=[*rows(40), *record_rows])
        same_key(root / "home" / "store")
        assert reticent(root, "register", shop) == reticent(root, "ingest", shop) == 0
        capfd.readouterr()

        def settled(plan, found, noise, wanted=first):
            release = original(plan, found, noise)
            return release if wanted is None else wanted

        monkeypatch.setattr(drawing_module, "draw_lq", settled)
        assert reticent(root, "run", shop / "private.toml") == 0
        out = capfd.readouterr()
        said.append((out.out + out.err).replace(str(root), "ROOT"))
        pages.append(published(root))
        if first is None:
            first = read_release(next((root / "home" / "runs").iterdir()))
    assert pages[0].keys() == pages[1].keys() and len(pages[0]) == 9
    assert not [name for name in pages[0] if pages[0][name] != pages[1][name]]
    assert said[0] == said[1]


def test_canaries_of_the_log_stand_nowhere_outside_the_store(tmp_path, capfd):
    log = [*rows(40), *(row for found in RECORDS.values() for row in found)]
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
    files = [p for p in tmp_path.rglob("*") if p.is_file() and "store" not in p.parts and p.name != "log.csv"]
    texts = {str(p): readable(p) for p in files} | {"stdout and stderr": (said.out + said.err).encode()}
    for where, text in texts.items():
        for canary in (NUMBER, WORD, USER):
            assert canary.encode() not in text, (canary, where)
    stored = b"".join(readable(p) for p in (tmp_path / "home" / "store").rglob("*.parquet"))
    assert all(canary.encode() in stored for canary in (WORD, USER))


def test_zero_noise_is_lqr(ran, monkeypatch, tmp_path):
    """The private run with noise of 0 and no floor is the baseline, to the last bit."""
    shop, home = lay_out_plant(tmp_path / "shop"), Home(tmp_path / "home")
    ingest_job(str(shop), home)
    for name, (agent, rest) in (("zero", RECIPES["private"]), ("base", ("lqr", ""))):
        text = f'[recipe]\nname = "{name}"\ncard = "card.toml"\nagent = "{agent}"\n{rest}\n[lq]\nfloor = 0.0\n'
        (shop / f"{name}.toml").write_text(text)
    monkeypatch.setattr(OsNoise, "gaussian", lambda self, size, variance, data: np.zeros(size, dtype=np.int64))
    found = [run_job(str(shop / f"{n}.toml"), home) for n in ("zero", "base")]
    np.testing.assert_array_equal(*(read_stored(Path(r["folder"])).gains for r in found))
    assert found[0]["value"]["estimate"] == found[1]["value"]["estimate"]


def test_a_scale_edited_in_policy_json_is_noticed(ran, tmp_path):
    """Gains mean nothing without their scales: the certificate digests both."""
    _, home, _, runs = ran
    copy = tmp_path / "run"
    shutil.copytree(runs["private"]["folder"], copy)
    told = json.loads((copy / "policy.json").read_text())
    told["observation"]["scale"] = [100 * x for x in told["observation"]["scale"]]
    (copy / "policy.json").write_text(json.dumps(told))
    assert [c.what for c in verify_run(copy, entries(home)) if not c.ok] == ["sha256 of policy.json"]
