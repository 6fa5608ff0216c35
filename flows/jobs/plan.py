"""``plan``: what a run would spend and what is left; from declarations and the ledger alone."""

from __future__ import annotations

from fractions import Fraction

from flows.config.home import Home
from flows.config.setting import Setting, ledger_for, setting
from flows.jobs.calendar import calendar_plan
from flows.jobs.nights import nightly_plan, standing_run
from pipeline.logs.store import latest
from pipeline.privacy.budget import rho_from_epsilon, up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.noise import OsNoise
from pipeline.transaction.release_once import total_charge
from reports.facts.nights_plan import NightsPlan
from reports.facts.part import Dump
from reports.facts.plan import PlanAnswer, PriceOfEpsilon


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
        "gate": None if s.card.kind == "synthetic" else guarded.stops,
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
