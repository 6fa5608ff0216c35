"""What the policy recommends, and where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reports.figures import action_codes, policy_figure
from reports.format import clean, number, percent, shorten, span, steps
from reports.page import Section, Table, table
from reports.policy_view import PolicyView, Run, runs

Facts = Mapping[str, Any]
# Beyond this a table is for a program, and the run's folder has one; it also keeps the page under its size.
MOST_ROWS = 250
_LABEL = 80
_COUNTED = (
    "Evidence: released, hence noisy, count of this action in this state. "
    "Current practice: its share among the released counts; a dash where they are too few."
)
_LINEAR = (
    "Evidence: 1/φᵀΛ⁻¹φ, how many rows the released Gram matrix holds in the direction of this pair's features, ridge "
    "and shift included. Current practice: sums of features do not tell it."
)
_CUT = "Only the first {} rows are printed; the run's folder holds the whole policy."


def policy_section(facts: Facts, view: PolicyView) -> Section:
    """The policy as a picture, as a table, and which actions it uses."""
    words = [
        "Rows are states, columns are the steps of an episode, counted from 0. Each cell names the recommended action; "
        "a dash on hatching means that the policy abstains."
    ]
    if view.tie.any():
        words.append(
            f"In {percent(facts['policy']['tie_share'])} of the cells another action looks equally good: marked “=”."
        )
    figure = policy_figure(view)
    if figure.note:
        words.append(figure.note)
    found = list(runs(view))
    rows = [_row(view, run) for run in found[:MOST_ROWS]]
    noisy = _LINEAR if facts.get("features") else _COUNTED
    if len(found) > MOST_ROWS:
        noisy += " " + _CUT.format(MOST_ROWS)
    recommended = table(
        "State | Steps | Recommendation | Probability | Evidence | Current practice",
        rows,
        noisy,
        numeric="Probability | Evidence | Current practice",
        grouped=True,
    )
    return Section("policy", "What the policy recommends", tuple(words), figure, (recommended, _used(view)))


def _row(view: PolicyView, run: Run) -> tuple[str, ...]:
    state, when = _label(view.state_labels[run.state]), steps(run.first, run.last)
    cells = slice(run.first, run.last + 1)
    if run.abstains:
        return state, when, "– keep current practice", "–", "–", "–"
    # One table for all steps (H = 1) has nothing to slice.
    tables = slice(None) if len(view.evidence) == 1 else cells
    counts = view.evidence[tables, run.state, run.action]
    share = view.share[cells, run.state]
    usual = view.practice[slice(None) if len(view.practice) == 1 else cells, run.state, run.action]
    action = _label(view.action_labels[run.action]) + (" (=)" if run.tie else "")
    return state, when, action, _percents(share), span(counts.min(), counts.max()), _percents(usual)


def _label(label: str) -> str:
    return shorten(clean(label), _LABEL)


def _percents(shares: np.ndarray) -> str:
    known = shares[~np.isnan(shares)]
    if not known.size:
        return "–"
    low, high = percent(float(known.min())), percent(float(known.max()))
    return low if low == high else f"{low} to {high}"


def _used(view: PolicyView) -> Table:
    codes, spoken = action_codes(view), ~view.abstains
    cells = np.bincount(view.action[spoken], minlength=len(view.action_labels))
    order = [int(a) for a in np.argsort(-cells, kind="stable") if cells[a]]
    rows = [
        (_label(view.action_labels[a]), number(int(cells[a])), percent(cells[a] / view.action.size))
        for a in order[:MOST_ROWS]
    ]
    head, numeric = "Action | Cells | Share of all cells", "Cells | Share of all cells"
    if any(codes[a] != view.action_labels[a] for a in order):
        head = "In the picture | " + head
        rows = [(codes[a], *row) for a, row in zip(order, rows, strict=False)]
    return table(head, rows, "Actions recommended", numeric)


def abstention_section(facts: Facts, view: PolicyView) -> Section:
    """Where there is not enough evidence."""
    title = "Where it abstains"
    if not view.abstains.any():
        return Section("abstains", title, ("Nowhere: every state has enough released evidence at every step.",))
    threshold = number(facts["constants"]["threshold"])
    linear = bool(facts.get("features"))
    stand_in = "took the planner's own choice" if linear else "chose uniformly among the allowed actions"
    measure = "evidence" if linear else "released count"
    words = (
        f"In {percent(facts['policy']['abstain_share'])} of the cells the policy abstains "
        "(not enough evidence: keep current practice). "
        "It says nothing there about which action is better; "
        f"its value is computed as if it {stand_in}.",
        f"An action counts as seen in a state where its {measure} is above {threshold}.",
    )
    where: dict[int, list[str]] = {}
    for run in runs(view):
        if run.abstains:
            where.setdefault(run.state, []).append(steps(run.first, run.last))
    visits = view.evidence.sum(-1)
    rows = [
        (_label(view.state_labels[s]), ", ".join(found), span(visits[:, s].min(), visits[:, s].max()))
        for s, found in where.items()
    ]
    column = "Evidence, all actions" if linear else "Released count, all actions"
    head = f"State | Steps without a recommendation | {column}"
    caption = _CUT.format(MOST_ROWS) if len(rows) > MOST_ROWS else ""
    return Section("abstains", title, words, tables=(table(head, rows[:MOST_ROWS], caption, column),))
