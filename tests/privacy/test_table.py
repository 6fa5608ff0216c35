"""The law of inversion: certified thresholds beside independent ones, every short bit string enumerated; no floats."""

import ast
import re
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import pipeline.privacy
from pipeline.privacy import csprng as inversion
from pipeline.privacy.csprng import Law, Words, by_rejection, draw, first_words, invert, make_table
from tests.privacy.test_noise import Script

ROOM = Path(pipeline.privacy.__file__).parent
LAWS = [
    *(Law("gaussian", Fraction(v)) for v in ("1/4", "1", "22/7", "9", "100")),
    *(Law("laplace", Fraction(b)) for b in ("1/3", "1", "3/2", "20")),
]


@cache
def exact_weights(law: Law) -> list[int]:
    """Weights of 0, 1, .. far into a tail, in units of 10^-120, each computed for itself."""
    digits, far = Context(prec=140), 3 * law.reach(200)
    a, b = law.scale.numerator, law.scale.denominator
    power = (lambda k: Decimal(-k * k * b) / 1) if law.kind == "gaussian" else (lambda k: Decimal(-k * b))
    whole = Decimal(2 * a if law.kind == "gaussian" else a)
    weights = list[int]()
    while len(weights) <= far and (not weights or weights[-1]):
        power_of_e = digits.divide(power(len(weights)), whole)
        weights.append(int(digits.scaleb(digits.exp(power_of_e), 120)))
    return weights


def exact_distribution(law: Law, reach: int) -> dict[int, Fraction]:
    """F on [-reach, reach] within 2^-300: what is cut off sums to less than 10^-110."""
    weights = exact_weights(law)
    weights = weights + [0] * (reach + 1 - len(weights))
    total = weights[0] + 2 * sum(weights[1:])
    found, below = {}, sum(weights[reach + 1 :])
    for x in range(-reach, reach + 1):
        below += weights[abs(x)]
        found[x] = Fraction(below, total)
    return found


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.kind} {law.scale}")
@pytest.mark.parametrize("bits", [64, 192])
def test_every_threshold_is_the_floor_of_the_exact_distribution(law, bits):
    made = make_table(law, bits)
    exact = exact_distribution(law, made.reach)
    assert len(made.thresholds) == 2 * made.reach
    for j, threshold in enumerate(made.thresholds):
        assert threshold == int(exact[j - made.reach] * 2**bits), j - made.reach
    # what lies beyond the table would have the floors that `decide` takes for ties
    assert exact[-made.reach] * 2**bits < 2 and made.thresholds[0] >= 0
    assert (1 - exact[made.reach]) * 2**bits < 1


@pytest.mark.parametrize("law", [LAWS[1], LAWS[3], LAWS[6]], ids=lambda law: f"{law.kind} {law.scale}")
def test_all_strings_of_bits_draw_exactly_the_law(law):
    """Every string of 6, 12 and 18 bits: what is decided lies below the law."""
    exact = exact_distribution(law, 60)
    chance = {x: exact[x] - exact[x - 1] for x in range(-59, 60)}
    open_, mass = [0, *range(1, 2**6)], dict.fromkeys(chance, Fraction(0))
    for bits in (6, 12, 18):
        made, left = make_table(law, bits), []
        for u in open_:
            x = made.decide(u)
            if x is None:
                left.append(u)
            else:
                mass[x] += Fraction(1, 2**bits)
        for x, decided in mass.items():
            assert decided <= chance[x], (bits, x)
        # a string is open only where a threshold falls into it, or at the two ends
        assert len(left) <= 2 * made.reach + 2
        assert sum(chance.values()) - sum(mass.values()) <= Fraction(len(left), 2**bits)
        open_ = [u << 6 | low for u in left for low in range(2**6)]


@pytest.mark.parametrize("by", [1, -1])
def test_a_threshold_that_is_one_off_is_caught(by):
    law = Law("gaussian", Fraction(9))
    made = make_table(law, 64)
    nudged = list(made.thresholds)
    nudged[made.reach + 4] += by
    exact = exact_distribution(law, made.reach)
    wrong = [j for j, t in enumerate(nudged) if t != int(exact[j - made.reach] * 2**64)]
    assert wrong == [made.reach + 4]


def test_a_table_that_decides_its_ties_is_caught():
    """The broken twin takes a tie for decided: some outcome then has more mass than the law gives it."""
    law = Law("gaussian", Fraction(1))
    made, exact = make_table(law, 8), exact_distribution(law, 40)

    def hasty(u):
        return int(np.searchsorted(np.array(made.thresholds), u, side="left")) - made.reach

    mass = {}
    for u in range(2**8):
        mass[hasty(u)] = mass.get(hasty(u), 0) + Fraction(1, 2**8)
    assert any(m > exact[x] - exact[x - 1] for x, m in mass.items())


def test_too_little_precision_is_never_taken_for_a_floor():
    """An enclosure that holds an integer is refused, and the precision doubled; never a guess."""
    law = Law("gaussian", Fraction(10**4))
    assert inversion._upper_half(law, 64, 70) is None
    found = inversion._upper_half(law, 64, 192)
    assert found == list(make_table(law, 64).thresholds[law.reach(64) :])


@pytest.mark.parametrize("law", LAWS[1:4] + LAWS[5:7], ids=lambda law: f"{law.kind} {law.scale}")
def test_inversion_returns_the_outcome_of_the_longer_string(law):
    """Around every threshold of 128 bits: one below and one above; ties of the first word are settled by the second."""
    first, longer = first_words(law), make_table(law, 128)
    for t in longer.thresholds:
        for whole in (t - 1, t + 1):
            if whole <= 0 or whole >= 2**128 - 1:
                continue
            got = invert(law, first, np.array([whole >> 64], dtype=np.uint64), Script(whole & (2**64 - 1), 1, 1))[0]
            expected = longer.decide(whole)
            assert expected is None or got == expected


@pytest.mark.parametrize(("word", "sign"), [(0, -1), (2**64 - 1, 1)])
def test_the_tails_beyond_the_table_are_reached(word, sign):
    """A first word of all zeros, or ones, is open: the next words decide how far out the draw is."""
    law = Law("gaussian", Fraction(9))
    u = np.array([word], dtype=np.uint64)
    far = invert(law, first_words(law), u, Script(word, 2**63))[0]
    near = invert(law, first_words(law), u, Script(2**63))[0]
    assert sign * far > sign * near > 0 and abs(near) >= law.reach(64) - 8 and abs(far) > law.reach(64)


def test_no_float_is_on_the_path_of_a_fast_draw():
    assert not floats((ROOM / "csprng.py").read_text())
    for law in (Law("gaussian", Fraction(4)), Law("laplace", Fraction(4))):
        assert draw(Words(), 9, law).dtype == by_rejection(Words(), 9, law).dtype == np.int64


FLOATING = {"float", "float32", "float64", "sqrt", "exp2", "log", "random", "default_rng", "uniform", "normal", "rand"}


def floats(source: str) -> list[str]:
    """Float constants, true divisions of anything but a Fraction by an integer, and float functions."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, float | complex):
            found.append(f"constant {node.value}")
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            left = ast.unparse(node.left if isinstance(node, ast.BinOp) else node.target)
            if not left.startswith("exact("):
                found.append(f"division of {left}")
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in FLOATING:
            found.append(name)
    return found


@pytest.mark.parametrize("mutant", ["x = 0.5", "x = a / b", "x = np.sqrt(v)", "x = w.astype(np.float64)", "x /= 2"])
def test_the_float_check_sees_a_float(mutant):
    assert floats(mutant)


def test_no_verb_no_recipe_and_no_environment_can_switch_the_noise():
    root = ROOM.parent.parent
    for file in ROOM.glob("*.py"):
        assert not {"environ", "getenv"} & set(re.findall(r"\w+", file.read_text())), file
    for file in [*(root / "flows").rglob("*.py"), *(root / "flows").rglob("*.toml")]:
        assert "SeededNoise" not in file.read_text(), file


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.kind} {law.scale}")
@pytest.mark.parametrize("bits", [8, 128])
def test_no_table_decides_the_first_and_the_last_string(law, bits):
    """What lies beyond a table is drawn as well: however many bits it has, its ends stay open."""
    made = make_table(law, bits)
    assert made.decide(0) is None and made.decide(2**bits - 1) is None


def test_a_word_between_two_thresholds_is_the_draw_of_the_upper_one():
    law = Law("gaussian", Fraction(9))
    first = first_words(law)
    between = pairwise(map(int, first.thresholds[:-1]))
    middle = np.array([a + (b - a) // 2 for a, b in between if b - a > 2], np.uint64)
    exact = make_table(law, 64)
    assert invert(law, first, middle, Script()).tolist() == [exact.decide(int(u)) for u in middle]


@pytest.mark.parametrize(
    "law", [Law("laplace", Fraction(1, 3)), Law("laplace", Fraction(40)), Law("gaussian", Fraction(900))]
)
def test_the_look_up_finds_what_a_search_of_all_thresholds_does(law):
    """On words near every threshold and every edge of a stretch, where they differ by one."""
    first = first_words(law)
    edges = np.arange(len(first.before), dtype=np.uint64) << first.shift
    near = np.concatenate(
        [first.thresholds, edges, np.random.default_rng(0).integers(2**64, size=10**4, dtype=np.uint64)]
    )
    u = np.concatenate([near, near - np.uint64(1), near + np.uint64(1)])
    assert first.several.any() and not first.several.all()
    assert (first.below(u) == np.searchsorted(first.thresholds, u, side="left")).all()
    # the twin without a search where several thresholds are near
    first.several[:] = False
    assert (first.below(u) != np.searchsorted(first.thresholds, u, side="left")).any()
    first_words.cache_clear()
