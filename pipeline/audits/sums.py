"""Audit targets of private sums: count tables at once or night by night, and the running sums of online agents.

Two people differ in the first step alone; the steps after it are empty.  What a step moves is a column of M where the
running sums are factored as A = W M (:mod:`pipeline.privacy.continual`), and the first column is the longest.
Whoever sees released rows reads M x + z itself.  Whoever sees the sums W (M x + z) after some of the steps divides them
by the triangular root of the noise's covariance W W^T: what is left has independent noise of one row's variance.

A claim covers all rows, more than the sums of a bottom-up tree show: the bound there stays below it by construction.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from pipeline.audits.attack import Array, AuditTarget, Side, silence
from pipeline.audits.laws import Gaussian
from pipeline.audits.sampling import WORLD, Pooled, Silence, fresh
from pipeline.declaration.card import CardError
from pipeline.privacy.continual import (
    Factorisation,
    LazyTree,
    Mechanism,
    NoiseBlocks,
    Once,
    RunningSum,
    Time,
    continual,
)
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import LARGEST_SCALE, Integers, NoiseSource
from pipeline.statistics.ask import Ask
from pipeline.statistics.interactive_counts import CountMechanism
from pipeline.statistics.lq import LqMessage, ResidualMessage, paper_004
from pipeline.statistics.mixture import MixtureMessage, paper_000, paper_001
from pipeline.statistics.online_sum import cost_of, entry_variances, tight

Kind = Mechanism | Literal["once"]
Build = Callable[[Time, NoiseBlocks], RunningSum]
# a counter of 10 000 steps works the same and takes a week
LEAVES = 8
_READINGS = 3
_WORDS: dict[CountMechanism | None, str] = {
    "plain": "plain tree",
    "bottom-up": "bottom-up tree",
    "square-root": "square-root counter",
    "fresh": "one release of a batch",
    None: "local messages",
}


@dataclass(frozen=True)
class Watch:
    """When an attacker looks at a running sum, and what is read off it."""

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
        """The sums with their noise made independent, of one row's variance."""
        from scipy.linalg import solve_triangular

        weights = np.zeros((len(sums), self.time.draws))
        for row, t in zip(weights, self.ends, strict=True):
            found = self.time.weights(t)
            row[: len(found)] = found
        flat = np.array(sums).reshape(len(sums), -1)
        read = solve_triangular(np.linalg.cholesky(weights @ weights.T), flat, lower=True)
        return list(read.reshape(len(sums), *sums[0].shape))


def look(show: Callable[[], Array]) -> Array:
    """What is shown, read several times: what is drawn anew on every reading averages out."""
    return np.mean([show() for _ in range(_READINGS)], axis=0)


@dataclass(frozen=True)
class Sums:
    """A running sum itself, on the integers in which two first steps differ, many copies at once.

    ``pair``: the two first steps ``(cells,)``.
    ``variances`` ``(cells,)``: of the noise of a row.
    """

    watch: Watch
    pair: tuple[Integers, Integers]
    variances: Array
    time: Time
    build: Build = RunningSum

    @property
    def moved(self) -> NDArray[np.bool_]:
        """``(cells,)`` where the two steps differ."""
        return self.pair[0] != self.pair[1]

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        # noise so wide is drawn in simulations only, by seeds
        variances, ends = self.variances[self.moved], self.watch.ends
        n, wide = len(variances), float(variances.max()) > LARGEST_SCALE**2 and not isinstance(noise, Silence)
        source = Pooled(fresh()) if wide else noise
        blocks = NoiseBlocks((copies,) * n, tuple(int(v) for v in variances), source, WORLD)
        counter, first = self.build(self.time, blocks), np.repeat(self.pair[side][self.moved], copies)
        sums: list[Array] = []
        steps = range(1, self.watch.time.steps + 1) if self.time.steps == self.watch.time.steps else ends
        for t in steps:
            counter.add(first if t == 1 else np.zeros_like(first))
            if t in ends:
                sums.append(look(counter.total).reshape(n, copies).T)
        return self.watch.read_off(sums)


def sums_target(
    layout: MixtureMessage | LqMessage | ResidualMessage,
    ask: Ask,
    how: CountMechanism | None,
    *,
    leaves: int = LEAVES,
) -> AuditTarget:
    """The worst pair of first episodes against the sums of a linear mixture agent, or of an agent of linear plants.

    The tree of Private-OFU-RL is the shipped one that draws what is read.

    ``how``: counter of joint privacy (``fresh``: each batch is one release); None: every user sends a message.
    Raises CardError if no noise is asked for.
    """
    kind = "once" if how in (None, "fresh") else how
    watch = Watch(kind, leaves)
    time: Time = watch.time
    words = f"discrete gaussian, {ask.calibration}"
    if isinstance(layout, LqMessage):
        words = f"lq sums, {_WORDS[how]}, {words}"
        if kind != "once":
            time = LazyTree(watch.ends, "plain" if kind == "plain" else "bottom-up")
        printed = partial(paper_004, layout, ask, watch.time.steps)
    elif isinstance(layout, ResidualMessage):
        words, printed = f"{layout.of}, {_WORDS[how]}, {words}", partial(tight, layout, ask, time.cost)
    else:
        words = f"{_WORDS[how]}, {layout.of}, {words}" + (", unit rows" if layout.unit else "")
        printed = partial(paper_001, layout, ask) if how is None else partial(paper_000, layout, ask, watch.steps)
    noise = tight(layout, ask, time.cost) if ask.calibration == "tight" else printed()
    claimed = cost_of(layout, noise, time.cost)
    if noise is None or claimed is None:
        raise CardError("an audit needs noise: epsilon is infinite")
    entries, shipped = entry_variances(layout, noise), cast("Callable[[object], Integers]", layout.integers)
    one, *others = (shipped(person) for person in layout.extremes())
    path = Sums(watch, (one, max(others, key=lambda x: float(((one - x) ** 2 / entries).sum()))), entries, time)
    return AuditTarget(
        mechanism=words,
        trust=Trust.LOCAL if how is None else Trust.JOINT,
        path=path,
        means=silence(path),
        law=Gaussian([entries[path.moved]] * len(watch.ends)),
        claimed_rho=claimed,
    )
