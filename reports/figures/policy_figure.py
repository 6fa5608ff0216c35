"""A tabular policy, its shares and its weights as inline SVG: self-contained, legible without colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from pipeline.declaration.numbers import clean, number
from reports.facts.policy import Decisions, Weights
from reports.figures.charts import HATCH, INK, draw_chart
from reports.page import Figure, percent, shorten
from reports.run.policy_table import Shares, action_shares, most_evidenced

MOST_ACTIONS = 8
_WIDE, _ROW, _BAR = 380, 40, 15
# room for the percentage behind a full bar
_REACH = 1.18
_MARK = "#4477aa"


def leading_actions(shares: Shares) -> list[int]:
    """Actions that the policy recommends most, then those that practice takes most, at most eight."""
    usual = np.zeros(len(shares.policy)) if shares.practice is None else shares.practice
    order = np.lexsort((-usual, -shares.policy))
    return [int(a) for a in order[:MOST_ACTIONS] if shares.policy[a] > 0 or usual[a] > 0]


def share_figure(view: Decisions) -> Figure:
    """Two bars an action: full for the policy, hatched for practice."""
    shares = action_shares(view)
    actions = leading_actions(shares)
    bars: list[dict[str, float | str]] = []
    for row, a in enumerate(actions):
        found = [("policy", shares.policy[a], _MARK)]
        if shares.practice is not None:
            found.append(("practice", shares.practice[a], HATCH))
        for i, (who, share, fill) in enumerate(found):
            top = row * _ROW + (_ROW - _BAR * len(found)) / 2 + i * _BAR
            bars.append({"who": who, "x": 0, "x2": float(share), "y": top, "y2": top + _BAR - 2, "fill": fill,
                         "t": percent(float(share)), "middle": top + _BAR / 2 - 1})  # fmt: skip
    names = [{"y": (row + 0.5) * _ROW, "t": shorten(clean(view.action_labels[a]), 24)} for row, a in enumerate(actions)]
    margin = 14 + 7 * max((len(str(name["t"])) for name in names), default=1)
    text = _words(view, shares, actions)
    note = "Upper bar: this policy. Lower, hatched bar: current practice." if shares.practice is not None else ""
    drawn = {"bars": bars, "names": names, "width": _WIDE, "height": _ROW * len(actions), "reach": _REACH}
    said = "shares", "Share of each action", text, margin
    return Figure(partial(draw_chart, "shares", drawn, *said, bottom=6), text, note)


def _words(view: Decisions, shares: Shares, actions: list[int]) -> str:
    said: list[str] = []
    for a in actions:
        beside = "" if shares.practice is None else f", practice {percent(float(shares.practice[a]))}"
        said.append(f"{clean(view.action_labels[a])}: policy {percent(float(shares.policy[a]))}{beside}")
    if shares.silent:
        said.append(f"no recommendation: {percent(shares.silent)}")
    left_out = len(shares.policy) - len(actions)
    return f"Share of each action. {'; '.join(said)}." + (
        f" {left_out} others are left out: rarer, or in neither." if left_out else ""
    )


MOST_STATES = 40
MOST_STEPS = 50
# a picture of named actions may be as wide as the page
_WIDEST = 820
# Paul Tol's "light" scheme: told apart by colour-blind readers, and dark text stays legible on each.
_FEW = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00")
# Blue over cream to orange, where there are more actions than colours with names.
_RAMP = ((0x8F, 0xBC, 0xDB), (0xF3, 0xEB, 0xCB), (0xEF, 0xA0, 0x76))


def action_codes(view: Decisions) -> list[str]:
    """What stands in a cell for each action: its label where all of them fit, else "a" and its number."""
    labels = [clean(label) for label in view.action_labels]
    wide = min(len(view.action), MOST_STEPS) * _cell_width(max(map(len, labels)))
    fits = len(set(labels)) == len(labels) and (max(map(len, labels)) <= 3 or wide <= _WIDEST)
    return labels if fits else [f"a{index}" for index in range(len(labels))]


def _cell_width(characters: int) -> int:
    return 10 + 6 * max(2, characters)


def policy_figure(view: Decisions) -> Figure:
    """States by steps, the recommended action written in each cell."""
    states, horizon = most_evidenced(view, MOST_STATES), min(len(view.action), MOST_STEPS)
    text = (
        f"Recommended action in each of {len(states)} states (rows) at each of {horizon} steps (columns). "
        "A dash on hatching means: not enough evidence, keep current practice. The table that follows says the same."
    )
    limits = (
        ("{} states with most released evidence", MOST_STATES, len(view.state_labels)),
        ("first {} steps", MOST_STEPS, len(view.action)),
    )
    return Figure(
        partial(_draw_policy, view, text), text, _left_out(limits, "The run's folder holds the whole policy.")
    )


def _left_out(limits: Sequence[tuple[str, int, int]], rest: str) -> str:
    """What is shown of what there is, where that is more, and where the rest is found."""
    notes = [f"Shown: the {what.format(most)}, of {there}." for what, most, there in limits if there > most]
    return " ".join([*notes, rest]) if notes else ""


def _draw_policy(view: Decisions, text: str) -> str:
    states, horizon = most_evidenced(view, MOST_STATES), min(len(view.action), MOST_STEPS)
    codes = action_codes(view)
    used = sorted({int(view.action[h, s]) for h in range(horizon) for s in states if not view.abstains[h, s]})
    colour = dict(zip(used, _palette(len(used)), strict=True))
    drawn = [_cell(view, h, s, row, codes, colour) for row, s in enumerate(states) for h in range(horizon)]
    wide = _cell_width(max(len(str(cell["t"])) for cell in drawn))
    names = [shorten(clean(view.state_labels[s]), 24) for s in states]
    return _draw_cells(drawn, names, (horizon * wide, 24, 11), ("policy", "The policy, state by step", text))


def _draw_cells(
    cells: Sequence[Mapping[str, int | str]],
    names: Sequence[str],
    size: tuple[int, int, int],
    said: tuple[str, str, str],
) -> str:
    """Rows by steps, a text on a colour in each cell, and a name before each row.

    Parameters
    ----------
    cells
        ``x``, ``y``, text ``t``, ``fill`` and ``ink`` of each.
    names
        Of the rows.
    size
        Width of all cells, height of a row, size of a letter.
    said
        Key, title and text of the picture.
    """
    width, high, font = size
    drawn = {"cells": cells, "names": names, "width": width, "high": high, "font": font}
    return draw_chart("cells", drawn, *said, 14 + 7 * max(map(len, names)))


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
        mixed = (round(a + (b - a) * (place - low)) for a, b in zip(_RAMP[low], _RAMP[low + 1], strict=True))
        colours.append("#" + "".join(f"{channel:02x}" for channel in mixed))
    return colours


MOST_FEATURES = 24
# blue below zero, orange above, white at it; the sign stands in the cell as well
_COLOURS = ("#77aadd", "#f4f2ec", "#ee8866")


def leading_features(weights: Weights) -> list[int]:
    """The features with most weight over the episode, in their own order."""
    size = np.abs(weights.values).sum(0)
    return sorted(np.argsort(-size, kind="stable")[:MOST_FEATURES].tolist())


def weights_figure(weights: Weights) -> Figure:
    """Features by steps, the weight written in each cell."""
    features, horizon = leading_features(weights), min(len(weights.values), MOST_STEPS)
    most = float(np.abs(weights.values[:horizon, features]).max()) or 1.0
    decimals = max(0, 1 - math.floor(math.log10(most)))
    cells: list[dict[str, int | str]] = [
        {"x": h, "y": row, "t": _short(w, decimals), "fill": _colour(w / most), "ink": "#111111"}
        for row, i in enumerate(features)
        for h in range(horizon)
        for w in [float(weights.values[h, i])]
    ]
    names = [shorten(clean(weights.names[i]), 30) for i in features]
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
    said = "weights", "The weights, step by step", text
    rest = "policy.parquet in the run's folder holds all of them."
    return Figure(partial(_draw_cells, cells, names, (horizon * wide, 22, 10), said), text, _left_out(limits, rest))


def _short(weight: float, decimals: int) -> str:
    """As many decimals as the largest weight needs for two digits."""
    return f"{round(weight, decimals) + 0.0:.{decimals}f}".replace("-", "−")


def _colour(share: float) -> str:
    ends = _COLOURS[0] if share < 0 else _COLOURS[2]
    parts = zip(*(bytes.fromhex(c[1:]) for c in (_COLOURS[1], ends)), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * abs(share)):02x}" for a, b in parts)
