"""Worlds by name: ours, gymnasium's, and those of other packages as ``module:object``.

Worlds of gymnasium that publish their transition table: FrozenLake, Taxi, CliffWalking (package extra ``worlds``).

Definition.  ``env.unwrapped.P[s][a]`` lists (probability, s', reward, terminated) and ``initial_state_distrib`` says
where episodes start.  Live states are those an episode can be in; every terminated outcome enters an end, worth 0 from
then on.  Rewards stay in the environment's units: nothing is rescaled.

A reward may depend on the outcome, not only on (s, a, s'): on a slippery cliff the same move ends in the same state
at -1 or, after a fall, at -100.  The most probable reward of (s, a) is its visit reward; an outcome that pays
otherwise enters a twin of its state that pays the difference, with the same label and the same future.  The world is
thus exact, whatever the rewards depend on.

What is not exactly right: episodes are cut at H steps, which gymnasium's time limits do elsewhere.

RiverSwim: a swimmer between a small sure reward and a large one upstream.

Definition (Strehl and Littman 2008, the chain of paper 001 section 6).  States 0 .. S-1 lie along a river; every
episode starts in state 0.  Action 0 (*left*, with the current) moves one state down for sure.  Action 1 (*right*):

===============  =====  =====  =====
state            up     stay   down
===============  =====  =====  =====
0                0.6    0.4
1 .. S-2         0.35   0.6    0.05
S-1                     0.6    0.4
===============  =====  =====  =====

Rewards are fixed: 0.005 for *left* in state 0, 1 for *right* in state S-1, 0 elsewhere.  With S = 6 and H = 20 the
optimal value is 3.397264.

Paper 001 section 6 swims in two forms, both with H = 2 S and rewards 5 / (1000 H) and 1 / H:

- *homogeneous*: the chain above (:func:`riverswim_homogeneous`); optimal 0.2281, 0.0907, 0.0195 at S = 3, 5, 10;
- *inhomogeneous* (:func:`riverswim_inhomogeneous`): at step h *right* moves up with probability p_h drawn from
  U(0.8, 1), else down (at either end it stays instead of leaving); optimal 0.5911, 0.4944, 0.4014 with seed 1.

What is not exactly right: paper 001 prints neither S, nor the homogeneous probabilities (these are the ones in common
use), nor where its inhomogeneous chain goes when *right* fails.  Strehl and Littman start in one of two states and have
no horizon.

ICU-Sepsis: simulated sepsis treatment, estimated by its authors from intensive-care records.

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
leads from bin s by a to s', where people of :mod:`pipeline.worlds.catalog` are treated uniformly at random for
H steps: what tables of such a log estimate, all steps in one.  Reward 1 on entering *survived*.  With 4 bins and
H = 20: optimal 0.7358, uniform 0.6964.

What is not exactly right: bins hide most of the 713 states, so this is *not* ICU-Sepsis but the process its binned log
looks like.  Here the bins are all there is; in ICU-Sepsis itself the past would say more.  Another logging policy would
show another process.

Linear mixture MDPs: worlds whose kernel is a mixture of known ones, P_h = sum_i theta_{h,i} psi_i.

Definition of ``random_mixture``.  d kernels psi_i over S states and A actions are drawn, each row supported on a few
successors with flat Dirichlet weights, and at each step (or for all, ``stationary``) a flat Dirichlet mixture theta_h.
Rewards are drawn from {0, 0.01, .., 1} / H, so that an episode pays at most 1, and everybody starts in state 0.  An
agent knows the psi_i and the rewards, not theta: d unknowns a step instead of S^2 A.  V* is exact.

Any tabular world is a mixture of S^2 A one-hot psi = e_(s,a,s'): the degenerate case that papers 000 and 001 simulate.

What is not exactly right: kernels drawn at random have no geometry, and a mixture of many of them is nearly uniform
over the states (keep ``dimension`` and ``successors`` small).

Random tabular worlds: sparse kernels, rewards everywhere or at the last step only.

Definition.  Each (s, a) of each step (or of all steps, ``stationary``) leads to ``successors`` states drawn without
replacement, with probabilities from a flat Dirichlet.  Rewards are drawn from {0, 0.01, ..., 1}, in every cell or, with
``reward = "last"``, at the last step only.  Everybody starts in state 0.  One seed is one world.

``icu_like`` is the instance S = 50, A = 5, H = 10, 8 successors, reward at the last step: the size and the sparsity of
a small clinical problem.

What is not exactly right: successors of real processes are near each other, those of a random kernel are not; a dense
kernel mixes at once, so that the reward of the step is nearly all that an action decides (keep ``successors`` small).
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pipeline.arrays import Array
from pipeline.declaration.code import is_plugin, plugin, refuse_unlisted
from pipeline.declaration.lineage import catalogs
from pipeline.declaration.toml import CardError, read_toml
from pipeline.mdp.features import MixtureFeatures, dense
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import occupancies
from pipeline.worlds.world import USUAL_HORIZON, World, WorldFunction, plain_world, sparse_rows


def riverswim(states: int = 6, left_reward: float = 0.005, right_reward: float = 1.0) -> World:
    """Build the chain; behaviours are ``uniform`` and ``right-0.8`` (right with probability 0.8).

    Raises ValueError if there are fewer than 2 states.
    """
    down, up = _banks(states)
    right = 0.35 * up + 0.6 * np.eye(states) + 0.05 * down
    right[0, :2] = 0.4, 0.6
    right[-1, -2:] = 0.4, 0.6
    return _chain("riverswim", down, right, (left_reward, right_reward))


def riverswim_homogeneous(states: int = 3) -> World:
    """Build the chain in the units of paper 001 section 6, with H = 2 S; behaviours as :func:`riverswim`."""
    H = 2 * states  # noqa: N806
    return replace(riverswim(states, 5 / (1000 * H), 1 / H), name="riverswim_homogeneous", horizon=H)


def riverswim_inhomogeneous(states: int = 3, seed: int = 1) -> World:
    """Build the chain of paper 001 section 6 whose step h has its own p_h, H = 2 S; behaviours as :func:`riverswim`."""
    down, up = _banks(states)
    up[-1, -1] = 1.0
    H = 2 * states  # noqa: N806
    p = np.random.default_rng(seed).uniform(0.8, 1.0, H)[:, None, None]
    return _chain("riverswim_inhomogeneous", down, p * up + (1 - p) * down, (5 / (1000 * H), 1 / H), H)


def _banks(states: int) -> tuple[Array, Array]:
    """Moves ``(S, S)`` down (the lower end stays) and up (the upper end is open)."""
    if states < 2:
        raise ValueError(f"states must be at least 2; got {states}")
    down = np.eye(states, k=-1)
    down[0, 0] = 1.0
    return down, np.eye(states, k=1)


def _chain(name: str, left: Array, right: Array, pays: tuple[float, float], horizon: int | None = None) -> World:
    """The world of moves ``left (S, S)`` and ``right (S, S)`` or ``(H, S, S)``."""
    states = len(left)
    reward = np.zeros((states, 2))
    reward[0, 0], reward[-1, 1] = pays
    policies = {"uniform": np.full((states, 2), 0.5), "right-0.8": np.tile([0.2, 0.8], (states, 1))}
    return plain_world(name, np.stack(np.broadcast_arrays(left, right), axis=-2), reward, policies, horizon)


_ENDS = {713: "died", 714: "survived", 715: "end"}
# SOFA points at which bins begin: public knowledge of the score, not taken from a log
SOFA_EDGES: dict[str, list[float]] = {
    "4": [4, 7, 10],
    "8": [2, 4, 6, 8, 10, 12, 14],
    "32": [k / 2 for k in range(3, 34)],
}


def load_icu_sepsis(path: Path) -> World:
    """Read the package's arrays; behaviours are ``uniform`` and ``clinician``.

    Raises CardError if the file is missing or is not that world.
    """
    try:
        stat = path.stat()
        return _icu_sepsis_of(path, stat.st_size, stat.st_mtime_ns)
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as e:
        raise CardError(
            f"{path}: not the ICU-Sepsis world: {e}; put world.npz of the icu_sepsis folder there"
        ) from None


@lru_cache(maxsize=1)
def _icu_sepsis_of(path: Path, _size: int, _at: int) -> World:
    """The world in a file as it is now: cells of a study ask for it one after the other."""
    # numpy leaves a broken archive open; the file is ours to close
    with path.open("rb") as file, np.load(file, allow_pickle=False) as z:
        transition, reward = z["tx_mat"], z["r_mat"]
        start, clinician, sofa = z["d_0"], z["expert_policy"].copy(), z["sofa_scores"]
        centers = z["state_cluster_centers"].astype(np.float32).astype(np.float64)
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

    ``bins``: 4, 8 or 32.
    Raises CardError if the file is missing or is not that world.
    Raises ValueError if there are no such bins.
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
    # an end keeps its transitions of the raw world, so that survival is paid once
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
    """Labels of the bins, closed on the left."""
    between = [f"sofa {low:g} to below {high:g}" for low, high in pairwise(edges)]
    return [f"sofa below {edges[0]:g}", *between, f"sofa {edges[-1]:g} or more"]


def random_tabular(
    states: int = 10,
    actions: int = 3,
    horizon: int = 10,
    seed: int = 0,
    successors: int = 3,
    reward: Literal["anywhere", "last"] = "anywhere",
    stationary: bool = False,
    name: str = "random",
) -> World:
    """Draw a world; behaviours are ``uniform`` and ``preferred`` (one action of each state 6 times in 10).

    Raises ValueError if a size is below 1, ``successors`` is above ``states``, or ``reward`` is another word.
    """
    if min(states, actions, horizon) < 1 or not 1 <= successors <= states:
        raise ValueError("states, actions and horizon must be at least 1, and successors from 1 to states")
    if reward not in ("anywhere", "last"):
        raise ValueError(f"reward must be 'anywhere' or 'last'; got {reward!r}")
    rng = np.random.default_rng(seed)
    cells = (1 if stationary else horizon, states, actions)
    transition = sparse_rows(cells, states, successors, rng)
    pays = rng.integers(0, 101, size=cells) / 100
    if reward == "last":
        pays = np.concatenate([np.zeros((horizon - 1, states, actions)), pays[-1:]])
    preferred = np.full((states, actions), 0.4 / max(1, actions - 1))
    preferred[np.arange(states), rng.integers(0, actions, size=states)] = 0.6 if actions > 1 else 1.0
    policies = {"uniform": np.full((states, actions), 1 / actions), "preferred": preferred}
    lasts = None if stationary and reward == "anywhere" else horizon
    pays = pays[0] if len(pays) == 1 and stationary else pays
    return plain_world(name, transition[0] if stationary else transition, pays, policies, lasts)


def icu_like(seed: int = 0) -> World:
    """The instance of the size of a small clinical problem."""
    return random_tabular(50, 5, 10, seed, successors=8, reward="last", name="icu_like")


@dataclass(frozen=True)
class Mixture:
    """A world, its features, which an agent knows, and its weights, which it has to learn.

    ``theta`` ``(H, d_1)``: weights that reproduce the world's transitions; hidden from agents.
    """

    name: str
    mdp: TabularMDP
    features: MixtureFeatures
    theta: Array


def random_mixture(
    states: int = 8,
    actions: int = 3,
    dimension: int = 3,
    horizon: int = 6,
    seed: int = 0,
    successors: int = 2,
    stationary: bool = False,
) -> Mixture:
    """Draw kernels, weights and rewards; one seed is one world.

    Raises ValueError if a size is below 1, or ``successors`` is above ``states``.
    """
    if min(states, actions, dimension, horizon) < 1 or not 1 <= successors <= states:
        raise ValueError("sizes must be at least 1, and successors from 1 to states")
    rng = np.random.default_rng(seed)
    kernels = sparse_rows((dimension, states, actions), states, successors, rng)
    weights = rng.dirichlet(np.ones(dimension), size=1 if stationary else horizon)
    theta = np.broadcast_to(weights, (horizon, dimension))
    rewards = rng.integers(0, 101, size=(horizon, states, actions)) / 100 / horizon
    mdp = TabularMDP(np.einsum("hi,isat->hsat", theta, kernels), rewards, np.eye(states)[0])
    return Mixture("random_mixture", mdp, dense(np.moveaxis(kernels, 0, -1)), theta)


def random_mixture_world(horizon: int = 6, **others: Any) -> World:
    """The world of :func:`random_mixture`, of the same parameters.  Its behaviour is ``uniform``."""
    mixture = random_mixture(horizon=horizon, **others)
    P, actions = mixture.mdp.transitions, mixture.mdp.shape[2]  # noqa: N806
    policies = {"uniform": np.full((P.shape[1], actions), 1 / actions)}
    return plain_world(mixture.name, P, mixture.mdp.rewards, policies, horizon)


END_LABEL = "end"
Outcomes = Sequence[tuple[float, int, float, bool]]
# a raw state: the environment's number (None: over) and what entering it pays beyond the visit reward
_Raw = tuple[int | None, float]


def from_gymnasium(env_id: str, **kwargs: Any) -> World:
    """Build the world of an environment; its behaviour is ``uniform``.

    Raises CardError if gymnasium is missing, does not know the environment, or the environment publishes no transition
    table.
    """
    try:
        import gymnasium
    except ImportError:
        raise CardError(f"world gymnasium:{env_id}: needs gymnasium; pip install 'reticent[worlds]'") from None
    try:
        env = gymnasium.make(env_id, **kwargs).unwrapped
    except (gymnasium.error.Error, TypeError, ValueError, KeyError, AssertionError) as e:
        raise CardError(f"world gymnasium:{env_id}: gymnasium cannot make it: {e}") from None
    table, start = getattr(env, "P", None), getattr(env, "initial_state_distrib", None)
    if table is None or start is None:
        raise CardError(
            f"world gymnasium:{env_id}: publishes no transition table (env.unwrapped.P) and start distribution, so its "
            "values are unknown; FrozenLake-v1, FrozenLake8x8-v1, Taxi-v4 and CliffWalking-v1 do"
        )
    return from_table(f"gymnasium:{env_id}", table, np.asarray(start, dtype=np.float64))


def from_table(name: str, table: Mapping[int, Mapping[int, Outcomes]], start: np.ndarray) -> World:
    """The world of a table ``P[s][a] = [(probability, s', reward, terminated), ...]`` and a start ``(S,)``."""
    actions = len(table[0])
    usual = {(s, a): _usual_reward(outcomes) for s, row in table.items() for a, outcomes in row.items()}
    index: dict[_Raw, int] = {(int(s), 0.0): i for i, s in enumerate(np.flatnonzero(start))}
    moves: list[tuple[int, int, int, float]] = []
    queue = list(index)
    for raw in queue:
        number, _ = raw
        if number is None:
            continue
        for a, outcomes in table[number].items():
            for probability, after, reward, over in outcomes:
                if probability > 0:
                    entered: _Raw = (None if over else int(after), float(reward - usual[number, a]))
                    if entered not in index:
                        index[entered] = len(index)
                        queue.append(entered)
                    moves.append((index[raw], a, index[entered], probability))
    # an end that pays on entering leads to one that does not
    index.setdefault((None, 0.0), len(index))
    order = sorted(index, key=lambda raw: (raw[0] is None, raw[0] or 0, -raw[1]))
    place = {index[raw]: i for i, raw in enumerate(order)}
    live = [number for number, _ in order if number is not None]
    size = len(order)
    transition, visit = np.zeros((size, actions, size)), np.zeros((size, actions))
    for before, a, after, probability in moves:
        transition[place[before], a, place[after]] += probability
    visit[: len(live)] = [[usual[s, a] for a in range(actions)] for s in live]
    transition[len(live) :, :, place[index[None, 0.0]]] = 1.0
    begin = np.array([start[s] if s is not None and extra == 0 else 0.0 for s, extra in order])
    return World(
        name=name,
        transition=transition / transition.sum(-1, keepdims=True),
        visit_reward=visit,
        entry_reward=np.array([extra for _, extra in order]),
        start=begin / begin.sum(),
        raw_labels=[END_LABEL if s is None else str(s) for s, _ in order],
        bin_values={},
        ends={i: END_LABEL for i, (s, _) in enumerate(order) if s is None},
        policies={"uniform": np.full((size, actions), 1 / actions)},
    )


def _usual_reward(outcomes: Outcomes) -> float:
    """The most probable reward, the smaller of two alike."""
    chance: defaultdict[float, float] = defaultdict(float)
    for probability, _, reward, _ in outcomes:
        chance[float(reward)] += probability
    return min(chance, key=lambda r: (-round(chance[r], 12), r))


# file of a simulated log beside its card: the world's name, its parameters, the logging policy
WORLD_FILE = "world.toml"
WORLD_ARRAYS = "world.npz"
GYMNASIUM = "gymnasium:"

_BUILT: Mapping[str, Callable[..., World]] = {
    "riverswim": riverswim,
    "riverswim_homogeneous": riverswim_homogeneous,
    "riverswim_inhomogeneous": riverswim_inhomogeneous,
    "random": random_tabular,
    "icu_like": icu_like,
    "random_mixture": random_mixture_world,
}
# worlds made of a file, and the folder that holds it
_FROM_FILE: Mapping[str, tuple[Callable[..., World], str]] = {
    "icu_sepsis": (load_icu_sepsis, "icu_sepsis"),
    "icu_sepsis_bins": (icu_sepsis_bins, "icu_sepsis"),
}
WORLDS = ("icu_sepsis", *_BUILT, "icu_sepsis_bins")


def load_world(name: str, folder: Path, **params: Any) -> World:
    """A world by name: one of :data:`WORLDS`, ``gymnasium:ID``, or ``module:object`` of your own.

    Raises CardError if there is no such world, a parameter is unknown, or its file is missing.
    """
    refuse_unknown_world(name)
    build = _builder(name)
    chosen = params or _described(name, folder)
    try:
        if name.startswith(GYMNASIUM):
            return from_gymnasium(name.removeprefix(GYMNASIUM), **chosen)
        if build is not None:
            return _checked(name, build(**chosen))
        return _FROM_FILE[name][0](arrays_file(name, folder), **chosen)
    except (TypeError, ValueError) as e:
        raise CardError(f"world {name}: {e}") from None


def refuse_unknown_world(name: str) -> None:
    """Refuse a name that no world can have here; imports nothing.

    Raises CardError if there is no such world, or it is a plug-in that is not permitted.
    """
    if is_plugin(name):
        refuse_unlisted(name)
    # a colon within the ID would have gymnasium import a module of that name
    elif name not in WORLDS and not re.fullmatch(rf"{GYMNASIUM}[\w./-]+", name):
        raise CardError(
            f"no world {name!r}; there are: {', '.join(WORLDS)}, {GYMNASIUM}ID, e.g. FrozenLake-v1, and module:object"
        )


def builds_horizon(name: str) -> bool:
    """Whether the world's function takes ``horizon`` itself, because each step has parameters of its own."""
    build = _FROM_FILE[name][0] if name in _FROM_FILE else _builder(name)
    return build is not None and "horizon" in signature(build).parameters


def _builder(name: str) -> Callable[..., World] | None:
    """The function of a world that needs no file."""
    if name in _BUILT:
        return _BUILT[name]
    return plugin(name, WorldFunction).build if is_plugin(name) else None


def _checked(name: str, built: object) -> World:
    if not isinstance(built, World):
        raise CardError(f"world {name}: returns a {type(built).__name__}, not a World")
    return built


def arrays_file(name: str, folder: Path) -> Path:
    """File of a world's arrays: in the dataset's folder, else in the world's own folder beside it.

    Returns the first of them that is there; the dataset's own where none is.
    """
    own = _FROM_FILE[name][1] if name in _FROM_FILE else name
    beside = [folder / WORLD_ARRAYS, folder.parent / own / WORLD_ARRAYS]
    return next((p for p in beside if p.is_file()), beside[0])


def catalog_folder(name: str) -> Path:
    """The folder on a shelf that holds a world's file; worlds without one need none."""
    folders = [shelf / name for shelf in catalogs()]
    return next((f for f in folders if arrays_file(name, f).is_file()), folders[0])


def _described(name: str, folder: Path) -> dict[str, Any]:
    """Parameters that the world file of a simulated log holds for this world."""
    path = folder / WORLD_FILE
    facts = read_toml(path) if path.is_file() else {}
    return dict(facts.get("params", {})) if facts.get("name") == name else {}
