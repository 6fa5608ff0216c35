"""Online agents and controls by name: what ``simulate``, ``compare`` and the benches can let play.

A new agent is one line here: its name and the function from a :class:`~pipeline.simulation.trial.Trial` to an outcome.
One of another package is named ``module:function``; where it is private, the function has an attribute ``trust``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pipeline.declaration.card import CardError
from pipeline.declaration.plugins import is_plugin, plugin
from pipeline.simulation.trial import Contestant, Outcome, Trial, Trust

# module and function, imported when first played: half of them need half of the libraries
CONTESTANTS: Mapping[str, str] = {
    "uniform": "pipeline.simulation.control_trials:uniform",
    "always-first": "pipeline.simulation.control_trials:always_first",
    "always-right": "pipeline.simulation.control_trials:always_right",
    "best-constant": "pipeline.simulation.control_trials:best_constant",
    "behaviour": "pipeline.simulation.control_trials:behaviour",
    "apvi": "pipeline.simulation.logged_trials:apvi",
    "dp-apvi": "pipeline.simulation.logged_trials:dp_apvi",
    "ucbvi": "pipeline.simulation.tabular_trials:plain_ucbvi",
    "dp-ucbvi-jdp": "pipeline.simulation.tabular_trials:dp_ucbvi_jdp",
    "dp-ucbvi-ldp": "pipeline.simulation.tabular_trials:dp_ucbvi_ldp",
    "counts-shuffle": "pipeline.simulation.tabular_trials:counts_shuffle",
    "ofu-rl": "pipeline.simulation.lq_trials:ofu_rl",
    "private-ofu-rl": "pipeline.simulation.lq_trials:private_ofu_rl",
    "dp-lqr": "pipeline.simulation.lq_trials:dp_lqr",
    "explore-then-commit": "pipeline.simulation.lq_trials:commit",
    "zero": "pipeline.simulation.lq_trials:zero",
    "fixed-gain": "pipeline.simulation.lq_trials:fixed_gain",
    "certainty-equivalence": "pipeline.simulation.lq_trials:certainty_equivalent",
    "no-data": "pipeline.simulation.no_data_trials:no_data",
    "ucrl-vtr": "pipeline.simulation.mixture_trials:ucrl_vtr_trial",
    "linopt-po": "pipeline.simulation.mixture_trials:linopt_po_trial",
    "private-linopt-vi": "pipeline.simulation.mixture_trials:private_linopt_vi",
    "private-linopt-po": "pipeline.simulation.mixture_trials:private_linopt_po",
    "ldp-ucrl-vtr": "pipeline.simulation.mixture_trials:ldp_ucrl_vtr",
    "sdp-pe": "pipeline.simulation.shuffle_trials:sdp_pe",
}

TRUST: Mapping[str, Trust] = {
    "private-linopt-vi": "joint",
    "private-linopt-po": "joint",
    "ldp-ucrl-vtr": "local",
    "dp-apvi": "central",
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
    "dp-apvi": "apvi",
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
