"""Logs of real people, fetched by ``make real-data`` (.ci/run does); never shipped, so absent in a bare clone."""

import json
import shutil
from pathlib import Path

import pytest

from reticent import BudgetError
from tests.jobs import home_at, ingest_job, ledger_in, register_job, run_job

ROOT = Path(__file__).resolve().parents[2]
# people; rounds kept; rounds dropped by the cap; rounds dropped because they were missed
LOGS = {
    "two_step_game": (93, 93 * 80, 8001 - 93 * 80, 0),
    "two_step_adults": (24, 24 * 40, 3360 - 23 - 24 * 40, 23),
    "two_step_chance": (11, 11 * 100, 2190 - 11 * 100, 0),
}


def needs(name):
    return pytest.mark.skipif(
        not list((ROOT / "datasets" / name / "data").glob("*.csv")),
        reason="the logs of real people are fetched by `make real-data`",
    )


def copied(name, folder):
    shutil.copytree(ROOT / "datasets" / name, folder, ignore=shutil.ignore_patterns("ledger"))
    return folder


def recipe(name, folder, rho):
    text = (ROOT / "flows" / "recipes" / f"{name}.toml").read_text()
    text = text.replace(f'card = "{name}"', 'card = "card.toml"').replace("rho = 1.0", f"rho = {rho}")
    path = folder / f"rho-{rho}.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs(n)) for n in LOGS])
def test_real_people_get_a_policy_a_promise_and_a_report(tmp_path, name):
    folder, home = copied(name, tmp_path / name), home_at(tmp_path / "home")
    register_job(str(folder), home)
    people, kept, beyond, missed = LOGS[name]
    s = ingest_job(str(folder), home)
    assert (s["users"], s["episodes"], s["rows"]) == (people, kept, 2 * kept)
    assert s["quarantined"].get("over_cap", 0) == beyond
    assert s["quarantined"].get("unknown_label", 0) == missed
    r = run_job(recipe(name, folder, 1.0), home)
    assert 0.99 < r["guarantee"]["rho"] <= 1
    assert r["guarantee"]["claim"].startswith("differential privacy") and r["guarantee"]["noise"] == "os"
    assert "truth" not in r and r["value"]["status"] == "modelled"
    assert r["value"]["lower_trivial"] <= r["value"]["lower"] < r["value"]["upper"] <= r["value"]["upper_trivial"]
    words = "".join(p.read_text() for p in Path(r["folder"]).glob("*.[hjm]*"))
    assert not [n for n in (f"{2 * kept}", f"{2 * kept:,}", "over_cap") if n in words]
    # the rules that the gate counts under noise are the card's own, whatever was set aside
    assert words.count("unknown_label") == words.count("unparsable, unknown_label") > 0
    facts = json.loads((Path(r["folder"]) / "report.json").read_text())
    assert facts["dataset"]["horizon"] == 2 and facts["guarantee"]["data_kind"] == "real"


@needs("two_step_game")
@pytest.mark.usefixtures("settled")
def test_the_budget_holds_and_the_cap_of_rounds_changes_by_amending_only(tmp_path):
    # four gates of two rules each: fresh, one run in five thousand would be stopped by noise alone
    folder, home = copied("two_step_game", tmp_path / "game"), home_at(tmp_path / "home")
    register_job(str(folder), home)
    ingest_job(str(folder), home)
    spent = 0.0
    for rho in (0.3, 1.0, 3.0):
        r = run_job(recipe("two_step_game", folder, rho), home)
        spent += r["guarantee"]["rho"]
        assert r["ledger"]["spent_rho"] == pytest.approx(spent)
    with pytest.raises(BudgetError, match="left"):
        run_job(recipe("two_step_game", folder, 0.9), home)
    card = folder / "card.toml"
    card.write_text(card.read_text().replace("episodes_per_user = 80", "episodes_per_user = 10"))
    with pytest.raises(Exception, match="amend"):
        run_job(recipe("two_step_game", folder, 0.5), home)
    register_job(str(folder), home, amend=True)
    assert ingest_job(str(folder), home)["episodes"] == 93 * 10
    r = run_job(recipe("two_step_game", folder, 0.5), home)
    spent += r["guarantee"]["rho"]
    ledger = ledger_in(folder / "ledger")
    assert float(ledger.account("two_step_game").spent) == pytest.approx(spent)
    assert [e.kind for e in ledger.entries("two_step_game")].count("AMEND") == 1
