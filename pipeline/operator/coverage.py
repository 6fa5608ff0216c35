"""How well a log covers the declared cells, and which of its visits the noise of a release would drown."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import OTHER, Card
from pipeline.statistics.calibration import Ask, count_sum

# a cell visited less often than this says next to nothing, noise or not
FEW = 20
# a cell whose visits are below this many standard deviations of the noise cannot be told from an empty one
DROWNED = 2.0
# budgets at which the noise is shown, as shares of the card's lifetime cap
BUDGETS = {"the whole cap": 1.0, "a quarter of the cap": 0.25}

Ints = NDArray[np.int64]


def allowed_actions(card: Card) -> NDArray[np.bool_]:
    """``(L, A)``: what a policy may do, neither vetoed nor OTHER."""
    d = card.domain
    banned = {(str(s), str(a)) for s, a in d.vetoes}
    return np.array([[(s, a) not in banned and a != OTHER for a in d.action_labels] for s in d.live_states])


def coverage(card: Card, n: Ints, allowed: NDArray[np.bool_]) -> dict[str, Any]:
    """Visits ``n (G, L, A)`` of the cells that a policy may use, as the card's tables have them."""
    unseen, rare = (allowed & (n == 0)).sum(-1), (allowed & (n > 0) & (n < FEW)).sum(-1)
    pooled = card.domain.dynamics == "stationary"
    states, actions = card.domain.live_states, card.domain.action_labels
    best, visits = n.argmax(-1), n.sum(-1)
    return {
        "pooled": pooled,
        "few": FEW,
        "cells": int(allowed.sum()) * len(n),
        "never_seen": int(unseen.sum()),
        "seen_fewer_than_few": int(rare.sum()),
        "table": [
            {
                "step": None if pooled else g,
                "state": states[s],
                "visits": int(visits[g, s]),
                "actions_allowed": int(allowed[s].sum()),
                "never_seen": int(unseen[g, s]),
                "seen_fewer_than_few": int(rare[g, s]),
                "top_action": actions[best[g, s]] if visits[g, s] else None,
                "top_share": float(n[g, s].max() / visits[g, s]) if visits[g, s] else None,
            }
            for g, s in np.ndindex(visits.shape)
        ],
    }


def behaviour(card: Card, visits: Ints) -> list[dict[str, Any]]:
    """The logging policy, all steps together, from rows before any cap of cells ``(L, A)``."""
    return [
        {
            "state": state,
            "visits": int(row.sum()),
            "actions_seen": int((row > 0).sum()),
            "top_action": card.domain.action_labels[int(row.argmax())] if row.any() else None,
            "top_share": float(row.max() / row.sum()) if row.any() else None,
        }
        for state, row in zip(card.domain.live_states, visits, strict=True)
    ]


def noise(card: Card, n_sa: Ints, allowed: NDArray[np.bool_], budget: str, share: float) -> dict[str, Any]:
    """Visits against the noise of n[h,s,a] (n[h,s,a,s'] summed, the default release), where the state occurs."""
    rho = share * card.budget.rho
    table = next(m for m in count_sum(card, Ask(rho=rho)).mechanisms if m.table == "n_sas")
    deviation = table.standard_deviation * float(np.sqrt(table.shape[-1]))
    # where a state never occurs at a step no advice is missed
    usable = allowed & (n_sa.sum(-1, keepdims=True) > 0)
    drowned = usable & (n_sa < DROWNED * deviation)
    return {
        "budget": budget,
        "rho": rho,
        "deviation_of_visits": deviation,
        "cells_drowned": int(drowned.sum()),
        "share_of_cells": float(drowned.sum() / max(1, usable.sum())),
        "share_of_visits": float(n_sa[drowned].sum() / max(1, n_sa.sum())),
    }
