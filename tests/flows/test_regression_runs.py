"""``run`` with any regression on a log: charged first, replayed for nothing, certified; and no side outputs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from pipeline.privacy.noise import RealDataError, SeededNoise
from pipeline.privacy.release_file import read_release
from reticent import BudgetError, CardError
from tests.flows.conftest import FAMILIES, LINEAR
from tests.flows.same_key import same_key
from tests.flows.test_side_outputs import RECORDS, Clock, published, reticent, rows
from tests.jobs import home_at, ingest_job, ledger_in, plan_job, proof_of, register_job, run_job, wrong_of
from tests.learners import lq_shop

Edits = dict[str, tuple[str, Callable[[Any], Any], str]]


def test_an_honest_run_passes_every_check(ran):
    for name in ran.runs:
        checks = proof_of(ran.folder(name), ran.shop).checks
        assert all(c.ok for c in checks), (name, checks)
        assert any("joint loss" in c.what for c in checks)


def test_the_plan_is_what_was_charged_and_certified(ran):
    for name, plan in ran.plans.items():
        proof = json.loads((ran.folder(name) / "certificate.json").read_text())
        key = proof["ledger"]["run_key"]
        charged = next(e for e in ran.ledger.entries() if e.kind == "INTENT" and e.body["run_key"] == key)
        assert charged.body["rho"] == proof["rho_exact"] == proof["joint"]["rho_exact"] == plan["joint"]["rho_exact"]
        assert sum(Fraction(m["rho_exact"]) for m in proof["mechanisms"]) >= Fraction(proof["rho_exact"])


def test_a_replay_writes_the_same_bytes_and_spends_nothing(ran):
    first, lineage = ran.family.runs[0], ran.family.lineage
    folder, recipe = ran.folder(first), str(ran.shop / f"{first}.toml")
    before, spent = {p.name: p.read_bytes() for p in folder.iterdir()}, ran.ledger.account(lineage).spent
    assert run_job(recipe, ran.home)["replayed"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert reticent(ran.home.root.parent, "report", folder.name) == 0
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert ran.ledger.account(lineage).spent == spent
    assert plan_job(recipe, ran.home)["replays"]


def test_planning_again_is_free_and_another_mechanism_is_a_new_charge(ran):
    """Constants are part of what an adaptive planner asks, and free on what was asked once."""
    assert run_job(str(ran.shop / f"{ran.family.free}.toml"), ran.home)["replayed"]
    costly = str(ran.shop / f"{ran.family.costly}.toml")
    assert not plan_job(costly, ran.home)["replays"]
    assert not run_job(costly, ran.home)["replayed"]


EDITS: Edits = {
    "a smaller joint cost": ("certificate.json", lambda f: f["joint"].update(rho_exact="1/3"), "recomputed"),
    "both smaller": (
        "certificate.json",
        lambda f: (f["joint"].update(rho_exact="1/3"), f.update(rho_exact="1/3")),
        "joint loss",
    ),
    "no joint bound": ("certificate.json", lambda f: f.pop("joint"), "recomputed"),
    "more noise": ("certificate.json", lambda f: f["mechanisms"][0].update(variance=10**25), "same mechanisms"),
}
OWN_EDITS: dict[str, Edits] = {
    "linear": {
        "other features": ("policy.json", lambda f: f["features"]["integers"][0][0].__setitem__(0, 0), "joint loss"),
        "more episodes": ("certificate.json", lambda f: f["joint"].update(episodes=2), "joint loss"),
    },
    "plant": {
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
    facts = json.loads((folder / file).read_text())
    change(facts)
    (folder / file).write_text(json.dumps(facts))
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
    for name in family.exact:
        with pytest.raises(RealDataError):
            run_job(str(shop / f"{name}.toml"), home)
    for name in (family.planned[0], family.second):
        with pytest.raises(RealDataError):
            run_job(str(shop / f"{name}.toml"), home, noise=SeededNoise(0))
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
    (shop / "wrong.toml").write_text(f'[recipe]\nname = "w"\ncard = "card.toml"\nagent = "{agent}"\n{rest}\n')
    with pytest.raises(CardError, match=told):
        plan_job(str(shop / "wrong.toml"), home_at(tmp_path / "home"))


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
