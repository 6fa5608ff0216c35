"""Knobs of the linear mixture agents: what a trial may set, what each is where nothing is said, and the tuned ones.

Where a value is called tuned it was chosen by ``python -P -m tests.campaigns.tune_online`` on seeds from 1000 on, none
of which any reported figure uses; its table is read by :mod:`pipeline.studies.paper_001`.  Choices after the noise
cost no privacy; ``growth`` and ``gram_share`` are fixed before anything is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pipeline.declaration.card import CardError
from pipeline.privacy.continual import Mechanism
from pipeline.simulation.trial import Plain, Trial, Trust
from pipeline.statistics.regularizers import Leaf, Shift

Bonus = float | Literal["theory", "paper-experiment", "tuned"]


@dataclass(frozen=True)
class Kind:
    """What tells one linear mixture agent from another.

    Parameters
    ----------
    trust
        Whom a user must trust.
    c
        The tuned c of the whole bonus.
    plain
        The same planner without noise.
    growth
        See :class:`Settings`; without noise a plan costs no more than its time.
    mirror
        Mirror descent instead of value iteration.
    """

    trust: Trust
    c: float
    plain: str | None = None
    growth: float = 1.02
    mirror: bool = False


KINDS: Mapping[str, Kind] = {
    "ucrl-vtr": Kind("none", 0.015, growth=1.005),
    "linopt-po": Kind("none", 0.01, mirror=True),
    "private-linopt-vi": Kind("joint", 0.0, "ucrl-vtr"),
    "private-linopt-po": Kind("joint", 0.0, "linopt-po", mirror=True),
    "ldp-ucrl-vtr": Kind("local", 0.0, "ucrl-vtr"),
}


@dataclass(frozen=True)
class Settings:
    """Knobs by name.

    Parameters
    ----------
    features
        ``block``: one Gram block a (s, a).  ``dense``: the same written out, as the papers print it.
    unit
        Whether regression rows come divided by the public norm of V.
    counter, leaf
        How joint privacy adds up episodes, and whether a leaf of it is an episode or all episodes of one policy.
    bonus
        c of the whole bonus, or ``theory``, ``paper-experiment``, ``tuned``.
    growth
        The policy is planned anew when the number of episodes has grown so many times.
    lam, shift, prior
        See :class:`~pipeline.statistics.regularizers.CountedRegularizer`.
    gram_share
        Of the privacy budget of one regression, for its Gram matrix.
    rewards
        ``known``, or ``learnt`` from two more counters with ``reward_share`` of the budget.
    eta
        Step of mirror descent: ``tuned``, ``paper``, or multiples of the paper's.
    """

    features: Literal["block", "dense"] = "block"
    unit: bool = True
    counter: Mechanism = "bottom-up"
    leaf: Leaf = "batch"
    bonus: Bonus = "tuned"
    growth: float = 1.02
    lam: float = 0.01
    shift: Shift = "floor"
    prior: float = 1.0
    gram_share: float = 0.2
    rewards: Literal["known", "learnt"] = "known"
    reward_share: float = 0.2
    eta: float | Literal["tuned", "paper"] = "tuned"


# what a paper prints: rows as they are, a plain tree over episodes; what follows the noise stays ours, to be fair
_PRINTED = Settings(unit=False, counter="plain", leaf="episode")
# without noise the prior would answer for unseen states, and the floor is zero
_PLAIN = Settings(prior=0.0)
_WORDS: Mapping[str, tuple[Any, ...]] = {
    "features": ("block", "dense"),
    "counter": ("bottom-up", "plain", "square-root"),
    "leaf": ("batch", "episode"),
    "shift": ("floor", "edge", "paper"),
    "rewards": ("known", "learnt"),
    "unit": (True, False),
}
_OR_NUMBER = {"bonus": ("theory", "paper-experiment", "tuned"), "eta": ("tuned", "paper")}


def settings_of(trial: Trial) -> Settings:
    """The trial's knobs, over the defaults of its calibration.

    Raises
    ------
    CardError
        If a knob is unknown, or its value is of another kind.
    """
    base = {"paper": _PRINTED, None: _PLAIN}.get(trial.calibration, Settings())
    base = replace(base, growth=KINDS[trial.agent].growth)
    knobs = {key: value for key, value in trial.knobs.items() if key != "of"}
    replace(trial, options=tuple(knobs.items())).over(defaults_of(trial.agent))
    for key, value in knobs.items():
        if key in _WORDS and value not in _WORDS[key]:
            raise CardError(f"{trial.agent}: {key} is one of {_WORDS[key]}; got {value!r}")
        number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if key not in _WORDS and not number and value not in _OR_NUMBER.get(key, ()):
            raise CardError(f"{trial.agent}: {key} is a number, at least 0; got {value!r}")
    return replace(base, **knobs)


def defaults_of(agent: str) -> dict[str, Plain]:
    """Every option of an agent with its default, where the calibration is tight."""
    return asdict(replace(Settings(), growth=KINDS[agent].growth))


def variant_of(trial: Trial, s: Settings) -> str:
    """The words that tell one way to run an agent from another."""
    words = ["unit" if s.unit else "as printed", s.features]
    if KINDS[trial.agent].trust == "joint":
        words.append(f"{s.counter} over {'batches' if s.leaf == 'batch' else 'episodes'}")
    return ", ".join([*words, f"rewards {s.rewards}"])


def constants_of(trial: Trial, s: Settings, c: float | str) -> str:
    """Everything that was chosen, in a line."""
    said = c if isinstance(c, str) else f"{c:g}"
    preset = f" ({s.bonus})" if s.bonus == "tuned" else ""
    words = [f"c {said}{preset}", f"growth {s.growth:g}", f"lambda {s.lam:g}"]
    if trial.epsilon is not None:
        words += [f"{s.shift}", f"prior {s.prior:g}"]
        words += [f"gram share {s.gram_share:g}"] if trial.calibration == "tight" else []
    if KINDS[trial.agent].mirror:
        words.append(f"eta {s.eta if isinstance(s.eta, str) else f'{s.eta:g} x paper'}")
    return ", ".join(words)
