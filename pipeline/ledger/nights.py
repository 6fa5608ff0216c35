"""What the ledger says of a nightly counter: charged once for all its nights, and again for rows that are redrawn.

The first INTENT of a counter pays for every row it will ever release.  A later night draws rows that nobody has drawn:
it charges nothing.  An attempt that died may have drawn, so whoever draws its rows again pays for them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from pipeline.ledger.account import commit_of, registration
from pipeline.ledger.chain import Entry, canonical
from pipeline.privacy.continual import continual
from pipeline.privacy.factorisation import squared_weights
from pipeline.privacy.release import Mechanism, total_rho
from pipeline.privacy.release_file import mechanism_from


@dataclass(frozen=True)
class Night:
    """A committed night: leaves ``since .. leaf`` became known, all but the last empty."""

    leaf: int
    since: int
    intent: Entry
    commit: Entry

    @property
    def attempt(self) -> int:
        """Number of the attempt whose draw stands."""
        return int(self.commit.body["attempt"])


def counter_key(
    lineage: str, domain_hash: str, counter: Mapping[str, Any], mechanisms: Sequence[Mapping[str, Any]]
) -> str:
    """Hex key of a counter: lineage, registered domain, dates and variances; the same recipe goes on with it.

    Parameters
    ----------
    counter
        ``kind``, ``nights`` and ``first`` (ISO date).
    mechanisms
        As :func:`~pipeline.privacy.release_file.describe_mechanism` describes them, on any night.
    """
    # the sampler's share of delta follows the cap of the lineage, the error follows the night
    known = [{k: v for k, v in m.items() if k not in ("delta_slack", "running", "scale")} for m in mechanisms]
    shape = [counter["kind"], counter["nights"], counter["first"]]
    table = ["table"] if any("delta_slack" in m for m in mechanisms) else []
    parts = [lineage, "counter", domain_hash, shape, known, table]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def counter_intents(entries: Sequence[Entry], lineage: str, key: str) -> list[Entry]:
    """All INTENTs of a counter, oldest first."""
    return [
        e
        for e in entries
        if e.lineage == lineage and e.kind == "INTENT" and e.body.get("counter", {}).get("key") == key
    ]


def committed_nights(entries: Sequence[Entry], lineage: str, key: str) -> list[Night]:
    """Committed nights of a counter, oldest first."""
    nights: list[Night] = []
    for intent in counter_intents(entries, lineage, key):
        commit = commit_of(entries, lineage, intent.body["run_key"])
        if commit is not None and commit.body["intent"] == intent.seq:
            nights.append(Night(intent.body["counter"]["night"], intent.body["counter"]["since"], intent, commit))
    return nights


def overtaken(entries: Sequence[Entry], lineage: str, counter: Mapping[str, Any]) -> Night | None:
    """A committed night of the same counter that a draw of ``since .. night`` does not strictly follow, or None.

    Two stores that share a ledger could otherwise both count the people of one night.
    """
    nights = committed_nights(entries, lineage, counter["key"])
    return next((n for n in nights if n.leaf >= counter["since"]), None)


def night_price(before: Sequence[Entry], counter: Mapping[str, Any], mechanisms: Sequence[Mechanism]) -> Fraction:
    """What a night costs beyond what its counter has been charged.

    Parameters
    ----------
    before
        INTENTs of the counter so far.
    counter
        As the INTENT describes it: ``kind``, ``nights``, ``since``, ``night``.
    mechanisms
        With their ``running`` cost.

    Raises
    ------
    ValueError
        If some mechanism has no Gaussian noise.
    """
    if not before:
        whole = total_rho(tuple(mechanisms))
        if whole is None:
            raise ValueError("a counter without noise is never charged")
        return whole
    maybe_drawn = {t for e in before for t in range(e.body["counter"]["since"], e.body["counter"]["night"] + 1)}
    again = sorted(maybe_drawn & set(range(counter["since"], counter["night"] + 1)))
    shape = continual(counter["kind"], counter["nights"])
    squares = squared_weights([row for t in again for row in shape.rows(t)])
    costs = [Fraction(squares * m.l2_squared, 2 * m.variance) for m in mechanisms if m.variance is not None]
    return sum(costs, Fraction(0))


def mispriced(entries: Sequence[Entry], lineage: str, key: str) -> Entry | None:
    """The first INTENT of a counter that charged less than :func:`night_price`, or whose night overlaps an earlier one.

    None where all is paid.
    """
    intents = counter_intents(entries, lineage, key)
    nights = sorted(committed_nights(entries, lineage, key), key=lambda n: n.commit.seq)
    for one, following in pairwise(nights):
        if following.since <= one.leaf:
            return following.intent
    for i, e in enumerate(intents):
        listed = [mechanism_from(m) for m in e.body["mechanisms"]]
        if Fraction(e.body["rho"]) < night_price(intents[:i], e.body["counter"], listed):
            return e
    return None


def miskeyed(entries: Sequence[Entry], lineage: str, key: str) -> Entry | None:
    """The first INTENT of a counter that is not of the counter it names, or None.

    Variances and sensitivities are part of the key: where every INTENT has its own, all nights drew the same noise.
    """
    for e in counter_intents(entries, lineage, key):
        registered = registration([r for r in entries if r.seq < e.seq], lineage) or {}
        domain_hash = str(registered.get("domain_hash"))
        if counter_key(lineage, domain_hash, e.body["counter"], e.body["mechanisms"]) != key:
            return e
    return None
