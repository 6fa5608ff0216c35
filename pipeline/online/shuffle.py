"""SDP-PE in known worlds (paper 002): its constants, trust models, and facts of its stages.

Options of a trial, with their defaults: ``constants`` ("practical" | "paper"), ``trust`` ("shuffle" | "none" |
"joint" | "local"), ``pooled`` (true), ``lean`` (true; false with "paper", which keeps the paper's three tables),
``mixed`` (false; true where a stage forgets or noise grows with the batch, "local": then what is not visited becomes
uncertain again, and active policies alone swing between good and bad), ``honest`` (1.0: declared share who add their
bits), ``episodes_per_user`` (1: most of one user, in any batches; for tight shuffled bits), ``protocol`` (false; true:
every message is sent and shuffled, as bytes), ``certify`` (4: how many targets of the last stage the linear programme
checks).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.agents import sdp_pe as agent
from pipeline.agents.sdp_pe import Constrained
from pipeline.declaration.card import CardError
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import most_visits, most_visits_lp, optimal_values
from pipeline.mdp.policy import set_values
from pipeline.online.rollouts import BatchWorld, play, world_of
from pipeline.online.trial import BatchTarget, OnlineAgent, Outcome, Plain, Trial, staged_curve
from pipeline.privacy.losses import Trust
from pipeline.privacy.shuffle import of_one_episode, smallest_total
from pipeline.statistics.interactive_counts import BatchPrivatizer
from pipeline.statistics.online_counts import BatchLayout, NoisyTables

_TIES, _NOISE, _SAMPLE = 1, 2, 3
DEFAULTS: dict[str, Plain] = {
    "constants": "practical",
    "trust": "shuffle",
    "pooled": True,
    "lean": None,
    "mixed": None,
    "honest": 1.0,
    "episodes_per_user": 1,
    "protocol": False,
    "certify": 4,
}
_BITS = {"tight": "exact bits", "paper": "the paper's bits"}


def sdp_pe(trial: Trial) -> Outcome:
    """Play one run.

    Raises CardError if an option is unknown, a budget is missing, or the run is too short for one stage.
    """
    mdp, knobs = world_of(trial), knobs_of(trial)
    task = agent.BatchTask(mdp.shape, mdp.start, trial.episodes)
    constants = _agent_constants(knobs)
    privatizer = privatizer_of(trial, knobs, mdp.horizon)
    noise = trial.noise(_NOISE)
    try:
        asks = agent.sdp_pe(task, constants, trial.stream(_TIES))
        protocol = bool(knobs["protocol"]) and privatizer.trust == Trust.SHUFFLE
        world = BatchWorld(mdp, privatizer, trial.stream(0), noise, protocol=protocol)
        played = play(asks, world)
    except ValueError as e:
        raise CardError(f"sdp-pe: {e}") from None
    answer, batches = played.result, world.batches
    marks, summed = staged_curve(played.ends, played.losses)
    facts = {
        "trust": knobs["trust"],
        "variant": _variant(trial, knobs),
        "constants": _constants(constants),
        "true_rho": None,
        "true_epsilon": max(privatizer.delivered(noisy.users, layout) or 0.0 for layout, noisy in batches) or None,
        "tie_share": None,
        **_stages(trial, mdp, answer),
        **_bits(privatizer, batches),
        **_certificate(trial, int(knobs["certify"]), answer, mdp),
    }
    facts["final_loss"] = facts["suboptimality"]
    return Outcome(marks, summed, facts, answer.policy.tolist(), privatizer.released(batches))


def targets_of(trial: Trial) -> list[BatchTarget]:
    """Targets of an audit: the first batch of each kind.

    Raises CardError if no noise is asked for.
    """
    batches = first_batches(trial)
    privatizer = privatizer_of(trial, knobs_of(trial), batches[0][1].shape[0])
    if privatizer.trust == Trust.NONE:
        raise CardError("trust = 'none': no noise, no claim to attack")
    return [BatchTarget(layout, users, privatizer) for users, layout in batches]


def first_batches(trial: Trial) -> list[tuple[int, BatchLayout]]:
    """Users and counters of the first batch of each kind, public before the first episode.

    Raises CardError as of :func:`sdp_pe`.
    """
    mdp, c = world_of(trial), _agent_constants(knobs_of(trial))
    try:
        crude, fine, _ = agent.BatchTask(mdp.shape, mdp.start, trial.episodes).stages()[0]
    except ValueError as e:
        raise CardError(f"sdp-pe: {e}") from None
    every = BatchLayout(mdp.shape, bool(c.lean), ends=True)
    if c.mode != "paper":
        return [(crude + fine, every)]
    return [(fine, every), (crude // (mdp.horizon - 1), BatchLayout((1, *mdp.shape[1:]), bool(c.lean), rewards=False))]


def _agent_constants(knobs: Mapping[str, Any]) -> agent.SdpPeConstants:
    return agent.SdpPeConstants(
        mode=knobs["constants"], lean=knobs["lean"], pooled=bool(knobs["pooled"]), mixed=knobs["mixed"]
    )


def knobs_of(trial: Trial) -> dict[str, Any]:
    """The trial's options over their defaults.

    Raises CardError if an option is unknown or of another kind, or the budget does not fit the trust model.
    """
    trusts = ("none", "joint", "local", "shuffle")
    knobs = trial.over(DEFAULTS, constants=("practical", "paper"), trust=trusts)
    if (trial.epsilon is None) != (knobs["trust"] == "none"):
        raise CardError("sdp-pe: give epsilon and delta, or trust = 'none', and not both")
    m = int(knobs["episodes_per_user"])
    if m < 1 or (m > 1 and (trial.calibration != "tight" or knobs["trust"] != "shuffle")):
        raise CardError(f"sdp-pe: episodes_per_user above 1 is priced for tight shuffled bits alone; got {m}")
    if trial.calibration == "paper" and knobs["trust"] not in ("none", "shuffle"):
        raise CardError(f"sdp-pe: paper 002 prints no noise for trust {knobs['trust']!r}; use calibration 'tight'")
    lean = knobs["constants"] == "practical" if knobs["lean"] is None else bool(knobs["lean"])
    fades = not knobs["pooled"] or knobs["trust"] == "local"
    mixed = fades if knobs["mixed"] is None else bool(knobs["mixed"])
    return {**knobs, "lean": lean, "mixed": mixed}


def privatizer_of(trial: Trial, knobs: Mapping[str, Any], horizon: int) -> BatchPrivatizer:
    """The privatizer of its counts."""
    if trial.epsilon is None or trial.delta is None:
        return BatchPrivatizer()
    calibration, honest, m = trial.calibration or "tight", float(knobs["honest"]), int(knobs["episodes_per_user"])
    return BatchPrivatizer(Trust(knobs["trust"]), trial.epsilon, trial.delta, calibration, horizon, honest, episodes=m)


def _variant(trial: Trial, knobs: Mapping[str, Any]) -> str:
    words = [knobs["constants"], "lean" if knobs["lean"] else "three tables"]
    if knobs["constants"] == "practical":
        words += ["pooled" if knobs["pooled"] else "forget", *(["mixtures"] if knobs["mixed"] else [])]
    if knobs["trust"] == "shuffle" and trial.calibration is not None:
        words.append(_BITS[trial.calibration])
        words += [f"{m} episodes a user"] if (m := int(knobs["episodes_per_user"])) > 1 else []
    return ", ".join(words)


def _constants(c: agent.SdpPeConstants) -> str:
    if c.mode == "paper":
        return f"paper: C1 = {c.C1:g}, C (not printed) = {c.C:g}"
    return f"practical, chosen by us: widths x {c.scale:g}, {c.deviations:g} standard deviations"


def _stages(trial: Trial, mdp: TabularMDP, answer: agent.SdpPeResult) -> dict[str, Any]:
    """Facts of the elimination; only the simulation knows the best policy, and whether it was kept."""
    to_go, values = optimal_values(mdp)
    best = to_go.argmax(-1)
    first, last = answer.first_elimination, answer.stages[-1]
    gap = float(mdp.start @ values[0]) - float(
        set_values(mdp.transitions, mdp.rewards, mdp.start, answer.policy[None])[0]
    )
    sentence = f"first elimination after {first} episodes"
    if first is None:
        sentence = f"nothing was eliminated in {trial.episodes} episodes: the policy only looked best"
    return {
        "says": sentence,
        "first_elimination": first,
        "policies_left": last.left,
        "slack": last.slack,
        "missing": last.missing,
        "suboptimality": gap,
        "optimum_kept": sum(s.active.keeps(best) for s in answer.stages),
        "stages": len(answer.stages),
        "by_stage": [[s.episodes, s.left, s.slack, s.missing] for s in answer.stages],
    }


def _bits(privatizer: BatchPrivatizer, batches: Sequence[tuple[BatchLayout, NoisyTables]]) -> dict[str, Any]:
    """Noise bits tau of the last batch of each kind, and the fewest fair ones an exact accountant asks for."""
    if privatizer.trust != Trust.SHUFFLE:
        return {}
    kinds = {"fine" if layout.rewards else "crude": (layout, noisy.users) for layout, noisy in batches}
    facts: dict[str, Any] = {}
    for kind, (layout, users) in kinds.items():
        bits = privatizer.bits(users, layout)
        facts[f"tau_{kind}"] = 4 * bits.standard_deviation**2
        budget = of_one_episode(privatizer.episodes, privatizer.epsilon, privatizer.delta)
        facts[f"fewest_{kind}"] = smallest_total(layout.changes, *budget)
        facts[f"bits_per_user_{kind}"] = layout.counters * (1 + bits.each)
    return facts


def _certificate(trial: Trial, sample: int, answer: agent.SdpPeResult, mdp: TabularMDP) -> dict[str, Any]:
    """Largest difference between the dynamic programme and the linear programme, over a random sample of targets."""
    active = answer.stages[-1].active
    if not sample or not isinstance(active, Constrained):
        return {}
    rng = trial.stream(_SAMPLE)
    targets = rng.permutation(np.argwhere(np.ones(mdp.shape, dtype=bool)))[:sample]
    dynamic = most_visits(active.P, active.start, active.bonus, active.floor, targets, rng).visits
    linear = most_visits_lp(active.P, active.start, active.bonus, active.floor, targets)
    return {"certified": len(targets), "largest_difference": float(np.abs(dynamic - linear).max())}


AGENTS = {"sdp-pe": OnlineAgent(sdp_pe, "shuffle", "ucbvi", defaults=DEFAULTS, targets=targets_of)}
