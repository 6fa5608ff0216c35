"""Moments of bounded scores: every person of a small lattice through the code that sums, both relations, the bound."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pipeline.statistics.moment_layout import PEOPLE, SQUARES, STEPS, SUMS, MomentLayout, half
from pipeline.statistics.scores import PLACEBOS, SCORES
from tests.statistics.test_sensitivity import largest, largest_square


def layout(scores=1, steps=8, halved=()):
    return MomentLayout("tiny", "synthetic", "stationary", scores, steps, halved)


def points(of):
    found = []
    for person in itertools.product(*(np.arange(-b, b + 1) / b for b in of.lengths)):
        tables = of.add_up(np.array([person]))
        found.append(np.concatenate([tables[name] for name in (SUMS, SQUARES, PEOPLE)]))
    return np.array(found)


WHOLE = [(1, 2, ()), (1, 4, ()), (1, 64, ()), (2, 4, ()), (3, 2, ())]
# every pair of people with one halved score, then of two beside a whole one where they can be listed
HALVED = [*((1, steps, (0,)) for steps in (2, 4, 6, 8, 64)), (3, 2, (1, 2)), (3, 4, (1, 2))]


@pytest.mark.parametrize(("scores", "steps", "halved"), [*WHOLE, *HALVED])
def test_one_person_moves_as_far_as_claimed_and_no_further_and_a_halved_score_costs_half(scores, steps, halved):
    of, short, h = layout(scores, steps, halved), half(steps), len(halved)
    at, rates = points(of), {SUMS: Fraction(1), SQUARES: Fraction(1), PEOPLE: Fraction(steps**2)}
    priced = at * np.array([1] * 2 * scores + [steps])
    assert largest_square(priced) == of.cost(rates) == 4 * ((scores - h) * steps**2 + h * short**2)
    alone = (priced**2).sum(-1).max()
    assert alone == of.cost(rates, "add_remove")
    assert halved or alone == scores * steps**2 * Fraction(5, 4) + steps**2
    for i, name in enumerate((SUMS, SQUARES)):
        columns = slice(i * scores, (i + 1) * scores)
        table = next(t for t in of.tables if t.name == name)
        assert largest(at[:, columns]) == (table.replace.l2_squared, table.replace.l1)
        # a halved table alone may be moved by less than is charged for joining, never by more
        joins = (at[:, columns] ** 2).sum(-1).max()
        assert joins == table.add_remove.l2_squared if not halved else joins <= table.add_remove.l2_squared
        assert np.abs(at[:, columns]).sum(-1).max() <= table.add_remove.l1


def test_two_placebos_cost_what_one_did():
    of, before = layout(len(SCORES), STEPS, PLACEBOS), layout(4, STEPS)
    rates = {SUMS: Fraction(1), SQUARES: Fraction(1), PEOPLE: Fraction(0)}
    assert of.cost(rates) <= before.cost(rates) == 16 * STEPS**2
    assert of.cost(rates, "add_remove") <= Fraction(19, 4) * STEPS**2 < before.cost(rates, "add_remove")
    # the twin: five whole scores at the price of four
    assert layout(len(SCORES), STEPS).cost(rates) > of.cost(rates) + 3 * STEPS**2


@pytest.mark.parametrize("scores", [4, 5])
def test_one_score_more_is_in_the_price(scores):
    """Logged probabilities have a check of their own, summed with the others: five scores for four."""
    of = layout(scores, 4)
    rates = {SUMS: Fraction(1), SQUARES: Fraction(1), PEOPLE: Fraction(16)}
    tables = [of.add_up(person) for person in of.extremes()]
    at = np.array([np.concatenate([t[SUMS], t[SQUARES], 4 * t[PEOPLE]]) for t in tables])
    assert largest_square(at) == of.cost(rates) == 4 * scores * 16
    assert (at**2).sum(-1).max() == of.cost(rates, "add_remove")
    assert largest_square(at) > layout(scores - 1, 4).cost(rates), "a twin that charges for the others alone"


def test_squares_with_less_noise_than_sums_are_priced_apart():
    of = layout(1, 64)
    at, rates = points(of), {SUMS: Fraction(1), SQUARES: Fraction(9), PEOPLE: Fraction(0)}
    assert 4 * 64**2 < largest_square(at * [1, 3, 0]) <= of.cost(rates)


def test_on_the_real_lattice_no_neighbour_of_the_worst_pair_is_worse():
    of = layout(1, STEPS)
    k = np.unique(np.concatenate([np.arange(-300, 301), STEPS - np.arange(300), np.arange(300) - STEPS]))
    each = [of.add_up(np.array([[x / STEPS]])) for x in k]
    assert largest_square(np.array([[t[SUMS][0], t[SQUARES][0]] for t in each])) == 4 * STEPS**2


@pytest.mark.parametrize("rho", [Fraction(1, 10), Fraction(1), Fraction(3)])
def test_noise_costs_the_budget_and_joining_at_most_half(rho):
    summed = layout(4, STEPS).summed(rho)
    assert rho * Fraction(999, 1000) < summed.rho <= rho
    assert summed.layout.cost(summed.rates, "add_remove") <= rho / 2


def test_twins_that_halve_the_price_alone_leave_squares_uncentred_or_forget_a_score_are_caught():
    rates = {SUMS: Fraction(1), SQUARES: Fraction(1), PEOPLE: Fraction(0)}
    long = np.array([[t[SUMS][0], t[SQUARES][0]] for t in (layout(1, 8).add_up(np.array([[y]])) for y in (-1.0, 1.0))])
    assert ((long[0] - long[1]) ** 2).sum() > layout(1, 8, (0,)).cost(rates)
    of = layout(1, 8)
    at = points(of)
    at[:, 1] += of.steps // 2
    assert (at[:, :2] ** 2).sum(-1).max() > of.cost(rates, "add_remove")
    of = layout(2, 4)
    assert largest_square(points(of)[:, :4]) > replace(of, scores=1).cost(rates)


def test_scores_beyond_their_clip_are_cut():
    of = layout(2, 8)
    far, cut = of.add_up(np.array([[9.0, -9.0]])), of.add_up(np.array([[1.0, -1.0]]))
    assert all((far[name] == cut[name]).all() for name in far)
