"""``plan``: what a run would spend and what is left, from card, recipe and ledger alone."""

from __future__ import annotations

from fractions import Fraction

from flows.config.setting import ledger_for, setting
from flows.config.shelf import Home
from flows.jobs.nights_plan import nightly_plan
from pipeline.logs.store import latest
from pipeline.privacy.budget import up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.noise import OsNoise
from pipeline.transaction.release_once import key_of
from reports.facts.part import Dump
from reports.facts.plan import NightsPlan, PlanAnswer


def plan_job(recipe: str, home: Home) -> Dump:
    """What ``plan --json`` prints without the quality; parameters of :func:`plan_recipe`."""
    return plan_recipe(recipe, home).model_dump()


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
    quote = plan.quote()
    ledger = ledger_for(s.card, home)
    ledger.require(s.card)
    account = ledger.account(s.card.name)
    newest = latest(home.store, s.card.name)
    replays = newest is not None and ledger.committed(s.card.name, key_of(s.card, newest, plan)) is not None
    cost = Fraction(0) if replays or quote.rho is None else quote.rho
    counter: NightsPlan | None = None
    if s.recipe.nightly is not None:
        cost, counter = nightly_plan(s, ledger)
        replays = counter.replays
    left = ledger.left(s.card.name)
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
        "spent_before": float(account.spent),
        "remaining_after": float(account.remaining - cost),
        "cap_rho": float(account.cap),
        "delta_of_lineage": account.delta,
        "epsilon_before": safe_epsilon(up(account.spent), account.delta),
        "epsilon_after": safe_epsilon(up(account.spent + cost), account.delta),
        "replays": replays,
        "allowed": allowed,
        "limit": left.told(),
        **({} if counter is None else {"counter": counter}),
        "fits": None if fits or left.rho <= 0 else plan.fitting(left.rho),
        **quote.outlook,
    }
    return PlanAnswer.model_validate(told)
