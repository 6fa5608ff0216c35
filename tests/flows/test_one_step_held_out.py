"""A one-step policy that other people confirm and measure: one charge, five stages, a replay, the verifier."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from flows.config.home import Home
from flows.config.recipe import load_recipe
from flows.config.setting import Setting
from flows.jobs.run import run_recipe
from pipeline.declaration.card import CardError, load_card
from pipeline.ledger.ledger import open_ledger
from pipeline.statistics.held_out import held_out_loss
from pipeline.transaction.release_once import key_of
from pipeline.transaction.transaction import Transaction
from tests.flows.shop import rows
from tests.flows.test_held_out_run import HELD, call, shop, told, write
from tests.flows.verb import invoke

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
    done = invoke("--home", shop / "home", "ledger", "verify", published)
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


def key_of_run(folder, **recipe):
    card = load_card(folder / "card.toml")
    found = load_recipe(write(folder, "asked", **ONE_STEP, **recipe))
    return key_of(card, 1, Setting(found, card, Home(folder / "home")).plan)


@pytest.mark.parametrize("more", ["pessimism = 3.0", "support = 8.0", "floor = 0.4"])
def test_another_policy_is_another_question_to_the_people_who_evaluate(shop, more):
    """What chooses the policy decides what other people are asked: their answers do not serve for another one."""
    assert key_of_run(shop, more=f"[one_step]\n{more}\n{HELD}") != key_of_run(shop)
    alone, other = (key_of_run(shop, more=f"[one_step]\n{more}" if found else "") for found in (False, True))
    assert alone == other, "where nobody evaluates, it is free"


def test_another_veto_is_another_question_too(shop, tmp_path):
    (tmp_path / "card.toml").write_text((shop / "card.toml").read_text().replace('"cold", "call"', '"warm", "call"'))
    assert key_of_run(tmp_path) != key_of_run(shop)
