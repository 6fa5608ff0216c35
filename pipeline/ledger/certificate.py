"""The certificate: every mechanism with sensitivity and scale, what is assumed, what is not covered (design §5.3).

It is ordered as the pyramid of NIST SP 800-226: the loss and its unit on top, then what makes them true in the program
(algorithm, arithmetic, side channels), then the data: how it was collected and who can reach it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction

from pipeline.declaration.card import AnyCard
from pipeline.ledger.assumptions import (
    NOT_COVERED,
    Route,
    assumptions,
    implementation,
    protected,
    route_of,
    stewardship,
    unit_sentence,
)
from pipeline.ledger.attempts import Passed
from pipeline.ledger.chain import Body, Entry
from pipeline.privacy.losses import SpentBudget, spent_budget
from pipeline.privacy.release import Mechanism, Release, total_rho
from pipeline.privacy.release_file import describe_joint
from reports.facts.part import present
from reports.facts.promise import CounterFacts, Guarantee, Joint
from reports.facts.report import Certificate, Charged, RegistryEntry, Report

NO_CLAIM = "none (simulation)"
_SEPARATE = "zCDP: rhos add; pure losses add as epsilons"
_JOINT = (
    "zCDP: steps add; the tables of one step come from one row a person and are bounded jointly, by the supremum over "
    "two people's rows, so together they cost no more than the sum of what is listed for each"
)
_LQ = (
    "zCDP: both tables come from the same rows of a person and are bounded jointly, by the supremum over two people's "
    "rows, so together they cost no more than the sum of what is listed for each"
)
_ONE_STEP = (
    "zCDP: the two stages add, and the second one's question was made of the first one's released answer; counts and "
    "sums of a stage come from the same rows of a person and are bounded jointly, so the counts cost nothing more"
)
_ONLINE = (
    "zCDP: all sums of one user's episode are bounded jointly, at their worst over two users' episodes, and cost the "
    "squared length of that episode in all that is ever released"
)
_SHUFFLED = "an exact accountant of the honest users' bits; every user is in one batch, so the costliest batch counts"
_HELD_OUT = (
    "zCDP: one part of the people learns, the other evaluates, and a keyed hash of the id says who is in which; a "
    "person pays for one part, or for leaving the one and joining the other, whichever is most; within a part the "
    "tables add, or are bounded jointly where they come from the same rows"
)
_BY_VARIANT = {"linear_quadratic": _LQ, "one_step": _ONE_STEP, "held_out": _HELD_OUT, "online": _ONLINE}
_HOW = {
    "central": "a trusted curator adds the noise once",
    "joint": "the server sees every episode and keeps noisy sums of them; policies are made of these alone, and a "
    "person's own episode is not hidden from the server",
    "local": "each person's device adds the noise before anything leaves it",
    "shuffle": "each device sends noisy bits, and a trusted shuffler hides whose they are",
}
_ON_DATES = (
    "who evaluates is in no leaf, by a keyed hash of the id, and evaluates on one date only, so that a person pays for "
    "the counter, for one evaluation, or for leaving one and joining another, whichever is most"
)
_IN_EPOCHS = (
    "the counts and sums of a stage come from the same rows of a person and are bounded jointly; a person is in one "
    "leaf, so the sums of all epochs cost as much as those of one; what is asked in an epoch was made of the answer "
    "that opened it, and the two stages add"
)
_COUNTER = (
    "zCDP: the counter was charged once, for every row that all its nights release; rhos of tables add, and a row that "
    "a died attempt may have drawn was charged again when it was drawn again"
)


def _all_of(release: Release, gate: Passed | None) -> tuple[tuple[Mechanism, ...], Fraction | None]:
    """All mechanisms that a page rests on, and what they cost together where some were bounded jointly."""
    mechanisms = (*release.mechanisms, *(gate.mechanisms if gate is not None else ()))
    if release.joint_rho is None or gate is None:
        return mechanisms, release.joint_rho
    return mechanisms, release.joint_rho + gate.rho


def guarantee(card: AnyCard, release: Release, calibration: str, asked: Body, gate: Passed | None = None) -> Guarantee:
    """The guarantee of one release, in numbers and in one plain sentence.

    Parameters
    ----------
    card
        Whose people are protected, and the delta of the lineage.
    release
        The noisy integers, with the mechanisms that made them.
    calibration
        ``tight`` or ``paper`` (design §4).
    asked
        What the recipe asked for: ``rho``, ``epsilon`` or ``delta``, those that it names.
    gate
        What was drawn before: whether there is a page at all tells its answer.

    Returns
    -------
    The ``guarantee`` of report.json and certificate.json.
    """
    mechanisms, joint = _all_of(release, gate)
    cost = spent_budget(mechanisms, card.budget.delta, joint)
    who = protected(card)
    claim = f"differential privacy for {'the people' if who == 'person' else f'each {who}'} in the log"
    if card.kind == "synthetic" or release.noise != "os":
        claim = NO_CLAIM
    told = {
        "sentence": _sentence(card, release, cost),
        "relation": release.relation,
        "unit": unit_sentence(card),
        "trust_model": release.trust_model if release.noise != "none" else "none",
        **cost,
        "asked": dict(asked),
        "calibration": calibration,
        "sampler": release.sampler,
        "data_kind": card.kind,
        "noise": release.noise,
        "claim": claim,
    }
    return Guarantee.model_validate(told if who == "person" else {**told, "protected": who})


def _sentence(card: AnyCard, release: Release, cost: SpentBudget) -> str:
    if release.noise == "none" or cost["epsilon"] is None or cost["delta"] is None:
        return "No privacy: the non-private baseline on exact counts of simulated data; nothing is promised to anyone."
    who = f"one {protected(card)}, meaning {unit_sentence(card)}"
    slip = "" if cost["pure"] else f", up to a probability of δ = {_slip(cost['delta'])}"
    rho = "" if cost["rho"] is None else f"ρ = {_up(cost['rho'])} zCDP; "
    how = _HOW[release.trust_model]
    if release.counter is not None:
        how = f"for all {release.counter['nights']} nights together; a trusted curator keeps the counter"
    promise = (
        f"Replacing {who}, by any other changes the probability of anything on this page by at most "
        f"a factor e^ε with ε = {_up(cost['epsilon'])}{slip} ({rho}{how})."
    )
    if release.noise != "os":
        return "Simulation, not private: the noise was seeded. With operating-system noise it would say: " + promise
    if card.kind == "synthetic":
        return "Simulated people, so nobody is promised anything; on real data the same release would say: " + promise
    return promise


def _up(loss: float) -> str:
    """Four significant digits, rounded up: a promise is never made better by printing it; binary dust is none."""
    with localcontext(prec=12):
        exact = +Decimal(repr(loss))
    with localcontext(prec=4, rounding=ROUND_CEILING):
        return f"{(+exact).normalize():f}"


def _slip(delta: float) -> str:
    """δ as the page prints it: 1e-6."""
    return f"{delta:g}".replace("e-0", "e-")


def _registry_entry(card: AnyCard, release: Release, promise: Guarantee, route: Route) -> RegistryEntry:
    """The same facts under the names of the proposed registry of differential-privacy deployments."""
    flavour = "pure differential privacy" if promise.pure else "zero-concentrated differential privacy"
    accounting = "exact rational rho, lifetime cap per dataset in a hash-chained ledger"
    if release.noise == "none":
        flavour, accounting = "none", "none: nothing was charged"
    elif route.by == "played":
        flavour = flavour if promise.rho is not None else "approximate differential privacy"
        accounting = "recomputed from what was drawn; a simulation, nothing was charged"
    return RegistryEntry(
        product=f"policy learnt from {card.name}",
        unit_of_privacy=promise.unit,
        flavour=flavour,
        epsilon=promise.epsilon,
        delta=promise.delta,
        rho=promise.rho,
        model=promise.trust_model,
        relation=promise.relation,
        accounting=accounting,
        implementation=f"reticent; {release.sampler}",
    )


def counter_facts(release: Release) -> CounterFacts | None:
    """Which counter, which step of it, and how noisy the step's sums are; None where it is no step of one.

    Parameters
    ----------
    release
        Of a step of a continual release.
    """
    if (told := release.counter) is None:
        return None
    return CounterFacts.model_validate(
        {
            **told,
            "standard_deviation": {m.table: m.standard_deviation for m in release.mechanisms},
            # variance beside one release of the step's sum at the same budget
            "times_one_release": told["cost"] * told["error"],
        }
    )


def certificate(
    card: AnyCard,
    release: Release,
    report: Report,
    intent: Entry | None,
    commit: Entry | None,
    digests: Mapping[str, str],
    looks: Sequence[Entry],
    gate: Passed | None = None,
    route: Route | None = None,
) -> Certificate:
    """``certificate.json``: what can be checked without the data.

    Parameters
    ----------
    card
        Of the dataset.
    release
        As it lies in the run's folder.
    report
        Whose guarantee and mechanisms it repeats.
    intent, commit
        The ledger's entries of the release, None where nothing was charged.
    digests
        sha256 of ``release``, ``policy`` and ``labels`` (policy.json); never of data.
    looks
        The lineage's INSPECT entries.
    gate
        See :func:`guarantee`.
    route
        How it was decided that the run exists, where release and INTENT do not tell it.
    """
    listed, together = _all_of(release, gate)
    rho = total_rho(listed) if together is None else together
    route = route or route_of(release, intent)
    joint = None if release.joint is None else Joint.model_validate(describe_joint(release))
    return Certificate(
        schema_version=1,
        dataset=card.name,
        guarantee=report.guarantee,
        rho_exact=None if rho is None else str(rho),
        mechanisms=report.mechanisms,
        **present(gate=report.gate, joint=joint, counter=report.counter),
        composition=_composition(release, joint),
        implementation=implementation(release, route),
        data=stewardship(card, route),
        assumptions=assumptions(card, looks, route),
        not_covered=list(NOT_COVERED),
        registry=_registry_entry(card, release, report.guarantee, route),
        ledger=None if commit is None else _entry(commit),
        sha256=dict(digests),
    )


def _entry(commit: Entry) -> Charged:
    """The COMMIT that a certificate rests on, and where the lineage stood then."""
    spent = commit.body["spent"]
    return Charged(
        entry=commit.seq,
        hash=commit.hash,
        at=commit.at,
        run_key=commit.body["run_key"],
        spent_rho_exact=spent,
        spent_rho=float(Fraction(spent)),
    )


def _composition(release: Release, joint: Joint | None) -> str:
    """How the losses of all tables become one."""
    if release.noise == "none":
        return "nothing is private, so nothing is added up"
    if any(m.shuffled is not None for m in release.mechanisms):
        return _SHUFFLED
    if release.counter is not None:
        told = {"held_out": _ON_DATES, "one_step": _IN_EPOCHS}
        return _COUNTER if joint is None else f"{_COUNTER}; {told[joint.variant or '']}"
    if joint is None:
        return _SEPARATE
    return _BY_VARIANT.get(joint.variant or "", _JOINT)
