"""Attacks on the shipped mechanisms: none loses more than it claims, and every broken twin is caught."""

import json
import math
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import pipeline.learners.tabular as tabular
import pipeline.statistics.private_sum as private_sum
from flows.cli import app
from flows.config.home import Home
from flows.config.recipe import setting
from flows.jobs.audit import audit_job, one_run
from flows.jobs.run import run_recipe
from pipeline.audits.attack import (
    AuditTarget,
    Binomial,
    Covariance,
    Drawn,
    attack,
    black_box_epsilon,
    gaussian_rho,
    hold_noise,
    laplace_epsilon,
    laplace_success,
    lower_epsilon,
    lower_rate,
    trade_off,
    upper_rate,
)
from pipeline.audits.tables import linear_cost, linear_target
from pipeline.privacy.noise import FastOsNoise, OsNoise
from pipeline.privacy.release import Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.private_sum import PrivateSum
from reports.studies.study_page import audit_page
from tests.audits.broken import Thinner
from tests.audits.offline_twins import WHOLE, features, lq_moments
from tests.audits.online_twins import MECHANISMS
from tests.conftest import slow, toml
from tests.flows.shop import lay_out

# attacks of seconds each
LONG = ("interactive", "mixture", "moments of", "nightly Toeplitz", "one-shot", "shuffled")
LONG += ("online counts, square-root",)


@cache
def shipped(name: str) -> AuditTarget:
    return MECHANISMS[name][0]()


NAMES = list(MECHANISMS)
TWINS = [(name, twin) for name, (_, twins) in MECHANISMS.items() for twin in twins]
# of a claim what its worst pair spends, where that is not all of it: docs/operate.md says why
SPENT = {"counts, Gaussian, two tables": 0.8, "LQ sums, one release of a batch": 0.98} | {"moments of features": 0.74}
SPENT |= dict.fromkeys(("mixture, bottom-up tree", "online counts, bottom-up tree", "LQ sums, bottom-up tree"), 0.78)


@pytest.mark.parametrize("name", NAMES)
def test_the_pair_is_as_far_apart_as_claimed_and_no_further(name):
    """Without drawing: the exact loss of the attacked pair; counts and rewards in two tables exclude each other."""
    assert SPENT.get(name, 0.99) < shipped(name).attained <= 1 + 1e-9


# what pure Laplace noise and few shuffled bits give away shows late
_DRAWS = {name: 4000 for name in NAMES if "Laplace" in name} | {"shuffled messages": 8000}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n.startswith(LONG) else ()) for n in NAMES])
def test_a_shipped_mechanism_is_not_flagged_and_the_attack_is_not_blind(name):
    v = attack(shipped(name), FastOsNoise(), _DRAWS.get(name, 1500))
    assert not v.violates and v.ratio > 0.3, v


def test_the_exact_sampler_of_a_release_is_not_flagged():
    v = attack(shipped("counts, Gaussian, one table"), OsNoise(), 1500)
    assert not v.violates and v.ratio > 0.3, v


@pytest.mark.parametrize("name", [slow("one-shot"), "lq moments"])
def test_noise_for_many_copies_is_that_of_whole_releases(name):
    """One release at a time, rows and all: the same verdict, and the same spread of the same tables."""
    draws, apart = 100, list[np.ndarray]()
    tiled, one = (target.path(0, FastOsNoise(), draws) for target in (shipped(name), WHOLE[name]()))
    assert [t.shape for t in tiled] == [t.shape for t in one]
    for many, each in zip(tiled, one, strict=True):
        # an entry published without noise would be left out of the spread below
        assert ((many.var(0) > 0) == (each.var(0) > 0)).all()
        # thousands of entries' bounds, apart from their laws' 5 standard errors
        spread = many.var(0) + each.var(0)
        assert (np.abs(many.mean(0) - each.mean(0)) < 6 * np.sqrt(spread / draws) + 1e-9).all()
        moving = each.var(0) > 0
        apart.append(np.log(many.var(0)[moving] / each.var(0)[moving]))
        assert (np.abs(apart[-1]) < 6 * math.sqrt(4 / draws)).all()
    # all entries together: what is 30 % off is 13 standard errors away
    assert abs(np.concatenate(apart).mean()) < math.log(1.3)


def _no_gram_noise(right):
    return lambda source, copies, dimension, *rest: np.zeros((copies, dimension, dimension), dtype=np.int64)


def _half_gram_noise(right):
    return lambda source, *rest: right(Thinner(source, 0.5), *rest)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        slow("interactive, centred", _half_gram_noise),
        ("lq moments", _half_gram_noise),
        slow("one-shot", _no_gram_noise),
    ],
)
def test_noise_that_the_shipped_code_leaves_out_is_flagged_without_being_told(monkeypatch, name, broken):
    """The audit of a recipe draws the listed noise; what is published has less, though the worst pair may not show."""
    monkeypatch.setattr(private_sum, "symmetric_noise", broken(private_sum.symmetric_noise))
    v = attack(shipped(name), FastOsNoise(), 20)
    assert v.less_noise and v.violates


def audited(home: Path, recipe: Path | str, draws: int, *more: str) -> dict[str, Any]:
    """What the verb says of a recipe."""
    verb = ["--home", str(home), "audit", str(recipe), "--draws", str(draws), "--json", *more]
    done = CliRunner().invoke(app, verb)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_gram_sums_without_noise_are_flagged_by_the_verb(tmp_path, monkeypatch):
    recipe = played(tmp_path, "explore-then-commit")
    monkeypatch.setattr(private_sum, "symmetric_noise", _no_gram_noise(private_sum.symmetric_noise))
    found = audited(tmp_path, recipe, 100)
    assert found["violates"] is True and found["less_noise"] is True
    assert "draws less noise than it lists" in (tmp_path / "audits" / "tiny" / "page.md").read_text()


@pytest.mark.slow
def test_whole_releases_are_attacked_where_they_differ_from_what_they_list(monkeypatch):
    monkeypatch.setattr(private_sum, "symmetric_noise", _no_gram_noise(private_sum.symmetric_noise))
    v = attack(lq_moments(even=True), FastOsNoise(), 300)
    assert v.lower_bound_rho > v.claimed_rho


def test_listed_noise_is_no_alarm_and_a_shift_or_another_variance_is():
    rng, listed = np.random.default_rng(11), [np.full((3, 3), 100.0), np.full(5, 400.0)]
    right = [rng.normal(0, np.sqrt(v), (400, *v.shape)) for v in listed]
    assert hold_noise(right, listed) == Drawn(less=False, more=False, shared=False)
    assert hold_noise([right[0] * math.sqrt(0.5), right[1]], listed) == Drawn(less=True, more=False, shared=False)
    assert hold_noise([right[0], right[1] + 20], listed) == Drawn(less=False, more=True, shared=False)
    unread = [np.where(np.tri(3, k=-1) > 0, np.inf, listed[0]), listed[1]]
    silent = [np.where(np.tri(3, k=-1) > 0, 0.0, right[0]), right[1]]
    assert hold_noise(silent, unread) == Drawn(less=False, more=False, shared=False)


@pytest.mark.parametrize("where", ["cells", "tables", "rows of a night", "nights"])
def test_noise_that_entries_share_is_an_alarm_wherever_they_are(where):
    """A quarter of the variance in common is seen; each entry's own variance is as listed."""
    rng = np.random.default_rng(17)
    right = [rng.normal(0, 10, (3000, 3)) for _ in range(4)]
    one, other = {"cells": (0, 0), "tables": (0, 1), "rows of a night": (0, 2), "nights": (1, 3)}[where]
    common = rng.normal(0, 10, 3000)
    broken = [x.copy() for x in right]
    for table, cell in ((one, 0), (other, 1)):
        broken[table][:, cell] = math.sqrt(3 / 4) * right[table][:, cell] + common / 2
    seen = []
    for noise in (right, broken):
        together = Covariance([np.ones(3, dtype=bool)] * 4)
        for first in range(0, 3000, 1000):
            together.add([x[first : first + 1000] for x in noise])
        seen.append(together.shared)
    assert seen == [False, True]


def test_a_counter_whose_rows_share_a_draw_is_flagged_though_each_has_its_noise():
    broken = MECHANISMS["nightly tree"][1]["one draw shared by all rows of a night"]
    v = attack(broken.make(), broken.noise(), 1000)
    assert v.shared_noise and v.violates and not v.less_noise


def test_a_claim_that_so_few_draws_cannot_reach_is_called_untested(tmp_path):
    """Twenty draws, all guess right, prove a rho of 0.23; of the claimed 1 they say nothing."""
    target = shipped("counts, Gaussian, one table")
    few, enough = (attack(target, FastOsNoise(), draws) for draws in (20, 200))
    assert few.ceiling_rho < few.claimed_rho < enough.ceiling_rho
    assert not few.testable and enough.testable
    assert "cannot be tested at so few draws" in audit_page("tiny", [few]).markdown
    assert "cannot be tested" not in audit_page("tiny", [enough]).markdown


def test_a_linear_plan_for_real_people_is_attacked_without_them():
    domain = LinearDomain("tiny", "real", 2, 100, can_end=True)
    target = linear_target(LinearPlan(domain, LinearTerms(Ask(Fraction(1))), features()))
    assert target.attained == pytest.approx(1, abs=0.01)


QUICK = ("half the variance", "integer messages", "m instead of m²", "seeded noise")


def quick(name: str, twin: str) -> bool:
    return twin in QUICK and not name.startswith(LONG) and MECHANISMS[name][1][twin].draws <= 3000


@pytest.mark.parametrize(
    ("name", "twin"),
    [pytest.param(name, twin, marks=() if quick(name, twin) else pytest.mark.slow) for name, twin in TWINS],
)
def test_a_broken_twin_is_caught(name, twin):
    broken = MECHANISMS[name][1][twin]
    v = attack(broken.make(), broken.noise(), broken.draws)
    assert v.violates, v


@pytest.mark.slow
def test_as_many_coins_are_found_as_there_are():
    """A total variation between two laws gives back the coins that have it."""
    law = Binomial(200, 0.5, 6, 1e-5)
    means = ([np.array([1.0, 0] * 3)], [np.array([0, 1.0] * 3)])
    rng, n = np.random.default_rng(3), 400_000
    scores = [law.score([rng.binomial(200, 0.5, (n, 6)) + side[0]], means) for side in means]
    bound = law.bound(*scores, means, 1e-4)
    assert 0.9 * law.epsilon(200) < bound.epsilon < law.epsilon(200)
    assert bound.rho < law.loss(means)


def test_a_message_that_is_no_bit_gives_its_sender_away():
    law = Binomial(200, 0.5, 2, 1e-5)
    means = ([np.array([1.0, 0.0]), np.zeros(2)], [np.array([0.0, 1.0]), np.zeros(2)])
    betrayed = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    scores = law.score([np.full((3, 2), 100.0), betrayed], means)
    assert scores.tolist() == [0.0, math.inf, -math.inf]


def test_bounds_of_known_laws():
    mu = math.sqrt(2)
    assert gaussian_rho(stats.norm.sf(-mu / 2), stats.norm.sf(mu / 2)) == pytest.approx(1.0)
    assert gaussian_rho(0.4, 0.5) == 0 and gaussian_rho(1.0, 0.0) == 0
    assert black_box_epsilon(0.5, 0.5 * math.exp(-1)) == pytest.approx(1.0)
    assert lower_rate(0, 100, 1e-4) == 0 and upper_rate(100, 100, 1e-4) == 1
    assert lower_rate(50, 100, 1e-4) < 0.5 < upper_rate(50, 100, 1e-4)


@pytest.mark.parametrize(("n", "epsilon"), [(1, 1.0), (2, 0.5), slow(40, 4.0)])
def test_the_law_of_a_laplace_likelihood_ratio(n, epsilon):
    """Against draws; its inverse gives the loss back."""
    steps, rng = np.full(n, epsilon / n), np.random.default_rng(5)
    x = rng.laplace(size=(100_000, n))
    ratio = (np.abs(x + steps) - np.abs(x)).sum(1)
    success = laplace_success(steps)
    # cells of opposite signs cancel to rounding: a tie
    right = (ratio > 1e-9).mean() + (np.abs(ratio) <= 1e-9).mean() / 2
    assert success == pytest.approx(right, abs=4 * 0.5 / math.sqrt(100_000) + 0.002)
    assert laplace_epsilon(success, 1 - success, steps) == pytest.approx(epsilon, rel=1e-3)


def test_a_trade_off_of_nothing_is_the_diagonal_and_of_everything_the_corner():
    same = np.random.default_rng(1).normal(size=20_000)
    assert all(abs(x - y) < 0.02 for x, y in trade_off(same, same))
    assert all(y == 1 for _, y in trade_off(same + 100, same))


def test_the_verb_reads_no_rows_and_says_what_was_proved(tmp_path):
    found = audited(tmp_path, "two_step_chance", 400)
    assert {"mechanism", "claimed_rho", "lower_bound_rho", "confidence", "draws", "violates"} <= set(found)
    assert found["violates"] is False and found["draws"] == 400 and found["confidence"] == pytest.approx(0.9998)
    page = (tmp_path / "audits" / found["name"] / "page.html").read_text()
    assert "no row was read" in page and "<svg" in page
    assert not (tmp_path / "store").exists() and not (tmp_path / "ledger.db").exists()


RIVER, LQ_WORLD = {"name": "riverswim_homogeneous", "states": 3}, {"name": "lq", "instance": 1}
NOISY = {"epsilon": 4.0, "delta": 1e-5, "calibration": "tight"}


def played(folder: Path, agent: str, world: Any = LQ_WORLD, privacy: Any = NOISY, **knobs: Any) -> Path:
    """The recipe of an online agent; ``privacy``: empty, where it draws no noise."""
    told = {"recipe": {"name": "tiny", "agent": agent}, **({"privacy": privacy} if privacy else {}), "world": world}
    recipe = folder / "tiny.toml"
    recipe.write_text(toml({**told, "agent": knobs, "runs": {"episodes": 2000, "runs": 1}}))
    return recipe


WORLDS = [
    ("private-linopt-vi", "tight", RIVER, {}, "joint", 1),
    ("private-linopt-po", "paper", RIVER, {"rewards": "learnt"}, "joint", 2),
    ("ldp-ucrl-vtr", "tight", RIVER, {}, "local", 1),
    ("dp-apvi", "tight", RIVER, {}, "central", 1),
    ("dp-ucbvi-jdp", "tight", RIVER, {"mechanism": "square-root"}, "joint", 1),
    ("dp-ucbvi-ldp", "tight", RIVER, {"rewards": "learnt", "pooled": True}, "local", 1),
    ("counts-shuffle", "tight", RIVER, {}, "shuffle", 2),
    ("sdp-pe", "tight", RIVER, {}, "shuffle", 2),
    ("private-ofu-rl", "paper", LQ_WORLD, {}, "joint", 1),
    ("private-ofu-rl", "tight", LQ_WORLD, {"counter": "epochs"}, "joint", 1),
    ("explore-then-commit", "tight", LQ_WORLD, {}, "central", 1),
    ("private-adaptive-lqr", "tight", LQ_WORLD, {}, "joint", 1),
]


# of each kind of message one by default
_USUAL = ("private-linopt-vi", "dp-apvi", "dp-ucbvi-jdp")


@pytest.mark.parametrize(
    ("agent", "calibration", "world", "knobs", "trust", "attacks"),
    [pytest.param(*w, marks=() if w[0] in _USUAL else pytest.mark.slow) for w in WORLDS],
)
def test_an_online_agents_messages_are_attacked_at_its_recipes_budget(
    tmp_path, agent, calibration, world, knobs, trust, attacks
):
    recipe = played(tmp_path, agent, world, NOISY | {"calibration": calibration}, **knobs)
    found = audited(tmp_path, recipe, 300)
    assert found["violates"] is False and len(found["attacks"]) == attacks
    assert {v["trust"] for v in found["attacks"]} == {trust}
    assert all(0.75 < v["attained"] < 1.001 for v in found["attacks"])
    claimed = {v["claimed_epsilon"] for v in found["attacks"]}
    assert claimed == {None} or all(e <= 4.0 for e in claimed)
    whole = found.get("whole_plan")
    assert whole is None or 0.999 < whole["rho"] / whole["claimed_rho"] <= 1
    smaller = agent.startswith(("private-l", "private-o", "ldp", "dp-ucbvi-jdp")) and calibration == "tight"
    assert (whole is not None) == smaller


def test_a_counter_calibrated_for_its_audit_alone_is_flagged(tmp_path, monkeypatch):
    """As if no counter had more leaves than the attacked one; 2,000 episodes take eight levels more."""
    recipe, right = played(tmp_path, "private-ofu-rl"), private_sum.tight
    monkeypatch.setattr(private_sum, "tight", lambda message, ask, cost: right(message, ask, min(cost, 4)))
    found = audited(tmp_path, recipe, 300)
    assert found["attacks"][0]["violates"] is False
    assert found["violates"] is found["whole_plan"]["over"] is True


@pytest.mark.parametrize("kind", ["tree", slow("toeplitz")])
def test_the_rows_of_a_nightly_recipe_are_attacked(tmp_path, kind):
    recipe, head = tmp_path / "nights.toml", {"name": "nights", "card": "riverswim", "agent": "dp-apvi"}
    nightly = {"nights": 365, "first": "2026-01-01", "counter": kind}
    recipe.write_text(toml({"recipe": head, "privacy": {"rho": 1.0}, "nightly": nightly}))
    found = audited(tmp_path, recipe, 300, "--table")
    assert found["violates"] is False and found["mechanism"].startswith(f"nightly {kind}, 8 nights")
    assert found["claimed_rho"] == pytest.approx(1.0, abs=0.01) and found["attained"] > 0.8
    assert 0.99 < found["whole_plan"]["rho"] <= found["whole_plan"]["claimed_rho"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_the_whole_linear_plan_costs_no_more_than_it_claims_and_one_that_does_is_flagged(tmp_path, monkeypatch, broken):
    """Two steps are attacked; a budget that is divided by two steps, however many there are, shows in the sum alone."""
    if broken:
        monkeypatch.setattr(LinearPlan, "step_rho", lambda plan, h: plan.rho / min(plan.domain.horizon, 2))
    found = audited(tmp_path, "riverswim_linear", 300, "--table")
    assert found["attacks"][0]["violates"] is False
    assert found["violates"] is found["whole_plan"]["over"] is broken
    words = "MORE than" if broken else "within"
    assert words in (tmp_path / "audits" / found["name"] / "page.md").read_text()


@pytest.mark.parametrize(
    "ask", [{}, {"halves": True}, {"variant": "one_shot"}, {"variant": "paper"}, {"variance": False}]
)
def test_a_linear_plan_costs_all_that_it_claims_and_no_more(ask):
    domain = LinearDomain("tiny", "synthetic", 7, 100, can_end=True)
    plan = LinearPlan(domain, LinearTerms(Ask(Fraction(1)), **ask), features())
    assert 0.999 < linear_cost(plan) <= 1


def test_an_agent_without_noise_or_a_simulation_with_canaries_is_refused(tmp_path):
    recipe = played(tmp_path, "ucbvi", RIVER, privacy={})
    for noiseless in (str(recipe), "icu_sepsis_baseline"):
        done = CliRunner().invoke(app, ["--home", str(tmp_path), "audit", noiseless])
        assert "no noise, no claim" in str(done.exception)
    done = CliRunner().invoke(app, ["--home", str(tmp_path), "audit", "riverswim_joint", "--canaries", "100"])
    assert "a simulation has neither" in str(done.exception)


def test_as_many_right_guesses_as_a_law_allows_prove_its_loss_and_no_more():
    for epsilon in (0.5, 2.0, 5.0):
        fair = stats.binom.isf(1e-3, 2000, 1 / (1 + math.exp(-epsilon)))
        assert lower_epsilon(10_000, 2000, int(fair), 0.0, 1e-3) <= epsilon
        assert lower_epsilon(10_000, 2000, int(fair) + 10, 0.0, 1e-3) > epsilon - 0.05
    assert lower_epsilon(10_000, 2000, 1000, 1e-6, 1e-3) == 0
    assert lower_epsilon(10_000, 2000, 1990, 1e-3, 1e-3) < lower_epsilon(10_000, 2000, 1990, 0.0, 1e-3)


@pytest.mark.slow
def test_canaries_pass_what_is_shipped_and_are_not_blind(tmp_path):
    # at the demo's own budget 2 000 canaries prove too little to see
    loud = tmp_path / "demo.toml"
    text = (Path(__file__).resolve().parents[2] / "flows/recipes/demo.toml").read_text(encoding="utf-8")
    loud.write_text(text.replace("epsilon = 1.0", "epsilon = 7.8"), encoding="utf-8")
    right = one_run(setting(str(loud), Home(tmp_path)), 2000)
    assert not right.violates and right.lower_bound_epsilon > 0.3


@pytest.mark.slow
def test_a_pipeline_that_only_the_canaries_break_is_not_said_to_be_as_private_as_it_says(tmp_path, monkeypatch):
    shop = lay_out(tmp_path / "shop")

    def careless(*args):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PrivateSum, "draw", raw_counts)
            return run_recipe(*args)

    monkeypatch.setattr("flows.jobs.audit.run_recipe", careless)
    # a claim that 800 right guesses of 800 break
    recipe = shop / "private.toml"
    recipe.write_text(recipe.read_text().replace("rho = 1.0", "rho = 0.4"))
    asked = ["audit", str(recipe), "--draws", "300", "--canaries", "1000"]
    done = CliRunner().invoke(app, ["--home", str(tmp_path / "home"), *asked])
    page = (tmp_path / "home" / "audits" / "private" / "page.md").read_text(encoding="utf-8")
    for text in (" ".join(done.stdout.split()), page):
        assert "NOT as private as it says. Whole pipeline, 1,000 people, 800 of 800 guesses right" in text
        assert "No attack found" not in text


def raw_counts(privatizer, counts, noise):
    """A release that forgets its noise."""
    kept = {m.table: counts.tables[m.table] for m in privatizer.mechanisms}
    return Release("canaries", "synthetic", counts.dynamics, privatizer.mechanisms, kept, "os", "forgotten")


@pytest.mark.parametrize("sampler", ["exact", "table"])
def test_the_fast_sampler_is_held_against_the_share_of_delta_that_the_plan_itself_lists(tmp_path, monkeypatch, sampler):
    """The audit adds none of its own: a plan that forgets it is refused there as it is in a run."""
    shop = lay_out(tmp_path / "shop")
    recipe = shop / "private.toml"
    recipe.write_text(recipe.read_text().replace("[privacy]\n", f'[privacy]\nsampler = "{sampler}"\n'))
    home = Home(tmp_path / "home")
    assert not audit_job(str(recipe), home, draws=200, table=True).violates
    monkeypatch.setattr(tabular, "_with_slack", lambda card, chosen, _: chosen)
    with pytest.raises(ValueError, match="this sampler's share of delta is not counted"):
        audit_job(str(recipe), home, draws=200, table=True)
