"""A plan that learns from a part of the people and evaluates its policy on the others, who are held out.

It is a plan like any other: one charge, one release, one policy.  The learner's
:class:`~pipeline.learners.held_out.Evaluation` defines what is drawn of the held-out people and how it is read.

:func:`clip_diagnostics` bounds how far a verdict depends on the clip of the scores, from released values, so free.
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
from pipeline.declaration.card import AnyCard, Card, CardError, require_tabular
from pipeline.declaration.code import is_plugin, plugin_digest
from pipeline.declaration.numbers import number
from pipeline.evaluation.coverage import few_teach, inequalities, outside
from pipeline.evaluation.intervals import moments
from pipeline.facts.evaluation import LEAST_PEOPLE, Diagnostic, Evaluated, people_needed
from pipeline.facts.learnt import LearntFacts, Truth
from pipeline.facts.promise import Joint
from pipeline.facts.verdict import fixed_width, round_up
from pipeline.learners.learner import Adaptive, Learnt, Quote, RunPlan, described, joint_quote, listed_facts, priced
from pipeline.learners.policy_files import PolicyFiles
from pipeline.learners.terms import Terms
from pipeline.ledger.chain import Body
from pipeline.ledger.looks import SINCE
from pipeline.logs.parts import editions_until, split_people
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Resources
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import HELD_OUT, Mechanism, Release
from pipeline.statistics.held_out import RULE, part_facts, parts_cost
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.scores import SCORES
from pipeline.transaction.drawing import Stage

if TYPE_CHECKING:
    from pipeline.audits.attack import AuditTarget, WholePlan
    from pipeline.worlds.surrogate import SimulatedRun

T = TypeVar("T")


class Evaluation(Protocol):
    """Measurement of a learner's policy on held-out people."""

    @property
    def estimator(self) -> str:
        """Its name, see :class:`~pipeline.facts.evaluation.Evaluated`."""
        ...

    @property
    def learning(self) -> tuple[PrivateSum, ...]:
        """Sums that the learner draws of its part, stage by stage; none where its plan is :class:`Regressing`."""
        ...

    @property
    def sums(self) -> Mapping[str, PrivateSum]:
        """Sums of the held-out people: stage -> private sum.  Their tables, and derived ones, begin with ``b_``."""
        ...

    def spec(self) -> list[Any]:
        """Definition of the queries beside the sums: settings of the policy, clips, version; part of the key."""
        ...

    def draw(self, learnt: Learnt, rows: Snapshot, resources: Resources, stage: Stage) -> Release:
        """Draw the stages of :attr:`sums`, in order; a later query may depend on an earlier answer.

        Returns all tables of :attr:`sums`, and in ``derived`` the values that a later query was made of.
        """
        ...

    def measure(self, learnt: Learnt, answers: Release, share: float, look: int) -> tuple[Learnt, Evaluated]:
        """Evaluate the policy on the answers: post-processing, reads no rows.

        Returns the policy that is published, and its evaluation.
        """
        ...

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """Audit targets of the held-out people's sums, alone and beside the learner's part."""
        ...


@runtime_checkable
class Evaluable(Protocol):
    """A plan whose policy held-out people can evaluate; a plan without an estimator has no such method."""

    def evaluation(self) -> Evaluation:
        """The evaluation on held-out people, priced on declarations.

        Raises CardError if card and recipe have no evaluation.
        """
        ...


@runtime_checkable
class Regressing(Protocol):
    """A plan of regressions, which are bounded together and whose scales may follow answers."""

    def part(self) -> Body | None:
        """Cost of the regressions to a part of the people, with its grounds; None without noise."""
        ...


@dataclass(frozen=True)
class LearntHeldOut:
    """A policy with its evaluation on held-out people."""

    learnt: Learnt
    evaluated: Evaluated
    joint: Joint

    def files(self) -> PolicyFiles:
        return self.learnt.files()

    def facts(self) -> LearntFacts:
        return replace(self.learnt.facts(), joint=self.joint, evaluation=self.evaluated)

    def truth(self, world: str, behaviour: str) -> Truth:
        return self.learnt.truth(world, behaviour)


def judged(learnt: Learnt, before: str | None) -> Learnt:
    """The same policy; its evaluation records whether the held-out people had been read before."""
    if before is None or not isinstance(learnt, LearntHeldOut):
        return learnt
    return replace(learnt, evaluated=replace(learnt.evaluated, judged_before=before))


def clip_diagnostics(evaluated: Evaluated, answers: Release) -> tuple[Diagnostic, ...]:
    """Bounds of the difference under another clip.

    With y the difference of a person in parts of its clip, |y| <= 1: a person whose |y| is below 1 is not cut, so at
    most a share E[y²] is.  Half the clip would take max(0, |y| - 1/2) <= y²/2 from each person, and halve the noise.

    Returns a share of people, and values in reward units.
    """
    m, gain = moments(answers), SCORES.index("gain")
    square = min(1.0, float(m.variance[gain] + m.mean[gain] ** 2))
    sampling, noise = evaluated.person_variance / m.people, evaluated.noise_variance
    now = math.sqrt(sampling + noise)
    if not now or not m.noise[gain]:
        return (Diagnostic("clip, people cut at it, at most", square),)
    clip = math.sqrt(noise / float(m.noise[gain]))
    fixed = fixed_width(evaluated)
    chance = (evaluated.half_width - fixed) / now
    half_width = {times: fixed + chance * math.sqrt(sampling + noise * times**2) for times in (0.5, 2.0)}
    estimate, shift = evaluated.improvement.estimate, square / 2 * clip
    return (
        Diagnostic("clip, people cut at it, at most", square),
        Diagnostic("clip, half of it: lower end of the difference, at worst", estimate - (half_width[0.5] + shift)),
        Diagnostic("clip, twice it: lower end of the difference, had nobody been cut", estimate - half_width[2.0]),
    )


# name of the digest, in a release, of the policy that held-out people evaluate
EVALUATED_POLICY = "b_asked"


@dataclass(frozen=True)
class HeldOutRun:
    """See :class:`~pipeline.learners.learner.RunPlan`.

    ``own_code``: digest of a plug-in's planner; empty where a built-in one makes the policy.
    ``setting``: what a region is of in which coverage was measured: card, declared held-out people as a share of all,
    and budget; ``outside``: sentence on what keeps this run out of it.
    ``arrived``: restriction of the held-out people to those who first came in after an ``edition``, and the declared
    number of these ``users``, as an INTENT has them; None: none.
    """

    plan: RunPlan
    evaluation: Evaluation
    share: Fraction
    own_code: str
    teaching: Fraction
    setting: tuple[Card, float, Fraction | None]
    arrived: dict[str, int] | None = None
    outside: str | None = None

    @property
    def since(self) -> int | None:
        """By it and ``share`` this is a :class:`~pipeline.transaction.drawing.Splitting`, which reads both parts."""
        return None if self.arrived is None else self.arrived["edition"]

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
    def _evaluating(self) -> tuple[Mechanism, ...]:
        return tuple(m for s in self.evaluation.sums.values() for m in s.mechanisms)

    def admit(self, noise: NoiseSource) -> None:
        self.plan.admit(noise)
        for s in self.evaluation.sums.values():
            s.admit(noise)

    def _joint(self) -> tuple[Fraction | None, dict[str, object]]:
        """Cost of both parts together, and its grounds as plain values."""
        e = self.evaluation
        facts: dict[str, object] = {
            "rule": RULE,
            "variant": HELD_OUT,
            "share": str(self.share),
            "estimator": e.estimator,
        }
        learn = self.plan.part() if isinstance(self.plan, Regressing) else part_facts(e.learning)
        evaluate = part_facts(tuple(e.sums.values()))
        if learn is None or evaluate is None:
            return None, facts
        costs = [(Fraction(p["rho_exact"]), Fraction(p["rho_add_remove"])) for p in (learn, evaluate)]
        return parts_cost(costs[0], costs[1]), facts | {"learn": learn, "evaluate": evaluate}

    def _described(self) -> list[dict[str, object]]:
        learning = self.plan.charge()[1].get("mechanisms", [])
        return [*learning, *described(self._evaluating)]

    def spec(self) -> list[Any]:
        """Both parts: whatever decides the policy decides the queries about it."""
        listed = [{k: v for k, v in m.items() if k != "delta_slack"} for m in self._described()]
        optional = [self.own_code] if self.own_code else []
        optional += [] if self.arrived is None else [self.arrived]
        return [HELD_OUT, str(self.share), self.plan.spec(), self.evaluation.spec(), listed, *optional]

    def charge(self) -> tuple[Fraction | None, Body]:
        """Charge both parts at once: the cost of the person who pays most."""
        (rho, joint), mechanisms, learning = self._joint(), self._described(), self.plan.charge()[1]
        body: Body = {"joint": priced(rho, joint)}
        body |= {"epsilon": None, "mechanisms": mechanisms}
        body |= {} if self.arrived is None else {SINCE: self.arrived}
        if "planned_calls" in learning:
            # scales of the first part follow its answers: only its calls are known
            scores = [{**m, "tables": [m["table"]], "adaptive": False} for m in body.pop("mechanisms")]
            body |= {"planned_calls": [*learning["planned_calls"], *scores], "planner": learning["planner"]}
        if rho is None or next(iter(self.evaluation.sums.values())).layout.data_kind != "real":
            return rho, body
        joining_cost = max(Fraction(body["joint"][part]["rho_add_remove"]) for part in ("learn", "evaluate"))
        return rho, body | {"rho_add_remove": str(joining_cost)}

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        if resources.split is None:
            raise CardError(f"{snapshot.dataset}: people are split by the secret of a ledger, and there is none here")
        earlier_editions = [] if self.since is None else editions_until(snapshot, self.since)
        learning_rows, held_out = split_people(snapshot, resources.split(self.share), earlier_editions)
        learning = self.plan.draw(learning_rows, resources, stage)
        learnt, (rho, joint) = self.plan.learn(learning), self._joint()
        answers = self.evaluation.draw(learnt, held_out, resources, stage)
        return replace(
            learning,
            mechanisms=learning.mechanisms + self._evaluating,
            tables={**learning.tables, **answers.tables},
            derived={**learning.derived, **answers.derived, EVALUATED_POLICY: _policy_digest(learnt)},
            joint_rho=rho,
            joint=joint,
        )

    def quote(self) -> Quote:
        (rho, _), learning = self._joint(), self.plan.quote()
        listed, delta = [*learning.mechanisms, *listed_facts(self._evaluating)], learning.spent["delta"] or 0.5
        return joint_quote(listed, rho, delta, self.charge()[1]["joint"], **learning.outlook)

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        """The budget that fits the learning part: both parts together cost the same."""
        return self.plan.fitting(left)

    def learn(self, release: Release) -> Learnt:
        learning, answers = _part(release, evaluates=False), _part(release, evaluates=True)
        planned = tuple(m for s in self.evaluation.learning for m in s.mechanisms)
        # scales of regressions follow answers
        if _bare(answers.mechanisms) != _bare(self._evaluating) or planned not in ((), learning.mechanisms):
            raise ValueError("this release was drawn on other terms")
        learnt = self._learnt(learning)
        if not np.array_equal(answers.derived[EVALUATED_POLICY], _policy_digest(learnt)):
            raise ValueError("the people who evaluate were asked about another policy than this version learns of it")
        card, judging, rho = self.setting
        published, evaluated = self.evaluation.measure(learnt, answers, judging, release.look or 1)
        # of the people who came, where clearly fewer did than are declared
        came = max(0.0, 1 - (evaluated.left_out(card.unit.users_public) or 0.0))
        region = inequalities(self.evaluation.estimator, card, judging * came, rho)
        diagnostics = (*evaluated.diagnostics, *clip_diagnostics(evaluated, answers), *region)
        # a ledger may reserve more people than the card says
        taught = few_teach(self.evaluation.estimator, card, 1 - float(self.teaching), rho) is None
        measured = evaluated.calibrated and taught
        evaluated = replace(evaluated, diagnostics=diagnostics, outside=self.outside, calibrated=measured)
        if evaluated.changes:
            from pipeline.learners.overlap import beyond, is_led, is_unweighted

            evaluated = replace(evaluated, unweighted=is_unweighted(self.evaluation) or None)
            evaluated = replace(evaluated, led=is_led(self.evaluation) or None)
            if (few := self._too_few(evaluated, came)) is not None:
                evaluated = replace(evaluated, calibrated=False, outside=few)
            if (far := beyond(self.evaluation, learnt, answers)) is not None:
                # said first: no number of people brings such a policy inside
                evaluated = replace(evaluated, calibrated=False, outside=far)
        joint = priced(release.joint_rho, release.joint or {})
        return LearntHeldOut(published, evaluated, Joint.model_validate(joint))

    def _too_few(self, evaluated: Evaluated, came: float) -> str | None:
        """Sentence on judges who are fewer than declared, and too few for what was measured; or None.

        What is asked of them follows from the declared number: half of them cannot tell how states weigh.
        """
        from pipeline.learners.overlap import is_unweighted

        if came == 1 or not evaluated.calibrated:
            return None
        card, judging, rho = self.setting
        measured = outside(self.evaluation.estimator, card, judging * came, rho) is None
        if measured and is_unweighted(self.evaluation, came) == is_unweighted(self.evaluation):
            return None
        people, declared = (
            number(round_up(x, "nearest")) for x in (evaluated.people, card.unit.users_public * judging)
        )
        return (
            f"About {people} of {declared} declared people judged, and for so few no interval like this was measured."
        )

    def _learnt(self, release: Release) -> Learnt:
        """The policy that held-out people evaluate."""
        charged = self.plan.charge()
        charged_joint: Body = charged[1].get("joint") or {}
        joint = {k: v for k, v in charged_joint.items() if k != "rho_exact"} or None
        return self.plan.learn(replace(release, joint=joint, joint_rho=None if joint is None else charged[0]))

    def recompute_derived(self, release: Release) -> Mapping[str, Integers]:
        """See :class:`~pipeline.learners.learner.Adaptive`."""
        learning, answers = _part(release, evaluates=False), _part(release, evaluates=True)
        learnt = self._learnt(learning)

        def recorded(name: str, draw: Callable[[NoiseSource], T], /) -> T:
            drawn = {m.table for m in self.evaluation.sums[name].mechanisms}
            mechanisms = tuple(m for m in answers.mechanisms if m.table in drawn)
            tables = {m.table: answers.tables[m.table] for m in mechanisms}
            return cast("T", replace(answers, mechanisms=mechanisms, tables=tables, derived={}))

        # a stage whose answer is known reads no rows
        no_rows = Snapshot(release.dataset, 0, Path(), release.data_kind, "", "", "", 0, 0, 0, 0, {}, 0)
        evaluating = self.evaluation.draw(learnt, no_rows, HERE, recorded).derived
        plan, derived = self.plan, dict[str, Integers]()
        if isinstance(plan, Adaptive):
            derived |= plan.recompute_derived(learning)
        return {**derived, **evaluating, EVALUATED_POLICY: _policy_digest(learnt)}

    def unforeseen(self) -> str | None:
        return self.plan.unforeseen()

    def log_size(self, episodes: int) -> int:
        return self.plan.log_size(episodes)

    def forecast(self, episodes: int, seeds: Sequence[int]) -> list[SimulatedRun]:
        """Simulate the learning part, which fewer people teach."""
        return self.plan.forecast(max(1, round(episodes * self.teaching)), seeds)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        return [*self.plan.targets(sampler), *self.evaluation.targets(sampler)]

    def whole_plan(self) -> WholePlan | None:
        return self.plan.whole_plan()


def _bare(mechanisms: Sequence[Mechanism]) -> list[Mechanism]:
    """The mechanisms without the sampler's share of delta, which follows the cap of the lineage."""
    return [replace(m, delta_slack=Fraction(0)) for m in mechanisms]


def _policy_digest(learnt: Learnt) -> Integers:
    """Digest ``(8,)`` of the policy that held-out people evaluate, in words of 32 bits."""
    return np.frombuffer(bytes.fromhex(learnt.files().digest), dtype=">u4").astype(np.int64)


def _part(release: Release, *, evaluates: bool) -> Release:
    """The tables of one part of a release."""

    def belongs(name: str) -> bool:
        return name.startswith("b_") == evaluates

    return replace(
        release,
        mechanisms=tuple(m for m in release.mechanisms if belongs(m.table)),
        tables={name: table for name, table in release.tables.items() if belongs(name)},
        derived={name: table for name, table in release.derived.items() if belongs(name)},
        joint=None,
        joint_rho=None,
    )


def hold_out(plan: RunPlan, card: AnyCard, terms: Terms) -> RunPlan:
    """The plan with an evaluation on the recipe's share of the people, which is not 0.

    Raises CardError if nothing measures what this agent learns, too few people are left, the budget is of another kind,
    or rows cannot be weighed by logged probabilities where the recipe asks for it.
    """
    share = terms.held_out
    where = f"{terms.where}: [evaluate] people = {float(share):g}"
    if not isinstance(plan, Evaluable):
        raise CardError(f"{where}: nothing measures what {terms.agent} learns on other people; take it out")
    if terms.ask().pure:
        raise CardError(f"{where}: an evaluation draws Gaussian noise: give 'rho', or 'epsilon' with 'delta'")
    if terms.reserve and share > terms.reserve:
        raise CardError(
            f"{where}: the ledger of {card.name} reserves {float(terms.reserve):g} of its people for judging, and all "
            "others may have taught; ask for at most that (docs/evaluation.md)"
        )
    arrived = _arrived(card, terms, where)
    n = card.unit.users_public if arrived is None else arrived["users"]
    if (people := share * n) < LEAST_PEOPLE:
        needed = people_needed(share, terms.agent, terms.ask().zcdp())
        raise CardError(
            f"{where} of {n:,} declared people are {int(people):,}, and fewer than {LEAST_PEOPLE} "
            f"tell nothing; that share of {needed:,} people would do, or none"
        )
    own_code = plugin_digest(terms.agent) if is_plugin(terms.agent) else ""
    evaluation, logged = plan.evaluation(), f"{terms.where}: [evaluate] probabilities = 'logged'"
    try:
        _ = evaluation.sums
    except ValueError as e:
        raise CardError(f"{where}: {e}") from None
    # an estimator that can weigh rows by them has this attribute
    if terms.logged and not hasattr(evaluation, "logged"):
        raise CardError(f"{logged}: {terms.agent} weighs nothing by them; take it out")
    if terms.logged and card.source.columns.behavior_prob is None:
        raise CardError(f"{logged}: {card.name} maps no column to source.columns.behavior_prob; map it, or take it out")
    judging, rho = float(terms.judging(card)), terms.ask().zcdp()
    setting = evaluation.estimator, require_tabular(card), judging, rho
    beyond = outside(*setting, terms.taken) if arrived is None else None
    beyond = beyond or few_teach(*setting[:2], 1 - float(terms.teaching), rho)
    return HeldOutRun(plan, evaluation, share, own_code, terms.teaching, setting[1:], arrived, beyond)


def _arrived(card: AnyCard, terms: Terms, where: str) -> dict[str, int] | None:
    e = terms.evaluate
    if e is None or e.since is None or e.users_since is None:
        return None
    if e.users_since > card.unit.users_public:
        raise CardError(
            f"{where}, since = {e.since}: users_since = {e.users_since:,} are more than all "
            f"{card.unit.users_public:,} declared people; take 'since' out, or mend that number"
        )
    return {"edition": e.since, "users": e.users_since}
