"""A gate before scheduled runs: one question, one answer, whatever comes after; and what is made again of it."""

from __future__ import annotations

import json
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest

from flows.config.recipe import nightly_counter, setting
from flows.jobs.proof import verify_run_job
from flows.server.recorded import StepError, quietly
from pipeline.transaction.continual_step import append_step
from pipeline.transaction.drawing import GateError
from reticent import CardError, LogError, load_card
from tests.flows.gated import Nights, Shop, typo
from tests.flows.shop import rows
from tests.jobs import plan_job, proof_of, run_job

pytestmark = pytest.mark.usefixtures("unread")


@pytest.mark.parametrize("nightly", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_scheduler_that_goes_on_for_ever_pays_for_one_answer(tmp_path, monkeypatch, nightly):
    shop = Nights(tmp_path, monkeypatch, nightly, log=typo(rows()))
    for night in range(1, 4):
        with pytest.raises(LogError, match="Only the gate"):
            shop.night(night, typo(rows(seed=night)))
    assert shop.spent == Fraction(1, 50)


def test_a_counter_begins_once_its_operator_asks_again_and_no_night_is_asked_after_that(tmp_path, monkeypatch):
    shop = Nights(tmp_path, monkeypatch, log=typo(rows()))
    with pytest.raises(LogError, match="Only the gate"):
        shop.night(1)
    shop.on(2)
    shop.ingest(rows())
    first = shop.run()
    proof = json.loads((Path(first["folder"]) / "certificate.json").read_text())
    assert Fraction(proof["rho_exact"]) == shop.spent - Fraction(1, 50) <= 1 and "gate" in proof
    assert all(c.ok for c in proof_of(Path(first["folder"]), shop.folder).checks)
    # later nights name the same gate, ask none, and take what comes
    third = shop.night(3, typo(rows(seed=7)))
    assert shop.spent == Fraction(proof["rho_exact"]) + Fraction(1, 50) and third["exit"] == 3
    again = json.loads((Path(third["folder"]) / "certificate.json").read_text())
    assert again["gate"] == proof["gate"] and again["rho_exact"] == proof["rho_exact"]
    assert all(c.ok for c in proof_of(Path(third["folder"]), shop.folder).checks)


def test_a_counter_of_before_there_were_gates_goes_on_without_one(tmp_path, monkeypatch):
    shop = Nights(tmp_path, monkeypatch, log=rows())
    shop.on(1)
    s = setting(str(shop.folder / "private.toml"), shop.home)
    append_step(nightly_counter(s), shop.ledger, shop.home.store, s.recipe.terms.noise(), date(2026, 1, 1))
    spent = shop.spent
    answer = shop.night(2, typo(rows(seed=3)))
    assert shop.spent == spent and answer["counter"]["night"] == 2
    assert "gate" not in json.loads((Path(answer["folder"]) / "certificate.json").read_text())


def test_what_is_made_again_from_card_and_recipe_is_the_gated_run(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    answer = shop.run()
    folder, card = Path(answer["folder"]), load_card(shop.folder / "card.toml")
    proof = verify_run_job(folder, shop.ledger.entries, card)
    assert proof.ok and not [c for c in proof.checks if c.ok is None], proof.checks
    # another share asked for is another gate, and another release
    recipe = folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("[privacy]\n", "[privacy]\ngate = 0.1\n"))
    assert not verify_run_job(folder, shop.ledger.entries, card).ok


def test_on_a_server_a_stopped_run_ends_like_any_other():
    """The kinds of ends that a server learns: of a stopped run, that it is over; its error stays in the shell."""
    caught = []

    def stop():
        raise GateError("12 people")

    assert quietly(stop, caught) is None and isinstance(caught[0], GateError)


def test_a_sampler_that_leaves_nothing_of_delta_is_refused_before_the_gate_is_charged(tmp_path, monkeypatch):
    """The counter's noise is drawn exactly, its gate's is not: both were charged, and no page could be made."""
    shop = Nights(tmp_path, monkeypatch, cap=300.0)
    recipe = shop.folder / "private.toml"
    text = recipe.read_text().replace("rho = 1.0", 'rho = 1.0\nsampler = "table"')
    recipe.write_text(text + 'counter = "toeplitz"\n')
    shop.on(1)
    for job in (plan_job, run_job):
        with pytest.raises(CardError, match="sampler = 'table' would use up delta"):
            job(str(recipe), shop.home)
    assert not shop.spent


def test_a_server_hears_the_kind_of_an_error_and_not_its_text():
    with pytest.raises(StepError) as told:
        quietly(lambda: int("canary"), [])
    assert str(told.value).startswith("ValueError: ") and "canary" not in str(told.value)
    assert told.value.__context__ is None
