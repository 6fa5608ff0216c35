"""Rows of a study: runs that differ in their seed alone as one row, found again by what was asked, and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.numbers import number
from pipeline.simulation.trial import SIMULATION, Facts, Measured, Row, Trial

Array = NDArray[np.float64]
TOTAL = "total regret"
# a difference counts where it is larger than this many standard errors
SURE = 3.0
# "learns": at the end an episode loses at most this share of what the better control loses
LEARNT = 0.5
# summed regret grows tenfold with ten times the episodes where nothing is learnt; sublinear: at most 10^(3/4)
SUBLINEAR = 10**0.75


class Found(Row):
    """A row over seeds, with what readers need beside what is printed.

    Attributes
    ----------
    marks
        ``(n,)`` episodes at which the curve is read.
    curve_mean, curve_std
        ``(n,)`` regret summed up to each mark, over the runs.
    totals
        ``(runs,)`` regret after the last episode.
    facts
        What the agent said of its first run.
    """

    marks: list[int]
    curve_mean: list[float]
    curve_std: list[float]
    totals: list[float]
    facts: Facts


Rows = Sequence[Found]
AnyRow = TypeVar("AnyRow", bound=Row)


@dataclass(frozen=True)
class Gathered:
    """The trials that differ in their seed alone."""

    trial: Trial
    outcomes: Sequence[Measured]

    @property
    def totals(self) -> Array:
        """``(runs,)`` regret after the last episode."""
        return np.array([o["regret"][-1] for o in self.outcomes])

    @property
    def facts(self) -> Facts:
        """What the agent said of its first run."""
        return self.outcomes[0]["facts"]

    def row(self, metric: str, values: Array, true_rho: float | None, true_epsilon: float | None) -> Row:
        """Mean and standard deviation of what was measured ``(runs,)``; facts of the first run, ties averaged."""
        t, facts = self.trial, self.facts
        ties = [share for o in self.outcomes if (share := o["facts"].get("tie_share")) is not None]
        sent = [s for o in self.outcomes if (s := o["sent"]) is not None]
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
            metric=metric,
            mean=float(values.mean()),
            std=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
            runs=len(values),
            true_rho=true_rho,
            true_epsilon=true_epsilon,
            tie_share=float(np.mean(ties)) if ties else None,
            noise=SIMULATION,
            messages=max((s["messages"] for s in sent), default=None),
            bits=max((s["bits"] for s in sent), default=None),
        )


def gather(trials: Sequence[Trial], outcomes: Sequence[Measured]) -> list[Gathered]:
    """Outcomes grouped over seeds, in the order of first appearance."""
    found: dict[Trial, list[Measured]] = {}
    for trial, outcome in zip(trials, outcomes, strict=True):
        found.setdefault(replace(trial, seed=0), []).append(outcome)
    return [Gathered(trial, group) for trial, group in found.items()]


# what readers of a study need beside a printed row
READERS = ("marks", "curve_mean", "curve_std", "totals", "facts")


def gathered_rows(trials: Sequence[Trial], outcomes: Sequence[Measured]) -> list[Found]:
    """A row for each group, with the keys :data:`READERS` beside; all runs of a group share their marks.

    Parameters
    ----------
    trials, outcomes
        Of one length; outcomes as :func:`~pipeline.simulation.registry.measure` gives them.
    """
    rows: list[Found] = []
    for g in gather(trials, outcomes):
        curves = np.array([o["regret"] for o in g.outcomes])
        spread = curves.std(0, ddof=1) if len(curves) > 1 else np.zeros(curves.shape[1])
        rows.append(
            {
                **g.row(TOTAL, g.totals, g.facts.get("true_rho"), g.facts.get("true_epsilon")),
                "marks": list(g.outcomes[0]["marks"]),
                "curve_mean": curves.mean(0).tolist(),
                "curve_std": spread.tolist(),
                "totals": g.totals.tolist(),
                "facts": g.facts,
            }
        )
    return rows


def printed(row: Mapping[str, object]) -> dict[str, object]:
    """A row without what only readers need."""
    return {key: value for key, value in row.items() if key not in READERS}


def curve_points(rows: Rows) -> list[dict[str, object]]:
    """Every mark of every row's curve as a row of its own: who, after how many episodes, mean and spread."""
    names = ("agent", "variant", "trust", "world", "epsilon", "delta", "calibration", "constants", "runs")
    return [
        {**{name: row[name] for name in names}, "episodes": at, "regret_mean": mean, "regret_std": std}
        for row in rows
        for at, mean, std in zip(row.get("marks", ()), row.get("curve_mean", ()), row.get("curve_std", ()), strict=True)
    ]


def select(rows: Sequence[AnyRow], **wanted: object) -> list[AnyRow]:
    """Rows with all these values; a tuple allows several."""
    return [r for r in rows if _is(r, wanted)]


def _is(row: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    return all(row[k] in v if isinstance(v, tuple) else row[k] == v for k, v in wanted.items())


def only(rows: Sequence[AnyRow], **wanted: object) -> AnyRow:
    """The one row with these values.

    Raises
    ------
    ValueError
        If there is none, or more than one.
    """
    found = select(rows, **wanted)
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows with {wanted}; expected one")
    return found[0]


def end_loss(row: Found) -> float:
    """Mean regret of one episode between the last two marks of the curve.

    Parameters
    ----------
    row
        A gathered row; regret in reward units.
    """
    (before, K), (low, high) = row["marks"][-2:], row["curve_mean"][-2:]  # noqa: N806
    return (high - low) / (K - before)


def growth(row: Found) -> float:
    """Summed regret after K episodes over that after K / 10; infinite where the latter is none.

    Parameters
    ----------
    row
        A gathered row of at least ten episodes.
    """
    at = row["marks"][-1] / 10
    early = max(i for i, mark in enumerate(row["marks"]) if mark <= at)
    then = row["curve_mean"][early] * at / row["marks"][early]
    return row["curve_mean"][-1] / then if then > 0 else float("inf")


def standard_error(row: Row) -> float:
    """Of the mean."""
    return row["std"] / row["runs"] ** 0.5


def surely_below(low: Row, high: Row) -> bool:
    """Whether the mean is lower by more than chance would show."""
    return high["mean"] - low["mean"] > SURE * (standard_error(low) ** 2 + standard_error(high) ** 2) ** 0.5


def bar(rows: Rows, world: str) -> float:
    """What an episode costs the better of uniform choice and the agent that gets no data."""
    controls = [r for r in select(rows, world=world) if r["agent"] in ("uniform", "no-data")]
    return min(end_loss(r) for r in controls)


def learns(rows: Rows, row: Found) -> bool:
    """Whether an episode at the end costs at most half of what it costs the better control.

    Parameters
    ----------
    rows
        Of the study: the controls of the same world are among them.
    row
        The row that is judged.
    """
    return end_loss(row) <= LEARNT * bar(rows, row["world"])


def spread(row: Row) -> str:
    """Mean and standard deviation in words."""
    return f"{number(row['mean'], 3)} ± {number(row['std'], 2)}"


def asked(row: Row) -> float:
    """The epsilon of a private row.

    Raises
    ------
    ValueError
        If the row is of an agent without privacy.
    """
    if row["epsilon"] is None:
        raise ValueError(f"{row['agent']} was asked no epsilon")
    return row["epsilon"]


def true_share(row: Row) -> float:
    """What the noise drawn is worth, in parts of the epsilon asked.

    Raises
    ------
    ValueError
        If no noise was drawn.
    """
    if row["true_epsilon"] is None:
        raise ValueError(f"{row['agent']} drew no noise")
    return row["true_epsilon"] / asked(row)


def as_asked(row: Row) -> bool:
    """Whether the noise drawn is worth at most the epsilon asked, up to a rounding."""
    return row["true_epsilon"] is not None and row["true_epsilon"] <= asked(row) * (1 + 1e-9)


def per(rows: Iterable[Found], say: Callable[[Found], str]) -> str:
    """What is said of each row, by its epsilon."""
    return "; ".join(f"ε = {number(r['epsilon'])}: {say(r)}" for r in rows)
