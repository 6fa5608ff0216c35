"""What the policy recommends, how often, by which weights, and where it says nothing."""

# pyright: reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.declaration.numbers import clean, number
from reports.facts.policy import Constants, Decisions
from reports.facts.report import Report
from reports.figures.policy_figure import MOST_STATES, action_codes, policy_figure, share_figure, weights_figure
from reports.page import Section, Table, between, percent, shorten, span, steps, table
from reports.run.policy_table import Run, Shares, action_shares, most_evidenced, reach, runs

# Beyond this a table is for a program, and the run's folder has one.
MOST_ROWS = 120
# actions beyond this many are put together
_NAMED = 12
_LABEL = 80
_COUNTED = (
    "Evidence: released, hence noisy, count of this action in this state. "
    "Current practice: the share of this action among the released counts; a dash where they are too few."
)
_LINEAR = (
    "Evidence: 1/φᵀΛ⁻¹φ, how many rows the released Gram matrix holds in the direction of this pair's features, ridge "
    "and shift included."
)
_PLAYED = "Evidence: the share of users who come there and get this action, in the known world."
_CUT = "Only the first {} rows are printed; the run's folder holds the whole policy."


def policy_section(report: Report, view: Decisions) -> Section:
    """The policy as a picture; as a table only where no other section lists what differs from practice."""
    words = [
        "Rows are states, columns are the steps of an episode, counted from 0. Each cell names the recommended action; "
        "a dash on hatching means that the policy recommends nothing: current practice goes on."
    ]
    if view.abstains.any():
        states, share = reach(view)
        words.append(
            f"It recommends something in {number(states)} of {number(len(view.state_labels))} states, which hold "
            f"{percent(share)} of the evidence. For everybody else nothing changes."
        )
    if view.tie.any():
        words.append(
            f"In {percent(report.policy.tie_share)} of the cells another action looks equally good: marked “=”."
        )
    figure = policy_figure(view)
    if figure.note:
        words.append(figure.note)
    if report.practice is not None and report.practice.cells:
        words.append(
            "What differs from current practice is listed below; reticent policy show lists every cell, its evidence "
            "and its probability."
        )
        return Section("policy", "What the policy recommends", tuple(words), figure)
    shown = set(most_evidenced(view, MOST_STATES))
    # where it says nothing, nothing differs from practice
    found = [run for run in runs(view) if run.state in shown and not run.abstains]
    rows = [_row(view, run) for run in found[:MOST_ROWS]]
    noisy = _LINEAR if report.features else _COUNTED if report.simulation is None else _PLAYED
    if len(shown) < len(view.state_labels):
        noisy += f" Only the {MOST_STATES} states with most released evidence are printed."
    if len(found) > MOST_ROWS:
        noisy += " " + _CUT.format(MOST_ROWS)
    head, numeric = "State | Steps | Recommendation | Probability | Evidence", "Probability | Evidence"
    if np.isnan(view.practice).all():
        rows = [row[:-1] for row in rows]
    else:
        head, numeric = f"{head} | Current practice", f"{numeric} | Current practice"
    recommended = table(head, rows, noisy, numeric, grouped=True)
    return Section("policy", "What the policy recommends", tuple(words), figure, (recommended,))


def _row(view: Decisions, run: Run) -> tuple[str, ...]:
    state, when = _label(view.state_labels[run.state]), steps(run.first, run.last)
    cells = slice(run.first, run.last + 1)
    # One table for all steps (H = 1) has nothing to slice.
    tables = slice(None) if len(view.evidence) == 1 else cells
    counts = view.evidence[tables, run.state, run.action]
    share = view.share[cells, run.state]
    usual = view.practice[slice(None) if len(view.practice) == 1 else cells, run.state, run.action]
    action = _label(view.action_labels[run.action]) + (" (=)" if run.tie else "")
    return (
        state,
        when,
        action,
        between(share.tolist(), percent),
        span(counts.min(), counts.max()),
        between(usual.tolist(), percent),
    )


def _label(label: str) -> str:
    return shorten(clean(label), _LABEL)


def shares_section(view: Decisions) -> Section:
    """How often each action is recommended, and taken in practice."""
    shares, figure = action_shares(view), share_figure(view)
    words = ["A cell is one state at one step."]
    if shares.practice is not None:
        where = "all cells" if shares.known == 1 else f"the {percent(shares.known)} of cells"
        words.append(
            f"By visits: over {where} in which the released counts tell what practice does, each as often as it was "
            "visited, as far as released counts tell."
        )
    words += [figure.note] if figure.note else []
    return Section("shares", "How often it recommends each action", tuple(words), figure, (_used(view, shares),))


def _used(view: Decisions, shares: Shares) -> Table:
    """Actions by share, the rare ones put together."""
    codes, total = action_codes(view), view.action.size
    usual = np.zeros(len(codes)) if shares.practice is None else shares.practice
    order = np.lexsort((-shares.cells, -usual, -shares.policy)).tolist()
    named = order[:_NAMED]
    rows: list[tuple[str, str, Any, Any, Any]] = [
        (codes[a], _label(view.action_labels[a]), shares.cells[a], shares.policy[a], usual[a]) for a in named
    ]
    if rest := order[_NAMED:]:
        label = f"the other {number(len(rest))} actions"
        rows.append(("", label, shares.cells[rest].sum(), shares.policy[rest].sum(), usual[rest].sum()))
    if view.abstains.any():
        rows.append(("–", "no recommendation", view.abstains.sum(), shares.silent, np.nan))
    head = ["In the picture", "Action", "Cells", "Share of cells", "By visits", "Practice, by visits"]
    shown = [
        (code, label, number(int(n)), percent(float(n / total)), percent(float(mine)), percent(float(theirs)))
        for code, label, n, mine, theirs in rows
    ]
    # the first column only where the picture has codes, the last two only where practice is known
    kept = slice(int(codes == [clean(label) for label in view.action_labels]), 4 if shares.practice is None else 6)
    return table(" | ".join(head[kept]), [row[kept] for row in shown], "", " | ".join(head[2 : kept.stop]))


def weights_section(view: Decisions) -> Section | None:
    """The weights of a linear policy; None for any other."""
    if view.weights is None:
        return None
    figure = weights_figure(view.weights)
    words = (
        "What each feature adds to the predicted value of state and action, in units of reward; what the lack of "
        "evidence takes off is not in it. A feature that one pair alone has bears the names of its state and action.",
        *((figure.note,) if figure.note else ()),
    )
    return Section("weights", "By which weights", words, figure)


def abstention_section(report: Report, constants: Constants, view: Decisions) -> Section:
    """Where there is not enough evidence."""
    title = "Where it abstains"
    if not view.abstains.any():
        return Section("abstains", title, ("Nowhere: every state has enough released evidence at every step.",))
    threshold = number(constants.threshold)
    linear = report.features is not None
    worth = "takes the planner's own choice for it" if linear else "allows for whatever it is worth"
    measure = "evidence" if linear else "released count"
    words = (
        f"In {percent(report.policy.abstain_share)} of the cells the policy abstains "
        "(not enough evidence: keep current practice). "
        "It says nothing there about which action is better, and nothing changes for whom it concerns; "
        f"the interval {worth}.",
        f"Why: there no allowed action has been seen often enough. An action counts as seen in a state where its "
        f"{measure} is above {threshold}, so that noise alone does not pass for evidence.",
    )
    visits = view.evidence.sum(-1)
    if len(view.state_labels) > MOST_STATES:
        return Section("abstains", title, words, tables=(_by_extent(view, visits),))
    where: dict[int, list[str]] = {}
    for run in runs(view):
        if run.abstains:
            where.setdefault(run.state, []).append(steps(run.first, run.last))
    rows = [
        (_label(view.state_labels[s]), ", ".join(found), span(visits[:, s].min(), visits[:, s].max()))
        for s, found in where.items()
    ]
    column = "Evidence, all actions" if linear else "Released count, all actions"
    head = f"State | Steps without a recommendation | {column}"
    return Section("abstains", title, words, tables=(table(head, rows, numeric=column),))


def _by_extent(view: Decisions, visits: np.ndarray) -> Table:
    """Too many states to name: how many of them are silent at every step, at some, at none."""
    silent, total = view.abstains.mean(0), visits.sum(0)
    kinds = (("at every step", silent == 1), ("at some steps", (silent > 0) & (silent < 1)), ("nowhere", silent == 0))
    rows = [(kind, number(int(of.sum())), percent(_part(total, of))) for kind, of in kinds]
    caption = f"All {number(len(silent))} states, put together by how often the policy abstains in them"
    return table("Abstains | States | Share of the evidence", rows, caption, "States | Share of the evidence")


def _part(total: np.ndarray, of: np.ndarray) -> float:
    return float(total[of].sum() / total.sum()) if total.sum() > 0 else 0.0
