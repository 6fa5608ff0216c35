"""From a committed release and what was learnt to a run's folder; the only writer of ``runs/``."""

from __future__ import annotations

import csv
import hashlib
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from flows.folder import publish, read_policy, write_json, write_policy
from flows.recipe import Recipe
from flows.shelf import Home
from pipeline.card import Card
from pipeline.curate import Curated
from pipeline.environments.registry import WORLD_ARRAYS, WORLD_FILE
from pipeline.kept.lock import one_at_a_time
from pipeline.ledger.certificate import NOT_COVERED, assumptions, certificate, guarantee
from pipeline.ledger.chain import BudgetError, Entry, canonical
from pipeline.mdp.policy import Policy
from pipeline.offline import Learnt, planner_facts, practice
from pipeline.privacy.budget import down, fraction_of, up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.release_file import describe_mechanism, read_release, sha256_file
from pipeline.statistics.privatizers import privatizer
from reports.facts import dataset_facts, measured, proved, value_facts
from reports.policy_report import render_html, render_markdown
from reports.policy_view import PolicyView


@dataclass(frozen=True)
class Published:
    """A run's name, folder and facts."""

    name: str
    folder: Path
    facts: Mapping[str, Any]


def run_name(recipe: Recipe, run_key: str) -> str:
    """Recipe name and a hash of release key and recipe: one release and one recipe make one folder."""
    digest = hashlib.sha256(canonical([run_key, recipe.dump()]).encode()).hexdigest()[:10]
    return f"{recipe.recipe.name}-{digest}"


def publish_run(
    card: Card, recipe: Recipe, home: Home, snapshot: int, curated: Curated, learnt: Learnt, looks: Sequence[Entry]
) -> Published:
    """Write release, policy, certificate and report; byte-identical for one release, one recipe and ``looks``.

    ``looks`` are the lineage's INSPECT entries so far: the page says that they happened, never what was seen.
    """
    with one_at_a_time(home.store / card.name):
        return _publish_run(card, recipe, home, snapshot, curated, learnt, looks)


def _publish_run(
    card: Card, recipe: Recipe, home: Home, snapshot: int, curated: Curated, learnt: Learnt, looks: Sequence[Entry]
) -> Published:
    private = curated.release.noise == "os"
    name = run_name(recipe, curated.run_key) + ("" if private else "-simulation-not-private")
    partial = home.runs / f".{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for file in ("release.parquet", "release.json"):
        shutil.copyfile(curated.folder / file, partial / file)
    copied = sha256_file(partial / "release.parquet")
    if curated.commit is not None and copied != curated.commit.body["release_sha256"]:
        raise BudgetError(f"{card.name}: the stored release is not the committed one; nothing is published")
    write_policy(partial, card, learnt.plan.policy)
    shutil.copyfile(recipe.path, partial / "recipe.toml")
    digests = {"release": copied, "policy": sha256_file(partial / "policy.parquet")}
    facts = run_facts(card, recipe, name, snapshot, curated, learnt, digests, looks)
    write_json(partial / "report.json", facts)
    proof = certificate(card, curated.release, facts["guarantee"], facts["mechanisms"], curated.commit, digests, looks)
    write_json(partial / "certificate.json", proof)
    render(partial, facts, learnt.plan.tied)
    publish(partial, home.runs / name)
    return Published(name, home.runs / name, facts)


def render(folder: Path, facts: Mapping[str, Any], tied: np.ndarray) -> None:
    """``report.html`` and ``report.md`` from what lies in the folder."""
    view = policy_view(facts, read_policy(folder), folder, tied)
    (folder / "report.html").write_text(render_html(dict(facts), view), encoding="utf-8")
    (folder / "report.md").write_text(render_markdown(dict(facts), view), encoding="utf-8")


def policy_view(facts: Mapping[str, Any], policy: Policy, folder: Path, tied: np.ndarray) -> PolicyView:
    """The policy as the report draws it, beside released evidence and released practice."""
    release = read_release(folder)
    best = policy.probabilities.argmax(-1)
    return PolicyView(
        state_labels=facts["dataset"]["live_states"],
        action_labels=facts["dataset"]["actions"],
        action=best,
        abstains=policy.abstains,
        share=policy.probabilities.max(-1),
        tie=tied,
        evidence=np.maximum(release.tables["n_sas"].sum(-1), 0).astype(np.float64),
        practice=practice(release),
    )


def run_facts(
    card: Card,
    recipe: Recipe,
    name: str,
    snapshot: int,
    curated: Curated,
    learnt: Learnt,
    digests: Mapping[str, str],
    looks: Sequence[Entry],
) -> dict[str, Any]:
    """All of ``report.json``."""
    ask, release = recipe.ask(), curated.release
    # a real dataset's ledger is not home's
    of_card = " --card CARD" if card.kind == "real" else ""
    asked = {k: v for k, v in (("rho", ask.rho), ("epsilon", ask.epsilon), ("delta", ask.delta)) if v is not None}
    settings = recipe.settings()
    facts: dict[str, Any] = {
        "schema_version": 1,
        "run": name,
        "recipe": recipe.recipe.name,
        "agent": recipe.recipe.agent,
        "dataset": dataset_facts(card, snapshot),
        "guarantee": guarantee(card, release, ask.calibration, asked),
        "constants": planner_facts(learnt, settings),
        "value": value_facts(
            card,
            learnt.value,
            is_proved=proved(card, settings, ask),
            row=measured(_containment(card), setting_key(card, recipe)),
        ),
        "model_baselines": learnt.baselines,
        "mechanisms": [describe_mechanism(m) for m in release.mechanisms],
        "ledger": _ledger_facts(card, curated),
        "consistency": {
            "solver": learnt.consistency.solver,
            "cells": sum(learnt.consistency.cells.values()),
            "certified": sum(learnt.consistency.certified.values()),
            "cases": {
                case: {"cells": learnt.consistency.cells[case], "certified": learnt.consistency.certified[case]}
                for case in learnt.consistency.cells
            },
            "largest_relative_difference": decade_above(learnt.consistency.largest_relative_difference),
            "tolerance": learnt.consistency.tolerance,
        },
        "policy": {
            "tie_share": float(learnt.plan.tied.mean()),
            "abstain_share": float(learnt.plan.policy.abstains.mean()),
            "tied": [[int(h), int(s)] for h, s in np.argwhere(learnt.plan.tied)],
        },
        "assumptions": assumptions(card, looks),
        "not_covered": list(NOT_COVERED),
        "verify": [
            f"reticent ledger verify {name}{of_card}  # recomputes this run's certificate",
            f"reticent ledger verify{of_card}  # the whole chain" + ("; CARD is the card's file" if of_card else ""),
            f"reticent ledger show{of_card}  # the entries of {card.name}",
            *(f"sha256sum {kind}.parquet  # {digest}" for kind, digest in digests.items()),
        ],
    }
    if card.kind == "synthetic" and recipe.evaluate is not None:
        facts["truth"] = _truth(card, recipe, learnt.plan.policy)
    return facts


def decade_above(difference: float) -> float:
    """The next power of ten, at least 1e-12: which cells were drawn must not change a page of the same release."""
    return max(1e-12, 10.0 ** math.ceil(math.log10(difference))) if difference > 0 else 1e-12


def _ledger_facts(card: Card, curated: Curated) -> dict[str, Any] | None:
    """Where the lineage stood when this release was committed: the same on every rendering."""
    if curated.commit is None:
        return None
    spent = Fraction(curated.commit.body["spent"])
    return {
        "dataset": card.name,
        "cap_rho": card.budget.rho,
        "spent_rho": up(spent),
        "remaining_rho": down(fraction_of(card.budget.rho) - spent),
        "delta": card.budget.delta,
        "epsilon_spent": safe_epsilon(up(spent), card.budget.delta),
        "entry": curated.commit.seq,
        "hash": curated.commit.hash,
        "at": curated.commit.at,
    }


def setting_key(card: Card, recipe: Recipe) -> dict[str, str]:
    """What a committed containment row must agree on (design §5.3)."""
    ask, p = recipe.ask(), recipe.planner
    return {
        "world": recipe.evaluate.world if recipe.evaluate else "",
        "behaviour": recipe.evaluate.behaviour if recipe.evaluate else "",
        "domain": card.domain_hash()[:16],
        "n": str(card.unit.users_public),
        "rho": f"{ask.rho:g}" if ask.rho is not None else "none",
        "dynamics": card.domain.dynamics,
        "tables": ask.tables,
        "policy_constants": p.constants,
        "bounds": p.bounds,
        "penalty": p.penalty,
        "setting": setting_hash(card, recipe),
    }


def setting_hash(card: Card, recipe: Recipe) -> str:
    """Of all that moves an interval but the draws and the seed of ties: another setting is another measurement."""
    world, told = card.folder / WORLD_ARRAYS, card.folder / WORLD_FILE
    parts = [
        [describe_mechanism(m) for m in privatizer(card, recipe.ask()).mechanisms],
        recipe.planner.model_dump(mode="json", exclude={"seed"}),
        recipe.evaluate.model_dump(mode="json") if recipe.evaluate else None,
        [[str(s), str(a)] for s, a in card.domain.vetoes],
        card.domain_hash(),
        card.unit.users_public,
        sha256_file(world) if world.is_file() else None,
        *([sha256_file(told)] if told.is_file() else []),
    ]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:24]


def _containment(card: Card) -> list[dict[str, str]]:
    """The committed containment table beside a synthetic card, if there is one."""
    path = card.folder / "containment.csv"
    if card.kind == "real" or not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _truth(card: Card, recipe: Recipe, policy: Policy) -> dict[str, float]:
    from pipeline.environments.registry import load_world
    from pipeline.evaluate import truth

    assert recipe.evaluate is not None
    world = load_world(recipe.evaluate.world, card.folder)
    return truth(card, world, recipe.evaluate.behaviour, policy)
