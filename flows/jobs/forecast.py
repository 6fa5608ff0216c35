"""``plan``'s quality: what policy to expect of a recipe, by simulating it on its declarations alone.

Reads no store and no ledger: n is the card's declared number of people, or asked for; the world is the one a synthetic
recipe declares in [evaluate], else made up.  A simulation is kept in the home and found again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flows.config.setting import Setting, setting
from flows.config.shelf import Home
from pipeline.declaration.code import code_digest
from pipeline.declaration.plugins import is_plugin, plugin_digest
from pipeline.environments.count_tables import MOST_EPISODES
from pipeline.environments.worlds import arrays_file
from pipeline.files import whole_file
from pipeline.learners.learner import RunPlan
from pipeline.ledger.chain import canonical
from pipeline.privacy.release_file import sha256_file
from pipeline.simulation.surrogate import SUCCESSORS, WORDS, Drawn
from reports.facts.part import Dump
from reports.facts.plan import Band, Quality, Reference
from reports.format import number

Array = np.ndarray[Any, np.dtype[np.float64]]
# the band over draws, and how many draws: fewer where one takes long
LOW, HIGH = 0.1, 0.9
_DRAWS, _FEWEST, _WORK = 24, 8, 6_000_000
# integers of one simulated log beyond which nobody waits for it
_MOST_CELLS = 2_000_000
IS_NOT = (
    "a simulation, not a promise: it says what this many people and this noise teach in such a world, not in yours; "
    "nothing of the dataset was read"
)


def foresee_job(recipe: str, home: Home, people: int | None = None) -> Dump:
    """The ``quality`` of ``plan --json``; parameters of :func:`forecast_quality`."""
    return forecast_quality(recipe, home, people).model_dump()


def forecast_quality(recipe: str, home: Home, people: int | None = None) -> Quality:
    """The band of a recipe's suboptimality.

    Parameters
    ----------
    recipe
        Path or name.
    home
        Keeps what was simulated.
    people
        Instead of the card's declared number.
    """
    s = _invented(setting(recipe, home))
    plan, unit = s.plan, s.card.unit
    episodes = (people or unit.users_public) * unit.episodes_per_user
    reason = _reason(plan, episodes)
    if reason is not None:
        return Quality(world=None, episodes=episodes, reason=reason, is_not=IS_NOT)
    draws = range(max(_FEWEST, min(_DRAWS, _WORK // max(1, plan.log_size(episodes)))))
    at = home.root / "foresight" / f"{_key(s, episodes, len(draws))}.json"
    if at.is_file():
        return Quality.model_validate({**json.loads(at.read_text(encoding="utf-8")), "cached": True})
    told = _told(s, plan, episodes, plan.forecast(episodes, draws))
    at.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(at, alone=False) as fresh:
        fresh.write_text(json.dumps(told.model_dump(), allow_nan=False), encoding="utf-8")
    return Quality.model_validate({**told.parts(), "cached": False})


def _invented(s: Setting) -> Setting:
    """The same declarations as if the people were invented, as they are here: seeded noise may then be drawn.

    A world that the recipe of real people names is nobody's declaration of them, and may lie in their folder: it goes.
    """
    card = s.card.model_copy(update={"kind": "synthetic"}).placed(s.card.folder)
    told = {} if s.card.kind == "synthetic" else {"evaluate": None}
    return replace(s, card=card, recipe=s.recipe.model_copy(update=told))


def _declared(s: Setting) -> tuple[str, str] | None:
    """World and logging policy that a synthetic recipe declares."""
    e = s.recipe.evaluate
    return None if e is None else (e.world, e.behaviour)


def _reason(plan: RunPlan, episodes: int) -> str | None:
    """Why nothing is simulated; None where something is."""
    if episodes > MOST_EPISODES:
        return f"more than {MOST_EPISODES:,} episodes are not simulated"
    if (reason := plan.unforeseen()) is not None:
        return reason
    if (cells := plan.log_size(episodes)) > _MOST_CELLS:
        return f"one simulated log holds {cells:,} numbers; up to {_MOST_CELLS:,} are simulated"
    return None


def _told(s: Setting, plan: RunPlan, episodes: int, drawn: Sequence[Drawn]) -> Quality:
    declared = _declared(s)
    reference = float(np.mean([d.reference for d in drawn]))
    loss = _band([d.loss for d in drawn])
    world = WORDS.format(successors=SUCCESSORS) if declared is None else f"{declared[0]}, logged by {declared[1]}"
    return Quality(
        world=world,
        declared=declared is not None,
        episodes=episodes,
        draws=len(drawn),
        optimum=float(np.mean([d.optimum for d in drawn])),
        suboptimality=loss,
        without_noise=_band([d.exact for d in drawn]),
        reference=Reference(name=plan.reference, suboptimality=reference),
        share=loss.mean / reference if reference > 0 else None,
        abstains=float(np.mean([d.abstains for d in drawn])),
        is_not=IS_NOT,
    )


def _band(values: Sequence[float]) -> Band:
    low, high = np.quantile(values, [LOW, HIGH])
    return Band(mean=float(np.mean(values)), low=float(low), high=float(high))


def _key(s: Setting, episodes: int, draws: int) -> str:
    """Of all that a simulation depends on; its seeds are 0, 1, 2 and so on."""
    declared = _declared(s)
    file = arrays_file(declared[0], s.card.folder) if declared is not None else Path()
    named = s.recipe.recipe.agent, "" if declared is None else declared[0]
    own = [plugin_digest(name) if is_plugin(name) else None for name in named]
    parts = [
        s.card.model_dump(mode="json", exclude={"source", "budget", "tolerance", "name"}),
        {k: v for k, v in s.recipe.dump().items() if k != "recipe"} | {"agent": s.recipe.recipe.agent},
        [episodes, draws, code_digest(), sha256_file(file) if file.is_file() else None, *own],
    ]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:24]


def quality_lines(q: Quality) -> list[str]:
    """The band as lines a person reads.

    Parameters
    ----------
    q
        As it was simulated.
    """
    s, e, r = q.suboptimality, q.without_noise, q.reference
    if s is None or e is None or r is None:
        return [f"quality     not foreseen: {q.reason}"]
    share = "" if q.share is None else f", {number(100 * q.share, 2)} % of {r.name}'s"
    return [
        f"quality     suboptimality {number(s.mean, 3)} ({number(s.low, 2)} to {number(s.high, 2)} in eight "
        f"of ten of {q.draws} simulated runs){share} {number(r.suboptimality, 3)}",
        f"            without noise {number(e.mean, 3)} ({number(e.low, 2)} to {number(e.high, 2)}); the best "
        f"policy is worth {number(q.optimum, 3)}",
        f"            {q.episodes:,} episodes, {q.world}",
        f"            {q.is_not}",
    ]
