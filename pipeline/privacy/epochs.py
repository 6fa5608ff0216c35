"""Counters of two stages over epochs: what the first answers stands for an epoch, and the second begins anew with it.

Steps 1 .. T are cut into epochs of E steps.  A first answer is read on the first step of each epoch, from all steps so
far, and stands until the next (:class:`Openings`); the sums that are asked with it are of that epoch alone
(:class:`Epochs`), because sums that were asked with different answers do not add.  A person is in one step, so in one
epoch: every epoch's counter has the whole budget of its stage, at the cost of E steps, not of T.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.continual import continual
from pipeline.privacy.factorisation import Factorisation, Kind, Row, check_step
from pipeline.privacy.noise import Integers

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Cut(Factorisation):
    """Steps in epochs.

    Parameters
    ----------
    epoch
        E: steps of an epoch, 1 to T; the last one may be shorter.
    of
        The factorisation inside.
    """

    epoch: int
    of: Kind

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.epoch <= self.steps:
            raise ValueError(f"an epoch must be of 1 to {self.steps} steps; got {self.epoch}")

    @property
    def kind(self) -> Kind:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`."""
        return self.of

    def cost_of(self, steps: int) -> int:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`: nobody is in more than one step.

        Raises
        ------
        ValueError
            If somebody is.
        """
        if steps != 1:
            raise ValueError(f"a person is in one step of a counter over epochs, not in {steps}")
        return self._inside.cost

    @property
    def _inside(self) -> Factorisation:
        """Of the steps, or of the epochs, among which sums are running."""
        raise NotImplementedError


@dataclass(frozen=True)
class Epochs(_Cut):
    """Running sums that begin anew with every epoch: one factorisation of E steps after the other.

    >>> counter = Epochs(7, 3, "tree")
    >>> counter.cost, counter.rows(4), counter.placed(3, 5)
    (2, (Row(first=4, weights=(1,)),), 4)
    """

    @property
    def _inside(self) -> Factorisation:
        return continual(self.of, self.epoch)

    @property
    def openings(self) -> Openings:
        """When the answer is read that an epoch's sums are asked with."""
        return Openings(self.steps, self.epoch, self.of)

    @property
    def draws(self) -> int:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`."""
        full, rest = divmod(self.steps, self.epoch)
        return full * self._inside.draws + sum(len(self._inside.rows(t)) for t in range(1, rest + 1))

    def error(self, t: int) -> float:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`."""
        return self._inside.error(self._within(t)[1])

    def rows(self, t: int) -> tuple[Row, ...]:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`."""
        check_step(t, self.steps)
        before, inside = self._within(t)
        return tuple(Row(r.first + before, r.weights) for r in self._inside.rows(inside))

    def weights(self, t: int) -> Array:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`: nothing of an earlier epoch."""
        before, inside = self._within(t)
        return np.concatenate([np.zeros(before // self.epoch * self._inside.draws), self._inside.weights(inside)])

    def total(self, t: int, noisy: Callable[[int], Integers]) -> Array:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`: of the steps of the epoch of ``t``."""
        before, inside = self._within(t)
        return self._inside.total(inside, lambda k: noisy(before + k))

    def placed(self, since: int, now: int) -> int:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`: on the first step of an epoch that began since.

        So the answer that stands for the epoch is of the people who came in by then.
        """
        opened = self._within(now)[0] + 1
        return opened if opened >= since else now

    def _within(self, t: int) -> tuple[int, int]:
        """Steps before the epoch of ``t``, and which of its steps ``t`` is, from 1."""
        before = (t - 1) // self.epoch * self.epoch
        return before, t - before


@dataclass(frozen=True)
class Openings(_Cut):
    """Running sums of all steps, which are read on the first step of every epoch and stand until the next.

    What is summed between two readings is one step of the factorisation inside, so that there are as many as epochs.

    >>> counter = Openings(7, 3, "tree")
    >>> counter.rows(2), counter.rows(4)
    ((), (Row(first=2, weights=(1, 1, 1)), Row(first=1, weights=(1, 1, 1, 1))))
    """

    @property
    def _inside(self) -> Factorisation:
        return continual(self.of, -(-self.steps // self.epoch))

    @property
    def draws(self) -> int:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`."""
        return self._inside.draws

    def error(self, t: int) -> float:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`: of the sum that stands at ``t``."""
        return self._inside.error(self._read(t))

    def rows(self, t: int) -> tuple[Row, ...]:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`: none but on the first step of an epoch."""
        check_step(t, self.steps)
        if (t - 1) % self.epoch:
            return ()
        found: list[Row] = []
        for row in self._inside.rows(self._read(t)):
            each = [w for i, w in enumerate(row.weights) for _ in range(self.epoch if row.first + i > 1 else 1)]
            first = 1 if row.first == 1 else self._at(row.first - 1) + 1
            found.append(Row(first, tuple(each)))
        return tuple(found)

    def weights(self, t: int) -> Array:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`: of the sum that stands at ``t``."""
        return self._inside.weights(self._read(t))

    def total(self, t: int, noisy: Callable[[int], Integers]) -> Array:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`: the sum that stands at ``t``."""
        return self._inside.total(self._read(t), lambda k: noisy(self._at(k)))

    def _read(self, t: int) -> int:
        """How many times it was read by ``t``."""
        return (t - 1) // self.epoch + 1

    def _at(self, k: int) -> int:
        """The step of the k-th reading."""
        return (k - 1) * self.epoch + 1


def counter_of(kind: Kind, steps: int, epoch: int | None, *, opens: bool = False) -> Factorisation:
    """The factorisation that recipes and ledgers name.

    Parameters
    ----------
    kind, steps
        See :func:`~pipeline.privacy.continual.continual`.
    epoch
        Steps of an epoch; None: one running sum over all steps.
    opens
        Of epochs, whether it is what opens them.
    """
    if epoch is None:
        return continual(kind, steps)
    found = Epochs(steps, epoch, kind)
    return found.openings if opens else found


@dataclass(frozen=True)
class SideBySide:
    """Counters over the same steps, each of entries of its own in one vector.

    Parameters
    ----------
    counters
        In the order of their entries.
    """

    counters: Sequence[Factorisation]

    def rows(self, t: int) -> tuple[Row, ...]:
        """Of all counters, one after the other."""
        return tuple(row for counter in self.counters for row in counter.rows(t))

    def placed(self, since: int, now: int) -> int:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`: of the last one, which draws at every step."""
        return self.counters[-1].placed(since, now)
