"""``plan``'s quality: what policy to expect of a recipe, by simulating it on its declarations alone.

Reads no store and no ledger: n is the card's declared number of people, or asked for; the world is the one a synthetic
recipe declares in [evaluate], else made up.  A simulation is kept in the home and found again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flows.config.setting import Setting, counts_privatizer, setting
from flows.config.shelf import Home
from pipeline.agents.pessimism import constants
from pipeline.declaration.card import Card, require_linear_quadratic, task_of
from pipeline.declaration.plugins import code_digest, is_plugin, plugin_digest
from pipeline.environments.count_tables import MOST_EPISODES
from pipeline.environments.worlds import arrays_file, load_world
from pipeline.evaluation.exact import binned_behaviour, binned_process
from pipeline.learners.tabular import slack_of
from pipeline.ledger.chain import canonical
from pipeline.mdp.model import TabularMDP
from pipeline.privacy.release import Mechanism
from pipeline.privacy.release_file import sha256_file
from pipeline.simulation.logged import Logged
from pipeline.simulation.surrogate import SUCCESSORS, WORDS, Drawn, foreseen, made_up
from pipeline.statistics.privatizers import exact_counts

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


def foresee_job(recipe: str, home: Home, people: int | None = None) -> dict[str, Any]:
    """The band of a recipe's suboptimality at the declared number of people, or at ``people``.

    Returns
    -------
    ``world``, ``episodes``, ``draws``, ``suboptimality`` and ``without_noise`` (``mean, low, high``), ``reference``
    (what learns nothing), ``share`` of it that is left, ``abstains``; or ``reason`` where nothing is simulated.
    """
    s = _invented(setting(recipe, home))
    unit = s.card.unit
    episodes = (people or unit.users_public) * unit.episodes_per_user
    reason = _reason(s, episodes)
    if reason is not None:
        return {"world": None, "episodes": episodes, "reason": reason, "is_not": IS_NOT}
    cells = _cells(s, episodes)
    draws = range(max(_FEWEST, min(_DRAWS, _WORK // max(1, cells))))
    at = home.root / "foresight" / f"{_key(s, episodes, len(draws))}.json"
    if at.is_file():
        return json.loads(at.read_text(encoding="utf-8")) | {"cached": True}
    told = _told(s, episodes, _simulated(s, episodes, draws))
    at.parent.mkdir(parents=True, exist_ok=True)
    beside = at.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps(told, allow_nan=False), encoding="utf-8")
    beside.replace(at)
    return told | {"cached": False}


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


def _reason(s: Setting, episodes: int) -> str | None:
    """Why nothing is simulated; None where something is."""
    if episodes > MOST_EPISODES:
        return f"more than {MOST_EPISODES:,} episodes are not simulated"
    if s.recipe.is_lq and _declared(s) is None:
        return "the card declares no A and B: without [evaluate] there is no plant to simulate"
    if s.recipe.is_linear:
        features = s.tabular.features
        if features is None or (features.kind != "one_hot" and _declared(s) is None):
            return "a made-up world is not linear in these features; declare one in [evaluate], or one_hot features"
        if s.recipe.linear is not None and s.recipe.linear.halves:
            return "halves = true: a log is simulated as sums, which cannot be split by person"
    if (cells := _cells(s, episodes)) > _MOST_CELLS:
        return f"one simulated log holds {cells:,} numbers; up to {_MOST_CELLS:,} are simulated"
    return None


def _cells(s: Setting, episodes: int) -> int:
    """Numbers of one simulated log."""
    if s.recipe.is_lq:
        d = require_linear_quadratic(s.card).domain
        return episodes * d.horizon * (d.observation.size + d.action.size) // 4
    d = s.tabular.domain
    return d.horizon * len(d.state_labels) ** 2 * len(d.action_labels)


def _simulated(s: Setting, episodes: int, draws: Sequence[int]) -> list[Drawn]:
    declared = _declared(s)
    if s.recipe.is_lq:
        from flows.jobs.lq import request_of
        from pipeline.learners.lq_forecast import foreseen_lq

        assert declared is not None
        return foreseen_lq(request_of(s), *declared, episodes, draws)
    card = s.tabular
    known = None if declared is None else _known(card, *declared)
    logged = partial(_logged, s, known)
    if s.recipe.is_linear:
        from flows.jobs.linear import request_of as linear_request_of
        from pipeline.learners.linear_forecast import foreseen_linear

        silent = exact_counts(card).mechanisms
        return foreseen_linear(linear_request_of(s), lambda rng: logged(silent, rng), episodes, draws)
    asked, silent = _once(s), exact_counts(card, s.recipe.ask().tables).mechanisms

    def both(rng: np.random.Generator) -> tuple[Logged, Logged]:
        one = logged(asked, rng)
        return one, replace(one, mechanisms=silent)

    return foreseen(both, episodes, draws)


def _known(card: Card, name: str, behaviour: str) -> tuple[TabularMDP, Array]:
    """The declared world as the card's tables see it, and its logging policy."""
    world = load_world(name, card.folder)
    return binned_process(card, world, behaviour), binned_behaviour(card, world, behaviour)


def _logged(
    s: Setting,
    known: tuple[TabularMDP, Array] | None,
    mechanisms: tuple[Mechanism, ...],
    rng: np.random.Generator,
) -> Logged:
    card, p = s.tabular, s.recipe.settings()
    mdp = made_up(card, rng) if known is None else known[0]
    behaviour = np.full(mdp.shape, 1 / mdp.shape[2]) if known is None else known[1]
    task = task_of(card)
    c = constants(p.constants, task.horizon * task.allowed.size, p.failure, pooled=card.domain.dynamics == "stationary")
    return Logged(card, task, mdp, behaviour, mechanisms, c, p.penalty, slack_of(p.constants), p.failure)


def _once(s: Setting) -> tuple[Mechanism, ...]:
    """What one release draws; of a nightly counter, one draw of the noise of its noisiest night."""
    found = counts_privatizer(s).mechanisms
    return tuple(
        m if m.running is None else replace(m, running=None, variance=math.ceil(m.standard_deviation**2)) for m in found
    )


def _told(s: Setting, episodes: int, drawn: Sequence[Drawn]) -> dict[str, Any]:
    declared = _declared(s)
    reference = float(np.mean([d.reference for d in drawn]))
    loss = _band([d.loss for d in drawn])
    world = WORDS.format(successors=SUCCESSORS) if declared is None else f"{declared[0]}, logged by {declared[1]}"
    return {
        "world": world,
        "declared": declared is not None,
        "episodes": episodes,
        "draws": len(drawn),
        "optimum": float(np.mean([d.optimum for d in drawn])),
        "suboptimality": loss,
        "without_noise": _band([d.exact for d in drawn]),
        "reference": {"name": "no control" if s.recipe.is_lq else "uniform choice", "suboptimality": reference},
        "share": loss["mean"] / reference if reference > 0 else None,
        "abstains": float(np.mean([d.abstains for d in drawn])),
        "is_not": IS_NOT,
    }


def _band(values: Sequence[float]) -> dict[str, float]:
    low, high = np.quantile(values, [LOW, HIGH])
    return {"mean": float(np.mean(values)), "low": float(low), "high": float(high)}


def _key(s: Setting, episodes: int, draws: int) -> str:
    """Of all that a simulation depends on; its seeds are 0, 1, 2 and so on."""
    declared = _declared(s)
    file = arrays_file(declared[0], s.card.folder) if declared is not None else Path()
    own = plugin_digest(declared[0]) if declared is not None and is_plugin(declared[0]) else None
    parts = [
        s.card.model_dump(mode="json", exclude={"source", "budget", "tolerance", "name"}),
        {k: v for k, v in s.recipe.dump().items() if k != "recipe"} | {"agent": s.recipe.recipe.agent},
        [episodes, draws, code_digest(), sha256_file(file) if file.is_file() else None, own],
    ]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:24]


def quality_lines(q: dict[str, Any], number: Callable[..., str]) -> list[str]:
    """The band as lines a person reads."""
    if "reason" in q:
        return [f"quality     not foreseen: {q['reason']}"]
    s, e, r = q["suboptimality"], q["without_noise"], q["reference"]
    share = "" if q["share"] is None else f", {number(100 * q['share'], 2)} % of {r['name']}'s"
    return [
        f"quality     suboptimality {number(s['mean'], 3)} ({number(s['low'], 2)} to {number(s['high'], 2)} in eight "
        f"of ten of {q['draws']} simulated runs){share} {number(r['suboptimality'], 3)}",
        f"            without noise {number(e['mean'], 3)} ({number(e['low'], 2)} to {number(e['high'], 2)}); the best "
        f"policy is worth {number(q['optimum'], 3)}",
        f"            {q['episodes']:,} episodes, {q['world']}",
        f"            {q['is_not']}",
    ]
