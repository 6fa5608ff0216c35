"""A linear controller on the page: its gains, the declared plant, and how well the log explored it."""

# ruff: noqa: N806  (gains and matrices have their letters)

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.declaration.numbers import clean, number
from reports.facts.constants import PlantConstants
from reports.facts.dataset import DeclaredPlant
from reports.facts.learnt import PlantModel
from reports.facts.policy import Gains
from reports.facts.report import Report
from reports.figures.gains_figure import gains_figure
from reports.format import listing, percent, steps
from reports.page import Section, Table, table
from reports.run.check_sections import constants_table

# gains this close are printed as one row
_SAME = 5e-4


def gains_section(report: Report, data: DeclaredPlant, constants: PlantConstants, view: Gains) -> Section:
    """The gains as a picture and as a table."""
    words = [
        "At each step, counted from 0, every control is a weighted sum of what is observed: u = K x. The weights are "
        "the gains. An observed number is divided by its scale first, a control is multiplied by its own at the end.",
        f"Controls longer than {number(data.action.radius)} are shortened to that length. The last gain is 0: "
        "nothing that the last control does is paid for. No gain is larger than "
        f"{number(constants.gamma)}, so that no control is cut while observations stay in their ball.",
    ]
    if not report.policy.left_zero:
        words.append("All gains are zero: this controller does nothing.")
    scales = [
        (clean(name), kind, number(scale), number(vector.radius))
        for kind, vector in (("observed", data.observation), ("control", data.action))
        for name, scale in zip(vector.names, vector.scale, strict=True)
    ]
    units = table("Name | Is | Scale | Radius of the whole vector", scales, "Units, as declared", "Scale")
    return Section(
        "policy",
        "What the controller does",
        tuple(words),
        gains_figure(view),
        (_gains_table(view), units),
    )


def gains_table_section(view: Gains) -> Section:
    """Gains as a picture and as a table."""
    words = ("At each step, counted from 0, every control is a weighted sum of what is observed: u = K x.",)
    return Section("policy", "What the controller does", words, gains_figure(view), (_gains_table(view),))


def _gains_table(view: Gains) -> Table:
    head = "Control | Steps | " + " | ".join(clean(name).replace("|", "/") for name in view.observation)
    rows = [row for control in range(len(view.action)) for row in _rows(view, control)]
    found = table(head, rows, "Gains; neighbouring steps that agree to three digits share a row", grouped=True)
    return Table(found.head, found.rows, found.caption, frozenset(range(2, len(found.head))), found.grouped)


def _rows(view: Gains, control: int) -> list[tuple[str, ...]]:
    K, first = view.gains[:, control], 0
    rows: list[tuple[str, ...]] = []
    for h in range(1, len(K) + 1):
        if h == len(K) or np.abs(K[h] - K[first]).max() > _SAME * max(1.0, float(np.abs(K).max())):
            rows.append((clean(view.action[control]), steps(first, h - 1), *(number(float(k)) for k in K[first])))
            first = h
    return rows


def plant_section(data: DeclaredPlant) -> Section:
    """What was declared; nothing here was counted."""
    norm = data.parameter_norm
    rows = [
        ("Dataset", f"{clean(data.name)} ({clean(data.kind)}), snapshot {number(data.snapshot)}"),
        ("People", f"{number(data.users_public)}, by {clean(data.user)}"),
        ("Episodes a person", f"at most {number(data.episodes_per_user)}"),
        ("A person in later batches", clean(data.recurs)),
        ("Steps of an episode", number(data.horizon)),
        ("Observed", f"{listing(data.observation.names)}, in a ball of {number(data.observation.radius)}"),
        ("Controls", f"{listing(data.action.names)}, in a ball of {number(data.action.radius)}"),
        ("Dynamics", "linear, unknown: next x = A x + B u + noise"),
        ("Mean of the first state", _numbers(data.start_declared.mean)),
        ("Covariance of the noise", _matrix(data.noise_covariance)),
        ("Largest norm of [A, B]", "not declared" if norm is None else number(norm)),
        ("Q: cost of x", _matrix(data.cost.Q)),
        ("R: cost of u", _matrix(data.cost.R)),
    ]
    return Section("data", "What was declared about the data", tables=(table("Declared | ", rows),))


def evidence_section(c: PlantConstants, model: PlantModel | None) -> Section:
    """How well the log explored the plant, as far as the release tells; the model; and every constant."""
    words = (
        "The released Gram matrix says how much the log moved the plant in each direction of (x, u). "
        + (
            f"{number(c.raised)} of {number(len(c.directions))} directions lie below the noise floor "
            f"({number(c.floor)}) and were not trusted."
            if c.raised
            else "Every direction stands above the noise floor."
        ),
        "Everything here is computed from the release; planning again with another ridge or floor costs nothing. "
        "Another cut, lattice or share is another release at its own price.",
    )
    total = sum(x for x in c.directions if x > 0)
    rows = [
        (str(i), number(x), percent(x / total) if x > 0 else "–", "no" if x < c.floor else "yes")
        for i, x in enumerate(c.directions, start=1)
    ]
    words_of = "Sums of squares along each direction of (x, u), balls of radius 1: a row adds at most 2 in all"
    seen = table("Direction | Sum of squares | Share | Trusted", rows, words_of, "Sum of squares | Share")
    estimated = [("A", _matrix(model.A)), ("B", _matrix(model.B))] if model is not None else []
    plant = table("Model | ", estimated, "The estimated plant")
    listed = constants_table(c.policy, f"Constants: preset “{clean(c.policy.preset)}”")
    return Section("evidence", "How well the plant was explored", words, tables=(seen, plant, listed))


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(number(float(x)) for x in values)


def _matrix(rows: Sequence[Sequence[float]]) -> str:
    """A diagonal in one line, any other matrix row by row."""
    M = np.array(rows, dtype=np.float64)
    if M.shape[0] == M.shape[1] and not (M - np.diag(np.diag(M))).any():
        return f"diagonal {_numbers(np.diag(M).tolist())}"
    return "; ".join(_numbers(row) for row in rows)
