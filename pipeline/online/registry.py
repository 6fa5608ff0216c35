"""Online agents and controls by name, for ``simulate``, ``compare``, ``audit`` and the studies.

A new agent is one :class:`~pipeline.online.trial.OnlineAgent` in the ``AGENTS`` of its module.  One of another
package is named ``module:object`` and is the same type.
"""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.declaration.code import is_plugin, plugin
from pipeline.declaration.toml import CardError
from pipeline.online import mixtures, plants, rollouts, shuffle, tabular
from pipeline.online.trial import Measured, OnlineAgent, Outcome, Trial, sent_by_user


def no_data(trial: Trial) -> Outcome:
    """The control without data: the agent of option ``of``, with its noise, ties and known rewards.

    Raises CardError if ``of`` is none of those that can be kept from their data.
    """
    agent_name = str(trial.knobs.get("of"))
    play = AGENTS[agent_name].unread if agent_name in AGENTS else None
    if play is None:
        names = ", ".join(name for name, agent in AGENTS.items() if agent.unread is not None)
        raise CardError(f"no-data: option 'of' is one of {names}; got {agent_name!r}")
    options = tuple((k, v) for k, v in trial.options if k != "of")
    outcome = play(replace(trial, agent=agent_name, options=options))
    more = {"trust": "none", "variant": "control", "of": agent_name, "true_rho": None, "true_epsilon": None}
    return replace(outcome, facts={**outcome.facts, **more}, release=None)


AGENTS: Mapping[str, OnlineAgent] = {
    **rollouts.AGENTS,
    **tabular.AGENTS,
    **plants.AGENTS,
    "no-data": OnlineAgent(no_data, defaults={"of": None}),
    **mixtures.AGENTS,
    **shuffle.AGENTS,
}


# recipes of nights name the agent without its trust model, since nights have one
_ALSO = {"dp-ucbvi": "dp-ucbvi-jdp"}


def played_name(name: str) -> str:
    """The name under which an agent of a recipe is played."""
    return _ALSO.get(name, name)


def find(name: str) -> OnlineAgent:
    """The registration of an agent.

    Raises CardError if there is none of that name (the message lists those there are), or a plug-in is not permitted or
    no agent.
    """
    if is_plugin(name):
        return plugin(name, OnlineAgent)
    if name not in AGENTS:
        raise CardError(f"no online agent {name!r}; there are: {', '.join(AGENTS)}, and module:object")
    return AGENTS[name]


def run(trial: Trial) -> Outcome:
    """Play one trial; the same trial gives the same outcome."""
    return find(trial.agent).play(trial)


def plain_values(trial: Trial, out: Outcome) -> Measured:
    """The outcome of a trial for a kept result, and one user's communication over all of their episodes."""
    sent = sent_by_user(out.release, len(out.policy or ()), out.numbers, trial.episodes_per_user)
    return {"marks": out.marks, "regret": out.regret, "facts": dict(out.facts), "policy": out.policy, "sent": sent}


def modules_of(trial: Trial) -> tuple[str, ...]:
    """The modules that a trial's result depends on: its agent's, and that of a plug-in world."""
    agent = str(trial.knobs.get("of")) if trial.agent == "no-data" else trial.agent
    own = [name.partition(":")[0] for name in (agent, trial.world) if is_plugin(name)]
    return (find(agent).play.__module__, *own)
