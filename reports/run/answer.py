"""The verdict in words and as a picture: what a manager reads first, and what the shell prints in one line.

Estimates with their intervals, one below the other, and the gains of a controller over the steps, as inline SVG.

Of intervals, places are percentages and letters keep their size: that picture is read on a phone, a screen and paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import accumulate

import numpy as np

from pipeline.declaration.numbers import clean, number
from pipeline.facts.evaluation import Evaluated
from pipeline.facts.learnt import NO_GUARANTEE, Baseline, Gains, Truth, ValueFacts
from pipeline.facts.promise import DeclaredPlant, DeclaredTables
from pipeline.facts.report import Report
from pipeline.facts.verdict import NOT_MEASURED_HERE, Improvement, Verdict, decide, ends_near, round_up
from reports.figures.charts import DASHES, PALETTE, draw_chart
from reports.page import Figure, about, interval, percent, shorten, templates

_ROW, _AXIS, _GAP = 46, 46, 14
# room at both ends, percent of the width, so that no mark is cut
_EDGE = 1.5
# part of an axis below which what is drawn on it cannot be told apart
_SEEN = 0.03


@dataclass(frozen=True)
class Mark:
    """One row.

    ``estimate``: A dot; None where there is none.
    ``lower``, ``upper``: A bar; None where it has no such end.
    """

    name: str
    words: str
    estimate: float | None = None
    lower: float | None = None
    upper: float | None = None
    own: bool = False
    truth: float | None = None

    @property
    def places(self) -> list[float]:
        """Every number that is drawn."""
        return [x for x in (self.estimate, self.lower, self.upper, self.truth) if x is not None]


@dataclass(frozen=True)
class Panel:
    """Rows on one axis that is called ``title``.

    ``zero``: what stands at a line through 0; empty: there is none.
    ``possible``: the least and the greatest value that there can be, where that is known.
    """

    marks: Sequence[Mark]
    title: str = ""
    zero: str = ""
    possible: tuple[float, float] | None = None

    @property
    def height(self) -> int:
        """In pixels."""
        return _ROW * len(self.marks) + _AXIS


def range_figure(panels: Sequence[Panel], key: str, title: str, note: str = "") -> Figure:
    """Panels below each other.

    ``note``: what a reader of the picture must know.
    """
    text = "; ".join(f"{mark.name}: {mark.words}" for panel in panels for mark in panel.marks) + "."
    return Figure(partial(_svg, panels, key, title, text), text, note)


def _svg(panels: Sequence[Panel], key: str, title: str, text: str) -> str:
    tops = [0, *accumulate(panel.height + _GAP for panel in panels)]
    axes = [_axis(panel, top) for panel, top in zip(panels, tops, strict=False)]
    said = {"key": key, "title": escape(title), "text": escape(text)}
    return templates().get_template("range.svg.j2").render(said, axes=axes, height=tops[-1] - _GAP)


def ends(panel: Panel) -> tuple[float, float]:
    """Ends of the axis: all that is possible, where what is drawn can be seen on it; else 0 and all that is drawn."""
    used = [x for mark in panel.marks for x in mark.places]
    if (least_most := panel.possible) is not None:
        if any(mark.lower is not None and mark.upper is None for mark in panel.marks):
            used.append(least_most[1])
        if len(used) < 2 or max(used) - min(used) > _SEEN * (least_most[1] - least_most[0]):
            used += least_most
    low, high = min([0.0, *used]), max([0.0, *used])
    if high <= low:
        low, high = low - (abs(low) or 1.0) / 10, high + (abs(high) or 1.0) / 10
    grain = 10.0 ** math.floor(math.log10((high - low) / 2))
    return math.floor(low / grain + 1e-9) * grain, math.ceil(high / grain - 1e-9) * grain


def _axis(panel: Panel, top: int) -> dict[str, object]:
    """What the template draws of a panel; places as texts."""
    low, high = ends(panel)

    def at(x: float | None) -> str:
        if x is None:
            return ""
        share = min(1.0, max(0.0, (x - low) / (high - low)))
        return f"{_EDGE + (100 - 2 * _EDGE) * share:.2f}%"

    ticks = (low, "start", "0"), ((low + high) / 2, "middle", at((low + high) / 2)), (high, "end", "100%")
    within = bool(panel.zero) and low < 0 < high
    labels = [
        {"x": place, "anchor": anchor, "text": _tick(x, panel, high - low)}
        for x, anchor, place in ticks
        # what stands at the line through 0 takes the place of the label next to it
        if not (panel.zero and (x or within) and (anchor == "middle" or abs(x) < (high - low) * 0.3))
    ]
    if within:
        share = -low / (high - low)
        anchor = "start" if share < 0.35 else "end" if share > 0.65 else "middle"
        labels.append({"x": at(0.0), "anchor": anchor, "text": escape(panel.zero)})
    rows = [
        {"name": escape(m.name), "words": escape(m.words), "own": m.own, "top": top + _ROW * i}
        | {"estimate": at(m.estimate), "lower": at(m.lower), "upper": at(m.upper), "truth": at(m.truth)}
        for i, m in enumerate(panel.marks)
    ]
    frame = {"top": top, "base": top + _ROW * len(panel.marks) + 8, "zero": at(0.0) if panel.zero else ""}
    frame["title"] = escape(panel.title)
    return {**frame, "ticks": [at(x) for x, *_ in ticks], "labels": labels, "rows": rows}


def _tick(x: float, panel: Panel, width: float) -> str:
    if abs(x) < width * 1e-9:
        return escape(panel.zero) or "0"
    return number(float(f"{x:.6g}"))


# lines differ in colour and dashes; a sample of each stands before its name
MOST_LINES = len(PALETTE)
_WIDE, _HEIGHT, _LEGEND = 380, 150, 15


def gains_figure(view: Gains) -> Figure:
    """A line an observed number and control: its gain at each step."""
    lines = _largest(view)
    names, gains = [_name(view, d, n) for d, n in lines], [view.gains[:, d, n].tolist() for d, n in lines]
    H, height = len(view.gains), max(_HEIGHT, _LEGEND * len(names) + 10)  # noqa: N806
    low, high = min(0.0, *map(min, gains)), max(0.0, *map(max, gains))
    room = (high - low or 1.0) * 0.05
    styled = zip(names, PALETTE, DASHES, gains, strict=False)
    drawn = [{"name": name, "colour": colour, "dash": dash, "gains": of} for name, colour, dash, of in styled]
    values: dict[str, object] = {"lines": drawn, "domain": [low - room, high + room], "width": _WIDE, "height": height}
    values["steps"] = list(range(0, H, max(1, H // 10)))
    ends = zip(names, gains, strict=True)
    text = "; ".join(f"{name}: {number(of[0])} at step 0, {number(of[-1])} at the last" for name, of in ends)
    left_out = view.gains[0].size - len(lines)
    note = f"Shown: the {len(lines)} largest gains, of {view.gains[0].size}; the table has all." if left_out else ""
    text = f"Gains over {H} steps. {text}."
    frame = (128 + _WIDE + 7 * max(map(len, names)), height + 70)
    said = "policy", "The gains, step by step", text, 60, frame
    return Figure(partial(draw_chart, "gains", values, *said), text, note)


def _largest(view: Gains) -> list[tuple[int, int]]:
    """(control, coordinate) of the gains with most weight over the episode, in their own order."""
    size = np.abs(view.gains).sum(0)
    order = np.argsort(-size.reshape(-1), kind="stable")[:MOST_LINES]
    return sorted((int(i) // size.shape[1], int(i) % size.shape[1]) for i in order)


def _name(view: Gains, control: int, coordinate: int) -> str:
    of = f"{control + 1}.{coordinate + 1} "
    return of + shorten(f"{clean(view.action[control])} for {clean(view.observation[coordinate])}", 34)


_NEW, _PRACTICE, _MODEL = "new policy", "current practice", "model"
OPERATOR = "The operator's own check of the raw log is not part of this page."


def verdict_of(report: Report) -> Verdict:
    """The verdict of a run; what was written before there was one is decided now."""
    return report.verdict or decide(report.evaluation, report.dataset, report.guarantee.rho, None)


def sentence(verdict: Verdict, *, binned: bool = False) -> str:
    """The answer in one line, without its first letter's capital."""
    found, where = verdict.improvement, "in the binned process, " if binned else ""
    if found is not None and verdict.answer in ("better", "worse"):
        by = interval(found.lower, found.upper) if verdict.answer == "better" else interval(-found.upper, -found.lower)
        sure = f"({level(found)}{worth(found)})"
        if verdict.conditions:
            return f"{where}{verdict.answer} by {by} if {' and '.join(verdict.conditions)} {sure}"
        return f"{where}{verdict.answer} than current practice by {by} {sure}"
    if verdict.answer == "not_told_apart":
        return f"{where}no clear difference from current practice at this budget{_needed(verdict)}"
    if verdict.why == NOT_MEASURED_HERE:
        return "no calibrated verdict: for a log like this nobody measured how often the interval holds"
    return {
        "nothing_changes": "nothing changes: the policy is current practice everywhere",
        "withheld": "no verdict: the estimate is withheld",
        "not_evaluated": "not evaluated: whether it is better than current practice is not known",
    }[verdict.answer]


def level(found: Improvement) -> str:
    """How sure an interval is, as a percentage."""
    return percent(found.level)


def worth(found: Improvement) -> str:
    """A warning where the interval guarantees nothing."""
    return ", modelled: not a guarantee" if found.status in NO_GUARANTEE else ""


def _needed(verdict: Verdict) -> str:
    if (needed := verdict.needed) is None:
        return ""
    people = [] if needed.people is None else [f"about {number(needed.people)} people"]
    budget = [] if needed.rho is None else [f"ρ = {number(needed.rho)}"]
    return f": {' or '.join(people + budget)} would be needed"


def shell_line(verdict: Verdict, epsilon: float | None, *, binned: bool) -> str:
    """The verdict and its price, for a terminal.

    ``epsilon``: what was promised; None where nothing is private.
    """
    if verdict.answer == "withheld" and verdict.why != NOT_MEASURED_HERE:
        return f"{sentence(verdict, binned=binned)}. {verdict.why}"
    told = verdict.answer in ("better", "worse") and epsilon is not None
    return sentence(verdict, binned=binned) + (f", at ε = {number(epsilon, 2, 'up')}" if told else "")


def headline(report: Report, verdict: Verdict) -> str:
    """The sentence that the page begins with."""
    said = sentence(verdict, binned=report.dataset.markov == "aggregated")
    return said[0].upper() + said[1:]


def reason(verdict: Verdict, found: Evaluated | None = None) -> str:
    """Who tested the policy, or why there is no such test."""
    gain = verdict.improvement
    if gain is not None and verdict.why == NOT_MEASURED_HERE:
        # a model's word on real people, so it never stands first
        return f"{verdict.why} By the model alone the difference is {interval(gain.lower, gain.upper)}{worth(gain)}."
    told = gain is not None and gain.status == "evaluated" and verdict.answer in ("better", "worse", "not_told_apart")
    if not told or found is None or found.people < 1:
        return verdict.why
    near = f"{ends_near(gain)} " if gain is not None and ends_near(gain) else ""
    people, used = number(round_up(found.people, "nearest")), "outcomes" if found.confirmed else "records"
    return f"{near}Tested on about {people} people whose {used} were not used to choose the policy."


def hidden_traits(verdict: Verdict) -> list[str]:
    """What is known of unrecorded traits that may make a difference, and how strong such a trait would have to be."""
    told = verdict.confounding
    if told is None or verdict.answer not in ("better", "worse"):
        return []
    if told.excluded or told.strength is None:
        return [told.why]
    what = "gain" if verdict.answer == "better" else "difference"
    return [
        told.why,
        f"To explain all of this {what}, a trait that half of the people have, and that doubles the odds of the "
        f"advised action, would have to change the score directly by at least {number(told.strength, 2, 'down')}.",
    ]


def outcome(data: DeclaredTables | DeclaredPlant) -> str | None:
    """The end of an episode whose share is the score; None where the score is something else."""
    pays = {} if isinstance(data, DeclaredPlant) else data.reward_on_entering or {}
    paid = [label for label, reward in pays.items() if reward]
    one = len(paid) == 1 and pays[paid[0]] == 1 and not isinstance(data, DeclaredPlant) and paid[0] in data.ends
    return clean(paid[0]) if one else None


def score(report: Report, *, short: bool = False) -> str:
    """What the numbers are numbers of: a sentence, or the title of an axis."""
    data, whose = report.dataset, "people" if report.dataset.episodes_per_user == 1 else "episodes"
    if isinstance(data, DeclaredPlant):
        return "score: minus the cost of an episode" if short else "Score: minus the cost of an episode; 0 is best."
    if (end := outcome(data)) is not None:
        share = f"share of {whose} with the end “{end}”"
        return f"score: {share}" if short else f"Score: the {share}, from 0 (worst) to 1 (best)."
    called = None if data.reward_called is None else clean(data.reward_called)
    if short:
        return f"score: {called or 'sum of the rewards'} of an episode"
    pays = ", ".join(f"{number(r)} for {clean(label)}" for label, r in (data.reward_on_entering or {}).items() if r)
    low, high = (number(end) for end in data.reward_range)
    each = pays or (f"rewards of {low} to {high} a step" if called is None else f"{called}, {low} to {high} a step")
    return f"Score: {each}, summed over an episode."


def answer_figure(report: Report, verdict: Verdict) -> Figure | None:
    """Practice and new policy with their intervals, the difference below.

    Returns none where no number may stand first: an estimate that is withheld, or what only a model says of real
    people.
    """
    v = report.value
    plain = v.status in NO_GUARANTEE and report.dataset.kind == "real"
    if verdict.answer == "withheld" or (plain and report.evaluation is None):
        return None
    possible = float(v.lower_trivial), float(v.upper_trivial)
    panels = [Panel([m for m in _marks(report) if m.places], score(report, short=True), possible=possible)]
    if (found := verdict.improvement) is not None and verdict.answer != "nothing_changes":
        words = f"{_signed(found.estimate, found)} ({interval(found.lower, found.upper)})"
        gap = Mark("difference", words, found.estimate, found.lower, found.upper, own=True)
        panels.append(Panel([gap], "new policy less current practice, in the same unit", "0: as now"))
    if not any(panel.marks for panel in panels):
        return None
    known = any(m.truth is not None for m in panels[0].marks)
    notes = ["◆ the true value: known because these people are simulated."] if known else []
    if any(m.name.endswith(f"({_MODEL})") for m in panels[0].marks):
        notes.append("(model): by the released model alone, no guarantee.")
    note = " ".join(notes)
    return range_figure(panels, "verdict", "The new policy beside current practice", note)


def _signed(x: float, found: Improvement) -> str:
    return ("+" if x > 0 else "") + about(x, found.lower, found.upper)


def _marks(report: Report) -> list[Mark]:
    truth, found, v = known_truth(report), report.evaluation, report.value
    usual = own = None
    if truth is not None:
        usual, own = truth.v_behavior, truth.v_policy
    rows: list[Mark] = []
    if found is not None:
        p = found.practice
        rows = [
            _mark(_PRACTICE, p.estimate, p.lower, p.upper, truth=usual),
            _mark(_NEW, found.value.estimate, found.value.lower, found.value.upper, own=True, truth=own),
        ]
    else:
        rows = [_modelled("practice", report.model_baselines.get("practice"), usual), _new(v, own)]
    # what only a model says does not stand first where people are real
    if (zero := report.model_baselines.get("zero")) is not None and report.dataset.kind == "synthetic":
        rows.append(_modelled("doing nothing", zero, None if truth is None else truth.v_zero))
    return rows


def _new(v: ValueFacts, truth: float | None) -> Mark:
    # an end that is the trivial one says nothing
    lower = None if v.lower_flag == "trivial" else v.lower
    if lower is None and v.estimate is None:
        return Mark(_NEW, "no value is claimed", own=True, truth=truth)
    name = f"{_NEW} ({_MODEL})" if v.status in NO_GUARANTEE else _NEW
    return _mark(name, v.estimate, lower, v.upper, own=True, truth=truth)


def _modelled(name: str, b: Baseline | None, truth: float | None) -> Mark:
    if b is None or b.trivial:
        return Mark(name, "unknown" if truth is None else f"truly {number(truth, 3)}", truth=truth)
    return _mark(f"{name} ({_MODEL})", b.estimate, b.lower, b.upper, truth=truth)


def _mark(
    name: str,
    estimate: float | None,
    lower: float | None,
    upper: float | None,
    *,
    own: bool = False,
    truth: float | None = None,
) -> Mark:
    if lower is None or upper is None:
        words = number(estimate, 3) if lower is None else interval(lower, None)
    else:
        middle = "" if estimate is None else f"{about(estimate, lower, upper)} "
        words = f"{middle}({interval(lower, upper)})" if middle else interval(lower, upper)
    return Mark(name, words, estimate, lower, upper, own, truth)


def known_truth(report: Report) -> Truth | None:
    """The true values of a synthetic world; None for real data, whatever the report holds."""
    return report.truth if report.dataset.kind == "synthetic" else None


# by what ``over`` says: whose gain it is, and what that policy is
_BEST = {
    "supported_actions": (
        "The best policy that this log can speak about would gain at most {} more",
        "it leaves current practice only where the release shows that people took the action",
    ),
    "one_step": (
        "One more step of improvement over current practice would gain at most {} more",
        "by the released sums, and by actions that the release shows people took",
    ),
}


def missed(report: Report, verdict: Verdict) -> str:
    """What is lost against the best policy that the log can speak about, as far as it is known."""
    # what a hidden trait spoils, it spoils for every policy
    found, truth = None if verdict.answer == "withheld" else report.suboptimality, known_truth(report)
    if found is None:
        said = "How much more the best possible policy would gain (suboptimality) is not known."
    else:
        gain, which = _BEST[found.over]
        worth = "" if found.status == "bound" else ", an estimate, not a guarantee"
        said = f"{gain.format(number(found.upper, 2, 'up'))} (suboptimality{worth}): {which}."
    true = "" if truth is None else f" True, in the simulated world: {number(max(0.0, truth.suboptimality), 2)}"
    return said + (f"{true} against the best of all policies." if true else "")
