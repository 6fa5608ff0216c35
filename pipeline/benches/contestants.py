"""Online agents and controls by name: what ``simulate``, ``compare`` and the benches can let play.

A new agent is one line here: its name and the function from a :class:`~pipeline.benches.trial.Trial` to an outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pipeline.benches.trial import Contestant, Outcome, Trial
from pipeline.card import CardError

# module and function, imported when first played: half of them need half of the libraries
CONTESTANTS: Mapping[str, str] = {
    "uniform": "pipeline.benches.control_trials:uniform",
    "always-first": "pipeline.benches.control_trials:always_first",
    "always-right": "pipeline.benches.control_trials:always_right",
}


def contestant(name: str) -> Contestant:
    """The function that plays a trial of this agent.

    Raises
    ------
    CardError
        If there is none of that name; the message lists those there are.
    """
    if name not in CONTESTANTS:
        raise CardError(f"no online agent {name!r}; there are: {', '.join(CONTESTANTS)}")
    module, _, function = CONTESTANTS[name].partition(":")
    return getattr(import_module(module), function)


def run(trial: Trial) -> Outcome:
    """Play one trial; the same trial gives the same outcome."""
    return contestant(trial.agent)(trial)


def measure(trial: Trial) -> dict[str, Any]:
    """The same as plain values, in a process of its own."""
    return run(trial).as_dict()
