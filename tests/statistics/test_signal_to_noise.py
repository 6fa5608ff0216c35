"""What ``plan`` says of noise against data: from declared numbers, and true of the noise that is drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import (
    count_sum,
    even_visits,
    people_needed,
    scale_budget,
    signal_to_noise,
    visit_noise,
)
from tests.conftest import card_dict


@pytest.mark.parametrize("tables", ["one_table", "two_tables"])
@pytest.mark.parametrize("dynamics", ["per_step", "stationary"])
def test_the_noise_on_a_visit_count_is_that_of_the_drawn_tables(make_card, tables, dynamics):
    card = make_card(domain=card_dict()["domain"] | {"dynamics": dynamics})
    mechanisms = count_sum(card, Ask(rho=0.5, tables=tables)).mechanisms
    table = {m.table: m for m in mechanisms}
    rng = np.random.default_rng(0)
    if tables == "two_tables":
        drawn = rng.normal(0, table["n_sa"].standard_deviation, 200_000)
    else:
        drawn = rng.normal(0, table["n_sas"].standard_deviation, (200_000, len(card.domain.state_labels))).sum(-1)
    assert visit_noise(card, mechanisms) == pytest.approx(drawn.std(), rel=0.02)


def test_visits_are_declared_steps_over_cells(make_card):
    for episodes in (1, 3):
        card = make_card(unit=card_dict()["unit"] | {"episodes_per_user": episodes})
        d = card.domain
        cells = d.table_steps * len(d.live_states) * len(d.action_labels)
        assert even_visits(card, 100) * cells == pytest.approx(100 * episodes * d.horizon)


def test_ten_times_the_people_or_a_hundred_times_the_budget_is_ten_times_the_ratio(make_card):
    # small budgets: variances are integers, and large ones hardly feel the rounding
    card, ask = make_card(), Ask(rho=0.0001)
    base = signal_to_noise(card, ask).ratio
    assert signal_to_noise(card, ask, 10 * card.unit.users_public).ratio == pytest.approx(10 * base)
    assert signal_to_noise(card, scale_budget(ask, 100)).ratio == pytest.approx(10 * base, rel=0.02)
    # without noise every count is heard
    assert signal_to_noise(card, Ask()).ratio == math.inf
    pure = Ask(epsilon=0.01)
    assert signal_to_noise(card, scale_budget(pure, 10)).ratio == pytest.approx(
        10 * signal_to_noise(card, pure).ratio, rel=1e-9
    )


@pytest.mark.parametrize("level", [1.0, 3.0, 10.0])
def test_the_people_needed_are_the_fewest(make_card, level):
    card, ask = make_card(), Ask(rho=0.01)
    n = people_needed(card, ask, level)
    assert signal_to_noise(card, ask, n).ratio >= level > signal_to_noise(card, ask, n - 1).ratio
