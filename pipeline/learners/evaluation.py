"""How a policy is measured on people who did not choose it: what a learner says of its plan, if it can.

:func:`clip_diagnostics` says how far a verdict rests on where the scores of people were cut: from what was released
anyway, so free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, runtime_checkable

from pipeline.audits.attack import AuditTarget
from pipeline.declaration.card import AnyCard, CardError
from pipeline.evaluation.intervals import moments
from pipeline.evaluation.measured import Diagnostic, Evaluated
from pipeline.learners.learner import Learnt
from pipeline.learners.policy_files import PolicyFiles
from pipeline.learners.terms import Terms
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.held_out import PartFacts
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.scores import SCORES
from pipeline.transaction.drawing import Stage
from reports.facts.learnt import LearntFacts, Truth
from reports.facts.measurement import EvaluationFacts
from reports.facts.policy import PolicyView
from reports.facts.promise import Joint


class Evaluation(Protocol):
    """How a learner's policy is measured on people who did not choose it."""

    @property
    def estimator(self) -> str:
        """Its name, see :class:`~pipeline.evaluation.measured.Evaluated`."""
        ...

    @property
    def learning(self) -> tuple[PrivateSum, ...]:
        """All that the learner draws of its own part, stage by stage; nothing where its plan is :class:`Regressing`."""
        ...

    @property
    def sums(self) -> Mapping[str, PrivateSum]:
        """What is drawn of the others: stage -> private sum.  Their tables, and derived ones, begin with ``b_``."""
        ...

    def spec(self) -> list[Any]:
        """What defines the questions beside what is drawn: settings of the policy, clips, version; part of the key."""
        ...

    def draw(self, learnt: Learnt, rows: Snapshot, resources: Resources, stage: Stage) -> Release:
        """Draw the stages of :attr:`sums`, in order; a later one may ask about an earlier one's answer.

        Parameters
        ----------
        learnt
            The policy, of the learner's own part.
        rows
            Of the other people.
        resources, stage
            See :meth:`~pipeline.transaction.drawing.Drawing.draw`.

        Returns
        -------
        All tables of :attr:`sums`, and in ``derived`` what a later question was made of.
        """
        ...

    def measure(self, learnt: Learnt, answers: Release, share: float, look: int) -> tuple[Learnt, Evaluated]:
        """What the answers say of the policy: post-processing, reads no rows.

        Parameters
        ----------
        learnt
            As it was when they were drawn.
        answers
            From :meth:`draw`.
        share, look
            Of the people, declared, and which evaluation on the lineage this is.

        Returns
        -------
        The policy that is published, and what it is worth.
        """
        ...


@runtime_checkable
class Evaluable(Protocol):
    """A plan whose policy other people can evaluate; a plan without an estimator has no such method."""

    def evaluation(self) -> Evaluation:
        """What is drawn of the other people, and what that says of the policy; priced on declarations.

        Raises
        ------
        CardError
            If card and recipe have no evaluation.
        """
        ...


@runtime_checkable
class Logging(Protocol):
    """An evaluation that can weigh rows by what they tell of practice themselves."""

    @property
    def logged(self) -> bool:
        """Whether it does: then a check of it is released beside."""
        ...


@runtime_checkable
class Regressing(Protocol):
    """A plan of regressions, which are bounded together and whose scales may follow answers."""

    def part(self) -> PartFacts | None:
        """What they cost a part of the people, and what that rests on; None without noise."""
        ...


@runtime_checkable
class Attackable(Protocol):
    """An evaluation whose sums, and the way from one part to the other, an auditor can attack."""

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """Audit targets of what is drawn of the others, alone and beside the learner's part.

        Parameters
        ----------
        sampler
            See :meth:`~pipeline.learners.learner.RunPlan.targets`.
        """
        ...


@dataclass(frozen=True)
class LearntHeldOut:
    """See :class:`~pipeline.learners.learner.Learnt`: a policy, and what people say of it who did not choose it."""

    learnt: Learnt
    evaluated: Evaluated
    joint: Joint

    def files(self) -> PolicyFiles:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        return self.learnt.files()

    def facts(self) -> LearntFacts:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        told = asdict(self.evaluated)
        for key in ("against", "ratios"):
            if told[key] is None:
                del told[key]
        told["diagnostics"] = [{**d, "price": float(d["price"])} for d in told["diagnostics"]]
        return replace(self.learnt.facts(), joint=self.joint, evaluation=EvaluationFacts.model_validate(told))

    def view(self) -> PolicyView:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        return self.learnt.view()

    def truth(self, world: str, behaviour: str) -> Truth:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        return self.learnt.truth(world, behaviour)


def permitted(evaluation: Evaluation, card: AnyCard, terms: Terms) -> Evaluation:
    """The evaluation, if it weighs by logged probabilities where the recipe says so, and a column has them.

    Parameters
    ----------
    evaluation, card, terms
        Of the run: nothing about rows can refuse it.

    Raises
    ------
    CardError
        If there is nothing to weigh, or to weigh by.
    """
    asked = f"{terms.where}: [evaluate] probabilities = 'logged'"
    if terms.logged and not isinstance(evaluation, Logging):
        raise CardError(f"{asked}: {evaluation.estimator} weighs nothing by them; take it out")
    if terms.logged and card.source.columns.behavior_prob is None:
        raise CardError(f"{asked}: {card.name} maps no column to source.columns.behavior_prob; map it, or take it out")
    return evaluation


def clip_diagnostics(found: Evaluated, answers: Release) -> tuple[Diagnostic, ...]:
    """What another clip could have made of the difference.

    With y the difference of a person in parts of its clip, |y| <= 1: nobody is cut whose |y| is below 1, so at most a
    share E[y²] is.  Half the clip would take max(0, |y| - 1/2) <= y²/2 away from each person, and halve the noise.

    Parameters
    ----------
    found, answers
        What the evaluation says, and the release that says it.

    Returns
    -------
    By name: a share of people, and reward units.
    """
    m, gain = moments(answers), SCORES.index("gain")
    square = min(1.0, float(m.variance[gain] + m.mean[gain] ** 2))
    sampling, noise = found.person_variance / m.people, found.noise_variance
    now = math.sqrt(sampling + noise)
    if not now or not m.noise[gain]:
        return (Diagnostic("clip, people cut at it, at most", square),)
    clip = math.sqrt(noise / float(m.noise[gain]))
    halves = {times: found.half_width * math.sqrt(sampling + noise * times**2) / now for times in (0.5, 2.0)}
    moves = square / 2 * clip
    return (
        Diagnostic("clip, people cut at it, at most", square),
        Diagnostic("clip, half of it: lower end of the difference, at worst", _lower(found, halves[0.5] + moves)),
        Diagnostic("clip, twice it: lower end of the difference, had nobody been cut", _lower(found, halves[2.0])),
    )


def _lower(found: Evaluated, below: float) -> float:
    return found.improvement.estimate - below
