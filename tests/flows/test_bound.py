"""A bound is of a log that was made as those of the measurement: world, behaviour, number, digest, and planner code."""

from __future__ import annotations

import csv
import json

import pytest

from pipeline.learners import tabular_facts
from pipeline.learners.tabular_facts import setting_key
from pipeline.worlds.simulated_logs import write_record
from reticent import load_card, load_recipe
from tests.flows.office import reticent
from tests.flows.shop import lay_out
from tests.jobs import facts_of, home_at, ingest_job, ledger_of, run_job

pytestmark = pytest.mark.usefixtures("unread")


@pytest.fixture
def measured(tmp_path):
    """A shop of made-up people with a containment row and a record that fit each other."""
    folder, home = lay_out(tmp_path / "people"), home_at(tmp_path / "home")
    recipe = folder / "private.toml"
    card = load_card(folder / "card.toml")
    row = setting_key(card, load_recipe(recipe).terms) | {"draws": "100", "inside": "100"}
    with (folder / "containment.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    write_record(folder, row["world"], row["behaviour"], 1, int(row["n"]), [folder / "log.csv"])
    ingest_job(str(folder), home)
    return folder, home


def status(folder, home) -> str:
    return run_job(str(folder / "private.toml"), home)["value"]["status"]


def test_it_is_a_bound_its_ledger_says_how_the_log_was_made_and_it_is_made_again(measured):
    folder, home = measured
    assert status(folder, home) == "bound"
    run = next((home.runs).iterdir())
    made = facts_of(run).made
    assert made is not None and made.episodes == 400
    published = [e for e in ledger_of(home).entries() if e.kind == "PUBLISH"]
    assert published[-1].body["made"] == made.model_dump()
    code, told = reticent(folder.parent, "ledger", "verify", run.name)
    assert code == 0 and all(check["ok"] for check in told["checks"]), told


def other_log(folder) -> None:
    """Another policy's log under the same card: a tenth of the people."""
    lines = (folder / "log.csv").read_text().splitlines(keepends=True)
    (folder / "log.csv").write_text("".join(lines[: len(lines) // 10]))


def record(text: str, **changes):
    """Writes another record of how the log was made."""

    def change(folder) -> None:
        file = folder / "generated.json"
        file.write_text(text or json.dumps(json.loads(file.read_text()) | changes))

    return change


@pytest.mark.parametrize(
    "change",
    [
        other_log,
        record("", behaviour="another"),
        record("", episodes=40),
        pytest.param(record("[]"), marks=pytest.mark.slow),
        pytest.param(lambda folder: (folder / "generated.json").unlink(), marks=pytest.mark.slow),
    ],
    ids=["log", "behaviour", "episodes", "no record", "none"],
)
def test_with_any_other_log_under_the_same_card_it_is_none(measured, change):
    folder, home = measured
    change(folder)
    ingest_job(str(folder), home)
    assert status(folder, home) == "modelled"


def test_with_other_planner_code_it_is_none(measured, monkeypatch):
    folder, home = measured
    monkeypatch.setattr(tabular_facts, "syntax_digest", lambda _: "0" * 64)
    assert status(folder, home) == "modelled"
