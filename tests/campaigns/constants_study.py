"""How much data each preset of ``constants`` needs.

``python -P -m tests.campaigns.constants_study [--quick] [world …]``; without a name all worlds, about ten minutes.

At rho = 1 (Laplace: epsilon = 1) and failure probability 0.1, smallest n on a grid of 10^(1/4)

* *learns*: from which on the mean loss against the optimum stays within 10 % of the uniform policy's;
* *speaks*: from which on the lower value is above 0 in all runs (findings: "the certificate is not empty");
* *tells*: from which on the lower value is above the uniform policy's true value in all runs;

and how often the intervals hold in 100 further draws.  Rewrites ``results/constants_study.csv`` and
``results/constants_containment.csv``; ``--quick`` prints a coarse study and writes nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.planning import policy_value
from pipeline.mdp.policy import constant
from tests.campaigns.constants_methods import PRESETS, Draw, Found, Method, find
from tests.campaigns.constants_worlds import Setting, setting
from tests.campaigns.rows import write

Row = dict[str, str | int]
SEED = 20261123
SETTINGS = (("riverswim", "table"), ("icu-like", "table"), ("icu-like drifting", "table"))
ESTIMATED = (("riverswim", "estimate"), ("icu-like", "estimate"))
CHECKED = {"riverswim": (10**3, 10**4, 10**5, 10**6), "icu-like": (10**4, 10**5, 10**6, 10**7)}


@dataclass(frozen=True)
class Grid:
    """Sizes of the logs, draws at each, and draws of a containment check."""

    episodes: tuple[int, ...]
    runs: int
    draws: int


FULL = Grid(tuple(round(10 ** (k / 4)) for k in range(8, 41)), 10, 100)
QUICK = Grid((10**3, 10**4, 10**5), 2, 4)


def methods_of(rewards: str) -> list[Method]:
    """Rows of a setting."""
    return [m for m in PRESETS if rewards == "table" or not m.declared_rewards_only]


def measure(world: str, rewards: str, methods: Sequence[Method], grid: Grid) -> dict[str, list[list[Found]]]:
    """Name -> one list of runs for each size; run i of ``icu-like`` is a world of its own."""
    found: dict[str, list[list[Found]]] = {m.name: [[] for _ in grid.episodes] for m in methods}
    for run in range(grid.runs):
        made = setting(world, SEED + run, rewards=rewards)
        for i, n in enumerate(grid.episodes):
            draw = Draw(made, n, [SEED, run, i])
            for m in methods:
                found[m.name][i].append(find(m, draw))
    return found


def smallest(holds: Iterable[bool], episodes: Sequence[int]) -> int | None:
    """Smallest size from which on ``holds`` stays true, None if it is not true at the largest."""
    last: int | None = None
    for ok, n in reversed(list(zip(holds, episodes, strict=True))):
        if not ok:
            break
        last = n
    return last


def losses(found: list[list[Found]], settings: Sequence[Setting]) -> NDArray[np.float64]:
    """Loss against the optimum as a share of the uniform policy's, ``(sizes, runs)``."""
    value = np.array([[f.value for f in runs] for runs in found])
    best, even = (np.array([getattr(s, name) for s in settings]) for name in ("optimum", "even"))
    return (best - value) / (best - even)


def smallest_sizes(found: list[list[Found]], settings: Sequence[Setting], grid: Grid) -> dict[str, int | None]:
    """The three smallest sizes of one method."""
    lower = np.array([[f.lower for f in runs] for runs in found])
    even = np.array([s.even for s in settings])
    return {
        "learns": smallest(losses(found, settings).mean(1) <= 0.1, grid.episodes),
        "speaks": smallest((lower > 0).all(1), grid.episodes),
        "tells": smallest((lower > even).all(1), grid.episodes),
    }


def baselines(settings: Sequence[Setting]) -> dict[str, float]:
    """Loss, as a share of the uniform policy's, of what needs no data or only the habit that logged it."""

    def share(made: Setting, value: float) -> float:
        return (made.optimum - value) / (made.optimum - made.even)

    out: dict[str, list[float]] = {"behaviour": [], "best constant action": [], "largest reward now": [], "no data": []}
    for made in settings:
        H, S, A = made.mdp.shape
        now = made.mdp.rewards == made.mdp.rewards.max(-1, keepdims=True)
        out["behaviour"].append(share(made, policy_value(made.mdp, made.behaviour)))
        each = (policy_value(made.mdp, constant(H, S, A, a)) for a in range(A))
        out["best constant action"].append(share(made, max(each)))
        out["largest reward now"].append(share(made, policy_value(made.mdp, now / now.sum(-1, keepdims=True))))
        out["no data"].append(share(made, find(PRESETS[0], Draw(made, 0, [0])).value))
    return {name: float(np.mean(of)) for name, of in out.items()}


def containment(world: str, rewards: str, methods: Sequence[Method], sizes: Sequence[int], draws: int) -> list[Row]:
    """How often the interval holds the policy's value, and the best upper value the optimum, in fresh draws."""
    found = {(m.name, n): [] for m in methods for n in sizes}
    best: list[float] = []
    for i in range(draws):
        made = setting(world, SEED + 100 + i, rewards=rewards)
        best.append(made.optimum)
        for n in sizes:
            draw = Draw(made, n, [SEED + 100, i, n])
            for m in methods:
                found[m.name, n].append(find(m, draw))
    return [
        {
            "world": world,
            "rewards": rewards,
            "method": name,
            "episodes": n,
            "draws": draws,
            "inside": sum(f.lower <= f.value + 1e-9 and f.value <= f.upper + 1e-9 for f in of),
            "lower_holds": sum(f.lower <= f.value + 1e-9 for f in of),
            "best_upper_holds": sum(f.best_upper >= v - 1e-9 for f, v in zip(of, best, strict=True)),
            "mean_width": f"{np.mean([f.upper - f.lower for f in of]):.4f}",
        }
        for (name, n), of in found.items()
    ]


def size(n: int | None, grid: Grid) -> str:
    """As findings print it."""
    shown = f">{max(grid.episodes):.0e}" if n is None else f"{n:.1e}"
    return shown.replace("e+0", "e").replace("e+", "e")


def study(world: str, rewards: str, grid: Grid) -> tuple[list[Row], list[Row]]:
    """Measure and print one setting: (smallest sizes, containment)."""
    began = time.time()
    methods = methods_of(rewards)
    settings = [setting(world, SEED + run, rewards=rewards) for run in range(grid.runs)]
    values = (np.mean([s.optimum for s in settings]), np.mean([s.even for s in settings]))
    print(f"\n{world}, rewards: {rewards}; optimum {values[0]:.4f}, uniform {values[1]:.4f}")
    print("loss/uniform's: " + ", ".join(f"{name} {v:.2f}" for name, v in baselines(settings).items()))
    print(f"{'method':44} {'learns':>7} {'speaks':>7} {'tells':>7}")
    found, sizes = measure(world, rewards, methods, grid), list[Row]()
    for m in methods:
        of = smallest_sizes(found[m.name], settings, grid)
        print(f"{m.name:44} " + " ".join(f"{size(n, grid):>7}" for n in of.values()), flush=True)
        shown = {k: "" if n is None else n for k, n in of.items()}
        sizes.append({"world": world, "rewards": rewards, "method": m.name} | shown | {"runs": grid.runs})
    checked = CHECKED[world.removesuffix(" drifting")]
    print(f"\n{f'inside, of {grid.draws} (width)':44} " + " ".join(f"{size(n, grid):>14}" for n in checked))
    held = containment(world, rewards, methods, checked, grid.draws)
    for m in methods:
        cells = (f"{r['inside']:>4} ({r['mean_width']:>7})" for r in held if r["method"] == m.name)
        print(f"{m.name:44} " + " ".join(cells), flush=True)
    print(f"{time.time() - began:.0f} s", flush=True)
    return sizes, held


def main(arguments: list[str]) -> None:
    """Print the study of the worlds named, or of all; the full one rewrites their rows as soon as it has them."""
    quick, named = "--quick" in arguments, [a for a in arguments if a != "--quick"]
    for world, rewards in (*SETTINGS, *ESTIMATED):
        if not named or world in named:
            sizes, held = study(world, rewards, QUICK if quick else FULL)
            if not quick:
                write("constants_study", sizes, f"{SEED}", ("world", "rewards", "method"))
                write("constants_containment", held, f"{SEED + 100}", ("world", "rewards", "method", "episodes"))


if __name__ == "__main__":
    main(sys.argv[1:])
