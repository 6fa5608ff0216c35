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
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.declaration.card import CardError
from pipeline.declaration.code import is_plugin, plugin, refuse_unlisted
from pipeline.declaration.lineage import catalogs
from pipeline.declaration.toml import read_toml
from pipeline.environments.icu_sepsis import icu_sepsis_bins, load_icu_sepsis
from pipeline.environments.mixture_worlds import icu_like, random_mixture_world, random_tabular
from pipeline.environments.riverswim import riverswim, riverswim_homogeneous, riverswim_inhomogeneous
from pipeline.environments.world import World, WorldFunction

END_LABEL = "end"
Outcomes = Sequence[tuple[float, int, float, bool]]
# a raw state: the environment's number (None: over) and what entering it pays beyond the visit reward
_Raw = tuple[int | None, float]


def from_gymnasium(env_id: str, **kwargs: Any) -> World:
    """Build the world of an environment; its behaviour is ``uniform``.

    Parameters
    ----------
    kwargs
        Passed to ``gymnasium.make``, e.g. ``is_slippery = False``.

    Raises
    ------
    CardError
        If gymnasium is missing, does not know the environment, or the environment publishes no transition table.
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


# what a simulated log keeps beside its card: the world's name, its parameters, the logging policy
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

    Parameters
    ----------
    name
        Of the world.
    folder
        The dataset's folder; a world's file is looked for there, then in its own folder beside it.  Where
        ``world.toml`` there describes this world and no ``params`` are given, its parameters are taken.
    params
        Arguments of the world's function, e.g. RiverSwim's ``states``, ``left_reward``, ``right_reward``.

    Raises
    ------
    CardError
        If there is no such world, a parameter is unknown, or its file is missing.
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

    Raises
    ------
    CardError
        If there is no such world, or it is a plug-in that is not permitted.
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
    """Where a world's arrays lie: in the dataset's folder, else in the world's own folder beside it.

    Parameters
    ----------
    name
        Of a world that is made of a file.
    folder
        The dataset's.

    Returns
    -------
    The first of them that is there; the dataset's own where none is.
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
