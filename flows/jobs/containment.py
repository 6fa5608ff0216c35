"""Which committed containment row speaks of a run: the setting it was measured in, and nothing looser."""

from __future__ import annotations

import csv
import hashlib

from pipeline.declaration.card import Card
from pipeline.environments.worlds import WORLD_ARRAYS, WORLD_FILE
from pipeline.learners.terms import Terms
from pipeline.ledger.chain import canonical
from pipeline.privacy.release_file import describe_mechanism, sha256_file
from pipeline.statistics.calibration import count_sum


def setting_key(card: Card, terms: Terms) -> dict[str, str]:
    """What a committed containment row must agree on (design §5.3)."""
    ask, p = terms.ask(), terms.planner
    return {
        "world": terms.evaluate.world if terms.evaluate else "",
        "behaviour": terms.evaluate.behaviour if terms.evaluate else "",
        "domain": card.domain_hash()[:16],
        "n": str(card.unit.users_public),
        "rho": f"{ask.rho:g}" if ask.rho is not None else "none",
        "dynamics": card.domain.dynamics,
        "tables": ask.tables,
        "policy_constants": p.constants,
        "bounds": p.bounds,
        "penalty": p.penalty,
        "setting": setting_hash(card, terms),
    }


def setting_hash(card: Card, terms: Terms) -> str:
    """Of all that moves an interval but the draws and the seed of ties: another setting is another measurement."""
    world, told = card.folder / WORLD_ARRAYS, card.folder / WORLD_FILE
    parts = [
        [describe_mechanism(m) for m in count_sum(card, terms.ask()).mechanisms],
        terms.planner.model_dump(mode="json", exclude={"seed"}),
        terms.evaluate.model_dump(mode="json") if terms.evaluate else None,
        [[str(s), str(a)] for s, a in card.domain.vetoes],
        card.domain_hash(),
        card.unit.users_public,
        sha256_file(world) if world.is_file() else None,
        *([sha256_file(told)] if told.is_file() else []),
    ]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:24]


def containment(card: Card) -> list[dict[str, str]]:
    """The committed containment table beside a synthetic card, if there is one."""
    path = card.folder / "containment.csv"
    if card.kind == "real" or not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
