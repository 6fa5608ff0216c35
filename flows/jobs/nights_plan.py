"""``plan`` of a recipe with [nightly]: what the counter costs, which night is next, how many are left."""

from __future__ import annotations

import math
from fractions import Fraction

from flows.config.setting import Setting
from flows.jobs.nights import night_of, nightly_counter
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.steps import committed_steps
from reports.facts.plan import NightsPlan


def nightly_plan(s: Setting, ledger: Ledger) -> tuple[Fraction, NightsPlan]:
    """What a run would charge today, and the counter's part of a plan; reads no row.

    Parameters
    ----------
    s
        A recipe with [nightly] and its card.
    ledger
        Of the lineage.
    """
    nightly = nightly_counter(s)
    counter, tonight, entries = nightly.counter, nightly.until(night_of(None)), ledger.entries()
    nights = committed_steps(entries, s.card.name, nightly.key)
    inside = 1 <= tonight <= counter.steps
    replays = bool(nights) and tonight <= nights[-1].t
    charge = Fraction(0)
    if not nights or (inside and not replays):
        since = nights[-1].t + 1 if nights else 1
        charge = nightly.price(entries, max(since, tonight if inside else 1), since)
    errors = {"worst": max(counter.error(t) for t in range(1, counter.steps + 1))}
    if inside:
        errors["tonight"] = counter.error(tonight)
    variances = {m.table: m.variance or 0 for m in nightly.privatizer.mechanisms}
    return charge, NightsPlan(
        key=nightly.key,
        kind=counter.kind,
        nights=counter.steps,
        first=nightly.first.isoformat(),
        last=nightly.last.isoformat(),
        cost=counter.cost,
        night=tonight if inside else None,
        drawn=len(nights),
        left=min(counter.steps, max(0, counter.steps - tonight)),
        replays=replays,
        charge_rho=float(charge),
        standard_deviation={t: {k: math.sqrt(v * e) for k, e in errors.items()} for t, v in variances.items()},
        times_one_release={k: counter.cost * e for k, e in errors.items()},
    )
