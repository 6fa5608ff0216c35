"""The numbers of a certificate: rounded so that they are never less than what was spent."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from pipeline.ledger.steps import counter_key, same_number
from pipeline.ledger.verify import _charged
from pipeline.privacy.losses import safe_epsilon, spent_budget
from pipeline.privacy.release import Mechanism
from pipeline.privacy.release_file import describe_mechanism

TABLE = Mechanism("n_sas", (2, 3), "transition", 4, 4, "2H", variance=40)


@pytest.mark.parametrize("more", [Fraction(1, 10**30), Fraction(0), -Fraction(1, 10**30)])
def test_what_is_said_is_never_less_than_what_was_spent(more):
    """The float nearest to a sum of fractions may be below it."""
    spent = Fraction(0.1) + more
    said = spent_budget((), 1e-6, spent)
    assert said["rho"] is not None and said["epsilon"] is not None
    assert spent <= Fraction(said["rho"]) <= Fraction(math.nextafter(0.1, 1))
    assert said["epsilon"] == safe_epsilon(said["rho"], 1e-6)


def test_what_a_sampler_adds_to_delta_is_taken_from_the_conversion():
    """Less delta is left for rho, so epsilon is larger."""
    half = replace(TABLE, delta_slack=Fraction(1, 2_000_000))
    exact, slack = (spent_budget((m,), 1e-6) for m in (TABLE, half))
    assert slack["rho"] == exact["rho"] == 0.05 and slack["delta"] == 1e-6
    assert slack["epsilon"] == safe_epsilon(0.05, 5e-7) > exact["epsilon"]


def test_a_counter_whose_tables_list_a_slack_is_another_counter():
    """Also where one of its tables, drawn otherwise, lists none."""
    plain, slack = (describe_mechanism(replace(TABLE, delta_slack=s)) for s in (Fraction(0), Fraction(1, 2**130)))
    dates = {"kind": "tree", "nights": 8, "first": "2026-01-01"}
    keys = {counter_key("shop", "d", {"counter": dates, "mechanisms": m}) for m in ([plain, plain], [plain, slack])}
    assert len(keys) == 2


def test_two_machines_may_differ_in_the_last_digits_and_no_further():
    assert same_number(2.0, 2.0 + 1e-9) and same_number(1e-12, 0.0)
    assert not same_number(2.0, 2.0 + 1e-8) and not same_number(2, 2.0000000001)


@pytest.mark.parametrize(("charged", "says"), [("1/20", None), ("1/100", "charged 0.01"), ("1/10", "charged 0.1")])
def test_a_charge_that_is_not_the_cost_does_not_verify(alone, make_card, charged, says):
    """Less would be a promise that nobody paid for; more, another release."""
    alone.register(make_card(budget={"rho": 2.0}))
    listed = [describe_mechanism(TABLE)]
    intent = alone.intent("tiny", "k", Fraction(charged), {"mechanisms": listed})
    commit = alone.commit(intent, {"release_sha256": "0" * 64, "noise": "os"})
    proof = {"sha256": {"release": "0" * 64}, "mechanisms": listed}
    found = _charged(proof, commit, intent, alone.entries())
    assert found is None if says is None else says in str(found)
