"""What a guarantee rests on and what it does not cover, in sentences: the words of certificate and report.

How it was decided that a run exists decides what may be said of outputs (privacy.md §0.2-1).  Looking at raw data costs
no budget; these sentences say that it happened (§0.1-16).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.declaration.card import AnyCard
from pipeline.declaration.code import is_plugin
from pipeline.declaration.source import MADE, only_flags_part
from pipeline.ledger.account import card_hash
from pipeline.ledger.chain import Body, Entry
from pipeline.privacy.release import Release
from reports.facts.report import Implementation, Stewardship

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
    """The declaration that a release rests on.

    Parameters
    ----------
    by
        ``hand``: somebody asked for it; ``calendar``: it was due on a date of the recipe's [schedule]; ``counter``: it
        is a night of the recipe's [nightly]; ``exact``: it has no noise, so it protects nobody; ``played``: an online
        agent was played in a known world, and there are no rows.
    due
        The date of the calendar (ISO); empty for all others.
    """

    by: Literal["hand", "calendar", "counter", "exact", "played"]
    due: str = ""

    @property
    def outputs(self) -> str:
        """Whether the rows decide which outputs exist."""
        if self.by == "exact":
            return "nothing here is private: every output depends on the rows"
        if self.by == "played":
            return "there are no rows: recipe and seed alone decide every output"
        declared = {
            "hand": "every ingest makes an edition, whatever came in, and somebody asked for this run of one",
            "calendar": f"every night makes an edition, whatever came in, and a release was due on {self.due}",
            "counter": "every date on which the job ran has its night, whatever came in",
        }[self.by]
        return f"which outputs exist does not depend on the rows: {declared}"

    @property
    def assumed(self) -> list[str]:
        """What an operator decides on this route, as assumptions."""
        if self.by == "hand":
            return [
                "that the log was ingested and this edition run is the choice of whoever did it; a choice made because "
                "of what the terminal told them of the rows is not accounted for",
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

    Parameters
    ----------
    release
        As it lies in the store.
    intent
        The entry that paid for it; None where nothing was charged.
    """
    if release.noise == "none":
        return Route("exact")
    if release.counter is not None:
        return Route("counter")
    due = "" if intent is None else str(intent.body.get("due", ""))
    return Route("calendar", due) if due else Route("hand")


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


def assumptions(card: AnyCard, looks: Sequence[Entry], route: Route) -> list[str]:
    """What the guarantee rests on besides the mathematics.

    Parameters
    ----------
    card
        Of the dataset.
    looks
        The lineage's INSPECT entries.
    route
        How it was decided that the run exists.
    """
    u = card.unit
    whose = f"{u.user} identifies a person: two ids of one person are protected as two people"
    if (record := protected(card)) != "person":
        whose = f"the files name no people: one {record} is protected, and somebody with several as several"
    # a record that is gone would give the records behind it other numbers
    rows = "any other" if only_flags_part(card.source) else "any, or none"
    found = [
        whose,
        f"the number of people ({u.users_public}, declared) is public; one id's rows may be {rows}",
        f"the domain ({card.declares}) was declared without looking at this log, unless a line below says otherwise",
        "the curator's machine, its operators and its source of randomness are trusted",
    ]
    if route.by == "played":
        return [found[1], *route.assumed]
    if is_plugin(card.source.format):
        found.append(
            f"the log was read by {card.source.format}, which is not code of Reticent: that it makes the rows of one "
            "person from this person's rows alone is the word of its author"
        )
    found += card.bounded
    if route.by == "counter":
        found.append(_counted_once(card))
    elif route.by == "hand" and u.recurs == "never":
        found.append("nobody returns in a later batch; whoever does is charged again, and the ledger adds it up")
    return found + route.assumed + _inspection_sentences(card, looks)


def _counted_once(card: AnyCard) -> str:
    """Who counts at which step."""
    m = card.unit.episodes_per_user
    return (
        "a person counts on the first night that brings rows of theirs; what comes later, corrections included, is "
        "dropped by a keyed hash on the operator's side"
        if card.unit.recurs == "never"
        else f"a person counts with at most {m} episodes over all nights, each as it was first delivered, by keyed "
        "hashes on the operator's side"
    )


def _inspection_sentences(card: AnyCard, looks: Sequence[Entry]) -> list[str]:
    """What a certificate must say of the INSPECT entries of its lineage; nothing where nobody looked."""
    if not looks:
        return []
    drafts = [e for e in looks if "drafted" in e.body]
    inspected = [e for e in looks if e not in drafts]
    found = [
        f"the card was proposed from this log with `reticent draft` (entry {e.seq}): "
        f"{', '.join(e.body['from_data']) or 'no key'} of it may depend on people's records, which no budget covers"
        for e in drafts
    ]
    if inspected:
        found.append(
            f"somebody looked at the data with `reticent inspect` ({_named(inspected)}); "
            "what they chose afterwards, such as this recipe, is not accounted for"
        )
    now = card_hash(card), card.domain_hash()
    if before := [e for e in looks if (e.body["card_hash"], e.body["domain_hash"]) != now]:
        found.append(
            f"the card was changed after somebody had looked at the data ({_named(before)}): "
            "what it declares may then depend on people's records, which no budget covers"
        )
    return found


def draft_of(card: AnyCard, looks: Sequence[Entry]) -> Body | None:
    """What INSPECT says of a card that was proposed by looking at its log; None where it was not, or that stands.

    Parameters
    ----------
    card
        Its [provenance] says which keys depend on the log.
    looks
        The lineage's INSPECT entries.
    """
    if card.provenance is None:
        return None
    told = {"drafted": card.provenance.drafted, "from_data": card.provenance.from_data}
    if any(told.items() <= e.body.items() for e in looks):
        return None
    return {"snapshot": 0, "domain_hash": card.domain_hash(), "card_hash": card_hash(card), "rho": "0", **told}


def _named(looks: Sequence[Entry]) -> str:
    """Numbers of the entries, as a person reads them."""
    return f"{'entry' if len(looks) == 1 else 'entries'} {', '.join(str(e.seq) for e in looks)}"


def implementation(release: Release, route: Route) -> Implementation:
    """The middle of the pyramid: why the program keeps what the mathematics promises.

    Parameters
    ----------
    release
        Says which sampler drew its noise, if any, and whether earlier answers chose later questions.
    route
        How it was decided that the run exists.
    """
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
    """The base of the pyramid: what is known of the data's collection and of who can reach it."""
    collection = (
        "declared by the card and not checked by this program: how the log was collected, and whether its people "
        "agreed, is for whoever signs"
    )
    if card.kind == "synthetic":
        collection = "declared by the card as simulated, and not checked by this program: there is nobody to ask"
    if route.by == "played":
        return Stewardship(
            collection="there are no rows: users and their episodes were drawn in a known world",
            access="nobody's data lies anywhere; all in the run's folder was computed from recipe and seed",
            domain_hash=card.domain_hash(),
        )
    left = "exact sums of simulated people" if route.by == "exact" else "the release of noisy integers"
    kept = ", with a counter's exact sums and the hashes of who was counted" * (route.by == "counter")
    return Stewardship(
        collection=collection,
        access=f"raw rows and committed releases lie in the operator's store (mode 0700){kept}; what left it is "
        f"{left}, and all else in the run's folder was computed from that and from the card",
        domain_hash=card.domain_hash(),
    )
