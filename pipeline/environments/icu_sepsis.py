"""ICU-Sepsis: simulated sepsis treatment, estimated by its authors from intensive-care records.

Definition (Choudhary, Gupta and Thomas 2024, arXiv 2406.05646; package icu-sepsis 2.0.1).  716 raw states: 0 .. 712
are clusters of patient states, 713 is *died*, 714 *survived*, 715 the absorbing *end*.  25 actions: 5 levels of fluids
times 5 of vasopressors.  Reward 1 on entering 714, else 0.  With H = 20: optimal 0.7922, clinician 0.6920, uniform
0.6854.

Public features: the 47 coordinates of each state's cluster center, as the package has them, without names.

What is not exactly right: the world is a fitted model, not people, and no treatment advice follows from it.  Actions
seen too rarely in a state behave like the mean of the others, by its authors' choice; random care is worth nearly as
much as the clinicians' here.  Episodes are cut at H steps, which the original does not do.  SOFA scores and features
are rounded to float32, so that a log, a table and this file agree.  The clinician's policy has no rows for the three
terminal states; here those rows are uniform and never used.

ICU-Sepsis seen through bins of its SOFA score: a small Markov world of its own.

Definition.  A state is a bin of the SOFA score, or *died*, *survived*, *end*.  P(s'|s, a) is how often a step of a log
leads from bin s by a to s', where people of :mod:`pipeline.environments.icu_sepsis` are treated uniformly at random for
H steps: what tables of such a log estimate, all steps in one.  Reward 1 on entering *survived*.  With 4 bins and
H = 20: optimal 0.7358, uniform 0.6964.

What is not exactly right: bins hide most of the 713 states, so this is *not* ICU-Sepsis but the process its binned log
looks like.  Here the bins are all there is; in ICU-Sepsis itself the past would say more.  Another logging policy would
show another process.
"""

from __future__ import annotations

import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipeline.declaration.card import CardError
from pipeline.environments.world import USUAL_HORIZON, World
from pipeline.mdp.planning import occupancies

_ENDS = {713: "died", 714: "survived", 715: "end"}
# SOFA points at which bins begin: public knowledge of the score, not taken from a log
SOFA_EDGES: dict[str, list[float]] = {
    "4": [4, 7, 10],
    "8": [2, 4, 6, 8, 10, 12, 14],
    "32": [k / 2 for k in range(3, 34)],
}


def load_icu_sepsis(path: Path) -> World:
    """Read the package's arrays; behaviours are ``uniform`` and ``clinician``.

    Raises
    ------
    CardError
        If the file is missing or is not that world.
    """
    try:
        # numpy leaves a broken archive open; the file is ours to close
        with path.open("rb") as file, np.load(file, allow_pickle=False) as z:
            transition, reward = z["tx_mat"], z["r_mat"]
            start, clinician, sofa = z["d_0"], z["expert_policy"].copy(), z["sofa_scores"]
            centers = z["state_cluster_centers"].astype(np.float32).astype(np.float64)
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as e:
        raise CardError(
            f"{path}: not the ICU-Sepsis world: {e}; put world.npz of the icu_sepsis folder there"
        ) from None
    S, A = transition.shape[:2]  # noqa: N806
    entry = reward[0, 0]
    if (S, A) != (716, 25) or (reward[:713] != entry).any():
        raise CardError(
            f"{path}: not the ICU-Sepsis world: expected 716 states, 25 actions and rewards on entering a state"
        )
    clinician[list(_ENDS)] = 1 / A
    return World(
        name="icu_sepsis",
        transition=transition,
        visit_reward=np.zeros((S, A)),
        entry_reward=entry,
        start=start / start.sum(),
        raw_labels=[_ENDS.get(s, str(s)) for s in range(S)],
        bin_values={"sofa": sofa.astype(np.float32).astype(np.float64)},
        ends=_ENDS,
        policies={"uniform": np.full((S, A), 1 / A), "clinician": clinician},
        binnings={name: ("sofa", edges) for name, edges in SOFA_EDGES.items()},
        state_features={f"center_{i:02}": column for i, column in enumerate(centers.T)},
    )


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
