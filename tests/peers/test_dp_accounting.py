"""Google's dp-accounting ships its tests with its package: they are run as they are, on our losses in place of theirs.

The tests are those of the installed package (Apache 2.0, The TensorFlow Authors); none of them is copied here.
``Ours`` is what their interface asks for, made of our exact fractions, conversions and trees.  What is left out, and
why, says ``LEFT_OUT``.
"""

import math
import unittest
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import dp_event, privacy_accountant, privacy_accountant_test
from dp_accounting.rdp import rdp_privacy_accountant as theirs
from dp_accounting.rdp import rdp_privacy_accountant_test as of_accountants

from pipeline.privacy.budget import delta_from_rho, epsilon_from_rho, rho_of_pure
from pipeline.privacy.continual import Tree

Relation = privacy_accountant.NeighboringRelation
# what of their tests is about something that we do not have
LEFT_OUT = {
    "poisson": "no amplification by sampling is ever claimed",
    "fixed_batch": "the same",
    "supports": "asks for sampled and randomized-response events",
    "randomized_response": "not a mechanism of this project",
    "negative_binomial": "no selection by repetition",
    "repeat_": "the same",
    "gamma": "the same",
    "log_a": "the inside of their sampled Gaussian",
    "multi_zcdp": "our zCDP has no additive xi",
    "effective_gaussian": "the inside of their accountant",
    "rdp_composition": "of sampled Gaussians",
    "pure_dp": "Renyi curves that are no zCDP",
    "invalid_": "of sampled Gaussians",
    "epsilon_delta_consistency": "of sampled Gaussians",
}


class Ours(privacy_accountant.PrivacyAccountant):
    """Gaussians, zCDP, Laplace and trees by our own losses; events that we cannot price are refused."""

    def __init__(self, orders=(2.0,), neighboring_relation=Relation.ADD_OR_REMOVE_ONE):
        super().__init__(neighboring_relation)
        self.orders, self.rho, self.pure, self.none = np.array(orders, dtype=float), Fraction(0), Fraction(0), False
        self._of_pure = np.zeros(len(self.orders))

    def _maybe_compose(self, event, count, do_compose):
        if isinstance(event, dp_event.ComposedDpEvent):
            found = (self._maybe_compose(e, count, do_compose) for e in event.events)
            return next((f for f in found if f is not None), None)
        if isinstance(event, dp_event.SelfComposedDpEvent):
            return self._maybe_compose(event.event, count * event.count, do_compose)
        if isinstance(event, dp_event.PoissonSampledDpEvent) and event.sampling_probability == 1:
            return self._maybe_compose(event.event, count, do_compose)
        rho, pure = self._priced(event)
        if rho is None:
            return self.CompositionErrorDetails(event, "no loss of ours")
        if do_compose:
            self.none |= math.isinf(rho)
            self.rho += 0 if math.isinf(rho) else count * rho
            self.pure += count * pure
            self._of_pure += count * np.minimum(self.orders * float(rho_of_pure(pure)), float(pure))
        return None

    def _priced(self, event):
        if isinstance(event, dp_event.NoOpDpEvent):
            return Fraction(0), Fraction(0)
        if isinstance(event, dp_event.NonPrivateDpEvent):
            return math.inf, Fraction(0)
        if isinstance(event, dp_event.GaussianDpEvent):
            return _gaussian(1, event.noise_multiplier), Fraction(0)
        if isinstance(event, dp_event.ZCDpEvent):
            return Fraction(event.rho), Fraction(0)
        if isinstance(event, dp_event.LaplaceDpEvent):
            return Fraction(0), 1 / Fraction(event.noise_multiplier)
        if isinstance(event, dp_event.SingleEpochTreeAggregationDpEvent):
            if self.neighboring_relation is not Relation.REPLACE_SPECIAL:
                return None, None
            steps = np.atleast_1d(event.step_counts).tolist()
            if event.noise_multiplier < 0 or min(steps) < 0:
                raise ValueError("noise and steps must be non-negative")
            return _gaussian(max(Tree(t).cost for t in steps), event.noise_multiplier), Fraction(0)
        return None, None

    @property
    def _rdp(self):
        return self._of_pure + self.orders * (math.inf if self.none else float(self.rho))

    def get_epsilon(self, target_delta):
        if self.none:
            return math.inf
        if 0 < target_delta < 1:
            return epsilon_from_rho(float(self.rho), target_delta) + float(self.pure)
        return math.inf if self.rho and not target_delta else float(self.pure)

    def get_delta(self, target_epsilon):
        return 1.0 if self.none else delta_from_rho(float(self.rho), max(target_epsilon - float(self.pure), 0.0))


def _gaussian(cost, sigma):
    return Fraction(cost) / (2 * Fraction(sigma) ** 2) if sigma else math.inf


class OursIsAnAccountant(privacy_accountant_test.PrivacyAccountantTest):
    """Their suite for whatever calls itself an accountant."""

    __unittest_skip__ = False

    def _make_test_accountants(self):
        return [Ours(), Ours(neighboring_relation=Relation.REPLACE_ONE)]


def cases(of):
    return [n for n in unittest.TestLoader().getTestCaseNames(of) if not any(w in n for w in LEFT_OUT)]


def run(of, name):
    result = unittest.TestResult()
    # their code meets infinities on purpose
    with np.errstate(all="ignore"):
        of(name).run(result)
    assert result.testsRun == 1 and not result.skipped
    assert result.wasSuccessful(), (result.failures + result.errors)[0][1]


@pytest.mark.parametrize("name", cases(OursIsAnAccountant))
def test_our_losses_are_an_accountant(name):
    run(OursIsAnAccountant, name)


@pytest.mark.parametrize(
    "name",
    [
        # conversions at five hundred values of epsilon
        pytest.param(n, marks=pytest.mark.slow if n == "test_delta_bounds_gaussian" else ())
        for n in cases(of_accountants.RdpPrivacyAccountantTest)
    ],
)
def test_their_accountants_tests_pass_on_our_losses(name, monkeypatch):
    asked = []

    def of_rho(convert, orders, rdp, target):
        (rho,) = {round(r / a, 12) for a, r in zip(orders, rdp, strict=True)}
        asked.append(rho)
        return convert(rho, target), 0

    monkeypatch.setattr(theirs, "RdpAccountant", lambda *a, **k: asked.append(a) or Ours(*a, **k))
    monkeypatch.setattr(
        theirs, "compute_epsilon", lambda orders, rdp, delta: of_rho(epsilon_from_rho, orders, rdp, delta)
    )
    monkeypatch.setattr(
        theirs, "compute_delta", lambda orders, rdp, epsilon: of_rho(delta_from_rho, orders, rdp, epsilon)
    )
    run(of_accountants.RdpPrivacyAccountantTest, name)
    assert asked, "nothing of ours was asked"


def test_an_accountant_that_halves_its_losses_fails_their_tests(monkeypatch):
    monkeypatch.setattr(theirs, "RdpAccountant", Ours)
    monkeypatch.setattr(Ours, "_rdp", property(lambda self: self.orders * float(self.rho) / 2))
    with pytest.raises(AssertionError):
        run(of_accountants.RdpPrivacyAccountantTest, "test_compute_rdp_gaussian")
