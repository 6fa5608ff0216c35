"""Every release of sums goes through one door: whose noise, which data, and the sampler's share of delta."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pipeline.logs.aggregate import count_person
from pipeline.privacy.continual import Tree
from pipeline.privacy.noise import LARGEST_VARIANCE, FastOsNoise, OsNoise, RealDataError, SeededNoise
from pipeline.privacy.release import Release, total_delta_slack, total_epsilon, total_rho
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.count_layout import StartLayout
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.linear_plan import LinearTerms
from pipeline.statistics.linear_sums import InteractiveRegression, count_rows, draw_one_shot
from pipeline.statistics.lq import draw_lq
from pipeline.statistics.private_sum import PrivateSum, Trust
from tests.statistics import lq_people
from tests.statistics.linear_people import plan_of, random_map, rows_of, script
from tests.statistics.test_sensitivity import tiny

FAST = FastOsNoise()


def nobody(summed, kind="synthetic"):
    zero = {m.table: np.zeros(m.shape, np.int64) for m in summed.mechanisms}
    return ExactSums("tiny", kind, "per_step", zero)


def listed(summed, noise, epsilon):
    return summed if epsilon is None else summed.with_slack(noise, epsilon)


def counts(noise, epsilon):
    summed = listed(count_sum(tiny(), Ask(rho=1.0)), noise, epsilon)
    return summed.draw(nobody(summed), noise)


def first_states(noise, epsilon):
    layout = StartLayout(tiny())
    summed = listed(PrivateSum(layout, tuple(t.mechanism(9) for t in layout.tables)), noise, epsilon)
    return summed.draw(nobody(summed), noise)


def interactive(noise, epsilon):
    features = random_map(0)
    plan = plan_of(features, LinearTerms(Ask(Fraction(1)), value_steps=64, weight_steps=16))
    mechanism = InteractiveRegression(plan, rows_of((), features, lambda side: True), noise, epsilon=epsilon)
    script(mechanism, 0, 1, True)
    return mechanism.release()


def one_shot(noise, epsilon):
    features = random_map(0)
    plan = plan_of(features, LinearTerms(Ask(Fraction(1)), "one_shot"))
    rows = count_rows(plan, {"both": np.zeros((2, 3, 2, 4), np.int64)}, np.zeros((2, 3, 2)))
    return draw_one_shot(plan, rows, noise, epsilon=epsilon)


def moments(noise, epsilon):
    return draw_lq(lq_people.plan_of(), lq_people.everybody()[:1], noise, epsilon=epsilon)


def rows(noise, epsilon):
    """Two nights of a counter, as a release of the tables of one row."""
    time = Tree(2)
    summed = listed(count_sum(tiny(), Ask(rho=1.0, counter=time)), noise, epsilon)
    ends = np.cumsum([m.cells for m in summed.mechanisms])
    both = [r for t in (1, 2) for r in time.rows(t)]
    drawn = summed.draw_rows(both, lambda t: np.zeros(ends[-1], np.int64), noise, nobody(summed))
    cuts = np.split(drawn[0], ends[:-1])
    named = {m.table: x.reshape(m.shape) for m, x in zip(summed.mechanisms, cuts, strict=True)}
    return Release("tiny", "synthetic", "per_step", summed.mechanisms, named, noise.name, noise.sampler)


PATHS = [counts, first_states, interactive, one_shot, moments, rows]


class Metered(SeededNoise):
    """A sampler that is a little off at every draw, and adds up by how much."""

    def __init__(self) -> None:
        super().__init__(0)
        self.off = Fraction(0)

    def gaussian(self, size, variance, data):
        self.off += size * self.tv_bound(variance)
        return super().gaussian(size, variance, data)

    def tv_bound(self, variance):
        # as the fast sampler's table: worse where the variance is small
        return Fraction(1, 2**130) if variance > 40 else Fraction(1, 2**100)


@pytest.mark.parametrize("draw", PATHS)
def test_what_is_listed_covers_every_number_that_is_drawn(draw):
    noise = Metered()
    release = draw(noise, 2.0)
    assert release.delta_slack >= (1 + Fraction(math.exp(2.0))) * noise.off > 0


@pytest.mark.parametrize("draw", PATHS)
def test_a_share_that_is_not_listed_is_refused_before_the_first_draw(draw):
    metered = Metered()
    for noise in (FAST, metered):
        with pytest.raises(ValueError, match="share of delta is not counted"):
            draw(noise, None)
    assert metered.off == 0


def test_a_symmetric_table_is_drawn_at_half_its_variance_and_charged_for_it():
    """The table serves small variances only: off the diagonal it may serve where on the diagonal it does not."""
    plan, wide = lq_people.plan_of(), 2 * (1 + LARGEST_VARIANCE // 2)
    everywhere = replace(plan, mechanisms=tuple(replace(m, variance=wide) for m in plan.mechanisms))
    symmetric = {t.name for t in everywhere.layout.tables if t.symmetric}
    listed = {m.table: m.delta_slack for m in everywhere.with_slack(FAST, 5.0).mechanisms}
    assert symmetric and {name for name, slack in listed.items() if slack} == symmetric
    with pytest.raises(ValueError, match="share of delta is not counted"):
        everywhere.admit(FAST)


@pytest.mark.parametrize("draw", PATHS)
def test_listed_it_draws_tables_in_the_order_of_the_mechanisms_at_a_joint_cost_within_their_sum(draw):
    assert 0 < draw(FAST, 20.0).delta_slack < Fraction(1, 10**20)
    assert draw(OsNoise(), None).delta_slack == draw(OsNoise(), 20.0).delta_slack == 0
    release = draw(SeededNoise(0), None)
    assert [m.table for m in release.mechanisms] == list(release.tables)
    assert release.rho <= sum(m.rho for m in release.mechanisms)


def test_a_sum_prices_itself():
    gaussian, laplace = (count_sum(tiny(), ask) for ask in (Ask(rho=1.0), Ask(epsilon=1.0)))
    assert gaussian.rho == total_rho(gaussian.mechanisms) and total_epsilon(laplace.mechanisms) == 1
    assert total_delta_slack(gaussian.with_slack(FAST, 5.0).mechanisms) > 0
    assert count_sum(tiny(), Ask()).rho is count_sum(tiny(), Ask()).joining_cost is None
    moments = lq_people.plan_of()
    assert moments.rho < sum(m.rho for m in moments.mechanisms)


def test_what_a_sum_publishes_has_the_listed_deviation():
    summed = count_sum(tiny(), Ask(rho=1.0))
    none = nobody(summed)
    drawn = [summed.perturb(none.tables, SeededNoise(i), none) for i in range(400)]
    for m in summed.mechanisms:
        assert np.var([d[m.table] for d in drawn]) == pytest.approx(m.standard_deviation**2, rel=0.1)


def test_whoever_holds_a_log_is_a_central_curator_and_sums_are_of_the_declared_kind():
    real = count_sum(tiny().model_copy(update={"kind": "real"}), Ask(rho=1.0))
    real.admit(OsNoise())
    for trust in (Trust.JOINT, Trust.LOCAL, Trust.SHUFFLE):
        with pytest.raises(RealDataError, match="central curator"):
            replace(real, trust=trust).admit(OsNoise())
    summed = count_sum(tiny(), Ask(rho=1.0))
    with pytest.raises(RealDataError, match="nothing was drawn"):
        summed.draw(nobody(summed, "real"), OsNoise())


@pytest.mark.parametrize("ask", [Ask(rho=1.0), Ask(epsilon=1.0), Ask(rho=1.0, counter=Tree(3))])
def test_who_joins_or_leaves_pays_what_the_largest_person_moves_and_no_more_than_who_is_replaced(ask):
    """By hand: one person of H = 2 steps adds 2 to n[h,s,a,s'] (L2²), where replacing moves 4."""
    summed = count_sum(tiny(), ask)
    assert summed.rho / 4 <= summed.joining_cost <= summed.rho
    if ask != Ask(rho=1.0):
        return
    for m in summed.mechanisms:
        (table,) = (t for t in summed.layout.tables if t.name == m.table)
        added = [count_person(tiny(), person)[m.table] for person in summed.layout.extremes()]
        assert table.add_remove.l2_squared == max(int((x**2).sum()) for x in added)
    rates = {t.name: t.add_remove.l2_squared for t in summed.layout.tables}
    assert summed.joining_cost == sum(Fraction(rates[m.table], 2 * m.variance) for m in summed.mechanisms)


def test_noise_of_no_width_unknown_tables_and_other_shapes_are_refused():
    """A table of another shape is never spread over the cells, and a rate of an unknown one is no gift."""
    layout = StartLayout(tiny())
    (table,) = layout.tables
    for noise in ({"variance": 0}, {"variance": -1}, {"scale": Fraction(0)}):
        with pytest.raises(ValueError, match="positive variance or scale"):
            table.mechanism(**noise)
    for shape in ((), (1,), (2, 2)):
        sums = ExactSums("tiny", "synthetic", "per_step", {"n_0": np.zeros(shape, np.int64)})
        with pytest.raises(ValueError, match="table n_0 must be"):
            PrivateSum(layout, (table.mechanism(9),)).draw(sums, SeededNoise(0))
    with pytest.raises(ValueError, match="n_xy"):
        count_sum(tiny(), Ask(rho=1.0)).layout.cost({"n_xy": Fraction(1)})
