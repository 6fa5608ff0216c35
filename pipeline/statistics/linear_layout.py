"""Layouts of linear regressions: the Gram matrix and targets of one call, and the one-shot tables of all steps.

A step's Gram matrix and targets come from one row a person and episode, so they are bounded together
(:mod:`~pipeline.statistics.gram_moves`): a step costs no more than the sum of its tables.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NotRequired, TypedDict

import numpy as np

from pipeline.mdp.features import FeatureMap
from pipeline.statistics.gram_moves import Reach, largest, table_moves
from pipeline.statistics.layout import Rates, Relation, Sensitivity, Table
from pipeline.statistics.linear_plan import Half, LinearPlan

# feature vectors that an audit tries: the longest, and those most opposed to them
_FEATURES = 24


@dataclass(frozen=True)
class Row:
    """A made-up person's row of one step: state, action, reward and successor; END comes after the last state.

    Parameters
    ----------
    state, action
        Indices of the row's cell.
    reward
        In units of the declared range's width.
    successor
        Index of the next state.
    """

    state: int
    action: int
    reward: float
    successor: int


@dataclass(frozen=True)
class Target:
    """Range of one regression's integer targets after centring: ``|y| <= bound``, or ``0 <= y <= bound``."""

    bound: int
    signed: bool


class _LinearLayout:
    """What the layouts of one plan have in common; see :class:`~pipeline.statistics.layout.Layout`."""

    plan: LinearPlan
    dynamics = "per_step"

    @property
    def dataset(self) -> str:
        """Name of the lineage."""
        return self.plan.domain.name

    @property
    def data_kind(self) -> str:
        """``real`` or ``synthetic``, as registered."""
        return self.plan.domain.kind

    def joint(self) -> dict[str, object]:
        """See :func:`joint_facts`."""
        return joint_facts(self.plan)

    def extremes(self) -> Iterator[Row | None]:
        """Nobody (None), and those of :func:`extreme_rows`: the worst pair may be somebody against no row at all."""
        yield None
        yield from extreme_rows(self.plan)

    def _table(self, name: str, shape: tuple[int, ...], moved: tuple[int, int], rule: str, *, gram: bool) -> Table:
        """A table with its largest squared moves, of a replacement and of somebody who comes or goes."""
        each = (Sensitivity(x, math.isqrt(x * math.prod(shape)) + 1, rule) for x in moved)
        return Table(name, shape, "lattice steps", *each, symmetric=gram)


@dataclass(frozen=True)
class CallLayout(_LinearLayout):
    """What one call of the interactive mechanism sums; see :class:`~pipeline.statistics.layout.Layout`.

    Parameters
    ----------
    plan
        What is declared.
    h
        Step, from 0.
    half
        D' asks for variances (squared targets, then targets), D for the regression.
    bound
        Largest centred or uncentred value, in lattice steps.
    """

    plan: LinearPlan
    h: int
    half: Half
    bound: int

    @property
    def targets(self) -> tuple[Target, ...]:
        """The D' call has targets V^2 and V, the D call has r + V."""
        if self.half == "D'":
            return Target(self.bound**2, signed=False), Target(self.bound, signed=self.plan.centred)
        return (Target(self.bound, signed=self.plan.centred),)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The Gram matrix, then the targets; each with the moves it would have alone."""
        plan, W, d = self.plan, self.plan.weight(self.half), self.plan.features.dimension
        rule = "{}, joint with the other sums of the step: the step costs no more than their sum"
        gram, *names = call_tables(self.h, self.half)

        def moved(which: int, square: int) -> tuple[int, int]:
            return square * plan.largest_moves[which], square * largest(plan.reach, which, "add_remove")

        words = rule.format("svec: half the variance off the diagonal")
        found = [self._table(gram, (d, d), moved(0, W**2), words, gram=True)]
        for name, t in zip(names, self.targets, strict=True):
            squares = moved(1 if t.signed else 2, (W * t.bound) ** 2)
            found.append(self._table(name, (d,), squares, rule.format("targets at their bound"), gram=False))
        return tuple(found)

    def moves(self, rates: Rates) -> tuple[Fraction, Fraction, Fraction]:
        """Weights of the moves of one row: Gram matrix, signed targets, unsigned ones.

        Parameters
        ----------
        rates
            See :class:`~pipeline.statistics.layout.Layout`; a table that is left out weighs nothing.
        """
        W, (gram, *names) = self.plan.weight(self.half), call_tables(self.h, self.half)
        found = {True: Fraction(0), False: Fraction(0)}
        for name, t in zip(names, self.targets, strict=True):
            found[t.signed] += rates.get(name, 0) * (W * t.bound) ** 2
        return rates.get(gram, Fraction(0)) * W**2, found[True], found[False]

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        """See :class:`~pipeline.statistics.layout.Layout`."""
        return self.plan.reach.cost(*self.moves(rates), relation)


@dataclass(frozen=True)
class OneShotLayout(_LinearLayout):
    """What the one-shot release sums; see :class:`~pipeline.statistics.layout.Layout`.

    Parameters
    ----------
    plan
        What is declared.
    """

    plan: LinearPlan

    @cached_property
    def reach(self) -> Reach:
        """Moves of one person at one step."""
        return table_moves(self.plan.features, *self.plan.one_shot_steps, self.plan.domain.episodes)

    @cached_property
    def _largest(self) -> list[tuple[int, int]]:
        """Largest squared moves of Gram and target over all steps: of a replacement, and of somebody who comes."""
        H = self.plan.domain.horizon
        return [(H * largest(self.reach, i), H * largest(self.reach, i, "add_remove")) for i in (0, 1)]

    @property
    def tables(self) -> tuple[Table, ...]:
        """Gram matrices ``(H, d, d)`` and tables ``(H, columns, d)``: the worst pair may meet at every step.

        There is a column a successor (of an observation: a feature of it), one for END where episodes end, and one for
        the reward.
        """
        H, d, k = self.plan.domain.horizon, self.plan.features.dimension, self.plan.successors
        shapes = {"gram": (H, d, d), "target": (H, k + self.plan.domain.can_end + 1, d)}
        rule = "every step at its worst pair, joint with the other table"
        each = zip(shapes.items(), self._largest, strict=True)
        return tuple(self._table(name, shape, m, rule, gram=name == "gram") for (name, shape), m in each)

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        """See :class:`~pipeline.statistics.layout.Layout`."""
        gram, target = (rates.get(name, Fraction(0)) for name in ("gram", "target"))
        return self.plan.domain.horizon * self.reach.cost(gram, target, Fraction(0), relation)


def call_tables(h: int, half: Half) -> tuple[str, ...]:
    """Names of what one call releases: the Gram matrix, then its targets.

    Parameters
    ----------
    h
        Step, from 0.
    half
        Whose rows are summed.
    """
    names = ("gram", "target_squared", "target") if half == "D'" else ("gram", "target")
    return tuple(f"{name}_{half}_{h}" for name in names)


def features_digest(features: FeatureMap) -> str:
    """Sha256 of the integers of a map, row by row, with their shape and bound."""
    head = f"{features.integers.shape} {features.square} {features.sample_of or ''}".encode()
    return hashlib.sha256(head + features.integers.astype("<i8").tobytes()).hexdigest()


class DeclaredFeatures(TypedDict):
    """The ``features`` of ``policy.json``: ``integers (S, A, d)``, and the exact square of their unit as text.

    ``sample_of``, where it is there, is the map of observations of which the integers are a public sample.
    """

    integers: list[list[list[int]]]
    square: int
    unit_squared: str
    sample_of: NotRequired[str]


def declared_map(told: DeclaredFeatures) -> FeatureMap:
    """The map that ``policy.json`` declares.

    Parameters
    ----------
    told
        Its ``features``.
    """
    integers = np.array(told["integers"], dtype=np.int64)
    return FeatureMap(integers, int(told["square"]), Fraction(told["unit_squared"]), told.get("sample_of"))


def joint_facts(plan: LinearPlan) -> dict[str, object]:
    """What the bound rests on besides the mechanisms: plain values for ``release.json`` and the ledger.

    Parameters
    ----------
    plan
        What is declared.
    """
    terms, f = plan.terms, plan.features
    facts: dict[str, object] = {
        "rule": "supremum over two people's rows of all tables of a step together",
        "variant": terms.variant,
        "split": terms.halves,
        "horizon": plan.domain.horizon,
        "episodes": plan.domain.episodes,
        "square": f.square,
        "weights": {"D": plan.weight("D"), "D'": plan.weight("D'")},
        "features_sha256": features_digest(f),
    }
    if terms.variant == "one_shot":
        tag, reward = plan.one_shot_steps
        facts |= {"tag": tag, "reward": reward}
    return facts


def extreme_rows(plan: LinearPlan) -> Iterator[Row]:
    """Rows of extreme features, rewards and successors: with the absent person, the worst pair of one step is there."""
    S, A, d = plan.features.integers.shape
    f = plan.features.integers.reshape(-1, d)
    order = np.argsort(-(f * f).sum(1), kind="stable")
    _, first = np.unique(f[order], axis=0, return_index=True)
    longest = order[np.sort(first)][: _FEATURES // 2]
    inner = f @ f[longest].T
    most = {*longest.tolist(), *inner.argmin(0).tolist(), *np.abs(inner).argmin(0).tolist()}
    ends = {0, S - 1, S} if plan.domain.can_end else {0, S - 1}
    for cell, reward, s2 in itertools.product(sorted(most), plan.domain.bounds, ends):
        yield Row(cell // A, cell % A, reward, s2)
