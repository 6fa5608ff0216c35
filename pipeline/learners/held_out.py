"""A plan that learns on a part of the people, and the others who evaluate what it learnt.

It is a plan like any other: one charge, one release, one policy.  Whatever learner made the policy, its
:class:`~pipeline.learners.held_out.Evaluation` says what is drawn of the other people, and what that tells.

How a policy is measured on people who did not choose it: what a learner says of its plan, if it can.

:func:`clip_diagnostics` says how far a verdict rests on where the scores of people were cut: from what was released
anyway, so free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from pipeline.arrays import Integers
from pipeline.declaration.card import AnyCard, CardError, require_tabular
from pipeline.declaration.code import is_plugin, plugin_digest
from pipeline.evaluation.coverage import inequalities, outside
from pipeline.evaluation.intervals import moments
from pipeline.facts.evaluation import LEAST_PEOPLE, Diagnostic, Evaluated
from pipeline.facts.learnt import LearntFacts, PolicyView, Truth
from pipeline.facts.promise import Joint
from pipeline.learners.learner import Adaptive, Learnt, Quote, RunPlan, joint_cost, listed_facts
from pipeline.learners.policy_files import PolicyFiles
from pipeline.learners.terms import Terms
from pipeline.ledger.chain import Body
from pipeline.ledger.looks import SINCE
from pipeline.logs.parts import editions_until, split_people
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Resources
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import HELD_OUT, Mechanism, Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.held_out import RULE, PartFacts, part_facts, parts_cost
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.scores import SCORES
from pipeline.transaction.drawing import Stage

if TYPE_CHECKING:
    from pipeline.audits.attack import AuditTarget, WholePlan
    from pipeline.worlds.surrogate import SimulatedRun

T = TypeVar("T")


class Evaluation(Protocol):
    """How a learner's policy is measured on people who did not choose it."""

    @property
    def estimator(self) -> str:
        """Its name, see :class:`~pipeline.facts.evaluation.Evaluated`."""
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

        Returns all tables of :attr:`sums`, and in ``derived`` what a later question was made of.
        """
        ...

    def measure(self, learnt: Learnt, answers: Release, share: float, look: int) -> tuple[Learnt, Evaluated]:
        """What the answers say of the policy: post-processing, reads no rows.

        Returns the policy that is published, and what it is worth.
        """
        ...

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """Audit targets of what is drawn of the others, alone and beside the learner's part."""
        ...


@runtime_checkable
class Evaluable(Protocol):
    """A plan whose policy other people can evaluate; a plan without an estimator has no such method."""

    def evaluation(self) -> Evaluation:
        """What is drawn of the other people, and what that says of the policy; priced on declarations.

        Raises CardError if card and recipe have no evaluation.
        """
        ...


@runtime_checkable
class Regressing(Protocol):
    """A plan of regressions, which are bounded together and whose scales may follow answers."""

    def part(self) -> PartFacts | None:
        """What they cost a part of the people, and what that rests on; None without noise."""
        ...


@dataclass(frozen=True)
class LearntHeldOut:
    """A policy, and what people say of it who did not choose it."""

    learnt: Learnt
    evaluated: Evaluated
    joint: Joint

    def files(self) -> PolicyFiles:
        return self.learnt.files()

    def facts(self) -> LearntFacts:
        return replace(self.learnt.facts(), joint=self.joint, evaluation=self.evaluated)

    def view(self) -> PolicyView:
        return self.learnt.view()

    def truth(self, world: str, behaviour: str) -> Truth:
        return self.learnt.truth(world, behaviour)


def judged(learnt: Learnt, before: str | None) -> Learnt:
    """The same policy, with whether those who judged it had been read before."""
    if before is None or not isinstance(learnt, LearntHeldOut):
        return learnt
    return replace(learnt, evaluated=replace(learnt.evaluated, judged_before=before))


def clip_diagnostics(found: Evaluated, answers: Release) -> tuple[Diagnostic, ...]:
    """What another clip could have made of the difference.

    With y the difference of a person in parts of its clip, |y| <= 1: nobody is cut whose |y| is below 1, so at most a
    share E[y²] is.  Half the clip would take max(0, |y| - 1/2) <= y²/2 away from each person, and halve the noise.

    Returns by name: a share of people, and reward units.
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


# of the policy that other people were asked about, as it stands in a release
ASKED = "b_asked"


@dataclass(frozen=True)
class Arrived:
    """Who may judge where not everybody does whose hash says so.

    ``share``: who judges, as a share of all declared people.
    """

    edition: int
    users: int
    share: Fraction

    def told(self) -> dict[str, int]:
        """As an INTENT says it."""
        return {"edition": self.edition, "users": self.users}


@dataclass(frozen=True)
class HeldOutRun:
    """See :class:`~pipeline.learners.learner.RunPlan`.

    ``own_code``: digest of a planner of one's own; empty where the house's makes the policy.
    ``region``: in which the coverage of the estimator was measured; ``outside``: what keeps this run out of it.
    ``arrived``: of those who judge: the edition after which they first came in, and how many people did, declared;
    None: any.
    """

    plan: RunPlan
    evaluation: Evaluation
    share: Fraction
    own_code: str = ""
    teaching: Fraction = Fraction(1)
    arrived: Arrived | None = None
    region: tuple[Diagnostic, ...] = ()
    outside: str | None = None

    @property
    def since(self) -> int | None:
        return None if self.arrived is None else self.arrived.edition

    @property
    def what(self) -> str:
        return f"{self.plan.what}, and scores of other people"

    @property
    def reference(self) -> str:
        return self.plan.reference

    @property
    def exact(self) -> bool:
        return self.plan.exact

    @property
    def stages(self) -> tuple[str, ...]:
        return (*self.plan.stages, *self.evaluation.sums)

    @property
    def _theirs(self) -> tuple[Mechanism, ...]:
        return tuple(m for s in self.evaluation.sums.values() for m in s.mechanisms)

    def admit(self, noise: NoiseSource) -> None:
        self.plan.admit(noise)
        for s in self.evaluation.sums.values():
            s.admit(noise)

    def _joint(self) -> tuple[Fraction | None, dict[str, object]]:
        """What both parts cost together, and what that rests on: plain values."""
        e = self.evaluation
        told: dict[str, object] = {
            "rule": RULE,
            "variant": HELD_OUT,
            "share": str(self.share),
            "estimator": e.estimator,
        }
        learn = self.plan.part() if isinstance(self.plan, Regressing) else part_facts(e.learning)
        evaluate = part_facts(tuple(e.sums.values()))
        if learn is None or evaluate is None:
            return None, told
        costs = [(Fraction(p["rho_exact"]), Fraction(p["rho_add_remove"])) for p in (learn, evaluate)]
        return parts_cost(costs[0], costs[1]), told | {"learn": learn, "evaluate": evaluate}

    def _described(self) -> list[dict[str, object]]:
        known = self.plan.charge()[1].get("mechanisms", [])
        return [*known, *map(describe_mechanism, self._theirs)]

    def spec(self) -> list[Any]:
        """What decides the policy decides what is asked of it."""
        described = [{k: v for k, v in m.items() if k != "delta_slack"} for m in self._described()]
        own = [self.own_code] if self.own_code else []
        own += [] if self.arrived is None else [self.arrived.told()]
        return [HELD_OUT, str(self.share), self.plan.spec(), self.evaluation.spec(), described, *own]

    def charge(self) -> tuple[Fraction | None, Body]:
        """Both parts at once, by the person who pays most."""
        (rho, joint), listed, alone = self._joint(), self._described(), self.plan.charge()[1]
        told: Body = {"joint": {"rho_exact": None if rho is None else str(rho), **joint}}
        told |= {"epsilon": None, "mechanisms": listed}
        told |= {} if self.arrived is None else {SINCE: self.arrived.told()}
        if "planned_calls" in alone:
            # scales of the first part follow its answers: they are planned, not known
            fixed = [{**m, "tables": [m["table"]], "adaptive": False} for m in told.pop("mechanisms")]
            told |= {"planned_calls": [*alone["planned_calls"], *fixed], "planner": alone["planner"]}
        if rho is None or next(iter(self.evaluation.sums.values())).layout.data_kind != "real":
            return rho, told
        joined = max(Fraction(told["joint"][part]["rho_add_remove"]) for part in ("learn", "evaluate"))
        return rho, told | {"rho_add_remove": str(joined)}

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        if resources.split is None:
            raise CardError(f"{snapshot.dataset}: people are split by the secret of a ledger, and there is none here")
        before = [] if self.since is None else editions_until(snapshot, self.since)
        learn, others = split_people(snapshot, resources.split(self.share), before)
        first = self.plan.draw(learn, resources, stage)
        learnt, (rho, joint) = self.plan.learn(first), self._joint()
        second = self.evaluation.draw(learnt, others, resources, stage)
        return replace(
            first,
            mechanisms=first.mechanisms + self._theirs,
            tables={**first.tables, **second.tables},
            derived={**first.derived, **second.derived, ASKED: _asked(learnt)},
            joint_rho=rho,
            joint=joint,
        )

    def quote(self) -> Quote:
        (rho, _), alone = self._joint(), self.plan.quote()
        delta = alone.spent["delta"] or 0.5
        joint = Joint.model_validate(self.charge()[1]["joint"])
        listed, cost = [*alone.mechanisms, *listed_facts(self._theirs)], joint_cost(rho, delta)
        return Quote(listed, rho, cost, joint, alone.outlook)

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        """Both parts cost together what the first does alone."""
        return self.plan.fitting(left)

    def learn(self, release: Release) -> Learnt:
        mine, theirs = _part(release, evaluates=False), _part(release, evaluates=True)
        known = tuple(m for s in self.evaluation.learning for m in s.mechanisms)
        # scales of regressions follow answers
        if _bare(theirs.mechanisms) != _bare(self._theirs) or known not in ((), mine.mechanisms):
            raise ValueError("this release was drawn on other terms")
        learnt = self._learnt(mine)
        if not np.array_equal(theirs.derived[ASKED], _asked(learnt)):
            raise ValueError("the people who evaluate were asked about another policy than this version learns of it")
        share = float(self.share if self.arrived is None else self.arrived.share)
        found, measured = self.evaluation.measure(learnt, theirs, share, release.look or 1)
        told = (*measured.diagnostics, *clip_diagnostics(measured, theirs), *self.region)
        measured = replace(measured, diagnostics=told, outside=self.outside)
        cost = {"rho_exact": None if release.joint_rho is None else str(release.joint_rho), **(release.joint or {})}
        return LearntHeldOut(found, measured, Joint.model_validate(cost))

    def _learnt(self, mine: Release) -> Learnt:
        """The policy that other people are asked about."""
        charged = self.plan.charge()
        stated: Body = charged[1].get("joint") or {}
        joint = {k: v for k, v in stated.items() if k != "rho_exact"} or None
        return self.plan.learn(replace(mine, joint=joint, joint_rho=None if joint is None else charged[0]))

    def asked_again(self, release: Release) -> Mapping[str, Integers]:
        """See :class:`~pipeline.learners.learner.Adaptive`."""
        mine, theirs = _part(release, evaluates=False), _part(release, evaluates=True)
        learnt, first = self._learnt(mine), self.plan if isinstance(self.plan, Adaptive) else None

        def answered(name: str, draw: Callable[[NoiseSource], T], /) -> T:
            drawn = {m.table for m in self.evaluation.sums[name].mechanisms}
            known = tuple(m for m in theirs.mechanisms if m.table in drawn)
            tables = {m.table: theirs.tables[m.table] for m in known}
            return cast("T", replace(theirs, mechanisms=known, tables=tables, derived={}))

        # a stage whose answer is known reads no rows
        nobody = Snapshot(release.dataset, 0, Path(), release.data_kind, "", "", "", 0, 0, 0, 0, {}, 0)
        theirs_again = self.evaluation.draw(learnt, nobody, HERE, answered).derived
        return {**({} if first is None else first.asked_again(mine)), **theirs_again, ASKED: _asked(learnt)}

    def unforeseen(self) -> str | None:
        return self.plan.unforeseen()

    def log_size(self, episodes: int) -> int:
        return self.plan.log_size(episodes)

    def forecast(self, episodes: int, seeds: Sequence[int]) -> list[SimulatedRun]:
        """Of the policy, which fewer people teach."""
        return self.plan.forecast(max(1, round(episodes * self.teaching)), seeds)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        return [*self.plan.targets(sampler), *self.evaluation.targets(sampler)]

    def whole_plan(self) -> WholePlan | None:
        return self.plan.whole_plan()


def _bare(mechanisms: Sequence[Mechanism]) -> list[Mechanism]:
    """Without the sampler's share of delta, which follows the cap of the lineage."""
    return [replace(m, delta_slack=Fraction(0)) for m in mechanisms]


def _asked(learnt: Learnt) -> Integers:
    """Digest ``(8,)`` of the policy that other people are asked about, in words of 32 bits."""
    return np.frombuffer(bytes.fromhex(learnt.files().digest), dtype=">u4").astype(np.int64)


def _part(release: Release, *, evaluates: bool) -> Release:
    """The tables of one part alone."""

    def mine(name: str) -> bool:
        return name.startswith("b_") == evaluates

    return replace(
        release,
        mechanisms=tuple(m for m in release.mechanisms if mine(m.table)),
        tables={name: table for name, table in release.tables.items() if mine(name)},
        derived={name: table for name, table in release.derived.items() if mine(name)},
        joint=None,
        joint_rho=None,
    )


def hold_out(plan: RunPlan, card: AnyCard, terms: Terms) -> RunPlan:
    """A plan whose policy the recipe's share of the people evaluates; the plan itself where it asks for none.

    ``card``, ``terms``: declare how many people there are, and the share of them.
    Raises CardError if nothing measures what this agent learns, too few people are left, the budget is of another kind,
    or rows cannot be weighed by logged probabilities where the recipe asks for it.
    """
    share = terms.held_out
    if not share:
        return plan
    asked = f"{terms.where}: [evaluate] people = {float(share):g}"
    if not isinstance(plan, Evaluable):
        raise CardError(f"{asked}: nothing measures what {terms.agent} learns on other people; take it out")
    if terms.ask().pure:
        raise CardError(f"{asked}: an evaluation draws Gaussian noise: give 'rho', or 'epsilon' with 'delta'")
    if terms.reserve and share > terms.reserve:
        raise CardError(
            f"{asked}: the ledger of {card.name} reserves {float(terms.reserve):g} of its people for judging, and all "
            "others may have taught; ask for at most that (docs/evaluation.md)"
        )
    arrived = _arrived(card, terms, asked)
    n = card.unit.users_public if arrived is None else arrived.users
    if (people := share * n) < LEAST_PEOPLE:
        raise CardError(
            f"{asked} of {n:,} declared people are {int(people):,}, and fewer than {LEAST_PEOPLE} "
            f"tell nothing; that share of {math.ceil(LEAST_PEOPLE / share):,} people would do, or none"
        )
    own = plugin_digest(terms.agent) if is_plugin(terms.agent) else ""
    evaluation, logged = plan.evaluation(), f"{terms.where}: [evaluate] probabilities = 'logged'"
    # an estimator that can weigh rows by them says whether it does
    if terms.logged and not hasattr(evaluation, "logged"):
        raise CardError(f"{logged}: {evaluation.estimator} weighs nothing by them; take it out")
    if terms.logged and card.source.columns.behavior_prob is None:
        raise CardError(f"{logged}: {card.name} maps no column to source.columns.behavior_prob; map it, or take it out")
    judging, rho = float(terms.judging(card)), terms.ask().zcdp()
    measured = evaluation.estimator, require_tabular(card), judging, rho
    beyond = outside(*measured) if arrived is None else None
    return HeldOutRun(plan, evaluation, share, own, terms.teaching, arrived, inequalities(*measured), beyond)


def _arrived(card: AnyCard, terms: Terms, asked: str) -> Arrived | None:
    e = terms.evaluate
    if e is None or e.since is None or e.users_since is None:
        return None
    if e.users_since > card.unit.users_public:
        raise CardError(
            f"{asked}, since = {e.since}: users_since = {e.users_since:,} are more than all "
            f"{card.unit.users_public:,} declared people; take 'since' out, or mend that number"
        )
    return Arrived(e.since, e.users_since, terms.judging(card))
