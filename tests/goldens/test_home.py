"""(a) A home that an older version made: it verifies, replays for nothing, and its counters go on."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.goldens.adapter import said
from tests.goldens.answers import CONTROL, COUNT, LINEAR
from tests.goldens.places import HOME, copied, names_a_machine
from tests.goldens.shelf import NEXT, NIGHTS

RUNS = sorted(p.name for p in (HOME / "runs").iterdir() if p.is_dir())
# recipe -> its run
COMMITTED = {"shop/count": COUNT, "shop/linear": LINEAR, "plant/control": CONTROL}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return copied(tmp_path / "home")


def lineages(home: Path) -> dict:
    return {d["name"]: d for d in said(home, "ledger", "show")["datasets"]}


def last_of(kind: str) -> Path:
    facts = {p: json.loads((p / "report.json").read_text()) for p in (HOME / "runs").glob(f"{kind}-*")}
    return max(facts, key=lambda p: facts[p]["counter"]["night"])


def test_the_committed_home_is_whole_and_names_no_machine():
    assert not [*HOME.glob("ledger.db-*"), *(p for p in HOME.rglob("*") if p.is_symlink())]
    assert len(RUNS) == 10
    assert not names_a_machine(HOME)


def test_the_chain_verifies_and_nothing_the_store_has_seen_is_lacking(home):
    assert said(home, "ledger", "verify") == {"ok": True, "entries": 27, "problem": None}


@pytest.mark.parametrize("run", RUNS)
def test_every_certificate_is_recomputed(home, run):
    proof = said(home, "ledger", "verify", run)
    assert proof["ok"] and proof["run"] == run
    assert not [c for c in proof["checks"] if c["ok"] is False]


@pytest.mark.parametrize("recipe", COMMITTED)
def test_a_committed_release_is_replayed_for_nothing(home, recipe):
    before, run = lineages(home), COMMITTED[recipe]
    answer = said(home, "run", home / "shelf" / f"{recipe}.toml")
    assert answer["replayed"] is True and answer["run"] == run
    assert lineages(home) == before
    lineage = json.loads((HOME / "runs" / run / "report.json").read_text())["dataset"]["name"]
    assert answer["ledger"]["spent_rho"] == before[lineage]["spent_rho"]
    for file in ("release.parquet", "release.json", "policy.parquet", "recipe.toml"):
        assert (home / "runs" / run / file).read_bytes() == (HOME / "runs" / run / file).read_bytes(), file
    assert said(home, "ledger", "verify", run)["ok"]


@pytest.mark.parametrize("kind", NIGHTS)
def test_the_last_night_is_replayed_for_nothing(home, kind):
    before, last = lineages(home), last_of(kind)
    recipe = home / "shelf" / kind / f"{kind}.toml"
    answer = said(home, "run", recipe, "--night", f"2024-01-0{NIGHTS[kind][-1]}")
    assert answer["replayed"] is True and answer["run"] == last.name
    assert answer["counter"]["night"] == NIGHTS[kind][-1]
    assert lineages(home) == before
    there = home / "runs" / last.name
    assert (there / "release.parquet").read_bytes() == (last / "release.parquet").read_bytes()


@pytest.mark.parametrize("kind", NIGHTS)
def test_one_more_night_is_appended_at_its_declared_price(home, kind):
    before, folder, night = lineages(home), home / "shelf" / kind, NEXT[kind]
    kept = next((home / "store" / f"golden_{kind}" / "counters").iterdir())
    files = {p.name: p.read_bytes() for p in kept.iterdir()}
    shutil.copyfile(folder / f"night-{night}.csv", folder / "log.csv")
    said(home, "ingest", folder)
    answer = said(home, "run", folder / f"{kind}.toml", "--night", f"2024-01-0{night}")
    assert answer["replayed"] is False
    assert (answer["counter"]["night"], answer["counter"]["nights"]) == (night, 8)
    after, name = lineages(home), f"golden_{kind}"
    # the first night paid for all
    assert after[name]["spent_rho"] == before[name]["spent_rho"] == answer["ledger"]["spent_rho"]
    assert [e["rho"] for e in after[name]["entries"]] == [e["rho"] for e in before[name]["entries"]] + [0.0]
    assert before[name]["entries"][0]["rho"] == before[name]["spent_rho"]
    assert {n: d for n, d in after.items() if n != name} == {n: d for n, d in before.items() if n != name}
    # what was kept of earlier nights stays, byte for byte
    assert {n: (kept / n).read_bytes() for n in files} == files
    assert said(home, "ledger", "verify")["ok"] and said(home, "ledger", "verify", answer["run"])["ok"]


@pytest.mark.parametrize("kind", NIGHTS)
def test_who_was_counted_is_known(home, kind):
    """The same delivery again adds nobody: the kept hashes tell, and the leaf of the next night is empty."""
    folder, night = home / "shelf" / kind, NEXT[kind]
    kept = next((home / "store" / f"golden_{kind}" / "counters").iterdir())
    before = {p.name for p in kept.iterdir()}
    said(home, "ingest", folder)
    said(home, "run", folder / f"{kind}.toml", "--night", f"2024-01-0{night}")
    fresh = {p.name.split("-")[0]: p for p in kept.iterdir() if p.name not in before}
    assert set(fresh) == {"leaf", "seen", "rows", "note"}
    assert np.load(fresh["leaf"]).size == 0 and np.load(fresh["seen"]).size == 0
