"""What one person moves in all rows of a nightly counter and in the returns of nights; how often their rule errs."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import polars as pl
import pytest

from pipeline.logs.aggregate import Arms
from pipeline.privacy.continual import continual
from pipeline.privacy.release import total_rho
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum, played_sum
from pipeline.statistics.count_layout import CountLayout, leaf_sensitivity, start_sensitivity
from pipeline.statistics.played import POLICY, PRACTICE, STEPS, PlayedLayout, calls, meets
from reticent import Card
from tests.conftest import slow
from tests.privacy.test_continual import matrix
from tests.statistics.test_sensitivity import SCHEMA, canonical, episodes, largest, largest_square, tiny, vectors

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
        assert moved("capped, two episodes", kind)["n_sa"] > continual(kind, NIGHTS).cost * linear


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


def table(card: Card, group, met: bool) -> np.ndarray:
    arms = Arms(PlayedLayout(card), {"id": "p", "share": 1.0} if met else None)
    return arms.add(canonical(group), pl.DataFrame({"user_id": [1], "person": ["1"]}))["played"].reshape(-1)


def played_moves(card: Card, rewards: list[float]) -> np.ndarray:
    """One row a person: all nights' tables, for every choice of episodes, nights and arms."""
    each, m = episodes(card, rewards), card.unit.episodes_per_user
    # of episodes with one return in one number of rows, one will do
    each = list({(len(e), sum(r for *_, r, _ in e)): e for e in each}.values())
    found, kept = [], {}
    for chosen in itertools.combinations_with_replacement(each, m):
        spread = [(n,) * m for n in range(2)]
        if card.unit.recurs == "capped":
            spread = list(itertools.product(range(2), repeat=m))
        for nights, arms in itertools.product(spread, itertools.product((True, False), repeat=2)):
            person = []
            for night in range(2):
                group = [e for e, n in zip(chosen, nights, strict=True) if n == night]
                key = (repr(group), arms[night])
                if key not in kept:
                    kept[key] = table(card, group, arms[night])
                person.append(kept[key])
            found.append(np.concatenate(person))
    return np.array(found)


PLAYED = {
    "one episode": (recurring("never"), [0.0, 0.5, 1.0]),
    "two episodes": (recurring("never", m=2, horizon=1), [0.0, 1.0]),
    "two episodes on nights of their own": (recurring("capped", m=2, horizon=1), [0.0, 1.0]),
    "three episodes on nights of their own": (recurring("capped", m=3, horizon=1), [0.0, 1.0]),
    "a declared total": (recurring("never", total=1.0), [0.0, 1.0]),
}


@pytest.mark.parametrize("case", PLAYED)
def test_nobody_moves_the_nights_by_more_than_the_claim_and_somebody_does(case):
    """Nor does whoever joins; and the extreme people are as far apart as anybody."""
    card, rewards = PLAYED[case]
    layout, moved = PlayedLayout(card), played_moves(card, rewards)
    (claim,) = layout.tables
    assert largest(moved) == (claim.replace.l2_squared, claim.replace.l1)
    assert (moved**2).sum(1).max() == claim.add_remove.l2_squared
    people = np.array([layout.add(person).reshape(-1) for person in layout.extremes()])
    assert largest(people)[0] == claim.replace.l2_squared


def test_broken_twins_that_claim_less_are_caught():
    """As if a replaced person lost their part of the sums and nobody took it; and m in place of m squared."""
    card, rewards = PLAYED["two episodes"]
    claim = PlayedLayout(card).tables[0].replace.l2_squared
    assert largest_square(played_moves(card, rewards)) > max(claim // 2, claim // card.unit.episodes_per_user)


@pytest.mark.parametrize("kind", ["tree", "toeplitz"])
@pytest.mark.parametrize("window", [None, 3])
def test_counts_and_returns_together_cost_what_was_asked(kind, window):
    card, _ = PLAYED["two episodes on nights of their own"]
    counter = continual(kind, 13, window)
    counts, played = count_sum(card, Ask(Fraction(9, 10), counter=counter)), played_sum(card, Fraction(1, 10), 13)
    spent = total_rho(counts.mechanisms + played.mechanisms)
    assert Fraction(99, 100) < spent <= 1
    # each night once: a person is in one of them, and m episodes on several nights move no more
    (m,) = played.mechanisms
    assert m.rho == played.rho == Fraction(m.l2_squared, 2 * m.variance) <= Fraction(1, 10)
    assert (m.running.cost, m.running.draws, m.running.error) == (1, 13, 1.0)


def test_means_are_those_of_the_rows_and_the_arm_is_the_hash():
    card = recurring("never", horizon=2, steps=4)
    play, rng = {"id": "f00", "share": 0.4}, np.random.default_rng(0)
    people = [f"u{i}" for i in range(400)]
    returns = {}
    rows = []
    for person in people:
        length = int(rng.integers(1, 3))
        rewards = rng.integers(0, 5, length) / 4
        returns[person] = float(rewards.sum())
        rows += [(person, 0, h, 0, 0, float(r), 1, False) for h, r in enumerate(rewards)]
    frame = pl.DataFrame(rows, schema={**SCHEMA, "user_id": pl.String}, orient="row").sample(fraction=1, shuffle=True)
    new = pl.DataFrame({"user_id": people, "person": people})
    layout = PlayedLayout(card)
    counted = Arms(layout, play).add(frame, new)["played"]
    for arm, met in ((POLICY, True), (PRACTICE, False)):
        mine = [returns[p] for p in people if meets(play, p) == met]
        assert counted[arm, 0] == STEPS * len(mine)
        mean = layout.low + (counted[arm, 1] / counted[arm, 0] + 1) / 2 * (layout.high - layout.low)
        assert mean == pytest.approx(np.mean(mine), abs=(layout.high - layout.low) / STEPS)
    told = layout.judge(counted, 1, 0.4, 100)
    assert told.policy == pytest.approx(np.mean([r for p, r in returns.items() if meets(play, p)]), abs=0.01)
    assert layout.judge(counted // 400, 10**6, 0.4, 100).policy is None


def years(number, nights, people, share, policy, practice, variance, rng):
    """Released tables ``(years, nights, 2, 2)`` of returns at either end of the range, of these means in [-1, 1]."""
    came = rng.poisson(people, (number, nights))
    met = rng.binomial(came, share)
    arms = []
    for n, mean in ((met, policy), (came - met, practice)):
        best = rng.binomial(n, (1 + np.broadcast_to(mean, n.shape)) / 2)
        arms.append(np.stack([STEPS * n, STEPS * (2 * best - n)], -1))
    noise = np.rint(rng.normal(0, math.sqrt(variance), (number, nights, 2, 2)))
    return np.stack(arms, -2) + noise.astype(np.int64)


def noise_of(rho):
    return played_sum(recurring("never"), Fraction(rho), 365).mechanisms[0].variance


@pytest.mark.parametrize(
    ("people", "share", "rho", "mean"), [(20, 0.5, 1, -0.9), (300, 0.2, 0.1, 0.5), slow(1000, 0.5, 10**6, -0.9)]
)
def test_quiet_years_raise_at_most_one_false_alarm_in_a_hundred(people, share, rho, mean):
    """A policy that is worth just what practice is worth, at returns that vary as much as any: 1 000 years a case."""
    rng, alarms, variance = np.random.default_rng(1), 0, noise_of(rho)
    for _ in range(5):
        found = years(200, 365, people, share, mean, mean, variance, rng)
        alarms += int(calls(found, variance, share, 365, 1).any(1).sum())
    assert alarms <= 10


@pytest.mark.parametrize(("people", "share", "rho"), [(1000, 0.5, 0.05), (1000, 0.25, 0.1), (3000, 0.2, 0.02)])
def test_a_world_that_changes_is_called_on_its_first_two_nights(people, share, rho):
    """From a loss of .04 to one of .57 of the range, practice at .30: night 11 of 365, a thousand years."""
    rng, variance = np.random.default_rng(2), noise_of(rho)
    policy = np.where(np.arange(12) < 10, 1 - 2 * 0.04, 1 - 2 * 0.57)
    found = years(1000, 12, people, share, policy, 1 - 2 * 0.30, variance, rng)
    called = calls(found, variance, share, 365, 1)
    assert not called[:, :10].any() and called[:, 10:].any(1).mean() >= 0.999


def test_no_mean_between_the_arms_is_left_where_a_night_is_called():
    """Every mean on a fine grid: at each of a called night, one of the three statistics exceeds its bound."""
    rng, variance, s, level = np.random.default_rng(4), noise_of(0.05), 0.4, 0.01 / 30
    found = years(20, 30, 400, s, -0.45, 0.15, variance, rng).reshape(-1, 2, 2)
    said = calls(found, variance, s, 30, 1)
    assert 0.1 < said.mean() < 0.99
    y = np.linspace(-1, 1, 2001)
    for (n_u, z_u), (n_p, z_p) in found[said]:
        missed = math.sqrt(2 * variance * math.log(20 / level))
        of_u, of_p = (STEPS * max(n + missed, 0) * (1 - y**2) for n in (n_u, n_p))
        noise, out = variance * (1 + y**2), np.zeros(len(y), dtype=bool)
        for told, spread, far, part in (
            (
                s * (z_p - y * n_p) - (1 - s) * (z_u - y * n_u),
                s * s * (of_p + noise) + (1 - s) ** 2 * (of_u + noise),
                np.maximum(s * (1 - y), (1 - s) * (1 + y)),
                0.7,
            ),
            (z_p - y * n_p, of_p + noise, 1 - y, 0.1),
            (y * n_u - z_u, of_u + noise, 1 + y, 0.1),
        ):
            x = math.log(1 / (part * level))
            out |= told > np.sqrt(2 * x * spread) + STEPS * far / 3 * x
        assert out.all()


def test_a_rule_that_forgets_the_noise_or_spends_each_nights_level_anew_is_caught():
    rng, variance = np.random.default_rng(3), noise_of(0.001)
    found = years(300, 365, 20, 0.5, 0.0, 0.0, variance, rng)
    assert calls(found, variance, 0.5, 365, 1).any(1).mean() <= 0.01
    assert calls(found, 1.0, 0.5, 365, 1).any(1).mean() > 0.5
    # at one night's level, with what people stray by in place of its bound
    (n_u, z_u), (n_p, z_p) = np.moveaxis(years(300, 365, 1000, 0.5, 0.0, 0.0, 1, rng), (-2, -1), (0, 1))
    apart = z_p / n_p - z_u / n_u
    assert (apart > 2.326 * np.sqrt(STEPS / n_p + STEPS / n_u)).any(1).mean() > 0.9
