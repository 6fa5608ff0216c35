"""How the policy was judged by people who had no part in choosing it, and how far that can be relied on."""

from __future__ import annotations

import math

import numpy as np

from pipeline.declaration.numbers import clean, number
from reports.facts.evaluation import EvaluationFacts, IntervalFacts
from reports.facts.policy import Decisions
from reports.facts.report import Report
from reports.facts.verdict import PLACEBO, round_up
from reports.page import Section, Table, about, interval, percent, table
from reports.run.answer import verdict_of

# what a diagnostic says, under the name that obp and SCOPE-RL have for it
_SAYS = {
    "effective sample size": "people whose history tells what the policy would do; few: the estimate rests on them",
    "overlap": "share of decisions that practice takes as the policy would; near 0: little is known",
    "clip, people": "near 0: the clip can hide little",
    "clip, half": "above 0: a clip of half the size would not take the gain away",
    "clip, twice": "above 0: the noise of a clip of twice the size would not either",
    "weights clipped": "share of people whose weight was cut: the more, the further toward practice",
    "calibration": "the modelled value less the measured one; far from 0: the model is off",
    "people who follow": "share of people whose whole history the policy follows",
}
# what the people who judge had to do with the policy: whether it is of one step
_PART = {
    False: "had no part in choosing the policy and judge it",
    True: "did not propose the policy; by how often its actions are taken, not by what came of it, they decided which "
    "of its changes stay: both parts made it. They judge it",
}
_SHARES = (0.2, 0.3, 0.5)
# fewer states are no groups
_FEW = 9


def evaluation_section(report: Report, view: Decisions) -> Section | None:
    """Values, difference, checks and their prices; None where nobody was asked.

    Parameters
    ----------
    report, view
        Of a run.
    """
    if (found := report.evaluation) is None:
        return None
    verdict = verdict_of(report)
    status = verdict.improvement.status if verdict.improvement is not None else "modelled"
    looks = "the first" if found.look == 1 else f"number {number(found.look)}"
    words = (
        f"{percent(found.share)} of the people (declared), by a noisy count about "
        f"{number(round_up(found.people, 'nearest'))}, {_PART[found.confirmed]} "
        f"(estimator {clean(found.estimator)}). Current practice is the mean of their own returns; the difference is "
        "paired, person by person.",
        f"This is {looks} evaluation on this lineage, so each interval has level {percent(found.level)}: more looks "
        f"would else mean more chances to be wrong. Status: {status}.",
        "It assumes that the declared state holds everything that drives both what is done and what comes of it.",
    )
    rows = [
        ("New policy", *_both(found.value)),
        ("Current practice", *_both(found.practice)),
        ("Difference", *_both(found.improvement)),
    ]
    if (other := found.against) is not None:
        rows.append((f"Difference to {clean(other.run)}", *_both(other.improvement)))
    values = table("Mean return a person | Estimate | Interval", rows, "", "Estimate | Interval")
    return Section("evaluation", "How it was judged", words, tables=(values, _checks(report, found, view)))


def _both(x: IntervalFacts) -> tuple[str, str]:
    return about(x.estimate, x.lower, x.upper), interval(x.lower, x.upper)


def _checks(report: Report, found: EvaluationFacts, view: Decisions) -> Table:
    placebo = "not released" if found.placebo is None else f"z = {number(found.placebo, 2)}"
    says = f"must come out as 0; beyond {PLACEBO:g} on either side the answer is withheld"
    rows = [("Placebo", placebo, "free" if found.placebo is None else "in the same release", says)]
    for d in found.diagnostics:
        cost = f"ρ = {number(d.price, 2, 'up')}" if d.price else "free"
        rows.append((clean(d.name), number(d.value, 3), cost, _meaning(d.name)))
    rows += [(name, percent(share), "free", _SAYS["overlap"]) for name, share in overlaps(view)]
    for name, of, measured in (("policy", "this policy", found.value), ("practice", "practice", found.practice)):
        told = report.model_baselines.get(of)
        if told is not None and told.estimate is not None:
            off = number(told.estimate - measured.estimate, 2)
            rows.append((f"Calibration of the model, {name}", off, "free", _SAYS["calibration"]))
    for share in _SHARES:
        name, half = f"Half-width, had {percent(share)} judged", half_width(found, share)
        clear = "would" if abs(found.improvement.estimate) > half else "would not"
        rows.append((name, number(half, 2, "up"), "free", f"the same difference {clear} be told from 0"))
    caption = "How far this can be relied on; free: computed from what was released anyway"
    return table("Check | Value | Price | Says", rows, caption, "Value")


def _meaning(name: str) -> str:
    return next((says for known, says in _SAYS.items() if name.lower().startswith(known)), "")


def overlaps(view: Decisions) -> list[tuple[str, float]]:
    """How much of practice agrees with the policy, by how often states are visited; from released counts.

    Parameters
    ----------
    view
        The policy beside released counts.

    Returns
    -------
    Name and share of each third of the states; of all of them where they are few; nothing where practice is not told.
    """
    known = ~np.isnan(view.practice).any(-1) & ~view.abstains
    usual = np.broadcast_to(view.practice, (*view.action.shape, len(view.action_labels)))
    agree = np.take_along_axis(usual, view.action[..., None], -1)[..., 0]
    visits = np.where(known, view.evidence.sum(-1), 0.0)
    followed, by_state = np.where(known, visits * np.nan_to_num(agree), 0.0).sum(0), visits.sum(0)
    order = [s for s in np.argsort(-by_state, kind="stable").tolist() if by_state[s] > 0]
    if not order:
        return []
    if len(order) < _FEW:
        return [("Overlap, all states", float(followed[order].sum() / by_state[order].sum()))]
    names = ("the most visited third of states", "the middle third", "the least visited third")
    parts = np.array_split(np.array(order), 3)
    return [
        (f"Overlap, {name}", float(followed[part].sum() / by_state[part].sum()))
        for name, part in zip(names, parts, strict=True)
    ]


def half_width(found: EvaluationFacts, share: float) -> float:
    """How wide the interval of the difference would be to either side, with another share of the same people.

    Parameters
    ----------
    found
        Released variances.
    share
        Of the people who judge.
    """
    times = share / found.share
    now, then = (
        math.sqrt(found.person_variance / max(found.people, 1) / x + found.noise_variance / x**2) for x in (1.0, times)
    )
    return float(found.half_width) * then / now if now > 0 else float(found.half_width)
