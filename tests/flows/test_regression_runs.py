"""``run`` with any regression on a log: charged first, replayed for nothing, certified; and no side outputs."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import pipeline.learners.linear_request
import pipeline.learners.lq
from flows.config.home import Home
from pipeline.ledger.ledger import Ledger
from pipeline.logs.regression_sums import LqSummation
from pipeline.mdp.riccati import QuadraticCost, clip_norm, riccati
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise
from pipeline.privacy.release_file import read_release
from reticent import BudgetError, CardError, Store
from tests.flows.office import edit
from tests.flows.shop import bare_recipe, contents, same_key
from tests.flows.test_side_outputs import RECORDS, Clock, assert_nowhere_but_in_the_store, published, reticent, rows
from tests.jobs import (
    home_at,
    ingest_job,
    ledger_in,
    ledger_of,
    plan_job,
    policy_of,
    proof_of,
    register_job,
    run_job,
    wrong_of,
)
from tests.learners import linear_shop, lq_shop
from tests.learners.lq_shop import NUMBER, ODD, USER, WORD, A, B, lay_out_plant


@dataclass(frozen=True)
class Family:
    """Agents of one kind: their shop, its recipes by what they are good for, and the code that reads and draws.

    ``free`` replays the first of ``runs`` that asks once; ``costly`` is a release of its own.
    """

    lay_out: Callable[..., Path]
    lineage: str
    planned: tuple[str, ...]
    runs: tuple[str, ...]
    exact: tuple[str, ...]
    second: str
    free: str
    costly: str
    reads: tuple[Any, str]
    draws: tuple[Any, str]


LINEAR = Family(
    linear_shop.lay_out_linear,
    "shop",
    ("linear", "halves", "printed", "once"),
    tuple(n for n in linear_shop.RECIPES if n not in ("other", "once_more")),
    ("exact_linear", "exact_pevi", "exact_once"),
    "once",
    "once_more",
    "other",
    (pipeline.learners.linear_request, "tally"),
    (pipeline.learners.linear_request, "draw_linear"),
)
LQ = Family(
    lq_shop.lay_out_plant,
    "plant",
    ("private", "asked"),
    ("private", "asked", "exact"),
    ("exact",),
    "wider",
    "ridged",
    "wider",
    (LqSummation, "add"),
    (pipeline.learners.lq, "draw_lq"),
)
FAMILIES = {"linear": LINEAR, "plant": LQ}


@dataclass(frozen=True)
class Ran:
    """What was planned and run in one home."""

    family: Family
    shop: Path
    home: Home
    plans: dict[str, Any]
    runs: dict[str, Any]

    @property
    def ledger(self) -> Ledger:
        return ledger_of(self.home)

    def folder(self, name: str) -> Path:
        return Path(self.runs[name]["folder"])


def made(family: Family, root: Path) -> Ran:
    shop, home = family.lay_out(root / "shop"), Home(root / "home")
    ingest_job(str(shop), home)
    plans = {n: plan_job(str(shop / f"{n}.toml"), home) for n in family.planned}
    return Ran(family, shop, home, plans, {n: run_job(str(shop / f"{n}.toml"), home) for n in family.runs})


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return made(LINEAR, tmp_path_factory.mktemp("linear"))


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return made(LQ, tmp_path_factory.mktemp("plant"))


@pytest.fixture(params=list(FAMILIES))
def ran(request: pytest.FixtureRequest) -> Ran:
    """Both in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of 0, without what its listed scales ask for: a shift, and how much evidence an action needs."""
    monkeypatch.setattr(OsNoise, "gaussian", lambda self, size, variance, data: np.zeros(size, dtype=np.int64))
    monkeypatch.setattr("pipeline.agents.linear_backup.shift_of", lambda *a: 0.0)
    monkeypatch.setattr("pipeline.learners.linear_request.floor", lambda *a: 10.0)


Edits = dict[str, tuple[str, Callable[[Any], Any], str]]


def facts(run, name="report"):
    return json.loads((Path(run["folder"]) / f"{name}.json").read_text())


def test_an_honest_run_passes_every_check(ran):
    for name in ran.runs:
        checks = proof_of(ran.folder(name), ran.shop).checks
        assert all(c.ok for c in checks), (name, checks)
        assert any("joint loss" in c.what for c in checks)


def test_the_plan_is_what_was_charged_and_certified(ran):
    for name, plan in ran.plans.items():
        proof = facts(ran.runs[name], "certificate")
        key = proof["ledger"]["run_key"]
        charged = next(e for e in ran.ledger.entries() if e.kind == "INTENT" and e.body["run_key"] == key)
        assert charged.body["rho"] == proof["rho_exact"] == proof["joint"]["rho_exact"] == plan["joint"]["rho_exact"]
        assert sum(Fraction(m["rho_exact"]) for m in proof["mechanisms"]) >= Fraction(proof["rho_exact"])


def test_a_replay_writes_the_same_bytes_and_spends_nothing(ran):
    first, lineage = ran.family.runs[0], ran.family.lineage
    folder, recipe = ran.folder(first), str(ran.shop / f"{first}.toml")
    before, spent = contents(folder), ran.ledger.account(lineage).spent
    assert run_job(recipe, ran.home)["replayed"] and contents(folder) == before
    assert reticent(ran.home.root.parent, "report", folder.name) == 0 and contents(folder) == before
    assert ran.ledger.account(lineage).spent == spent
    assert plan_job(recipe, ran.home)["replays"]


def test_planning_again_is_free_and_another_mechanism_is_a_new_charge(ran):
    """Constants are part of what an adaptive planner asks, and free on what was asked once."""
    assert run_job(str(ran.shop / f"{ran.family.free}.toml"), ran.home)["replayed"]
    costly = str(ran.shop / f"{ran.family.costly}.toml")
    assert not plan_job(costly, ran.home)["replays"]
    assert not run_job(costly, ran.home)["replayed"]


def both_smaller(facts):
    facts["joint"]["rho_exact"] = facts["rho_exact"] = "1/3"


EDITS: Edits = {
    "a smaller joint cost": ("certificate.json", lambda f: f["joint"].update(rho_exact="1/3"), "recomputed"),
    "both smaller": ("certificate.json", both_smaller, "joint loss"),
    "no joint bound": ("certificate.json", lambda f: f.pop("joint"), "recomputed"),
    "more noise": ("certificate.json", lambda f: f["mechanisms"][0].update(variance=10**25), "same mechanisms"),
}
OWN_EDITS: dict[str, Edits] = {
    "linear": {
        "other features": ("policy.json", lambda f: f["features"]["integers"][0][0].__setitem__(0, 0), "joint loss"),
        "more episodes": ("certificate.json", lambda f: f["joint"].update(episodes=2), "joint loss"),
    },
    "plant": {
        # gains mean nothing without their scales: the certificate digests both
        "another scale": ("policy.json", lambda f: f["observation"].update(scale=[100, 200]), "sha256 of policy.json"),
        "rows cut elsewhere": ("policy.json", lambda f: f.update(bounds=[9.0, 1.0, 1.4]), "joint loss"),
        "fewer episodes": ("certificate.json", lambda f: f["joint"].update(horizon=2), "joint loss"),
        "a coarser lattice": ("certificate.json", lambda f: f["joint"].update(steps=4), "joint loss"),
    },
}


@pytest.mark.parametrize(
    ("ran", "what"), [(f, what) for f in FAMILIES for what in EDITS | OWN_EDITS[f]], indirect=["ran"]
)
def test_every_edit_of_a_run_is_caught(ran, tmp_path, what):
    family = "linear" if ran.family is LINEAR else "plant"
    honest = ran.folder(ran.family.runs[0])
    folder = shutil.copytree(honest, tmp_path / honest.name)
    file, change, named = (EDITS | OWN_EDITS[family])[what]
    edit(folder / file, change)
    wrong = wrong_of(folder, ran.home.root)
    assert any(named in c.what for c in wrong) and all(c.found for c in wrong), wrong


@pytest.fixture(params=list(FAMILIES))
def people(request, tmp_path):
    family = FAMILIES[request.param]
    shop, home = family.lay_out(tmp_path / "shop", kind="real", ledger="ledger.db", cap=2.5), home_at(tmp_path / "home")
    register_job(str(shop), home)
    ingest_job(str(shop), home)
    return family, shop, home


def spent(family, shop) -> Fraction:
    return ledger_in(shop).account(family.lineage).spent


def test_real_people_get_operating_system_noise_or_nothing_is_read(people, monkeypatch):
    family, shop, home = people
    monkeypatch.setattr(*family.reads, lambda *_, **__: pytest.fail("rows were read"))
    seeded = {"noise": SeededNoise(0)}
    asked = [*((name, {}) for name in family.exact), (family.planned[0], seeded), (family.second, seeded)]
    for name, more in asked:
        with pytest.raises(RealDataError):
            run_job(str(shop / f"{name}.toml"), home, **more)
    assert spent(family, shop) == 0


def test_the_charge_is_on_disk_before_a_row_is_read_and_a_cap_stops_it(people, monkeypatch):
    family, shop, home = people
    first = shop / f"{family.planned[0]}.toml"
    read, seen = getattr(*family.reads), []

    def watched(*args, **kwargs):
        seen.append(spent(family, shop))
        return read(*args, **kwargs)

    monkeypatch.setattr(*family.reads, watched)
    result = run_job(str(first), home)
    assert result["guarantee"]["claim"] == "differential privacy for the people in the log" and "truth" not in result
    run_job(str(shop / f"{family.second}.toml"), home)
    assert len(seen) == 2 and seen[0] > Fraction(99, 100)
    (shop / "greedy.toml").write_text(first.read_text().replace("rho = 1.0", "rho = 2.4"))
    with pytest.raises(BudgetError, match="Nothing was read"):
        run_job(str(shop / "greedy.toml"), home)
    assert len(seen) == 2


def test_a_draw_that_dies_stays_spent_and_a_finished_one_is_committed_later(people, dies_at):
    family, shop, home = people
    recipe, lines = str(shop / f"{family.planned[0]}.toml"), []
    with dies_at("pipeline.ledger.ledger.Ledger.commit"):
        run_job(recipe, home)
    assert run_job(recipe, home, say=lines.append)["replayed"]
    assert any("recovered after a crash: committed" in line for line in lines) and spent(family, shop) <= 1


WRONG = {
    "linear": {
        "no features": ("dp-vapvi", "[privacy]\nrho = 1.0", r"\[features\] is missing"),
        "pure": ("dp-vapvi", "[privacy]\nepsilon = 1.0", "Gaussian"),
        "no budget": ("dp-one-shot", "", r"\[privacy\] is missing"),
        "a budget for nothing": ("pevi", "[privacy]\nrho = 1.0", "use agent = 'dp-vapvi'"),
        "counts": ("dp-apvi", "[privacy]\nrho = 1.0\n[linear]\nC = 1", "belongs to linear agents"),
        "beta": ("vapvi", "[linear]\nbeta = 1", "belongs to pevi"),
        "halves at once": ("one-shot", "[linear]\nhalves = true", "asks once"),
        "printed": ("dp-vapvi", '[privacy]\nrho = 1.0\ncalibration = "paper"', "targets = 'paper'"),
        "the fast sampler": ("dp-vapvi", '[privacy]\nrho = 1.0\nsampler = "table"', "count tables"),
    },
    "plant": {
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
    },
}


@pytest.mark.parametrize(("family", "what"), [(f, what) for f in FAMILIES for what in WRONG[f]])
def test_a_recipe_that_cannot_be_says_why(tmp_path, family, what):
    agent, rest, told = WRONG[family][what]
    shop = FAMILIES[family].lay_out(tmp_path / "shop")
    if what == "no features":
        card = shop / "card.toml"
        card.write_text(card.read_text().partition("[features]")[0])
    with pytest.raises(CardError, match=told):
        plan_job(str(bare_recipe(shop, "wrong", agent, rest)), home_at(tmp_path / "home"))


PAIRS = (("linear", "all steps"), ("once", "labels outside the domain"), ("halves", "many episodes"))
NEIGHBOURS = [("linear", recipe, RECORDS[record]) for recipe, record in PAIRS]
NEIGHBOURS += [
    pytest.param("plant", "private", record, marks=() if name in ("far away", "many episodes") else pytest.mark.slow)
    for name, record in lq_shop.ODD.items()
]


def log_of(family: str, record: list[Any]) -> list[Any]:
    """A log with one person's record in its middle, or at its end."""
    if family == "plant":
        return [*lq_shop.rows(40), *record]
    others, at = rows(120), len(rows(60))
    return [*others[:at], *record, *others[at:]]


# by family and recipe: what was drawn without the record, published and said
ALONE: dict[tuple[str, str], Any] = {}


@pytest.mark.parametrize(("family", "recipe", "record"), NEIGHBOURS)
def test_every_published_byte_is_the_same_for_neighbours(
    tmp_path, monkeypatch, constants, capfd, family, recipe, record
):
    """The release of the second run is made that of the first, as if its noise had fallen so."""
    constants(clock=Clock)
    kind = FAMILIES[family]
    original = getattr(*kind.draws)

    def ran(root, odd, wanted=None):
        drawn = []
        shop = kind.lay_out(root / "shop", kind="real", ledger="ledger.db", log=log_of(family, odd))
        same_key(root / "home" / "store")
        assert reticent(root, "register", shop) == reticent(root, "ingest", shop) == 0
        capfd.readouterr()

        def settled(asked, found, noise):
            drawn.append(original(asked, found, noise))
            return drawn[-1] if wanted is None else wanted

        monkeypatch.setattr(*kind.draws, settled)
        assert reticent(root, "run", shop / f"{recipe}.toml") == 0
        out = capfd.readouterr()
        released = read_release(next((root / "home" / "runs").iterdir()))
        [found] = drawn
        return found, released, published(root), (out.out + out.err).replace(str(root), "ROOT")

    if (family, recipe) not in ALONE:
        ALONE[family, recipe] = ran(tmp_path / "a", [])
    first, released, pages, said = ALONE[family, recipe]
    other, _, beside, told = ran(tmp_path / "b", record, released)
    assert any((first.tables[t] != other.tables[t]).any() for t in first.tables)
    assert pages.keys() == beside.keys() and len(pages) == (10 if family == "linear" else 9)
    assert not [name for name in pages if pages[name] != beside[name]]
    assert said == told


@pytest.mark.parametrize("name", ["linear", "halves", "printed", "once"])
def test_what_an_adaptive_planner_will_ask_is_in_its_charge(linear, name):
    key = facts(linear.runs[name], "certificate")["ledger"]["run_key"]
    charged = next(e.body for e in linear.ledger.entries() if e.kind == "INTENT" and e.body["run_key"] == key)
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
        told = facts(linear.runs[name])
        assert (told["value"]["upper"] is not None) == has_upper == (told["value"]["upper_flag"] is None)
        assert told["value"]["status"] == "modelled" and ("uniform" in told["model_baselines"]) == has_upper
        assert "Together they cost" in (linear.folder(name) / "report.md").read_text()


def test_a_table_of_another_name_and_a_policy_that_cannot_be_read_are_named_by_the_verifier(linear, tmp_path):
    folder = shutil.copytree(linear.folder("once"), tmp_path / linear.folder("once").name)
    goal = lambda f: next(m for m in f["mechanisms"] if m["table"] == "target").update(table="goal")  # noqa: E731
    edit(folder / "certificate.json", goal)
    verified = lambda: Store(linear.home.root).open(str(folder)).verify()  # noqa: E731
    problems = {c.what: c.found for c in verified().checks}
    found = problems["the joint loss, recomputed from scales and declarations"]
    assert found == "tables of no linear release: ['goal', 'gram']"
    (folder / "policy.json").write_text("{")
    assert "no readable policy.json" in (verified().problem or "")


def test_the_verbs_of_a_run_read_its_decisions(linear, capfd):
    run = linear.runs["linear"]["run"]
    for words in (("report", run), ("policy", "show", run), ("policy", "act", run, "--state", "warm", "--step", 1)):
        assert reticent(linear.home.root.parent, *words) == 0, capfd.readouterr()


@pytest.mark.parametrize(
    ("ran", "private", "base", "rest", "value"),
    [
        ("linear", "dp-vapvi", "vapvi", "[linear]\nridge = 0.02", "lower"),
        ("plant", "dp-lqr", "lqr", "[lq]\nfloor = 0.0", "estimate"),
    ],
    indirect=["ran"],
)
def test_zero_noise_is_the_baseline(ran, silent, private, base, rest, value):
    """A private run with noise of 0, no floor and no shift for its scales is the baseline, to the last bit."""
    asked = (("zero", private, f"[privacy]\nrho = 0.5\n{rest}"), ("base", base, rest))
    found = [run_job(str(bare_recipe(ran.shop, *recipe)), ran.home) for recipe in asked]
    policies = [policy_of(Path(r["folder"])) for r in found]
    np.testing.assert_array_equal(*(p.gains if ran.family is LQ else p.policy.probabilities for p in policies))
    assert found[0]["value"][value] == found[1]["value"][value]


@pytest.mark.parametrize(("name", "loss", "asked"), [("private", "rho", 1.0), ("asked", "epsilon", 4.0)])
def test_both_sums_are_listed_and_the_budget_is_used_up(plant, name, loss, asked):
    proof = facts(plant.runs[name], "certificate")
    tables = [[m["table"] for m in told["mechanisms"]] for told in (proof, plant.plans[name])]
    assert tables == [["gram", "target"]] * 2
    # bounded jointly, they cost less than their sum
    assert sum(Fraction(m["rho_exact"]) for m in proof["mechanisms"]) > Fraction(proof["rho_exact"])
    assert 0.999 * asked < plant.runs[name]["guarantee"][loss] <= asked * (1 + 1e-6)


def test_the_files_hold_sums_and_gains_that_anybody_can_recompute(plant):
    folder = plant.folder("private")
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
    constants = facts(plant.runs["private"])["constants"]
    found, along = np.linalg.eigh(G)
    assert constants["raised"] == (found < constants["floor"]).sum()
    raised = along @ np.diag(found.clip(constants["floor"])) @ along.T
    theta = np.linalg.solve(raised + np.eye(3), X).T * np.array([1.4, 1.4, 1.4])
    cost = QuadraticCost(np.eye(2), 0.1 * np.eye(1), 4)
    # |u| <= 1 wherever |x| <= 2
    wanted = clip_norm(riccati(theta[:, :2], theta[:, 2:], cost)[0], 0.5)
    np.testing.assert_allclose(gains, wanted, rtol=1e-9, atol=1e-12)


def test_without_noise_the_true_plant_is_found(plant):
    run = plant.runs["exact"]
    model = facts(run)["model"]
    assert np.abs(np.array(model["A"]) - A).max() < 0.05 and np.abs(np.array(model["B"]) - B).max() < 0.05
    assert run["guarantee"]["rho"] is None and "simulation-not-private" in run["run"]


def test_the_report_says_what_was_learnt_and_what_its_value_is_worth(plant):
    told, page = facts(plant.runs["private"]), (plant.folder("private") / "report.md").read_text()
    assert told["value"]["status"] == "modelled" and told["value"]["upper"] is None and told["value"]["gap"] is None
    assert told["value"]["lower"] == told["value"]["lower_trivial"] == pytest.approx(-4 * (4 + 0.1))
    assert told["policy"]["left_zero"] and "truth" not in told
    for words in ("linear controller", "place", "pace", "Doing nothing", "not a guarantee", "Together they cost"):
        assert words in page
    html = (plant.folder("private") / "report.html").read_text()
    assert 'id="guarantee"' in html and "<svg" in html and 'src="http' not in html


def test_the_verbs_of_a_run_read_its_gains(plant, tmp_path, capfd):
    root, run = plant.home.root.parent, plant.runs["private"]["run"]
    gains = policy_of(plant.folder("private")).gains
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
    lines = '{"observation": [0.5, -0.4], "step": 1}\n{"observation": [900, 0], "step": 0}\n'
    (tmp_path / "many.ndjson").write_text(lines)
    for file in ("many.csv", "many.ndjson"):
        assert reticent(root, "policy", "act", run, "--batch", tmp_path / file) == 0
        found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert found[0]["action"] == one["action"] and found[1]["outside"]
        # the gain is released: noise may bring it near 0, and then nothing is cut
        far = abs(gains[0, 0, 0] * 900)
        assert found[1]["cut"] is bool(far > 1) and abs(found[1]["action"][0]) == pytest.approx(min(far, 1.0))
    for wrong in (
        ("--observation", "0.5", "--step", 1),
        ("--observation", "0.5,0.5", "--step", 4),
        ("--observation", "0.5,nan", "--step", 0),
        ("--state", "x", "--step", 0),
        ("--observation", "0.5,0.5"),
    ):
        assert reticent(root, "policy", "act", run, *wrong) == 2, wrong


def test_inspect_shows_rows_rules_and_what_is_cut(tmp_path, capfd):
    log = [*lq_shop.rows(60), ("far", 0, 0, "9", "0", "3", ""), ("odd", 0, 0, "x", "0", "0.1", "")]
    lay_out_plant(tmp_path / "shop", log=log)
    assert reticent(tmp_path, "ingest", tmp_path / "shop") == 0
    capfd.readouterr()
    assert reticent(tmp_path, "inspect", tmp_path / "shop", "--json") == 0
    seen = json.loads(capfd.readouterr().out)
    assert seen["rows"] == 241 and seen["users"] == 61 and seen["shares"]["shortened"] == pytest.approx(1 / 241)
    assert {r["rule"]: r["rows"] for r in seen["rules"]} == {"closing_row": 60, "unparsable": 1, "beyond_radius": 1}
    assert seen["vectors"]["action"]["longer_than"]["1"] == pytest.approx(1 / 241)
    assert any(w["code"] == "people_declared_and_counted" for w in seen["warnings"])
    assert reticent(tmp_path, "inspect", tmp_path / "shop") == 0
    assert "OPERATOR ONLY" in capfd.readouterr().out


def test_canaries_of_the_log_stand_nowhere_outside_the_store(tmp_path, capfd):
    log = [*lq_shop.rows(40), *(row for found in ODD.values() for row in found)]
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
