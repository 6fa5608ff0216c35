"""One draw of a study: a fresh simulated log, fresh seeded noise, a policy and its interval, the truth beside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.declaration.card import Card, load_card
from pipeline.environments.world import World
from pipeline.environments.worlds import load_world
from pipeline.evaluation.exact import truth
from pipeline.learners.tabular_learning import learn
from pipeline.learners.terms import Planner
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.simulate import sample_counts
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum

SHELF = Path(__file__).resolve().parents[2] / "datasets"


@dataclass(frozen=True)
class Draw:
    """Interval, values in the true world and in the binned process, share of states in which the policy abstains."""

    lower: float
    upper: float
    v_policy: float
    v_policy_model: float
    abstains: float

    @property
    def inside(self) -> bool:
        """Whether the interval holds the policy's value in the binned process."""
        return self.lower <= self.v_policy_model <= self.upper


def shelf_card(name: str, dynamics: str | None = None, users: int | None = None) -> Card:
    """A card on the shelf, with other dynamics or another declared number of people."""
    card = load_card(SHELF / name / "card.toml")
    values = card.model_dump(mode="json")
    if dynamics is not None and dynamics != card.domain.dynamics:
        values["domain"] |= {"dynamics": dynamics, "cell_cap": None}
    if users is not None:
        values["unit"]["users_public"] = users
    return Card.model_validate(values).placed(card.folder)


def draws(
    card: Card,
    world: World,
    behaviour: str,
    episodes: int,
    asks: dict[str, Ask],
    settings: Planner,
    count: int,
    seed: int,
) -> Iterator[dict[str, Draw]]:
    """``count`` draws; within one draw every budget sees the same log."""
    for i in range(count):
        sequence = np.random.SeedSequence([seed, i])
        of_log, of_noise = sequence.spawn(2)
        counts = sample_counts(card, world, behaviour, episodes, np.random.default_rng(of_log))
        found = {}
        for name, ask in asks.items():
            release = count_sum(card, ask).draw(counts, SeededNoise(of_noise))
            learnt = learn(card, settings, release)
            true = truth(card, world, behaviour, learnt.plan.policy)
            found[name] = Draw(
                learnt.value["lower"],
                learnt.value["upper"],
                true["v_policy"],
                true["v_policy_model"],
                float(learnt.plan.policy.abstains.mean()),
            )
        yield found


def world_of(card: Card, name: str) -> World:
    """The known world behind a shelf card."""
    return load_world(name, card.folder)
