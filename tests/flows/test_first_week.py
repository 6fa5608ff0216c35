"""What a team stumbles over in its first week says what is wrong, and costs nothing."""

from __future__ import annotations

import pytest

from reticent import BudgetError, Store
from tests.flows.shop import lay_out
from tests.flows.verb import invoke
from tests.jobs import home_at, ingest_job, inspect_job, proof_of, register_job, run_job

pytestmark = pytest.mark.usefixtures("unread")

WIDE = """
schema_version = 1
name = "visits"
kind = "real"
[unit]
user = "patient"
users_public = 300
[domain]
horizon = 2
states = { column = "visit{step}_state", labels = ["mild", "severe"], ends = ["end"] }
actions = { column = "visit{step}_drug", labels = ["none", "low"] }
[reward]
range = [0.0, 1.0]
[source]
layout = "wide"
files = ["visits.csv"]
columns = { user_id = "patient", reward = "visit{step}_outcome" }
[budget]
rho = 2.0
ledger = "ledger.db"
"""


@pytest.fixture
def visits(tmp_path):
    folder = tmp_path / "visits"
    folder.mkdir()
    (folder / "card.toml").write_text(WIDE)
    head = "patient,visit1_state,visit1_drug,visit1_outcome,visit2_state,visit2_drug,visit2_outcome"
    lines = [f"p{i},mild,{'low' if i % 3 else 'none'},0,severe,low,{i % 2}" for i in range(300)]
    (folder / "visits.csv").write_text("\n".join([head, *lines]) + "\n")
    recipe = '[recipe]\nname = "visits"\ncard = "card.toml"\nagent = "dp-apvi"\n[privacy]\nrho = 0.5\n'
    (folder / "recipe.toml").write_text(recipe)
    return folder


@pytest.fixture
def home(tmp_path, visits):
    """The home in which they are registered and ingested."""
    register_job(str(visits), found := home_at(tmp_path / "home"))
    ingest_job(str(visits), found)
    return found


def test_a_wide_log_can_be_looked_at(visits, home):
    facts = inspect_job(str(visits), home)
    assert facts["rows"] == 600 and "hidden_state" in facts


def test_a_last_step_that_would_count_nowhere_is_said_at_ingest(tmp_path, visits):
    card, found = visits / "card.toml", []
    for ends in (', ends = ["end"]', ""):
        card.write_text(card.read_text().replace(', ends = ["end"]', ends))
        found.append("ends = ['end']" in invoke("--home", tmp_path / "home", "ingest", visits).stderr)
    assert found == [False, True]


def test_labels_that_fit_no_row_are_told_before_they_cost_a_budget(tmp_path, visits):
    card = visits / "card.toml"
    card.write_text(card.read_text().replace('labels = ["mild", "severe"]', "labels = 2"))
    problem = ingest_job(str(visits), home_at(tmp_path / "home"))["problem"]
    assert problem is not None and "not one of 300 rows is left (most broke unknown_label" in problem


def test_a_lost_ledger_is_said_by_every_verb_and_none_is_begun(visits, home):
    run_job(str(visits / "recipe.toml"), home)
    (visits / "ledger.db").unlink()
    for verb in (
        lambda: run_job(str(visits / "recipe.toml"), home),
        lambda: register_job(str(visits), home),
        lambda: inspect_job(str(visits), home),
    ):
        with pytest.raises(BudgetError, match="gone, but this store has seen its entry 6"):
            verb()
    assert not (visits / "ledger.db").exists()


def test_another_ledger_than_the_runs_own_does_not_make_the_run_look_damaged(tmp_path, visits, home):
    folder = home.runs / run_job(str(visits / "recipe.toml"), home)["run"]
    shop = lay_out(tmp_path / "shop")
    ingest_job(str(shop), home)
    run_job(str(shop / "private.toml"), home)
    other = Store(home.root).open(folder.name).verify()
    assert other.ok and not other.vouched
    assert [c.found for c in other.checks if c.ok is None] == [
        "no ledger of visits at hand; a real dataset has its own: name its card with --card",
        "no ledger of it is at hand",
    ]
    mine = proof_of(folder, visits)
    assert mine.vouched and all(c.ok for c in mine.checks)
