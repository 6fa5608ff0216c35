"""The law of the table, by enumeration of its thresholds in rationals; and that no float is on the way."""

from __future__ import annotations

import ast
from bisect import bisect_right
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import pipeline.privacy
from pipeline.privacy import samplers
from pipeline.privacy.csprng import Words
from pipeline.privacy.samplers import (
    TV_BOUND,
    Table,
    gaussian_by_rejection,
    gaussian_by_table,
    gaussian_table,
    invert,
    laplace_by_rejection,
)

ROOM = Path(pipeline.privacy.__file__).parent


def distance(made: Table, variance: Fraction) -> Fraction:
    """Total variation between the table's law and the discrete Gaussian, with weights computed one by one."""
    digits = Context(prec=160)
    reach = 2 * made.reach + 20
    exact = [
        Fraction(digits.exp(digits.divide(Decimal(-k * k * variance.denominator), Decimal(2 * variance.numerator))))
        for k in range(reach + 1)
    ]
    total = exact[0] + 2 * sum(exact[1:])
    bounds = [0, *made.thresholds, 1 << 192]
    law = {k - made.reach: Fraction(b - a, 1 << 192) for k, (a, b) in enumerate(pairwise(bounds))}
    return sum(abs(law.get(k, Fraction(0)) - exact[abs(k)] / total) for k in range(-reach, reach + 1)) / 2


VARIANCES = [Fraction(1, 4), Fraction(1), Fraction(22, 7), Fraction(9), Fraction(100)]


@pytest.mark.parametrize("variance", [*VARIANCES, pytest.param(Fraction(10**5), marks=pytest.mark.slow)])
def test_the_table_is_within_its_bound_of_the_exact_law(variance):
    made = gaussian_table(variance)
    assert distance(made, variance) <= TV_BOUND
    assert made.reach**2 >= Fraction(27, 2) ** 2 * variance


def test_a_short_tail_or_a_nudged_threshold_breaks_the_bound():
    made = gaussian_table(Fraction(9))
    nudged = list(made.thresholds)
    nudged[40] += 2**62 + 2**63
    assert distance(Table(made.reach, tuple(nudged), made.first), Fraction(9)) > TV_BOUND
    assert distance(gaussian_table(Fraction(8)), Fraction(9)) > TV_BOUND


@pytest.mark.slow
def test_a_wide_table_has_the_right_thresholds():
    """Too large to enumerate: a handful of thresholds against a sum of single exponentials at sigma = 2 000."""
    variance = Fraction(4_000_000)
    made = gaussian_table(variance)
    digits = Context(prec=160)
    scale = Decimal(2 * variance.numerator)
    exact = [Fraction(digits.exp(digits.divide(Decimal(-k * k), scale))) for k in range(made.reach + 1)]
    total = exact[0] + 2 * sum(exact[1:])
    for k in (-2000, 0, 1, 5000):
        below = sum(exact[abs(x)] for x in range(-made.reach, k + 1))
        assert abs(Fraction(made.thresholds[k + made.reach], 1 << 192) - below / total) < Fraction(1, 1 << 180)


class Script(Words):
    """Words written down in advance."""

    def __init__(self, *given):
        super().__init__()
        self._given = list(given)

    def take(self, n):
        taken, self._given = self._given[:n], self._given[n:]
        assert len(taken) == n
        return np.array(taken, dtype=np.uint64)


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(9), Fraction(100)])
def test_inversion_returns_exactly_the_outcome_of_the_192_bits(variance):
    """Around every threshold: the number itself, one below, one above; ties of the first 64 bits included."""
    made = gaussian_table(variance)
    for t in made.thresholds:
        for whole in (t - 1, t, t + 1):
            if not 0 <= whole < 1 << 192:
                continue
            u, rest = whole >> 128, whole & ((1 << 128) - 1)
            given = Script(rest >> 64, rest & (2**64 - 1), 0, 0)
            got = invert(made, np.array([u], dtype=np.uint64), given)[0]
            assert got == bisect_right(made.thresholds, whole) - made.reach


def test_first_words_are_the_top_of_the_thresholds_and_rise():
    made = gaussian_table(Fraction(100))
    assert [int(f) for f in made.first] == [t >> 128 for t in made.thresholds]
    assert list(made.thresholds) == sorted(made.thresholds) and made.first.dtype == np.uint64
    assert len(made.thresholds) == 2 * made.reach
    assert samplers.LARGEST_VARIANCE == 20_000**2


def test_no_float_is_on_the_path_of_a_fast_draw():
    for name in ("csprng.py", "samplers.py", "fast_noise.py"):
        assert not floats((ROOM / name).read_text()), name
    for draws in (
        gaussian_by_table(Words(), 9, Fraction(4)),
        gaussian_by_rejection(Words(), 9, Fraction(4)),
        laplace_by_rejection(Words(), 9, Fraction(4)),
    ):
        assert draws.dtype == np.int64


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


def test_release_modules_import_no_pseudo_random_generator():
    """By import or by attribute; SeededNoise, which no release of real data accepts, is the one exception."""
    for file in ROOM.glob("*.py"):
        tree = ast.parse(file.read_text())
        tree.body = [n for n in tree.body if not (isinstance(n, ast.ClassDef) and n.name == "SeededNoise")]
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            if isinstance(node, ast.Attribute):
                names.append(node.attr)
            assert not {"random", "numpy.random", "default_rng", "environ", "getenv"} & set(names), (file.name, names)


def test_no_verb_and_no_recipe_can_switch_the_noise():
    root = ROOM.parent.parent
    for file in [*(root / "flows").rglob("*.py"), *(root / "flows").rglob("*.toml")]:
        assert "SeededNoise" not in file.read_text(), file
