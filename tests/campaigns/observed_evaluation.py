"""Do evaluations on observations hold?  ``python -P -m tests.campaigns.observed_evaluation NAME FIRST LAST``.

Fresh worlds, people, and noise.  ``linear``: the next observation comes from one of a few clouds, which one by a chance
that is affine in the observation, as are rewards: every policy's values are linear in affine features.  ``bent``: other
rewards and dynamics, in which they are not.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.facts.evaluation import Evaluated
from pipeline.facts.verdict import MISFIT, clear
from pipeline.learners.held_out import HeldOutRun
from pipeline.learners.learner import plan_run
from pipeline.learners.linear_request import LinearLearnt, LinearRequest, draw_linear
from pipeline.learners.observed_evaluation import FEATURES, SCORED, ObservedEvaluation
from pipeline.learners.terms import Evaluate, Planner, Privacy, Terms
from pipeline.logs.observed_rows import ObservedScoreSums, exact
from pipeline.logs.parts import evaluates, part_key
from pipeline.mdp.linear_policy import PRACTICE
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.linear_sums import Side, StepRows, StreamRows
from tests.campaigns import rows as committed
from tests.campaigns.tabular_evaluation import WHERE
from tests.conftest import card_dict

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

SEED = 20261129
NAMES = ("linear", "bent")
# people who judge times the root of rho, at least, and for each feature to the power 3/2; features; shares of a wave
LEAST, EACH, MOST, BENDS = 9_000.0, 60.0, 33, (0.1, 0.2, 0.4, 0.7, 1.0)
# size of the world; people, share, budget
ENDS = (
    ((1, 2, 1), (18_000, 0.5, 1.0)),
    ((10, 3, 12), (23_000, 0.5, 1.0)),
    ((4, 2, 12), (60_000, 0.5, 1.0)),
    ((10, 2, 6), (100_000, 0.3, 1.0)),
)
# from this seed on worlds are small, which are cheap: up to 4 numbers, 3 actions and 4 steps
SMALL = 52
_SAMPLED = 24_000


@dataclass(frozen=True)
class World:
    """Observations in the unit ball of p numbers; J clouds.

    ``pull`` ``(A, J, p)``, ``centre`` ``(J, p)``, ``reward`` ``(A, p)``, ``ends`` ``(A, p)``, ``practice`` ``(A, p)``.
    ``bend``: 0: linear; else how much of the reward is a wave.
    ``pushes``: next observations are pushed from where one was, not drawn from clouds.
    """

    pull: Array
    centre: Array
    reward: Array
    ends: Array
    practice: Array
    often: float
    steps: int
    bend: float = 0.0
    wave: Array | None = None
    pushes: bool = False

    @property
    def actions(self) -> int:
        return len(self.reward)

    @property
    def size(self) -> int:
        return self.centre.shape[1]

    def cloud(self, j: Integers, rng: np.random.Generator) -> Array:
        return inside(self.centre[j] + 0.5 * rng.normal(size=(len(j), self.size)) / math.sqrt(self.size))

    def start(self, n: int, rng: np.random.Generator) -> Array:
        return self.cloud(rng.integers(len(self.centre), size=n), rng)

    def chances(self, x: Array) -> Array:
        """``(n, A)`` of practice."""
        z = np.exp(x @ self.practice.T)
        return 0.8 * z / z.sum(1, keepdims=True) + 0.2 / self.actions

    def paid(self, x: Array) -> Array:
        """Mean rewards ``(n, A)``."""
        found = 0.5 + 0.45 * (1 - self.bend) * x @ self.reward.T
        if self.wave is not None:
            found = found + 0.45 * self.bend * np.cos(x @ self.wave.T)
        return np.clip(found, 0, 1)

    def over(self, x: Array) -> Array:
        """Chance ``(n, A)`` that an episode ends after a row."""
        return self.often * (1 + x @ self.ends.T)

    def onto(self, x: Array) -> Array:
        """Chances ``(n, A, J)`` of clouds."""
        return (1 + np.einsum("np,ajp->naj", x, self.pull)) / len(self.centre)

    def step(self, x: Array, a: Integers, rng: np.random.Generator) -> tuple[Array, Array, NDArray[np.bool_]]:
        at = np.arange(len(x))
        r = (rng.random(len(x)) < self.paid(x)[at, a]).astype(np.float64)
        end = rng.random(len(x)) < self.over(x)[at, a]
        if self.pushes:
            drift = 0.8 * x + 0.4 * self.centre[a]
            return inside(drift + 0.25 * rng.normal(size=x.shape) / math.sqrt(self.size)), r, end
        p = self.onto(x)[at, a]
        j = (p.cumsum(1) < rng.random((len(x), 1))).sum(1)
        return self.cloud(np.minimum(j, len(self.centre) - 1), rng), r, end


def inside(x: Array) -> Array:
    return x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))


def unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def draw_world(p: int, A: int, H: int, rng: np.random.Generator, bend: float = 0.0, pushes: bool = False) -> World:
    J = max(p + 1, A)
    pull = rng.normal(size=(A, J, p))
    pull -= pull.mean(1, keepdims=True)
    pull /= np.linalg.norm(pull, axis=2).max()
    centre = 0.8 * unit(rng.normal(size=(J, p)))
    reward, ends = unit(rng.normal(size=(2, A, p)))
    often = float(rng.choice([0.0, 0.03, 0.1]))
    practice = rng.uniform(0, 3) * unit(rng.normal(size=(A, p)))
    wave = rng.uniform(2, 5) * unit(rng.normal(size=(A, p))) if bend else None
    return World(pull, centre, reward, ends, practice, often, H, bend, wave, pushes)


def card_of(w: World, people: int, features: dict[str, object]) -> Card:
    domain = {
        "horizon": w.steps,
        "states": {"ends": ["over"]},
        "observation": {"column": "o", "dimension": w.size, "radius": 1.0},
        "actions": {"column": "action", "labels": w.actions},
        "first_observations": [[0.0] * w.size],
        "dynamics": "per_step",
    }
    columns = {"user_id": "u", "episode_id": "e", "step": "t", "reward": "r", "next_observation": "n"}
    columns |= {"terminated": "d"}
    unit = {"user": "u", "users_public": people, "episodes_per_user": 1}
    source = {"files": ["a.csv"], "columns": columns}
    return Card.model_validate(card_dict(schema_version=2, domain=domain, features=features, unit=unit, source=source))


@dataclass(frozen=True)
class Log:
    """``(H, n)`` arrays; rows that are ``there``."""

    x: Array
    after: Array
    action: Integers
    reward: Array
    ended: NDArray[np.bool_]
    there: NDArray[np.bool_]

    def of(self, who: NDArray[np.bool_]) -> Log:
        return Log(*(getattr(self, k)[:, who] for k in ("x", "after", "action", "reward", "ended", "there")))


def simulate(w: World, n: int, rng: np.random.Generator) -> Log:
    x, alive, found = w.start(n, rng), np.ones(n, dtype=bool), []
    for _ in range(w.steps):
        p = w.chances(x)
        a = np.minimum((p.cumsum(1) < rng.random((n, 1))).sum(1), w.actions - 1)
        # as a store keeps them
        x = x.astype(np.float32).astype(np.float64)
        after, r, end = w.step(x, a, rng)
        found.append((x, after, a, r, end, alive))
        alive, x = alive & ~end, after
    return Log(*(np.stack(z) for z in zip(*found, strict=True)))


def frames(log: Log, size: int = 100_000) -> Iterator[pl.DataFrame]:
    """Canonical rows of whole people."""
    H, n = log.action.shape
    for low in range(0, n, size):
        part = slice(low, low + size)
        there = log.there[:, part].T
        user = np.broadcast_to(np.arange(low, low + there.shape[0])[:, None], there.shape)[there]
        step = np.broadcast_to(np.arange(H), there.shape)[there]
        x = log.x[:, part].transpose(1, 0, 2)[there].astype(np.float32)
        ended = log.ended[:, part].T[there]
        yield pl.DataFrame(
            {
                "user_id": user,
                "episode_id": np.zeros(len(user), dtype=np.int64),
                "step": step.astype(np.int32),
                "state": np.zeros(len(user), dtype=np.int32),
                "action": log.action[:, part].T[there].astype(np.int32),
                "observation": pl.Series(x).arr.to_list(),
                "reward": log.reward[:, part].T[there],
                "next_state": ended.astype(np.int32),
                "terminated": ended,
            }
        )


def stream(r: LinearRequest, log: Log) -> StreamRows:
    assert r.observed is not None
    f, onto = r.observed, r.observed if r.adaptive else (r.plan.onto or r.observed)

    def batches(h: int, side: Side) -> Iterator[StepRows]:
        here = np.flatnonzero(log.there[h])
        for part in np.array_split(here, max(1, len(here) * f.dimension * log.action.max() // (1 << 22))):
            x, after = log.x[h, part], log.after[h, part]
            none = np.zeros(len(part), dtype=np.int64)
            phi = f.of_taken(x, none, log.action[h, part])
            yield StepRows(phi, log.reward[h, part], onto.of_actions(after, none), log.ended[h, part])

    return StreamRows(batches, f.dimension, "synthetic")


def decide(learnt: LinearLearnt, e: ObservedEvaluation, h: int, x: Array) -> Integers:
    """The policy, with fast products."""
    policy = e.ask(learnt).asked.policy
    found = list[Integers]()
    for part in np.array_split(x, max(1, len(x) // 20_000)):
        phi = e.features.of_actions(part, np.zeros(len(part), dtype=np.int64)) * policy.unit
        length = np.maximum(((phi @ policy.inverse[h]) * phi).sum(-1), 1e-300)
        Q = phi @ policy.w[h] + policy.offset[h] - policy.multiplier[h] * np.sqrt(length) - policy.constant[h]
        may = (phi**2).sum(-1) / length > policy.threshold
        clipped = np.where(may, np.clip(Q, *policy.clip[h]), -np.inf)
        best = np.where(clipped == clipped.max(1, keepdims=True), np.where(may, Q, -np.inf), -np.inf).argmax(1)
        found.append(np.where(may.any(1), best, PRACTICE))
    return np.concatenate(found)


def values(w: World, learnt: LinearLearnt | None, e: ObservedEvaluation, rng: np.random.Generator, n: int) -> float:
    """True value: of a linear world by the means of its clouds, of another one played."""
    A = w.actions

    def does(h: int, x: Array) -> Array:
        p = w.chances(x)
        if learnt is None:
            return p
        a = decide(learnt, e, h, x)
        return np.where((a < 0)[:, None], p, np.eye(A)[np.maximum(a, 0)])

    if w.pushes:
        x, alive, total = w.start(n, rng), np.ones(n), 0.0
        for h in range(w.steps):
            p = does(h, x)
            a = np.minimum((p.cumsum(1) < rng.random((n, 1))).sum(1), A - 1)
            total += float((alive * w.paid(x)[np.arange(n), a]).mean())
            x, _, end = w.step(x, a, rng)
            alive = alive * ~end
        return total
    J = len(w.centre)
    each = max(1000, n // J)
    x = w.cloud(np.repeat(np.arange(J), each), rng)
    paid, alive, onto, ahead = w.paid(x), 1 - w.over(x), w.onto(x), np.zeros(J)
    for h in reversed(range(w.steps)):
        Q = paid + alive * (onto @ ahead)
        ahead = (does(h, x) * Q).sum(1).reshape(J, each).mean(1)
    return float(ahead.mean())


def evaluate_once(card: Card, terms: Terms, log: Log, seed: int) -> tuple[Evaluated, LinearLearnt, ObservedEvaluation]:
    """One run in memory: the people of both parts, learning, evaluating."""
    run = plan_run(card, terms)
    assert isinstance(run, HeldOutRun) and isinstance(run.plan, LinearRequest)
    assert isinstance(run.evaluation, ObservedEvaluation)
    noise, key = SeededNoise(np.random.SeedSequence((SEED, seed, 1))), part_key(str(seed).encode(), card.name)
    judges = np.array(evaluates([str(i) for i in range(log.action.shape[1])], run.share, key))
    r, e = run.plan, run.evaluation
    learnt = r.learn(draw_linear(r, stream(run.plan, log.of(~judges)), noise))
    return judge(e, learnt, log.of(judges), noise), learnt, e


def judge(e: ObservedEvaluation, learnt: LinearLearnt, log: Log, noise: SeededNoise) -> Evaluated:
    people = list(frames(log))
    work = e.ask(learnt)
    first = e.sums[FEATURES].draw(exact(e.moved, work.sum_people(people), "synthetic"), noise)
    scores = e.scores(learnt, work.asked, first)
    summed = ObservedScoreSums(e.card, e.scored, scores).sum_people(people)
    second = e.sums[SCORED].draw(exact(e.scored, summed, "synthetic"), noise)
    return e.measure(learnt, e.both(first, second), float(e.terms.held_out), 1)[1]


def draw_cell(name: str, seed: int) -> tuple[World, Card, Terms]:
    """A world, how it is described, and what is asked of whom; the first few lie at the ends of what is declared."""
    rng = np.random.default_rng((SEED, NAMES.index(name), seed))
    p, A, H = int(rng.integers(1, 11)), int(rng.integers(2, 5)), int(rng.integers(1 + (name == "bent"), 13))
    if seed >= SMALL:
        p, A, H = 1 + p % 4, min(A, 3), 1 + (name == "bent") + H % 3
    A = min(A, MOST // (1 + p))
    least = max(LEAST, EACH * (A * (1 + p)) ** 1.5)
    rho, share = float(rng.choice([0.5, 1.0, 1.0])), 0.5
    people = math.ceil(rng.uniform(least, 1.4 * least) / math.sqrt(rho) / share / 100) * 100
    bend, pushes = (float(rng.choice(BENDS)), bool(rng.random() < 0.4)) if name == "bent" else (0.0, False)
    if seed < len(ENDS):
        (p, A, H), (people, share, rho) = ENDS[seed]
    square = p <= 2 and name == "linear" and seed >= len(ENDS) and bool(rng.random() < 0.5)
    agent = "dp-vapvi" if p * A <= 10 and bool(rng.random() < 0.4) else "dp-one-shot"
    w = draw_world(p, A, H, rng, bend, pushes)
    terms = Terms("observed", agent, Privacy(rho=rho), Planner(), evaluate=Evaluate(people=share))
    return w, card_of(w, people, {"kind": "quadratic" if square else "affine"}), terms


def once(name: str, seed: int) -> dict[str, object]:
    """One run in a world of its own, as a row."""
    w, card, terms = draw_cell(name, seed)
    people, rng = card.unit.users_public, np.random.default_rng((SEED, NAMES.index(name), seed, 3))
    found, learnt, e = evaluate_once(card, terms, simulate(w, people, rng), seed)
    value, usual = (values(w, who, e, np.random.default_rng((SEED, 5)), _SAMPLED) for who in (learnt, None))
    v, g, gain = found.value, found.improvement, value - usual
    withheld = abs(found.misfit or 0.0) > MISFIT
    better = clear(g.estimate, g.lower, g.upper, found.level) and g.estimate > 0 and not withheld
    share, rho = float(terms.held_out), terms.privacy.rho if terms.privacy else None
    where = ("per_step" if name == "linear" else name, e.features.dimension, w.steps, people, 1, share, rho, 1)
    return {
        **dict(zip(WHERE, where, strict=True)),
        "value_held": int(v.lower <= value <= v.upper),
        "gain_held": int(g.lower <= gain <= g.upper),
        "gain": f"{gain:.4f}",
        "off": f"{g.estimate - gain:.4f}",
        "half_width": f"{found.half_width:.4f}",
        "misfit": f"{found.misfit:.2f}",
        "withheld": int(withheld),
        "says_better": int(better),
        "world": seed,
    }


def shown(name: str) -> str:
    """What a page says: a line for linear worlds by number of features, and one for the others."""
    lines = ["| worlds | features | runs | value held | gain held | withheld | neither |", "|---" * 7 + "|"]
    rows, ends = committed.read(name), (0, 12, 22, 33)
    of = [
        ("linear", f"{a + 1} to {b}", [r for r in rows if r["dynamics"] == "per_step" and a < int(r["states"]) <= b])
        for a, b in itertools.pairwise(ends)
    ]
    of.append(("bent", "any", [r for r in rows if r["dynamics"] == "bent"]))
    for words, size, found in of:
        told = [sum(int(r[k]) for r in found) for k in ("value_held", "gain_held", "withheld")]
        neither = sum(r["gain_held"] == r["withheld"] == "0" for r in found)
        lines.append("| " + " | ".join(map(str, (words, size, len(found), *told, neither))) + " |")
    return "\n".join(lines)


def main(name: str, first: int, last: int) -> None:
    rows = list[dict[str, object]]()
    for seed in range(first, last):
        rows.append(once(name, seed))
        print(rows[-1], flush=True)
        if len(rows) % 10 == 0 or seed == last - 1:
            committed.write("coverage_observed", rows, f"{SEED}", ("dynamics", "world"))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]))
