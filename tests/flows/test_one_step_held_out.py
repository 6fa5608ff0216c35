"""A one-step policy that other people confirm and measure: one charge, five stages, a replay, the verifier."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.config.home import Home
from flows.jobs.run import run_recipe
from pipeline.declaration.card import CardError
from pipeline.ledger.ledger import open_ledger
from pipeline.statistics.held_out import held_out_loss
from pipeline.transaction.transaction import Transaction
from tests.flows.shop import rows
from tests.flows.test_held_out_run import HELD, call, shop, told, write

__all__ = ["shop"]
PEOPLE = 3000
ONE_STEP = {"agent": "dp-one-step", "privacy": "[privacy]\nrho = 4.0"}


@pytest.fixture(scope="module")
def published(shop):
    return call(shop, "run", write(shop, "one_step", **ONE_STEP))["run"]


def test_the_policy_is_the_confirmed_one_and_people_say_what_it_is_worth(shop, published):
    found = told(shop, published)["evaluation"]
    assert found["estimator"] == "one-step-dr"
    sales = sum(r[5] for r in rows(PEOPLE)) / PEOPLE
    assert found["practice"]["lower"] < sales < found["practice"]["upper"]
    names = [d["name"] for d in found["diagnostics"]]
    assert any("confirm" in name for name in names)
    assert found["calibrated"] is False, "coverage was measured for other sizes"


def test_one_entry_pays_for_five_stages_and_the_verifier_finds_the_same(shop, published):
    ledger = open_ledger(Home(shop / "home").root / "ledger.db", create=False)
    intent = [e for e in ledger.entries() if e.kind == "INTENT"][-1]
    joint = intent.body["joint"]
    parts = [joint[part] for part in ("learn", "evaluate")]
    assert Fraction(intent.body["rho"]) == max(
        *(Fraction(p["rho_exact"]) for p in parts), sum(Fraction(p["rho_add_remove"]) for p in parts)
    )
    assert Fraction(39, 10) < Fraction(intent.body["rho"]) <= 4
    done = CliRunner().invoke(app, ["--home", str(shop / "home"), "ledger", "verify", published])
    assert done.exit_code == 0, done.output
    again = call(shop, "run", shop / "one_step.toml")
    assert again["replayed"] and again["run"] == published


def test_a_ledger_that_charges_only_one_half_is_caught(shop, published):
    folder = shop / "home" / "runs" / published
    release = json.loads((folder / "release.json").read_text())
    from pipeline.privacy.release_file import read_release

    mechanisms = read_release(folder).mechanisms
    assert held_out_loss(mechanisms, release["joint"]) == Fraction(release["joint"]["rho_exact"])
    half = {**release["joint"], "evaluate": {**release["joint"]["evaluate"], "sums": []}}
    with pytest.raises(ValueError, match="no part"):
        held_out_loss(mechanisms, half)


def test_stages_are_drawn_in_order(shop, monkeypatch):
    seen, stage = [], Transaction.stage

    def watched(self, name, draw):
        seen.append(name)
        return stage(self, name, draw)

    monkeypatch.setattr(Transaction, "stage", watched)
    run_recipe(str(write(shop, "staged", agent="dp-one-step", privacy="[privacy]\nrho = 5.0")), Home(shop / "home"))
    assert seen == [
        "value of practice",
        "gain of actions",
        "rows that follow",
        "moments of features",
        "values of people",
    ]


def test_without_noise_the_evaluation_is_exact(shop):
    found = told(shop, call(shop, "run", write(shop, "bare_step", agent="one-step", privacy=""))["run"])["evaluation"]
    assert found["noise_variance"] == 0
    assert found["improvement"]["lower"] > 0, "a call sells to the warm"


def test_too_little_signal_is_refused_before_anything_is_charged(shop):
    with pytest.raises(CardError, match=r"nothing is measured beside the noise"):
        run_recipe(str(write(shop, "faint", agent="dp-one-step", more=HELD)), Home(shop / "home"))
