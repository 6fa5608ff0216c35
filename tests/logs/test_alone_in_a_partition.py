"""A person whose one row is alone in its partition, and the same row beside others: it says the same.

Polars divides a column of one row by a constant, and multiplies a longer one by the constant's inverse; what a thread
gets of a column may be one row.  The last digit of such a quotient tells whether anybody else is there.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from pipeline.declaration.domain import Vector
from pipeline.logs import decode as wide
from pipeline.logs.decode import decode, vector_cells
from reticent import Card
from tests.conftest import card_dict

# a billionth of a step below a lattice point of 0 .. 3 in 1000 steps, as the rule for rounding has it
ON_THE_EDGE = 0.005999999997


def rewards(values: list[float]) -> list[float]:
    card = Card.model_validate(card_dict(reward={"range": [0.0, 3.0], "steps": 1000}))
    cells = {"user": "u", "episode": "1", "step": "0", "state": "x", "action": "a"}
    raw = pl.DataFrame([{f"raw_{k}": v for k, v in (cells | {"reward": repr(r)}).items()} for r in values])
    return decode(raw.with_row_index("raw_row"), card)["reward"].to_list()


@pytest.mark.parametrize("ulps", range(-3, 4))
def test_a_reward_is_floored_alike_alone_and_beside_others(ulps):
    r = ON_THE_EDGE
    for _ in range(abs(ulps)):
        r = math.nextafter(r, math.copysign(math.inf, ulps))
    beside = rewards([r, 1.0, 1.0])[0], rewards([1.0, 1.0, r])[-1], rewards([r] + [1.0] * 8)[0]
    assert {rewards([r])[0]} == set(beside)


def test_a_date_is_the_same_number_alone_and_beside_others():
    def days(texts: list[str]) -> list[float]:
        order = wide.order_of({"order": pl.String()})
        return pl.DataFrame({"raw_order": texts}).select(order.alias("found"))["found"].to_list()

    odd = "0001-01-01T00:00:00+23:59"
    assert days([odd])[0] == days([odd, "2026-01-02"])[0]


def test_a_coordinate_is_scaled_alike_alone_and_beside_others():
    vector = Vector(columns=["v"], scale=[3.7], radius=1e6)

    def scaled(values: list[float]) -> list[float]:
        cells, *_ = vector_cells("o", ["v"], vector, {"o@0": pl.Float64()})
        return [x for (x,) in pl.DataFrame({"raw_o@0": values}).select(cells.alias("x"))["x"].to_list()]

    # half-way between two numbers of 32 bits, and a little beside
    between = (float(np.float32(1.1)) + float(np.nextafter(np.float32(1.1), np.float32(2)))) / 2
    near = [between * 3.7]
    for _ in range(3):
        near = [math.nextafter(near[0], 0.0), *near, math.nextafter(near[-1], 9.0)]
    assert [scaled([x])[0] for x in near] == scaled(near)
