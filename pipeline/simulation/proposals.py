"""What a simulation proposes: a declaration that costs nothing and leaves less noise."""

from __future__ import annotations

from pipeline.environments.lq_systems import LqSystem
from pipeline.simulation.control_trials import world_of
from pipeline.simulation.places import place_of
from pipeline.simulation.registry import find
from pipeline.simulation.trial import Trial


def proposal_of(trial: Trial) -> str | None:
    """One table for all steps, where the world declares that they are alike and the agent can use it.

    Parameters
    ----------
    trial
        Of the agent that is played.
    """
    defaults = find(trial.agent).defaults
    if "pooled" not in defaults or trial.agent in ("counts-shuffle", "sdp-pe") or trial.knobs.get("pooled"):
        return None
    if isinstance(place_of(trial.world, trial.params), LqSystem):
        return None
    mdp = world_of(trial)
    learnt = trial.knobs.get("rewards") == "learnt"
    alike = [mdp.transitions, *([mdp.rewards] if learnt else [])]
    if mdp.horizon < 2 or any((x != x[:1]).any() for x in alike):
        return None
    return (
        "every step of this world has the same transitions: with `pooled = true` under [agent] one table serves all "
        "steps, which leaves less noise at the same promise"
    )
