"""The certificate: every mechanism with sensitivity and scale, what is assumed, what is not covered (design §5.3).

It is ordered as the pyramid of NIST SP 800-226: the loss and its unit on top, then what makes them true in the program
(algorithm, arithmetic, side channels), then the data: how it was collected and who can reach it.

Assumptions of a guarantee and what it does not cover, as the sentences of certificate and report.

Which outputs may depend on the rows follows from how it was decided that a run exists (privacy.md §0.2-1).  Looking at
raw data costs no budget; these sentences report it (§0.1-16).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Literal

from pipeline.declaration import code, source
from pipeline.declaration.card import AnyCard, Card
from pipeline.declaration.domain import RECORDED
from pipeline.facts.promise import CounterFacts, Guarantee, Joint, present
from pipeline.facts.report import Certificate, Charged, Implementation, RegistryEntry, Report, Stewardship
from pipeline.ledger.account import card_hash, look_fields
from pipeline.ledger.attempts import Passed
from pipeline.ledger.chain import Body, Entry
from pipeline.privacy import losses, release_file
from pipeline.privacy.release import Mechanism, Release, total_rho

NOT_COVERED = (
    "what the people as a group have in common: that is what the policy is meant to learn",
    "people whose records depend on each other (households, contagion)",
    "side channels: run times, memory, the size of the store; and anyone inside the trust boundary",
    "anything else published from the same log outside this ledger",
    "one person whose rows exhaust memory, disk or time; and a line break inside a field, by which one person's text "
    "could begin another's record",
    "what happens when the policy is used: its future patients are not in this log",
)


_UNREAD = (
    "whether its files could be read at all (there, whole, with the declared columns) is the operator's doing and "
    "public; where a night could not read them, the rows of the last good edition stand in"
)


@dataclass(frozen=True)
class Route:
    """How it was decided that a release exists.

    ``by``: ``hand``: somebody asked for it; ``calendar``: it was due on a date of the recipe's [schedule]; ``counter``:
    it is a night of the recipe's [nightly]; ``exact``: it has no noise, so it protects nobody; ``played``: an online
    agent was played in a known world, and there are no rows.
    ``due``: the date of the calendar (ISO); empty for all others.
    """

    by: Literal["hand", "calendar", "counter", "exact", "played"]
    due: str = ""

    @property
    def outputs(self) -> str:
        """Sentence on whether the rows decide which outputs exist."""
        free = "which outputs exist does not depend on the rows"
        return {
            "exact": "nothing here is private: every output depends on the rows",
            "played": "there are no rows: recipe and seed alone decide every output",
            "hand": f"{free}: every ingest makes an edition, whatever came in, and somebody asked for this run of one",
            "calendar": f"{free}: every night makes an edition, whatever came in, and a release was due on {self.due}",
            "counter": f"{free}: every date on which the job ran has its night, whatever came in",
        }[self.by]

    @property
    def assumed(self) -> list[str]:
        """Assumptions on the operator's decisions on this route."""
        if self.by == "hand":
            return [
                "that the log was ingested and this edition run is the choice of whoever did it; a choice made because "
                "of what the terminal told them of the rows is not accounted for"
            ]
        if self.by == "calendar":
            return [
                "the dates of the calendar were declared without looking at this log; at each of them everybody in the "
                "log is charged again, and the ledger adds it up",
                f"on which dates the job ran, and {_UNREAD}",
            ]
        if self.by == "played":
            return [
                "this is a simulation on seeded noise: what is stated here is what the very mechanism would promise in "
                "a deployment that draws its noise from the operating system and computes on integers",
                "nobody has more episodes than the protected unit says; who has more is promised less",
                "policies are made of released sums alone; when one changes is declared or follows from them",
            ]
        return [f"when the counter began, on which dates it ran, and {_UNREAD}"] if self.by == "counter" else []


def route_of(release: Release, intent: Entry | None) -> Route:
    """The route of a release.

    ``intent``: the entry that paid for it; None where nothing was charged.
    """
    if release.noise == "none":
        return Route("exact")
    if release.counter is not None:
        return Route("counter")
    due = "" if intent is None else str(intent.body.get("due", ""))
    return Route("calendar", due) if due else Route("hand")


def protected(card: AnyCard) -> str:
    """``person``; where the card says that its files name none, the record that it protects instead."""
    return card.unit.user if card.unit.user == source.MADE.get(card.source.format) else "person"


def unit_sentence(card: AnyCard) -> str:
    """The protected unit, in words."""
    m = card.unit.episodes_per_user
    if (record := protected(card)) != "person":
        steps = "one step" if card.domain.horizon == 1 else f"at most {card.domain.horizon} steps"
        return f"all rows of one {record} ({steps}; somebody with several is protected as several)"
    episodes = "its one episode" if m == 1 else f"up to {m} of its episodes, the rest dropped before counting"
    steps = "one step" if card.domain.horizon == 1 else f"at most {card.domain.horizon} steps"
    return f"everything one {card.unit.user} contributed ({episodes}, {steps} each)"


def assumptions(card: AnyCard, looks: Sequence[Entry], route: Route, reserve: Fraction = Fraction(0)) -> list[str]:
    """Assumptions of the guarantee besides the mathematics, as sentences.

    ``reserve``: share of the people who never teach.
    """
    u = card.unit
    whose = f"{u.user} identifies a person: two ids of one person are protected as two people"
    if (record := protected(card)) != "person":
        whose = f"the files name no people: one {record} is protected, and somebody with several as several"
    # a record that is gone would give the records behind it other numbers
    rows = "any other" if source.only_flags_part(card.source) else "any, or none"
    sentences = [
        whose,
        f"the number of people ({u.users_public}, declared) is public; one id's rows may be {rows}",
        f"the domain ({card.declares}) was declared without looking at this log, unless a line below says otherwise",
        "the curator's machine, its operators and its source of randomness are trusted",
    ]
    if route.by == "played":
        return [sentences[1], *route.assumed]
    if code.is_plugin(card.source.format):
        sentences.append(
            f"the log was read by {card.source.format}, which is not code of Reticent: that it makes the rows of one "
            "person from this person's rows alone is the word of its author"
        )
    if reserve:
        sentences.append(
            f"{float(reserve):g} of the people, by a keyed hash of their id, teach in no release of this ledger: they "
            "are kept to judge what the others taught"
        )
    sentences += card.bounded
    if route.by == "counter":
        sentences.append(_counted_once(card))
    elif route.by == "hand" and u.recurs == "never":
        sentences.append("nobody returns in a later batch; whoever does is charged again, and the ledger adds it up")
    return sentences + route.assumed + _inspection_sentences(card, looks)


def _counted_once(card: AnyCard) -> str:
    """Sentence on the step at which a person counts."""
    m = card.unit.episodes_per_user
    return (
        "a person counts on the first night that brings rows of theirs; what comes later, corrections included, is "
        "dropped by a keyed hash on the operator's side"
        if card.unit.recurs == "never"
        else f"a person counts with at most {m} episodes over all nights, each as it was first delivered, by keyed "
        "hashes on the operator's side"
    )


def _inspection_sentences(card: AnyCard, looks: Sequence[Entry]) -> list[str]:
    """Sentences on INSPECT entries, of the card's lineage and of others that may hold its people; empty without any."""
    elsewhere, looks = [e for e in looks if e.lineage != card.name], [e for e in looks if e.lineage == card.name]
    drafts = [e for e in looks if "drafted" in e.body]
    inspected = [e for e in looks if e not in drafts]
    sentences = [
        f"the card was proposed from this log with `reticent draft` (entry {e.seq}): "
        f"{', '.join(e.body['from_data']) or 'no key'} of it may depend on people's records, which no budget covers"
        for e in drafts
    ]
    if elsewhere:
        names = ", ".join(sorted({e.lineage for e in elsewhere}))
        sentences.append(
            f"somebody looked at the data of {names} ({_named(elsewhere)}), whose people may be the same: what card "
            "and recipe took from that is not accounted for"
        )
    if inspected:
        sentences.append(
            f"somebody looked at the data with `reticent inspect` ({_named(inspected)}); "
            "what they chose afterwards, such as this recipe, is not accounted for"
        )
    digests = card_hash(card), card.domain_hash()
    if earlier := [e for e in looks if (e.body["card_hash"], e.body["domain_hash"]) != digests]:
        sentences.append(
            f"the card was changed after somebody had looked at the data ({_named(earlier)}): "
            "what it declares may then depend on people's records, which no budget covers"
        )
    return sentences


def draft_of(card: AnyCard, looks: Sequence[Entry]) -> Body | None:
    """Body of INSPECT for a card that was proposed from its log; None where it was not, or an entry says so."""
    if card.provenance is None:
        return None
    provenance = {"drafted": card.provenance.drafted, "from_data": card.provenance.from_data}
    if any(provenance.items() <= e.body.items() for e in looks):
        return None
    return {**look_fields(card, 0), **provenance}


def _named(looks: Sequence[Entry]) -> str:
    """Numbers of the entries, in words."""
    return f"{'entry' if len(looks) == 1 else 'entries'} {', '.join(str(e.seq) for e in looks)}"


def implementation(release: Release, route: Route) -> Implementation:
    """The middle of the pyramid: algorithm, arithmetic and side channels of the program."""
    exact, adaptive = release.noise == "none", (release.joint or {}).get("variant") in ("paper", "centred")
    algorithm = (
        "exact sums of simulated people, for comparison: no noise, so no sensitivity is claimed"
        if exact
        else "each sensitivity is an integer computed from what the code sums, and proved by enumerating neighbouring "
        "logs in the project's tests; "
        + ("later questions were made from earlier answers, as the mechanism allows; " if adaptive else "")
        + "all that follows the release is post-processing and costs nothing"
    )
    drawn = "discrete noise within the δ that is listed for it" if release.delta_slack else "exact discrete noise"
    floating = (
        "no noise was drawn: nothing is private"
        if exact
        else "every row is rounded to declared integers by itself, before it is summed; then integers only: exact sums "
        f"in 64 bits plus {drawn} ({release.sampler})"
    )
    if adaptive:
        floating += "; later questions are computed in floating point and rounded to a lattice before they meet a row"
    if route.by == "played" and not exact:
        floating = (
            "messages are rounded to declared integers before they are summed; the noise is seeded and sums are read "
            "in floating point: a simulation"
        )
    if route.by == "counter":
        floating += "; the sum of all nights is read off noisy integers alone"
    return Implementation(
        algorithm=algorithm,
        floating_point=floating,
        side_channels="run times, memory and file sizes of the store are not protected; errors name rules and places, "
        f"never values; {route.outputs}",
    )


def stewardship(card: AnyCard, route: Route) -> Stewardship:
    """The base of the pyramid: how the data were collected, and who can reach them."""
    collection = (
        "declared by the card and not checked by this program: how the log was collected, and whether its people "
        "agreed, is for whoever signs"
    )
    if card.kind == "synthetic":
        collection = "declared by the card as simulated, and not checked by this program: there is nobody to ask"
    if isinstance(card, Card) and card.domain.practice is not None:
        collection += f"; {RECORDED}"
    if route.by == "played":
        return Stewardship(
            collection="there are no rows: users and their episodes were drawn in a known world",
            access="nobody's data lies anywhere; all in the run's folder was computed from recipe and seed",
            domain_hash=card.domain_hash(),
        )
    output = "exact sums of simulated people" if route.by == "exact" else "the release of noisy integers"
    counter_part = ", with a counter's exact sums and the hashes of who was counted" * (route.by == "counter")
    return Stewardship(
        collection=collection,
        access=f"raw rows and committed releases lie in the operator's store (mode 0700){counter_part}; what left it "
        f"is {output}, and all else in the run's folder was computed from that and from the card",
        domain_hash=card.domain_hash(),
    )


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
_COUNTER = (
    "zCDP: the counter was charged once, for every row that all its nights release; rhos of tables add, and a row that "
    "a died attempt may have drawn was charged again when it was drawn again"
)


def _all_of(release: Release, gate: Passed | None) -> tuple[tuple[Mechanism, ...], Fraction | None]:
    """All mechanisms of release and gate, and their joint cost where some were bounded jointly; else None."""
    mechanisms = (*release.mechanisms, *(gate.mechanisms if gate is not None else ()))
    if release.joint_rho is None or gate is None:
        return mechanisms, release.joint_rho
    return mechanisms, release.joint_rho + gate.rho


def guarantee(card: AnyCard, release: Release, calibration: str, asked: Body, gate: Passed | None = None) -> Guarantee:
    """The guarantee of one release, in numbers and in one plain sentence.

    ``release``: the noisy integers, with the mechanisms that made them.
    ``calibration``: ``tight`` or ``paper`` (design §4).
    """
    mechanisms, joint = _all_of(release, gate)
    cost = losses.spent_budget(mechanisms, card.budget.delta, joint)
    who = protected(card)
    claim = f"differential privacy for {'the people' if who == 'person' else f'each {who}'} in the log"
    if card.kind == "synthetic" or release.noise != "os":
        claim = NO_CLAIM
    facts = {
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
        **present(protected=None if who == "person" else who),
    }
    return Guarantee.model_validate(facts)


def _sentence(card: AnyCard, release: Release, cost: losses.SpentBudget) -> str:
    if release.noise == "none" or cost["epsilon"] is None or cost["delta"] is None:
        return "No privacy: the non-private baseline on exact counts of simulated data; nothing is promised to anyone."
    who = f"one {protected(card)}, meaning {unit_sentence(card)}"
    # 1e-6, where Python writes 1e-06
    delta = f"{cost['delta']:g}".replace("e-0", "e-")
    failure = "" if cost["pure"] else f", up to a probability of δ = {delta}"
    rho = "" if cost["rho"] is None else f"ρ = {_rounded_up(cost['rho'])} zCDP; "
    how = _HOW[release.trust_model]
    if release.counter is not None:
        how = f"for all {release.counter['nights']} nights together; a trusted curator keeps the counter"
    promise = (
        f"Replacing {who}, by any other changes the probability of anything on this page by at most "
        f"a factor e^ε with ε = {_rounded_up(cost['epsilon'])}{failure} ({rho}{how})."
    )
    if release.noise != "os":
        return "Simulation, not private: the noise was seeded. With operating-system noise it would say: " + promise
    if card.kind == "synthetic":
        return "Simulated people, so nobody is promised anything; on real data the same release would say: " + promise
    return promise


def _rounded_up(loss: float) -> str:
    """Four significant digits, rounded up, so that no loss is printed too small."""
    with localcontext(prec=12):
        exact = +Decimal(repr(loss))
    with localcontext(prec=4, rounding=ROUND_CEILING):
        return f"{(+exact).normalize():f}"


def _registry_entry(card: AnyCard, release: Release, promise: Guarantee, route: Route) -> RegistryEntry:
    """The guarantee under the names of the proposed registry of differential-privacy deployments."""
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
    """Counter and step of a release, and the noise of its sums; None where it is no step of a counter."""
    if (counter := release.counter) is None:
        return None
    return CounterFacts.model_validate(
        {
            **counter,
            "standard_deviation": {m.table: m.standard_deviation for m in release.mechanisms},
            # variance beside one release of the step's sum at the same budget
            "times_one_release": counter["cost"] * counter["error"],
        }
    )


def joint_of(release: Release) -> Joint | None:
    """The joint bound of a release's tables, where they have one."""
    return None if release.joint is None else Joint.model_validate(release_file.describe_joint(release))


def certificate(
    card: AnyCard,
    release: Release,
    report: Report,
    route: Route,
    commit: Entry | None,
    digests: Mapping[str, str],
    gate: Passed | None = None,
) -> Certificate:
    """Contents of ``certificate.json``: all that can be checked without the data.

    ``commit``: the ledger's entry of the release, None where nothing was charged.
    ``digests``: sha256 of ``release``, ``policy`` and ``labels`` (policy.json); never of data.
    """
    mechanisms, joint_rho = _all_of(release, gate)
    rho = total_rho(mechanisms) if joint_rho is None else joint_rho
    joint = joint_of(release)
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
        assumptions=report.assumptions,
        not_covered=list(NOT_COVERED),
        registry=_registry_entry(card, release, report.guarantee, route),
        ledger=None if commit is None else _entry(commit),
        sha256=dict(digests),
    )


def _entry(commit: Entry) -> Charged:
    """The COMMIT of a certificate, with the spending of the lineage up to it."""
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
    """Sentence on how the losses of all tables compose."""
    if release.noise == "none":
        return "nothing is private, so nothing is added up"
    if any(m.shuffled is not None for m in release.mechanisms):
        return _SHUFFLED
    if release.counter is not None:
        return _COUNTER
    if joint is None:
        return _SEPARATE
    return _BY_VARIANT.get(joint.variant or "", _JOINT)
