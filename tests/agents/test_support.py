"""A policy leaves practice only where people have been, and shares are shares whatever noise made of the model."""

from functools import cache
from itertools import product
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest

from pipeline.agents import support
from pipeline.agents.support import floor, practice, released_visits, supported, unsupported
from pipeline.learners.terms import Evaluate, Planner, Privacy, Terms
from pipeline.mdp.model import stationary_mdp
from pipeline.mdp.planning import policy_value
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.planning_counts import private_counts
from pipeline.worlds.simulated_logs import sample_people
from reticent import Card
from tests.campaigns.tabular_evaluation import evaluate_once, in_a_world
from tests.conftest import card_dict, domain_dict, slow

TRIED, ACTIONS = 2, 4
# agent, states, steps, successors of a pair, people, rho; and seeds: fewer where all of five were wrong before
WORLDS = (
    ("dp-apvi", 48, 10, 48, 50_000, 1.0, 3),
    ("dp-apvi", 48, 10, 4, 50_000, 1.0, 5),
    ("dp-vapvi", 6, 8, 4, 20_000, 3.0, 2),
    ("dp-one-shot", 6, 8, 4, 20_000, 3.0, 2),
)


def card_of(states: int, horizon: int, people: int, **more) -> Card:
    labels = [f"s{i}" for i in range(states)]
    domain = domain_dict(horizon, labels, ACTIONS, ["end"], dynamics="stationary")
    return Card.model_validate(card_dict(domain=domain, unit={"user": "user_id", "users_public": people}, **more))


def untried(states, horizon, successors, rng):
    """Two actions that practice takes and that do the same; two that nobody takes, which pay less."""
    S = states + 1
    P, r, mu = np.zeros((S, ACTIONS, S)), np.zeros((S, ACTIONS)), np.zeros((S, ACTIONS))
    for s in range(states):
        onto = rng.choice(states, successors, replace=False)
        P[s][:, onto] = rng.dirichlet(np.ones(successors)) * (1 - 1 / horizon)
    P[:states, :, states], P[states, :, states] = 1 / horizon, 1.0
    r[:states] = 0.1 + rng.random((states, 1)) * 0.4
    r[:states, TRIED:] -= 0.1
    mu[:, :TRIED] = rng.dirichlet([4, 4], size=S)
    start = np.append(np.full(states, 1 / states), 0.0)
    return stationary_mdp(P, r, start, horizon), np.broadcast_to(mu, (horizon, S, ACTIONS)).copy()


def runs(agent, states, horizon, successors, people, rho, seeds):
    """Of some seeds: what is said, what is true of the gain, and how often the policy does what nobody tried."""
    more = {} if agent == "dp-apvi" else {"features": {"kind": "one_hot"}}
    card = card_of(states, horizon, people, **more)
    terms = Terms("untried", agent, Privacy(rho=rho), evaluate=Evaluate(people=0.3))
    for seed in range(seeds):
        mdp, mu = untried(states, horizon, successors, np.random.default_rng((41, seed)))
        log = sample_people(card, mdp, mu, people, np.random.default_rng((42, seed)))
        said, policy = evaluate_once(card, terms, log, seed, at_random=False)
        done = mu.copy()
        done[:, :states] = policy.beside(mu[:, :states])
        gain = policy_value(mdp, done) - policy_value(mdp, mu)
        yield said.improvement, gain, policy.probabilities[..., TRIED:].sum()


@pytest.mark.parametrize(
    "world",
    [pytest.param(w, marks=pytest.mark.slow if w in (WORLDS[1], WORLDS[3]) else ()) for w in WORLDS],
    ids=lambda w: f"{w[0]}-{w[3]}",
)
def test_what_nobody_tried_is_never_recommended_nor_said_to_be_better(world):
    """``dp-apvi`` of before said "better" in 5 of 5 dense worlds and 3 of 5 sparse ones, linear agents in 5 of 5."""
    found = list(runs(*world))
    assert [there for _, _, there in found] == [0.0] * world[-1]
    assert all(abs(gain) < 1e-9 and said.lower <= 0 for said, gain, _ in found)


@pytest.mark.slow
def test_a_floor_at_two_deviations_recommends_it(monkeypatch):
    monkeypatch.setattr(support, "floor", lambda sd, cells: 2 * sd)
    assert sum(there > 0 for _, _, there in runs(*WORLDS[0][:-1], seeds=5)) > 5 / 2


@cache
def _summed(states: int, horizon: int, rho: float | None, tables: str, dynamics: str):
    card = card_of(states, horizon, 1000)
    card = card.model_copy(update={"domain": card.domain.model_copy(update={"dynamics": dynamics})})
    return card, count_sum(card, Ask(rho=rho, tables=tables))


def released(visits: np.ndarray, rho: float | None, seed: int, tables="one_table", dynamics="stationary"):
    """A release of ``visits (G, L, A)`` that all end where they began."""
    G, L, A = visits.shape
    card, made = _summed(L, max(G, 2), rho, tables, dynamics)
    n_sas = np.zeros((G, L, A, L + 1), np.int64)
    n_sas[:, range(L), :, range(L)] = visits.transpose(1, 0, 2)
    sums = {"n_0": n_sas[0].sum((1, 2)), "n_sa": n_sas.sum(-1), "n_sas": n_sas, "r_sa": np.zeros_like(visits)}
    release = made.draw(ExactSums(card.name, card.kind, dynamics, sums), SeededNoise(seed))
    return release, private_counts(release, card)


def test_the_floor_is_that_of_the_largest_of_all_empty_cells():
    assert floor(1.0, 10) == 10 and floor(0.0, 10) == 0
    for sd, cells in product((5.0, 60.0), (3, 192, 10**5)):
        assert NormalDist(0, sd).cdf(floor(sd, cells)) == pytest.approx(1 - 0.01 / cells)


@pytest.mark.parametrize("tables", ["one_table", slow("two_tables")])
def test_of_empty_logs_one_in_a_hundred_has_a_cell_that_speaks(monkeypatch, tables):
    empty = np.zeros((1, 30, ACTIONS), np.int64)

    def heard():
        spoke = 0
        for seed in range(200):
            visits, sd = released_visits(released(empty, 0.5, seed, tables)[0], 1)
            spoke += bool((visits > support.floor(sd, visits.size)).any())
        return spoke

    # beyond 7 of 200 at a rate of 1 in 100: 1 chance in 1000
    assert heard() <= 7
    monkeypatch.setattr(support, "floor", lambda sd, cells: floor(sd, 1))
    assert heard() > 100


def test_steps_that_share_a_table_are_heard_together():
    visits = np.full((16, 3, ACTIONS), 30)
    release, _ = released(visits, 0.05, 0, dynamics="per_step")
    apart, together = (released_visits(release, steps) for steps in (16, 1))
    assert together[0].shape == (1, 3, ACTIONS) and together[0] == pytest.approx(apart[0].sum(0, keepdims=True))
    assert together[1] == pytest.approx(4 * apart[1])


def test_an_action_is_supported_only_where_practice_is_known_to_take_it():
    """A cell may speak in a state whose practice drowns: with many actions that takes more visits of the state."""
    visits = np.zeros((1, 2, ACTIONS), np.int64)
    _, sd = released_visits(released(visits, 0.01, 0)[0], 1)
    visits[0, :, 0] = round(6 * sd), round(40 * sd)
    release, _ = released(visits, 0.01, 0)
    at, sd = released_visits(release, 1)
    assert (at > floor(sd, at.size)).tolist() == [[[True, False, False, False]] * 2]
    assert np.isnan(practice(release)[0, 0]).all()
    assert supported(release, 1).tolist() == [[[False] * ACTIONS, [True, False, False, False]]]


def test_an_unsupported_share_is_how_often_an_episode_leaves_practice_unseen():
    rng = np.random.default_rng(3)
    visits = rng.integers(0, 2, (1, 6, ACTIONS)) * 4000 + np.eye(ACTIONS, dtype=np.int64)[0] * 400
    release, counts = released(visits, 1.0, 3)
    H, speaks, usual = 5, supported(release, 1)[0], practice(release)[0]
    probabilities, there = rng.dirichlet(np.ones(ACTIONS), (H, 6)), rng.dirichlet(np.ones(6), H)
    policy = Policy(probabilities, rng.random((H, 6)) < 0.3)
    assert not np.isnan(usual).any() and not speaks.all()
    expected = 0.0
    for h, s, a in product(range(H), range(6), range(ACTIONS)):
        if not policy.abstains[h, s] and not speaks[s, a]:
            expected += there[h, s] * max(probabilities[h, s, a] - usual[s, a], 0.0)
    assert 1 < expected < 4
    assert unsupported(counts, policy, there / 4) == pytest.approx(expected / 4)
    assert unsupported(counts, policy, there) == 1
    # practice itself, and a policy of cells that speak, have nothing that is unseen
    nowhere = np.zeros((H, 6), dtype=bool)
    assert unsupported(counts, Policy(np.broadcast_to(usual, (H, 6, ACTIONS)), nowhere), there) == 0
    first = np.broadcast_to(np.eye(ACTIONS)[speaks.argmax(-1)], (H, 6, ACTIONS))
    assert unsupported(counts, Policy(first, ~speaks.any(-1) | nowhere), there) == 0
    nothing, empty = released(np.zeros((1, 6, ACTIONS), np.int64), 1.0, 3)
    assert not supported(nothing, 1).any() and unsupported(empty, Policy(first, nowhere), there) == 1


def test_counts_of_people_who_did_not_make_the_policy_speak_from_two_deviations():
    """Their noise chose no cell: what lies three deviations out speaks for them, and not as the largest of many."""
    visits = np.zeros((1, 30, ACTIONS), np.int64)
    _, sd = released_visits(released(visits, 0.05, 0)[0], 1)
    visits[0, :, 0], visits[0, :, 1] = round(40 * sd), round(3 * sd)
    drawn = [released(visits, 0.05, s)[0] for s in range(20)]
    ours, theirs = (np.mean([supported(d, 1, theirs=t)[0] for d in drawn], axis=(0, 1)) for t in (False, True))
    assert ours[1] < 0.4 and 0.75 < theirs[1] < 0.95 and theirs[2:].mean() < 0.04


@pytest.mark.parametrize(("rho", "dynamics"), [(1.0, "stationary"), slow(0.001, "stationary"), slow(1.0, "per_step")])
def test_an_effective_sample_size_is_a_share_of_rows(rho, dynamics):
    """An episode has H rows of practice: without them in the sum, the share of an untouched log was H."""
    domain = domain_dict(6, ["s0", "s1", "s2"], 2, ["end"], dynamics=dynamics)
    card = Card.model_validate(card_dict(domain=domain, unit={"user": "user_id", "users_public": 2000}))
    terms = Terms("shares", "dp-apvi", Privacy(rho=rho), Planner(), evaluate=Evaluate(people=0.3))
    for seed in range(3):
        found, *_ = in_a_world(card, terms, seed, at_random=True)
        (share,) = [d.value for d in found.diagnostics if d.name.startswith("effective sample size")]
        # at rho = 0.001 noise may hide every row that the policy could rest on: then the share is that of none
        assert 0 <= share <= 1 and (share > 0 or rho < 1)


def test_logged_chances_are_right_where_practice_sees_more_than_the_card():
    """One step: who does well anyway is given ``b`` more often, and ``b`` does nothing.  The release sees a gain."""
    domain = domain_dict(1, ["s0"], ["a", "b"], ["end"])
    source = {"files": ["a.csv"], "columns": {**card_dict()["source"]["columns"], "behavior_prob": "p"}}
    unit = {"user": "user_id", "users_public": 20_000}
    card = Card.model_validate(card_dict(domain=domain, unit=unit, source=source))
    n, rng = 20_000, np.random.default_rng(11)
    hidden = rng.random(n) < 0.5
    chance_b = np.where(hidden, 0.9, 0.1)
    done = rng.random(n) < chance_b
    rows = pl.DataFrame(
        {
            "user_id": np.arange(n),
            "episode_id": np.zeros(n, dtype=np.int64),
            **dict.fromkeys(("step", "state"), np.zeros(n, dtype=np.int32)),
            "action": done.astype(np.int32),
            "reward": (rng.random(n) < np.where(hidden, 0.8, 0.2)).astype(float),
            "next_state": np.ones(n, dtype=np.int32),
            "terminated": np.ones(n, dtype=bool),
            "behavior_prob": np.where(done, chance_b, 1 - chance_b),
        }
    )

    def asked(**how):
        terms = Terms("hidden", "dp-apvi", Privacy(rho=3.0), evaluate=Evaluate(people=0.3, **how))
        found, policy = evaluate_once(card, terms, [rows], 0, at_random=False)
        assert not policy.abstains.any() and policy.probabilities[0, 0, 1] == 1
        return found

    assert asked().improvement.lower > 0.1, "a gain that nobody has, with a narrow interval"
    found = asked(probabilities="logged", least=0.1)
    gain = found.improvement
    assert gain.lower < 0 < gain.upper < 0.15 and abs(found.ratios) < 4
    # the release knows of no chance below 1/2: weights are cut there, and the check says so
    assert asked(probabilities="logged").ratios < -4
