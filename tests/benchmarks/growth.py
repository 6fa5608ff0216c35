"""How processor time grows: ``python -P -m tests.benchmarks.growth [ROUNDS]`` fits an exponent to each size.

Each size is doubled, the others stay; all sizes are measured in turn in every round, and the least time of each counts:
a busy machine only ever adds.  An exponent is the slope of log seconds over log size.  ``run`` is the whole verb on a
snapshot: sums, release, policy, certificate and page; where people double and ``rows`` do not, each has half as many
episodes.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from flows.config.home import Home
from flows.jobs.run import run_recipe
from pipeline.agents.apvi import apvi, model, policy_bounds
from pipeline.agents.pessimism import constants
from pipeline.declaration.card import Card, load_card, task_of
from pipeline.logs.aggregate import aggregate
from pipeline.logs.ingest import ingest
from pipeline.logs.parts import forget
from pipeline.logs.store import latest
from pipeline.privacy.noise import OsNoise, SimulatedWorld
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.planning_counts import private_counts
from tests.benchmarks.scale_log import write_log
from tests.campaigns.rows import markdown, markdown_row
from tests.conftest import card_dict, domain_dict, toml


@dataclass(frozen=True)
class Growth:
    """What grows in what.

    ``name``, ``of``: the work, and the size that is doubled.
    ``sizes``: rising.
    ``prepare``: from a folder and a size to the work that is timed.
    ``most``: exponent that is not to be exceeded.
    """

    name: str
    of: str
    sizes: tuple[int, ...]
    prepare: Callable[[Path, int], Callable[[], object]]
    most: float


def ingest_rows(folder: Path, rows: int) -> Callable[[], object]:
    """A log of text ids into a store of its own."""
    folder.mkdir()
    card, stores = write_log(folder, rows), iter(range(1_000_000))
    return lambda: ingest(card, folder / f"store{next(stores)}")


def grown(
    folder: Path, people: int = 2000, episodes: int = 1, horizon: int = 4, states: int = 24, actions: int = 4
) -> Card:
    """A log of so many people with so many episodes each, and its card."""
    folder.mkdir()
    rng, rows = np.random.default_rng(0), people * episodes * horizon
    episode, step = np.divmod(np.arange(rows), horizon)
    drawn = {
        name: rng.integers(most, size=rows) for name, most in (("state", states), ("action", actions), ("reward", 2))
    }
    user = pl.Series("user_id", [f"person {u}" for u in range(people)])[episode % people]
    pl.DataFrame([user]).with_columns(episode_id=episode, step=step, **drawn).write_parquet(folder / "log.parquet")
    card = card_dict(
        name="grown",
        unit={"user": "user_id", "episodes_per_user": episodes, "users_public": people},
        domain=domain_dict(horizon, states, actions),
        source=card_dict()["source"] | {"files": ["log.parquet"]},
        budget={"rho": 1000.0, "delta": 1e-6, "ledger": "home"},
    )
    (folder / "card.toml").write_text(toml(card), encoding="utf-8")
    return load_card(folder / "card.toml")


def ingest_grown(folder: Path, **sizes: int) -> Callable[[], object]:
    """Such a log into a store of its own."""
    card, stores = grown(folder, **sizes), iter(range(1_000_000))
    return lambda: ingest(card, folder / f"store{next(stores)}")


def run_grown(folder: Path, **sizes: int) -> Callable[[], object]:
    """A run of its snapshot; every call asks for another budget, and so draws."""
    card, home, asked = grown(folder, **sizes), Home(folder / "home"), iter(range(1, 1_000_000))
    ingest(card, home.store)
    snapshot = latest(home.store, "grown")
    assert snapshot is not None

    def run() -> object:
        forget(snapshot)
        recipe = {"name": "grown", "card": "card.toml", "agent": "dp-apvi"}
        text = toml({"recipe": recipe, "privacy": {"rho": next(asked) / 1000}})
        (folder / "recipe.toml").write_text(text, encoding="utf-8")
        made = run_recipe(str(folder / "recipe.toml"), home)
        assert not made.replayed
        return made

    return run


def count_rows(folder: Path, rows: int) -> Callable[[], object]:
    """The tables of a snapshot, without what an earlier sum kept."""
    ingest_rows(folder, rows)()
    card, snapshot = load_card(folder / "card.toml"), latest(folder / "store0", "scale")
    assert snapshot is not None

    def count() -> object:
        forget(snapshot)
        return aggregate(snapshot, card)

    return count


def plan(folder: Path, horizon: int = 4, states: int = 24, actions: int = 4) -> Callable[[], object]:
    """Pessimistic planning and the interval of its policy, on noisy counts of a domain of this size."""
    card = Card.model_validate(card_dict(domain=domain_dict(horizon, states, actions, ["end"])))
    made = count_sum(card, Ask(rho=1.0))
    shapes = {m.table: m.shape for m in made.mechanisms}
    nothing = ExactSums("tiny", "synthetic", "per_step", {name: np.full(s, 3, np.int64) for name, s in shapes.items()})
    counts, task = private_counts(made.draw(nothing, OsNoise()), card), task_of(card)
    c = constants("tail", horizon * states * actions)

    def work() -> object:
        found = apvi(counts, task, c, np.random.default_rng(0))
        return policy_bounds(model(counts, task, c), found.policy)

    return work


def noise(folder: Path, draws: int) -> Callable[[], object]:
    return lambda: OsNoise().gaussian(draws, 10_000, SimulatedWorld("growth"))


GROWTHS = (
    Growth("ingest", "rows", (200_000, 400_000, 800_000), ingest_rows, 1.1),
    Growth("ingest", "episodes", (8, 16, 32), lambda f, n: ingest_grown(f, people=5000, episodes=n), 1.1),
    Growth(
        "ingest", "people", (5000, 10_000, 20_000), lambda f, n: ingest_grown(f, people=n, episodes=80_000 // n), 1.1
    ),
    Growth("ingest", "steps", (8, 16, 32), lambda f, n: ingest_grown(f, people=10_000, horizon=n), 1.1),
    Growth("counts", "rows", (500_000, 1_000_000, 2_000_000), count_rows, 1.1),
    Growth("noise", "draws", (500_000, 1_000_000, 2_000_000), noise, 1.1),
    Growth("plan", "states", (60, 120, 240), lambda f, n: plan(f, states=n), 2.1),
    Growth("plan", "actions", (8, 16, 32), lambda f, n: plan(f, states=80, actions=n), 1.1),
    Growth("plan", "steps", (8, 16, 32), lambda f, n: plan(f, horizon=n, states=80), 1.1),
    Growth("run", "states", (100, 200, 400), lambda f, n: run_grown(f, states=n), 2.1),
    Growth("run", "actions", (16, 32, 64), lambda f, n: run_grown(f, states=60, actions=n), 1.1),
    Growth("run", "steps", (16, 32, 64), lambda f, n: run_grown(f, states=60, horizon=n), 1.1),
    Growth("run", "episodes", (8, 16, 32), lambda f, n: run_grown(f, people=20_000, episodes=n), 1.1),
    Growth("run", "people", (40_000, 80_000, 160_000), lambda f, n: run_grown(f, people=n, episodes=640_000 // n), 1.1),
    Growth("run", "rows", (500_000, 1_000_000, 2_000_000), lambda f, n: run_grown(f, people=n // 4), 1.1),
)


def measure(growth: Growth, rounds: int) -> Iterator[list[float]]:
    """After each round: the least processor seconds of each size so far."""
    with tempfile.TemporaryDirectory() as place:
        works = [growth.prepare(Path(place) / str(size), size) for size in growth.sizes]
        for work in works:
            work()
        least = [np.inf] * len(works)
        for _ in range(rounds):
            for i, work in enumerate(works):
                began = time.process_time()
                work()
                least[i] = min(least[i], time.process_time() - began)
            yield least.copy()


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Slope of the least-squares line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main(rounds: int = 5) -> None:
    print(markdown(["work", "in", "sizes", "CPU ms each", "exponent", "at most"]))
    for growth in GROWTHS:
        *_, seconds = measure(growth, rounds)
        sizes = ", ".join(f"{size:,}" for size in growth.sizes)
        times = ", ".join(f"{1000 * s:.1f}" for s in seconds)
        found = f"{exponent(growth.sizes, seconds):.2f}"
        print(markdown_row([growth.name, growth.of, sizes, times, found, growth.most]), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
