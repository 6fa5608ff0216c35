"""A number of a card or a recipe is written as a number: text and booleans are not read as one."""

from __future__ import annotations

import pytest

from reticent import CardError, load_card, load_recipe
from tests.declaration.test_card import GOOD, RECIPE, write

P, LQ = "[privacy]\n", RECIPE.replace("dp-apvi", "dp-lqr")


def read(folder, text, old, new):
    assert old in text
    path = write(folder, text.replace(old, new))
    return load_card(path) if text == GOOD else load_recipe(path)


@pytest.mark.parametrize(
    ("text", "old", "new", "says"),
    [
        *((RECIPE, P, P + x, "a valid number") for x in ('rho = "1"', "rho = true", "rho = 1.0\nsplit.n_sas = true")),
        (GOOD, "rho = 1.0", 'rho = "1"', "a valid number"),
        (GOOD, "users_public = 1000", "users_public = 10.5", "a valid integer"),
        (LQ, P, P + 'rho = 1.0\n[lq]\ncut = [0.5, "0.7"]', "a valid number"),
        (GOOD, "users_public = 1000", f"users_public = 1{400 * '0'}", "less than or equal to 1000000000000"),
        *(
            (RECIPE, P, f"[evaluate]\npeople = {x}\n{P}", "a share of the people from 0.000001 to below 1")
            for x in ("-1", "1e-320", "1.0", "true", '"half"', "nan")
        ),
        # no scale can be made of these budgets
        *((RECIPE, P, P + x, "less than") for x in ("rho = 1e308", "epsilon = 1e21", "rho = nan")),
        (RECIPE, P, P + "rho = 1e-320", "its noise has no scale"),
    ],
)
def test_text_booleans_and_numbers_without_a_scale_are_refused(tmp_path, text, old, new, says):
    with pytest.raises(CardError, match=says):
        read(tmp_path, text, old, new)


def test_what_toml_has_other_ways_to_write_is_still_read(tmp_path):
    assert read(tmp_path, RECIPE, P, P + "rho = 1").privacy.rho == 1.0
    assert read(tmp_path, GOOD, "users_public = 1000", "users_public = 1e5").unit.users_public == 100_000
    assert read(tmp_path, LQ, P, P + "rho = 1.0\n[lq]\ncut = [1, 0.5]").lq.cut == (1.0, 0.5)
    night = RECIPE + 'rho = 1.0\n[nightly]\nfirst = "2026-01-01"\n'
    assert read(tmp_path, night, P, P).nightly.first.year == 2026
