"""``report.json``: the facts of a run, from released values and declared constants only (privacy.md §10).

Pure functions; what is not in here is in no rendering either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.declaration.card import AnyCard, Card, LqCard
from pipeline.declaration.linear_quadratic import Vector
from pipeline.learners.terms import Planner
from pipeline.statistics.calibration import Ask

# at least this many draws, and this share of them inside, make a measured status (design §5.3)
_DRAWS, _INSIDE = 100, 0.95


def dataset_facts(card: AnyCard, snapshot: int | None) -> dict[str, Any]:
    """What is declared about the data; nothing counted.  ``snapshot`` is None for a night of a counter."""
    u = card.unit
    people = {
        "name": card.name,
        "kind": card.kind,
        "user": u.user,
        "episodes_per_user": u.episodes_per_user,
        "users_public": u.users_public,
        "recurs": u.recurs,
        "horizon": card.domain.horizon,
    }
    declared = _plant_facts(card) if isinstance(card, LqCard) else _table_facts(card)
    return {**people, **declared, "snapshot": snapshot}


def _plant_facts(card: LqCard) -> dict[str, Any]:
    d, cost = card.domain, card.quadratic

    def told(v: Vector) -> dict[str, Any]:
        return {"names": v.labels, "scale": v.scales, "radius": v.radius}

    return {
        "dynamics": d.dynamics,
        "markov": "declared",
        "observation": told(d.observation),
        "action": told(d.action),
        "start": "declared",
        "start_declared": {"mean": d.start.mean, "second_moment": d.first_moment().tolist()},
        "noise_covariance": d.noise().tolist(),
        "parameter_norm": d.parameter_norm,
        "cost": {"Q": cost.Q.tolist(), "R": cost.R.tolist()},
    }


def _table_facts(card: Card) -> dict[str, Any]:
    d, r = card.domain, card.reward
    told: dict[str, Any] = {} if d.start == "released" else {"start_declared": dict(d.start)}
    if r.table is not None:
        told["reward_table"] = r.table
    return {
        "live_states": d.live_states,
        "ends": list(d.states.ends),
        "actions": d.action_labels,
        "vetoes": [[str(s), str(a)] for s, a in d.vetoes],
        "dynamics": d.dynamics,
        "markov": d.markov,
        "start": "released" if d.start == "released" else "declared",
        "cell_cap": d.cell_cap,
        "reward_kind": r.kind,
        "reward_range": list(r.range),
        "reward_unit": r.unit,
        "reward_total": r.total,
        **told,
    }


def proved(card: Card, settings: Planner, ask: Ask) -> bool:
    """Whether the paper's theorem covers the interval: its constants, penalty, release, process, one episode each."""
    d = card.domain
    return (
        (settings.constants, settings.bounds, settings.penalty) == ("paper", "paper", "bernstein")
        and ask.tables == "two_tables"
        and ask.zcdp() is not None
        and d.dynamics == "per_step"
        and d.markov == "declared"
        and card.unit.episodes_per_user == 1
        and d.start != "released"
        and card.reward.kind == "table"
    )


def measured(rows: Sequence[Mapping[str, str]], key: Mapping[str, str]) -> Mapping[str, str] | None:
    """The committed containment row that covers ``key`` with enough draws and enough of them inside, if any."""
    for row in rows:
        enough = int(row["draws"]) >= _DRAWS and int(row["inside"]) >= _INSIDE * int(row["draws"])
        if enough and all(row[k] == v for k, v in key.items()):
            return row
    return None


def value_facts(
    card: Card,
    interval: Mapping[str, float],
    *,
    is_proved: bool,
    row: Mapping[str, str] | None,
) -> dict[str, Any]:
    """The ``value`` of report.json: interval, status and what it assumes."""
    d = card.domain
    assumes = [
        "start distribution: "
        + ("estimated from the released counts" if d.start == "released" else "declared on the card"),
        "rewards take only values of the declared lattice (others were rounded down before anything was summed)",
    ]
    if d.dynamics == "stationary":
        assumes.append("the dynamics do not depend on the step (declared; all steps share one table)")
    if d.markov == "aggregated":
        assumes.append("the binned process only: the bins hide part of the state, so the true process may differ")
    else:
        assumes.append("the declared states carry all that matters for what comes next (Markov, declared)")
    if is_proved:
        assumes.append("containment: theorem of paper 003 with its own constants")
    elif row is not None:
        assumes.append(f"containment: measured, inside in {row['inside']} of {row['draws']} draws of this very setting")
    else:
        assumes.append("containment: neither proved nor measured for these constants and this process")
    lower, upper = interval["lower"], interval["upper"]
    return {
        "lower": lower,
        "upper": upper,
        "estimate": interval["estimate"],
        "lower_trivial": interval["lower_trivial"],
        "upper_trivial": interval["upper_trivial"],
        "gap": upper - lower,
        "optimal_upper": interval["optimal_upper"],
        "status": "bound" if is_proved or row is not None else "estimate",
        "assumes": assumes,
        "start": "released" if d.start == "released" else "declared",
    }
