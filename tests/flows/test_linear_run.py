"""``run`` with a linear agent on a log: charged first, replayed for nothing, certified; and no side outputs."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import pipeline.learners.linear as drawing_module
from flows.config.home import Home
from flows.jobs.ingest import ingest_job
from flows.jobs.plan import plan_job
from flows.jobs.run import register_job, run_job
from pipeline.declaration.card import CardError
from pipeline.learners.registry import read_stored
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.ledger import open_ledger
from pipeline.ledger.verify import verify_run
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise
from pipeline.privacy.release_file import read_release
from tests.flows.same_key import same_key
from tests.flows.test_side_outputs import RECORDS, Clock, published, reticent, rows
from tests.learners.linear_shop import RECIPES, lay_out_linear

PRIVATE = ("linear", "halves", "printed", "once")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    root = tmp_path_factory.mktemp("linear")
    shop, home = lay_out_linear(root / "shop"), Home(root / "home")
    ingest_job(str(shop), home)
    plans = {n: plan_job(str(shop / f"{n}.toml"), home) for n in PRIVATE}
    runs = {n: run_job(str(shop / f"{n}.toml"), home) for n in RECIPES if n not in ("other", "once_more")}
    return shop, home, plans, runs


def entries(home):
    return open_ledger(home.root / "ledger.db", create=False).entries()


@pytest.mark.parametrize("name", [n for n in RECIPES if n not in ("other", "once_more")])
def test_an_honest_linear_run_passes_every_check(ran, name):
    _, home, _, runs = ran
    checks = verify_run(Path(runs[name]["folder"]), entries(home))
    assert all(c.ok for c in checks), checks
    assert any("joint loss" in c.what for c in checks)


@pytest.mark.parametrize("name", PRIVATE)
def test_the_plan_is_what_was_charged_and_certified(ran, name):
    _, home, plans, runs = ran
    proof = json.loads((Path(runs[name]["folder"]) / "certificate.json").read_text())
    charged = next(e for e in entries(home) if e.kind == "INTENT" and e.body["run_key"] == proof["ledger"]["run_key"])
    assert charged.body["rho"] == proof["rho_exact"] == proof["joint"]["rho_exact"] == plans[name]["joint"]["rho_exact"]
    assert sum(Fraction(m["rho_exact"]) for m in proof["mechanisms"]) >= Fraction(proof["rho_exact"])
    planned = charged.body.get("planned_calls")
    assert (planned is None) == (name == "once")
    if planned is not None:
        assert all({"name", "sensitivity", "adaptive", "rho"} <= set(c) for c in planned)
        assert charged.body["planner"]["constants"]["C"] == 0.1


def test_a_replay_writes_the_same_bytes_and_spends_nothing(ran):
    shop, home, _, runs = ran
    folder = Path(runs["linear"]["folder"])
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    spent = open_ledger(home.root / "ledger.db", create=False).account("shop").spent
    again = run_job(str(shop / "linear.toml"), home)
    assert again["replayed"] and {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert open_ledger(home.root / "ledger.db", create=False).account("shop").spent == spent
    assert plan_job(str(shop / "linear.toml"), home)["replays"]


def test_other_constants_are_a_new_charge_for_vapvi_and_free_for_the_one_shot_release(ran):
    shop, home, _, _ = ran
    assert run_job(str(shop / "once_more.toml"), home)["replayed"]
    assert not run_job(str(shop / "other.toml"), home)["replayed"]


def test_the_files_hold_weights_sums_and_decisions(ran):
    _, _, _, runs = ran
    folder = Path(runs["halves"]["folder"])
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
    found = read_stored(folder).policy.probabilities
    for h in range(H):
        width = told["multiplier"][h] * np.sqrt(((phi @ inverse[h]) * phi).sum(-1)) + told["constant"][h]
        Q = np.clip(phi @ w[h, :d] + told["offset"][h] - width, *told["clip"][h])
        # the vetoed pair is never chosen, whatever it promises
        Q[0, 2] = -np.inf
        assert (np.take_along_axis(Q, found[h].argmax(-1)[:, None], 1)[:, 0] == Q.max(-1)).all()
    assert (found[:, 0, 2] == 0).all()


def test_the_report_says_what_kind_of_value_it_is(ran):
    _, _, _, runs = ran
    for name, has_upper in (("linear", False), ("once", True)):
        facts = json.loads((Path(runs[name]["folder"]) / "report.json").read_text())
        assert (facts["value"]["upper"] is not None) == has_upper == (facts["value"]["upper_flag"] is None)
        assert facts["value"]["status"] == "modelled" and ("uniform" in facts["model_baselines"]) == has_upper
        assert "Together they cost" in (Path(runs[name]["folder"]) / "report.md").read_text()


@pytest.mark.parametrize("verb", [("report",), ("policy", "show"), ("policy", "act", "--state", "warm", "--step", "1")])
def test_the_verbs_of_a_run_read_its_decisions(ran, verb, capfd):
    _, home, _, runs = ran
    words = [*verb[:2], runs["linear"]["run"], *verb[2:]] if len(verb) > 1 else [*verb, runs["linear"]["run"]]
    assert reticent(home.root.parent, *words) == 0, capfd.readouterr()


EDITS = {
    "other features": ("policy.json", lambda f: f["features"]["integers"][0][0].__setitem__(0, 0), "joint loss"),
    "a smaller joint cost": ("certificate.json", lambda f: f["joint"].update(rho_exact="1/3"), "recomputed"),
    "both smaller": (
        "certificate.json",
        lambda f: (f["joint"].update(rho_exact="1/3"), f.update(rho_exact="1/3")),
        "joint loss",
    ),
    "more episodes": ("certificate.json", lambda f: f["joint"].update(episodes=2), "joint loss"),
    "no joint bound": ("certificate.json", lambda f: f.pop("joint"), "recomputed"),
    "more noise": ("certificate.json", lambda f: f["mechanisms"][0].update(variance=10**9), "same mechanisms"),
}


@pytest.mark.parametrize("what", EDITS)
def test_every_edit_of_a_linear_run_is_caught(ran, tmp_path, what):
    _, home, _, runs = ran
    folder = shutil.copytree(runs["linear"]["folder"], tmp_path / "run")
    file, change, named = EDITS[what]
    facts = json.loads((folder / file).read_text())
    change(facts)
    (folder / file).write_text(json.dumps(facts))
    wrong = [c for c in verify_run(folder, entries(home)) if c.ok is False]
    assert any(named in c.what for c in wrong) and all(c.found for c in wrong), wrong


@pytest.fixture
def people(tmp_path):
    shop, home = lay_out_linear(tmp_path / "shop", kind="real", ledger="ledger.db", cap=2.0), Home(tmp_path / "home")
    register_job(str(shop), home)
    ingest_job(str(shop), home)
    return shop, home


def test_real_people_get_operating_system_noise_or_nothing_is_read(people, monkeypatch):
    shop, home = people
    monkeypatch.setattr(drawing_module, "tally", lambda *a, **k: pytest.fail("rows were read"))
    for name in ("exact_linear", "exact_pevi", "exact_once"):
        with pytest.raises(RealDataError):
            run_job(str(shop / f"{name}.toml"), home)
    for name in ("linear", "once"):
        with pytest.raises(RealDataError):
            run_job(str(shop / f"{name}.toml"), home, noise=SeededNoise(0))
    assert open_ledger(shop / "ledger.db", create=False).account("shop").spent == 0


def test_the_charge_is_on_disk_before_a_row_is_read_and_a_cap_stops_it(people, monkeypatch):
    shop, home = people
    tally, seen = drawing_module.tally, []

    def watched(*args, **kwargs):
        seen.append(open_ledger(shop / "ledger.db", create=False).account("shop").spent)
        return tally(*args, **kwargs)

    monkeypatch.setattr(drawing_module, "tally", watched)
    run_job(str(shop / "linear.toml"), home)
    run_job(str(shop / "once.toml"), home)
    assert len(seen) == 2 and seen[0] > Fraction(99, 100)
    with pytest.raises(BudgetError, match="Nothing was read"):
        run_job(str(shop / "halves.toml"), home)
    assert len(seen) == 2


def test_a_draw_that_dies_stays_spent_and_a_finished_one_is_committed_later(people, monkeypatch):
    shop, home = people
    with monkeypatch.context() as m:
        m.setattr("pipeline.ledger.ledger.Ledger.commit", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_job(str(shop / "linear.toml"), home)
    lines = []
    assert run_job(str(shop / "linear.toml"), home, say=lines.append)["replayed"]
    assert any("recovered after a crash: committed" in line for line in lines)
    assert open_ledger(shop / "ledger.db", create=False).account("shop").spent <= 1


WRONG = {
    "no features": ("dp-vapvi", "[privacy]\nrho = 1.0", r"\[features\] is missing"),
    "pure": ("dp-vapvi", "[privacy]\nepsilon = 1.0", "Gaussian"),
    "no budget": ("dp-one-shot", "", r"\[privacy\] is missing"),
    "a budget for nothing": ("pevi", "[privacy]\nrho = 1.0", "use agent = 'dp-vapvi'"),
    "counts": ("dp-apvi", "[privacy]\nrho = 1.0\n[linear]\nC = 1", "belongs to linear agents"),
    "beta": ("vapvi", "[linear]\nbeta = 1", "belongs to pevi"),
    "halves at once": ("one-shot", "[linear]\nhalves = true", "asks once"),
    "printed": ("dp-vapvi", '[privacy]\nrho = 1.0\ncalibration = "paper"', "targets = 'paper'"),
    "the fast sampler": ("dp-vapvi", '[privacy]\nrho = 1.0\nsampler = "table"', "count tables"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_recipe_that_cannot_be_says_why(tmp_path, what):
    agent, rest, told = WRONG[what]
    shop = lay_out_linear(tmp_path / "shop")
    if what == "no features":
        card = shop / "card.toml"
        card.write_text(card.read_text().partition("[features]")[0])
    (shop / "wrong.toml").write_text(f'[recipe]\nname = "w"\ncard = "card.toml"\nagent = "{agent}"\n{rest}\n')
    with pytest.raises(CardError, match=told):
        plan_job(str(shop / "wrong.toml"), Home(tmp_path / "home"))


@pytest.mark.parametrize("recipe", ["linear", "once", "halves"])
@pytest.mark.parametrize("record", ["all steps", "labels outside the domain", "many episodes"])
def test_every_published_byte_is_the_same_for_neighbours(tmp_path, monkeypatch, capfd, recipe, record):
    """The release of the second run is made that of the first, as if its noise had fallen so."""
    import pipeline.ledger.ledger as ledger_module

    monkeypatch.setattr(ledger_module, "datetime", Clock)
    pages, said, first = [], [], None
    original = drawing_module.drawn
    for name, record_rows in (("a", []), ("b", RECORDS[record])):
        root = tmp_path / name
        log = [*rows(120)[: len(rows(60))], *record_rows, *rows(120)[len(rows(60)) :]]
        shop = lay_out_linear(root / "shop", kind="real", ledger="ledger.db", log=log)
        same_key(root / "home" / "store")
        assert reticent(root, "register", shop) == reticent(root, "ingest", shop) == 0
        capfd.readouterr()
        read = []

        def settled(request, tallied, noise, read=read, wanted=first):
            release = original(request, tallied, noise)
            read.append(int(tallied.tallies["both"].visits.sum()))
            return release if wanted is None else wanted

        monkeypatch.setattr(drawing_module, "drawn", settled)
        assert reticent(root, "run", shop / f"{recipe}.toml") == 0
        out = capfd.readouterr()
        said.append((out.out + out.err).replace(str(root), "ROOT"))
        pages.append(published(root))
        if first is None:
            first = read_release(next((root / "home" / "runs").iterdir()))
        assert read[0] > 0
    assert pages[0].keys() == pages[1].keys() and len(pages[0]) == 10
    assert not [name for name in pages[0] if pages[0][name] != pages[1][name]]
    assert said[0] == said[1]


def test_zero_noise_is_vapvi(ran, monkeypatch):
    """The private run with noise of 0 differs from the baseline in nothing but the shift its scales ask for."""
    shop, home, _, _ = ran
    wide = "[privacy]\nrho = 1.0\n[linear]\nridge = 0.02"
    for name, agent, rest in (("zero", "dp-vapvi", wide), ("base", "vapvi", "[linear]\nridge = 0.02")):
        (shop / f"{name}.toml").write_text(
            f'[recipe]\nname = "{name}"\ncard = "card.toml"\nagent = "{agent}"\n{rest}\n'
        )
    monkeypatch.setattr(OsNoise, "gaussian", lambda self, size, variance, data: np.zeros(size, dtype=np.int64))
    monkeypatch.setattr("pipeline.agents.linear_backup.shift_of", lambda *a: 0.0)
    found = {n: run_job(str(shop / f"{n}.toml"), home) for n in ("zero", "base")}
    same = [read_stored(Path(r["folder"])).policy.probabilities for r in found.values()]
    np.testing.assert_array_equal(*same)
    assert found["zero"]["value"]["lower"] == found["base"]["value"]["lower"]
