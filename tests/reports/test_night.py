"""Pages that a server shows: what is on them, and that labels cannot be markup."""

from __future__ import annotations

import pytest

from reports.run.comparison import log_page, simulation_page, slug, study_page
from reticent import LogOptions, Store, simulate
from tests.flows.shop import lay_out
from tests.flows.test_playing import RECIPE
from tests.jobs import home_at, nightly_job, page_of, simulate_logs


@pytest.fixture
def home(tmp_path):
    return home_at(tmp_path / "home")


def test_a_night_is_told_with_loss_value_budget_and_what_is_in_use(tmp_path, home):
    shop = lay_out(tmp_path / "shop")
    result = nightly_job(str(shop / "private.toml"), home)
    page = page_of(result)
    assert page.key == "night-private" and page.file.name == "report.html"
    for told in ("ε = 7.767", "charged ρ = 1", "snapshot 1"):
        assert told in page.markdown
    assert "nothing is in use yet" in page.markdown and page.rows == result["night"]["charges"]
    held = {**result["promotion"], "held": ["it [abstains](http://x) more"], "promoted": False}
    assert "**not promoted**: it \\[abstains\\]" in page_of({**result, "promotion": held}).markdown
    again = page_of(nightly_job(str(shop / "private.toml"), home)).markdown
    assert f"due on {result['night']['due']}; nothing was charged; that release stands" in again


def test_simulations_logs_and_studies_have_pages_of_their_own(tmp_path, home):
    (tmp_path / "controls.toml").write_text(RECIPE)
    played = simulation_page(simulate(tmp_path / "controls.toml", store=Store(home.root)))
    assert "regret" in played.markdown and "not private" in played.markdown and played.file.name == "report.html"
    log = log_page(simulate_logs("riverswim", LogOptions(episodes=50, name="tiny"), home))
    assert log.key == "log-tiny" and "50 simulated episodes" in log.markdown and log.file.name == "card.toml"
    study = {"name": "003-figure-1a", "claims": [{"claim": "a < b", "holds": False}], "files": ["/x/page.html"]}
    assert "**no**: a &lt; b" in study_page(study).markdown and study_page(study).key == "study-003-figure-1a"


def test_a_key_is_what_prefect_wants():
    assert slug("night-Two_step/GAME ü") == "night-two-step-game"
