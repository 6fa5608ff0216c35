"""One run of an online agent in a simulated world: what is asked, what came out, and several of them as one row.

A trial is plain values, so that it can travel to another process and name a kept result.  A contestant is a function
from a trial to its outcome; :mod:`pipeline.simulation.online_agents` knows them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.simulation.row import Row

Trust = Literal["none", "central", "joint", "local", "shuffle"]
Plain = str | int | float | bool | None
TOTAL = "total regret"
_A_DECADE = 20


@dataclass(frozen=True)
class Trial:
    """One agent, one world, one seed.

    Parameters
    ----------
    agent
        A name of :mod:`pipeline.simulation.online_agents`.
    world, params
        Name and sorted parameters of the world.
    epsilon, delta
        The loss of one user that is asked for; both None without privacy.
    calibration
        ``tight`` or ``paper``; None without privacy.
    options
        Sorted knobs of the agent; what is left out has the agent's default.
    seed
        Of everything random: the world's stream must not depend on the agent, so that agents meet the same luck.
    """

    agent: str
    world: str
    params: tuple[tuple[str, Plain], ...]
    episodes: int
    epsilon: float | None = None
    delta: float | None = None
    calibration: Literal["tight", "paper"] | None = None
    options: tuple[tuple[str, Plain], ...] = ()
    seed: int = 0

    @property
    def knobs(self) -> dict[str, Any]:
        """The options by name."""
        return dict(self.options)

    def told(self, **more: Plain) -> Trial:
        """The same with further options."""
        return replace(self, options=tuple(sorted({**self.knobs, **more}.items())))

    @property
    def place(self) -> str:
        """World and parameters in words."""
        return ", ".join([self.world, *(f"{key} {value}" for key, value in self.params)])

    def stream(self, purpose: int) -> np.random.Generator:
        """Generator of one purpose; 0 is the world's, the same for every agent in it."""
        return np.random.default_rng((purpose, self.seed, self.episodes if purpose else 0))


@dataclass(frozen=True)
class Outcome:
    """What a trial measured.

    Parameters
    ----------
    marks, regret
        ``(n,)`` episodes, the last is K, and the regret summed up to each of them: V* - V^pi exactly, reward units.
    policy
        Actions ``(H, S)`` of the policy at the end, as lists; None where it is no such table.
    facts
        Plain values beside: ``trust``, ``variant``, ``constants``, ``true_rho``, ``true_epsilon`` (what the noise drawn
        really costs, replace-one, at the trial's delta), ``tie_share``, and whatever the agent has to say.
    """

    marks: list[int]
    regret: list[float]
    facts: Mapping[str, Any]
    policy: list[list[int]] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a kept result."""
        return asdict(self)


# what an agent's module offers the benches
Contestant = Callable[[Trial], Outcome]


def marks(episodes: int) -> NDArray[np.int64]:
    """Episodes at which a curve is read: all small ones, then 20 a decade, then K."""
    decades = np.log10(episodes)
    grid = np.rint(10 ** np.arange(0, decades, 1 / _A_DECADE)).astype(np.int64)
    return np.unique(np.append(grid, episodes))


def curve(regret: NDArray[np.float64]) -> tuple[list[int], list[float]]:
    """Marks and summed regret of per-episode ``regret (K,)``."""
    at = marks(len(regret))
    return at.tolist(), regret.cumsum()[at - 1].tolist()


def staged_curve(ends: Sequence[int], losses: Sequence[float]) -> tuple[list[int], list[float]]:
    """The same where the loss of an episode stays ``losses[i]`` up to episode ``ends[i]``: exact, at any K."""
    last = np.asarray(ends, dtype=np.int64)
    summed = np.append(0.0, np.cumsum(np.diff(np.append(0, last)) * np.asarray(losses)))
    at = marks(int(last[-1]))
    return at.tolist(), np.interp(at, np.append(0, last), summed).tolist()


@dataclass(frozen=True)
class Gathered:
    """The trials that differ in their seed alone."""

    trial: Trial
    outcomes: Sequence[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    @property
    def totals(self) -> NDArray[np.float64]:
        """``(runs,)`` regret after the last episode."""
        return np.array([o["regret"][-1] for o in self.outcomes])

    def row(self) -> Row:
        """Mean and standard deviation of the total regret; facts of the first run, ties averaged."""
        t, facts, totals = self.trial, self.outcomes[0]["facts"], self.totals
        ties = [o["facts"]["tie_share"] for o in self.outcomes if o["facts"].get("tie_share") is not None]
        return Row(
            agent=t.agent,
            variant=facts.get("variant", ""),
            trust=facts["trust"],
            world=t.place,
            episodes=t.episodes,
            rho=None,
            epsilon=t.epsilon,
            delta=t.delta,
            calibration=t.calibration,
            constants=facts.get("constants"),
            metric=TOTAL,
            mean=float(totals.mean()),
            std=float(totals.std(ddof=1)) if len(totals) > 1 else 0.0,
            runs=len(totals),
            true_rho=facts.get("true_rho"),
            true_epsilon=facts.get("true_epsilon"),
            tie_share=float(np.mean(ties)) if ties else None,
        )


def gather(trials: Sequence[Trial], outcomes: Sequence[Mapping[str, Any]]) -> list[Gathered]:
    """Outcomes grouped over seeds, in the order of first appearance."""
    found: dict[Trial, list[Mapping[str, Any]]] = {}
    for trial, outcome in zip(trials, outcomes, strict=True):
        found.setdefault(replace(trial, seed=0), []).append(outcome)
    return [Gathered(trial, group) for trial, group in found.items()]


# what readers of a study need beside a printed row
READERS = ("marks", "curve_mean", "curve_std", "totals", "facts")


def gathered_rows(trials: Sequence[Trial], outcomes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each group, with the keys :data:`READERS` beside; all runs of a group share their marks."""
    rows: list[dict[str, Any]] = []
    for g in gather(trials, outcomes):
        curves = np.array([o["regret"] for o in g.outcomes])
        spread = curves.std(0, ddof=1) if len(curves) > 1 else np.zeros(curves.shape[1])
        rows.append(
            g.row().as_dict()
            | {"marks": list(g.outcomes[0]["marks"]), "curve_mean": curves.mean(0).tolist()}
            | {"curve_std": spread.tolist(), "totals": g.totals.tolist(), "facts": dict(g.outcomes[0]["facts"])}
        )
    return rows


def printed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what only readers need."""
    return {key: value for key, value in row.items() if key not in READERS}


def curve_points(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every mark of every row's curve as a row of its own: who, after how many episodes, mean and spread."""
    names = ("agent", "variant", "trust", "world", "epsilon", "delta", "calibration", "constants", "runs")
    return [
        {name: row[name] for name in names} | {"episodes": at, "regret_mean": mean, "regret_std": std}
        for row in rows
        for at, mean, std in zip(*(row.get(k, ()) for k in ("marks", "curve_mean", "curve_std")), strict=True)
    ]
