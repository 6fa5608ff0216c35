"""The job of ``simulate``: an online agent and what plays beside it in a known world, published as a run.

And its verification: the first run is played again and compared.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from flows.config.home import Home
from flows.config.setting import ALONE, Work
from flows.config.study_recipes import WorldRecipe, is_world_recipe, load_world_recipe
from flows.jobs.made_again import BROKEN, Vouched, foreign_code
from flows.jobs.played import Played
from flows.jobs.publish import PAGES, drawn_pages, write_pages, write_policy
from pipeline.declaration.card import CardError
from pipeline.declaration.toml import read_toml
from pipeline.files import copy_file, whole_folder, write_file
from pipeline.learners.offline_agents import read_view
from pipeline.ledger.account import card_hash
from pipeline.ledger.assumptions import NOT_COVERED, Route, assumptions
from pipeline.ledger.certificate import certificate, guarantee
from pipeline.ledger.chain import Body, canonical
from pipeline.ledger.keys import operator_key
from pipeline.ledger.ledger import open_ledger
from pipeline.ledger.publication import Publication, file_digests, maker
from pipeline.ledger.verify import Check, read_json
from pipeline.privacy.release_file import describe_mechanism, read_release, release_files
from pipeline.simulation.registry import find, modules_of, plain_values, run
from pipeline.simulation.trial import Measured, Trial, run_named
from pipeline.studies.study import Kept, measure_cells, online
from pipeline.studies.study_rows import curve_points, printed
from pipeline.transaction.place import one_at_a_time
from reports.facts.dataset import declared
from reports.facts.part import present
from reports.facts.policy import PlayedConstants, Preset
from reports.facts.promise import Guarantee, MechanismFacts
from reports.facts.report import Report, read_report
from reports.studies.study_page import table_files

_TABLES = ("runs", "curves", "policies")
_AGAIN = "played again from the recipe"


def play_job(path: Path, home: Home, work: Work = ALONE) -> Kept:
    """An online agent and its baselines in a known world, published in ``<home>/runs``.

    Parameters
    ----------
    path
        A recipe with ``[world]``.
    home
        Where the run goes, the runs that are kept, and the ledger that vouches for it.
    work
        As of :func:`~flows.jobs.reproduce.reproduce_job`.

    Returns
    -------
    ``run, agent, world, episodes, regret, suboptimality, baselines, true_epsilon, delta, files`` (design §5.5), and the
    rows.
    """
    recipe = load_world_recipe(path, home.runs)
    by_agent = recipe.trials()
    trials = [t for each in by_agent.values() for t in each]
    work.say(f"playing {len(trials)} runs of {', '.join(by_agent)}; simulation, not private")
    totals: dict[str, list[float]] = {}

    def tell(trial: Trial, outcome: Kept) -> None:
        seen = totals.setdefault(trial.agent, [])
        seen.append(outcome["regret"][-1])
        work.say(f"  {trial.agent}, run {len(seen)}: regret {seen[-1]:.4g}; so far {np.mean(seen):.4g} on average")

    study = online("simulate", lambda: trials)
    kept = home.root / "simulations" / "cells"
    outcomes = work.step("play", lambda: measure_cells(study, trials, kept, work.progress, tell))
    return work.step("report", lambda: _publish(recipe, path, home, trials, outcomes))


def _publish(
    recipe: WorldRecipe, path: Path, home: Home, trials: Sequence[Trial], outcomes: Sequence[Measured]
) -> Kept:
    """Write the run's folder and have the ledger vouch for every file; what ``--json`` prints."""
    # no kept result holds a release: the first run is played again, and is the same
    played = Played(recipe, _run_name(recipe, trials[0]), trials, outcomes, run(trials[0]))
    final = home.runs / played.name
    with one_at_a_time(home.runs), whole_folder(final, over=True) as folder:
        _compose(played, path, folder)
        _vouch(home, played, folder)
    return _answer(played, final)


def _run_name(recipe: WorldRecipe, trial: Trial) -> str:
    """Recipe name and a hash of the recipe and of the code that plays: one of each makes one folder."""
    values = [recipe.model_dump(mode="json", exclude_none=True), modules_of(trial)]
    digest = hashlib.sha256(canonical(values).encode()).hexdigest()[:10]
    return f"{recipe.recipe.name}-{digest}-simulation-not-private"


def _compose(played: Played, path: Path, folder: Path) -> None:
    for name, content in release_files(played.release).items():
        write_file(folder / name, content)
    copy_file(path, folder / "recipe.toml")
    for stem, rows in zip(_TABLES, (played.runs(), curve_points(played.rows), played.policies()), strict=True):
        if rows:
            write_file(folder / f"{stem}.parquet", table_files(rows)[0])
    digests = write_policy(played.shown.files, folder)
    report = _report(played)
    route = Route("exact" if played.release.noise == "none" else "played")
    proof = certificate(played.card, played.release, report, None, None, digests, (), route=route)
    write_pages(report, proof, played.shown.view, folder)


def _vouch(home: Home, played: Played, folder: Path) -> None:
    ledger = open_ledger(home.root / "ledger.db", create=True)
    entries = ledger.entries()
    told: Publication = {
        "run": played.name,
        "run_key": hashlib.sha256(canonical([played.name]).encode()).hexdigest(),
        "commit": None,
        "snapshot": None,
        "seen": entries[-1].seq if entries else 0,
        "card_hash": card_hash(played.card),
        "seed": played.trial.seed,
        "made_by": maker(),
        "files": file_digests(folder),
    }
    ledger.publish(played.card.name, told, operator_key(home.store))


def _answer(played: Played, folder: Path) -> Kept:
    mine, measured = played.rows[0], played.simulation
    told = ("agent", "world", "episodes", "trust")
    return {
        "name": played.recipe.recipe.name,
        "run": played.name,
        **{key: mine[key] for key in told},
        "regret": {"mean": mine["mean"], "std": mine["std"]},
        "suboptimality": measured.suboptimality,
        "baselines": {r["agent"]: {"mean": r["mean"], "std": r["std"]} for r in played.rows[1:]},
        **{key: mine[key] for key in ("epsilon", "true_epsilon", "delta", "noise")},
        "proposal": measured.proposal,
        "rows": [printed(r) for r in played.rows],
        "facts": mine["facts"],
        "report": str(folder / PAGES[0]),
        "folder": str(folder),
        "files": [str(p) for p in sorted(folder.iterdir())],
    }


def _report(played: Played) -> Report:
    """All of ``report.json``."""
    trial, release, card = played.trial, played.release, played.card
    route = Route("exact" if release.noise == "none" else "played")
    return Report(
        schema_version=1,
        run=played.name,
        recipe=played.recipe.recipe.name,
        agent=trial.agent,
        dataset=declared(card, None),
        guarantee=_guarantee(played),
        constants=_constants(played),
        value=played.value,
        model_baselines=played.baselines,
        mechanisms=[MechanismFacts.model_validate(describe_mechanism(m)) for m in release.mechanisms],
        ledger=None,
        **present(joint=played.joint),
        policy=played.shown.facts,
        assumptions=assumptions(card, (), route),
        not_covered=list(NOT_COVERED),
        verify=[
            f"reticent ledger verify {played.name}  # recomputes the certificate, and what the recipe would release",
            "reticent simulate recipe.toml  # plays it again, here or elsewhere: the same numbers",
        ],
        simulation=played.simulation,
    )


def _guarantee(played: Played) -> Guarantee:
    """What the very mechanism would promise in a deployment, recomputed from what was released."""
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
    again = _guarantee(played).model_dump()
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
