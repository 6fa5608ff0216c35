"""How a page says numbers, intervals, losses and names."""

import math

import pytest

from reports.page import about, clean, interval, loss, markdown, names, number, percent, span

# a promise is never rounded in its own favour, and binary dust is not rounded up
NUMBERS = [
    (None, "–"), (math.nan, "–"), (math.inf, "∞"), (100000, "100,000"), (0.98, "0.98"), (0.0, "0"), (-3.5, "−3.5"),
    (1e-6, "1e-6"), (12345.678, "12,350"), (1.5e9, "1.5e9"), ("160", "160"), ((7.76622, "up"), "7.767"),
    ((0.661239, "down"), "0.6612"), ((-0.661239, "down"), "−0.6613"), ((0.1 + 0.2, "up"), "0.3"),
    ((4.0 - 0.98, "down"), "3.02"),
]  # fmt: skip
# outward, to two digits of its width; one as narrow as a rounding is one number
INTERVALS = [
    ((0.66129, 0.75981), "0.661 to 0.760"), ((1.493, 5.049), "1.4 to 5.1"), ((0.0512, 0.0698), "0.051 to 0.070"),
    ((-0.0031, 0.0167), "−0.004 to 0.017"), ((123.4, 4567.0), "100 to 4,600"), ((0.0, 1.0), "0 to 1"),
    ((0.5, 0.5), "0.5"), ((0.66129, None), "0.661 or more"), ((-13.0, -13.0 + 4e-12), "−13"), ((0.0, 0.0), "0"),
    *(((0.802157603859, 0.802157603859 * (1 + width)), "0.8022") for width in (2e-16, 3e-12, 5e-10)),
]  # fmt: skip
WORDS = [
    (loss(0.5, 5.222, 1e-6), "ρ = 0.5 (ε = 5.222 at δ = 1e-6)"),
    (loss(0.5, 1.0, 0.0, pure=True), "ε = 1 (pure)"),
    (loss(None, 1.0, 1e-6), "ε = 1 at δ = 1e-6"),
    (loss(None, None, None), "not bounded"),
    (about(0.71023, 0.66129, 0.75981), "0.710"),
    (about(3.2519, 1.493, 5.049), "3.3"),
    ((percent(0.2), percent(0.00001), percent(None)), ("20 %", "< 0.1 %", "–")),
    ((span(3.2, 3.4), span(-0.2, 12000.0)), ("3", "0 to 12,000")),
    (clean("a\u202eb\x00c\ud800"), "a�b�c�"),
    (markdown("<script>|a|"), "&lt;script&gt;\\|a\\|"),
    (markdown("[x](javascript:y) `z` *b*"), "\\[x\\](javascript:y) \\`z\\` \\*b\\*"),
    (markdown("# title"), "\\# title"),
    (markdown("1. item"), "1\\. item"),
    ((markdown("0.98"), markdown("user_id"), markdown("_x_")), ("0.98", "user_id", "\\_x\\_")),
]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_numbers_keep_four_digits(value, text):
    assert (number(value[0], toward=value[1]) if isinstance(value, tuple) else number(value)) == text


@pytest.mark.parametrize(("ends", "text"), INTERVALS)
def test_an_interval_is_rounded_outward_to_two_digits_of_its_width(ends, text):
    assert interval(*ends) == text


def test_losses_shares_and_hostile_text_are_said_as_they_are():
    for said, text in WORDS:
        assert said == text
    assert "\n" not in markdown("a\n\n# b")


def test_no_two_names_are_cut_to_the_same_text_and_a_number_says_of_what():
    assert names(["0", "12"], "action", 20) == ["action 0", "action 12"]
    long = ["dialysis at home, morning", "dialysis at home, evening", "short"]
    found = names(long, "action", 16)
    assert len(set(found)) == 3 and found[2] == "short" and max(map(len, found)) <= 16
    # what cannot be told apart by its ends stands whole
    middle = [f"{'a' * 10}{i}{'b' * 10}" for i in range(2)]
    assert names(middle, "action", 8) == middle
