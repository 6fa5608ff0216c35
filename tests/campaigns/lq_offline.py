"""dp-lqr on exploratory logs of the LQ instances: ``python -P -m tests.campaigns.lq_offline [tune | shipped]``.

Behaviour: controls uniform on the sphere of radius gamma.  A gap is J - J* in parts of what the zero controller has;
J is exact.  ``tune`` shows how bounds, share and floor were chosen: on systems of the same sizes drawn with other
seeds, and on other logs.  The report draws 10 logs a cell and 5 times the noise on each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from flows.config.home import find_card
from pipeline.agents.dp_lqr import LqConstants, LqTask, certainty_equivalence
from pipeline.declaration.card import load_any_card, require_linear_quadratic
from pipeline.environments.lq_systems import Controller, LqSystem, double_integrator, lq_instance, norm, simulate
from pipeline.learners.lq_learning import learn_lq, lq_request
from pipeline.learners.terms import Lq
from pipeline.logs.ingest import ingest
from pipeline.mdp.riccati import clip_norm, riccati
from pipeline.privacy.budget import rho_from_epsilon
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq_layout import LqDomain, LqPlan
from pipeline.statistics.lq_moments import draw_lq, released_moments
from pipeline.statistics.lq_rows import Episodes, SimulatedRows
from pipeline.statistics.regression import LqMoments
from tests.logs.snapshot_rows import SnapshotRows

DELTA, WRONG = 1e-5, 0.3
LOGS, DRAWS = 10, 5
SIZES = (1_000, 10_000)
# chosen by `tune`: lengths to which states and successors are cut, and the share of the Gram matrix
CUT, SHARE, CONSTANTS = (0.5, 0.7), Fraction(3, 10), LqConstants()
NUMBERS = (1, 3, 5)


def budget(epsilon: float) -> Fraction:
    """A rho whose official conversion does not exceed ``epsilon`` at DELTA."""
    return Fraction(int(rho_from_epsilon(epsilon, DELTA) * 10**9), 10**9)


def log(world: LqSystem, episodes: int, seed: tuple[int, ...]) -> SimulatedRows:
    explore = Controller(world.zero_gains(), world.gamma)
    x, u = simulate(world, explore, episodes, np.random.default_rng(seed))
    return SimulatedRows((Episodes(x, u, np.full(episodes, world.horizon)),))


def moments(
    world: LqSystem, rows: SimulatedRows, ask: Ask, bounds: tuple[float, float], seed: tuple[int, ...]
) -> LqMoments:
    """One release; ``bounds`` are of the state and of the successor."""
    (n, d), episodes = world.shape, len(rows.episodes[0].lengths)
    domain = LqDomain(
        world.name, "synthetic", n, d, world.horizon, episodes, bounds[0], world.gamma, successor_bound=bounds[1]
    )
    plan = LqPlan(domain, ask)
    return released_moments(plan, draw_lq(plan, rows, SeededNoise(np.random.SeedSequence(seed))))


def gap(world: LqSystem, gains: np.ndarray) -> float:
    """J - J*."""
    return world.expected_cost(gains) - world.expected_cost(world.optimal_gains())


def wrong_models(world: LqSystem, draws: int) -> Iterator[np.ndarray]:
    """Optimal gains of models whose A and B are each 30 % off in norm, in a random direction."""
    r = np.random.default_rng(7)
    for _ in range(draws):
        A, B = (M + WRONG * norm(M) * E / norm(E) for M in (world.A, world.B) for E in [r.normal(size=M.shape)])
        yield clip_norm(riccati(A, B, world.cost)[0], world.gamma)


def gaps(
    world: LqSystem, episodes: int, ask: Ask, bounds: tuple[float, float], c: LqConstants, seed: int
) -> np.ndarray:
    """Gaps over the zero controller's of every log and noise draw."""
    zero, task = gap(world, world.zero_gains()), LqTask(world.cost, world.gamma)
    found = []
    for i in range(LOGS):
        rows = log(world, episodes, (seed, episodes, i))
        for j in range(DRAWS if ask.rho is not None else 1):
            seen = moments(world, rows, ask, bounds, (seed, episodes, i, j))
            found.append(gap(world, certainty_equivalence(seen, task, c).gains) / zero)
    return np.array(found)


def shown(values: np.ndarray) -> str:
    """Median and the 90 % quantile."""
    return f"{np.median(values):.4f} ({np.quantile(values, 0.9):.3f})"


def report() -> None:
    """Print the table."""
    worlds = [*map(lq_instance, NUMBERS), double_integrator()]
    one = (1.0, 1.0)
    exact, private = Ask(None, split={"gram": SHARE}), Ask(budget(1.0), split={"gram": SHARE})
    rows = {
        "certainty-equivalence, no privacy": (exact, one),
        "dp-lqr, eps 1, balls of radius 1": (private, one),
        f"dp-lqr, eps 1, cut to {CUT[0]} and {CUT[1]}": (private, CUT),
        f"dp-lqr, eps 0.5, cut to {CUT[0]} and {CUT[1]}": (replace(private, rho=budget(0.5)), CUT),
    }
    print(f"Gap over the zero controller's: median (90 % quantile); delta = {DELTA}, rho = {float(private.rho):.6f}\n")
    print("| controller | " + " | ".join(f"{w.name}, {k:,}" for w in worlds for k in SIZES) + " |")
    print("|---" * (1 + len(worlds) * len(SIZES)) + "|")
    fixed = {w.name: np.array([gap(w, K) for K in wrong_models(w, 200)]) / gap(w, w.zero_gains()) for w in worlds}
    print("| zero (J - J*) | " + " | ".join(f"1 ({gap(w, w.zero_gains()):.4f})" for w in worlds for _ in SIZES) + " |")
    print("| fixed-gain, model 30 % wrong | " + " | ".join(shown(fixed[w.name]) for w in worlds for _ in SIZES) + " |")
    for name, (ask, bounds) in rows.items():
        cells = [shown(gaps(w, k, ask, bounds, CONSTANTS, 1000)) for w in worlds for k in SIZES]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def tune() -> None:
    """Print a row a setting: median gap over zero's, geometric mean over three systems a size, then over all cells."""
    bounds = (0.5, 0.5), (0.5, 0.7), (0.6, 0.6), (0.6, 0.8), (0.7, 0.7), (1.0, 1.0)
    settings = product(bounds, (Fraction(3, 10), Fraction(1, 2)))
    constants = [LqConstants(r, f) for r, f in ((1.0, 1.0), (1.0, 3.0), (1.0, 6.0), (10.0, 3.0))]
    rho = budget(1.0)
    cells = [(number, k) for number in NUMBERS for k in SIZES]
    print("bounds      share ridge floor  " + "  ".join(f"{number}:{k:<6}" for number, k in cells) + "  all")
    logs = {
        (number, k): [(w, log(w, k, (77, s))) for s in (21, 22, 23) for w in [lq_instance(number, s)]]
        for number, k in cells
    }
    for cut, share in settings:
        medians: dict[int, list[float]] = {i: [] for i in range(len(constants))}
        for cell in cells:
            each: list[list[float]] = [[] for _ in constants]
            for world, rows in logs[cell]:
                zero, task = gap(world, world.zero_gains()), LqTask(world.cost, world.gamma)
                ask = Ask(rho, split={"gram": share})
                seen = [moments(world, rows, ask, cut, (78, j)) for j in range(2 * DRAWS)]
                for found, c in zip(each, constants, strict=True):
                    ratios = [gap(world, certainty_equivalence(m, task, c).gains) / zero for m in seen]
                    found.append(float(np.median(ratios)))
            for i, found in enumerate(each):
                medians[i].append(float(np.exp(np.mean(np.log(found)))))
        for i, c in enumerate(constants):
            all_cells = float(np.exp(np.mean(np.log(medians[i]))))
            line = [f"{m:.5f} " for m in (*medians[i], all_cells)]
            print(f"{cut} {float(share):5} {c.ridge:5} {c.floor:5}  " + "  ".join(line), flush=True)


def shipped() -> None:
    """The shipped log through ingest and the very functions of `run`, with seeded noise: a row a setting."""
    card = require_linear_quadratic(load_any_card(find_card("double_integrator")))
    world, noises = double_integrator(), [SeededNoise(np.random.SeedSequence((2004, j))) for j in range(50)]
    zero = gap(world, world.zero_gains())
    fixed = np.array([gap(world, K) for K in wrong_models(world, 200)]) / zero
    print("Shipped log, gap over zero's: median (90 % quantile), share of draws worse than doing nothing\n")
    print(f"fixed-gain, model 30 % wrong: {shown(fixed)}, {(fixed > 1).mean():.0%}")
    with TemporaryDirectory() as place:
        snapshot = ingest(card, Path(place))
        rows = SnapshotRows(snapshot, card)
        for epsilon, cut in product((0.25, 0.5, 1.0, 4.0), (CUT, (1.0, 1.0))):
            request = lq_request(card, "dp-lqr", budget(epsilon), Lq(cut=tuple(cut)))
            gains = [learn_lq(request, draw_lq(request.plan, rows, noise)).result.gains for noise in noises]
            found = np.array([gap(world, K) for K in gains]) / zero
            print(
                f"dp-lqr, eps {epsilon}, cut to {cut[0]} and {cut[1]}: {shown(found)}, {(found > 1).mean():.0%}",
                flush=True,
            )


if __name__ == "__main__":
    {"tune": tune, "shipped": shipped}.get(" ".join(sys.argv[1:]), report)()
