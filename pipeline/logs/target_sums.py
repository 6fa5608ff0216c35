"""Sums of targets by key, and counts of rows: canonical rows -> exact int64 sums, each person bounded.

:mod:`pipeline.statistics.target_plan` bounds these sums; the enumeration test runs this code.  The rows of a person
that count depend on their order (episode, step) and their keys, never on what follows them: a cap that depended on the
outcome, or on the action in a table by state, would choose among futures.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from pipeline.arrays import Array, Bools, Integers
from pipeline.declaration.card import Card, task_of
from pipeline.logs import aggregate, score_sums, store
from pipeline.logs.summing import HERE, Resources, Sums, sum_snapshot
from pipeline.statistics.count_layout import Person, reward_lattice
from pipeline.statistics.layout import ExactSums, Tables, as_integers
from pipeline.statistics.target_plan import Stage, TargetPlan, TargetQuestion

# lattice steps of the reward range on which declared rewards are summed
DECLARED_STEPS = 1 << 20


def sum_targets(
    snapshot: store.Snapshot, plan: TargetPlan, question: TargetQuestion | None, resources: Resources = HERE
) -> ExactSums:
    """Sum one stage of a snapshot, a batch of whole people in memory at a time.

    ``plan``: card, lattices and caps.
    ``question``: None: the first stage.
    Returns counts and sums of targets by key, and the kind of people; secret, a private sum's input.
    """
    work = TargetSums(plan, question)
    return work.exact(sum_snapshot(work, snapshot, resources), snapshot.kind)


def add_targets(plan: TargetPlan, question: TargetQuestion | None, people: Iterable[pl.DataFrame]) -> ExactSums:
    """Sum one stage of synthetic people."""
    work = TargetSums(plan, question)
    return work.exact(work.sum_people(people), "synthetic")


def person_sums(plan: TargetPlan, question: TargetQuestion | None, person: Person) -> Tables:
    """Contribution of a person to the tables of a stage."""
    return add_targets(plan, question, [aggregate.person_rows(person, plan.card)]).tables


@dataclass(frozen=True)
class TargetSums(score_sums.PeopleSums):
    """Counts and targets of one stage.

    ``plan``: card, lattices and caps.
    ``question``: None: the first stage.
    """

    plan: TargetPlan = field(repr=False)
    question: TargetQuestion | None = field(repr=False)

    @property
    def stage(self) -> Stage:
        """Stage of the question: values, gains of groups of states, or gains of states."""
        return "v" if self.question is None else "q" if self.question.group is None else "c"

    @property
    def people_of(self) -> Card:
        """The card."""
        return self.plan.card

    def zero(self) -> dict[str, Integers]:
        """Zero tables ``count`` and ``sum`` by key."""
        size = int(np.prod(self.plan.layout(self.stage).shape))
        return {name: np.zeros(size, dtype=np.int64) for name in ("count", "sum")}

    def add_rows(self, sums: Sums, rows: pl.DataFrame) -> None:
        """Add the rows of whole users, sorted by user, episode and step."""
        if rows.is_empty():
            return
        card = self.plan.card
        rows = rows.with_columns(aggregate.successor(card).alias("next_state"))
        user = rows["user_id"].rle_id().to_numpy().astype(np.int64)
        step, state, action = (rows[c].to_numpy().astype(np.int64) for c in ("step", "state", "action"))
        L, A = len(card.domain.live_states), len(card.domain.action_labels)  # noqa: N806
        row = (step if card.domain.dynamics == "per_step" else 0) * L + state
        key = row
        if self.question is not None:
            key = (row if self.question.group is None else self.question.group[state]) * A + action
        counted = first_rows(user, key, self.plan.rows, self.plan.cap)
        onto = rows["next_state"].fill_null(-1).to_numpy().astype(np.int64)
        rewards, unit = lattice_rewards(rows, card, step, state, action, onto)
        if self.question is None:
            z = self._returns(rows, rewards, unit, step)
        else:
            counted &= _has_target(card, step, onto)
            z = self._differences(
                self.question, card.reward.range[0] + unit * rewards.astype(np.float64), row, step, np.maximum(onto, 0)
            )
        cells = len(sums["count"])
        sums["count"][:] += np.bincount(key[counted], minlength=cells)
        # exact in float64: no sum of so many small integers reaches 2^53
        sums["sum"][:] += np.bincount(key[counted], weights=z[counted], minlength=cells).astype(np.int64)

    def _returns(self, rows: pl.DataFrame, rewards: Integers, unit: float, step: Integers) -> Integers:
        """Return from each row on, on the lattice -L, -L + 2 .. L of the declared range of returns."""
        # integers, so that one person's rounding does not depend on other people's rows
        episode = rows.select(pl.struct("user_id", "episode_id").rle_id().alias("e"))["e"].to_numpy()
        last = np.flatnonzero(np.append(np.diff(episode) != 0, True))
        end = last[np.searchsorted(last, np.arange(len(rewards)))]
        running = np.append(0, np.cumsum(rewards))
        low = self.plan.card.reward.range[0]
        total = (running[end + 1] - running[:-1]) * unit + (end + 1 - np.arange(len(rewards))) * low
        ends = np.array(self.plan.returns)[step if len(self.plan.returns) > 1 else np.zeros_like(step)]
        steps = self.plan.layout("v").steps
        share = np.clip((total - ends[:, 0]) / (ends[:, 1] - ends[:, 0]), 0, 1)
        return 2 * as_integers(np.rint(steps * share), 0, steps) - steps

    def _differences(
        self, question: TargetQuestion, rewards: Array, row: Integers, step: Integers, onto: Integers
    ) -> Integers:
        """R + V(s') - V(s), cut to the window, on the lattice -L .. L; a person's own row alone decides."""
        values, (G, L) = self.plan.rewards(question.values), question.values.shape  # noqa: N806
        # ends, and states behind the horizon, have value 0
        following = np.zeros((G + (G > 1), len(self.plan.card.domain.state_labels)))
        following[:G, :L] = values
        td = rewards + following[step + 1 if G > 1 else 0, onto] - values.reshape(-1)[row]
        steps, width = self.plan.layout("q").steps, self.plan.width(question)
        return as_integers(np.rint(steps * np.clip(td / width, -1, 1)), -steps, steps)

    def exact(self, sums: Sums, kind: str) -> ExactSums:
        """The sums as tables of the stage's layout."""
        layout = self.plan.layout(self.stage)
        tables = {f"{self.stage}_{name}": sums[name].reshape(layout.shape) for name in ("count", "sum")}
        return ExactSums(layout.dataset, kind, layout.dynamics, tables)


def first_rows(user: Integers, key: Integers, rows: int, cap: int) -> Bools:
    """Whether each row is among the person's first ``rows``, and among the first ``cap`` of those with its key.

    ``user``, ``key`` ``(n,)``: from 0: rows of a person stand together, in the order of the log.
    """
    index, starts = np.arange(len(user)), np.diff(user, prepend=-1) != 0
    person = np.cumsum(starts)
    early = index - np.flatnonzero(starts)[person - 1] < rows
    # a person's rows of one key, together and still in order
    both = person * (key.max(initial=0) + 1) + key
    order = np.argsort(both, kind="stable")
    fresh = np.diff(both[order], prepend=-1) != 0
    rank = np.empty(len(user), dtype=np.int64)
    rank[order] = index - np.flatnonzero(fresh)[np.cumsum(fresh) - 1]
    return early & (rank < cap)


def lattice_rewards(
    rows: pl.DataFrame, card: Card, step: Integers, state: Integers, action: Integers, onto: Integers
) -> tuple[Integers, float]:
    """Rewards above the least, in steps of a lattice, and the lattice's unit."""
    task, (low, high) = task_of(card), card.reward.range
    if task.rewards is None:
        return reward_lattice(card).index(rows["reward"].to_numpy()), card.reward.unit
    declared = task.rewards if task.rewards.ndim == 3 else task.rewards[None]
    paid = declared[step if len(declared) > 1 else 0, state, action]
    if task.entering is not None:
        paid = paid + np.where(onto < 0, 0.0, task.entering[onto])
    unit = (high - low) / DECLARED_STEPS
    return as_integers(np.rint((paid - low) / unit), 0, DECLARED_STEPS), unit


def _has_target(card: Card, step: Integers, onto: Integers) -> Bools:
    """Mark of rows whose target is known: they have a successor, or need none."""
    if card.domain.dynamics == "per_step" and card.reward.on_entering is None:
        return (onto >= 0) | (step == card.domain.horizon - 1)
    return onto >= 0
