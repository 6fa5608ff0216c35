"""Who says what a policy is worth, as a recipe has it: other people, a known world, and beside which earlier run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipeline.declaration.lineage import Dates
from pipeline.declaration.toml import Name, Strict
from pipeline.mdp.policy import Policy


class Evaluate(Strict):
    """What a policy is worth: measured on people who did not choose it, and exactly where a log's world is known.

    Parameters
    ----------
    people
        Share of the people who learn nothing and evaluate; 0: nobody, and nothing is measured.
    dates
        With [nightly], on which of its dates: as in [schedule].  A date whose night never ran is made up for.
    world, behaviour
        Of a synthetic log, names of the world and of its policy that made it; None: unknown.
    against
        Name of an earlier run of this home, whose policy those people are asked about as well; None: of none.
    least
        Of logged probabilities, declared: rows with one at least as large are weighed in full.  None: as far as the
        release has smaller ones too.
    probabilities
        ``released``: how likely practice was to do what it did, as the learning part's release has it; ``logged``: as
        each row of the evaluating part has it, in the column that the card maps to ``behavior_prob``.
    """

    later: ClassVar = {"people": 0.0, "dates": None, "against": None, "probabilities": "released", "least": None}
    people: Annotated[float, Field(ge=0, lt=1)] = 0.0
    dates: Dates | None = None
    world: str | None = None
    behaviour: str = "uniform"
    against: Name | None = None
    probabilities: Literal["released", "logged"] = "released"
    least: Annotated[float, Field(ge=1 / 64, le=1)] | None = None


@dataclass(frozen=True)
class Known:
    """A known world, and the name of its policy that made the log."""

    world: str
    behaviour: str


@dataclass(frozen=True)
class Earlier:
    """A run whose policy is in use, or was.

    Parameters
    ----------
    run
        Its name.
    policy
        State by state.
    """

    run: str
    policy: Policy
