"""The mean reward of one night, under the policy in use and under current practice, and the rule that calls a fall.

A hash of the person's id and of the policy's decides who meets the policy (:func:`meets`), so the arm of a person
follows from their own rows and from earlier releases, and from no other person.

**The table** has, for each of the two arms, ``S n`` and ``sum of z``: n episodes, and z = 2k - S their returns on a
lattice ``k = 0 .. S`` of the returns that the card allows.  An episode adds (S, z) with abs(z) <= S to one arm.  With m
and m' of them, two people of one arm differ by at most S^2 (m - m')^2 + S^2 (m + m')^2 = 2 S^2 (m^2 + m'^2), squared,
and two people of two arms, or on two nights, by as much.  So a replaced person moves the table by at most 4 S^2 m^2:
the cost of the centred sums alone, and the counts are free beside them.  A night's table is released once, so
every night costs what one night costs; spread over several nights, m episodes move no more.

**The rule.**  Let s be the share, N and Z the columns of the table, with noise of variance v in each entry, u the row
of the policy and p that of practice.  If the mean of the policy is at least that of practice, some y in [-1, 1] lies
between the two, and none of these three has an expectation above 0, whatever n_u and n_p are:

    D(y) = s (Z_p - y N_p) - (1 - s) (Z_u - y N_u),    Z_p - y N_p,    y N_u - Z_u

A return z / S in [-1, 1] of mean y varies by at most 1 - y^2 and is at most 1 - y above its mean and 1 + y below (of
all such laws the one on the two ends has the largest moments), and discrete Gaussian noise is sub-Gaussian with its
variance (Canonne, Kamath and Steinke 2020).  So by Bernstein's inequality each of the three exceeds
sqrt(2 V x) + c x, x = log(1 / a), with a chance of at most a: V sums the variances of returns and noise, c is a third
of the farthest that a person moves it; numbers of people in V are replaced by upper bounds.  A y at which one of the
three exceeds its bound is none that lies between; a night is called where no y is left.  The y are taken a cell of
[-1, 1] at a time, each of the bounds at its worst within the cell.

People are taken to be independent draws; nothing else is assumed, and no number of people is too small.  The parts of a
night's level add up to it, and each of T nights has a level of .01 / T: over all nights of a counter, a policy that is
never worse than practice is called with a chance of at most 1 %.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.declaration.card import Card
from pipeline.privacy.release import PLAYED
from pipeline.statistics.count_layout import leaf_sensitivity, reward_lattice
from pipeline.statistics.layout import CardLayout, Sensitivity, Table, as_integers

# lattice steps of an episode's return
STEPS = 1000
# of all nights of a counter together
LEVEL = 0.01
# rows of the table
POLICY, PRACTICE = 0, 1
# the people who meet a policy: its ``id``, and their ``share``
Allocation = Mapping[str, Any]
# a person's episodes: summed lattice steps, rows, and whether each was played under the policy
Episodes = tuple[Sequence[int], Sequence[int], Sequence[bool]]


def meets(play: Allocation, person: str) -> bool:
    """True where a person meets the policy, by the hash in its file."""
    drawn = int.from_bytes(hashlib.sha256(f"{play['id']}:{person}".encode()).digest()[:8], "big")
    return drawn < play["share"] * 2**64


@dataclass(frozen=True)
class Night:
    """Result of a night's table.

    ``policy``, ``practice``: mean rewards of an episode, in reward units; None where the noise is larger than a tenth
    of the people.
    ``called``: whether the policy did worse than practice, by the rule.
    """

    policy: float | None
    practice: float | None
    called: bool


@dataclass(frozen=True)
class PlayedLayout(CardLayout):
    """See :class:`~pipeline.statistics.layout.Layout`."""

    @property
    def tables(self) -> tuple[Table]:
        """One table ``(2, 2)``: episodes (``STEPS`` each) and centred returns, under the policy and under practice."""
        replaced = leaf_sensitivity(self._replaced, self.card)
        added = Sensitivity(replaced.l2_squared // 2, replaced.l1 // 2, f"half of {replaced.rule}")
        unit = f"1/{STEPS} episode, or {(self.high - self.low) / (2 * STEPS):g} reward"
        return (Table(PLAYED, (2, 2), unit, replaced, added),)

    @staticmethod
    def _replaced(card: Card) -> Sensitivity:
        m = card.unit.episodes_per_user
        rule = f"4 S² m² (L2²), 4 S m (L1): S = {STEPS}, returns centred, episodes counted S each beside them"
        return Sensitivity(4 * STEPS**2 * m * m, 4 * STEPS * m, rule)

    @property
    def low(self) -> float:
        """The least return that the card allows; an episode may end early, with nothing more."""
        return self.card.domain.horizon * min(self.card.reward.range[0], 0.0)

    @property
    def high(self) -> float:
        """The largest return that the card allows."""
        r, horizon = self.card.reward, self.card.domain.horizon
        most = horizon * max(r.range[1], 0.0)
        if r.total_steps is not None:
            most = min(most, horizon * max(r.range[0], 0.0) + r.total_steps * reward_lattice(self.card).unit)
        return most

    def extremes(self) -> Iterator[Episodes]:
        """No episode, and people of m episodes with least and largest returns, under the policy and under practice."""
        m, d, steps = self.card.unit.episodes_per_user, self.card.domain, self.card.reward.steps
        yield [], [], []
        for k, length in ((0, d.horizon), (steps * d.horizon, d.horizon), (0, 1)):
            for met in (True, False):
                yield [k] * m, [length] * m, [met] * m

    def add(self, episodes: Episodes) -> Integers:
        """The table ``(2, 2)`` of a person's episodes."""
        k, rows = (np.asarray(x, dtype=np.int64) for x in episodes[:2])
        met = np.asarray(episodes[2], dtype=bool)
        z = 2 * self._index(k, rows) - STEPS
        arms = (met, ~met)
        return np.array([[STEPS * int(arm.sum()), int(z[arm].sum())] for arm in arms], dtype=np.int64)

    def one(self, episodes: Episodes) -> dict[str, Integers]:
        """The same by its name."""
        return {PLAYED: self.add(episodes)}

    def _index(self, k: Integers, rows: Integers) -> Integers:
        """Each return on its lattice ``0 .. STEPS``, from its lattice steps and rows; floored, and cut to its ends."""
        r, lattice = self.card.reward, reward_lattice(self.card)
        if r.total_steps is not None:
            k = np.minimum(k, r.total_steps)
        returns: Array = r.range[0] * rows + (r.range[1] - r.range[0]) / lattice.steps * k
        return as_integers((returns - self.low) / (self.high - self.low) * STEPS + 1e-9, 0, STEPS)

    def judge(self, table: Integers, variance: int, share: float, nights: int) -> Night:
        """Result of a released table; ``variance``: of its noise, the others as in :func:`calls`."""
        means = [self._mean(n, z, variance) for n, z in table.astype(np.float64)]
        called = calls(table, variance, share, nights, self.card.unit.episodes_per_user)
        return Night(means[POLICY], means[PRACTICE], bool(called))

    def least_fall(self, variance: int, share: float, nights: int, people: float) -> float | None:
        """The least fall below practice, reward units an episode, that is called on every second night.

        ``people``: of a night, of whose returns the means lie in the middle of the range, where they vary most.
        Returns None where no fall is.
        """
        falls = np.linspace(0, 1, 201)[1:]
        means = np.stack([-falls, falls], -1)
        n = people * STEPS * np.array([share, 1 - share])
        tables = np.stack(np.broadcast_arrays(n, n * means), -1).astype(np.int64)
        called = calls(tables, variance, share, nights, self.card.unit.episodes_per_user)
        return float(falls[called.argmax()] * (self.high - self.low)) if called.any() else None

    def _mean(self, n: float, z: float, variance: int) -> float | None:
        if n < 10 * math.sqrt(variance):
            return None
        return self.low + (max(-1.0, min(1.0, z / n)) + 1) / 2 * (self.high - self.low)


# shares of a night's level: of D, of each arm alone, and of both numbers of people
_OF_BOTH, _OF_ONE, _OF_PEOPLE = 0.7, 0.1, 0.1
# ends of the cells of [-1, 1], closer together where returns vary less; 0 is one of them
_ENDS = -np.cos(np.linspace(0, math.pi, 33))


def calls(tables: Integers, variance: float, share: float, nights: int, episodes: int) -> Bools:
    """True where the rule calls the nights of released tables ``(..., 2, 2)``.

    ``variance``: of their noise.
    ``share``: of the people who meet the policy, strictly between 0 and 1.
    ``nights``: T, over which the level is spent.
    ``episodes``: m, of one person at most.
    """
    s, level = share, LEVEL / nights
    columns = np.moveaxis(tables.astype(np.float64), (-2, -1), (0, 1))
    (n_u, z_u), (n_p, z_p) = columns[POLICY], columns[PRACTICE]
    noise_bound = math.sqrt(2 * variance * math.log(2 / (_OF_PEOPLE * level)))
    # variances of returns at either end of the range, at most
    of_u, of_p = (episodes * STEPS * np.maximum(n + noise_bound, 0.0) for n in (n_u, n_p))
    weights, possible = (s * s, (1 - s) ** 2), np.zeros(n_u.shape, dtype=bool)

    def bound(part: float, people: Array, noise: float, far: float) -> Array:
        """Bound that a statistic exceeds with chance ``part * level``; ``people`` and ``noise`` are its variances."""
        x = math.log(1 / (part * level))
        return np.sqrt(2 * x * (people + noise)) + episodes * STEPS * far / 3 * x

    for a, b in pairwise(_ENDS):
        returns, noise = 1 - min(a * a, b * b), variance * (1 + max(a * a, b * b))
        difference = s * z_p - (1 - s) * z_u - np.maximum(*(y * (s * n_p - (1 - s) * n_u) for y in (a, b)))
        variances = returns * (weights[0] * of_p + weights[1] * of_u)
        excluded = difference > bound(_OF_BOTH, variances, noise * sum(weights), max(s * (1 - a), (1 - s) * (1 + b)))
        excluded |= z_p - np.maximum(a * n_p, b * n_p) > bound(_OF_ONE, returns * of_p, noise, 1 - a)
        excluded |= np.minimum(a * n_u, b * n_u) - z_u > bound(_OF_ONE, returns * of_u, noise, 1 + b)
        possible |= ~excluded
    return ~possible
