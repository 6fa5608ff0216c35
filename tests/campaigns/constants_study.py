"""How much data each preset of ``constants`` needs: ``python -P -m tests.campaigns.constants_study [--quick]``.

At rho = 1 (Laplace: epsilon = 1) and failure probability 0.1, smallest n on a grid of 10^(1/4)

* *learns*: from which on the mean loss against the optimum stays within 10 % of the uniform policy's;
* *speaks*: from which on the lower value is above 0 in all runs (findings: "the certificate is not empty");
* *tells*: from which on the lower value is above the uniform policy's true value in all runs;

and how often the intervals hold in 100 further draws.  Rewrites ``results/constants_study.csv`` and
``results/constants_containment.csv``; ``--quick`` prints a coarse study and writes nothing.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.planning import policy_value
from pipeline.mdp.policy import constant
from tests.campaigns.constants_methods import CANDIDATES, PRESETS, Draw, Found, Method, find
from tests.campaigns.constants_worlds import Setting, setting

RESULTS = Path(__file__).resolve().parent / "results"
# 1000 .. 1005 and 2000 .. 2019 tuned the candidates
SEED = 20261123
SETTINGS = (("riverswim", "table"), ("icu-like", "table"), ("icu-like drifting", "table"))
ESTIMATED = (("riverswim", "estimate"), ("icu-like", "estimate"))
OF_ESTIMATED = (
    "1/2,1/2, two tables 15:85, E = 0",
    "1/2,1/2, one table",
    "1/2,1/2, one table, shared steps",
    "1/2,1/2, two tables 15:85, shared steps",
)
CHECKED = {"riverswim": (10**3, 10**4, 10**5, 10**6), "icu-like": (10**4, 10**5, 10**6, 10**7)}


@dataclass(frozen=True)
class Grid:
    """Sizes of the logs, draws at each, and draws of a containment check."""

    episodes: tuple[int, ...]
    runs: int
    draws: int


FULL = Grid(tuple(round(10 ** (k / 4)) for k in range(8, 41)), 10, 100)
QUICK = Grid((10**3, 10**4, 10**5), 2, 4)


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


def row(found: list[list[Found]], settings: Sequence[Setting], grid: Grid) -> dict[str, int | None]:
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


def containment(
    world: str, rewards: str, methods: Sequence[Method], sizes: Sequence[int], draws: int
) -> list[dict[str, str | int]]:
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
    return (
        f">{max(grid.episodes):.0e}".replace("+0", "").replace("+", "") if n is None else f"{n:.1e}".replace("+0", "")
    )


def study(grid: Grid) -> tuple[list[dict[str, str | int]], list[dict[str, str | int]]]:
    """Measure and print everything: (smallest sizes, containment)."""
    sizes: list[dict[str, str | int]] = []
    held: list[dict[str, str | int]] = []
    for world, rewards in (*SETTINGS, *ESTIMATED):
        began = time.time()
        methods = [*PRESETS, *(m for m in CANDIDATES if rewards == "table" or m.name in OF_ESTIMATED)]
        settings = [setting(world, SEED + run, rewards=rewards) for run in range(grid.runs)]
        print(f"\n{world}, rewards {'declared' if rewards == 'table' else 'estimated'}; optimum ", end="")
        print(
            f"{np.mean([s.optimum for s in settings]):.4f}, uniform {np.mean([s.even for s in settings]):.4f}; ", end=""
        )
        print("loss/uniform's: " + ", ".join(f"{name} {v:.2f}" for name, v in baselines(settings).items()))
        print(f"{'method':44} {'learns':>7} {'speaks':>7} {'tells':>7}")
        found = measure(world, rewards, methods, grid)
        for m in methods:
            of = row(found[m.name], settings, grid)
            print(f"{m.name:44} " + " ".join(f"{size(n, grid):>7}" for n in of.values()), flush=True)
            sizes.append(
                {"world": world, "rewards": rewards, "method": m.name}
                | {k: "" if n is None else n for k, n in of.items()}
                | {"runs": grid.runs, "largest": max(grid.episodes), "seed": SEED, "date": date.today().isoformat()}
            )
        checked = CHECKED[world.removesuffix(" drifting")]
        print(f"\n{'inside of ' + str(grid.draws):44} " + " ".join(f"{n:>14.0e}" for n in checked) + "   (width)")
        block = containment(world, rewards, methods, checked, grid.draws)
        for m in methods:
            of_m = [r for r in block if r["method"] == m.name]
            shown = " ".join(f"{r['inside']:>4} ({r['mean_width']:>7})" for r in of_m)
            print(f"{m.name:44} {shown}", flush=True)
        held += [r | {"seed": SEED + 100, "date": date.today().isoformat()} for r in block]
        print(f"{time.time() - began:.0f} s", flush=True)
    return sizes, held


def write(name: str, rows: list[dict[str, str | int]]) -> None:
    """Commit a table beside the campaigns."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(quick: bool) -> None:
    """Print the study; the full one rewrites its committed tables."""
    sizes, held = study(QUICK if quick else FULL)
    if not quick:
        write("constants_study.csv", sizes)
        write("constants_containment.csv", held)


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
