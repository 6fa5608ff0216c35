"""Count tables drawn at once follow the law of rows drawn one by one."""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

import pipeline.worlds.world as world
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import occupancies
from pipeline.worlds.catalog import riverswim
from pipeline.worlds.simulated_logs import sample_log
from pipeline.worlds.world import MOST_EPISODES, multinomials, sample_count_tables

# p-value of unlinked steps at so many: below 1e-300
DRAWS = 5_000


def pond() -> tuple[TabularMDP, np.ndarray]:
    """Two steps, two states, two actions, nothing symmetric: all 2 people's tables can be listed."""
    P = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.5], [0.9, 0.1]]])
    pi = np.array([[[0.6, 0.4], [0.3, 0.7]], [[0.2, 0.8], [0.5, 0.5]]])
    return TabularMDP(np.stack([P, P[::-1]]), np.zeros((2, 2, 2)), np.array([0.65, 0.35])), pi


def exact_law(mdp: TabularMDP, pi: np.ndarray) -> dict[bytes, float]:
    """Probability of each table n_sas of two episodes, by listing every pair of paths."""
    paths = []
    for s0, a0, s1, a1, s2 in np.ndindex(2, 2, 2, 2, 2):
        p = mdp.start[s0] * pi[0, s0, a0] * mdp.transitions[0, s0, a0, s1]
        table = np.zeros((2, 2, 2, 2), np.int64)
        table[0, s0, a0, s1] = table[1, s1, a1, s2] = 1
        paths.append((p * pi[1, s1, a1] * mdp.transitions[1, s1, a1, s2], table))
    law = Counter[bytes]()
    for (p, x), (q, y) in itertools.product(paths, repeat=2):
        law[(x + y).tobytes()] += p * q
    return law


def fit(sampler, law: dict[bytes, float]) -> float:
    """p-value of a chi-square test of ``DRAWS`` draws against ``law``, rare tables together."""
    found = Counter(sampler().tobytes() for _ in range(DRAWS))
    if set(found) - set(law):
        return 0.0
    common = [k for k, p in law.items() if p * DRAWS >= 10]
    expected = np.array([law[k] * DRAWS for k in common])
    seen = np.array([found[k] for k in common])
    return chisquare([*seen, DRAWS - seen.sum()], [*expected, DRAWS - expected.sum()]).pvalue


@pytest.mark.slow
def test_the_joint_law_of_whole_tables_is_exact_and_unlinked_steps_are_caught():
    mdp, pi = pond()
    law, rng = exact_law(mdp, pi), np.random.default_rng(1)
    assert sum(law.values()) == pytest.approx(1)
    assert fit(lambda: sample_count_tables(mdp, pi, 2, rng), law) > 1e-3

    def unlinked():
        # each step right by itself, but drawn afresh: people at step 1 are not those who arrived
        cells = (occupancies(mdp, pi)[..., None] * mdp.transitions).reshape(2, -1)
        return np.stack([rng.multinomial(2, c).reshape(2, 2, 2) for c in cells])

    assert fit(unlinked, law) < 1e-9


def test_tables_and_rows_of_riverswim_agree():
    world, rng = riverswim(3), np.random.default_rng(2)
    H, n = 4, 40_000
    pi = world.behaviours("right-0.8", H)
    rows = sample_log(world, "right-0.8", H, n, rng)
    by_rows = np.zeros((H, 3, 2, 3))
    np.add.at(by_rows, (rows.step, rows.state, rows.action, rows.next_state), 1)
    drawn = sample_count_tables(world.mdp(H), pi, n, rng)
    expected = n * occupancies(world.mdp(H), pi)[..., None] * world.mdp(H).transitions
    for found in (by_rows, drawn):
        assert (found[expected == 0] == 0).all()
        some = expected > 5
        z = (found - expected)[some] / np.sqrt(expected[some] * (1 - expected[some] / n))
        assert np.abs(z).max() < 5 and 0.6 < z.std() < 1.4


@pytest.mark.parametrize("episodes", [0, 7, 10**6, MOST_EPISODES])
def test_tables_hold_together(episodes):
    mdp = riverswim(5).mdp(10)
    n_sas = sample_count_tables(mdp, np.full((10, 5, 2), 0.5), episodes, np.random.default_rng(3))
    np.testing.assert_array_equal(n_sas.sum((1, 2))[:-1], n_sas.sum((2, 3))[1:])
    np.testing.assert_array_equal(n_sas.sum((1, 2, 3)), episodes)


@pytest.mark.slow
def test_at_a_million_million_moments_hold_and_nothing_impossible_happens(monkeypatch):
    rng = np.random.default_rng(0)
    p = np.zeros((200_000, 12))
    p[:, :8] = rng.dirichlet(np.full(8, 0.3), size=len(p))
    trials = np.full(len(p), MOST_EPISODES)
    x = multinomials(trials, p, rng)
    assert (x[p == 0] == 0).all() and (x.sum(-1) == MOST_EPISODES).all()
    usual = p > 1e-3
    z = (x - MOST_EPISODES * p)[usual] / np.sqrt(MOST_EPISODES * (p * (1 - p))[usual])
    assert abs(z.mean()) < 0.01 and z.std() == pytest.approx(1, abs=0.01)
    # as numpy orders the categories, the impossible does happen
    monkeypatch.setattr(world, "_swap_with_last", lambda values, _: values)
    assert (multinomials(trials, p, np.random.default_rng(0))[p == 0] > 0).any()


def test_wrong_shapes_and_too_many_people_are_refused():
    mdp, pi = pond()
    with pytest.raises(ValueError, match=r"behaviour must be \(2, 2, 2\)"):
        sample_count_tables(mdp, pi[:1], 2, np.random.default_rng(0))
    with pytest.raises(ValueError, match="between 0 and 1e\\+12"):
        sample_count_tables(mdp, pi, MOST_EPISODES + 1, np.random.default_rng(0))
