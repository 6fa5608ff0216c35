"""How much data the default planner needs, against what it replaces: ``python -P -m tests.campaigns.planning_study``.

Worlds x people x fresh logs and noise; loss (v* - v) / (v* - v_uniform) of the emitted policy.  Rows are written to
``results/planning_study.parquet`` with seed and date.  Constants were chosen on seeds from 3000, on the first six
worlds; reported seeds begin at ``SEED``, and the worlds named *held out* chose nothing.  A minute on one core.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.agents.apvi import apvi, model, optimal_upper, policy_bounds
from pipeline.agents.pessimism import constants
from pipeline.declaration.card import Card
from pipeline.environments.riverswim import riverswim
from pipeline.mdp.model import TabularMDP, Task, stationary_mdp
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.mdp.policy import Policy, constant
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.counts import private_counts
from pipeline.statistics.planning_counts import prepare
from pipeline.statistics.private_sum import PrivateSum
from tests.campaigns.constants_worlds import Array, Setting, icu_like, setting

Row = dict[str, str | int | float | bool | None]
SEED, RUNS, FAILURE = 20261122, 10, 0.1
RESULT = Path(__file__).resolve().parent / "results" / "planning_study.parquet"
ICU, CHAIN = (3 * 10**3, 10**4, 2 * 10**4, 3 * 10**4, 5 * 10**4, 10**5), (300, 10**3, 3 * 10**3, 10**4)
# world -> people
GRID: dict[str, tuple[int, ...]] = {
    "icu-like": ICU,
    "icu-like drifting": ICU,
    "icu-like greedy": ICU,
    "riverswim 6x20": CHAIN,
    "random 12x4x15": CHAIN,
    "random 12x4x15 narrow": CHAIN,
    # held out
    "garnet 30x3x8": (*CHAIN, 3 * 10**4),
    "garnet 30x3x8 half drifting": (*CHAIN, 3 * 10**4),
    "garnet 30x3x8 soft greedy": (*CHAIN, 3 * 10**4),
    "riverswim 8x24": (*CHAIN, 3 * 10**4),
}


def world(name: str, seed: int) -> Setting:
    """A world of :data:`GRID` and one seed, with declared rewards."""
    if name in ("icu-like", "icu-like drifting"):
        return setting(name, seed)
    rng = np.random.default_rng([seed, 1264])
    if name == "icu-like greedy":
        mdp, _ = icu_like(seed, drifting=False)
        return declared(name, mdp, soft_greedy(mdp, 0.25, 0.1))
    if name.startswith("riverswim"):
        S, H = (6, 20) if "6x20" in name else (8, 24)
        river = riverswim(S)
        return declared(name, river.mdp(H), river.behaviours("right-0.8" if S == 6 else "uniform", H))
    if name.startswith("random"):
        S, A, H = 12, 4, 15
        still = stationary_mdp(rng.dirichlet(np.full(S, 0.3), size=(S, A)), rng.random((S, A)), np.full(S, 1 / S), H)
        pi = np.full((S, A), 1 / A)
        if "narrow" in name:
            pi = np.full((S, A), 0.1 / (A - 1))
            pi[np.arange(S), rng.integers(A, size=S)] = 0.9
        return declared(name, still, np.broadcast_to(pi, (H, S, A)))
    mdp = garnet(rng, drifting="drifting" in name)
    behaviour = soft_greedy(mdp, 0.5, 0.05) if "greedy" in name else np.full(mdp.shape, 1 / 3)
    return declared(name, mdp, behaviour)


def garnet(rng: np.random.Generator, *, drifting: bool) -> TabularMDP:
    """30 states, 3 actions, 8 steps, 4 successors a cell. ``drifting``: half a cell's mass moves each step."""
    S, A, H, k = 30, 3, 8, 4

    def kernel() -> Array:
        P = np.zeros((S, A, S))
        np.put_along_axis(P, rng.random(P.shape).argpartition(k, -1)[..., :k], rng.dirichlet(np.ones(k), (S, A)), -1)
        return P

    still = kernel()
    P = np.stack([0.5 * still + 0.5 * kernel() if drifting else still for _ in range(H)])
    reward = np.broadcast_to(rng.random((S, A)) * (rng.random((S, A)) < 0.2), (H, S, A))
    return TabularMDP(P, reward, np.full(S, 1 / S))


def soft_greedy(mdp: TabularMDP, heat: float, floor: float) -> Array:
    """A good logging policy: softmax of the optimal values, mixed with ``floor`` of uniform choice."""
    Q = optimal_values(mdp)[0]
    below = Q - Q.max(-1, keepdims=True)
    e = np.exp(below / (heat * np.maximum(-below.mean(-1, keepdims=True), 1e-9)))
    return (1 - floor) * e / e.sum(-1, keepdims=True) + floor / Q.shape[-1]


def declared(name: str, mdp: TabularMDP, behaviour: Array) -> Setting:
    """The world under a card that declares its rewards and start."""
    H, S, A = mdp.shape
    card = Card.model_validate(
        {
            "schema_version": 1,
            "name": "".join(c if c.isalnum() else "-" for c in name),
            "kind": "synthetic",
            "unit": {"user": "u", "users_public": 1},
            "domain": {
                "horizon": H,
                "states": {"column": "s", "labels": S},
                "actions": {"column": "a", "labels": A},
                "start": {str(s): float(p) for s, p in enumerate(mdp.start)},
            },
            "reward": {"kind": "table", "table": mdp.rewards[-1].tolist(), "range": [0.0, 1.0], "steps": 200},
            "source": {
                "files": ["none.csv"],
                "columns": {"user_id": "u", "episode_id": "e", "step": "h", "reward": "r"},
            },
            "budget": {"rho": 1.0},
        }
    )
    task = Task(H, (0.0, 1.0), np.ones((S, A), dtype=bool), mdp.rewards, can_end=False)
    return Setting(name, card, task, mdp, behaviour, coins=False)


def policies(made: Setting, release: Release, seed: int) -> Iterator[tuple[str, Policy, bool]]:
    """Method, its policy, and whether steps were shared."""
    cells = made.task.horizon * made.task.allowed.size
    policy, before = (constants("practical", cells, FAILURE, policy=of) for of in ("declared", None))
    plain = private_counts(release, made.card, failure=FAILURE)
    found = prepare(plain, made.card, "practical")
    apart = prepare(plain, made.card, "practical", share=False)
    for name, counts, c in (
        ("default", found.counts, policy),
        ("default without pessimism", found.counts, replace(policy, C1=0.0, C2=0.0)),
        ("default, steps apart", apart.counts, policy),
        ("before: cell by cell, 5 and 3", plain, before),
        ("cell by cell, 1/2 and 1/2", plain, policy),
    ):
        yield name, apvi(counts, made.task, c, np.random.default_rng(seed)).policy, found.shared


def rows(name: str, people: int, runs: int) -> Iterator[Row]:
    """One row a method and run; ``practice`` and the best constant action beside them."""
    for run in range(runs):
        made = world(name, SEED + run)
        log = made.counts(people, np.random.default_rng([SEED, run, people]))
        of = made.optimum - made.even
        H, S, A = made.mdp.shape
        plain = {
            "practice": policy_value(made.mdp, made.behaviour),
            "best constant": max(policy_value(made.mdp, constant(H, S, A, a)) for a in range(A)),
        }
        for method, value in plain.items():
            yield _row(name, people, run, "-", method, (made.optimum - value) / of)
        for rho in (1.0, None):
            mechanisms = made.mechanisms(Ask(rho=rho) if rho else Ask())
            release = PrivateSum(CountLayout(made.card), mechanisms).draw(log, SeededNoise(SEED + run))
            for method, policy, shared in policies(made, release, run):
                value = policy_value(made.mdp, policy.beside(made.behaviour))
                held = _held(made, release, policy, value)
                ask = "none" if rho is None else f"{rho:g}"
                yield _row(name, people, run, ask, method, (made.optimum - value) / of, shared, held)


def _held(made: Setting, release: Release, policy: Policy, value: float) -> bool:
    """Whether the default interval holds the policy's value, and the best upper value the optimum."""
    tail = constants("tail", made.task.horizon * made.task.allowed.size, FAILURE)
    m = model(private_counts(release, made.card, failure=FAILURE), made.task, tail)
    lower, upper = (float(made.mdp.start @ V[0]) for V in policy_bounds(m, policy)[:2])
    return (
        lower <= value + 1e-9 and value <= upper + 1e-9 and float(made.mdp.start @ optimal_upper(m)[0]) >= made.optimum
    )


def _row(
    name: str, people: int, run: int, rho: str, method: str, loss: float, shared: bool = False, held: bool | None = None
) -> Row:
    return {
        "world": name,
        "people": people,
        "run": run,
        "rho": rho,
        "method": method,
        "loss": loss,
        "shared": shared,
        "held": held,
        "seed": SEED,
        "date": date.today().isoformat(),
    }


def main(arguments: list[str]) -> None:
    """Measure the worlds named, or all; ``--quick``: two runs, and nothing is written."""
    quick, named = "--quick" in arguments, [a for a in arguments if a != "--quick"]
    found: list[Row] = []
    for name in named or GRID:
        for people in GRID[name]:
            cell = list(rows(name, people, 2 if quick else RUNS))
            found += cell
            print(f"\n{name}, {people} people")
            for key in dict.fromkeys((r["rho"], r["method"]) for r in cell):
                of = [r["loss"] for r in cell if (r["rho"], r["method"]) == key]
                shared = np.mean([r["shared"] for r in cell if (r["rho"], r["method"]) == key])
                print(
                    f"  rho {key[0]:>4}  {key[1]:32} {np.mean(of):6.3f} ({np.std(of) / len(of) ** 0.5:.3f})"
                    f"  shared {shared:.1f}",
                    flush=True,
                )
    if not quick and not named:
        pl.DataFrame(found).write_parquet(RESULT, compression="zstd")


if __name__ == "__main__":
    main(sys.argv[1:])
