"""Cells of studies and simulations, the one runner that measures them, and their rows.

Cells are measured in parallel processes, and each result is kept under a hash of the cell and of the code that it
depends on, so that a broken run goes on where it was.  Runs that differ in their seed alone are one row.
"""

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from pipeline.arrays import Array
from pipeline.declaration.code import closure_digest
from pipeline.declaration.toml import CardError
from pipeline.facts.promise import Dump
from pipeline.files import whole_file, write_file
from pipeline.online import linear, registry
from pipeline.online.linear import Cell as LinearCell
from pipeline.online.trial import SIMULATION, Calibration, Measured, Plain, Trial, TrialRow

Options = tuple[tuple[str, Plain], ...]
# a world's name and its sorted parameters
Place = tuple[str, Options]
# a number, a word, or a matrix by its rows
Parameter = Plain | list[float] | list[list[float]]
AnyCell = Trial | LinearCell
# the asked loss of one user, epsilon and delta, and the calibration of its noise; all None without privacy
AgentBudget = tuple[float | None, float | None, Calibration | None]
NONE: AgentBudget = (None, None, None)


def place_of(world: Mapping[str, Parameter]) -> Place:
    """A world of a recipe: its name, and its parameters sorted, rows of a matrix as tuples."""
    return str(world["name"]), tuple(sorted((k, _fixed(v)) for k, v in world.items() if k != "name"))


def _fixed(value: Any) -> Any:
    return tuple(map(_fixed, cast("list[object]", value))) if isinstance(value, list) else value


def sweep(
    places: Iterable[Place],
    episodes: Iterable[int],
    agents: Iterable[tuple[str, Options]],
    budgets: Sequence[AgentBudget],
    seeds: range,
) -> list[Trial]:
    """Worlds × episodes × agents × budgets × seeds, the last innermost; an agent without privacy has no budget."""
    return [
        Trial(agent, world, params, K, *budget, tuple(sorted(options)), seed)
        for world, params in places
        for K in episodes
        for agent, options in agents
        # the control without data draws the noise of the agent that it controls
        for budget in (budgets if budgets and (registry.find(agent).private or agent == "no-data") else [NONE])
        for seed in seeds
    ]


def measure(cell: AnyCell) -> Any:
    """Measure a cell, in a process of its own; plain values."""
    return linear.measure(cell) if isinstance(cell, LinearCell) else registry.plain_values(cell, registry.run(cell))


# a worker's linear algebra must not fight with the other workers for the cores
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


def measure_cells(
    cells: Sequence[AnyCell],
    folder: Path,
    progress: Callable[[int, int | None], None] | None = None,
    report: Callable[[Any, Dump], None] | None = None,
) -> list[Any]:
    """Results of all cells, in their order; each is written to ``folder`` at once."""
    folder.mkdir(parents=True, exist_ok=True)
    files = result_files(cells, folder)
    rows = {cell: json.loads(path.read_text(encoding="utf-8")) for cell, path in files.items() if path.is_file()}
    missing = [cell for cell in files if cell not in rows]
    for cell, row in _each(missing):
        rows[cell] = row
        with whole_file(files[cell], alone=False) as fresh:
            write_file(fresh, json.dumps(row, allow_nan=False))
        if progress is not None:
            progress(len(rows), len(files))
        if report is not None:
            report(cell, row)
    return [rows[cell] for cell in cells]


def count_measured(cells: Sequence[AnyCell], folder: Path) -> int:
    """Number of the cells with a result in ``folder``, measured by the same code."""
    return sum(path.is_file() for path in result_files(cells, folder).values())


def result_files(cells: Sequence[AnyCell], folder: Path) -> dict[AnyCell, Path]:
    """The file of each cell's result, present or not; named by the cell and the modules that its result depends on."""
    digests: dict[tuple[str, ...], str] = {}
    files: dict[AnyCell, Path] = {}
    for cell in cells:
        modules = (linear.__name__,) if isinstance(cell, LinearCell) else registry.modules_of(cell)
        if modules not in digests:
            digests[modules] = closure_digest(modules)
        key = hashlib.sha256(f"{cell!r} {digests[modules]}".encode()).hexdigest()[:32]
        files[cell] = folder / f"{key}.json"
    return files


def _each(cells: Sequence[AnyCell]) -> Iterator[tuple[AnyCell, Dump]]:
    """Cells with their results, in the order in which they finish."""
    workers = min(len(os.sched_getaffinity(0)), len(cells))
    if workers < 2:
        yield from ((cell, measure(cell)) for cell in cells)
        return
    # spawned: forking a process that runs threads (polars, a progress bar) may hang
    with _one_thread_each(), ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(measure, cell): cell for cell in cells}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            # after an error or an interrupt the rest of the grid is not measured
            pool.shutdown(cancel_futures=True)


@contextmanager
def _one_thread_each() -> Generator[None]:
    """Set the variables that spawned processes read when they start."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


Metric = Literal["total regret", "suboptimality"]


class StudyRow(TrialRow):
    """A row over seeds, with values for figures and claims that are not printed.

    ``marks`` ``(n,)``: episodes at which the curve is read.
    ``curve_mean``, ``curve_std`` ``(n,)``: regret summed up to each mark, over the runs.
    ``totals`` ``(runs,)``: the metric in each run, where runs were cells of their own.
    """

    marks: list[int]
    curve_mean: list[float]
    curve_std: list[float]
    totals: list[float]
    facts: dict[str, Any]


Rows = Sequence[StudyRow]


def row_of(trial: Trial, outcomes: Sequence[Measured], metric: Metric) -> StudyRow:
    """Mean and spread of the metric, and facts of the first run; ties averaged.

    ``outcomes``: of trials that differ from ``trial`` in their seed alone.
    """
    facts = outcomes[0]["facts"]
    lost = metric == "suboptimality"
    control = lost and facts.get("variant") == "control"
    # a policy that is handed over states the largest loss over its runs
    counted = [o["facts"] for o in (outcomes if lost else outcomes[:1])]
    if lost and "final_loss" not in facts:
        raise CardError(f"{trial.agent} hands over no policy: a study of it measures 'total regret'")
    values = [o["facts"].get("final_loss", 0.0) if lost else o["regret"][-1] for o in outcomes]
    curves = np.array([o["regret"] for o in outcomes])
    ties = [share for o in outcomes if (share := o["facts"].get("tie_share")) is not None]
    sent = [s for o in outcomes if (s := o["sent"]) is not None]
    return StudyRow(
        agent=trial.agent,
        variant=facts.get("variant", ""),
        trust=facts["trust"],
        world=trial.place,
        episodes=trial.episodes,
        rho=None,
        epsilon=None if control else trial.epsilon,
        delta=None if control else trial.delta,
        calibration=None if control else trial.calibration,
        constants=facts.get("constants"),
        metric=metric,
        mean=float(np.mean(values)),
        std=_std(np.array(values)).item(),
        runs=len(values),
        true_rho=_largest([f.get("true_rho") for f in counted]),
        true_epsilon=_largest([f.get("true_epsilon") for f in counted]),
        tie_share=float(np.mean(ties)) if ties else None,
        noise=SIMULATION,
        messages=max((s["messages"] for s in sent), default=None),
        bits=max((s["bits"] for s in sent), default=None),
        marks=list(outcomes[0]["marks"]),
        curve_mean=curves.mean(0).tolist(),
        curve_std=_std(curves).tolist(),
        totals=values,
        facts=facts,
    )


def _std(values: Array) -> Array:
    return values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])


def _largest(values: Sequence[float | None]) -> float | None:
    known = [x for x in values if x is not None]
    return max(known) if len(known) == len(values) else None


def gather(trials: Sequence[Trial], outcomes: Sequence[Measured]) -> dict[Trial, list[Measured]]:
    """Outcomes grouped over seeds, in the order of first appearance; all runs of a group share their marks."""
    groups: dict[Trial, list[Measured]] = {}
    for trial, outcome in zip(trials, outcomes, strict=True):
        groups.setdefault(replace(trial, seed=0), []).append(outcome)
    return groups


def gathered_rows(cells: Sequence[AnyCell], measured: Sequence[Any], metric: Metric = "total regret") -> list[StudyRow]:
    """A row for each group of trials; a linear cell holds its runs, and is a row."""
    pairs = list(zip(cells, measured, strict=True))
    trials = [(cell, outcome) for cell, outcome in pairs if isinstance(cell, Trial)]
    groups = gather([t for t, _ in trials], [m for _, m in trials])
    rows = [row_of(trial, outcomes, metric) for trial, outcomes in groups.items()]
    bare: Mapping[str, Any] = {"marks": [], "curve_mean": [], "curve_std": [], "totals": [], "facts": {}}
    return rows + [cast("StudyRow", {**row, **bare}) for cell, row in pairs if not isinstance(cell, Trial)]


def median(row: StudyRow) -> float | None:
    """Median over the runs; None where they were one cell."""
    return float(np.median(row["totals"])) if row["totals"] else None


# columns that are not printed
READERS = ("marks", "curve_mean", "curve_std", "totals", "facts")


def printed(row: StudyRow) -> dict[str, object]:
    """The printed columns of a row, and the median of its runs."""
    return {key: value for key, value in row.items() if key not in READERS} | {"median": median(row)}


def curve_points(rows: Rows) -> list[dict[str, object]]:
    """Every mark of every row's curve as a row: agent, setting, episodes, mean and spread of the regret."""
    names = ("agent", "variant", "trust", "world", "epsilon", "delta", "calibration", "constants", "runs")
    return [
        {**{name: row[name] for name in names}, "episodes": k, "regret_mean": mean, "regret_std": std}
        for row in rows
        for k, mean, std in zip(row.get("marks", ()), row.get("curve_mean", ()), row.get("curve_std", ()), strict=True)
    ]


def end_loss(row: StudyRow) -> float:
    """Mean regret of one episode between the last two marks of the curve."""
    (before, K), (low, high) = row["marks"][-2:], row["curve_mean"][-2:]  # noqa: N806
    return (high - low) / (K - before)


def growth(row: StudyRow) -> float:
    """Summed regret after K episodes over that after K / 10; infinite where the latter is none."""
    tenth = row["marks"][-1] / 10
    early = max(i for i, mark in enumerate(row["marks"]) if mark <= tenth)
    then = row["curve_mean"][early] * tenth / row["marks"][early]
    return row["curve_mean"][-1] / then if then > 0 else float("inf")
