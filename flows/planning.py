"""``plan``: what a run would spend and what is left, from card, recipe and ledger alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from flows.setting import counts_privatizer, ledger_for, setting
from flows.shelf import Home
from pipeline.card import Card
from pipeline.curate import run_key
from pipeline.ledger.certificate import spent_budget
from pipeline.logs.store import latest
from pipeline.privacy.budget import epsilon_from_rho
from pipeline.privacy.noise import OsNoise
from pipeline.privacy.release import total_rho
from pipeline.privacy.release_file import describe_mechanism


def plan_job(recipe: str, home: Home) -> dict[str, Any]:
    """What a run would spend and what is left; reads no rows and writes nothing but a synthetic registration."""
    s = setting(recipe, home)
    p = counts_privatizer(s)
    p.admit(OsNoise())
    rho = total_rho(p.mechanisms)
    ledger = ledger_for(s.card, home)
    ledger.require(s.card)
    account = ledger.account(s.card.name)
    newest = latest(home.store, s.card.name)
    replays = newest is not None and ledger.committed(s.card.name, run_key(s.card, newest, p)) is not None
    cost = Fraction(0) if replays or rho is None else rho
    spent = spent_budget(p.mechanisms, s.card.budget.delta)
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
        "epsilon_after": epsilon_from_rho(float(account.spent + cost), account.delta),
        "replays": replays,
        "allowed": account.spent + cost <= account.cap,
        "visits_per_cell_if_even": _even_visits(s.card),
        "noise_per_cell": {m.table: m.standard_deviation for m in p.mechanisms},
    }


def _even_visits(card: Card) -> float:
    """Declared steps a cell of n[h,s,a] if everybody stayed to the end and visited all cells alike: a yardstick."""
    d, u = card.domain, card.unit
    return (
        u.users_public * u.episodes_per_user * d.horizon / (d.table_steps * len(d.live_states) * len(d.action_labels))
    )
