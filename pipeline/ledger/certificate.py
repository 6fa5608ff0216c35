"""The certificate: every mechanism with sensitivity and scale, what is assumed, what is not covered (design §5.3).

It is ordered as the pyramid of NIST SP 800-226: the loss and its unit on top, then what makes them true in the program
(algorithm, arithmetic, side channels), then the data: how it was collected and who can reach it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Any

from pipeline.declaration.card import AnyCard, LqCard
from pipeline.declaration.plugins import is_plugin
from pipeline.declaration.source import MADE, only_flags_part
from pipeline.ledger.chain import Entry
from pipeline.ledger.counter_facts import COUNTER_COMPOSITION, counted_once, counter_facts
from pipeline.ledger.inspection import inspection_sentences
from pipeline.privacy.budget import down, up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.release import Mechanism, Release, total_delta_slack, total_epsilon, total_rho
from pipeline.privacy.release_file import describe_joint


def spent_budget(mechanisms: Sequence[Mechanism], delta: float, joint: Fraction | None = None) -> dict[str, Any]:
    """``rho``, ``epsilon``, ``delta`` and ``pure`` of a list of mechanisms, rounded up; nulls where there is no noise.

    What a sampler adds to delta is taken from the ``delta`` of the conversion, so that ``delta`` holds in all.  Where
    the tables were bounded jointly, ``joint`` is what they cost together.
    """
    if joint is not None:
        left = down(Fraction(delta) - total_delta_slack(tuple(mechanisms)))
        return {"rho": up(joint), "epsilon": safe_epsilon(up(joint), left), "delta": delta, "pure": False}
    rho, pure = total_rho(tuple(mechanisms)), total_epsilon(tuple(mechanisms))
    if rho is None:
        return {"rho": None, "epsilon": None, "delta": None, "pure": False}
    if pure is not None:
        return {"rho": up(rho), "epsilon": up(pure), "delta": 0.0, "pure": True}
    left = down(Fraction(delta) - total_delta_slack(tuple(mechanisms)))
    return {"rho": up(rho), "epsilon": safe_epsilon(up(rho), left), "delta": delta, "pure": False}


def protected(card: AnyCard) -> str:
    """``person``; where the card says that its files name none, the record that it protects instead."""
    return card.unit.user if card.unit.user == MADE.get(card.source.format) else "person"


def unit_sentence(card: AnyCard) -> str:
    """Whose privacy, in words."""
    m = card.unit.episodes_per_user
    if (record := protected(card)) != "person":
        steps = "one step" if card.domain.horizon == 1 else f"at most {card.domain.horizon} steps"
        return f"all rows of one {record} ({steps}; somebody with several is protected as several)"
    episodes = "its one episode" if m == 1 else f"up to {m} of its episodes, the rest dropped before counting"
    steps = "one step" if card.domain.horizon == 1 else f"at most {card.domain.horizon} steps"
    return f"everything one {card.unit.user} contributed ({episodes}, {steps} each)"


def guarantee(card: AnyCard, release: Release, calibration: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The guarantee of one release, in numbers and in one plain sentence."""
    cost = spent_budget(release.mechanisms, card.budget.delta, release.joint_rho)
    synthetic = card.kind == "synthetic"
    return {
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
        "claim": "none (simulation)"
        if synthetic or release.noise != "os"
        else "differential privacy for "
        + ("the people" if (who := protected(card)) == "person" else f"each {who}")
        + " in the log",
        **({} if protected(card) == "person" else {"protected": protected(card)}),
    }


def _sentence(card: AnyCard, release: Release, cost: Mapping[str, Any]) -> str:
    if release.noise == "none":
        return "No privacy: the non-private baseline on exact counts of simulated data; nothing is promised to anyone."
    who = f"one {protected(card)}, meaning {unit_sentence(card)}"
    slip = "" if cost["pure"] else f", up to a probability of δ = {_slip(cost['delta'])}"
    how = "a trusted curator adds the noise once"
    if release.counter is not None:
        how = f"for all {release.counter['nights']} nights together; a trusted curator keeps the counter"
    promise = (
        f"Replacing {who}, by any other changes the probability of anything on this page by at most "
        f"a factor e^ε with ε = {_up(cost['epsilon'])}{slip} (ρ = {_up(cost['rho'])} zCDP; "
        f"{how})."
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


def assumptions(card: AnyCard, looks: Sequence[Entry], *, nightly: bool = False) -> list[str]:
    """What the guarantee rests on besides the mathematics; ``looks``: the lineage's INSPECT entries."""
    u = card.unit
    declared = "states, actions, horizon, reward range"
    if isinstance(card, LqCard):
        declared = "dimensions, balls and their scales, horizon, first state, noise and cost"
    whose = f"{u.user} identifies a person: two ids of one person are protected as two people"
    if (record := protected(card)) != "person":
        whose = f"the files name no people: one {record} is protected, and somebody with several as several"
    # a record that is gone would give the records behind it other numbers
    rows = "any other" if only_flags_part(card.source) else "any, or none"
    found = [
        whose,
        f"the number of people ({u.users_public}, declared) is public; one id's rows may be {rows}",
        f"the domain ({declared}) was declared without looking at this log, unless a line below says otherwise",
        "the curator's machine, its operators and its source of randomness are trusted",
    ]
    if is_plugin(card.source.format):
        found.append(
            f"the log was read by {card.source.format}, which is not code of Reticent: that it makes the rows of one "
            "person from this person's rows alone is the word of its author"
        )
    if isinstance(card, LqCard):
        found.append(
            "every row was shortened to its declared balls before it was summed: the loss rests on this cut alone, "
            "whatever the plant does"
        )
    if nightly:
        found += counted_once(card)
    elif u.recurs == "never":
        found.append("nobody returns in a later batch; whoever does is charged again, and the ledger adds it up")
    return found + inspection_sentences(card, looks)


JOINT_COMPOSITION = (
    "zCDP: steps add; the tables of one step come from one row a person and are bounded jointly, by the supremum over "
    "two people's rows, so together they cost no more than the sum of what is listed for each"
)
LQ_COMPOSITION = (
    "zCDP: both tables come from the same rows of a person and are bounded jointly, by the supremum over two people's "
    "rows, so together they cost no more than the sum of what is listed for each"
)
NOT_COVERED = (
    "what the people as a group have in common: that is what the policy is meant to learn",
    "people whose records depend on each other (households, contagion)",
    "side channels: run times, memory, the size of the store; and anyone inside the trust boundary",
    "anything else published from the same log outside this ledger",
    "what happens when the policy is used: its future patients are not in this log",
)


def implementation(release: Release) -> dict[str, str]:
    """The middle of the pyramid: why the program keeps what the mathematics promises."""
    exact = release.noise == "none"
    return {
        "algorithm": "each sensitivity is an integer computed from what the code sums, and proved by enumerating "
        "neighbouring logs in the project's tests; all that follows the release is post-processing and costs nothing",
        "floating_point": "no noise was drawn: nothing is private"
        if exact
        else f"integers only: exact sums in 64 bits plus exact discrete noise ({release.sampler}); "
        "no floating-point number lies on the path to the release",
        "side_channels": "run times, memory and file sizes of the store are not protected; errors name rules and "
        "places, never values; which outputs exist does not depend on the rows",
    }


def stewardship(card: AnyCard) -> dict[str, str]:
    """The base of the pyramid: what is known of the data's collection and of who can reach it."""
    return {
        "collection": "declared by the card and not checked by this program: how the log was collected, and whether "
        "its people agreed, is for whoever signs",
        "access": "raw rows and committed releases lie in the operator's store (mode 0700); what left it is "
        "the release of noisy integers, and all else in the run's folder was computed from that and from the card",
        "domain_hash": card.domain_hash(),
    }


def registry_entry(card: AnyCard, release: Release, promise: Mapping[str, Any]) -> dict[str, Any]:
    """The same facts under the names of the proposed registry of differential-privacy deployments."""
    return {
        "product": f"policy learnt from {card.name}",
        "unit_of_privacy": promise["unit"],
        "flavour": "pure differential privacy" if promise["pure"] else "zero-concentrated differential privacy",
        "epsilon": promise["epsilon"],
        "delta": promise["delta"],
        "rho": promise["rho"],
        "model": promise["trust_model"],
        "relation": promise["relation"],
        "accounting": "exact rational rho, lifetime cap per dataset in a hash-chained ledger",
        "implementation": f"reticent; {release.sampler}",
    }


def certificate(
    card: AnyCard,
    release: Release,
    promise: Mapping[str, Any],
    mechanisms: Sequence[Mapping[str, Any]],
    commit: Entry | None,
    digests: Mapping[str, str],
    looks: Sequence[Entry],
) -> dict[str, Any]:
    """``certificate.json``: what can be checked without the data.

    Parameters
    ----------
    promise
        From :func:`guarantee`.
    mechanisms
        As the release describes them.
    commit
        The ledger's COMMIT, None where nothing was charged.
    digests
        sha256 of ``release``, ``policy`` and ``labels`` (policy.json); never of data.
    looks
        The lineage's INSPECT entries.
    """
    rho = release.rho
    joint = {} if release.joint is None else {"joint": describe_joint(release)}
    counter = {} if release.counter is None else {"counter": counter_facts(release)}
    return {
        "schema_version": 1,
        "dataset": card.name,
        "guarantee": dict(promise),
        "rho_exact": None if rho is None else str(rho),
        "mechanisms": [dict(m) for m in mechanisms],
        **joint,
        **counter,
        "composition": COUNTER_COMPOSITION if counter else _composition(joint.get("joint")),
        "implementation": implementation(release),
        "data": stewardship(card),
        "assumptions": assumptions(card, looks, nightly=bool(counter)),
        "not_covered": list(NOT_COVERED),
        "registry": registry_entry(card, release, promise),
        "ledger": None
        if commit is None
        else {
            "entry": commit.seq,
            "hash": commit.hash,
            "at": commit.at,
            "run_key": commit.body["run_key"],
            "spent_rho_exact": commit.body["spent"],
            "spent_rho": float(Fraction(commit.body["spent"])),
        },
        "sha256": dict(digests),
    }


def _composition(joint: Mapping[str, Any] | None) -> str:
    if joint is None:
        return "zCDP: rhos add; pure losses add as epsilons"
    return LQ_COMPOSITION if joint["variant"] == "linear_quadratic" else JOINT_COMPOSITION
