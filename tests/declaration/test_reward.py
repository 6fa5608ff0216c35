"""Rewards declared on the state entered, by table, and within a total."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.declaration.card import task_of
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from reticent import Card, CardError, load_card
from tests.conftest import card_dict
from tests.declaration.test_card import GOOD, write

RANGE = "range = [0.0, 1.0]"


def card_of(**reward: object) -> Card:
    return Card.model_validate(card_dict(reward={"range": [0.0, 1.0], **reward}))


def test_a_reward_on_entering_is_neither_read_nor_released():
    card = card_of(on_entering={"end": 1.0, "y": 0.25})
    assert card.reward.kind == "on_entering" and "reward" not in card.log.roles
    assert [t.table for t in count_sum(card, Ask(rho=1.0)).mechanisms] == ["n_sas"]
    task = task_of(card)
    assert task.entering is not None and task.entering.tolist() == [0.0, 0.25, 1.0]
    P = np.array([[[[0.5, 0.25, 0.25]] * 2] * 2])
    expected = task.expected(P)
    assert expected is not None and np.unique(expected).tolist() == [0.0625 + 0.25]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("on_entering = { gone = 1.0 }", ["reward.on_entering", "['gone']", "declared: x, y, OTHER, end"]),
        ("on_entering = { end = 2.0 }", ["reward: on_entering", "[0.0, 1.0]"]),
        ("on_entering = { end = nan }", ["reward.on_entering"]),
        ("on_entering = {}", ["reward.on_entering"]),
        ('kind = "estimate"\non_entering = { end = 1.0 }', ["goes with 'on_entering'"]),
        ('kind = "on_entering"', ["goes with 'on_entering'"]),
        ('kind = "table"\ntable = [[[0, 0], [0, 0], [0, 0]], [[0, 0], [0, 0], [0, 0]]]', ["one a step (3); got 2"]),
        ('kind = "table"\ntable = [[0, 0], [0]]', ["3 rows of 2 numbers"]),
        ('kind = "table"\ntable = []', ["3 rows of 2 numbers"]),
    ],
)
def test_a_declared_reward_that_does_not_fit_says_so(tmp_path, wrong, says):
    with pytest.raises(CardError) as e:
        load_card(write(tmp_path, GOOD.replace(RANGE, f"{RANGE}\n{wrong}")))
    for part in ["card.toml", *says]:
        assert part in str(e.value)


def test_a_table_may_stand_for_every_step_or_for_one():
    once, each = [[0.0, 0.5], [1.0, 0.0]], [[[0.0, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.0, 0.0]]]
    assert np.array_equal(task_of(card_of(kind="table", table=once)).rewards, once)
    assert np.array_equal(task_of(card_of(kind="table", table=each)).rewards, each)


def test_a_total_bounds_every_value_to_go_and_how_far_two_may_lie_apart():
    free, bounded = task_of(card_of(steps=4)), task_of(card_of(steps=4, total=0.75))
    assert [free.value_range(h) for h in range(2)] == [(0.0, 2.0), (0.0, 1.0)] and free.reach == 2.0
    assert [bounded.value_range(h) for h in range(2)] == [(0.0, 0.75), (0.0, 0.75)] and bounded.reach == 0.75
    assert task_of(card_of(total=5.0)).value_range(0) == (0.0, 2.0)
