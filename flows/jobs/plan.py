"""``plan``: what a run would spend and what is left, and the quality to expect; from declarations and the ledger alone.

The quality reads no store and no ledger: n is the card's declared number of people, or asked for; the world is the one
that a synthetic recipe declares in [evaluate], else a surrogate.  A simulation is kept in the home and found again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from flows.config.home import Home
from flows.config.setting import Setting, ledger_for, setting
from flows.jobs.nights import calendar_plan, nightly_plan, standing_run
from pipeline.declaration.code import code_digest
from pipeline.declaration.plugins import is_plugin, plugin_digest
from pipeline.environments.count_tables import MOST_EPISODES
from pipeline.environments.worlds import arrays_file
from pipeline.files import whole_file, write_file
from pipeline.learners.learner import RunPlan
from pipeline.ledger.chain import canonical
from pipeline.logs.store import latest
from pipeline.privacy.budget import rho_from_epsilon, up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.noise import OsNoise
from pipeline.privacy.release_file import sha256_file
from pipeline.simulation.surrogate import SUCCESSORS, WORDS, Drawn
from pipeline.transaction.release_once import total_charge
from reports.facts.part import Dump
from reports.facts.plan import Band, NightsPlan, PlanAnswer, PriceOfEpsilon, Quality, Reference

# the band over draws, and how many draws: fewer where one takes long
LOW, HIGH = 0.1, 0.9
_DRAWS, _FEWEST, _WORK = 24, 8, 6_000_000
# integers of one simulated log beyond which nobody waits for it
_MOST_CELLS = 2_000_000
IS_NOT = (
    "a simulation, not a promise: it says what this many people and this noise teach in such a world, not in yours; "
    "nothing of the dataset was read"
)


def plan_recipe(recipe: str, home: Home) -> PlanAnswer:
    """What a run would spend and what is left; reads no rows and writes nothing but a synthetic registration.

    Parameters
    ----------
    recipe
        Path or name.
    home
        Where store and ledger are.

    Raises
    ------
    CardError
        If recipe and card do not fit each other, or the card differs from its registration.
    BudgetError
        If a real card is not registered.
    """
    s = setting(recipe, home)
    plan = s.plan
    plan.admit(OsNoise())
    ledger = ledger_for(s.card, home)
    ledger.require(s.card)
    account, entries = ledger.account(s.card.name), ledger.entries()
    newest = latest(home.store, s.card.name)
    edition = None if newest is None else newest.number
    guarded = standing_run(s, edition, entries)
    quote, charges = guarded.quote(), guarded.charges(s.card, edition, entries)
    replays = not charges
    cost, joining = total_charge(charges)
    counter: NightsPlan | None = None
    if s.recipe.nightly is not None:
        cost, counter = nightly_plan(s, ledger)
        replays = counter.replays
    calendar = calendar_plan(s, ledger, quote.rho or Fraction(0))
    left = ledger.left(s.card.name, joining)
    fits = cost <= left.rho
    # before the first date of a counter and after its last there is nothing to run
    allowed = fits and (counter is None or replays or counter.night is not None)
    told = {
        "dataset": s.card.name,
        "recipe": s.recipe.recipe.name,
        "agent": s.recipe.recipe.agent,
        "mechanisms": quote.mechanisms,
        **({} if quote.joint is None else {"joint": quote.joint}),
        **{key: quote.spent[key] for key in ("rho", "epsilon", "delta")},
        "spent_before": float(account.lost),
        "remaining_after": float(account.remaining - cost),
        "cap_rho": float(account.cap),
        "delta_of_lineage": account.delta,
        "epsilon_before": safe_epsilon(up(account.lost), account.delta),
        "epsilon_after": safe_epsilon(up(account.lost + cost), account.delta),
        "replays": replays,
        "allowed": allowed,
        "limit": left.told(),
        **({} if counter is None else {"counter": counter}),
        **({} if calendar is None else {"calendar": calendar}),
        "fits": None if fits or left.rho <= 0 else plan.fitting(left.rho),
        **quote.outlook,
        **_both_prices(s),
    }
    return PlanAnswer.model_validate(told)


def _both_prices(s: Setting) -> Dump:
    """What the recipe's epsilon costs with and without a delta: the one is many times the other."""
    asked = s.recipe.privacy
    if asked is None or asked.epsilon is None:
        return {}
    delta = asked.delta or s.card.budget.delta
    rho = up(Fraction(rho_from_epsilon(asked.epsilon, delta)))
    told = PriceOfEpsilon(epsilon=asked.epsilon, pure_rho=asked.epsilon**2 / 2, delta=delta, rho=rho)
    return {"price_of_epsilon": told}


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
        write_file(fresh, json.dumps(told.model_dump(), allow_nan=False))
    return Quality.model_validate({**told.parts(), "cached": False})


def _invented(s: Setting) -> Setting:
    """The same declarations as if the people were invented, as they are here: seeded noise may then be drawn.

    A world that the recipe of real people names is nobody's declaration of them, and may lie in their folder: it goes.
    """
    card = s.card.model_copy(update={"kind": "synthetic"}).placed(s.card.folder)
    e = s.recipe.evaluate
    told = {} if s.card.kind == "synthetic" or e is None else {"evaluate": e.model_copy(update={"world": None})}
    return replace(s, card=card, recipe=s.recipe.model_copy(update=told))


def _declared(s: Setting) -> tuple[str, str] | None:
    """World and logging policy that a synthetic recipe declares."""
    known = s.recipe.terms.known
    return None if known is None else (known.world, known.behaviour)


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
