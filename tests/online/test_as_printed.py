"""``calibration = "paper", constants = "paper"`` is the printed pseudo-code: what each page prints, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pipeline.agents import sdp_pe
from pipeline.agents.linopt import Moment, Predictor, Problem, linopt, linopt_vi, step_size
from pipeline.agents.ofu_rl import LqControl, OfuConstants, radius
from pipeline.mdp.rollout import Rollout, plan_starts
from pipeline.online import mixtures, plants, registry, shuffle, tabular
from pipeline.online.mixtures import settings_of
from pipeline.online.plants import lq_world
from pipeline.online.rollouts import Sampler, world_of
from pipeline.online.trial import Trial
from pipeline.statistics.mixture import LATTICE
from pipeline.statistics.regression import RidgeSums
from pipeline.worlds.catalog import Mixture
from tests.conftest import slow

K, EPSILON, DELTA, ALPHA = 20, 1.0, 0.1, 0.01
PAPER = (("constants", "paper"),)
# H = 6, S = 3, A = 2
RIVER = Trial("private-linopt-vi", "riverswim_homogeneous", (("states", 3),), K, EPSILON, DELTA, "paper", PAPER, seed=1)
PLAIN = replace(RIVER, agent="linopt-po", epsilon=None, delta=None, calibration=None)
S, A, H, D = 3, 2, 6, 18


def problem(trial: Trial) -> tuple[Problem, Mixture]:
    world = mixtures._world(trial.world, trial.params)
    return mixtures.problem_of(trial, settings_of(trial), world)[0], world


def after(trial: Trial, episodes: int) -> tuple[Problem, Mixture]:
    """What is released after some episodes of value iteration."""
    asked, world = problem(trial)
    agent, sampler = (
        linopt_vi(asked, settings_of(trial).growth, np.random.default_rng(0)),
        Sampler(world.mdp, np.random.default_rng(1)),
    )
    ask: Rollout = next(agent)
    for _ in range(episodes):
        ask = agent.send(sampler.episodes(ask))
    return asked, world


def printed_radius(reach, ridge: RidgeSums, unknowns: int) -> np.ndarray:
    inside = 2 * math.log(H / ALPHA) + unknowns * np.log(1 + K * reach**2 / ridge.lambda_min)
    return reach / 2 * np.sqrt(inside) + np.sqrt(unknowns * ridge.lambda_max) + ridge.nu


@pytest.mark.parametrize("agent", ["private-linopt-vi", "private-linopt-po"])
def test_paper_000(agent):
    trial = replace(RIVER, agent=agent)
    found, _ = after(trial, 5)
    s, task = settings_of(trial), found.task
    # a plan an episode, four counters over episodes, rows as they are, nothing beside them
    assert plan_starts(K, s.growth) == list(range(1, K + 1)) and (s.counter, s.leaf, s.prior) == ("plain", "episode", 0)
    assert not task.unit and task.features.blocks == 1 and task.features.dimension == D and found.rewards is not None
    assert s.eta * step_size(task) == pytest.approx(math.sqrt(2 * math.log(A) / K) / task.tops[0])
    # noise of every counter: m levels, (epsilon / H, delta / H) each, Delta by the true norm of a one-hot row
    levels, value = math.ceil(math.log2(K)), float(task.tops[0])
    scale = math.sqrt(32 * levels * math.log(4 * H / DELTA)) * H / EPSILON
    for h, m in enumerate(
        m for m in found.transitions.regularizer.release().mechanisms if m.table.startswith("target")
    ):
        row = math.sqrt(S) * value
        drawn = math.sqrt(m.variance) * mixtures.transition_message(task).target_bound[h] / LATTICE
        assert drawn == pytest.approx(scale * row * value, rel=1e-6)
    # regularizer: lambda_min, lambda_max = Sigma, 3 Sigma beyond lambda = 1 for values up to H
    lam = (value / H) ** 2
    for regression, reach, unknowns in ((found.transitions, task.tops[1:-1], D), (found.rewards, task.most, S * A)):
        r = regression.regularizer
        b = r.ridge()
        own = lam if regression is found.transitions else (float(task.most.max()) / H) ** 2
        assert b.lambda_max - own == pytest.approx(3 * (b.lambda_min - own))
        moment = Moment(r.seen + 1, K, unknowns, reach, reach, b)
        if regression is found.transitions:
            assert regression.radii(moment) == pytest.approx(printed_radius(reach, b, unknowns))
        else:
            inside = 2 * math.log(H / ALPHA) + unknowns * np.log(1 + K / (unknowns * b.lambda_min))
            wanted = reach * (np.sqrt(inside) / 2 + np.sqrt(unknowns * b.lambda_max)) + b.nu
            assert regression.radii(moment) == pytest.approx(wanted)


def test_paper_000_without_noise_has_lambda_and_no_nu():
    found, _ = after(PLAIN, 5)
    b, value = found.transitions.regularizer.ridge(), float(found.task.tops[0])
    assert b.lambda_min == pytest.approx((value / H) ** 2) and b.lambda_max == pytest.approx(b.lambda_min)
    assert not b.nu.any()
    moment = Moment(6, K, D, found.task.tops[1:-1], found.task.tops[1:-1], b)
    assert found.transitions.radii(moment) == pytest.approx(printed_radius(found.task.tops[1:-1], b, D))


def test_paper_001():
    trial = replace(RIVER, agent="ldp-ucrl-vtr")
    found, _ = after(trial, 5)
    s, task = settings_of(trial), found.task
    assert plan_starts(K, s.growth) == list(range(1, K + 1)) and s.prior == 0 and found.rewards is None
    assert not task.unit and task.features.dimension == D
    r, value, left = found.transitions.regularizer, float(task.tops[0]), np.arange(H, 1, -1)
    for h, m in enumerate(m for m in r.release().mechanisms if m.table.startswith("target")):
        drawn = math.sqrt(m.variance) * mixtures.transition_message(task).target_bound[h] / LATTICE
        assert drawn == pytest.approx(4 * H * value**2 * math.sqrt(2 * math.log(2.5 * H / DELTA)) / EPSILON, rel=1e-6)
    moment = Moment(6, K, D, task.tops[1:-1], task.tops[1:-1], r.ridge())
    theorem = D**0.75 * task.tops[1:-1] ** 1.5 * 6**0.25 * math.log(D * K * H / ALPHA) * np.log(left / DELTA) ** 0.25
    assert found.transitions.radii(moment) == pytest.approx(theorem / math.sqrt(EPSILON))


def test_paper_001_without_noise_has_c_on_its_first_term():
    found, _ = after(replace(PLAIN, agent="ucrl-vtr", options=(("bonus", 0.3), *PAPER)), 5)
    r, tops = found.transitions.regularizer, found.task.tops[1:-1]
    ridge = r.ridge()
    volume = np.linalg.slogdet(ridge.V / ridge.lambda_min[:, None, None, None])[1].sum(-1)
    wanted = 0.3 * math.sqrt(D) + tops * np.sqrt(2 * math.log(1 / ALPHA) + volume)
    assert found.transitions.radii(Moment(6, K, D, tops, tops, ridge)) == pytest.approx(wanted)


def test_paper_002():
    trial = replace(RIVER, agent="sdp-pe", episodes=2000)
    knobs = shuffle.knobs_of(trial)
    assert shuffle._agent_constants(knobs) == sdp_pe.SdpPeConstants(mode="paper", lean=False)
    assert sdp_pe.SdpPeConstants().C1 == 6 and knobs["trust"] == "shuffle"
    assert shuffle.privatizer_of(trial, knobs, H).calibration == "paper"


def test_paper_004():
    trial = Trial("private-ofu-rl", "lq", (("instance", 1),), 8, 1.0, 1e-5, "paper", PAPER)
    assert tuple(plants._ends(trial)) == tuple(range(1, 9))
    assert plants.counter_of(trial) == "tree"
    outcome = registry.run(replace(trial, episodes=3))
    assert "ln det V_k in β_k, printed Λ and ν" in outcome.facts["constants"] and outcome.facts["plans"] == 3
    world = lq_world(trial)
    regularizer = plants._regularizer(trial, world, range(1, 9))
    ridge = regularizer.ridge()
    control = LqControl(world.cost, world.gamma, world.noise.bound, world.start, world.covariance)
    volume = max(0.0, np.linalg.slogdet(ridge.V / ridge.lambda_min)[1])
    wanted = control.C_w * math.sqrt(2 * math.log(2 / 0.05) + world.shape[0] * volume)
    wanted += math.sqrt(ridge.lambda_max) + ridge.nu
    # of a volume that no bound cuts
    assert radius(control, ridge, 10**9, OfuConstants(volume="released")) == pytest.approx(wanted)


@pytest.mark.parametrize("agent", ["ucbvi", "dp-ucbvi-jdp", "dp-ucbvi-ldp"])
def test_ucbvi_plans_an_episode_at_a_time_with_the_printed_logarithm(agent):
    trial = replace(RIVER, agent=agent, calibration="tight")
    mdp = world_of(trial)
    pace = tabular.pace_of(trial, tabular.layout_of(trial, mdp))
    assert [pace.length(k, k, math.inf) for k in range(5)] == [1] * 5
    assert tabular.constants_of(trial, mdp).iota == pytest.approx(math.log(2 * H * S * A * K / 0.1))


def test_the_lemma_does_not_depend_on_the_unit_of_values():
    """Rows of length R with responses up to R, or the same divided by R: the broken twin took R for 1."""
    R, d = np.array([0.17, 2.0]), 4
    raw = RidgeSums(np.tile(np.eye(2), (2, 4, 1, 1)), np.zeros((2, 4, 2)), 0.3 * R**2, 0.9 * R**2, 0.2 * R)
    unit = replace(raw, lambda_min=raw.lambda_min / R**2, lambda_max=raw.lambda_max / R**2, nu=raw.nu / R)
    wide = linopt(1.0)(Moment(1, K, d, R, R, raw))
    assert linopt(1.0)(Moment(1, K, d, R, np.ones(2), unit)) * R == pytest.approx(wide)
    broken = linopt(1.0)(Moment(1, K, d, R, R, unit)) * R
    assert broken[0] < 0.8 * wide[0]


def widest(trial: Trial, episodes: int) -> np.ndarray:
    """Largest error of a prediction in radii, at each step ``(H-1,)``, over all plans of a run."""
    asked, world = problem(trial)
    task, r = asked.task, asked.transitions.regularizer
    sampler, found = Sampler(world.mdp, np.random.default_rng((7, trial.seed))), np.zeros(H - 1)
    agent = linopt_vi(asked, settings_of(trial).growth, np.random.default_rng(trial.seed))
    ask = next(agent)
    for _ in range(episodes):
        ask = agent.send(sampler.episodes(ask))
        reach = np.ones(H - 1) if task.unit else task.tops[1:-1]
        beta = asked.transitions.radii(Moment(r.seen + 1, trial.episodes, D, task.tops[1:-1], reach, r.ridge()))
        predictor, V = Predictor(task.features, r.ridge()), np.append(0.0, np.cumsum(np.ones(S - 1))) * task.tops[1]
        for h in range(H - 1):
            mean, one = predictor.ahead(h, V, 0.0), predictor.ahead(h, V, 1.0)
            error = np.abs(mean - world.mdp.transitions[h] @ V) / (beta[h] * np.maximum(one - mean, 1e-300))
            found[h] = max(found[h], float(error.max()))
    return found


@pytest.mark.parametrize("unit", [False, slow(True)])
@pytest.mark.parametrize("agent", ["linopt-po", "private-linopt-vi"])
def test_the_lemma_covers_on_rows_as_printed_and_on_unit_rows(agent, unit):
    plain, found = agent == "linopt-po", np.zeros(H - 1)
    for seed in range(3):
        trial = replace(
            PLAIN if plain else replace(RIVER, calibration="tight"),
            episodes=200,
            seed=seed,
            options=(*PAPER, ("growth", 1.2), ("rewards", "known"), ("unit", unit)),
        )
        found = np.maximum(found, widest(trial, len(plan_starts(200, 1.2)) - 1))
    assert (found < 1).all()
