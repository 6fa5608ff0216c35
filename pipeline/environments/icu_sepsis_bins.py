"""ICU-Sepsis seen through bins of its SOFA score: a small Markov world of its own.

Definition.  A state is a bin of the SOFA score, or *died*, *survived*, *end*.  P(s'|s, a) is how often a step of a log
leads from bin s by a to s', where people of :mod:`pipeline.environments.icu_sepsis` are treated uniformly at random for
H steps: what tables of such a log estimate, all steps in one.  Reward 1 on entering *survived*.  With 4 bins and
H = 20: optimal 0.7358, uniform 0.6964.

What is not exactly right: bins hide most of the 713 states, so this is *not* ICU-Sepsis but the process its binned log
looks like.  Here the bins are all there is; in ICU-Sepsis itself the past would say more.  Another logging policy would
show another process.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from pipeline.declaration.card import CardError
from pipeline.environments.icu_sepsis import SOFA_EDGES, load_icu_sepsis
from pipeline.environments.world import USUAL_HORIZON, World
from pipeline.mdp.planning import occupancies


def icu_sepsis_bins(path: Path, bins: int | str = 4, horizon: int = USUAL_HORIZON) -> World:
    """Build the world from the arrays of ICU-Sepsis; its behaviour is ``uniform``.

    Parameters
    ----------
    path
        ``world.npz`` of the icu_sepsis folder.
    bins
        4, 8 or 32.

    Raises
    ------
    CardError
        If the file is missing or is not that world.
    ValueError
        If there are no such bins.
    """
    if str(bins) not in SOFA_EDGES:
        raise ValueError(f"bins must be one of {', '.join(SOFA_EDGES)}; got {bins!r}")
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1; got {horizon}")
    raw, edges = load_icu_sepsis(path), SOFA_EDGES[str(bins)]
    live, (ends, A) = ~raw.terminal, (len(raw.ends), raw.shape[1])  # noqa: N806
    L, S = len(edges) + 1, len(edges) + 1 + ends  # noqa: N806
    index = np.searchsorted(edges, raw.bin_values["sofa"], side="right")
    index[~live] = L + np.arange(ends)
    onto = np.eye(S)[index]
    visits = occupancies(raw.mdp(horizon), raw.behaviours("uniform", horizon)).sum(0)
    moves = np.einsum("sa,sat,sl->lat", visits[live], raw.transition[live] @ onto, onto[live, :L], optimize=True)
    if not moves.sum(-1).all():
        raise CardError(f"{path}: at a horizon of {horizon} nobody reaches some of the {L} bins; ask for fewer")
    # an end keeps what follows it in the raw world: whoever survives does so once
    after = raw.transition[~live] @ onto
    transition = np.concatenate([moves / moves.sum(-1, keepdims=True), after])
    return World(
        name="icu_sepsis_bins",
        transition=transition,
        visit_reward=np.zeros((S, A)),
        entry_reward=np.append(np.zeros(L), raw.entry_reward[~live]),
        start=raw.start @ onto,
        raw_labels=[*_labels(edges), *raw.ends.values()],
        bin_values={},
        ends={L + i: label for i, label in enumerate(raw.ends.values())},
        policies={"uniform": np.full((S, A), 1 / A)},
        horizon=horizon,
    )


def _labels(edges: list[float]) -> list[str]:
    """Text of each bin, closed on the left."""
    between = [f"sofa {low:g} to below {high:g}" for low, high in pairwise(edges)]
    return [f"sofa below {edges[0]:g}", *between, f"sofa {edges[-1]:g} or more"]
