"""A log of 93 real people, fetched by ``make real-data`` (.ci/run does); never shipped, so absent in a bare clone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flows.jobs import ingest_job, register_job, run_job
from flows.shelf import Home
from pipeline.ledger.chain import BudgetError

SHELF = Path(__file__).resolve().parents[2] / "datasets" / "two_step_game"
LOG = SHELF / "data" / "model_based_model_free.csv"

pytestmark = pytest.mark.skipif(not LOG.is_file(), reason="the log of real people is fetched by `make real-data`")


@pytest.fixture
def game(tmp_path):
    folder = tmp_path / "two_step_game"
    folder.mkdir()
    shutil.copy(SHELF / "card.toml", folder)
    shutil.copytree(SHELF / "data", folder / "data")
    recipe = SHELF.parents[1] / "flows" / "recipes" / "two_step_game.toml"
    for rho in ("0.3", "1.0", "3.0", "0.9"):
        text = (
            recipe.read_text()
            .replace('card = "two_step_game"', 'card = "card.toml"')
            .replace("rho = 1.0", f"rho = {rho}")
        )
        (folder / f"rho-{rho}.toml").write_text(text)
    return folder


def test_real_people_get_a_policy_a_promise_and_a_budget_that_holds(tmp_path, game):
    home = Home(tmp_path / "home")
    register_job(str(game), home)
    s = ingest_job(str(game), home)
    assert (s["users"], s["rows"], s["quarantined"]["over_cap"]) == (93, 93 * 80, 8001 - 93 * 80)
    spent = 0.0
    for rho in (0.3, 1.0, 3.0):
        r = run_job(str(game / f"rho-{rho}.toml"), home)
        assert rho * 0.99 < r["guarantee"]["rho"] <= rho and r["guarantee"]["claim"].startswith("differential privacy")
        assert "truth" not in r and r["value"]["status"] == "estimate"
        assert 0 <= r["value"]["lower"] < r["value"]["upper"] <= 9
        spent += r["guarantee"]["rho"]
        assert r["ledger"]["spent_rho"] == pytest.approx(spent)
    with pytest.raises(BudgetError, match="left"):
        run_job(str(game / "rho-0.9.toml"), home)
    facts = json.loads((Path(r["folder"]) / "report.json").read_text())
    assert facts["guarantee"]["noise"] == "os" and facts["guarantee"]["data_kind"] == "real"
    words = "".join(p.read_text() for p in Path(r["folder"]).glob("*.[hjm]*"))
    assert "7440" not in words and "7,440" not in words and "over_cap" not in words
