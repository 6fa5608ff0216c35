"""What a year of policies is worth: one budget, spent on a release a night or on a counter of nights.

Every night 300 new people swim in RiverSwim, and a policy is planned from all data so far.  Ways to release them, all
for the same rho of the whole year (simulation: seeded noise):

* ``re-release``: the sums so far, every night, at rho/365; the last release alone, which is the best linear estimate
  that is right whatever the nights hold.
* ``re-release, averaged``: all of them, weighted as is best if all nights were alike (here they are).
* ``tree``, ``toeplitz``: the nightly counters.
* ``once``: a single release on that very night at all of rho: nobody could do that every night.
* ``no privacy``: the exact sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipeline.agents.apvi import apvi
from pipeline.agents.pessimism import constants
from pipeline.declaration.card import Card, load_card, task_of
from pipeline.environments.riverswim import riverswim
from pipeline.evaluation.exact import truth
from pipeline.privacy.continual import continual
from pipeline.privacy.factorisation import exact_rows
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Mechanism, Release, Running
from pipeline.simulation.simulate import sample_counts
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.counts import private_counts
from pipeline.statistics.layout import ExactSums

CARD = Path(__file__).resolve().parents[2] / "datasets" / "riverswim" / "card.toml"
BEHAVIOUR = "right-0.8"
MARKS = (1, 3, 7, 14, 30, 60, 90, 120, 180, 240, 300, 365)
METHODS = ("re-release", "re-release, averaged", "tree", "toeplitz", "once", "no privacy")


@dataclass(frozen=True)
class Study:
    """One year: its length, people a night, budget, seed."""

    nights: int = 365
    people: int = 300
    rho: float = 1.0
    seed: int = 0

    def values(self, marks: tuple[int, ...] = MARKS) -> dict[str, list[float]]:
        """True value of each method's policy on each of the ``marks``."""
        card = load_card(CARD)
        world, rng = riverswim(), np.random.default_rng([self.seed, 0])
        leaves = [sample_counts(card, world, BEHAVIOUR, self.people, rng).tables for _ in range(self.nights)]
        found = {}
        for method in METHODS:
            released = _releases(card, self, method, leaves)
            found[method] = [_worth(card, released(t), self.seed) for t in marks if t <= self.nights]
        return found


def _releases(card: Card, s: Study, method: str, leaves: list) -> Callable[[int], Release]:
    """Night -> what the method has released of all data so far."""
    handle = ExactSums(card.name, "synthetic", card.domain.dynamics, {})
    noise = SeededNoise(np.random.SeedSequence([s.seed, 1 + METHODS.index(method)]))
    counter = continual(method, s.nights) if method in ("tree", "toeplitz") else None
    budget = s.rho / s.nights if method.startswith("re-release") else s.rho
    ask = Ask() if method == "no privacy" else Ask(budget, counter=counter)
    summed = count_sum(card, ask)
    mechanisms = summed.mechanisms
    flat = [np.concatenate([x[m.table].reshape(-1) for m in mechanisms]) for x in leaves]
    sums = np.cumsum(flat, axis=0)

    def drawn(rows: int) -> np.ndarray:
        parts = [
            noise.gaussian(rows * m.cells, m.variance, handle).reshape(rows, -1)
            if m.variance
            else np.zeros((rows, m.cells), dtype=np.int64)
            for m in mechanisms
        ]
        return np.concatenate(parts, axis=1)

    if counter is not None:
        size = flat[0].size
        noisy = [exact_rows(counter.rows(t), lambda k: flat[k - 1], size) for t in range(1, s.nights + 1)]
        noisy = [rows + drawn(len(rows)) for rows in noisy]
        return lambda t: _release(card, summed.at(t), counter.total(t, lambda k: noisy[k - 1]), noise.name)
    each = sums + drawn(s.nights)
    if method != "re-release, averaged":
        return lambda t: _release(card, mechanisms, each[t - 1], noise.name)

    def averaged(t: int) -> Release:
        k = np.arange(1, t + 1)
        error = t * t / (k @ k)
        quieter = tuple(replace(m, running=Running(1, 1, error)) for m in mechanisms)
        return _release(card, quieter, t * (k @ each[:t]) / (k @ k), noise.name)

    return averaged


def _release(card: Card, mechanisms: tuple[Mechanism, ...], total: np.ndarray, noise: str) -> Release:
    pieces = np.split(np.rint(total).astype(np.int64), np.cumsum([m.cells for m in mechanisms])[:-1])
    tables = {m.table: x.reshape(m.shape) for m, x in zip(mechanisms, pieces, strict=True)}
    exact = all(m.variance is None for m in mechanisms)
    return Release(card.name, "synthetic", card.domain.dynamics, mechanisms, tables, "none" if exact else noise, "")


def _worth(card: Card, release: Release, seed: int) -> float:
    """True value of the policy that is planned on a release, constants ``practical``."""
    task = task_of(card)
    chosen = constants("practical", task.horizon * task.allowed.size)
    plan = apvi(private_counts(release, card), task, chosen, np.random.default_rng(seed))
    return truth(card, riverswim(), BEHAVIOUR, plan.policy)["v_policy"]
