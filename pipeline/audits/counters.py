"""Attack on running sums: two people who differ in the first step alone; the steps after it are empty.

What a step moves is a column of M where the running sums are factored as A = W M
(:mod:`pipeline.privacy.factorisation`), and the first column is the longest.  Whoever sees released rows reads M x + z
itself.  Whoever sees the sums W (M x + z) after some of the steps divides them by the triangular root of the noise's
covariance W W^T: what is left has independent noise of one row's variance.

A claim covers all rows, more than the sums of a bottom-up tree show: the bound there stays below it by construction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from pipeline.audits.attack import Array, Attack, Side, Trust, silence
from pipeline.audits.laws import Gaussian
from pipeline.audits.lq import ANGLES, stretched
from pipeline.audits.sampling import WORLD, Pooled, Silence, fresh
from pipeline.declaration.card import CardError
from pipeline.privacy.continual import Mechanism, continual
from pipeline.privacy.factorisation import Factorisation, Once, Time
from pipeline.privacy.noise import LARGEST_SCALE, Integers, NoiseBlocks, NoiseSource
from pipeline.privacy.running import LazyTree, RunningSum
from pipeline.statistics import lq_calibration, mixture_calibration
from pipeline.statistics.lq_calibration import LqVariances, paper_004
from pipeline.statistics.lq_message import LqMessage
from pipeline.statistics.mixture_calibration import Ask, Variances, paper_000, paper_001
from pipeline.statistics.mixture_message import Message, Visits

Kind = Mechanism | Literal["once"]
Pair = tuple[Integers, Integers]
Build = Callable[[Time, NoiseBlocks], RunningSum]
Person = TypeVar("Person")
# a counter of 10 000 steps works the same and takes a week
LEAVES = 8
_READINGS = 3
_WORDS: dict[Kind, str] = {
    "plain": "plain tree",
    "bottom-up": "bottom-up tree",
    "square-root": "square-root counter",
    "once": "local messages",
}


@dataclass(frozen=True)
class Watch:
    """When an attacker looks at a running sum, and what is read off it.

    Parameters
    ----------
    kind
        The counter; ``once``: a message, or one batch.
    steps
        Declared.
    """

    kind: Kind
    steps: int = LEAVES

    @property
    def time(self) -> Factorisation:
        """What is released, and when."""
        return Once(1) if self.kind == "once" else continual(self.kind, self.steps)

    @property
    def ends(self) -> tuple[int, ...]:
        """After which steps the sum is read: each, or those after which it is one node of a tree."""
        last = self.time.steps
        if self.kind == "square-root":
            return tuple(range(1, last + 1))
        return tuple(2**j for j in range(last.bit_length()))

    def read_off(self, sums: list[Array]) -> list[Array]:
        """The sums with their noise made independent, of one row's variance.

        Parameters
        ----------
        sums
            What was shown after each of :attr:`ends`, of any one shape.
        """
        weights = np.zeros((len(sums), self.time.draws))
        for row, t in zip(weights, self.ends, strict=True):
            found = self.time.weights(t)
            row[: len(found)] = found
        flat = np.array(sums).reshape(len(sums), -1)
        read = solve_triangular(np.linalg.cholesky(weights @ weights.T), flat, lower=True)
        return list(read.reshape(len(sums), *sums[0].shape))


def look(show: Callable[[], Array]) -> Array:
    """What is shown, read several times: what is drawn anew on every reading averages out.

    Parameters
    ----------
    show
        Reads a running sum.
    """
    return np.mean([show() for _ in range(_READINGS)], axis=0)


@dataclass(frozen=True)
class Sums:
    """A running sum itself, on the integers in which two first steps differ, many copies at once.

    Parameters
    ----------
    watch
        When it is read.
    pair
        The two first steps ``(n,)``.
    variances
        ``(n,)`` of the noise of a row.
    time
        What is built: with a step for each of the watch, or one for each reading.
    build
        What adds up.
    """

    watch: Watch
    pair: Pair
    variances: Array
    time: Time
    build: Build = RunningSum

    def on(self, where: NDArray[np.bool_]) -> Sums:
        """The same on some of the integers."""
        return replace(self, pair=(self.pair[0][where], self.pair[1][where]), variances=self.variances[where])

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        """See :class:`~pipeline.audits.attack.ReleasePath`."""
        # noise so wide is drawn in simulations only, by seeds
        wide = float(self.variances.max()) > LARGEST_SCALE**2 and not isinstance(noise, Silence)
        n, ends = len(self.variances), self.watch.ends
        source = Pooled(fresh()) if wide else noise
        blocks = NoiseBlocks((copies,) * n, tuple(int(v) for v in self.variances), source, WORLD)
        counter, first = self.build(self.time, blocks), np.repeat(self.pair[side], copies)
        sums: list[Array] = []
        steps = range(1, self.watch.time.steps + 1) if self.time.steps == self.watch.time.steps else ends
        for t in steps:
            counter.add(first if t == 1 else np.zeros_like(first))
            if t in ends:
                sums.append(look(counter.total).reshape(n, copies).T)
        return self.watch.read_off(sums)


def mixture_attack(
    message: Message,
    ask: Ask,
    kind: Kind,
    *,
    leaves: int = LEAVES,
    variances: Variances | None = None,
    build: Build = RunningSum,
    integers: Callable[[Visits], Integers] | None = None,
) -> Attack:
    """The worst pair of first episodes of a linear mixture agent against its counter, or against one local message.

    Parameters
    ----------
    message, ask, kind
        What an episode adds, at which budget, in which counter; ``once``: every user sends a message.
    leaves
        Steps of the counter.
    variances, build, integers
        What really calibrates, counts, and turns an episode into integers, where a test breaks one of them.

    Raises
    ------
    CardError
        If no noise is asked for.
    """
    watch, pair = Watch(kind, leaves), message.worst_pair()
    time = watch.time
    if ask.calibration == "tight":
        noise = mixture_calibration.tight(message, ask, time.cost)
    else:
        noise = paper_001(message, ask) if kind == "once" else paper_000(message, ask, leaves)
    words = [_WORDS[kind], message.of, "discrete gaussian", ask.calibration, *(["unit rows"] if message.unit else [])]
    return _attack(
        ", ".join(words),
        "local" if kind == "once" else "joint",
        noise.rho(message, time.cost),
        Sums(watch, _each(message.integers, pair), noise.entries(message), time),
        Sums(watch, _each(integers or message.integers, pair), (variances or noise).entries(message), time, build),
    )


def lq_sums_attack(
    message: LqMessage,
    ask: Ask,
    counter: Literal["tree", "epochs"],
    *,
    leaves: int = LEAVES,
    variances: LqVariances | None = None,
    build: Build = RunningSum,
    sums: Callable[[Array, Array], Integers] | None = None,
) -> Attack:
    """The worst angle of a family of pairs of people against Private-OFU-RL's sums (paper 004).

    The tree is the shipped one that draws what is read; the attacker reads it after 1, 2, 4, ... people.

    Parameters
    ----------
    message, ask
        What an episode adds, at which budget.
    counter
        A ``tree`` of ``leaves`` people, or one release of a batch (``epochs``).
    variances, build, sums
        What really calibrates, counts, and turns an episode into integers, where a test breaks one of them.

    Raises
    ------
    CardError
        If no noise is asked for.
    """
    paper = ask.calibration == "paper"
    tree = "plain" if paper else "bottom-up"
    watch = Watch("once" if counter == "epochs" else tree, leaves)
    time: Time = watch.time if counter == "epochs" else LazyTree(watch.ends, tree)
    noise = paper_004(message, ask, watch.time.steps) if paper else lq_calibration.tight(message, ask, time.cost)
    pair = _lq_pair(message, noise)

    def path(shipped: Callable[[Array, Array], Integers], of: LqVariances, build: Build) -> Sums:
        return Sums(watch, _each(lambda person: shipped(*person), pair), of.entries(message), time, build)

    words = "one release of a batch" if counter == "epochs" else f"{tree} tree"
    return _attack(
        f"lq sums, {words}, discrete gaussian, {ask.calibration}",
        "joint",
        noise.rho(message, time.cost),
        path(message.sums, noise, RunningSum),
        path(sums or message.sums, variances or noise, build),
    )


def _attack(mechanism: str, trust: Trust, claimed: Fraction | None, honest: Sums, shipped: Sums) -> Attack:
    if claimed is None:
        raise CardError("an audit needs noise: epsilon is infinite")
    where = shipped.pair[0] != shipped.pair[1]
    model = honest.on(where)
    law = Gaussian([model.variances] * len(model.watch.ends))
    return Attack(mechanism, trust, shipped.on(where), silence(model), law, claimed)


def _each(integers: Callable[[Person], Integers], pair: tuple[Person, Person]) -> Pair:
    return integers(pair[0]), integers(pair[1])


def _lq_pair(message: LqMessage, noise: LqVariances) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """One person stands still, the other flips its sign at every step, turned by the two angles that show most."""
    sizes, bounds = (message.state, message.control), (1.0, message.gamma)

    def person(turn: tuple[float, float], ratio: float) -> tuple[Array, Array]:
        states, controls = stretched(message.horizon, sizes, bounds, turn, ratio)
        return states[None], controls[None]

    still, entries = person((0.0, 0.0), 1.0), noise.entries(message)
    base = message.sums(*still)
    turns = itertools.product(np.linspace(0, np.pi, ANGLES), repeat=2)
    return still, max(
        (person(turn, -1.0) for turn in turns), key=lambda p: float(((base - message.sums(*p)) ** 2 / entries).sum())
    )
