"""From a CSV log to sums and a controller: nobody moves sums further than charged; what is true of the controller."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import pipeline.logs.ingest as screen_module
import pipeline.statistics.private_sum as private_sum
from pipeline.declaration.card import load_any_card, require_linear_quadratic
from pipeline.learners.lq import LqLearner, LqRun, least_value, lq_truth
from pipeline.learners.terms import Lq, Privacy, Terms
from pipeline.logs.contribution_bounding import CapsAgain
from pipeline.logs.ingest import ingest
from pipeline.mdp.rollout import LinearRollout, LqBatch
from pipeline.privacy.noise import RealDataError, SeededNoise
from pipeline.statistics.held_out import lq_loss
from pipeline.statistics.lq import LqSums, draw_lq
from pipeline.statistics.private_sum import PrivateSum
from pipeline.worlds.plants import double_integrator, simulate
from reticent import CardError, LqCard
from tests.conftest import SHELF
from tests.learners.lq_shop import CARD
from tests.logs.snapshot_rows import rows_of
from tests.privacy.handles import Silent

Q = 64


def card_of(folder, m: int) -> LqCard:
    """One number observed, one control, H = 2, both balls of radius 1."""
    text = CARD.format(kind="synthetic", ledger="home", cap=9.0, m=m, people=20)
    for wide, one in (
        (
            'columns = ["p", "v"], radius = 2.0, scale = [1.0, 2.0], names = ["place", "pace"]',
            'columns = ["p"], radius = 1.0',
        ),
        ("horizon = 4", "horizon = 2"),
        ("mean = [1.0, 0.0]", "mean = [1.0]"),
        ("[0.01, 0.01]", "[0.01]"),
        ("[1.0, 1.0]", "[1.0]"),
    ):
        text = text.replace(wide, one)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "card.toml").write_text(text)
    card = load_any_card(folder / "card.toml")
    assert isinstance(card, LqCard)
    return card


def plan_of(folder, m: int = 1) -> PrivateSum:
    terms = Terms("here", "dp-lqr", Privacy(rho=1.0), lq=Lq(cut=(1.0, 1.0), steps=Q))
    return LqLearner().plan(card_of(folder, m), terms).summed


def episode(states, controls, e=0):
    """Rows of one episode; the last holds an observation only."""
    return [("w", e, t, x, *([controls[t]] if t < len(controls) else [""]), "") for t, x in enumerate(states)]


ONE = {
    "nobody": episode([0.5], []),
    "both one": episode([1, 1, 1], [1, 1]),
    "against it": episode([1, 1, 1], [-1, -1]),
    "turning": episode([1, -1, 1], [1, -1]),
    "too long": episode([1, 9, 9], [1, 7]),
    "far away": episode([30, -30, 30], [90, -90]),
    "beyond the horizon": episode([1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1]),
    "short": episode([1, 1], [1]),
    "broken": episode([1, "nan", 1], [1, 1]),
    "a step twice": episode([1, 1, 1], [1, 1]) * 2,
}


def people(m: int) -> dict[str, list]:
    """Those of one episode; for a larger cap the worst of them m times over, and beyond the cap."""
    if m == 1:
        return ONE
    few = {name: ONE[name] for name in ("nobody", "broken", "a step twice")}
    worst = {name: ([1, s, 1], [c, s * c]) for name, s, c in (("one", 1, 1), ("against", 1, -1), ("turning", -1, 1))}
    several = {name: [row for e in range(m) for row in episode(*steps, e)] for name, steps in worst.items()}
    return few | several | {"too many": [row for e in range(m + 3) for row in episode(*worst["one"], e)]}


def points(folder, m: int) -> np.ndarray:
    """Each person's sums: G in svec coordinates, then X."""
    plan, found = plan_of(folder, m), []
    for i, person in enumerate(people(m).values()):
        place = folder / str(i)
        card = card_of(place, m)
        lines = ["who,e,t,p,f,over", *(",".join(map(str, r)) for r in person)]
        (place / "log.csv").write_text("\n".join(lines) + "\n")
        gram, cross = plan.layout.add(rows_of(ingest(card, place / "store"), card)).values()
        i, j = np.triu_indices(2)
        found.append(np.concatenate([gram[i, j] * np.where(i == j, 1.0, np.sqrt(2)), cross.ravel()]))
    return np.array(found)


def moves(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared moves of G and of X between every two people."""
    gram, cross = (((part[:, None] - part) ** 2).sum(-1) for part in (found[:, :3], found[:, 3:]))
    return gram, cross


class Recorder(Silent):
    """Noise of 0 that notes what was asked for."""

    def gaussian(self, size, variance, data):
        self.asked = [*getattr(self, "asked", []), (size, variance)]
        return super().gaussian(size, variance, data)


def emitted_loss(plan: PrivateSum, found: np.ndarray) -> float:
    """Largest loss of the people at the noise that the release really draws."""
    noise = Recorder(0)
    draw_lq(plan, [], noise)
    assert sum(n for n, _ in noise.asked) == 3 + 2, noise.asked
    gram, cross = moves(found)
    # the diagonal (2 numbers) has twice the variance of what is off it (1 number)
    diagonal = max(v for n, v in noise.asked[:2])
    assert {v for _, v in noise.asked[:2]} == {diagonal, diagonal // 2}
    return float((gram / diagonal / 2 + cross / noise.asked[-1][1] / 2).max())


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    root = tmp_path_factory.mktemp("enumerated")
    return {m: points(root / str(m), m) for m in (1, 4)}


@pytest.mark.parametrize("m", [1, 4])
def test_each_table_moves_as_far_as_claimed_and_no_further(counted, tmp_path, m):
    plan = plan_of(tmp_path, m)
    gram, cross = moves(counted[m])
    assert gram.max() == pytest.approx(plan.layout.tables[0].replace.l2_squared, rel=1e-9)
    assert cross.max() == pytest.approx(plan.layout.tables[1].replace.l2_squared, rel=1e-9)
    assert emitted_loss(plan, counted[m]) <= plan.rho * (1 + 1e-9) <= 1 + 1e-9


def test_the_certificate_recomputes_the_same_loss_from_scales_alone(tmp_path):
    plan = plan_of(tmp_path, 3)
    assert lq_loss(plan.mechanisms, plan.layout.joint()) == plan.rho
    for change in ({"episodes": 2}, {"steps": 32}, {"square": 1}):
        with pytest.raises(ValueError, match=r"sensitivity|squared length"):
            lq_loss(plan.mechanisms, plan.layout.joint() | change)
    with pytest.raises(ValueError, match="no LQ release"):
        lq_loss(plan.mechanisms[:1], plan.layout.joint())


def test_a_twin_that_does_not_cut_is_caught(monkeypatch, tmp_path):
    def unclipped(layout, batch):
        return np.trunc(np.hstack([batch.x, batch.u]) * Q), np.trunc(batch.following * Q)

    monkeypatch.setattr(LqSums, "rows", unclipped)
    plan = plan_of(tmp_path)
    assert emitted_loss(plan, points(tmp_path / "p", 1)) > 100 * plan.rho


def gram_only(self, rates, relation="replace", right=LqSums.cost):
    return right(self, rates if len(rates) == 1 else {"gram": rates["gram"]}, relation)


def half(n, c, d, v, r, whole=private_sum.symmetric_noise):
    return whole(n, c, d, v // 4 * 2, r)


# half the noise, a table that is forgotten, m in place of its square
@pytest.mark.parametrize(
    ("owner", "name", "twin", "m", "least"),
    [
        (private_sum, "symmetric_noise", half, 1, 1.05),
        (LqSums, "cost", gram_only, 1, 1.05),
        (LqSums, "rows_each", property(lambda self: math.isqrt(self.episodes_each) * self.horizon), 4, 3.5),
    ],
    ids=["noise", "table", "square"],
)
def test_twins_that_draw_or_charge_too_little_are_caught(monkeypatch, tmp_path, counted, owner, name, twin, m, least):
    monkeypatch.setattr(owner, name, twin)
    assert emitted_loss(plan_of(tmp_path, m), counted[m]) > least


def test_a_twin_that_keeps_every_episode_or_every_step_is_caught(monkeypatch, tmp_path):
    plan = plan_of(tmp_path, 4)
    # the caps are enforced again in what is summed: here is what that second guard keeps out
    monkeypatch.setattr(CapsAgain, "check", lambda self, batch: None)
    with monkeypatch.context() as patch:
        patch.setattr(screen_module, "find_over_cap", lambda episodes, card: episodes["episode"].head(0))
        assert emitted_loss(plan, points(tmp_path / "a", 4)) > 1.5
    with monkeypatch.context() as patch:
        patch.setattr(screen_module.rules, "beyond_horizon", lambda card: pl.lit(value=False))
        assert emitted_loss(plan_of(tmp_path), points(tmp_path / "b", 1)) > 1.5


def test_rows_of_a_snapshot_are_those_of_a_loop(tmp_path):
    """The door from Parquet: whatever the batches, every row that leads somewhere once, as float32 logged it."""
    card = card_of(tmp_path, 1)
    rng = np.random.default_rng(0)
    lines = ["who,e,t,p,f,over"]
    for i in range(50):
        lines += [f"w{i:02},0,{t},{rng.normal():.4f},{rng.normal():.4f}," for t in range(3)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    snapshot = ingest(card, tmp_path / "store", partitions=3)
    plan = plan_of(tmp_path)
    whole = list(plan.layout.add(rows_of(snapshot, card)).values())
    for size in (1, 7, 1000):
        np.testing.assert_equal(list(plan.layout.add(rows_of(snapshot, card, size)).values()), whole)
    rows = pl.concat([pl.read_parquet(p) for p in snapshot.part_files]).sort("user_id", "step")
    gram, cross = np.zeros((2, 2), int), np.zeros((2, 1), int)
    for r in rows.iter_rows(named=True):
        x, u, y = (float(r[k][0]) for k in ("observation", "action", "next_observation"))
        # in the order of production: what is cut to the edge of the lattice may be rounded to either side of it
        w = min(1 / max(1.0, abs(x)), 1 / max(1.0, abs(u)))
        y *= w
        z, y = np.array([int(x * w * Q), int(u * w * Q)]), int(y * (1 / max(1.0, abs(y))) * Q)
        gram, cross = gram + np.outer(z, z), cross + z[:, None] * y
    np.testing.assert_equal(whole, [gram, cross])
    assert gram.max() > 10 * Q * Q


def run_of(rho: float | None = None, card: LqCard | None = None, **chosen: Any) -> LqRun:
    card = card or require_linear_quadratic(load_any_card(SHELF / "double_integrator" / "card.toml"))
    agent, privacy = ("lqr", None) if rho is None else ("dp-lqr", Privacy(rho=rho))
    return LqLearner().plan(card, Terms("here", agent, privacy, lq=Lq(**chosen)))


def release_of(run: LqRun, episodes: int):
    world = double_integrator()
    x, u = simulate(world, LinearRollout(world.zero_gains(), episodes, 1.0), np.random.default_rng(1))
    return draw_lq(run.summed, [LqBatch(x, u, episodes)], SeededNoise(0))


def learnt(run: LqRun, episodes: int = 2000):
    return run.learn(release_of(run, episodes))


@pytest.mark.slow
def test_true_values_are_in_the_order_that_they_must_have():
    truth = lq_truth(run_of(), "double-integrator", "sphere", learnt(run_of()).result.gains)
    assert truth.v_star >= truth.v_policy == truth.v_policy_model > truth.v_zero > truth.v_behavior
    assert truth.v_star >= truth.v_certainty > truth.v_fixed_gain > truth.v_zero
    assert truth.suboptimality == truth.v_star - truth.v_policy
    assert truth.v_star == pytest.approx(-1.38823, abs=1e-5)
    zero = lq_truth(run_of(), "double-integrator", "zero", double_integrator().zero_gains())
    assert zero.v_policy == zero.v_zero == zero.v_behavior


def test_without_noise_the_estimate_is_nearly_the_truth_and_the_declared_balls_bound_it():
    run = run_of()
    found, world = learnt(run), double_integrator()
    told = found.facts()
    assert told.value.estimate == pytest.approx(-world.expected_cost(found.result.gains), rel=0.02)
    assert told.model_baselines["zero"].estimate < told.value.estimate < 0
    assert least_value(run.card) == pytest.approx(-20 * (1 + 0.2)) == told.value.lower
    assert told.policy.left_zero and run.floor == 0 and len(found.directions) == 3


def test_hopeless_noise_leaves_directions_untrusted_and_says_so():
    found = learnt(run_of(1e-6), 50)
    assert found.result.raised > 0 and min(found.directions) < found.run.floor


def test_a_release_on_other_terms_is_refused():
    with pytest.raises(ValueError, match="on other terms"):
        run_of(1.0, cut=(1.0, 1.0)).learn(release_of(run_of(1.0), 10))


def test_real_people_are_refused_without_a_budget():
    card = run_of().card
    budget = card.budget.model_copy(update={"ledger": "ledger.db"})
    real = card.model_copy(update={"kind": "real", "budget": budget})
    with pytest.raises(RealDataError, match="ask for a finite budget"):
        run_of(card=real)


def test_another_plant_is_not_called_true():
    run, idle = run_of(), double_integrator().zero_gains()
    with pytest.raises(CardError, match="is not that of the world"):
        lq_truth(run, "lq-5", "sphere", idle)
    cost = run.card.cost.model_copy(update={"R": [0.3]})
    changed = replace(run, card=run.card.model_copy(update={"cost": cost}))
    with pytest.raises(CardError, match=r"cost\.R is not that"):
        lq_truth(changed, "double-integrator", "sphere", idle)


def test_the_floor_is_the_noise_in_units_of_the_balls_whatever_the_lattice():
    """An entry off the diagonal is half the sum of two draws: its deviation is that of one over root 2."""
    d = run_of().layout.dimension
    for steps in (1024, 4096):
        run = run_of(1.0, steps=steps)
        sd = run.summed.mechanisms[0].standard_deviation
        assert run.floor**2 == pytest.approx(run.constants.floor**2 * d * sd**2 / 2 / float(steps) ** 4)
    assert run_of().floor == 0
