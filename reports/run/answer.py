"""The verdict in words and as a picture: what a manager reads first, and what the shell prints in one line."""

from __future__ import annotations

from pipeline.declaration.numbers import clean, number
from reports.facts.dataset import DeclaredPlant
from reports.facts.learnt import NO_GUARANTEE, Baseline, Truth, ValueFacts
from reports.facts.report import Report
from reports.facts.verdict import UNMEASURED, Improvement, Verdict, decide
from reports.figures.range_figure import Mark, Panel, range_figure
from reports.page import Figure, about, interval, percent, shorten

_NEW, _PRACTICE, _MODEL = "new policy", "current practice", "model"
# name and numbers stand side by side on a phone
_NAME = 14


def verdict_of(report: Report) -> Verdict:
    """The verdict of a run; what was written before there was one is decided now.

    Parameters
    ----------
    report
        Of any version.
    """
    return report.verdict or decide(report.evaluation, report.dataset, report.guarantee.rho)


def sentence(verdict: Verdict, *, binned: bool = False) -> str:
    """The answer in one line, without its first letter's capital.

    Parameters
    ----------
    verdict
        Of a run.
    binned
        Whether the declared states are bins of what was logged.
    """
    found, where = verdict.improvement, "in the binned process, " if binned else ""
    if found is not None and verdict.answer in ("better", "worse"):
        by = interval(found.lower, found.upper) if verdict.answer == "better" else interval(-found.upper, -found.lower)
        return f"{where}{verdict.answer} than current practice by {by} ({level(found)}{worth(found)})"
    if verdict.answer == "not_told_apart":
        return f"{where}not told apart from current practice at this budget{_needed(verdict)}"
    if verdict.why == UNMEASURED:
        return "no calibrated verdict: for a log like this nobody measured how often the interval holds"
    return {
        "nothing_changes": "nothing changes: the policy is current practice everywhere",
        "withheld": "no verdict: the estimate is withheld",
        "not_evaluated": "not evaluated: whether it is better than current practice is not known",
    }[verdict.answer]


def level(found: Improvement) -> str:
    """How sure an interval is, as a percentage.

    Parameters
    ----------
    found
        Of a verdict.
    """
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

    Parameters
    ----------
    verdict, binned
        As for :func:`sentence`.
    epsilon
        What was promised; None where nothing is private.
    """
    told = verdict.answer in ("better", "worse") and epsilon is not None
    return sentence(verdict, binned=binned) + (f", at ε = {number(epsilon, 2, 'up')}" if told else "")


def headline(report: Report, verdict: Verdict) -> str:
    """The sentence that the page begins with.

    Parameters
    ----------
    report, verdict
        Of a run.
    """
    said = shell_line(verdict, report.guarantee.epsilon, binned=report.dataset.markov == "aggregated")
    return said[0].upper() + said[1:]


def reason(verdict: Verdict) -> str:
    """Why, and what the interval certifies.

    Parameters
    ----------
    verdict
        Of a run.
    """
    found = verdict.improvement
    if found is not None and verdict.why == UNMEASURED:
        # a model's word on real people, so it never stands first
        return f"{verdict.why} By the model alone the difference is {interval(found.lower, found.upper)}{worth(found)}."
    if found is None or found.status != "evaluated" or verdict.answer in ("withheld", "nothing_changes"):
        return verdict.why
    return (
        f"{verdict.why} The {level(found)} interval is evaluated: how often it holds was measured in simulated worlds; "
        "it is not a theorem."
    )


def answer_figure(report: Report, verdict: Verdict) -> Figure | None:
    """Practice, new policy and the best constant with their intervals, the difference below.

    Parameters
    ----------
    report, verdict
        Of a run.

    Returns
    -------
    None where no number may stand first: an estimate that is withheld, or what only a model says of real people.
    """
    plain = report.value.status in NO_GUARANTEE and report.dataset.kind == "real"
    if verdict.answer == "withheld" or (plain and report.evaluation is None):
        return None
    panels = [Panel([m for m in _marks(report) if m.places])]
    if (found := verdict.improvement) is not None and verdict.answer != "nothing_changes":
        words = f"{_signed(found.estimate, found)} ({interval(found.lower, found.upper)})"
        gap = Mark("difference", words, found.estimate, found.lower, found.upper, own=True)
        panels.append(Panel([gap], "0: as now"))
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
    simple = "zero" if isinstance(report.dataset, DeclaredPlant) else "best constant"
    best = report.model_baselines.get(simple)
    # what only a model says does not stand first where people are real
    if best is not None and report.dataset.kind == "synthetic":
        name = "doing nothing" if best.action is None else f"always {clean(best.action)}"
        rows.append(_modelled(name, best, None if truth is None or simple != "zero" else truth.v_zero))
    return rows


def _new(v: ValueFacts, truth: float | None) -> Mark:
    # an end that is the trivial one says nothing
    lower = None if v.lower_flag == "trivial" else v.lower
    if lower is None and v.estimate is None:
        return Mark(_NEW, "no value is claimed", own=True, truth=truth)
    name = f"{_NEW} ({_MODEL})" if v.status in NO_GUARANTEE else _NEW
    return _mark(name, v.estimate, lower, v.upper, own=True, truth=truth)


def _modelled(name: str, b: Baseline | None, truth: float | None) -> Mark:
    if b is None:
        return Mark(name, "not told" if truth is None else f"truly {number(truth, 3)}", truth=truth)
    return _mark(f"{shorten(name, _NAME)} ({_MODEL})", b.estimate, b.lower, b.upper, truth=truth)


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
    """The true values of a synthetic world; None for real data, whatever the report holds.

    Parameters
    ----------
    report
        Of a run.
    """
    return report.truth if report.dataset.kind == "synthetic" else None


def missed(report: Report) -> str:
    """What is lost against the best possible policy, as far as it is known.

    Parameters
    ----------
    report
        Of a run.
    """
    v, truth = report.value, known_truth(report)
    most = None if v.optimal_upper is None else max(0.0, v.optimal_upper - v.lower)
    true = "" if truth is None else f" In the true, simulated world it is {number(max(0.0, truth.suboptimality), 2)}."
    # people who judge a policy say nothing of a better one
    sure = v.status in ("proved", "bound")
    if most is None or (not sure and report.dataset.kind == "real"):
        said = "not known"
    elif sure:
        said = f"0 to {number(most, 2, 'up')} ({v.status})"
    else:
        said = f"at most {number(most, 2, 'up')} in the released model, which guarantees nothing"
    return f"Suboptimality, what is lost against the best possible policy: {said}.{true}"
