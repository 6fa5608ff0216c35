"""Knobs of the linear mixture agents: what a trial may set, what each is where nothing is said, and the tuned ones.

Where a value is called tuned it was chosen by ``python -P -m tests.campaigns.tune_online`` on seeds from 1000 on, none
of which any reported figure uses; its table is read by :mod:`pipeline.studies.paper_001`.  Choices after the noise
cost no privacy; ``growth`` and ``gram_share`` are fixed before anything is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pipeline.agents.linopt_po import TUNED_STEP
from pipeline.declaration.card import CardError
from pipeline.privacy.continual import Mechanism
from pipeline.simulation.trial import Plain, Preset, Trial, Trust
from pipeline.statistics.regularizers import Leaf, Shift


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
    page
        The paper that prints it.
    """

    trust: Trust
    c: float
    plain: str | None = None
    growth: float = 1.02
    mirror: bool = False
    page: Literal["000", "001"] = "000"


KINDS: Mapping[str, Kind] = {
    "ucrl-vtr": Kind("none", 0.015, growth=1.005, page="001"),
    "linopt-po": Kind("none", 0.01, mirror=True),
    "private-linopt-vi": Kind("joint", 0.0, "ucrl-vtr"),
    "private-linopt-po": Kind("joint", 0.0, "linopt-po", mirror=True),
    "ldp-ucrl-vtr": Kind("local", 0.0, "ucrl-vtr", page="001"),
}


@dataclass(frozen=True)
class Settings:
    """Knobs by name.

    Parameters
    ----------
    constants
        ``practical``: the values below, ``bonus`` and ``eta`` tuned.  ``paper``: as the pseudo-code prints them (see
        :func:`printed`); a value that is given stays.
    features
        ``block``: one Gram block a (s, a).  ``dense``: the same written out, as the papers print it.
    unit
        Whether regression rows come divided by the public norm of V.
    counter, leaf
        How joint privacy adds up episodes, and whether a leaf of it is an episode or all episodes of one policy.
    bonus
        c, which multiplies the bonus; None: tuned, or 1 as printed.
    growth
        The policy is planned anew when the number of episodes has grown so many times.
    lam
        λ in squares of the longest row; None: 1 where values are at most H, as printed.
    shift, prior
        See :class:`~pipeline.statistics.regularizers.CountedRegularizer`.
    gram_share
        Of the privacy budget of one regression, for its Gram matrix.
    rewards
        ``known``, or ``learnt`` from two more counters with ``reward_share`` of the budget.
    eta
        Step of mirror descent, in multiples of the paper's.
    """

    constants: Preset = "practical"
    features: Literal["block", "dense"] = "block"
    unit: bool = True
    counter: Mechanism = "bottom-up"
    leaf: Leaf = "batch"
    bonus: float | None = None
    growth: float = 1.02
    lam: float | None = 0.01
    shift: Shift = "floor"
    prior: float = 1.0
    gram_share: float = 0.2
    rewards: Literal["known", "learnt"] = "known"
    reward_share: float = 0.2
    eta: float = TUNED_STEP


# the noise of a paper: rows as they are, a plain tree over episodes; what follows the noise is said by ``constants``
_PRINTED = Settings(unit=False, counter="plain", leaf="episode")
# without noise the prior would answer for unseen states, and the floor is zero
_PLAIN = Settings(prior=0.0)


def printed(base: Settings, kind: Kind) -> Settings:
    """What the pseudo-code prints beside its noise: bonus, growth, prior, rewards, lambda, step, dense features.

    Parameters
    ----------
    base
        The settings of a calibration; rows that no noise asks to be unit ones are as printed too.
    kind
        Of the agent: paper 000 learns the rewards, paper 001 knows them.
    """
    return replace(
        base,
        constants="paper",
        features="dense",
        unit=base.unit and kind.trust != "none",
        growth=1.0,
        lam=None,
        shift="paper",
        prior=0.0,
        gram_share=0.5,
        rewards="learnt" if kind.page == "000" else "known",
        reward_share=0.5,
        eta=1.0,
    )


# options that are one of some words, as their types say
_WORDS: Mapping[str, tuple[Any, ...]] = {
    **{name: get_args(kind) for name, kind in get_type_hints(Settings).items() if get_origin(kind) is Literal},
    "unit": (True, False),
}


def settings_of(trial: Trial) -> Settings:
    """The trial's knobs, over the defaults of its calibration.

    Raises
    ------
    CardError
        If a knob is unknown, or its value is of another kind.
    """
    base = {"paper": _PRINTED, None: _PLAIN}.get(trial.calibration, Settings())
    kind = KINDS[trial.agent]
    base = replace(base, growth=kind.growth)
    knobs = {key: value for key, value in trial.knobs.items() if key != "of"}
    replace(trial, options=tuple(knobs.items())).over(defaults_of(trial.agent))
    for key, value in knobs.items():
        if key in _WORDS and value not in _WORDS[key]:
            raise CardError(f"{trial.agent}: {key} is one of {_WORDS[key]}; got {value!r}")
        number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if key not in _WORDS and not number:
            raise CardError(f"{trial.agent}: {key} is a number, at least 0; got {value!r}")
    return replace(printed(base, kind) if knobs.get("constants") == "paper" else base, **knobs)


def defaults_of(agent: str) -> dict[str, Plain]:
    """Every option of an agent with its default, where the calibration is tight."""
    return asdict(replace(Settings(), growth=KINDS[agent].growth))


def variant_of(trial: Trial, s: Settings) -> str:
    """The words that tell one way to run an agent from another."""
    words = ["unit" if s.unit else "as printed", s.features]
    if KINDS[trial.agent].trust == "joint":
        words.append(f"{s.counter} over {'batches' if s.leaf == 'batch' else 'episodes'}")
    return ", ".join([*words, f"rewards {s.rewards}"])


def bonus_of(agent: str, s: Settings) -> float:
    """c, as given, as printed, or tuned.

    Parameters
    ----------
    agent, s
        Whose bonus, and the settings.
    """
    return s.bonus if s.bonus is not None else 1.0 if s.constants == "paper" else KINDS[agent].c


def constants_of(trial: Trial, s: Settings) -> str:
    """Everything that was chosen, in a line."""
    how = "as printed, " if s.constants == "paper" else "tuned, " if s.bonus is None else ""
    words = [f"{how}c {bonus_of(trial.agent, s):g}", f"growth {s.growth:g}"]
    words.append("lambda 1 for values up to H" if s.lam is None else f"lambda {s.lam:g}")
    if trial.epsilon is not None:
        words += [f"{s.shift}", f"prior {s.prior:g}"]
        words += [f"gram share {s.gram_share:g}"] if trial.calibration == "tight" else []
    if KINDS[trial.agent].mirror:
        words.append(f"eta {s.eta:g} x paper")
    return ", ".join(words)
