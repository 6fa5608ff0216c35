"""Lengths of the batches of a count-based agent: declared, or shorter at no cost in privacy."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile


@dataclass(frozen=True)
class Pace:
    """Rule for the length of the next batch: a function of declared and released values.

    A batch ends when ``growth`` times the episodes before it are played, as declared; or sooner, before the policy is
    expected to visit a cell more than ``visits`` times as often as it was ever visited.  So a cell that looks good for
    lack of data costs about as much as its data.  Without this rule a doubling batch is spent on a cell that the last
    noise recommended, and the regret of private agents grows in proportion to K.

    ``most``: declared largest number of batches.
    ``growth``: ratio of the episodes by the end of the next batch to those so far; at least 1.
    """

    episodes: int
    growth: float
    first: int = 1
    most: int = 2**62
    visits: float = 1.0

    @cached_property
    def ends(self) -> list[int]:
        """Declared last episodes of batches."""
        return batch_ends(self.episodes, self.growth, self.first)

    def length(self, played: int, batches: int, room: float) -> int:
        """Episodes of the next batch, after ``played`` in so many ``batches``, with at most ``room`` worth playing."""
        i = bisect_right(self.ends, played)
        grown = _grow(played, self.growth) if i else self.ends[0]
        remaining = min(self.episodes, grown) - played
        # as many batches as the declared ends would still take are kept for them
        return remaining if self.most - batches <= len(self.ends) - i else max(1, int(min(float(remaining), room)))


def batch_ends(episodes: int, growth: float, first: int = 1) -> list[int]:
    """Last episodes ``first = e_1 < e_2 < .. = episodes``, each the first at least ``growth`` times the one before.

    ``episodes``: K, episodes in all, at least 1.
    ``growth``: at least 1; 1 means a batch an episode.
    ``first``: episodes of the first batch, at least 1.
    """
    if not growth >= 1 or min(first, episodes) < 1:
        raise ValueError(f"growth, first and episodes must be at least 1; got {growth}, {first} and {episodes}")
    return [*takewhile(lambda k: k < episodes, _schedule(first, growth)), episodes]


def plan_starts(episodes: int, growth: float) -> list[int]:
    """Episodes 1 = k_1 < k_2 < .. <= K before which a policy is planned, each the first at least ``growth`` times the
    one before: fixed in advance, so that it costs no privacy.

    ``growth``: at least 1; 1 means a plan an episode.
    """
    if not growth >= 1:
        raise ValueError(f"growth must be at least 1; got {growth}")
    return list(takewhile(lambda k: k <= episodes, _schedule(1, growth)))


def plan_lengths(episodes: int, growth: float) -> list[int]:
    """Episodes that each plan of :func:`plan_starts` is played.

    >>> plan_lengths(20, 2.0)
    [1, 2, 4, 8, 5]
    """
    return [later - first for first, later in pairwise([*plan_starts(episodes, growth), episodes + 1])]


def _schedule(k: int, growth: float) -> Iterator[int]:
    while True:
        yield k
        k = _grow(k, growth)


def _grow(k: int, growth: float) -> int:
    return max(k + 1, math.ceil(growth * k))
