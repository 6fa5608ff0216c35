"""How it was decided that a run exists, and what the certificate may therefore say of outputs (privacy.md §0.2-1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.ledger.chain import Entry
from pipeline.privacy.release import Release

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
                "every user comes once, with one episode; one who returns loses as much again for each episode",
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
