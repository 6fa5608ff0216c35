"""Sensitivity by enumeration: every person of a tiny domain, through the code that really counts (privacy.md §12.1)."""

import itertools
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from scipy.spatial.distance import cdist

from pipeline.logs.aggregate import count_rows
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.count_layout import CountLayout
from reticent import Card
from tests.conftest import card_dict, domain_dict, slow

SCHEMA = {
    "user_id": pl.Int64,
    "episode_id": pl.Int64,
    "step": pl.Int32,
    "state": pl.Int32,
    "action": pl.Int32,
    "reward": pl.Float64,
    "next_state": pl.Int32,
    "terminated": pl.Boolean,
}


def tiny(dynamics="per_step", m=1, horizon=2, cap=None, total=None, steps=1, labels=("x", "y")) -> Card:
    domain = domain_dict(horizon, list(labels), ["a", "b"], ["end"], dynamics=dynamics, cell_cap=cap)
    reward = {"range": [0.0, 1.0], "steps": steps, "total": total}
    unit = {"user": "user_id", "episodes_per_user": m, "users_public": 100}
    return Card.model_validate(card_dict(domain=domain, reward=reward, unit=unit))


def episodes(card: Card, rewards: list[float]) -> list[list[tuple]]:
    """Every episode of the domain, short ones and the empty one included."""
    L, S, A = len(card.domain.live_states), len(card.domain.state_labels), len(card.domain.action_labels)
    found: list[list[tuple]] = [[]]
    growing: list[list[tuple]] = [[(0, s)] for s in range(L)]
    for h in range(card.domain.horizon):
        longer = []
        for episode in growing:
            s = episode[-1][1]
            for a, r, s2 in itertools.product(range(A), rewards, range(S)):
                rows = [*episode[:-1], (h, s, a, r, s2)]
                found.append(rows)
                if s2 < L:
                    longer.append([*rows, (h + 1, s2)])
        growing = longer
    return found


def canonical(person: Iterable[list[tuple]]) -> pl.DataFrame:
    rows = [(1, e, h, s, a, r, s2, False) for e, episode in enumerate(person) for h, s, a, r, s2 in episode]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def vectors(card: Card, people: list[tuple[list[tuple], ...]], tables: list[str]) -> dict[str, np.ndarray]:
    """One row a person: what that person adds to each table."""
    counted = [count_rows(canonical(person), card) for person in people]
    return {t: np.array([one[t].reshape(-1) for one in counted], dtype=np.int64) for t in tables}


def largest(v: np.ndarray) -> tuple[int, int]:
    """Largest squared L2 and L1 distance between two people."""
    return largest_square(v), int(cdist(v := np.unique(v, axis=0), v, "cityblock").max())


def largest_square(v: np.ndarray) -> int:
    v = np.unique(v, axis=0)
    squares = (v * v).sum(1)
    return int((squares[:, None] + squares[None] - 2 * v @ v.T).max())


def check(card: Card, rewards: list[float], claimed: dict[str, tuple[int, int]]) -> None:
    each = episodes(card, rewards)
    # without a cap on a cell's rows no episode of a person comes first
    some = itertools.product if card.domain.cell_cap else itertools.combinations_with_replacement
    people = list(some(each, **{"repeat" if card.domain.cell_cap else "r": card.unit.episodes_per_user}))
    found = vectors(card, people, list(claimed))
    for table, claim in claimed.items():
        assert largest(found[table]) == claim, f"{table}: enumerated {largest(found[table])}, claimed {claim}"


def claims(card: Card, only: tuple[str, ...] | None = None) -> dict[str, tuple[int, int]]:
    parts = {t.name: t.replace for t in CountLayout(card, "two_tables").tables}
    return {t: (s.l2_squared, s.l1) for t, s in parts.items() if only is None or t in only}


CASES = {
    "per step, one episode": (tiny(), [0.0, 1.0]),
    "per step, one episode, finer lattice": (tiny(steps=3, horizon=1), [0.0, 1 / 3, 2 / 3, 1.0]),
    "per step, two episodes": (tiny(m=2, horizon=1), [0.0, 1.0]),
    "per step, declared total": (tiny(total=1.0), [0.0, 1.0]),
    "stationary, no cap": (tiny("stationary"), [0.0, 1.0]),
    "stationary, cap 1": (tiny("stationary", cap=1), [0.0, 1.0]),
    "stationary, three steps, cap 2": (tiny("stationary", cap=2, horizon=3), [0.0]),
    "stationary, two episodes, cap 2": (tiny("stationary", cap=2, m=2, horizon=1), [0.0, 1.0]),
    "stationary, declared total": (tiny("stationary", total=1.0), [0.0, 1.0]),
    "stationary, total of two steps, two episodes": (
        tiny("stationary", total=1.0, steps=2, m=2, horizon=1),
        [0.0, 0.5, 1.0],
    ),
}


# the others are enumerated with all layouts: test_layouts.py
@pytest.mark.parametrize(
    "case",
    [
        *("per step, two episodes", "stationary, three steps, cap 2", "stationary, declared total"),
        *map(slow, ("stationary, two episodes, cap 2", "stationary, total of two steps, two episodes")),
    ],
)
def test_enumerated_people_move_each_table_exactly_as_claimed(case):
    card, rewards = CASES[case]
    only = None if len(rewards) > 1 else ("n_0", "n_sa", "n_sas")
    check(card, rewards, claims(card, only))


def test_a_person_outside_the_small_domains_stays_below_the_claim():
    """Random people of a larger domain: six steps, three episodes, caps that bite, rewards everywhere."""
    rng = np.random.default_rng(5)
    for dynamics, cap, total in (
        ("per_step", None, None),
        ("stationary", 3, None),
        ("stationary", 2, 1.5),
        ("stationary", None, 2.0),
    ):
        card = tiny(dynamics, m=3, horizon=6, cap=cap, total=total, steps=4)
        people = []
        for _ in range(80):
            person = []
            for _ in range(3):
                states = rng.integers(2, size=8).tolist()
                paid = [float(rng.choice([0.0, 1.0, rng.random()])) for _ in range(int(rng.integers(7)))]
                person.append([(h, states[h], int(rng.random() < 0.2), r, states[h + 1]) for h, r in enumerate(paid)])
            people.append(tuple(person))
        found = vectors(card, people, list(claims(card)))
        for table, (l2, l1) in claims(card).items():
            got = largest(found[table])
            assert got[0] <= l2 and got[1] <= l1, (dynamics, table)


@pytest.mark.parametrize("twin", ["a forgotten step", "twice too much", "a cap that is ignored"])
def test_a_wrong_sensitivity_and_counting_that_ignores_the_cap_are_caught(twin, monkeypatch):
    card = tiny("stationary", cap=1) if "cap" in twin else tiny()
    told = claims(card)
    if "cap" in twin:
        monkeypatch.setattr("pipeline.logs.contribution_bounding.cap_cells", lambda rows, card: rows)
    elif "step" in twin:
        told = {t: (l2 - 2, l1 - 2) for t, (l2, l1) in told.items()}
    else:
        told = {t: (2 * l2, 2 * l1) for t, (l2, l1) in told.items()}
    with pytest.raises(AssertionError, match="enumerated"):
        check(card, [0.0, 1.0], told)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rho", [0.1, 1.0, 2.5])
@pytest.mark.parametrize("tables", ["one_table", "two_tables"])
def test_emitted_scales_cost_at_most_what_was_asked(case, rho, tables):
    mechanisms = count_sum(CASES[case][0], Ask(rho=rho, tables=tables)).mechanisms
    spent = sum((Fraction(m.l2_squared, 2 * m.variance) for m in mechanisms), Fraction(0))
    assert spent <= Fraction(str(rho))
    assert spent >= Fraction(str(rho)) * Fraction(1, 2)  # integer rounding may waste, not dominate


def test_the_paper_scales_cost_exactly_rho_where_its_assumptions_hold():
    domain = card_dict()["domain"] | {"horizon": 20}
    table = [[0.0, 0.0], [0.0, 0.0]]
    card = Card.model_validate(card_dict(domain=domain, reward={"kind": "table", "range": [0, 1], "table": table}))
    mechanisms = count_sum(card, Ask(rho=1.0, tables="two_tables", calibration="paper")).mechanisms
    assert [m.variance for m in mechanisms] == [40, 40]
    assert sum(m.rho for m in mechanisms) == 1
    laplace = count_sum(card, Ask(epsilon=1.0, tables="two_tables", calibration="paper")).mechanisms
    assert [m.scale for m in laplace] == [80, 80] and sum(m.epsilon for m in laplace) == 1
    # where they do not hold, the cost is recomputed: m episodes cost m squared
    two = card.model_copy(update={"unit": card.unit.model_copy(update={"episodes_per_user": 2})})
    assert sum(m.rho for m in count_sum(two, Ask(rho=1.0, tables="two_tables", calibration="paper")).mechanisms) == 4
