"""Runs that differ in their seed alone, as one row: mean, spread, and the curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.simulation.trial import Row, Trial

TOTAL = "total regret"


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
