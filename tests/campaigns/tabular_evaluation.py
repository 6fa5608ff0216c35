"""Do evaluations of policies hold the value?  ``python -P -m tests.campaigns.tabular_evaluation NAME [runs]``.

Fresh logs, fresh people in both parts, fresh noise: how wide the intervals of value and of improvement are, and how
often they hold.  ``worlds``: each run in a random world of its own, with practice drawn at random, in which declared
states are all there is: those rows say over which range a run is calibrated.  ``linear`` is the same for ``dp-vapvi``
on one feature a state and action; ``logged`` and ``linear_logged`` are the same people, whose rows tell how likely
practice was to do what it did.  ``small`` adds small budgets and people of several episodes to the rows of ``worlds``.
"""

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.facts.evaluation import Evaluated
from pipeline.learners.held_out import HeldOutRun
from pipeline.learners.learner import plan_run
from pipeline.learners.linear_evaluation import LinearEvaluation
from pipeline.learners.linear_request import draw_linear
from pipeline.learners.tabular import TabularRun
from pipeline.learners.tabular_evaluation import STAGE, TabularEvaluation
from pipeline.learners.tabular_facts import LearntCounts
from pipeline.learners.terms import Evaluate, Planner, Privacy, Terms
from pipeline.logs.aggregate import count_rows
from pipeline.logs.parts import evaluates, part_key
from pipeline.logs.regression_sums import TallySums
from pipeline.logs.score_sums import Scores, ScoreSums
from pipeline.mdp.planning import policy_value
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import NoiseSource, SeededNoise
from pipeline.statistics.held_out import their_names
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.linear_sums import TalliedRows
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.worlds.simulated_logs import sample_people
from pipeline.worlds.surrogate import draw_surrogate
from tests.campaigns import rows as committed
from tests.conftest import card_dict, domain_dict

SEED = 20261122
# people, share, budget
WORLDS = ((20_000, 0.3, 0.3), (20_000, 0.3, 1.0), (20_000, 0.3, 3.0), (100_000, 0.3, 1.0))
WORLDS += ((2_000, 0.3, 0.3), (2_000, 0.3, 3.0), (5_000, 0.3, 1.0), (5_000, 0.5, 0.1))
# of these with how many episodes a person; whole people are in a frame of 200 000 episodes
SMALL = ((100_000, 0.3, 0.02, 1), (20_000, 0.3, 0.02, 1), (50_000, 0.3, 0.02, 2), (25_000, 0.3, 0.1, 4))
# live states, actions, steps, and whether steps have tables of their own
SIZES = ((2, 2, 2, True), (4, 3, 5, True), (8, 2, 20, False), (20, 4, 10, False), (50, 3, 10, False), (10, 3, 12, True))
SIZES += ((20, 4, 6, True), (40, 3, 6, True), (2, 2, 2, False), (4, 3, 5, False), (2, 3, 20, False), (8, 3, 1, False))
SIZES += ((20, 4, 3, False), (50, 3, 1, False))
# people who judge, times the root of rho, over states to the power 3/2: below it the model drowns and intervals miss;
# those of linear policies are counted first, with half of their budget
HEARD = {False: 28.0, True: 100.0}
LINEAR_SIZES = ((2, 2, 2, True), (4, 3, 5, True), (8, 2, 10, True), (6, 4, 8, False))
WHERE = ("dynamics", "states", "horizon", "people", "episodes", "share", "rho", "runs")
# what coverage a run may state
COVERAGE = {
    "worlds": "coverage_tabular",
    "small": "coverage_tabular",
    "logged": "coverage_tabular_logged",
    "linear": "coverage_linear",
    "linear_logged": "coverage_linear_logged",
}
HEAD = (*WHERE, "value_held", "value_width", "value_bias", "gain_held", "gain_width", "gain_bias", "says_better")
HEAD += ("says_better_though_not", "not_better", "v_policy", "placebo_beyond_4")
CHECKED = (*HEAD, "ratios_beyond_4")
COLUMNS = {"user_id": "user_id", "episode_id": "episode_id", "step": "step", "reward": "reward"}

Run = tuple[Evaluated, float, float]


def evaluate_once(
    card: Card, terms: Terms, log: Sequence[pl.DataFrame], seed: int, *, at_random: bool
) -> tuple[Evaluated, Policy]:
    """One run in memory: the people of both parts, learning, evaluating."""
    run = plan_run(card, terms)
    assert isinstance(run, HeldOutRun)
    noise = SeededNoise(np.random.SeedSequence((SEED, seed, 1)))
    learn, evaluate = both_parts(card, run, log, seed)
    rng = np.random.default_rng((SEED, seed, 2)) if at_random else None
    if isinstance(run.evaluation, LinearEvaluation):
        return _linear(run.evaluation, learn, evaluate, noise, rng)
    assert isinstance(run.plan, TabularRun) and isinstance(run.evaluation, TabularEvaluation)
    first = run.plan.privatizer.draw(counted(card, learn), noise)
    learnt, e = run.plan.learn(first), run.evaluation
    if rng is not None:
        plan = learnt.learnt.plan
        learnt = replace(learnt, learnt=replace(learnt.learnt, plan=replace(plan, policy=_at_random(plan.policy, rng))))
    return heard(e, learnt, evaluate, float(run.share), noise), learnt.learnt.plan.policy


def add_scores(card: Card, layout: MomentLayout, scores: Scores, people: Iterable[pl.DataFrame]) -> ExactSums:
    """What :func:`~pipeline.logs.score_sums.sum_scores` makes of a snapshot; whole people in each frame."""
    sums = ScoreSums(card, layout, scores).sum_people(people)
    return ExactSums(layout.dataset, "synthetic", layout.dynamics, sums)


def heard(
    e: TabularEvaluation, learnt: LearntCounts, people: Sequence[pl.DataFrame], share: float, noise: NoiseSource
) -> Evaluated:
    """What people who judge say of what was learnt."""
    asked = e.scores(learnt)
    drawn = e.sums[STAGE].draw(add_scores(learnt.card, e.layout, asked, people), noise)
    return e.measure(learnt, e.told(asked, drawn), share, 1)[1]


def _at_random(p: Policy, rng: np.random.Generator) -> Policy:
    """A policy that does anything in half of the states."""
    one = np.eye(p.probabilities.shape[-1])[rng.integers(p.probabilities.shape[-1], size=p.abstains.shape[1])]
    abstains = np.broadcast_to(rng.random(p.abstains.shape[1]) < 0.5, p.abstains.shape)
    return Policy(np.broadcast_to(one, p.probabilities.shape).copy(), abstains.copy())


def _linear(
    e: LinearEvaluation,
    learn: Sequence[pl.DataFrame],
    evaluate: Sequence[pl.DataFrame],
    noise: SeededNoise,
    rng: np.random.Generator | None,
) -> tuple[Evaluated, Policy]:
    """The same of a linear policy."""
    r = e.request
    work = TallySums(r.card, r.plan.terms.value_steps, r.plan.reward_steps, split=False)
    sums = work.zero()
    for people in learn:
        work.add_rows(sums, "both", people.select(work.columns))
    rows = TalliedRows(r.plan.features, lambda: work.tallies(sums), "synthetic")
    learnt = r.learn(draw_linear(r, rows, noise))
    if rng is not None:
        learnt = replace(learnt, policy=_at_random(learnt.policy, rng))
    first = their_names(e.counts.draw(counted(e.card, evaluate), noise))
    asked = e.judge.scores(e.counted(learnt, first))
    second = e.judge.told(asked, e.sums[STAGE].draw(add_scores(e.card, e.judge.layout, asked, evaluate), noise))
    answers = replace(second, tables={**first.tables, **second.tables}, mechanisms=first.mechanisms + second.mechanisms)
    return e.measure(learnt, answers, float(e.terms.held_out), 1)[1], learnt.policy


def both_parts(
    card: Card, run: HeldOutRun, log: Iterable[pl.DataFrame], seed: int
) -> tuple[list[pl.DataFrame], list[pl.DataFrame]]:
    """Rows of who learns, and of who evaluates."""
    learn, evaluate, key = list[pl.DataFrame](), list[pl.DataFrame](), part_key(str(seed).encode(), card.name)
    for rows in log:
        users = rows["user_id"].unique(maintain_order=True)
        held = users.filter(pl.Series(evaluates(users.cast(pl.String), run.share, key))).implode()
        evaluate.append(rows.filter(rows["user_id"].is_in(held)))
        learn.append(rows.filter(~rows["user_id"].is_in(held)))
    return learn, evaluate


def counted(card: Card, people: Sequence[pl.DataFrame]) -> ExactSums:
    """Tables of people, summed."""
    first, *more = (count_rows(rows, card) for rows in people)
    sums = {name: sum((c[name] for c in more), table) for name, table in first.items()}
    return ExactSums(card.name, "synthetic", card.domain.dynamics, sums)


def in_a_world(card: Card, terms: Terms, seed: int, *, at_random: bool) -> Run:
    """A random world over the card's labels, and practice that takes any action sometimes."""
    rng = np.random.default_rng((SEED, seed))
    mdp = draw_surrogate(card, rng)
    H, S, A = mdp.shape
    one = rng.dirichlet(np.full(A, 2.0), size=S) * 0.8 + 0.2 / A
    practice = np.broadcast_to(one, (H, S, A)).copy()
    log, m = list[pl.DataFrame](), card.unit.episodes_per_user
    for rows in sample_people(card, mdp, practice, card.unit.users_public * m, rng):
        log.append(rows.with_columns(user_id=rows["user_id"] // m, episode_id=rows["user_id"] % m))
    if terms.logged:
        log = [with_chances(rows, practice) for rows in log]
    found, policy = evaluate_once(card, terms, log, seed, at_random=at_random)
    L = len(card.domain.live_states)

    def worth(p: Policy | None) -> float:
        done = practice.copy()
        if p is not None:
            done[:, :L] = p.beside(practice[:, :L])
        return policy_value(mdp, done)

    return found, worth(policy), worth(None)


def with_chances(rows: pl.DataFrame, practice: NDArray[np.float64]) -> pl.DataFrame:
    """Rows beside how likely practice ``(H, S, A)`` was to do what it did."""
    chances = practice[tuple(rows[c].to_numpy() for c in ("step", "state", "action"))]
    return rows.with_columns(pl.Series("behavior_prob", chances))


def cells(name: str) -> Iterator[tuple[Card, float, float]]:
    """Card, share and budget of each cell."""
    sizes, more = (LINEAR_SIZES, {"features": {"kind": "one_hot"}}) if "linear" in name else (SIZES, {})
    if "logged" in name:
        more |= {"source": {"files": ["a.csv"], "columns": {**COLUMNS, "behavior_prob": "p"}}}
    asked = SMALL if name == "small" else [(*of, 1) for of in WORLDS]
    for (L, A, H, apart), (people, share, rho, episodes) in itertools.product(sizes, asked):
        if people * share * math.sqrt(rho) / L**1.5 < HEARD["linear" in name]:
            continue
        dynamics = "per_step" if apart else "stationary"
        domain = domain_dict(H, [f"s{i}" for i in range(L)], A, ["end"], dynamics=dynamics)
        unit = {"user": "user_id", "users_public": people, "episodes_per_user": episodes}
        yield Card.model_validate(card_dict(domain=domain, unit=unit, **more)), share, rho


def measure(name: str, count: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for card, share, rho in cells(name):
        d, people = card.domain, card.unit.users_public
        agent, told = "dp-vapvi" if "linear" in name else "dp-apvi", "logged" if "logged" in name else "released"
        terms = Terms(name, agent, Privacy(rho=rho), Planner(), evaluate=Evaluate(people=share, probabilities=told))
        said = list[tuple[float, ...]]()
        for seed in range(count):
            found, value, practice = in_a_world(card, terms, seed, at_random=False)
            v, g, gain = found.value, found.improvement, value - practice
            better = g.lower > 0
            held = float(v.lower <= value <= v.upper), float(g.lower <= gain <= g.upper)
            widths = v.upper - v.lower, v.estimate - value, held[1], g.upper - g.lower, g.estimate - gain
            beyond = [abs(z) > 4 for z in (found.placebo or 0.0, found.ratios) if z is not None]
            said.append((held[0], *widths, *map(float, (better, better and gain <= 0, gain <= 0, value, *beyond))))
        mean = np.mean(said, axis=0)
        # a linear policy has steps of its own
        size = ["per_step" if "linear" in name else d.dynamics, len(d.live_states), d.horizon]
        sums = {7: int(sum(s[7] for s in said)), 8: int(sum(s[8] for s in said))}
        where = [people, card.unit.episodes_per_user, share, rho, count]
        row = [*size, *where, *(sums.get(i, f"{x:.4f}") for i, x in enumerate(mean))]
        rows.append(dict(zip(CHECKED if terms.logged else HEAD, row, strict=True)))
        print(rows[-1], flush=True)
    return rows


def shown(name: str) -> str:
    """What a page says of a campaign: a line a size of the world, over its people and budgets."""
    found: dict[str, list[dict[str, str]]] = {}
    for r in committed.read(name):
        kind = "" if r["horizon"] == "1" else " apart" if r["dynamics"] == "per_step" else " alike"
        found.setdefault(f"{r['states']}, {r['horizon']}{kind}", []).append(r)
    lines = list[tuple[object, ...]]()
    for size, of in found.items():
        held = (sum(round(float(r[k]) * int(r["runs"])) for r in of) for k in ("value_held", "gain_held"))
        lines.append((size, sum(int(r["runs"]) for r in of), *held))
    return committed.markdown(("states, steps (alike, or apart)", "runs", "value held", "gain held"), lines)


def main(name: str, count: int) -> None:
    committed.write(COVERAGE[name], measure(name, count), f"{SEED}, 0 .. {count - 1}", WHERE[:-1])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50)
