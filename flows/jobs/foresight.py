"""What quality to expect of a recipe, and which agent its forecast prefers: simulated on declarations alone.

Reads no store and no ledger: n is the card's declared number of people, or asked for; the world is the one that a
synthetic recipe declares in [evaluate], else a surrogate.  A simulation is kept in the home and found again; those of
the shipped recipes travel with them.

A key says all that a simulation depends on but the code; its seeds are 0, 1, 2 and so on.  A home keeps what this code
simulated.  A shipped forecast stands while every module that ran for it does what it did: its comments and
docstrings may have changed.  The versions of libraries are not looked at.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flows.config.home import Home
from flows.config.setting import Setting, setting
from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.declaration.code import code_digest, is_plugin, plugin_digest, syntax_digest
from pipeline.declaration.numbers import number
from pipeline.facts.answers import Band, Quality, Reference, Rival
from pipeline.facts.promise import Dump, MechanismFacts
from pipeline.files import whole_file, write_file
from pipeline.learners.learner import RunPlan
from pipeline.learners.offline_agents import plan_run, rivals
from pipeline.ledger.chain import canonical
from pipeline.privacy.release_file import sha256_file
from pipeline.worlds.world import MOST_EPISODES

if TYPE_CHECKING:
    from pipeline.worlds.surrogate import Drawn

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "flows" / "recipes" / "forecasts.json"
"""``forecasts`` by their keys, and the ``code`` that made them; ``make forecasts`` writes it."""


def forecast_key(s: Setting, episodes: int, draws: int) -> str:
    """Digest of the declarations, the world and the sizes."""
    world = "" if (known := s.recipe.terms.known) is None else known.world
    files = list[Path]()
    if world:
        from pipeline.worlds.catalog import WORLD_FILE, arrays_file

        files = [s.card.folder / WORLD_FILE, arrays_file(world, s.card.folder)]
    named = s.recipe.recipe.agent, world
    own = [plugin_digest(name) if is_plugin(name) else None for name in named]
    parts = [
        s.card.model_dump(mode="json", exclude={"source", "budget", "tolerance", "name"}),
        {k: v for k, v in s.recipe.dump().items() if k not in ("recipe", "play")} | {"agent": s.recipe.recipe.agent},
        [episodes, draws, *(sha256_file(file) if file.is_file() else None for file in files), *own],
        *([str(s.reserve)] if s.reserve else []),
    ]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:24]


def find_forecast(home: Home, key: str) -> Quality | None:
    """The forecast of this key: the home's, else the shipped one if this code still does the same; else None."""
    if (at := _place(home, key)).is_file():
        kept = json.loads(at.read_text(encoding="utf-8"))
    elif SHIPPED.is_file() and key in (told := json.loads(SHIPPED.read_text(encoding="utf-8")))["forecasts"]:
        kept = told["forecasts"][key] if all(_stands(*of) for of in told["code"].items()) else None
    else:
        kept = None
    return None if kept is None else Quality.model_validate({**kept, "cached": True})


def keep_forecast(home: Home, key: str, told: Quality) -> None:
    """Keep it in the home."""
    at = _place(home, key)
    at.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(at, alone=False) as fresh:
        write_file(fresh, json.dumps(told.model_dump(), allow_nan=False))


def code_of(module: str) -> str:
    """Digests of a module's text and of its syntax, with a blank between; empty of a package."""
    return f"{sha256_file(at)[:16]} {syntax_digest([module])[:16]}" if (at := _file_of(module)).is_file() else ""


def _stands(module: str, told: str) -> bool:
    """Whether a module does what it did; its syntax is read only where its text is another."""
    text, _, syntax = told.partition(" ")
    same = (at := _file_of(module)).is_file() and sha256_file(at)[:16] == text
    return same or code_of(module).partition(" ")[2] == syntax


def _file_of(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def _place(home: Home, key: str) -> Path:
    return home.root / "foresight" / f"{key}-{code_digest()[:12]}.json"


# the band over draws, and how many draws: fewer where one takes long
LOW, HIGH = 0.1, 0.9
_DRAWS, _FEWEST, _WORK = 24, 3, 6_000_000
# of fewer draws the band is all of them
_BAND = 8
# numbers of one simulated log beyond which two runs must do, and beyond which nobody waits for one
_MANY_CELLS, _MOST_CELLS = 2_000_000, 20_000_000
# runs of a rival at most, and numbers of all their logs together
_RIVAL_DRAWS, _RIVAL_WORK = 3, 1_000_000
# a rival is preferred if it loses less by so many standard errors of the runs, and by this share of what a recipe loses
_SURE, _MATTERS = 2.0, 0.05
_ALIKE = {"dynamics": "stationary"}
ONE_TABLE = (
    'every step of the declared world has the same transitions: with dynamics = "stationary" in the card one table '
    "serves all steps, which leaves less noise at the same promise"
)
IS_NOT = (
    "a simulation, not a promise: it says what this many people and this noise teach in such a world, not in yours; "
    "nothing of the dataset was read"
)


def forecast_quality(recipe: str, home: Home, people: int | None = None) -> Quality:
    """The band of a recipe's suboptimality."""
    s = _invented(setting(recipe, home, declared=True))
    plan, unit = s.plan, s.card.unit
    episodes = (people or unit.users_public) * unit.episodes_per_user
    reason = _reason(plan, episodes)
    alone = Quality(world=None, episodes=episodes, reason=reason, is_not=IS_NOT)
    if reason is not None and plan.log_size(episodes) <= _MOST_CELLS:
        return alone
    size = max(1, plan.log_size(episodes))
    draws = range(max(_FEWEST, min(_DRAWS, _WORK // size)) if size <= _MANY_CELLS else 2)
    key = forecast_key(s, episodes, len(draws))
    if (kept := find_forecast(home, key)) is not None:
        return kept
    # whoever is held out is left out by the plan itself
    taught = episodes if s.terms.held_out else max(1, round(episodes * s.terms.teaching))
    drawn = [] if reason is not None else plan.forecast(taught, draws)
    told = _told(s, plan, episodes, drawn) if drawn else alone
    told = Quality.model_validate({**told.parts(), **_preference(s, episodes, drawn)})
    keep_forecast(home, key, told)
    return Quality.model_validate({**told.parts(), "cached": False})


def _invented(s: Setting) -> Setting:
    """The same declarations as if the people were invented, as they are here: seeded noise may then be drawn.

    A world that the recipe of real people names is nobody's declaration of them, and may lie in their folder: it goes.
    """
    card = s.card.model_copy(update={"kind": "synthetic"}).placed(s.card.folder)
    e = s.recipe.evaluate
    told = {} if s.card.kind == "synthetic" or e is None else {"evaluate": e.model_copy(update={"world": None})}
    return replace(s, card=card, recipe=s.recipe.model_copy(update=told))


def _reason(plan: RunPlan, episodes: int) -> str | None:
    """Why nothing is simulated; None where something is."""
    if episodes > MOST_EPISODES:
        return f"more than {MOST_EPISODES:,} episodes are not simulated"
    if (reason := plan.unforeseen()) is not None:
        return reason
    if (cells := plan.log_size(episodes)) > _MOST_CELLS:
        return f"one simulated log holds {cells:,} numbers; up to {_MOST_CELLS:,} are simulated"
    return None


def _rivals(s: Setting) -> Iterator[tuple[Rival, RunPlan]]:
    """What else could be drawn of this card at this budget: agents, releases, and steps that share where they may."""
    own, p = s.recipe.agent, s.recipe.privacy
    cards: list[AnyCard] = [s.card, *([alike] if (alike := _steps_alike(s)) is not None else [])]
    releases = ("one_table", "two_tables") if p is not None else ("one_table",)
    listed = rivals(s.recipe.recipe.agent, s.card, private=own.private)
    for (name, agent), release, card in itertools.product(listed, releases, cards):
        elsewhere = _observed(s) and agent.learner.section != "linear"
        if elsewhere or (s.recipe.nightly is not None and not agent.learner.continual):
            continue
        asked = None if p is None else p.model_copy(update={"release": release, "calibration": "tight", "split": None})
        e = None if s.recipe.evaluate is None else s.recipe.evaluate.model_copy(update={"people": 0.0})
        section = agent.learner.section
        mine = {n: getattr(s.recipe, n) if n == section else None for n in ("linear", "lq", "one_step")}
        terms = replace(s.recipe.terms, agent=name, privacy=asked, evaluate=e, **mine)
        try:
            agent.learner.check(terms)
            plan = plan_run(card, terms)
        except (CardError, ValueError):
            # what does not fit is no rival
            continue
        of = {"release": release} if section is None else {}
        yield Rival.model_validate({"agent": name, **of, **({} if card is s.card else _ALIKE)}), plan


def _observed(s: Setting) -> bool:
    """Whether the made-up world is one of observations: others would be simulated in another one."""
    read = s.recipe.agent.learner.section == "linear"
    return read and isinstance(s.card, Card) and s.card.domain.observation is not None


def _steps_alike(s: Setting) -> Card | None:
    """The card with one table for all steps, where the declared world has the same transitions at each of them."""
    known, card = s.recipe.terms.known, s.card
    if known is None or not isinstance(card, Card) or card.domain.dynamics == "stationary":
        return None
    from pipeline.worlds.catalog import load_world

    if not load_world(known.world, card.folder).stationary:
        return None
    domain = card.domain.model_copy(update=_ALIKE)
    return card.model_copy(update={"domain": domain}).placed(card.folder)


def _preference(s: Setting, episodes: int, own: Sequence[Drawn]) -> Dump:
    """Which of the agents and releases loses least in the same simulated worlds, and why: fields of the quality."""
    learners, found = max(1, round(episodes * s.terms.teaching)), list[Rival]()
    p, head = s.recipe.privacy, s.recipe.recipe
    of = {"release": p.release} if p is not None and s.recipe.agent.learner.section is None else {}
    mine = Rival.model_validate({"agent": head.agent, **of, "suboptimality": _mean(own) if own else None})
    most = _MANY_CELLS if own else _MOST_CELLS
    best, by = mine, 0.0
    for rival, plan in _rivals(s):
        if rival.name in {r.name for r in (mine, *found)}:
            continue
        size, reason = max(1, plan.log_size(learners)), plan.unforeseen()
        if reason is None and size > most:
            reason = _drowned(plan) or f"one simulated log holds {size:,} numbers"
        if reason is not None:
            found.append(Rival.model_validate({**rival.parts(), "reason": reason}))
            continue
        drawn = plan.forecast(learners, range(max(1, min(_RIVAL_DRAWS, _RIVAL_WORK // size))))
        found.append(Rival.model_validate({**rival.parts(), "suboptimality": _mean(drawn)}))
        # both met the same worlds and logs
        less = float(np.mean([a.loss - b.loss for a, b in zip(own, drawn, strict=False)])) if own else 0.0
        error = float(np.std([d.loss for d in own], ddof=1)) / math.sqrt(len(drawn)) if own else 0.0
        first = not own and (best.suboptimality is None or _mean(drawn) < best.suboptimality)
        if first or (own and less > max(by, _SURE * error, _MATTERS * _mean(own))):
            best, by = found[-1], less
    alike = {"proposes": ONE_TABLE} if any(r.dynamics for r in found) else {}
    return {"rivals": found, "prefers": best, "why": _why(best, [mine, *found]), **alike} if found else {}


def _drowned(plan: RunPlan) -> str | None:
    """Of counts, what one cell holds in an even log, beside the noise of all its successors: a closed form."""
    quote = plan.quote()
    listed = [m for m in quote.mechanisms if isinstance(m, MechanismFacts) and m.table == "n_sas"]
    visits = quote.outlook.get("visits_per_cell_if_even")
    if not listed or visits is None:
        return None
    onto = listed[0].shape[-1]
    noise = listed[0].scale * math.sqrt(onto)
    return f"a cell of an even log has {number(visits, 2)} visits, with noise ± {number(noise, 2)} on {onto} successors"


def _why(best: Rival, all_of_them: Sequence[Rival]) -> str:
    """One sentence, in which the recipe's own, the first of all, comes first."""
    own, *rivals = all_of_them
    others = [r for r in all_of_them if r.name != best.name]
    lost = sorted(
        (r for r in rivals if r in others and r.suboptimality is not None), key=lambda r: r.suboptimality or 0
    )
    lost = [*([own] if own in others and own.suboptimality is not None else []), *lost]
    told = [f"{number(r.suboptimality, 2)} by {r.name}" for r in lost[:3]]
    drowned = [f"{r.name} is not simulated: {r.reason}" for r in others if r.reason is not None][:1]
    if best.suboptimality is None:
        return f"no run of it is simulated, nor of anything else ({'; '.join(drowned)})"
    than = f", against {', '.join(told)}" if told else ""
    if any(r.suboptimality < best.suboptimality for r in lost[:3] if r.suboptimality is not None):
        than += ": so few runs do not tell them apart"
    return "; ".join([f"it loses {number(best.suboptimality, 2)} in the same worlds{than}", *drowned])


def _mean(drawn: Sequence[Drawn]) -> float:
    # a loss of rounding alone is none
    return max(0.0, round(float(np.mean([d.loss for d in drawn])), 12))


def _told(s: Setting, plan: RunPlan, episodes: int, drawn: Sequence[Drawn]) -> Quality:
    from pipeline.worlds.surrogate import OBSERVED, STATES

    known = s.recipe.terms.known
    reference = float(np.mean([d.reference for d in drawn]))
    loss = _band([d.loss for d in drawn])
    invented = OBSERVED if _observed(s) else STATES
    world = invented if known is None else f"{known.world}, logged by {known.behaviour}"
    return Quality(
        world=world,
        declared=known is not None,
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
    low, high = np.quantile(values, [LOW, HIGH]) if len(values) >= _BAND else (min(values), max(values))
    return Band(mean=float(np.mean(values)), low=float(low), high=float(high))
