"""A plan that learns on a part of the people, and the others who evaluate what it learnt.

It is a plan like any other: one charge, one release, one policy.  Whatever learner made the policy, its
:class:`~pipeline.learners.evaluation.Evaluation` says what is drawn of the other people, and what that tells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.audits.attack import AuditTarget, WholePlan
from pipeline.declaration.card import AnyCard, CardError
from pipeline.declaration.code import is_plugin, plugin_digest
from pipeline.declaration.lineage import Schedule
from pipeline.learners.evaluation import (
    Attackable,
    Evaluable,
    Evaluation,
    LearntHeldOut,
    Regressing,
    clip_diagnostics,
    permitted,
)
from pipeline.learners.learner import Learnt, Quote, RunPlan, joint_cost, listed_facts
from pipeline.learners.terms import Terms
from pipeline.ledger.chain import Body
from pipeline.logs.parts import split_people
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Mechanism, Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.held_out import NIGHTS_RULE, RULE, VARIANT, part_facts, parts_cost
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.drawing import Stage
from reports.facts.measurement import LEAST_PEOPLE
from reports.facts.promise import Joint

if TYPE_CHECKING:
    from pipeline.simulation.surrogate import Drawn

# of the policy that other people were asked about, as it stands in a release
ASKED = "b_asked"


@dataclass(frozen=True)
class HeldOutRun:
    """See :class:`~pipeline.learners.learner.RunPlan`.

    Parameters
    ----------
    plan
        Learns, on its part of the people.
    evaluation
        What is drawn of the others.
    share
        Of the people who evaluate, declared.
    own_code
        Digest of a planner of one's own; empty where the house's makes the policy.
    dates
        On how many dates of a counter people evaluate.
    """

    plan: RunPlan
    evaluation: Evaluation
    share: Fraction
    own_code: str = ""
    dates: int = 1

    @property
    def what(self) -> str:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return f"{self.plan.what}, and scores of other people"

    @property
    def reference(self) -> str:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return self.plan.reference

    @property
    def exact(self) -> bool:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        return self.plan.exact

    @property
    def stages(self) -> tuple[str, ...]:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        return (*self.plan.stages, *self.evaluation.sums)

    @property
    def answers(self) -> Mapping[str, PrivateSum]:
        """See :class:`~pipeline.transaction.continual_release.Evaluation`."""
        return self.evaluation.sums

    @property
    def their_mechanisms(self) -> tuple[Mechanism, ...]:
        """See :class:`~pipeline.transaction.continual_release.Evaluation`."""
        listed = (m for s in self.answers.values() for m in s.mechanisms)
        return tuple(replace(m, delta_slack=self.dates * m.delta_slack) for m in listed)

    def admit(self, noise: NoiseSource) -> None:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        self.plan.admit(noise)
        for s in self.evaluation.sums.values():
            s.admit(noise)

    def _joint(self) -> tuple[Fraction | None, dict[str, object]]:
        """What both parts cost together, and what that rests on: plain values."""
        e = self.evaluation
        nights = any(m.running is not None for s in e.learning for m in s.mechanisms)
        told: dict[str, object] = {"rule": NIGHTS_RULE if nights else RULE, "variant": VARIANT}
        told |= {"share": str(self.share), "estimator": e.estimator}
        learn = self.plan.part() if isinstance(self.plan, Regressing) else part_facts(e.learning)
        evaluate = part_facts(tuple(e.sums.values()))
        if learn is None or evaluate is None:
            return None, told
        costs = [(Fraction(p["rho_exact"]), Fraction(p["rho_add_remove"])) for p in (learn, evaluate)]
        return parts_cost(costs[0], costs[1], nights=nights), told | {"learn": learn, "evaluate": evaluate}

    def joint_body(self) -> Body:
        """See :class:`~pipeline.transaction.continual_release.Evaluation`."""
        rho, joint = self._joint()
        return {"rho_exact": None if rho is None else str(rho), **joint}

    def _described(self) -> list[dict[str, object]]:
        known = self.plan.charge()[1].get("mechanisms", [])
        return [*known, *map(describe_mechanism, self.their_mechanisms)]

    def spec(self) -> list[Any]:
        """See :class:`~pipeline.transaction.drawing.Drawing`: what decides the policy decides what is asked of it."""
        described = [{k: v for k, v in m.items() if k != "delta_slack"} for m in self._described()]
        own = [self.own_code] if self.own_code else []
        return [VARIANT, str(self.share), self.plan.spec(), self.evaluation.spec(), described, *own]

    def charge(self) -> tuple[Fraction | None, Body]:
        """See :class:`~pipeline.transaction.drawing.Drawing`: both parts at once, by the person who pays most."""
        (rho, _), listed, alone = self._joint(), self._described(), self.plan.charge()[1]
        told: Body = {"joint": self.joint_body(), "epsilon": None, "mechanisms": listed}
        if "planned_calls" in alone:
            # scales of the first part follow its answers: they are planned, not known
            fixed = [{**m, "tables": [m["table"]], "adaptive": False} for m in told.pop("mechanisms")]
            told |= {"planned_calls": [*alone["planned_calls"], *fixed], "planner": alone["planner"]}
        if rho is None or next(iter(self.answers.values())).layout.data_kind != "real":
            return rho, told
        joined = max(Fraction(told["joint"][part]["rho_add_remove"]) for part in ("learn", "evaluate"))
        return rho, told | {"rho_add_remove": str(joined)}

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        if resources.secret is None:
            raise CardError(f"{snapshot.dataset}: people are split by the secret of a ledger, and there is none here")
        learn, others = split_people(snapshot, self.share, resources.secret())
        return self.evaluate(self.plan.draw(learn, resources, stage), others, resources, stage)

    def evaluate(self, counted: Release, rows: Snapshot, resources: Resources, stage: Stage) -> Release:
        """See :class:`~pipeline.transaction.continual_release.Evaluation`."""
        learnt, (rho, joint) = self.plan.learn(counted), self._joint()
        second = self.evaluation.draw(learnt, rows, resources, stage)
        return replace(
            counted,
            mechanisms=counted.mechanisms + self.their_mechanisms,
            tables={**counted.tables, **second.tables},
            derived={**counted.derived, **second.derived, ASKED: _asked(learnt)},
            joint_rho=rho,
            joint=joint,
        )

    def quote(self) -> Quote:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        (rho, _), alone = self._joint(), self.plan.quote()
        delta = alone.spent["delta"] or 0.5
        joint = Joint.model_validate(self.charge()[1]["joint"])
        listed, cost = [*alone.mechanisms, *listed_facts(self.their_mechanisms)], joint_cost(rho, delta)
        return Quote(listed, rho, cost, joint, alone.outlook)

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        """See :class:`~pipeline.learners.learner.RunPlan`: both parts cost together what the first does alone."""
        return self.plan.fitting(left)

    def learn(self, release: Release) -> Learnt:
        """See :class:`~pipeline.learners.learner.RunPlan`: on a night without an evaluation, the policy alone."""
        if release.counter is not None and release.joint is None:
            return self.plan.learn(release)
        mine, theirs = _part(release, evaluates=False), _part(release, evaluates=True)
        known = tuple(m for s in self.evaluation.learning for m in s.mechanisms)
        # of a counter, each night has noise of its own; scales of regressions follow answers
        same = _bare(theirs.mechanisms) == _bare(self.their_mechanisms)
        if not same or (release.counter is None and known not in ((), mine.mechanisms)):
            raise ValueError("this release was drawn on other terms")
        charged = self.plan.charge()
        stated: Body = charged[1].get("joint") or {}
        joint = {k: v for k, v in stated.items() if k != "rho_exact"} or None
        learnt = self.plan.learn(replace(mine, joint=joint, joint_rho=None if joint is None else charged[0]))
        if not np.array_equal(theirs.derived[ASKED], _asked(learnt)):
            raise ValueError("the people who evaluate were asked about another policy than this version learns of it")
        found, measured = self.evaluation.measure(learnt, theirs, float(self.share), release.look or 1)
        # how often intervals hold was measured for one release of so many people, not for a night of some
        told = (*measured.diagnostics, *clip_diagnostics(measured, theirs))
        measured = replace(measured, calibrated=measured.calibrated and release.counter is None, diagnostics=told)
        cost = {"rho_exact": None if release.joint_rho is None else str(release.joint_rho), **(release.joint or {})}
        return LearntHeldOut(found, measured, Joint.model_validate(cost))

    def unforeseen(self) -> str | None:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return self.plan.unforeseen()

    def log_size(self, episodes: int) -> int:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return self.plan.log_size(episodes)

    def forecast(self, episodes: int, seeds: Sequence[int]) -> list[Drawn]:
        """See :class:`~pipeline.learners.learner.RunPlan`: of the policy, which fewer people teach."""
        return self.plan.forecast(max(1, round(episodes * (1 - self.share))), seeds)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        theirs = self.evaluation.targets(sampler) if isinstance(self.evaluation, Attackable) else []
        return [*self.plan.targets(sampler), *theirs]

    def whole_plan(self) -> WholePlan | None:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return self.plan.whole_plan()


def _bare(mechanisms: Sequence[Mechanism]) -> list[Mechanism]:
    """Without the sampler's share of delta, of which earlier versions listed that of one date."""
    return [replace(m, delta_slack=Fraction(0)) for m in mechanisms]


def _asked(learnt: Learnt) -> NDArray[np.int64]:
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

    Parameters
    ----------
    plan
        Of the learner, with its whole budget: whoever is in one part is not in the other.
    card, terms
        Declare how many people there are, and the share of them.

    Raises
    ------
    CardError
        If nothing measures what this agent learns, too few people are left, or the budget is of another kind.
    """
    share = terms.held_out
    if not share:
        return plan
    asked = f"{terms.where}: [evaluate] people = {float(share):g}"
    if not isinstance(plan, Evaluable):
        raise CardError(f"{asked}: nothing measures what {terms.agent} learns on other people; take it out")
    if terms.nightly is not None and card.unit.recurs != "never":
        raise CardError(
            f"{asked}, under [nightly]: people who come back would evaluate twice; declare unit.recurs = 'never', or "
            "evaluate a run without a counter"
        )
    if terms.ask().pure:
        raise CardError(f"{asked}: an evaluation draws Gaussian noise: give 'rho', or 'epsilon' with 'delta'")
    if (people := share * card.unit.users_public) < LEAST_PEOPLE:
        raise CardError(
            f"{asked} of {card.unit.users_public:,} declared people are {int(people):,}, and fewer than {LEAST_PEOPLE} "
            f"tell nothing; that share of {math.ceil(LEAST_PEOPLE / share):,} people would do, or none"
        )
    own = plugin_digest(terms.agent) if is_plugin(terms.agent) else ""
    return HeldOutRun(plan, permitted(plan.evaluation(), card, terms), share, own, _dates(terms))


def _dates(terms: Terms) -> int:
    """On how many dates people evaluate; once without a counter."""
    counter, dates = terms.nightly, None if terms.evaluate is None else terms.evaluate.dates
    if counter is None or dates is None:
        return 1
    return max(1, len(Schedule(release=dates).within(counter.first, counter.last)))
