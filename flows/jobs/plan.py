"""``plan``: what a run would spend and what is left, from card, recipe and ledger alone."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import Any

from flows.config.setting import Setting, counts_privatizer, ledger_for, setting
from flows.config.shelf import Home
from flows.jobs.nights_plan import nightly_plan
from pipeline.declaration.card import Card
from pipeline.ledger.certificate import spent_budget
from pipeline.logs.store import latest
from pipeline.privacy.budget import up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.noise import OsNoise
from pipeline.privacy.release import total_rho
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.calibration import Ask, count_sum
from pipeline.statistics.signal_to_noise import BUDGETS, LEVELS, PEOPLE, even_visits, people_needed, scaled, yardstick
from pipeline.transaction.release_once import CountsDrawing, Drawing, key_of


def plan_job(recipe: str, home: Home) -> dict[str, Any]:
    """What a run would spend and what is left; reads no rows and writes nothing but a synthetic registration."""
    s = setting(recipe, home)
    if s.recipe.is_lq:
        return _lq_plan(s, home)
    if s.recipe.is_linear:
        return _linear_plan(s, home)
    p, card = counts_privatizer(s), s.tabular
    p.admit(OsNoise())
    rho = total_rho(p.mechanisms)
    ledger = ledger_for(s.card, home)
    ledger.require(s.card)
    account = ledger.account(s.card.name)
    newest = latest(home.store, s.card.name)
    drawing = CountsDrawing(card, p)
    replays = newest is not None and ledger.committed(s.card.name, key_of(card, newest, drawing)) is not None
    cost = Fraction(0) if replays or rho is None else rho
    counter: dict[str, Any] = {}
    if s.recipe.nightly is not None:
        cost, told = nightly_plan(s, ledger)
        counter, replays = {"counter": told}, told["replays"]
    spent, left = spent_budget(p.mechanisms, s.card.budget.delta), ledger.left(s.card.name)
    fits = cost <= left.rho
    # before the first date of a counter and after its last there is nothing to run
    allowed = fits and (not counter or replays or counter["counter"]["night"] is not None)
    return {
        "dataset": s.card.name,
        "recipe": s.recipe.recipe.name,
        "agent": s.recipe.recipe.agent,
        "mechanisms": [describe_mechanism(m) for m in p.mechanisms],
        "rho": spent["rho"],
        "epsilon": spent["epsilon"],
        "delta": spent["delta"],
        "spent_before": float(account.spent),
        "remaining_after": float(account.remaining - cost),
        "cap_rho": float(account.cap),
        "delta_of_lineage": account.delta,
        "epsilon_before": safe_epsilon(up(account.spent), account.delta),
        "epsilon_after": safe_epsilon(up(account.spent + cost), account.delta),
        "replays": replays,
        "allowed": allowed,
        "limit": left.told(),
        **counter,
        "fits": None if fits else _what_fits(card, s.recipe.ask(), left.rho),
        "visits_per_cell_if_even": even_visits(card, card.unit.users_public),
        "noise_per_cell": {m.table: m.standard_deviation for m in p.mechanisms},
        "what_if": [] if rho is None else _what_if(card, s.recipe.ask()),
        "people_needed": {} if rho is None else _people_needed(card, s.recipe.ask()),
    }


def _linear_plan(s: Setting, home: Home) -> dict[str, Any]:
    """The planned calls of a linear run and what they cost together."""
    from flows.jobs.linear import planned_mechanisms, request_of
    from pipeline.learners.linear_drawing import LinearDrawing

    request = request_of(s)
    return _joint_plan(s, home, LinearDrawing(request), request.rho, planned_mechanisms(request), request.joint())


def _lq_plan(s: Setting, home: Home) -> dict[str, Any]:
    """The one release of an LQ run."""
    from flows.jobs.lq import request_of
    from pipeline.learners.lq_drawing import LqDrawing

    request = request_of(s)
    mechanisms = [describe_mechanism(m) for m in request.mechanisms()]
    told = _joint_plan(s, home, LqDrawing(request), request.rho, mechanisms, request.joint())
    most = 2 * request.plan.domain.episodes * request.plan.domain.horizon
    return told | {"most_squares": most, "squares_a_direction_needs": request.floor}


def _joint_plan(
    s: Setting,
    home: Home,
    drawing: Drawing,
    rho: Fraction | None,
    mechanisms: list[dict[str, Any]],
    joint: dict[str, Any],
) -> dict[str, Any]:
    """What tables that are bounded together cost, and what is left after them."""
    drawing.admit(OsNoise())
    ledger = ledger_for(s.card, home)
    ledger.require(s.card)
    account = ledger.account(s.card.name)
    newest = latest(home.store, s.card.name)
    replays = newest is not None and ledger.committed(s.card.name, key_of(s.card, newest, drawing)) is not None
    cost = Fraction(0) if replays or rho is None else rho
    spent = spent_budget((), s.card.budget.delta, rho) if rho is not None else {"rho": None, "epsilon": None}
    left = ledger.left(s.card.name)
    allowed = cost <= left.rho
    return {
        "dataset": s.card.name,
        "recipe": s.recipe.recipe.name,
        "agent": s.recipe.recipe.agent,
        "mechanisms": mechanisms,
        "joint": joint,
        "rho": spent["rho"],
        "epsilon": spent["epsilon"],
        "delta": None if rho is None else s.card.budget.delta,
        "spent_before": float(account.spent),
        "remaining_after": float(account.remaining - cost),
        "cap_rho": float(account.cap),
        "delta_of_lineage": account.delta,
        "epsilon_before": safe_epsilon(up(account.spent), account.delta),
        "epsilon_after": safe_epsilon(up(account.spent + cost), account.delta),
        "replays": replays,
        "allowed": allowed,
        "limit": left.told(),
        "fits": None if allowed or left.rho <= 0 else {"rho": _down(float(left.rho))},
        "what_if": [],
        "people_needed": {},
    }


def _what_if(card: Card, ask: Ask) -> list[dict[str, float | None]]:
    """Visits against noise for less and more budget, fewer and more people."""
    rows: list[dict[str, float | None]] = []
    for factor in BUDGETS:
        asked = scaled(ask, factor)
        for share in PEOPLE:
            y = yardstick(card, asked, card.unit.users_public * share)
            budget = {"rho": asked.rho, "epsilon": asked.epsilon}
            rows.append({**budget, "people": y.people, "visits": y.visits, "noise": y.noise, "ratio": y.ratio})
    return rows


def _people_needed(card: Card, ask: Ask) -> dict[str, int]:
    return {f"{level:g}": people_needed(card, ask, level) for level in LEVELS}


def _what_fits(card: Card, ask: Ask, remaining: Fraction) -> dict[str, float] | None:
    """The largest budget of the same kind that is still allowed, and what it would buy; None where nothing is left."""
    if remaining <= 0:
        return None
    # six digits, rounded down: a number that a person can type
    if ask.pure:
        asked = replace(ask, epsilon=_down(math.sqrt(2 * float(remaining))))
    else:
        asked = replace(ask, rho=_down(float(remaining)), epsilon=None, delta=None)
    rho = total_rho(count_sum(card, asked).mechanisms)
    if rho is None or rho > remaining:
        return None
    budget = {"epsilon": asked.epsilon} if asked.pure else {"rho": asked.rho}
    return {**{k: v for k, v in budget.items() if v is not None}, "ratio": yardstick(card, asked).ratio}


def _down(value: float) -> float:
    with localcontext(prec=6, rounding=ROUND_FLOOR):
        return float(+Decimal(repr(value)))
