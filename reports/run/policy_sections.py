"""Sections on the policy: recommendations, their shares, weights, and states without one.

A policy as tables of a page, and its differences from current practice by released counts.

A tabular policy, its shares and its weights as inline SVG: self-contained, legible without colour.
"""

# pyright: reportUnknownArgumentType=false
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from pipeline.arrays import Array
from pipeline.declaration.numbers import clean, number
from pipeline.facts.learnt import NO_GUARANTEE, Decisions, Practice, TabularConstants, Weights
from pipeline.facts.report import Report
from reports.figures.charts import HATCH, INK, Labels, draw_chart
from reports.page import Figure, PageTable, Section, between, names, percent, span, steps, table


@dataclass(frozen=True)
class Steps:
    """Consecutive steps ``first`` to ``last`` (0-based, inclusive) at which one state gets one recommendation."""

    state: int
    first: int
    last: int
    action: int
    abstains: bool
    tie: bool

    @property
    def when(self) -> str:
        """The steps in words."""
        return steps(self.first, self.last)


def runs(view: Decisions) -> Iterator[Steps]:
    """The policy state by state, equal neighbouring steps joined."""
    for state in range(len(view.state_labels)):
        # An abstaining cell has no recommendation, so its stand-in action must not split a run.
        keys = [
            (-1, True, False) if absent else (int(action), False, bool(tie))
            for action, absent, tie in zip(
                view.action[:, state], view.abstains[:, state], view.tie[:, state], strict=True
            )
        ]
        first = 0
        for step in range(1, len(keys) + 1):
            if step == len(keys) or keys[step] != keys[first]:
                yield Steps(state, first, step - 1, *keys[first])
                first = step


@dataclass(frozen=True)
class Shares:
    """Shares of A actions in the recommendations and in practice.

    ``policy`` ``(A,)``: share: of the released visits to the cells in which practice is known; of all cells where none
    is.
    ``practice`` ``(A,)``: share of the same visits in which practice took it; None where it is nowhere known.
    """

    policy: Array
    practice: Array | None
    silent: float
    known: float


def action_shares(view: Decisions) -> Shares:
    """Actions over the whole policy."""
    shape, actions = view.action.shape, len(view.action_labels)
    known = np.broadcast_to(~np.isnan(view.practice).any(-1), shape)
    visits = np.where(known, view.evidence.sum(-1), 0.0)
    has_practice = bool(visits.sum() > 0)
    weight = visits / visits.sum() if has_practice else np.full(shape, 1 / view.action.size)
    spoken = (np.eye(actions)[view.action] * ~view.abstains[..., None]).astype(np.float64)
    usual = (np.nan_to_num(view.practice) * weight[..., None]).sum((0, 1)) if has_practice else None
    policy = (spoken * weight[..., None]).sum((0, 1))
    return Shares(policy, usual, float(weight[view.abstains].sum()), float(known.mean()) if has_practice else 0.0)


def reach(view: Decisions) -> tuple[int, float]:
    """States with a recommendation at some step, and the share of the evidence that lies where there is one."""
    spoken = ~view.abstains
    evidence = np.broadcast_to(view.evidence.sum(-1), view.abstains.shape)
    total = float(evidence.sum())
    return int(spoken.any(0).sum()), float(evidence[spoken].sum()) / total if total > 0 else 0.0


def most_evidenced(view: Decisions) -> list[int]:
    """The states with the largest released counts that a page shows, in their own order."""
    total = view.evidence.sum(axis=(0, 2))
    return sorted(np.argsort(-total, kind="stable")[:MOST_STATES].tolist())


_TITLE = "Where it differs from current practice"
_KEY = "practice"
# the cells a reader can act on; the run's folder has every one
MOST_DIFFERENCES = 12
_LONGEST = 60


def practice_section(report: Report, view: Decisions) -> Section | None:
    """The cells in which practice mostly differs, largest gains first; None where practice is unknown."""
    practice = report.practice
    if practice is None:
        return None
    if not practice.cells:
        words = "In no state do the released counts stand far enough above the noise to show what practice does."
        return Section(_KEY, _TITLE, (words,))
    # how often practice does as recommended, the gain, and whether it stands on its own; NaN where practice is unknown
    beside = np.full((3, *view.abstains.shape), np.nan)
    for h, s, *cell in practice.cells:
        beside[:, h, s] = cell
    followed, gain, _ = beside
    words = (_words(practice), _meaning(report))
    # where practice is known at some of these steps, and mostly does something else there
    differing = [run for run in runs(view) if not run.abstains and (followed[_cells(run)] < 0.5).any()]
    differing.sort(key=lambda run: -float(np.nanmax(gain[_cells(run)])))
    labels = names(view.state_labels, "state", _LONGEST), names(view.action_labels, "action", _LONGEST)
    rows = [_table_row(view, beside[:, *_cells(run)], run, *labels) for run in differing[:MOST_DIFFERENCES]]
    if not rows:
        words += ("Practice mostly takes the recommended action wherever it is known.",)
        return Section(_KEY, _TITLE, words)
    # a state where half of practice is as recommended changes too, and stands in no row
    caption = "Where practice mostly does something else. Evidence and practice: released, noisy counts. "
    caption += "Gain: that of the released model, largest first."
    if len(differing) > MOST_DIFFERENCES:
        of_all = number(len(differing))
        caption += f" Shown: {MOST_DIFFERENCES} of {of_all} differences; reticent policy show lists all."
    head = "State | Steps | Recommended | Evidence | Practice, mostly | Practice agrees | Gain | On its own"
    return Section(_KEY, _TITLE, words, tables=(table(head, rows, caption, "Evidence | Practice agrees | Gain"),))


def _words(practice: Practice) -> str:
    """Sentence on how far practice is known, and how often it agrees."""
    every = practice.known_share > 1 - 1e-9
    where = f"for {'all' if every else percent(practice.known_share, 2)} of the recommendations"
    return (
        f"The released counts show what practice does {where}; there it takes the recommended action in "
        f"{percent(practice.followed_share, 2)} of the cases."
    )


def _meaning(report: Report) -> str:
    sure = "Both rest on the assumptions of the interval, state by state."
    if report.value.status in NO_GUARANTEE:
        sure = "Both intervals are those of the released model, not guarantees."
    if report.dataset.markov == "aggregated":
        sure += " The declared states hide part of what was logged, and practice may see it: a gain can come from that "
        sure += "alone."
    return (
        "Gain: how much more the released model expects from following the policy than from one more step of "
        "practice. On its own: whether the interval of the first lies above that of the second; else the gain may be "
        f"noise. {sure}"
    )


def _cells(run: Steps) -> tuple[slice, int]:
    return slice(run.first, run.last + 1), run.state


def _counted(table: Array, run: Steps) -> Array:
    """The rows ``(steps, A)`` of a table of counts or of practice; one for all steps has nothing to slice."""
    return table[:, run.state] if len(table) == 1 else table[_cells(run)]


def _table_row(
    view: Decisions, beside: Array, run: Steps, states: Sequence[str], actions: Sequence[str]
) -> tuple[str, ...]:
    """``beside`` ``(3, steps)``: practice beside the policy at these steps."""
    usual, counts = _counted(view.practice, run), _counted(view.evidence, run)[:, run.action]
    mean, (followed, gain, apart) = np.nanmean(usual, axis=0), beside
    most, separate, known = int(mean.argmax()), int(np.nansum(apart)), int((~np.isnan(gain)).sum())
    return (
        states[run.state],
        run.when,
        actions[run.action],
        span(counts.min(), counts.max()),
        f"{actions[most]} ({percent(float(mean[most]), 2)})",
        between(followed.tolist(), _two),
        between(gain.tolist(), lambda gain: number(gain, 3)),
        "yes" if separate == known else "no" if separate == 0 else f"at {separate} of {known} steps",
    )


def _two(share: float) -> str:
    return percent(share, 2)


MOST_ACTIONS = 8
_WIDE, _ROW, _BAR = 380, 40, 15
# room for the percentage behind a full bar
_REACH = 1.18
_MARK = "#4477aa"


def share_figure(view: Decisions) -> Figure:
    """Two bars an action: full for the policy, hatched for practice."""
    shares = action_shares(view)
    # those that the policy recommends most, then those that practice takes most
    usual = np.zeros(len(shares.policy)) if shares.practice is None else shares.practice
    order = np.lexsort((-usual, -shares.policy))[:MOST_ACTIONS].tolist()
    actions = [a for a in order if shares.policy[a] > 0 or usual[a] > 0]
    bars: list[dict[str, float | str]] = []
    for row, a in enumerate(actions):
        pair = [("policy", shares.policy[a], _MARK)]
        if shares.practice is not None:
            pair.append(("practice", shares.practice[a], HATCH))
        for i, (who, share, fill) in enumerate(pair):
            top = row * _ROW + (_ROW - _BAR * len(pair)) / 2 + i * _BAR
            bars.append({"who": who, "x": 0, "x2": float(share), "y": top, "y2": top + _BAR - 2, "fill": fill,
                         "t": _two(float(share)), "middle": top + _BAR / 2 - 1})  # fmt: skip
    labels = names([view.action_labels[a] for a in actions], "action", 34)
    rows = [{"y": (row + 0.5) * _ROW, "t": label} for row, label in enumerate(labels)]
    margin = 14 + 7 * max(map(len, labels), default=1)
    text = _figure_words(view, shares, actions)
    note = "Upper bar: this policy. Lower, hatched bar: current practice." if shares.practice is not None else ""
    drawn = {"bars": bars, "names": rows, "width": _WIDE, "height": _ROW * len(actions), "reach": _REACH}
    described = "shares", "Share of each action", text
    return Figure(partial(draw_chart, "shares", drawn, described, margin, bottom=6), text, note)


def _figure_words(view: Decisions, shares: Shares, actions: list[int]) -> str:
    parts: list[str] = []
    for a, label in zip(actions, names([view.action_labels[a] for a in actions], "action", 80), strict=True):
        beside = "" if shares.practice is None else f", practice {_two(float(shares.practice[a]))}"
        parts.append(f"{label}: policy {_two(float(shares.policy[a]))}{beside}")
    if shares.silent:
        parts.append(f"no recommendation: {_two(shares.silent)}")
    left_out = len(shares.policy) - len(actions)
    return f"Share of each action. {'; '.join(parts)}." + (
        f" {left_out} others are left out: rarer, or in neither." if left_out else ""
    )


MOST_STATES = 24
MOST_STEPS = 50
# widest picture, in pixels, in which cells hold labels of actions
_WIDEST = 820
# Paul Tol's "light" scheme: told apart by colour-blind readers, and dark text stays legible on each.
_FEW = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00")
# Blue over cream to orange, where there are more actions than colours with names.
_RAMP = ("#8fbcdb", "#f3ebcb", "#efa076")


def action_codes(view: Decisions) -> list[str]:
    """Text of a cell for each action: its label where all of them fit, else "a" and its number."""
    labels = [clean(label) for label in view.action_labels]
    wide = min(len(view.action), MOST_STEPS) * _cell_width(max(map(len, labels)))
    fits = len(set(labels)) == len(labels) and (max(map(len, labels)) <= 3 or wide <= _WIDEST)
    return labels if fits else [f"a{index}" for index in range(len(labels))]


def _cell_width(characters: int) -> int:
    return 10 + 6 * max(2, characters)


def policy_figure(view: Decisions) -> Figure:
    """States by steps, the recommended action written in each cell."""
    states, horizon = most_evidenced(view), min(len(view.action), MOST_STEPS)
    text = (
        f"Recommended action in each of {len(states)} states (rows) at each of {horizon} steps (columns). "
        "A dash on hatching means: not enough evidence, keep current practice. The table that follows says the same."
    )
    limits = (
        ("{} states with most released evidence", MOST_STATES, len(view.state_labels)),
        ("first {} steps", MOST_STEPS, len(view.action)),
    )

    def draw() -> str:
        codes = action_codes(view)
        used = sorted({int(view.action[h, s]) for h in range(horizon) for s in states if not view.abstains[h, s]})
        colour = dict(zip(used, _palette(len(used)), strict=True))
        drawn = [_cell(view, h, s, row, codes, colour) for row, s in enumerate(states) for h in range(horizon)]
        wide = _cell_width(max(len(str(cell["t"])) for cell in drawn))
        rows = names([view.state_labels[s] for s in states], "state", 30)
        return _draw_cells(drawn, rows, (horizon * wide, 24, 11), ("policy", "The policy, state by step", text))

    return Figure(draw, text, _left_out(limits, "The run's folder holds the whole policy."))


def _left_out(limits: Sequence[tuple[str, int, int]], rest: str) -> str:
    """Note on the limits that cut something, and on the place of the rest."""
    notes = [f"Shown: the {what.format(most)}, of {total}." for what, most, total in limits if total > most]
    return " ".join([*notes, rest]) if notes else ""


def _draw_cells(
    cells: Sequence[Mapping[str, int | str]], rows: Sequence[str], size: tuple[int, int, int], labels: Labels
) -> str:
    """Rows by steps, a text on a colour in each cell, and a name before each row."""
    width, high, font = size
    drawn = {"cells": cells, "names": rows, "width": width, "high": high, "font": font}
    return draw_chart("cells", drawn, labels, 14 + 7 * max(map(len, rows)))


def _cell(
    view: Decisions, step: int, state: int, row: int, codes: Sequence[str], colour: Mapping[int, str]
) -> dict[str, int | str]:
    if view.abstains[step, state]:
        return {"x": step, "y": row, "t": "–", "fill": HATCH, "ink": INK}
    action = int(view.action[step, state])
    mark = "=" if view.tie[step, state] else ""
    return {"x": step, "y": row, "t": codes[action] + mark, "fill": colour[action], "ink": "#111111"}


def _palette(count: int) -> list[str]:
    if count <= len(_FEW):
        return list(_FEW[:count])
    colours: list[str] = []
    for index in range(count):
        place = 2 * index / (count - 1)
        low = min(int(place), 1)
        colours.append(_mixed(_RAMP[low], _RAMP[low + 1], place - low))
    return colours


def _mixed(a: str, b: str, share: float) -> str:
    """A colour between two, a share of the way from the first."""
    pairs = zip(bytes.fromhex(a[1:]), bytes.fromhex(b[1:]), strict=True)
    return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in pairs)


MOST_FEATURES = 24
# blue below zero, orange above, white at it; the sign stands in the cell as well
_COLOURS = ("#77aadd", "#f4f2ec", "#ee8866")


def weights_figure(weights: Weights) -> Figure:
    """Features by steps, the weight written in each cell."""
    order = np.argsort(-np.abs(weights.values).sum(0), kind="stable")
    # the features with most weight over the episode, in their own order
    features, horizon = sorted(order[:MOST_FEATURES].tolist()), min(len(weights.values), MOST_STEPS)
    most = float(np.abs(weights.values[:horizon, features]).max()) or 1.0
    decimals = max(0, 1 - math.floor(math.log10(most)))
    cells: list[dict[str, int | str]] = [
        {
            "x": h,
            "y": row,
            "t": _short(w, decimals),
            "fill": _mixed(_COLOURS[1], _COLOURS[0 if w < 0 else 2], abs(w) / most),
            "ink": "#111111",
        }
        for row, i in enumerate(features)
        for h in range(horizon)
        for w in [float(weights.values[h, i])]
    ]
    rows = names([weights.names[i] for i in features], "feature", 30)
    wide = 6 + 6 * max(2, *(len(str(c["t"])) for c in cells))
    text = (
        f"Weight of each of {len(features)} features (rows) at each of {horizon} steps (columns), "
        f"from {number(float(weights.values.min()), 3)} to {number(float(weights.values.max()), 3)}. At step 0: "
        + "; ".join(f"{clean(weights.names[i])} {number(float(weights.values[0, i]), 3)}" for i in features)
        + "."
    )
    limits = (
        ("{} features with most weight", MOST_FEATURES, len(weights.names)),
        ("first {} steps", MOST_STEPS, len(weights.values)),
    )
    labels = "weights", "The weights, step by step", text
    rest = "policy.parquet in the run's folder holds all of them."
    return Figure(partial(_draw_cells, cells, rows, (horizon * wide, 22, 10), labels), text, _left_out(limits, rest))


def _short(weight: float, decimals: int) -> str:
    """As many decimals as the largest weight needs for two digits."""
    return f"{round(weight, decimals) + 0.0:.{decimals}f}".replace("-", "−")


# most rows of a printed table; the run's folder has all
MOST_ROWS = 120
_LABEL = 80
_COUNTED = "Evidence: released, hence noisy, count of this action in this state."
_USUAL = " Current practice: the share of this action among the released counts; a dash where they are too few."
_LINEAR = (
    "Evidence: 1/φᵀΛ⁻¹φ, how many rows the released Gram matrix holds in the direction of this pair's features, ridge "
    "and shift included."
)
_PLAYED = "Evidence: the share of users who come there and get this action, in the known world."


def least_usual(report: Report) -> str | None:
    """Least share of a state's rows that an action must have to be recommended; None of agents that ask for counts."""
    constants = report.constants
    if not isinstance(constants, TabularConstants) or constants.policy.preset != "one step":
        return None
    return percent(constants.threshold, 2)


def policy_section(report: Report, constants: TabularConstants | None, view: Decisions) -> Section:
    """The policy as a picture of its steps; as a table where it is the same at every step."""
    words: list[str] = []
    if view.abstains.any() and constants is not None:
        linear = report.features is not None
        measure, worth = ("evidence", "the planner's own choice") if linear else ("released count", "anything")
        seen = (
            f"An action counts as seen in a state where its {measure} is above {number(constants.threshold)}; where "
            f"none is, the interval allows for {worth}."
        )
        if (least := least_usual(report)) is not None:
            seen = f"An action is recommended only where practice takes it in at least {least} of a state's rows."
        words.append(f"Where evidence is thin it recommends no change. {seen}")
    if view.tie.any():
        words.append(
            f"In {percent(report.policy.tie_share, 2)} of the cases another action looks equally good: marked “=”."
        )
    if _steady(view):
        words += ["It is the same at every step.", _measured(report, view)]
        return Section("policy", _RECOMMENDS, tuple(words), tables=(_policy_table(report, view),))
    figure = policy_figure(view)
    words.append(
        "Rows are states, columns are the steps of an episode, counted from 0. A dash on hatching: no recommendation, "
        "current practice goes on."
    )
    words += [figure.note] if figure.note else []
    return Section("policy", _RECOMMENDS, tuple(words), figure, points=_key(view), lead="In the picture:")


def _key(view: Decisions) -> tuple[str, ...]:
    """Meanings of the codes in the picture; empty where it shows the labels themselves."""
    codes, labels = action_codes(view), names(view.action_labels, "action", _LABEL)
    used = np.unique(view.action[:, most_evidenced(view)][:MOST_STEPS])
    return tuple(f"{codes[a]}: {labels[a]}" for a in used) if codes[0] != clean(view.action_labels[0]) else ()


_RECOMMENDS = "What the policy recommends"


def _steady(view: Decisions) -> bool:
    """Whether the recommendation of each state is the same at every step."""
    keys = np.where(view.abstains, -1, view.action), view.tie & ~view.abstains
    return all(bool((key == key[0]).all()) for key in keys)


def policy_table_section(report: Report, view: Decisions) -> Section | None:
    """The table of a policy that was drawn; None where other tables list it."""
    if _steady(view) or (report.practice is not None and report.practice.cells):
        return None
    return Section(
        "policy-table", "The policy as a table", (_measured(report, view),), tables=(_policy_table(report, view),)
    )


def _measured(report: Report, view: Decisions) -> str:
    """Note on the columns of the table, and on the rows that it leaves out."""
    noisy = _LINEAR if report.features else _COUNTED if report.simulation is None else _PLAYED
    if not np.isnan(view.practice).all():
        noisy += _USUAL
    if len(view.state_labels) > MOST_STATES:
        noisy += f" Shown: of the {MOST_STATES} states with most released evidence, those with a recommendation; "
        noisy += "reticent policy show lists all."
    return noisy + (f" Only the first {MOST_ROWS} rows are printed." if len(_listed(view)) > MOST_ROWS else "")


def _listed(view: Decisions) -> list[Steps]:
    """Rows of a table of the policy: those with a recommendation."""
    shown = set(most_evidenced(view))
    return [run for run in runs(view) if run.state in shown and not run.abstains]


def _policy_table(report: Report, view: Decisions) -> PageTable:
    labels = names(view.state_labels, "state", _LABEL), names(view.action_labels, "action", _LABEL)
    # in a known world evidence is a share of its users
    counted = span if report.simulation is None else _shares
    rows = [_row(view, run, *labels, counted) for run in _listed(view)[:MOST_ROWS]]
    head = ["State", "Steps", "Recommendation", "Probability", "Evidence", "Current practice"]
    unknown = {5} if np.isnan(view.practice).all() else set[int]()
    # a column that is the same in every row is left out
    unknown |= {3} if (view.share[~view.abstains] > 1 - 1e-9).all() else set()
    unknown |= {1} if _steady(view) else set()
    columns = [i for i in range(6) if i not in unknown]
    numeric = " | ".join(head[i] for i in columns if i > 2)
    rows = [tuple(row[i] for i in columns) for row in rows]
    return table(" | ".join(head[i] for i in columns), rows, "", numeric, grouped=1 in columns)


def _shares(low: float, high: float) -> str:
    return between((low, high), _two)


def _row(
    view: Decisions, run: Steps, states: Sequence[str], actions: Sequence[str], counted: Callable[[float, float], str]
) -> tuple[str, ...]:
    share = view.share[_cells(run)]
    usual, counts = (_counted(table, run)[:, run.action] for table in (view.practice, view.evidence))
    return (
        states[run.state],
        run.when,
        actions[run.action] + (" (=)" if run.tie else ""),
        between(share.tolist(), _two),
        counted(float(counts.min()), float(counts.max())),
        between(usual.tolist(), _two),
    )


def shares_section(view: Decisions) -> Section:
    """Shares of the actions in the recommendations and in practice."""
    shares, figure = action_shares(view), share_figure(view)
    words = ["Share of the states, step by step."]
    if shares.practice is not None:
        where = "everywhere" if shares.known == 1 else f"for {percent(shares.known, 2)} of states and steps"
        words = [
            f"Share of the decisions in the log, by released, noisy counts; these show what practice does {where}."
        ]
    words += [figure.note] if figure.note else []
    return Section("shares", "How often it recommends each action", tuple(words), figure)


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
