"""Cost of a release to one person where a part of the people learns and the held-out people evaluate.

A person is in one part only, chosen by a keyed hash of their id, whatever their rows are.  Replacing them by a
person of the same part moves that part alone; by a person of the other part, one part loses a person and one gains one:

    max(ρ_A, ρ_B, ρ_A± + ρ_B±),

where ± is the cost of adding or removing one.  The query of part B depends on the answer of A; the loss of an adaptive
composition is bounded answer by answer, so the bound still holds.  (Proved in docs/evaluation_methods.md.)

The joint loss of a linear or LQ release is recomputed from its listed scales and declarations, without plan or data.

A step's Gram matrix and targets come from one row a person, so they are bounded together and the step costs no
more than the sum of its tables.  ``ledger verify`` computes it; it does not know how scales were chosen.
"""

# ruff: noqa: N806  (the letters of the paper)
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from pipeline.mdp.features import FeatureMap
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.count_layout import CountLayout, largest_square
from pipeline.statistics.gram import BallMoves, Reach, largest, moves, table_moves
from pipeline.statistics.layout import Relation
from pipeline.statistics.moment_layout import moments_cost
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.target_plan import pair_cost

_CALL = re.compile(r"(?P<kind>gram|target|target_squared)_(?P<half>D'?)_(?P<step>\d+)")


# plain values of a joint bound, as :class:`~pipeline.facts.promise.Joint` and its parts name them
Facts = Mapping[str, Any]


def joint_loss(
    mechanisms: Sequence[Mechanism], facts: Facts, features: FeatureMap, relation: Relation = "replace"
) -> Fraction:
    """Exact zCDP cost of a linear release to one person, from its listed mechanisms.

    Raises ValueError if a table has no noise, is none of a linear release, or lists a sensitivity that the features
    contradict.
    """
    episodes, H = facts["episodes"], facts["horizon"]
    rho_by_table = {x.table: x.rho for x in mechanisms}
    if any(rho is None for rho in rho_by_table.values()):
        raise ValueError("a table has no noise")
    rhos = {name: rho for name, rho in rho_by_table.items() if rho is not None}
    # a person who is added moves n_0 by half of the squared length of a replacement
    start = rhos.pop("n_0", Fraction(0)) / (1 if relation == "replace" else 2)
    if facts["variant"] != "one_shot":
        return start + _calls(mechanisms, rhos, facts, moves(features, episodes), relation)
    if rhos.keys() != {"gram", "target"}:
        raise ValueError(f"tables of no linear release: {sorted(rhos)}")
    reach: Reach = table_moves(features, facts["tag"], facts["reward"], episodes)
    for x in mechanisms:
        if x.table in rhos:
            _check_square(x, H * largest(reach, int(x.table == "target")), "features")
    gram, table = (rhos[name] / (H * largest(reach, i)) for i, name in enumerate(("gram", "target")))
    return start + H * reach.cost(gram, table, Fraction(0), relation)


def _check_square(m: Mechanism, square: int, declared: str) -> None:
    if m.l2_squared != square:
        raise ValueError(f"table {m.table}: squared sensitivity {m.l2_squared}, by the declared {declared} {square}")


def _calls(
    mechanisms: Sequence[Mechanism], rhos: Mapping[str, Fraction], facts: Facts, reach: Reach, relation: Relation
) -> Fraction:
    """Cost of all calls: steps add; a person of D' is in its calls and in regressions without one, one of D in all."""
    unit = [largest(reach, i) for i in range(3)]
    listed = {m.table: m for m in mechanisms}
    signed = facts["variant"] == "centred"
    rates: dict[tuple[int, str], list[Fraction]] = {}
    for name, rho in rhos.items():
        call = _CALL.fullmatch(name)
        if call is None:
            raise ValueError(f"table of no linear release: {name}")
        if call["kind"] == "gram":
            _check_square(listed[name], facts["weights"][call["half"]] ** 2 * unit[0], "features")
        which = 0 if call["kind"] == "gram" else 1 if call["kind"] == "target" and signed else 2
        rates.setdefault((int(call["step"]), call["half"]), [Fraction(0)] * 3)[which] += rho / unit[which]
    total = {"D": Fraction(0), "D'": Fraction(0)}
    for step in {h for h, _ in rates}:
        halves = {half: rate for (h, half), rate in rates.items() if h == step}
        if not facts["split"]:
            gram, signed, unsigned = (sum(parts, Fraction(0)) for parts in zip(*halves.values(), strict=True))
            total["D"] += reach.cost(gram, signed, unsigned, relation)
            continue
        costs = {half: reach.cost(rate[0], rate[1], rate[2], relation) for half, rate in halves.items()}
        total["D"] += costs.get("D", Fraction(0))
        total["D'"] += costs.get("D'", costs.get("D", Fraction(0)))
    return max(total.values())


def one_step_loss(mechanisms: Sequence[Mechanism], facts: Facts) -> Fraction:
    """Exact zCDP cost to one person of both stages: each bounded jointly, then added.

    ``facts``: ``joint`` of the release: rows a person, rows a key, keys and lattice steps of each stage.
    Raises ValueError if a table has no noise, is none of a one-step release, or lists a sensitivity that the sizes
    contradict.
    """
    listed, cost = {m.table: m for m in mechanisms}, Fraction(0)
    if set(listed) != {f"{stage}_{column}" for stage in facts["stages"] for column in ("count", "sum")}:
        raise ValueError(f"tables of no one-step release: {sorted(listed)}")
    for stage, stage_facts in facts["stages"].items():
        cost += stage_loss(listed[f"{stage}_count"], listed[f"{stage}_sum"], stage_facts)
    return cost


def stage_loss(count: Mechanism, total: Mechanism, facts: Facts) -> Fraction:
    """Exact zCDP cost to one person of counts and sums of one stage, bounded jointly.

    ``facts``: rows a person, rows a key, keys and lattice steps.
    Returns of a counter, that of all its rows: a person is in one leaf.
    Raises ValueError if a table has no noise, or lists a sensitivity that the sizes contradict, or the two are of two
    counters.
    """
    square, steps = largest_square(facts["rows"], facts["cap"], facts["keys"]), facts["steps"]
    if count.cells != facts["keys"] or total.shape != count.shape:
        raise ValueError(
            f"table {count.table}: {facts['keys']} keys, listed are tables of {count.cells} and {total.cells}"
        )
    for m, square_of in ((count, 2 * square), (total, 4 * steps**2 * square)):
        _check_square(m, square_of, "sizes")
    if count.variance is None or total.variance is None:
        raise ValueError("a table has no noise")
    weights = {1 if m.running is None else m.running.cost for m in (count, total)}
    if len(weights) > 1:
        raise ValueError(f"table {count.table}: of another counter than its sums")
    return weights.pop() * pair_cost(square, steps, Fraction(1, 2 * count.variance), Fraction(1, 2 * total.variance))


def lq_loss(mechanisms: Sequence[Mechanism], facts: Facts) -> Fraction:
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
        _check_square(m, alone[table], "sizes")
        if m.variance is None:
            raise ValueError("a table has no noise")
        rates[table] = Fraction(1, 2 * m.variance)
    return BallMoves(square, N).cost(rates["gram"], rates["target"] * q * q, Fraction(0))


RULE = "max(ρ_A, ρ_B, ρ_A± + ρ_B±): people in two parts by a keyed hash of their id; ±: one person joins or leaves"

Cost = tuple[Fraction, Fraction]


def parts_cost(learn: Cost, evaluate: Cost) -> Fraction:
    """Exact zCDP cost of both parts together."""
    (a, a_joining), (b, b_joining) = learn, evaluate
    return max(a, b, a_joining + b_joining)


def part_facts(sums: Sequence[PrivateSum]) -> dict[str, Any] | None:
    """Cost of a part and its grounds; None where a table has no noise."""
    if any(s.rho is None for s in sums):
        return None
    replace = sum((s.rho or Fraction(0) for s in sums), Fraction(0))
    listed = [_facts(s) for s in sums]
    mechanisms = [m for s in sums for m in s.mechanisms]
    return {"rho_exact": str(replace), "rho_add_remove": str(_joining(mechanisms, listed)), "sums": listed}


# prefix of the tables of held-out people
OTHERS = "b_"


def of_others(private: PrivateSum) -> PrivateSum:
    """The same private sum of counts, of the held-out people: the names of its tables are prefixed."""
    assert isinstance(private.layout, CountLayout)
    mechanisms = tuple(replace(m, table=OTHERS + m.table) for m in private.mechanisms)
    return replace(private, layout=replace(private.layout, prefix=OTHERS), mechanisms=mechanisms)


def their_names(drawn: Release) -> Release:
    """A release of the held-out people, as it is published: every name begins with :data:`OTHERS`."""
    mechanisms = tuple(replace(m, table=OTHERS + m.table) for m in drawn.mechanisms)
    return replace(drawn, mechanisms=mechanisms, tables={OTHERS + name: x for name, x in drawn.tables.items()})


def our_names(published: Release, private: PrivateSum) -> Release:
    """The release before :func:`their_names`."""
    tables = {m.table: published.tables[OTHERS + m.table] for m in private.mechanisms}
    return replace(published, mechanisms=private.mechanisms, tables=tables, derived={}, joint=None, joint_rho=None)


def _facts(s: PrivateSum) -> dict[str, Any]:
    joint = s.layout.joint()
    return {
        "tables": [t.name for t in s.layout.tables],
        "add_remove": [t.add_remove.l2_squared for t in s.layout.tables],
        "joint": None if joint is None else {n: x for n, x in joint.items() if isinstance(x, int)},
    }


def _joining(mechanisms: Sequence[Mechanism], sums: Sequence[Facts]) -> Fraction:
    """Cost of adding or removing one person, who may move every table at its worst."""
    square = {name: s for facts in sums for name, s in zip(facts["tables"], facts["add_remove"], strict=True)}
    return sum((Fraction(square[m.table], 2 * _variance(m)) for m in mechanisms), Fraction(0))


def _variance(m: Mechanism) -> int:
    if m.variance is None:
        raise ValueError(f"table {m.table} has no Gaussian noise")
    return m.variance


def _replacing(mechanisms: Sequence[Mechanism], sum_facts: Facts) -> Fraction:
    rates = {m.table: Fraction(1, 2 * _variance(m)) for m in mechanisms}
    facts = sum_facts["joint"]
    if facts is None:
        return sum((m.rho or Fraction(0) for m in mechanisms), Fraction(0))
    if "scores" in facts:
        scores, halved = facts["scores"], facts.get("halved", 0)
        sums, squares, people = (rates[name] for name in sum_facts["tables"])
        rho = moments_cost(scores, facts["steps"], sums, squares, people, "replace", halved)
        # no fewer scores than are summed, and no shorter ones than their sums alone would cost
        if (scores,) != mechanisms[0].shape or not 0 <= halved <= scores or rho < (mechanisms[0].rho or 0):
            raise ValueError(f"sums of {scores} scores, {halved} halved, said to cost {float(rho):.3g}: they cost more")
        return rho
    count, total = mechanisms
    return stage_loss(count, total, facts)


def held_out_loss(mechanisms: Sequence[Mechanism], facts: Facts, features: FeatureMap | None = None) -> Fraction:
    """Exact zCDP cost of a release on two parts, from its listed mechanisms, without plan or data."""
    learn, evaluate = part_costs(mechanisms, facts, features)
    return parts_cost(learn, evaluate)


def part_costs(mechanisms: Sequence[Mechanism], facts: Facts, features: FeatureMap | None = None) -> tuple[Cost, Cost]:
    """Costs of replacing one person, and of adding or removing one, in each part, from the listed mechanisms.

    Raises ValueError if a table has no noise, is of no part or of both, or lists a larger move of an added person than
    of a replaced one.
    """
    listed, costs = {m.table: m for m in mechanisms}, list[Cost]()
    names = [name for part in (facts["learn"], facts["evaluate"]) for s in part["sums"] for name in s["tables"]]
    # tables of regressions are not named in any sum: their own loss refuses all others
    unnamed, regressions = [m for m in mechanisms if m.table not in names], facts["learn"].get("regressions")
    twice = len(set(names)) < len(names) or len(listed) < len(mechanisms)
    if twice or not set(names) <= set(listed) or bool(unnamed) != (regressions is not None):
        raise ValueError("some table is of no part of the people, or of both")
    for part in (facts["learn"], facts["evaluate"]):
        for s in part["sums"]:
            for name, square in zip(s["tables"], s["add_remove"], strict=True):
                if not 4 * square >= listed[name].l2_squared >= square:
                    raise ValueError(f"table {name}: {square} for one who joins, {listed[name].l2_squared} replaced")
        drawn = [[listed[name] for name in s["tables"]] for s in part["sums"]]
        replace = sum((_replacing(m, s) for m, s in zip(drawn, part["sums"], strict=True)), Fraction(0))
        costs.append((replace, _joining([m for group in drawn for m in group], part["sums"])))
    (first, joining), second = costs
    if regressions is None:
        return (first, joining), second
    if features is None:
        raise ValueError("the features of the regressions are not at hand")
    regression_costs = [joint_loss(unnamed, regressions, features, relation) for relation in ("replace", "add_remove")]
    return (first + regression_costs[0], joining + regression_costs[1]), second
