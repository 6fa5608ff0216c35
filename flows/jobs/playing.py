"""The job of ``simulate``: an online agent and what plays beside it in a known world, published as a run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from flows.config.home import Home
from flows.config.setting import ALONE, Work
from flows.config.study_recipes import WorldRecipe, load_world_recipe
from flows.jobs.played import Played
from flows.jobs.played_again import played_report
from flows.jobs.publish import PAGES, write_pages, write_policy
from flows.jobs.simulated_logs import LogOptions, world_folder
from pipeline.environments.worlds import load_world
from pipeline.files import copy_file, whole_folder, write_file
from pipeline.ledger.account import card_hash
from pipeline.ledger.assumptions import Route
from pipeline.ledger.certificate import certificate
from pipeline.ledger.chain import canonical
from pipeline.ledger.keys import operator_key
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.ledger.publication import Publication, file_digests, maker
from pipeline.privacy.release_file import release_files
from pipeline.simulation.registry import modules_of, run
from pipeline.simulation.trial import Measured, Trial
from pipeline.studies.study import Kept, measure_cells, online
from pipeline.studies.study_rows import curve_points, printed
from pipeline.transaction.place import one_at_a_time
from reports.studies.study_page import table_files

_TABLES = ("runs", "curves", "policies")


@dataclass(frozen=True)
class Asked:
    """What is played.

    Parameters
    ----------
    recipe, path
        Of the simulation, and its file.
    trials
        Runs of the agent, then of each baseline.
    outcomes
        Of each trial.
    """

    recipe: WorldRecipe
    path: Path
    trials: Sequence[Trial]
    outcomes: Sequence[Measured]


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
    return work.step("report", lambda: publish_played(Asked(recipe, path, trials, outcomes), home))


def publish_played(asked: Asked, home: Home) -> Kept:
    """Write the run's folder and have the ledger vouch for every file.

    Parameters
    ----------
    asked
        What was played.
    home
        Where it goes.

    Returns
    -------
    What ``--json`` prints.
    """
    first = asked.trials[0]
    # no kept result holds a release: the first run is played again, and is the same
    played = Played(asked.recipe, run_name(asked), asked.trials, asked.outcomes, run(first))
    with one_at_a_time(home.runs), whole_folder(home.runs / played.name, over=True) as folder:
        _compose(asked, played, folder)
        _vouch(home, played, first, folder)
    return _answer(played, home.runs / played.name)


def run_name(asked: Asked) -> str:
    """Recipe name and a hash of the recipe and of the code that plays: one of each makes one folder.

    Parameters
    ----------
    asked
        What is played.
    """
    values = [asked.recipe.model_dump(mode="json", exclude_none=True), modules_of(asked.trials[0])]
    digest = hashlib.sha256(canonical(values).encode()).hexdigest()[:10]
    return f"{asked.recipe.recipe.name}-{digest}-simulation-not-private"


def _compose(asked: Asked, played: Played, folder: Path) -> None:
    for name, content in release_files(played.release).items():
        write_file(folder / name, content)
    copy_file(asked.path, folder / "recipe.toml")
    for stem, rows in zip(_TABLES, (played.runs(), curve_points(played.rows), played.policies()), strict=True):
        if rows:
            write_file(folder / f"{stem}.parquet", table_files(rows)[0])
    digests = write_policy(played.shown.files, folder)
    report = played_report(played, digests)
    route = Route("exact" if played.release.noise == "none" else "played")
    proof = certificate(played.card, played.release, report, None, None, digests, (), route=route)
    write_pages(report, proof, played.shown.view, folder)


def _vouch(home: Home, played: Played, first: Trial, folder: Path) -> None:
    ledger: Ledger = open_ledger(home.root / "ledger.db", create=True)
    entries = ledger.entries()
    told: Publication = {
        "run": played.name,
        "run_key": hashlib.sha256(canonical([played.name]).encode()).hexdigest(),
        "commit": None,
        "snapshot": None,
        "seen": entries[-1].seq if entries else 0,
        "card_hash": card_hash(played.card),
        "seed": first.seed,
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


class WorldValues(TypedDict):
    """Sizes of a world, and exact values of one episode by policy."""

    world: str
    horizon: int
    states: int
    actions: int
    values: dict[str, float]


class WorldTable(TypedDict):
    """What ``simulate --values --json`` prints."""

    worlds: list[WorldValues]


def world_table(names: Sequence[str], asked: LogOptions, home: Home) -> WorldTable:
    """Exact values of worlds by dynamic programming; writes nothing.

    Parameters
    ----------
    names
        Worlds.
    asked
        Their parameters and horizon, and a logging policy to value beside.
    home
        Whose shelf holds the worlds that have a file.
    """
    from pipeline.evaluation.exact import world_values
    from pipeline.mdp.planning import policy_value

    rows: list[WorldValues] = []
    for name in names:
        world = load_world(name, world_folder(name, home), **asked.arguments())
        horizon = world.steps(asked.horizon)
        values = world_values(world, horizon)
        if asked.behaviour is not None:
            values[asked.behaviour] = policy_value(world.mdp(horizon), world.behaviours(asked.behaviour, horizon))
        # twins of a state share its label
        live = {label for s, label in enumerate(world.raw_labels) if s not in world.ends}
        rows.append(WorldValues(world=name, horizon=horizon, states=len(live), actions=world.shape[1], values=values))
    return {"worlds": rows}
