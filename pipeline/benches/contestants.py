"""Online agents and controls by name: what ``simulate``, ``compare`` and the benches can let play.

A new agent is one line here: its name and the function from a :class:`~pipeline.benches.trial.Trial` to an outcome.
One of another package is named ``module:function``; where it is private, the function has an attribute ``trust``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pipeline.benches.trial import Contestant, Outcome, Trial, Trust
from pipeline.card import CardError
from pipeline.plugins import is_plugin, plugin

# module and function, imported when first played: half of them need half of the libraries
CONTESTANTS: Mapping[str, str] = {
    "uniform": "pipeline.benches.control_trials:uniform",
    "always-first": "pipeline.benches.control_trials:always_first",
    "always-right": "pipeline.benches.control_trials:always_right",
    "ucbvi": "pipeline.benches.tabular_trials:plain_ucbvi",
    "dp-ucbvi-jdp": "pipeline.benches.tabular_trials:dp_ucbvi_jdp",
    "dp-ucbvi-ldp": "pipeline.benches.tabular_trials:dp_ucbvi_ldp",
    "counts-shuffle": "pipeline.benches.tabular_trials:counts_shuffle",
    "ofu-rl": "pipeline.benches.lq_trials:ofu_rl",
    "private-ofu-rl": "pipeline.benches.lq_trials:private_ofu_rl",
    "dp-lqr": "pipeline.benches.lq_trials:dp_lqr",
    "explore-then-commit": "pipeline.benches.lq_trials:commit",
    "zero": "pipeline.benches.lq_trials:zero",
    "fixed-gain": "pipeline.benches.lq_trials:fixed_gain",
    "certainty-equivalence": "pipeline.benches.lq_trials:certainty_equivalent",
    "no-data": "pipeline.benches.mixture_trials:no_data",
    "ucrl-vtr": "pipeline.benches.mixture_trials:ucrl_vtr_trial",
    "linopt-po": "pipeline.benches.mixture_trials:linopt_po_trial",
    "private-linopt-vi": "pipeline.benches.mixture_trials:private_linopt_vi",
    "private-linopt-po": "pipeline.benches.mixture_trials:private_linopt_po",
    "ldp-ucrl-vtr": "pipeline.benches.mixture_trials:ldp_ucrl_vtr",
    "sdp-pe": "pipeline.benches.shuffle_trials:sdp_pe",
}

TRUST: Mapping[str, Trust] = {
    "private-linopt-vi": "joint",
    "private-linopt-po": "joint",
    "ldp-ucrl-vtr": "local",
    "dp-ucbvi-jdp": "joint",
    "dp-ucbvi-ldp": "local",
    "counts-shuffle": "shuffle",
    "sdp-pe": "shuffle",
    "private-ofu-rl": "joint",
    "dp-lqr": "central",
    "explore-then-commit": "joint",
}
# the same algorithm without its noise
_PLAIN: Mapping[str, str] = {
    "private-linopt-vi": "ucrl-vtr",
    "ldp-ucrl-vtr": "ucrl-vtr",
    "private-linopt-po": "linopt-po",
    "dp-ucbvi-jdp": "ucbvi",
    "dp-ucbvi-ldp": "ucbvi",
    "counts-shuffle": "ucbvi",
    "sdp-pe": "ucbvi",
    "private-ofu-rl": "ofu-rl",
    "dp-lqr": "certainty-equivalence",
    "explore-then-commit": "certainty-equivalence",
}
_NOTHING_LEARNT = ("uniform", "always-first", "always-right")
_NOTHING_CONTROLLED = ("zero", "fixed-gain")


def trust_of(name: str) -> Trust:
    """Whom a user of this agent must trust; ``none``: it is not private."""
    return getattr(plugin(name), "trust", "none") if is_plugin(name) else TRUST.get(name, "none")


def baselines_of(name: str) -> tuple[str, ...]:
    """Who plays beside an agent: itself without noise, and policies that learn nothing."""
    plain = _PLAIN.get(name)
    of_control = "ofu-rl" in name or plain == "certainty-equivalence"
    return (*(() if plain is None else (plain,)), *(_NOTHING_CONTROLLED if of_control else _NOTHING_LEARNT))


def contestant(name: str) -> Contestant:
    """The function that plays a trial of this agent.

    Raises
    ------
    CardError
        If there is none of that name; the message lists those there are.
    """
    if is_plugin(name):
        return plugin(name)
    if name not in CONTESTANTS:
        raise CardError(f"no online agent {name!r}; there are: {', '.join(CONTESTANTS)}, and module:function")
    module, _, function = CONTESTANTS[name].partition(":")
    return getattr(import_module(module), function)


def run(trial: Trial) -> Outcome:
    """Play one trial; the same trial gives the same outcome."""
    return contestant(trial.agent)(trial)


def measure(trial: Trial) -> dict[str, Any]:
    """The same as plain values, in a process of its own."""
    return run(trial).as_dict()
