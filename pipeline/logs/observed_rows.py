"""Evaluation of a linear policy on observations by held-out people: moments of their features, and their scores.

A person's contribution is computed from that person's rows alone, to the last bit.  Steps that the log cuts off count
as 0, in scores of the policy and in people's own returns alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from pipeline.arrays import Array, Bools, Integers
from pipeline.declaration.card import Card
from pipeline.logs.aggregate import needed, successor
from pipeline.logs.regression_sums import list_matrix
from pipeline.logs.score_sums import PeopleSums, ScoreSums
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Resources, Sums, sum_snapshot
from pipeline.mdp.features import ObservedMap
from pipeline.mdp.linear_policy import PRACTICE, Directions, LinearPolicy
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.observed_layout import STEPS, ObservedLayout, Rows
from pipeline.statistics.scores import Clips

# numbers of all actions' features that are in memory at once
_NUMBERS = 1 << 22


@dataclass(frozen=True)
class Asked:
    """The policy to evaluate, and directions in which the values of its learner are checked.

    ``values`` ``(H, d)``, ``offset`` ``(H,)``: Q = phi.values + offset, in ranges of a reward.
    """

    features: ObservedMap
    policy: LinearPolicy = field(repr=False)
    directions: Directions = field(repr=False)
    values: Array = field(repr=False)
    offset: Array = field(repr=False)


@dataclass(frozen=True)
class _People:
    """Rows of whole people, N of them; features in lattice steps.

    ``onto``: index of the next row of the same episode; -1: none.
    ``phi``, ``wanted`` ``(N, d)``: features of the logged action, and of the policy's action there.
    ``reward``: in ranges of a reward.
    """

    user: Integers
    begins: Bools
    step: Integers
    onto: Integers
    phi: Array
    wanted: Array
    reward: Array
    aside: Array

    def after(self, x: Array) -> Array:
        """Entries of ``x`` at the next row of the episode; 0 if there is none."""
        return np.where((self.onto >= 0)[(...,) + (None,) * (x.ndim - 1)], x[self.onto], 0.0)


def _read(card: Card, asked: Asked, rows: pl.DataFrame) -> Iterator[_People]:
    """Yield a few whole people at a time.
    ``rows``: canonical rows of whole people, sorted by person, episode and step; at least one.
    """
    user = rows["user_id"].rle_id().to_numpy().astype(np.int64)
    each = max(1, _NUMBERS // (len(asked.features.actions) * asked.features.dimension))
    begins = np.flatnonzero(np.append(True, np.diff(user) != 0))
    cuts = [0]
    for at in begins[1:].tolist():
        if at - cuts[-1] >= each:
            cuts.append(at)
    for low, high in zip(cuts, [*cuts[1:], len(rows)], strict=True):
        yield _people(card, asked, rows[low:high])


def _people(card: Card, asked: Asked, rows: pl.DataFrame) -> _People:
    (low, high), table, f = card.reward.range, card.reward.table, asked.features
    user, episode = (rows.select(pl.struct(c).rle_id().alias("i"))["i"].to_numpy() for c in (_USER, _EPISODE))
    step, state, action = (rows[c].to_numpy().astype(np.int64) for c in ("step", "state", "action"))
    ended = rows.select(successor(card).alias("s"))["s"].fill_null(-1).to_numpy() >= card.domain.states.first_terminal
    x = list_matrix(rows["observation"].to_arrow(), f.size)
    chosen = np.zeros(len(rows), dtype=np.int64)
    for h in np.unique(step).tolist():
        here = step == h
        chosen[here] = asked.policy.choose(h, f.of_actions(x[here], state[here]))
    wanted = np.where(chosen == PRACTICE, action, chosen)
    if table is None:
        reward = np.clip(np.nan_to_num(rows["reward"].to_numpy(), nan=low), low, high)
    else:
        declared = np.array(table, dtype=np.float64)
        reward = declared[state, action] if declared.ndim == 2 else declared[step, state, action]
    at, begins = np.arange(len(rows)), np.append(True, np.diff(episode) != 0)
    # behind the last row that did not follow, of the same episode
    since = np.maximum.accumulate(np.where(wanted != action, at + 1, np.where(begins, at, 0)))
    goes_on = np.append((np.diff(episode) == 0) & (np.diff(step) == 1), False) & ~ended
    return _People(
        user.astype(np.int64),
        begins,
        step,
        np.where(goes_on, at + 1, -1),
        f.of_taken(x, state, action),
        f.of_taken(x, state, wanted),
        reward / (high - low),
        asked.directions.of(f.inside(x), state, action, at + 1 - since),
    )


_USER, _EPISODE = ["user_id"], ["user_id", "episode_id"]


def _at(values: Array, step: Integers, phi: Array) -> Array:
    """Features ``(n, d)`` in lattice steps times coefficients ``(H, d)`` or ``(H, d, K)``: ``(n,)`` or ``(n, K)``."""
    found = np.zeros((len(step), *values.shape[2:]))
    for h in np.unique(step).tolist():
        here = step == h
        found[here] = np.einsum("nd,d...->n...", phi[here] / STEPS, values[h])
    return found


@dataclass(frozen=True)
class MomentSums(PeopleSums):
    """Sums of an :class:`ObservedLayout`'s tables; ``off``: bound of temporal differences, in ranges of a reward."""

    layout: ObservedLayout = field(repr=False)
    asked: Asked = field(repr=False)
    off: float

    @property
    def people_of(self) -> Card:
        """The card."""
        return self.layout.card

    @property
    def columns(self) -> list[str]:
        """Also what was observed."""
        return [*needed(self.people_of), "observation"]

    def zero(self) -> dict[str, Integers]:
        return {t.name: np.zeros(t.shape, dtype=np.int64) for t in self.layout.tables}

    def add_rows(self, sums: Sums, rows: pl.DataFrame) -> None:
        for told in self.read(rows):
            for name, table in self.layout.add_up(told).items():
                sums[name][:] += table

    def read(self, rows: pl.DataFrame) -> Iterator[Rows]:
        """Yield the contributions of a few people at a time."""
        if rows.is_empty():
            return
        for p in _read(self.people_of, self.asked, rows):
            worth = [_at(self.asked.values, p.step, phi) + self.asked.offset[p.step] for phi in (p.phi, p.wanted)]
            off = p.reward + p.after(worth[1]) - worth[0]
            yield Rows(p.step, p.phi, p.after(p.wanted), off / self.off, p.aside, p.wanted[p.begins])


@dataclass(frozen=True)
class ObservedScores:
    """Psi, own return, gain, and one check for each direction that the features leave out.

    ``asked``: its values are those of the policy.
    ``values``: least and largest value of the policy, in ranges of a reward.
    ``weights`` ``(H, d)``: coefficients of a row's weight, which is cut at ``cut``.
    ``spanned`` ``(H, d, K)``: coefficients of the projection of each direction on the features.
    ``clip``: of the checks, in units of reward.
    """

    asked: Asked = field(repr=False)
    weights: Array = field(repr=False)
    spanned: Array = field(repr=False)
    values: tuple[float, float]
    cut: tuple[float, float]
    clips: Clips
    clip: float
    changes: bool

    def of(self, card: Card, rows: pl.DataFrame) -> Array:
        return np.concatenate([self._of(p, card) for p in _read(card, self.asked, rows)])

    def _of(self, p: _People, card: Card) -> Array:
        low, high = card.reward.range
        worth, wanted = (
            np.clip(_at(self.asked.values, p.step, phi) + self.asked.offset[p.step], *self.values)
            for phi in (p.phi, p.wanted)
        )
        off = p.reward + p.after(wanted) - worth
        weight = np.clip(_at(self.weights, p.step, p.phi), *self.cut)
        aside = (p.aside - _at(self.spanned, p.step, p.phi)) * off[:, None]
        told = [np.where(p.begins, wanted, 0.0) + weight * off, p.reward, *aside.T]
        people = int(p.user[-1]) + 1
        episodes = np.bincount(p.user[p.begins], minlength=people)
        psi, own, *checks = (np.bincount(p.user, weights=x, minlength=people) / episodes * (high - low) for x in told)
        none = np.zeros(people)
        scores = self.clips.scaled(psi if self.changes else own, own, none, none)[:, :3]
        return np.column_stack([scores, *(x / self.clip for x in checks)])


@dataclass(frozen=True)
class ObservedScoreSums(ScoreSums):
    """Sums of scores of people with observations."""

    @property
    def columns(self) -> list[str]:
        """Also what was observed."""
        return [*super().columns, "observation"]


def sum_moments(snapshot: Snapshot, work: MomentSums, resources: Resources = HERE) -> ExactSums:
    """Sum the moments of a snapshot exactly; secret, a private sum's input."""
    return exact(work.layout, sum_snapshot(work, snapshot, resources), snapshot.kind)


def sum_observed(
    snapshot: Snapshot, card: Card, layout: MomentLayout, scores: ObservedScores, resources: Resources = HERE
) -> ExactSums:
    """Score the people of a snapshot and add up; exact and secret as well."""
    return exact(layout, sum_snapshot(ObservedScoreSums(card, layout, scores), snapshot, resources), snapshot.kind)


def exact(layout: ObservedLayout | MomentLayout, sums: Mapping[str, Integers], kind: str) -> ExactSums:
    """Wrap sums as tables of a layout."""
    return ExactSums(layout.dataset, kind, layout.dynamics, sums)
