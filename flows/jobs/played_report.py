"""``report.json`` of a simulation: what was played, as the facts of a run."""

from __future__ import annotations

from collections.abc import Mapping

from flows.jobs.played import LEVEL, Played
from pipeline.ledger.assumptions import NOT_COVERED, Route, assumptions
from pipeline.ledger.certificate import guarantee
from pipeline.ledger.chain import Body
from pipeline.privacy.release_file import describe_mechanism
from pipeline.simulation.registry import find
from pipeline.simulation.trial import run_named
from reports.facts.constants import PlayedConstants, Preset
from reports.facts.dataset import declared
from reports.facts.learnt import Baseline, ValueFacts
from reports.facts.part import Dump
from reports.facts.promise import Guarantee, MechanismFacts
from reports.facts.report import Report


def played_report(played: Played, digests: Mapping[str, str]) -> Report:
    """All of ``report.json``.

    Parameters
    ----------
    played
        What was played.
    digests
        sha256 of the files that the certificate lists.
    """
    trial, release, card = played.trial, played.release, played.card
    route = Route("exact" if release.noise == "none" else "played")
    joint: Dump = {} if played.joint is None else {"joint": played.joint}
    return Report(
        schema_version=1,
        run=played.name,
        recipe=played.recipe.recipe.name,
        agent=trial.agent,
        dataset=declared(card, None),
        guarantee=played_guarantee(played),
        constants=_constants(played),
        value=_value(played),
        model_baselines=_baselines(played),
        mechanisms=[MechanismFacts.model_validate(describe_mechanism(m)) for m in release.mechanisms],
        ledger=None,
        **joint,
        policy=played.facts,
        assumptions=assumptions(card, (), route),
        not_covered=list(NOT_COVERED),
        verify=[
            f"reticent ledger verify {played.name}  # recomputes the certificate, and what the recipe would release",
            "reticent simulate recipe.toml  # plays it again, here or elsewhere: the same numbers",
        ],
        simulation=played.simulation,
    )


def played_guarantee(played: Played) -> Guarantee:
    """What the very mechanism would promise in a deployment, recomputed from what was released.

    Parameters
    ----------
    played
        What was played.
    """
    trial = played.trial
    asked: Body = {} if trial.epsilon is None else {"epsilon": trial.epsilon, "delta": trial.delta}
    return guarantee(played.card, played.release, trial.calibration or "tight", asked)


def _constants(played: Played) -> PlayedConstants:
    trial = played.trial
    options = {k: run_named(v) for k, v in {**find(trial.agent).defaults, **trial.knobs}.items()}
    said = str(played.rows[0]["constants"] or "none")
    preset = str(options.get("constants") or "practical")
    return PlayedConstants(
        policy=Preset(preset=preset, values={}, source={"chosen": said}),
        options={k: v for k, v in options.items() if isinstance(v, str | int | float | bool) or v is None},
    )


def _value(played: Played) -> ValueFacts:
    sim = played.simulation
    own, (low, high) = sim.agents[0].suboptimality, played.worth.trivial()
    spread = None if own is None or own.lower is None or own.upper is None else (own.lower, own.upper)
    least, most = (low, high) if spread is None else (sim.optimum - spread[1], sim.optimum - spread[0])
    return ValueFacts(
        lower=max(low, least),
        upper=min(high, most),
        estimate=sim.value if own is None else sim.optimum - own.mean,
        lower_trivial=low,
        upper_trivial=high,
        gap=min(high, most) - max(low, least),
        optimal_upper=sim.optimum,
        status="modelled",
        assumes=[
            "the world is the simulated one: each run's policy is valued in it exactly",
            f"{LEVEL:.0%} Student interval of the mean over {sim.runs} independent runs"
            if spread is not None
            else "one run: nothing is known of the spread over seeds",
        ],
        start="declared",
    )


def _baselines(played: Played) -> dict[str, Baseline]:
    sim = played.simulation
    there = {a.agent: a.suboptimality for a in sim.agents[1:]}
    return {name: Baseline(estimate=sim.optimum - lost.mean) for name, lost in there.items() if lost is not None}
