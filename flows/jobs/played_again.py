"""``report.json`` of a simulation, and its verification: the first run is played again and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from flows.config.study_recipes import is_world_recipe, load_world_recipe
from flows.jobs.made_again import BROKEN, Vouched, foreign_code
from flows.jobs.played import LEVEL, Played
from flows.jobs.publish import PAGES, drawn_pages
from pipeline.declaration.card import CardError
from pipeline.declaration.toml import read_toml
from pipeline.learners.offline_agents import read_view
from pipeline.ledger.assumptions import NOT_COVERED, Route, assumptions
from pipeline.ledger.certificate import guarantee
from pipeline.ledger.chain import Body
from pipeline.ledger.verify import Check, read_json
from pipeline.privacy.release_file import describe_mechanism, read_release
from pipeline.simulation.registry import find, plain_values, run
from pipeline.simulation.trial import run_named
from reports.facts.dataset import declared
from reports.facts.learnt import Baseline, ValueFacts
from reports.facts.part import Dump
from reports.facts.policy import PlayedConstants, Preset
from reports.facts.promise import Guarantee, MechanismFacts
from reports.facts.report import Report, read_report


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
        policy=played.shown.facts,
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


_AGAIN = "played again from the recipe"


def is_played(folder: Path) -> bool:
    """Whether a run's folder holds the recipe of a simulation.

    Parameters
    ----------
    folder
        Of a run; nothing in it is trusted.
    """
    try:
        return is_world_recipe(read_toml(folder / "recipe.toml"))
    except (OSError, CardError):
        return False


def played_again(folder: Path, held: Vouched) -> Iterator[Check]:
    """Play the agent's first run, and compare mechanisms, release, policy, guarantee and pages.

    Parameters
    ----------
    folder
        Of the run.
    held
        What the ledger says of it.
    """
    if (strange := foreign_code(folder, held)) is not None:
        yield Check(f"the first run, {_AGAIN}", None, f"not comparable: {strange}")
        return
    try:
        recipe = load_world_recipe(folder / "recipe.toml", folder.parent)
        trial = recipe.trials()[recipe.recipe.agent][0]
        first = run(trial)
        played = Played(recipe, folder.name, [trial], [plain_values(trial, first)], first)
        yield _said(f"mechanisms and guarantee, {_AGAIN}", _promise_problem(folder, played))
        yield _said(f"release.parquet, {_AGAIN}", _release_problem(folder, played))
        yield _said(f"policy.parquet, {_AGAIN}", _policy_problem(folder, played))
        yield _said("the pages, drawn again from report.json", _pages_problem(folder))
    except BROKEN as e:
        yield Check(f"the first run, {_AGAIN}", False, f"it cannot be played ({type(e).__name__}: {str(e)[:120]})")
        return
    yield Check("regret and intervals over all seeds", None, "simulate its recipe again: kept runs are found again")


def _said(what: str, problem: str | None) -> Check:
    return Check(what, problem is None, problem or "")


def _promise_problem(folder: Path, played: Played) -> str | None:
    proof: Body = read_json(folder, "certificate.json")
    if [describe_mechanism(m) for m in played.release.mechanisms] != proof["mechanisms"]:
        return "the recipe releases other tables, or with other noise"
    again = played_guarantee(played).model_dump()
    differ = [key for key in again if again[key] != proof["guarantee"].get(key)]
    return f"guarantee: {', '.join(differ)} differ" if differ else None


def _release_problem(folder: Path, played: Played) -> str | None:
    there = read_release(folder).tables
    same = all(np.array_equal(there[name], table) for name, table in played.release.tables.items())
    return None if same else "its numbers are others"


def _policy_problem(folder: Path, played: Played) -> str | None:
    table = pq.read_table(folder / "policy.parquet")
    columns = played.shown.files.tables["policy"]
    same = all(np.allclose(table[name].to_numpy(), column, atol=1e-9) for name, column in columns.items())
    return None if same and set(columns) == set(table.column_names) else "its numbers are others"


def _pages_problem(folder: Path) -> str | None:
    report = read_report(folder)
    for page, text in zip(PAGES, drawn_pages(report, read_view(report, folder)), strict=True):
        if (folder / page).read_text(encoding="utf-8") != text:
            return f"{page} says something else"
    return None
