"""The control to whom no data ever arrives: what is left of an agent is its prior knowledge and its ties."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pipeline.declaration.card import CardError
from pipeline.simulation import logged_trials, mixture_trials, tabular_trials
from pipeline.simulation.mixture_settings import TUNED
from pipeline.simulation.trial import Outcome, Trial

_COUNTING = ("dp-ucbvi-jdp", "dp-ucbvi-ldp", "counts-shuffle")
_OF: Mapping[str, Callable[[Trial], Outcome]] = {
    **dict.fromkeys(TUNED, mixture_trials.no_data),
    **dict.fromkeys(_COUNTING, tabular_trials.no_data),
    "dp-apvi": logged_trials.no_data,
}


def no_data(trial: Trial) -> Outcome:
    """The agent of option ``of`` without data.

    Raises
    ------
    CardError
        If ``of`` is none of those that can be kept from their data.
    """
    of = str(trial.knobs.get("of"))
    if of not in _OF:
        raise CardError(f"no-data: option 'of' is one of {', '.join(_OF)}; got {of!r}")
    return _OF[of](trial)
