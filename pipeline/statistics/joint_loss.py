"""The joint loss of a linear or LQ release, again: from its listed scales and declarations, without plan or data.

A step's Gram matrix and targets come from one row a person, so they are bounded together and the step costs no
more than the sum of its tables.  This is what ``ledger verify`` computes; it knows nothing of how scales were chosen.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal, TypedDict

from pipeline.mdp.features import FeatureMap
from pipeline.privacy.release import Mechanism
from pipeline.statistics.count_layout import largest_square
from pipeline.statistics.gram import BallMoves, Reach, largest, moves, table_moves
from pipeline.statistics.layout import Relation
from pipeline.statistics.target_plan import pair_cost

_CALL = re.compile(r"(?P<kind>gram|target|target_squared)_(?P<half>D'?)_(?P<step>\d+)")


class _Facts(TypedDict):
    split: bool
    horizon: int
    episodes: int
    weights: dict[str, int]


class OneShotFacts(_Facts):
    """What is read of :func:`~pipeline.statistics.linear_sums.joint_facts` where all was asked at once."""

    variant: Literal["one_shot"]
    tag: int
    reward: int


class AdaptiveFacts(_Facts):
    """The same where a planner asked step by step."""

    variant: Literal["centred", "paper"]


RegressionFacts = OneShotFacts | AdaptiveFacts


class LqFacts(TypedDict):
    """What is read of ``joint`` of an LQ release."""

    horizon: int
    episodes: int
    steps: int
    square: int


def joint_loss(
    mechanisms: Sequence[Mechanism], facts: RegressionFacts, features: FeatureMap, of: Relation = "replace"
) -> Fraction:
    """Exact zCDP cost of a linear release to one person, from what the release lists.

    Raises ValueError if a table has no noise, is none of a linear release, or lists a sensitivity that the features
    contradict.
    """
    m, H = facts["episodes"], facts["horizon"]
    cost = {x.table: x.rho for x in mechanisms}
    if any(rho is None for rho in cost.values()):
        raise ValueError("a table has no noise")
    rhos = {name: rho for name, rho in cost.items() if rho is not None}
    # who joins moves half of what a replaced person does, squared
    start = rhos.pop("n_0", Fraction(0)) / (1 if of == "replace" else 2)
    if facts["variant"] == "one_shot":
        reach: Reach = table_moves(features, facts["tag"], facts["reward"], m)
        for x in mechanisms:
            if x.table in ("gram", "target"):
                _check_square(x, H * largest(reach, int(x.table == "target")))
        gram, table = (rhos.pop(name) / (H * largest(reach, i)) for i, name in enumerate(("gram", "target")))
        steps = H * reach.cost(gram, table, Fraction(0), of)
    else:
        steps = _calls(mechanisms, rhos, facts, moves(features, m), of)
        rhos = {}
    if rhos:
        raise ValueError(f"tables of no linear release: {sorted(rhos)}")
    return start + steps


def _check_square(m: Mechanism, square: int) -> None:
    if m.l2_squared != square:
        raise ValueError(f"table {m.table}: squared sensitivity {m.l2_squared}, by the declared features {square}")


def _calls(
    mechanisms: Sequence[Mechanism], rhos: Mapping[str, Fraction], facts: AdaptiveFacts, reach: Reach, of: Relation
) -> Fraction:
    """Steps add; a person of D' is in its calls and in every regression that stood alone, one of D in all of D."""
    unit = [largest(reach, i) for i in range(3)]
    listed = {m.table: m for m in mechanisms}
    signed = facts["variant"] == "centred"
    rates: dict[tuple[int, str], list[Fraction]] = {}
    for name, rho in rhos.items():
        call = _CALL.fullmatch(name)
        if call is None:
            raise ValueError(f"table of no linear release: {name}")
        if call["kind"] == "gram":
            _check_square(listed[name], facts["weights"][call["half"]] ** 2 * unit[0])
        which = 0 if call["kind"] == "gram" else 1 if call["kind"] == "target" and signed else 2
        rates.setdefault((int(call["step"]), call["half"]), [Fraction(0)] * 3)[which] += rho / unit[which]
    total = {"D": Fraction(0), "D'": Fraction(0)}
    for step in {h for h, _ in rates}:
        halves = {half: found for (h, half), found in rates.items() if h == step}
        if not facts["split"]:
            gram, signed, unsigned = (sum(parts, Fraction(0)) for parts in zip(*halves.values(), strict=True))
            total["D"] += reach.cost(gram, signed, unsigned, of)
            continue
        each = {half: reach.cost(found[0], found[1], found[2], of) for half, found in halves.items()}
        total["D"] += each.get("D", Fraction(0))
        total["D'"] += each.get("D'", each.get("D", Fraction(0)))
    return max(total.values())


class StageFacts(TypedDict):
    """What is read of one stage of a one-step release."""

    rows: int
    cap: int
    keys: int
    steps: int


class OneStepFacts(TypedDict):
    """What is read of ``joint`` of a one-step release."""

    stages: dict[str, StageFacts]


def one_step_loss(mechanisms: Sequence[Mechanism], facts: OneStepFacts) -> Fraction:
    """Exact zCDP cost to one person of both stages: each bounded jointly, then added.

    ``facts``: ``joint`` of the release: rows a person, rows a key, keys and lattice steps of each stage.
    Raises ValueError if a table has no noise, is none of a one-step release, or lists a sensitivity that the sizes
    contradict.
    """
    listed, cost = {m.table: m for m in mechanisms}, Fraction(0)
    if set(listed) != {f"{stage}_{column}" for stage in facts["stages"] for column in ("count", "sum")}:
        raise ValueError(f"tables of no one-step release: {sorted(listed)}")
    for stage, told in facts["stages"].items():
        cost += stage_loss(listed[f"{stage}_count"], listed[f"{stage}_sum"], told)
    return cost


def stage_loss(count: Mechanism, total: Mechanism, told: StageFacts) -> Fraction:
    """Exact zCDP cost to one person of counts and sums of one stage, bounded jointly.

    ``told``: rows a person, rows a key, keys and lattice steps.
    Returns of a counter, that of all its rows: a person is in one leaf.
    Raises ValueError if a table has no noise, or lists a sensitivity that the sizes contradict, or the two are of two
    counters.
    """
    square, steps = largest_square(told["rows"], told["cap"], told["keys"]), told["steps"]
    if count.cells != told["keys"] or total.shape != count.shape:
        raise ValueError(
            f"table {count.table}: {told['keys']} keys, listed are tables of {count.cells} and {total.cells}"
        )
    for m, most in ((count, 2 * square), (total, 4 * steps**2 * square)):
        if m.l2_squared != most:
            raise ValueError(f"table {m.table}: squared sensitivity {m.l2_squared}, by the declared sizes {most}")
    if count.variance is None or total.variance is None:
        raise ValueError("a table has no noise")
    weights = {1 if m.running is None else m.running.cost for m in (count, total)}
    if len(weights) > 1:
        raise ValueError(f"table {count.table}: of another counter than its sums")
    return weights.pop() * pair_cost(square, steps, Fraction(1, 2 * count.variance), Fraction(1, 2 * total.variance))


def lq_loss(mechanisms: Sequence[Mechanism], facts: LqFacts) -> Fraction:
    """Exact zCDP cost to one person of both tables together.

    Raises ValueError if a table has no noise, is none of an LQ release, or lists a sensitivity that the sizes
    contradict.
    """
    listed = {m.table: m for m in mechanisms}
    if set(listed) != {"gram", "target"}:
        raise ValueError(f"tables of no LQ release: {sorted(listed)}")
    N, q = facts["horizon"] * facts["episodes"], facts["steps"]
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
