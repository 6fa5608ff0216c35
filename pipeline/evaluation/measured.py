"""What an evaluation on other people says of a policy: released and declared values only, no rows.

People are split by a keyed hash of their id.  One part learns; the other part, which the policy has never seen, says
what it is worth, what current practice is worth, and what the difference is.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Interval:
    """A two-sided interval and the estimate inside it.

    Parameters
    ----------
    estimate, lower, upper
        In reward units.
    """

    estimate: float
    lower: float
    upper: float

    def __post_init__(self) -> None:
        """Refuse ends that do not hold the estimate between them."""
        if not self.lower <= self.estimate <= self.upper:
            raise ValueError(f"lower <= estimate <= upper; got {self.lower}, {self.estimate}, {self.upper}")


@dataclass(frozen=True)
class Diagnostic:
    """A number that says how far an estimate can be relied on.

    Parameters
    ----------
    name
        As obp and SCOPE-RL call it: ``effective sample size``.
    value
        The number; its unit belongs to the name.
    price
        What it cost in zCDP beside the rest of the release; 0 where it follows from what was released anyway.
    """

    name: str
    value: float
    price: Fraction = Fraction(0)


@dataclass(frozen=True)
class Against:
    """The policy beside that of another run, paired.

    Parameters
    ----------
    run
        Its name.
    improvement
        What each person would gain over that policy, on average.
    """

    run: str
    improvement: Interval


@dataclass(frozen=True)
class Evaluated:
    """What a policy is worth, measured on people who did not choose it.

    Parameters
    ----------
    estimator
        ``tabular-dr``, ``one-step-dr`` or ``linear-dr``; of the outer two also with ``-logged`` behind.
    people
        Released number of people of the evaluation part: noisy, never the true one.
    share
        Of all people, declared: ``[evaluate] people``.
    level
        Of each two-sided interval, the correction for repeated evaluations included.
    look
        Which evaluation on this lineage this is, from 1, as the ledger counts them.
    value, practice
        Mean return a person under the policy, and the measured mean of people's own returns.
    improvement
        Of the policy over practice: the mean of what each person would gain, paired.
    half_width
        Of the interval of an improvement that lies above 0; another one is wider.
    placebo
        z of a sum that must come out zero if the declared state holds all that drives both treatment and outcome; None
        where none was released.  Beyond 4 on either side the answer is withheld.
    hidden
        The largest gain, reward units, that state outside of the declared one may make unseen: a larger one the placebo
        would have shown in 19 of 20 runs.  None where nobody measured how the two go together.
    calibrated
        Whether coverage was measured with this very code over a range that holds this run; else the interval is one of
        the model alone (status ``modelled``).
    changes
        False: the policy is practice everywhere, and nothing changes.
    person_variance
        Of one person's paired difference, in squared reward units; from it follow the people that would be needed.
    noise_variance
        Of the estimated improvement, by the privacy noise alone, at this rho and number of people.
    diagnostics
        What else was released, or follows from it.
    against
        The policy beside that of another run; None where nobody was asked about one.
    ratios
        z of what people's weights exceed their mean by, which logged probabilities determine: 0 if these are right, and
        few weights are cut.  None where they are not used.  Beyond 4 on either side the answer is withheld.
    """

    estimator: str
    people: float
    share: float
    level: float
    look: int
    value: Interval
    practice: Interval
    improvement: Interval
    half_width: float
    placebo: float | None
    hidden: float | None
    calibrated: bool
    changes: bool
    person_variance: float
    noise_variance: float
    diagnostics: tuple[Diagnostic, ...] = ()
    against: Against | None = None
    ratios: float | None = None
