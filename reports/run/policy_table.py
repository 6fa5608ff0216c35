"""A policy as tables of a page, and where it differs from current practice, as released counts tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.numbers import clean, number
from reports.facts.learnt import NO_GUARANTEE, Practice
from reports.facts.policy import Bools, Decisions, Floats
from reports.facts.report import Report
from reports.page import Section, between, percent, shorten, span, steps, table


@dataclass(frozen=True)
class Run:
    """Consecutive steps ``first`` to ``last`` (0-based, inclusive) at which one state gets one recommendation."""

    state: int
    first: int
    last: int
    action: int
    abstains: bool
    tie: bool


def runs(view: Decisions) -> Iterator[Run]:
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
                yield Run(state, first, step - 1, *keys[first])
                first = step


@dataclass(frozen=True)
class Shares:
    """How often each of A actions is recommended, and taken in practice.

    Parameters
    ----------
    cells
        ``(A,)`` cells in which it is recommended.
    policy
        ``(A,)`` share: of the released visits to the cells in which practice is known; of all cells where none is.
    practice
        ``(A,)`` share of the same visits in which practice took it; None where it is nowhere known.
    silent
        Share of the same in which the policy abstains.
    known
        Share of all cells in which practice is known.
    """

    cells: NDArray[np.int64]
    policy: Floats
    practice: Floats | None
    silent: float
    known: float


def action_shares(view: Decisions) -> Shares:
    """Actions over the whole policy."""
    of_all, actions = view.action.shape, len(view.action_labels)
    known = np.broadcast_to(~np.isnan(view.practice).any(-1), of_all)
    visits = np.where(known, view.evidence.sum(-1), 0.0)
    told = bool(visits.sum() > 0)
    weight = visits / visits.sum() if told else np.full(of_all, 1 / view.action.size)
    spoken = (np.eye(actions)[view.action] * ~view.abstains[..., None]).astype(np.float64)
    usual = (np.nan_to_num(view.practice) * weight[..., None]).sum((0, 1)) if told else None
    cells = spoken.sum((0, 1)).astype(np.int64)
    policy = (spoken * weight[..., None]).sum((0, 1))
    return Shares(cells, policy, usual, float(weight[view.abstains].sum()), float(known.mean()) if told else 0.0)


def reach(view: Decisions) -> tuple[int, float]:
    """States with a recommendation at some step, and the share of the evidence that lies where there is one."""
    spoken = ~view.abstains
    evidence = np.broadcast_to(view.evidence.sum(-1), view.abstains.shape)
    total = float(evidence.sum())
    return int(spoken.any(0).sum()), float(evidence[spoken].sum()) / total if total > 0 else 0.0


def most_evidenced(view: Decisions, limit: int) -> list[int]:
    """The ``limit`` states with the largest released counts, in their own order."""
    total = view.evidence.sum(axis=(0, 2))
    return sorted(np.argsort(-total, kind="stable")[:limit].tolist())


_TITLE = "Where it differs from current practice"
_KEY = "practice"
# the cells a reader can act on; the run's folder has every one
MOST_DIFFERENCES = 40
_LABEL = 60


def practice_section(report: Report, view: Decisions) -> Section:
    """The cells in which practice mostly does something else, those first in which the released model gains most."""
    told = report.practice
    if told is None:
        return Section(_KEY, _TITLE, (_untold(report),))
    if not told.cells:
        words = "In no cell do the released counts stand far enough above the noise to tell what practice does."
        return Section(_KEY, _TITLE, (words,))
    against = _against(told, view)
    words = (_words(told), _meaning(report))
    found = [run for run in runs(view) if not run.abstains and _differs(against, run)]
    found.sort(key=lambda run: -_gain(against, run))
    rows = [_row(view, against, run) for run in found[:MOST_DIFFERENCES]]
    if not rows:
        words += ("Practice mostly takes the recommended action wherever it is known.",)
        return Section(_KEY, _TITLE, words)
    caption = "Evidence, practice: the released, noisy counts. Gain: that of the released model, largest first."
    if len(found) > MOST_DIFFERENCES:
        caption += f" Shown: {MOST_DIFFERENCES} of {number(len(found))} differences."
    head = "State | Steps | Recommended | Evidence | Practice, mostly | Practice agrees | Gain | Told apart"
    return Section(_KEY, _TITLE, words, tables=(table(head, rows, caption, "Evidence | Practice agrees | Gain"),))


@dataclass(frozen=True)
class Against:
    """The policy beside one step of practice, ``(H, L)`` each; NaN and False where practice is not known."""

    followed: Floats
    gain: Floats
    apart: Bools


def _against(told: Practice, view: Decisions) -> Against:
    followed, gain = (np.full(view.abstains.shape, np.nan) for _ in range(2))
    apart = np.zeros(view.abstains.shape, dtype=bool)
    for h, s, share, more, sure in told.cells:
        followed[h, s], gain[h, s], apart[h, s] = share, more, sure
    return Against(followed, gain, apart)


def _words(told: Practice) -> str:
    """How far practice is known, how often it agrees, and in how many cells the two are told apart."""
    every = told.known_share > 1 - 1e-9
    known = "in every cell" if every else f"in {percent(told.known_share)} of the cells with a recommendation"
    apart = "nowhere" if told.apart_share == 0 else f"in {percent(told.apart_share)} of these cells"
    return (
        f"What practice does is told by the released counts {known}. On average {percent(told.followed_share)} of "
        f"its choices there are the recommended ones. The interval of the policy lies above that of practice {apart}."
    )


def _meaning(report: Report) -> str:
    sure = (
        "These intervals are those of the released model, not guarantees."
        if report.value.status in NO_GUARANTEE
        else "A comparison of two cells rests on the assumptions of the interval, cell by cell."
    )
    hidden = (
        " The declared states hide part of what was logged, and practice may see it: a gain can come from that alone."
        if report.dataset.markov == "aggregated"
        else ""
    )
    return (
        "Gain: how much more the released model expects from following the policy than from one more step of practice "
        "followed by the policy. Told apart: the lower end of the first interval lies above the upper end of the "
        f"second; where it does not, a gain may be noise. {sure}{hidden}"
    )


def _untold(report: Report) -> str:
    if report.features:
        return "Not known: this release holds sums of features, which do not tell how often an action was taken."
    return "Not known: this run does not say."


def _cells(run: Run) -> tuple[slice, int]:
    return slice(run.first, run.last + 1), run.state


def _differs(against: Against, run: Run) -> bool:
    """Whether practice is known at some of these steps, and mostly does something else there."""
    followed = against.followed[_cells(run)]
    return bool((followed < 0.5).any())


def _gain(against: Against, run: Run) -> float:
    return float(np.nanmax(against.gain[_cells(run)]))


def _row(view: Decisions, against: Against, run: Run) -> tuple[str, ...]:
    where = _cells(run)
    # one table for all steps has nothing to slice
    tables = slice(None) if len(view.practice) == 1 else where[0]
    usual, counts = view.practice[tables, run.state], view.evidence[tables, run.state, run.action]
    mean = np.nanmean(usual, axis=0)
    most = int(mean.argmax())
    apart, known = int(against.apart[where].sum()), int((~np.isnan(against.gain[where])).sum())
    sure = "yes" if apart == known else "no" if apart == 0 else f"at {apart} of {known} steps"
    return (
        _label(view.state_labels[run.state]),
        steps(run.first, run.last),
        _label(view.action_labels[run.action]),
        span(counts.min(), counts.max()),
        f"{_label(view.action_labels[most])} ({percent(float(mean[most]))})",
        between(against.followed[where].tolist(), percent),
        between(against.gain[where].tolist(), lambda gain: number(gain, 3)),
        sure,
    )


def _label(label: str) -> str:
    return shorten(clean(label), _LABEL)
