"""What one person moves in all rows of a nightly counter, enumerated: every pair of records, every choice of nights."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from pipeline.privacy.continual import continual
from pipeline.privacy.release import total_rho
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.count_layout import CountLayout, leaf_sensitivity, start_sensitivity
from reticent import Card
from tests.privacy.test_continual import matrix
from tests.statistics.test_sensitivity import episodes, largest_square, tiny, vectors

NIGHTS = 3


def recurring(recurs: str, *args, **kwargs) -> Card:
    card = tiny(*args, **kwargs)
    return card.model_copy(update={"unit": card.unit.model_copy(update={"recurs": recurs})})


def leaf(card: Card) -> CountLayout:
    return CountLayout(card, "two_tables", leaf=True)


def people(card: Card, rewards: list[float]) -> list[dict[int, tuple[list[tuple], ...]]]:
    """Night -> episodes of every person: all of them on one night, or (capped) each on a night of its own choice."""
    each, m = episodes(card, rewards), card.unit.episodes_per_user
    found = []
    for chosen in itertools.combinations_with_replacement(each, m):
        if card.unit.recurs == "never":
            found += [{night: chosen} for night in range(NIGHTS)]
            continue
        for nights in itertools.product(range(NIGHTS), repeat=m):
            found.append({k: tuple(e for e, n in zip(chosen, nights, strict=True) if n == k) for k in set(nights)})
    return found


@cache
def by_night(case: str) -> dict[str, np.ndarray]:
    """Table -> what each person of the domain adds on each night ``(people, nights, n)``."""
    card, rewards, _ = CASES[case]
    everybody = people(card, rewards)
    groups = list({repr(g): g for person in everybody for g in person.values()}.values())
    where = {repr(g): i for i, g in enumerate(groups)}
    out = {}
    for table, counted in vectors(card, groups, [t.name for t in leaf(card).tables]).items():
        out[table] = np.zeros((len(everybody), NIGHTS, counted.shape[1]), dtype=np.int64)
        for i, person in enumerate(everybody):
            for night, g in person.items():
                out[table][i, night] = counted[where[repr(g)]]
    return out


def moved(case: str, kind: str, window: int | None = None) -> dict[str, int]:
    """Largest squared move of all rows of each table, by enumeration."""
    M = matrix(continual(kind, NIGHTS, window))[0].astype(np.int64)
    rows = {table: np.einsum("rk,pkc->prc", M, v).reshape(len(v), -1) for table, v in by_night(case).items()}
    return {table: largest_square(v) for table, v in rows.items()}


# whether the claim is attained: caps within a night leave a little slack between nights
CASES = {
    "never, two steps": (recurring("never"), [0.0], True),
    "never, two episodes": (recurring("never", m=2, horizon=1), [0.0, 1.0], True),
    "never, centred rewards": (recurring("never", horizon=1, steps=2), [0.0, 0.5, 1.0], True),
    "never, stationary, cap 1": (recurring("never", "stationary", cap=1), [0.0], True),
    "capped, two episodes": (recurring("capped", m=2, horizon=1), [0.0, 1.0], True),
    "capped, stationary, total": (recurring("capped", "stationary", total=1.0, m=2, horizon=1), [0.0, 1.0], False),
    "capped, stationary, cap 1": (recurring("capped", "stationary", cap=1, m=2, horizon=1), [0.0, 1.0], False),
}


@pytest.mark.parametrize("window", [None, 1, 2])
@pytest.mark.parametrize("kind", ["tree", "toeplitz"])
@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow if c == "capped, stationary, cap 1" else ()) for c in CASES]
)
def test_nobody_moves_the_rows_by_more_than_the_claim(case, kind, window):
    card, rewards, attained = CASES[case]
    attained &= window is None or card.unit.recurs == "never"
    cost = continual(kind, NIGHTS, window).cost
    claims = {t.name: cost * t.replace.l2_squared for t in leaf(card).tables}
    found = moved(case, kind, window)
    if len(rewards) == 1:
        del claims["r_sa"]
    for table, claim in claims.items():
        assert found[table] == claim if attained else found[table] <= claim, (table, found[table], claim)


def test_m_instead_of_m_squared_is_caught():
    card = CASES["capped, two episodes"][0]
    linear = leaf_sensitivity(start_sensitivity, card).l2_squared // card.unit.episodes_per_user
    for kind in ("tree", "toeplitz"):
        visits = moved("capped, two episodes", kind)["n_sa"]
        assert visits > continual(kind, NIGHTS).cost * linear


@pytest.mark.parametrize("kind", ["tree", "toeplitz"])
@pytest.mark.parametrize("tables", ["one_table", "two_tables"])
def test_all_nights_together_cost_what_was_asked(kind, tables):
    """Every row of every table, at the variance that is drawn: a forgotten table or level would cost more."""
    for recurs, m in (("never", 1), ("never", 2), ("capped", 3)):
        card = recurring(recurs, "stationary", m=m)
        counter = continual(kind, 13)
        summed = count_sum(card, Ask(0.5, tables=tables, counter=counter))
        mechanisms = summed.mechanisms
        assert [x.table for x in mechanisms] == [t.name for t in CountLayout(card, tables, leaf=True).tables]
        column = int((matrix(counter)[0] ** 2).sum(0).max())
        spent = sum(Fraction(column * x.l2_squared, 2 * x.variance) for x in mechanisms)
        assert spent == total_rho(mechanisms) <= Fraction(1, 2) and spent > Fraction(49, 100)
        tonight = summed.at(6)
        assert total_rho(tonight) == spent
        for x in tonight:
            assert x.standard_deviation == pytest.approx((x.variance * counter.error(6)) ** 0.5)
