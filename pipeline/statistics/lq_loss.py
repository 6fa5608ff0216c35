"""The joint loss of an LQ release, again: from its listed scales and declared sizes, without plan or data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from pipeline.privacy.release import Mechanism
from pipeline.statistics.linear_sensitivity import BallMoves


def lq_loss(mechanisms: Sequence[Mechanism], facts: Mapping[str, Any]) -> Fraction:
    """Exact zCDP cost to one person of both tables together.

    Parameters
    ----------
    facts
        ``joint`` of the release: N = horizon x episodes rows of one person, q steps to the edge of a ball.

    Raises
    ------
    ValueError
        If a table has no noise, is none of an LQ release, or lists a sensitivity that the sizes contradict.
    """
    listed = {m.table: m for m in mechanisms}
    if set(listed) != {"gram", "target"}:
        raise ValueError(f"tables of no LQ release: {sorted(listed)}")
    N, q = facts["horizon"] * facts["episodes"], facts["steps"]  # noqa: N806
    square = 2 * q * q
    if facts["square"] != square:
        raise ValueError(f"a row of {q} steps has squared length up to {square}, stated is {facts['square']}")
    alone = {"gram": 2 * (N * square) ** 2, "target": 4 * N * N * square * q * q}
    rates: dict[str, Fraction] = {}
    for table, m in listed.items():
        if m.l2_squared != alone[table]:
            raise ValueError(f"table {table}: squared sensitivity {m.l2_squared}, by the declared sizes {alone[table]}")
        if m.variance is None:
            raise ValueError("a table has no noise")
        rates[table] = Fraction(1, 2 * m.variance)
    return BallMoves(square, N).cost(rates["gram"], rates["target"] * q * q, Fraction(0))
