"""A number of a card or a recipe is written as a number: text and booleans are not read as one."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipeline.declaration.lineage import Budget, Nightly, Unit
from pipeline.learners.terms import Lq, Privacy

WRONG = [
    (Privacy, {"rho": "1"}),
    (Privacy, {"rho": True}),
    (Privacy, {"rho": 1.0, "split": {"n_sas": True}}),
    (Budget, {"rho": "1"}),
    (Unit, {"user": "u", "users_public": 10.5}),
    (Lq, {"cut": [0.5, "0.7"]}),
]


@pytest.mark.parametrize(("table", "values"), WRONG)
def test_text_and_booleans_are_no_numbers(table, values):
    with pytest.raises(ValidationError, match="Input should be a valid"):
        table.model_validate(values)


@pytest.mark.parametrize("values", [{"rho": 1e308}, {"rho": 1e-320}, {"epsilon": 1e21}, {"rho": float("nan")}])
def test_a_budget_that_no_scale_can_be_made_of_is_refused(values):
    with pytest.raises(ValidationError, match=r"Input should be (less|greater)|no scale"):
        Privacy.model_validate(values)


def test_what_toml_has_other_ways_to_write_is_still_read():
    assert Privacy.model_validate({"rho": 1}).rho == 1.0
    assert Unit.model_validate({"user": "u", "users_public": 1e5}).users_public == 100_000
    assert Nightly.model_validate({"first": "2026-01-01"}).first.year == 2026
    assert Lq.model_validate({"cut": [1, 0.5]}).cut == (1.0, 0.5)
