from __future__ import annotations

import math

import pytest

from reports.page import about, clean, interval, loss, markdown, names, number, percent, span


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (100000, "100,000"),
        (0.98, "0.98"),
        (0.0, "0"),
        (-3.5, "−3.5"),
        (1e-6, "1e-6"),
        (12345.678, "12,350"),
        (1.5e9, "1.5e9"),
        ("160", "160"),
    ],
)
def test_numbers_keep_four_digits(value: object, text: str) -> None:
    assert number(value) == text


def test_a_promise_is_never_rounded_in_its_own_favour() -> None:
    assert number(7.76622, toward="up") == "7.767"
    assert number(0.661239, toward="down") == "0.6612"
    assert number(-0.661239, toward="down") == "−0.6613"


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((0.66129, 0.75981), "0.661 to 0.760"),
        ((1.493, 5.049), "1.4 to 5.1"),
        ((0.0512, 0.0698), "0.051 to 0.070"),
        ((-0.0031, 0.0167), "−0.004 to 0.017"),
        ((123.4, 4567.0), "100 to 4,600"),
        ((0.0, 1.0), "0 to 1"),
        ((0.5, 0.5), "0.5"),
        ((0.66129, None), "0.661 or more"),
    ],
)
def test_an_interval_is_rounded_outward_to_two_digits_of_its_width(ends: tuple[float, float | None], text: str) -> None:
    assert interval(*ends) == text


def test_an_interval_as_narrow_as_a_rounding_is_one_number() -> None:
    for width in (2e-16, 3e-12, 5e-10):
        assert interval(0.802157603859, 0.802157603859 * (1 + width)) == "0.8022"
    assert interval(-13.0, -13.0 + 4e-12) == "−13" and interval(0.0, 0.0) == "0"


def test_an_estimate_is_no_finer_than_its_interval() -> None:
    assert about(0.71023, 0.66129, 0.75981) == "0.710"
    assert about(3.2519, 1.493, 5.049) == "3.3"


def test_binary_dust_is_not_rounded_up() -> None:
    assert number(0.1 + 0.2, toward="up") == "0.3"
    assert number(4.0 - 0.98, toward="down") == "3.02"


def test_the_loss_names_what_it_is() -> None:
    assert loss(0.5, 5.222, 1e-6) == "ρ = 0.5 (ε = 5.222 at δ = 1e-6)"
    assert loss(0.5, 1.0, 0.0, pure=True) == "ε = 1 (pure)"
    assert loss(None, 1.0, 1e-6) == "ε = 1 at δ = 1e-6"
    assert loss(None, None, None) == "not bounded"


def test_shares_and_counts_read_as_words() -> None:
    assert (percent(0.2), percent(0.00001), percent(None)) == ("20 %", "< 0.1 %", "–")
    assert (span(3.2, 3.4), span(-0.2, 12000.0)) == ("3", "0 to 12,000")


def test_markdown_shows_hostile_text_as_written() -> None:
    assert markdown("<script>|a|") == "&lt;script&gt;\\|a\\|"
    assert markdown("[x](javascript:y) `z` *b*") == "\\[x\\](javascript:y) \\`z\\` \\*b\\*"
    assert markdown("# title") == "\\# title"
    assert markdown("1. item") == "1\\. item"
    assert (markdown("0.98"), markdown("user_id"), markdown("_x_")) == ("0.98", "user_id", "\\_x\\_")
    assert "\n" not in markdown("a\n\n# b")


def test_no_two_names_are_cut_to_the_same_text_and_a_number_says_of_what() -> None:
    assert names(["0", "12"], "action", 20) == ["action 0", "action 12"]
    long = ["dialysis at home, morning", "dialysis at home, evening", "short"]
    found = names(long, "action", 16)
    assert len(set(found)) == 3 and found[2] == "short" and max(map(len, found)) <= 16
    # what cannot be told apart by its ends stands whole
    middle = [f"{'a' * 10}{i}{'b' * 10}" for i in range(2)]
    assert names(middle, "action", 8) == middle


def test_hidden_characters_become_visible() -> None:
    assert clean("a\u202eb\x00c\ud800") == "a�b�c�"
