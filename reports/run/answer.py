"""The first screen of a run: is it better, for whom, how sure, at which privacy loss, and what to do next.

The verdict in words and as a picture, and in one line for the shell.  Estimates with their intervals, one below the
other, and the gains of a controller over the steps, as inline SVG.

Of intervals, places are percentages and letters keep their size: that picture is read on a phone, a screen and paper.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.declaration.numbers import clean, number
from pipeline.facts import learnt
from pipeline.facts.evaluation import Evaluated, Interval, people_needed, share_that_judges
from pipeline.facts.promise import DeclaredPlant, DeclaredTables, Guarantee
from pipeline.facts.report import Report, verdict_of
from pipeline.facts.verdict import NOT_MEASURED_HERE, Improvement, Verdict, ends_near, no_test, round_up
from pipeline.privacy.losses import membership_advantage, safe_epsilon
from reports.figures.charts import DASHES, PALETTE, draw_chart
from reports.page import AnswerCard, Figure, Opening, about, interval, listing, loss, names, percent, shorten, templates
from reports.run import policy_sections


@cache
def wording(file: str = "words") -> Mapping[str, Any]:
    """The fixed words of a run's page, by what they are about: words.toml, or glossary.toml beside it."""
    return tomllib.loads(Path(__file__).with_name(f"{file}.toml").read_text(encoding="utf-8"))


_ROW, _AXIS, _GAP = 46, 46, 14
# room at both ends, percent of the width, so that no mark is cut
_EDGE = 1.5
# share of an axis below which marks on it cannot be distinguished
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
        """Every number of the row."""
        return [x for x in (self.estimate, self.lower, self.upper, self.truth) if x is not None]


@dataclass(frozen=True)
class Panel:
    """Rows on one axis that is called ``title``.

    ``zero``: label of a line through 0; empty: there is none.
    ``possible``: the least and the greatest possible value, where known.
    """

    marks: Sequence[Mark]
    title: str = ""
    zero: str = ""
    possible: tuple[float, float] | None = None


def range_figure(panels: Sequence[Panel], key: str, title: str, note: str = "") -> Figure:
    """Panels below each other.

    ``note``: a remark below the picture.
    """
    text = "; ".join(f"{mark.name}: {mark.words}" for panel in panels for mark in panel.marks) + "."
    return Figure(partial(_svg, panels, key, title, text), text, note)


def _svg(panels: Sequence[Panel], key: str, title: str, text: str) -> str:
    tops = [0, *accumulate(_ROW * len(panel.marks) + _AXIS + _GAP for panel in panels)]
    axes = [_axis(panel, top) for panel, top in zip(panels, tops, strict=False)]
    labels = {"key": key, "title": escape(title), "text": escape(text)}
    return templates().get_template("range.svg.j2").render(labels, axes=axes, height=tops[-1] - _GAP)


def ends(panel: Panel) -> tuple[float, float]:
    """Ends of the axis: the possible range, where the marks can be seen on it; else 0 and all marks."""
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
    """A panel's values for the template; places as texts."""
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
        # the label of the line through 0 replaces the one next to it
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


def gains_figure(view: learnt.Gains) -> Figure:
    """A line an observed number and control: its gain at each step."""
    # those with most weight over the episode, in their own order
    size = np.abs(view.gains).sum(0)
    largest = np.argsort(-size.reshape(-1), kind="stable")[:MOST_LINES].tolist()
    lines = [divmod(i, size.shape[1]) for i in sorted(largest)]
    names, gains = [_name(view, d, n) for d, n in lines], [view.gains[:, d, n].tolist() for d, n in lines]
    H, height = len(view.gains), max(_HEIGHT, _LEGEND * len(names) + 10)  # noqa: N806
    low, high = min(0.0, *map(min, gains)), max(0.0, *map(max, gains))
    room = (high - low or 1.0) * 0.05
    styled = zip(names, PALETTE, DASHES, gains, strict=False)
    drawn = [{"name": name, "colour": colour, "dash": dash, "gains": ys} for name, colour, dash, ys in styled]
    values: dict[str, object] = {"lines": drawn, "domain": [low - room, high + room], "width": _WIDE, "height": height}
    values["steps"] = list(range(0, H, max(1, H // 10)))
    ends = zip(names, gains, strict=True)
    text = "; ".join(f"{name}: {number(ys[0])} at step 0, {number(ys[-1])} at the last" for name, ys in ends)
    left_out = view.gains[0].size - len(lines)
    note = f"Shown: the {len(lines)} largest gains, of {view.gains[0].size}; the table has all." if left_out else ""
    text = f"Gains over {H} steps. {text}."
    frame = (128 + _WIDE + 7 * max(map(len, names)), height + 70)
    labels = "policy", "The gains, step by step", text
    return Figure(partial(draw_chart, "gains", values, labels, 60, frame), text, note)


def _name(view: learnt.Gains, control: int, coordinate: int) -> str:
    numbers = f"{control + 1}.{coordinate + 1} "
    return numbers + shorten(f"{clean(view.action[control])} for {clean(view.observation[coordinate])}", 34)


_NEW, _PRACTICE, _MODEL = "new policy", "current practice", "model"
OPERATOR = "The operator's own check of the raw log is not part of this page."


def sentence(verdict: Verdict, *, binned: bool = False) -> str:
    """The answer in one line, without its first letter's capital."""
    gain, where = verdict.improvement, "in the binned process, " if binned else ""
    if gain is not None and verdict.answer in ("better", "worse"):
        by = interval(gain.lower, gain.upper) if verdict.answer == "better" else interval(-gain.upper, -gain.lower)
        level = f"({percent(gain.level)}{worth(gain)})"
        if verdict.conditions:
            *others, last = verdict.conditions
            conditions = f"{', '.join(others)} and {last}" if others else last
            return f"{where}{verdict.answer} by {by} if {conditions} {level}"
        return f"{where}{verdict.answer} than current practice by {by} {level}"
    if verdict.answer == "not_told_apart":
        return f"{where}no clear difference from current practice at this budget{_needed(verdict)}"
    if verdict.why == NOT_MEASURED_HERE:
        return "no calibrated verdict: for a log like this nobody measured how often the interval holds"
    return {
        "nothing_changes": "nothing changes: the policy is current practice everywhere",
        "withheld": "no verdict: the estimate is withheld",
        "not_evaluated": "not evaluated: whether it is better than current practice is not known",
    }[verdict.answer]


def worth(improvement: Improvement) -> str:
    """A warning where the interval guarantees nothing."""
    return ", modelled: not a guarantee" if improvement.status in learnt.NO_GUARANTEE else ""


def _needed(verdict: Verdict) -> str:
    if (needed := verdict.needed) is None:
        return ""
    people = [] if needed.people is None else [f"about {number(needed.people)} people"]
    budget = [] if needed.rho is None else [f"ρ = {number(needed.rho)}"]
    # the estimate may be chance alone, as where nothing makes a difference
    return f": {' or '.join(people + budget)} would show one as large as the estimate"


def shell_line(verdict: Verdict, epsilon: float | None, *, binned: bool) -> str:
    """The verdict and its price, for a terminal.

    ``epsilon``: of the guarantee; None where nothing is private.
    """
    if verdict.answer == "withheld" and verdict.why != NOT_MEASURED_HERE:
        return f"{sentence(verdict, binned=binned)}. {verdict.why}"
    with_price = verdict.answer in ("better", "worse") and epsilon is not None
    return sentence(verdict, binned=binned) + (f", at ε = {number(epsilon, toward='up')}" if with_price else "")


def headline(report: Report, verdict: Verdict) -> str:
    """The sentence that the page begins with."""
    text = sentence(verdict, binned=report.dataset.markov == "aggregated")
    return text[0].upper() + text[1:]


def reason(verdict: Verdict, evaluation: Evaluated | None = None) -> str:
    """Sentence on the test of the policy, or the reason that there is none."""
    gain = verdict.improvement
    if gain is not None and verdict.why == NOT_MEASURED_HERE:
        # a model's estimate on real people never stands first
        return f"{verdict.why} By people's scores the difference is {interval(gain.lower, gain.upper)}{worth(gain)}."
    tested = gain is not None and gain.status == "evaluated" and verdict.answer in ("better", "worse", "not_told_apart")
    if not tested or evaluation is None or evaluation.people < 1:
        return verdict.why
    near = f"{ends_near(gain)} " if gain is not None and ends_near(gain) else ""
    people, used = number(round_up(evaluation.people, "nearest")), "outcomes" if evaluation.confirmed else "records"
    return f"{near}Tested on about {people} people whose {used} were not used to choose the policy."


def hidden_traits(verdict: Verdict) -> list[str]:
    """Sentences on unrecorded traits that may explain the difference, and on the strength that this takes."""
    confounding = verdict.confounding
    if confounding is None or verdict.answer not in ("better", "worse"):
        return []
    if confounding.excluded or confounding.strength is None:
        return [confounding.why]
    what = "gain" if verdict.answer == "better" else "difference"
    return [
        confounding.why,
        f"To explain all of this {what}, a trait that half of the people have, and that doubles the odds of the "
        "advised action, would have to change the score directly by at least "
        f"{number(confounding.strength, 2, 'down')}.",
    ]


def outcome(data: DeclaredTables | DeclaredPlant) -> str | None:
    """The end of an episode whose share is the score; None where the score is something else."""
    pays = {} if isinstance(data, DeclaredPlant) else data.reward_on_entering or {}
    paid = [label for label, reward in pays.items() if reward]
    one = len(paid) == 1 and pays[paid[0]] == 1 and not isinstance(data, DeclaredPlant) and paid[0] in data.ends
    return clean(paid[0]) if one else None


def score(report: Report, *, short: bool = False) -> str:
    """Meaning of the scores: a sentence, or the title of an axis."""
    data, whose = report.dataset, "people" if report.dataset.episodes_per_user == 1 else "episodes"
    if isinstance(data, DeclaredPlant):
        return "score: minus the cost of an episode" if short else "Score: minus the cost of an episode; 0 is best."
    each_once = "" if data.episodes_per_user == 1 else "; a person with several counts by their mean"
    H = data.horizon  # noqa: N806
    if (end := outcome(data)) is not None:
        share = f"share of {whose} with the end “{end}”"
        within = f"{share} within {number(H)} step{'s' * (H > 1)}"
        return f"score: {share}" if short else f"Score: the {within}, from 0 (worst) to 1 (best){each_once}."
    name = None if data.reward_called is None else clean(data.reward_called)
    if short:
        return f"score: {name or 'sum of the rewards'} of an episode"
    pays = ", ".join(f"{number(r)} for {clean(label)}" for label, r in (data.reward_on_entering or {}).items() if r)
    low, high = (number(end) for end in data.reward_range)
    each = pays or (f"rewards of {low} to {high} a step" if name is None else f"{name}, {low} to {high} a step")
    # rewards beyond the declared range, or between its steps, count as other numbers than the log's
    lattice = f", cut to this range and rounded down to steps of {number(data.reward_unit)}"
    # a number of rewards that were cut would be a release of its own
    lattice += " (how many were, only ingest tells)" if data.kind == "real" else ""
    cut = lattice if data.reward_kind == "estimate" and not pays else ""
    # nor do rows beyond the declared steps count, a last one among them included
    return f"Score (more is better): {each}{cut}, {_summed(data)}{each_once}."


def _summed(data: DeclaredTables) -> str:
    """Rows of an episode whose rewards count, and how much of each."""
    one, counted = data.horizon == 1, list[str]()
    first = "the first step" if one else f"the first {number(data.horizon)} steps"
    if data.discount is not None and not one:
        counted += [f"each counting {number(data.discount)} times as much as one a step before"]
    if data.reward_total is not None and data.reward_kind == "estimate":
        counted += [f"cut to {number(data.reward_total)} in all"]
    over = f"{'of' if one else 'summed over'} {first} of an episode"
    if data.reward_paid == "last":
        over = f"of an episode's last step alone, if it lies within {first}"
    # an early end saves what the steps after it would cost, or loses what they would pay
    ended = ", 0 after its end" if data.ends and not one and data.reward_paid != "last" else ""
    return over + (f" ({', '.join(counted)})" if counted else "") + ended


def answer_figure(report: Report, verdict: Verdict) -> Figure | None:
    """Practice and new policy with their intervals, the difference below.

    Returns none where no number may stand first: an estimate that is withheld, or a model's alone on real people.
    """
    v = report.value
    plain = v.status in learnt.NO_GUARANTEE and report.dataset.kind == "real"
    if verdict.answer == "withheld" or (plain and report.evaluation is None):
        return None
    possible = float(v.lower_trivial), float(v.upper_trivial)
    panels = [Panel([m for m in _marks(report) if m.places], score(report, short=True), possible=possible)]
    if (gain := verdict.improvement) is not None and verdict.answer != "nothing_changes":
        sign, size = "+" if gain.estimate > 0 else "", about(gain.estimate, gain.lower, gain.upper)
        words = f"{sign}{size} ({interval(gain.lower, gain.upper)})"
        gap = Mark("difference", words, gain.estimate, gain.lower, gain.upper, own=True)
        panels.append(Panel([gap], "new policy less current practice, in the same unit", "0: as now"))
    if not any(panel.marks for panel in panels):
        return None
    has_truth = any(m.truth is not None for m in panels[0].marks)
    notes = ["◆ the true value: known because these people are simulated."] if has_truth else []
    if any(m.name.endswith(f"({_MODEL})") for m in panels[0].marks):
        notes.append("(model): by the released model alone, no guarantee.")
    note = " ".join(notes)
    return range_figure(panels, "verdict", "The new policy beside current practice", note)


def _marks(report: Report) -> list[Mark]:
    truth, evaluation, baselines = known_truth(report), report.evaluation, report.model_baselines
    usual, own = (None, None) if truth is None else (truth.v_behavior, truth.v_policy)
    if evaluation is not None:
        rows = [_mark(_PRACTICE, evaluation.practice, usual), _mark(_NEW, evaluation.value, own, own=True)]
    else:
        rows = [_modelled("practice", baselines.get("practice"), usual), _new(report.value, own)]
    # a model's estimate does not stand first where people are real
    if (zero := baselines.get("zero")) is not None and report.dataset.kind == "synthetic":
        rows.append(_modelled("doing nothing", zero, None if truth is None else truth.v_zero))
    return rows


def _new(v: learnt.ValueFacts, truth: float | None) -> Mark:
    # a trivial end is not drawn
    drawn = learnt.Baseline(estimate=v.estimate, lower=None if v.lower_flag == "trivial" else v.lower, upper=v.upper)
    if drawn.lower is None and v.estimate is None:
        return Mark(_NEW, "no value is claimed", own=True, truth=truth)
    return _mark(f"{_NEW} ({_MODEL})" if v.status in learnt.NO_GUARANTEE else _NEW, drawn, truth, own=True)


def _modelled(name: str, b: learnt.Baseline | None, truth: float | None) -> Mark:
    if b is None or b.trivial:
        return Mark(name, "unknown" if truth is None else f"truly {number(truth, 3)}", truth=truth)
    return _mark(f"{name} ({_MODEL})", b, truth)


def _mark(name: str, known: Interval | learnt.Baseline, truth: float | None, *, own: bool = False) -> Mark:
    estimate, lower, upper = known.estimate, known.lower, known.upper
    if lower is None or upper is None:
        words = number(estimate, 3) if lower is None else interval(lower, None)
    else:
        words = interval(lower, upper)
        words = words if estimate is None else f"{about(estimate, lower, upper)} ({words})"
    return Mark(name, words, estimate, lower, upper, own, truth)


def known_truth(report: Report) -> learnt.Truth | None:
    """The true values of a synthetic world; None for real data, whatever the report holds."""
    return report.truth if report.dataset.kind == "synthetic" else None


def missed(report: Report, verdict: Verdict) -> str:
    """Sentence on the suboptimality against the best policy that the log supports, as far as it is known."""
    # a hidden trait biases the estimates of all policies
    suboptimality, truth = None if verdict.answer == "withheld" else report.suboptimality, known_truth(report)
    # an older version bounded one more step by what noise had not hidden
    if suboptimality is None or suboptimality.over == "one_step":
        text = "How much more the best possible policy would gain (suboptimality) is not known."
    else:
        most = number(suboptimality.upper, 2, "up")
        worth = "" if suboptimality.status == "bound" else ", an estimate, not a guarantee"
        best, why = {
            "supported_actions": (
                "policy that this log can speak about",
                "it leaves current practice only where the release shows that people took the action",
            ),
            "all_policies": ("of all policies", "no episode can pay more, and no released number says less"),
        }[suboptimality.over]
        text = f"The best {best} would gain at most {most} more (suboptimality{worth}): {why}."
    true = "" if truth is None else f" True, in the simulated world: {number(max(0.0, truth.suboptimality), 2)}"
    return text + (f"{true} against the best of all policies." if true else "")


_MOST, _LABEL = 3, 80
# standard deviations of noise beyond which a count is taken as real
_PLAIN = 4.0
# largest part of all released decisions, beside those taken as real, that goes without saying
_HIDDEN = 0.1
# beyond this epsilon the factor of the odds is not printed
_ODDS = 50.0


@dataclass(frozen=True)
class Change:
    """Consecutive steps of a state at which practice does not always do what is recommended.

    ``decisions``: released, hence noisy, number of decisions there that would change.
    """

    run: policy_sections.Steps
    usual: int
    decisions: float


def changes(view: learnt.Decisions, noise: float) -> tuple[list[Change], float]:
    """The changes from practice, most decisions first, and the number of all decisions."""
    differences: list[Change] = []
    pooled = len(view.practice) == 1
    counts = np.where((view.evidence > _PLAIN * noise) & (view.practice > 0), view.evidence, 0.0)
    for run in policy_sections.runs(view):
        if run.abstains:
            continue
        others = counts[0 if pooled else slice(run.first, run.last + 1), run.state].reshape(-1, counts.shape[-1])
        others = others.sum(0)
        others[run.action] = 0.0
        # of one table for all steps, the steps of this run have their share
        share = (run.last - run.first + 1) / len(view.action) if pooled else 1.0
        if (moved := float(others.sum() * share)) > 0:
            differences.append(Change(run, int(others.argmax()), moved))
    return sorted(differences, key=lambda c: -c.decisions), float(counts.sum())


def _noise(report: Report) -> float:
    """Standard deviation of released decisions at a state and an action: of a sum over next states."""
    tables = [m for m in report.mechanisms if m.table == "n_sas"]
    return max((m.scale * math.sqrt(m.shape[-1]) for m in tables), default=0.0)


def _counted(report: Report) -> str:
    """Which decisions the released rows count: `dp-one-step` takes a person's first ones."""
    data, constants = report.dataset, report.constants
    values = constants.policy.values if isinstance(constants, learnt.TabularConstants) else {}
    # other agents count every row
    most = data.horizon * data.episodes_per_user
    rows, cap = (int(values.get(name, most)) for name in ("rows of a person", "cap"))
    counted = "decisions" if rows >= most else f"a person's first {number(rows)} decisions"
    # of steps apart no two rows of an episode are of one cell
    if cap >= rows or (data.dynamics == "per_step" and data.episodes_per_user == 1):
        return counted
    return f"{counted}, the same one in a state counted at most {'once' if cap == 1 else f'{number(cap)} times'}"


def whom_card(report: Report, view: learnt.PolicyView, verdict: Verdict) -> AnswerCard:
    """States and decisions that change, and the actions before and after."""
    name = "For whom it changes"
    if verdict.answer == "nothing_changes":
        return AnswerCard(name, "Nobody", ("Current practice goes on everywhere.",))
    if isinstance(view, learnt.Gains):
        if not report.policy.left_zero:
            return AnswerCard(name, "Nobody", ("All gains are zero: this controller does nothing.",))
        words = f"{listing(view.action)} would be set by {listing(view.observation)} at every step."
        return AnswerCard(name, "Every episode", (words, "How practice steers is not known from this release."))
    if view.abstains.all():
        words = "In no state does the evidence allow a recommendation: current practice goes on everywhere."
        return AnswerCard(name, "Nobody", (words,))
    live, elsewhere = number(len(view.state_labels)), "Elsewhere current practice goes on."
    actions = names(view.action_labels, "action", _LABEL)
    if np.isnan(view.practice).all():
        states, share = policy_sections.reach(view)
        # evidence of a linear policy is no number of rows
        of_decisions = () if report.features is not None else (f"For {percent(share, 2)} of {_counted(report)}.",)
        given = [int(((view.action == a) & ~view.abstains).any(0).sum()) for a in range(len(actions))]
        most = sorted((a for a, n in enumerate(given) if n), key=lambda a: -given[a])[:_MOST]
        rows = tuple((actions[a], f"{number(given[a])} state{'s' * (given[a] > 1)}") for a in most)
        words = (
            *of_decisions,
            *((elsewhere,) if view.abstains.any() else ()),
            "What practice does there is not known from this release. Recommended most often:",
        )
        # of these decisions practice may take most as advised
        return AnswerCard(name, f"Advice in {number(states)} of {live} states", words, rows)
    differences, total = changes(view, _noise(report))
    moved = sum(c.decisions for c in differences)
    # of cells that noise alone may count nothing is known
    hidden = float(view.evidence.sum()) - total > total * _HIDDEN
    if moved <= total / 100 and hidden:
        return AnswerCard(name, "Not known", ("Noise hides how often practice does what is recommended.", elsewhere))
    if moved <= total / 100:
        return AnswerCard(name, "Hardly anybody", ("It takes the actions that practice takes.", elsewhere))
    states = len({c.run.state for c in differences})
    changed, in_all = (number(round_up(x, "nearest")) for x in (moved, total))
    which = " that stand clear of the noise" if hidden else ""
    words = (
        f"About {changed} of {in_all} decisions of those who taught{which}, in {number(states)} of {live} states. "
        f"{elsewhere}",
    )
    labels = names(view.state_labels, "state", _LABEL)
    rows = tuple(
        (f"{labels[c.run.state]}{_when(view, c.run)}:", f"{actions[c.usual]} → {actions[c.run.action]}")
        for c in differences[:_MOST]
    )
    share = percent(moved / total, 2)
    about = share if share.startswith(">") else f"About {share}"
    return AnswerCard(name, f"{about} of decisions{which}", words, rows)


def _when(view: learnt.Decisions, run: policy_sections.Steps) -> str:
    every = (run.first, run.last) == (0, len(view.action) - 1)
    return "" if every else f", step {run.when}"


_UNTESTED = {"withheld": "Not known", "not_evaluated": "Not tested", "nothing_changes": "Nothing to test"}


def _conditions(report: Report, verdict: Verdict) -> list[tuple[str, Sequence[str]]]:
    """Conditions of a difference beside hidden traits: what the page says of each, and what to ask about it."""
    missing, several = verdict.left_out is not None, report.dataset.episodes_per_user > 1
    holds = {
        "features": verdict.features,
        "unweighted": verdict.unweighted and not verdict.led,
        "led": verdict.led,
        "later": verdict.later,
        "logged": verdict.logged,
        "returning": verdict.returning and several,
        "beyond_cap": verdict.returning and not several,
        "left_out": missing,
        "unsaid": verdict.unsaid,
    }
    found = {key: wording()["conditions"][key] for key, condition in holds.items() if condition}
    if missing and verdict.unsaid:
        # of the people who are left out altogether the first screen has a number
        unsaid, keepers = found["unsaid"], found["left_out"]["asked"]
        asked = [question for question in unsaid["asked"] if question not in keepers]
        found["unsaid"] = {"said": f"Other r{unsaid['said'][1:]}", "asked": asked}
    return [(condition["said"], condition["asked"]) for condition in found.values()]


def sure_card(report: Report, verdict: Verdict) -> AnswerCard:
    """Confidence in the interval, for single states as well, and its condition."""
    name, gain = "How sure", verdict.improvement
    if gain is None or verdict.answer in _UNTESTED:
        return AnswerCard(name, _UNTESTED[verdict.answer], (OPERATOR,))
    tested, decided = gain.status not in learnt.NO_GUARANTEE, verdict.answer in ("better", "worse")
    answer = "By a model only" if not tested else "Better or worse is open"
    if decided and tested:
        answer = ("Confirmed", "Confirmed on one condition", "Confirmed on conditions")[min(len(verdict.conditions), 2)]
    lines = [
        f"An interval at {percent(gain.level)}, validated in simulations; it is not a mathematical guarantee."
        if tested
        else "The interval is not a guarantee: nothing shows how often it contains the truth."
    ]
    if decided:
        lines += [_single_states(report)] if tested else []
        if (traits := verdict.confounding) is not None:
            lines += [wording()["hidden"][traits.status], *hidden_traits(verdict)[1:]]
            lines += [wording()["hidden"]["course"]] if traits.course else []
        lines += [said for said, _ in _conditions(report, verdict)]
    return AnswerCard(name, answer, (*lines, OPERATOR))


def _single_states(report: Report) -> str:
    apart = None if report.practice is None else report.practice.apart_share
    if apart is None:
        return "Established over all decisions; single states were not compared."
    if apart == 0:
        return "Established over all decisions; for no single state on its own."
    return f"Established over all decisions; on its own, by the released model, for {percent(apart, 2)} of the states."


# largest ε of each grade (docs/privacy.md)
_GRADES = ((1.0, "Strong"), (3.0, "Moderate"))


def cost_card(report: Report) -> AnswerCard:
    """An attacker's chance and its grade, the loss as odds and in numbers, and what budget is left."""
    name, p, ledger = "What it costs in privacy", report.guarantee, report.ledger
    left = (
        "Nothing was charged: nothing private was released."
        if ledger is None
        else f"Left for the life of {clean(ledger.dataset)}: ρ = {number(ledger.remaining_rho, toward='down')} of "
        f"{number(ledger.cap_rho)}{_lifetime(report)}."
    )
    if p.noise == "none" or p.epsilon is None:
        return AnswerCard(name, "No promise", ("No noise was added.", left))
    grade = next((word for most, word in _GRADES if p.epsilon <= most), "Weak")
    spent = f"{loss(p.rho, p.epsilon, p.delta, pure=p.pure)}. {left}"
    if p.relation != "replace":
        return AnswerCard(name, f"{grade}: ε = {number(p.epsilon, toward='up')}", (spent,))
    right = math.ceil(50 * (1 + membership_advantage(p.rho, p.epsilon, p.delta)) - 1e-9)
    words = (
        "How often an attacker is right who must guess which of two records was used. Blind guessing: 50.",
        *_odds(p),
        spent,
    )
    return AnswerCard(name, f"{grade}: at most {min(right, 100)} in 100", words)


def _odds(p: Guarantee) -> tuple[str, ...]:
    if p.epsilon is None or p.epsilon > _ODDS:
        return ()
    slip = "" if p.pure or not p.delta else f" (except with a probability of 1 in {number(1 / p.delta, toward='down')})"
    most = number(round_up(math.exp(p.epsilon)))
    return (
        f"Worst case: one person's data can shift the odds of any guess about that person at most {most}-fold{slip}.",
    )


def _lifetime(report: Report) -> str:
    """The loss of a lineage's whole budget, as a clause."""
    p, ledger = report.guarantee, report.ledger
    if ledger is None or p.pure or not p.delta:
        return ""
    return f"; all of it together would be ε = {number(safe_epsilon(ledger.cap_rho, p.delta), 3, 'up')}"


def _asked(report: Report, verdict: Verdict) -> list[str]:
    """Questions on the conditions of a difference."""
    traits = verdict.confounding and verdict.confounding.condition
    asked = [] if traits is None else [wording()["ask"][traits]]
    return asked + [question for _, questions in _conditions(report, verdict) for question in questions]


def _next(report: Report, verdict: Verdict) -> tuple[str, ...]:
    """The next step, and three lines on it at most."""
    run, data, needed = clean(report.run), report.dataset, verdict.needed
    # the ledger of real people is their card's
    of_card = " --card CARD" if data.kind == "real" else ""
    keep, until = "Keep current practice", "Until then keep current practice."
    terms = report.agent, report.guarantee.rho
    share, least = share_that_judges(data.users_public, *terms), round_up(people_needed(None, *terms))
    match verdict.answer:
        case "better" if verdict.conditional:
            return (
                "Ask, then decide",
                " ".join(_asked(report, verdict)),
                f"If all is well: reticent promote {run}{of_card}, and reticent ledger sign {run} --by NAME{of_card}.",
                "Else: add what is missing to the card's states and run again, let people who come in later judge it, "
                "or try the policy in a trial.",
            )
        case "better" if verdict.holds:
            return (
                "Promote it",
                f"Put it in use: reticent promote {run}{of_card}.",
                f"Record who decided: reticent ledger sign {run} --by NAME{of_card}.",
                "Test it again on new people.",
            )
        case "better":
            return "Try it in a trial", "By this page alone nobody should change practice."
        case "worse":
            return keep, "This policy does harm by the test above: do not promote it."
        case "not_told_apart" if needed is not None and needed.people is not None:
            more = f"Run again with about {number(needed.people)} people instead of {number(data.users_public)}"
            return "Get more people", f"{more}{_or_budget(report, needed.rho)}, {_IF_SO}.", *_wide(report), until
        case "not_told_apart" if needed is not None:
            more = _or_budget(report, needed.rho).replace(", or", "")
            return "Spend more budget", f"Run again{more}, {_IF_SO}.", *_wide(report), until
        case "not_told_apart":
            unknown = "No number of people and no budget can be named at which a measured interval would settle it."
            return keep, unknown, *_wide(report)
        case "nothing_changes":
            least = policy_sections.least_usual(report)
            varies = f"takes an action in at least {least} of a state's rows" if least else "varies"
            return keep, f"More people or more budget may let the policy say more, where practice {varies}."
        case "withheld" if verdict.why == NOT_MEASURED_HERE and (found := report.evaluation) and found.outside:
            return keep, found.outside, "Or try it in a trial."
        case "withheld" if (found := report.evaluation) and verdict.why[1:] == f"{(found.judged_before or '')[1:]}.":
            return keep, "Who comes in later can judge this policy: [evaluate] since.", "Or try it in a trial."
        case "withheld":
            confounded = verdict.confounding is not None and verdict.confounding.status == "seen"
            mend = "Add what drives the choices to the card's states, and run again."
            return keep, "Do not use the estimate.", mend if confounded else "Or try it in a trial."
        case "not_evaluated" if isinstance(data, DeclaredPlant):
            return "Try it in a trial", "No test of a controller on held-out people is at hand."
        case "not_evaluated" if share is None:
            return "Get more people", f"A test on held-out people takes at least {number(least)} in all.", until
        case "not_evaluated" if untested := no_test(pure=report.guarantee.pure, counter=report.counter is not None):
            return "Hold people out", f"{untested[0].upper()}{untested[1:]}. Ask reticent plan, which is free.", until
        case "not_evaluated":
            command = f"Write [evaluate] people = {share:g} into the recipe, and ask reticent plan, which is free, "
            again = "" if report.ledger is None else "; it is charged again"
            command += f"whether a verdict can come of it. If so, run again{again}."
            return "Hold people out", command, until


_IF_SO = "if a difference as large as the estimate would matter"
# practice that is paid less than this part of what an episode can be paid: the declared range may be far too wide
_PART = 0.05


def _wide(report: Report) -> tuple[str, ...]:
    """A line on a declared range of which practice is paid a small part: the noise is as wide as the range."""
    found, low, high = report.evaluation, float(report.value.lower_trivial), float(report.value.upper_trivial)
    if found is None or isinstance(report.dataset, DeclaredPlant) or not low < high:
        return ()
    now = found.practice
    if min(now.estimate - low, high - now.estimate) > _PART * (high - low):
        return ()
    paid = f"An episode can pay {number(low)} to {number(high)} by the card, and now pays "
    paid += f"{about(now.estimate, now.lower, now.upper)}: noise grows with this range. If none can pay so "
    paid += "much" if now.estimate - low < high - now.estimate else "little"
    narrower = "declare a narrower range or total in [reward], and let people who come in later judge it."
    return (f"{paid}, {narrower}",)


def _or_budget(report: Report, rho: float | None) -> str:
    return "" if rho is None else f", or with ρ = {number(rho)} instead of {number(report.guarantee.rho)}"


_SIGNED = ("Adopt / keep practice / more data first", "Name", "Date", "Signature")


def opening(report: Report, view: learnt.PolicyView) -> Opening:
    """The answer, its picture, for whom it changes, how sure it is, what it costs, what to do, and the promise."""
    verdict, promise = verdict_of(report), report.guarantee
    following, *rows = _next(report, verdict)
    kind = "linear controller" if isinstance(report.dataset, DeclaredPlant) else "decision policy"
    return Opening(
        title=f"A {kind} for {clean(report.dataset.name)}",
        answer=headline(report, verdict),
        why=(
            f"{reason(verdict, report.evaluation)} {score(report)}{_of_hundred(report, verdict)}{_begun(report)}",
            _learnt(report),
        ),
        figure=answer_figure(report, verdict),
        below=(missed(report, verdict),),
        cards=(
            whom_card(report, view, verdict),
            sure_card(report, verdict),
            cost_card(report),
            # with lines on paper for the decision
            AnswerCard("What next", following, tuple(rows), lines=_SIGNED),
        ),
        guarantee=clean(promise.sentence),
        # for simulated people the guarantee's sentence already says that there is no promise
        claim=f"Promise made to the people in this log: {clean(promise.claim)}."
        if report.dataset.kind == "real"
        else "",
        banner=_banner(promise),
    )


def _of_hundred(report: Report, verdict: Verdict) -> str:
    """A difference of shares as so many of a hundred."""
    gain = verdict.improvement
    if gain is None or verdict.answer not in ("better", "worse") or outcome(report.dataset) is None:
        return ""
    ends = sorted(100 * abs(x) for x in (gain.lower, gain.upper))
    return f" The difference: {interval(*ends)} {'more' if verdict.answer == 'better' else 'fewer'} of 100."


def _begun(report: Report) -> str:
    """Sentence on where episodes of the test begin, if the card declares a start of its own."""
    if report.evaluation is None or report.dataset.start != "declared":
        return ""
    return " All of this is of people as they began in the log, not as domain.start declares."


def _learnt(report: Report) -> str:
    data, log = report.dataset, "a synthetic log" if report.dataset.kind == "synthetic" else "a log"
    source = f"learned by {clean(report.agent)} from {log} of {number(data.users_public)} people (declared)."
    if isinstance(data, DeclaredPlant):
        return (
            f"The policy: how strongly to set {listing(data.action.names)} by {listing(data.observation.names)} at "
            f"each of {number(data.horizon)} steps, {source}"
        )
    when = "the one step of an episode" if data.horizon == 1 else f"each of {number(data.horizon)} steps"
    return (
        f"The policy: which of {number(len(data.actions))} actions to take in each of {number(len(data.live_states))} "
        f"states at {when}, {source}"
    )


def _banner(promise: Guarantee) -> str:
    """The warning of a run whose noise protects no one, else empty."""
    if promise.noise == "os":
        return ""
    source = {"seeded": "its noise can be computed from a seed", "none": "no noise was added"}[promise.noise]
    return f"simulation, not private: {source}, so this run protects nobody. Never share it as if it did."
