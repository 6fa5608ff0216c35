"""The page of an audit: what attacks on a mechanism prove, beside what it claims."""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pipeline.audits.attack import AttackResult
from pipeline.declaration.numbers import number
from reports.figures.charts import PALETTE, draw_chart
from reports.page import Chapter, Figure, Section, table
from reports.studies.study_page import StudyPage

BANNER = "an attack with made-up neighbours: no row was read, nothing was charged."


def audit_page(name: str, verdicts: Sequence[AttackResult], notes: Sequence[str] = ()) -> StudyPage:
    """What attacks proved, as a page."""
    foot = (
        "Lower bounds by Clopper and Pearson on both error rates, at a threshold fixed in advance; a bound below the "
        "claim is no proof of the claim, which rests on the enumerated sensitivities."
    )
    return StudyPage("audit", name, f"Audit of {name}", summary(name, verdicts), _parts(verdicts, notes), foot, BANNER)


def summary(name: str, verdicts: Sequence[AttackResult]) -> str:
    """What was proved, in one sentence."""
    if bad := [v for v in verdicts if v.violates]:
        what = "; ".join(f"{v.mechanism}: claims {claim(v)}, {_fault(v)}" for v in bad)
        return f"{name} is NOT as private as it says. {what}, with confidence {verdicts[0].confidence:.4f}."
    shares = ", ".join(f"{v.ratio:.0%}" for v in verdicts)
    found = f"No attack found {name} to lose more than it claims; the best proved {shares} of the claim to be there."
    return " ".join([found, *_untested(verdicts)])


def _fault(v: AttackResult) -> str:
    faults = {
        "draws less noise than it lists": v.less_noise,
        "draws noise that entries share": v.shared_noise,
        f"loses at least {bound(v)}": v.ratio > 1,
    }
    return " and ".join(fault for fault, found in faults.items() if found)


def _untested(verdicts: Sequence[AttackResult]) -> list[str]:
    """Claims above what so many draws prove of anything."""
    found: list[str] = []
    for v in verdicts:
        if not v.testable:
            most = replace(v, lower_bound_rho=v.ceiling_rho, lower_bound_epsilon=v.ceiling_epsilon)
            found.append(
                f"{v.mechanism}: the claim {claim(v)} cannot be tested at so few draws; {v.draws:,} a side prove "
                f"at most {bound(most)}, even without any noise."
            )
    return found


def figure_of(verdicts: Sequence[AttackResult]) -> Figure:
    """Trade-off curves: how often an attacker is right, against how often wrong, beside the claimed limit."""
    from scipy import stats

    points: list[dict[str, float | str]] = []
    for i, v in enumerate(verdicts):
        colour = PALETTE[i % len(PALETTE)]
        mu = math.sqrt(2 * v.claimed_rho)
        grid = [j / 100 for j in range(1, 100)]
        for x in grid:
            y = float(stats.norm.cdf(stats.norm.ppf(x) + mu))
            if v.claimed_epsilon is not None and v.claimed_delta is None:
                e = math.exp(v.claimed_epsilon)
                y = min(e * x, 1 - (1 - x) / e)
            points.append({"who": f"{v.mechanism}: limit claimed", "x": x, "y": y, "colour": colour, "dash": "limit"})
        points += [{"who": v.mechanism, "x": x, "y": y, "colour": colour, "dash": "measured"} for x, y in v.curve]
    text = "Share of times an attacker finds the person, against the share of false alarms. " + " ".join(
        f"{v.mechanism}: {number(v.true_positives, 3)} against {number(v.false_positives, 3)} "
        "at the threshold fixed in advance."
        for v in verdicts
    )
    note = "Solid: measured. Dashed: the most that the claim allows; one clearly above it breaks the claim."
    said = "trade-off", "Trade-off of the attacks", text, 60
    return Figure(partial(draw_chart, "trade_off", {"points": points}, *said), text, note)


def claim(v: AttackResult) -> str:
    """The claimed loss, rounded up."""
    if v.claimed_epsilon is not None:
        at = "" if v.claimed_delta is None else f" at δ = {v.claimed_delta:g}"
        return f"ε = {number(v.claimed_epsilon, toward='up')}{at}"
    return f"ρ = {number(v.claimed_rho, toward='up')}"


def bound(v: AttackResult) -> str:
    """The proved lower bound, rounded down."""
    if v.lower_bound_epsilon is not None:
        return f"ε = {number(v.lower_bound_epsilon, toward='down')}"
    return f"ρ = {number(v.lower_bound_rho, toward='down')}"


def attacked(v: AttackResult) -> tuple[str, ...]:
    """Mechanism, trust, claim, proof, the share of the claim that is proved, and what the pair spends of it."""
    return str(v.mechanism), str(v.trust), claim(v), bound(v), f"{v.ratio:.0%}", f"{v.attained:.0%}"


def _parts(verdicts: Sequence[AttackResult], notes: Sequence[str]) -> list[Chapter]:
    rows = [(*attacked(v), f"{v.draws:,}", "yes" if v.violates else "no") for v in verdicts]
    head = "Mechanism | Trust | Claim | Proved at least | Share | Pair spends | Draws a side | Violates"
    words = (
        f"Each bound holds with confidence {verdicts[0].confidence:.4f}.",
        "The share proved grows with the draws, up to what the attacked pair spends of the claim: exact, undrawn. The "
        "smaller the claim, the more draws it takes: at ρ = 0.03 twenty thousand prove a third to a half, at ρ = 1 "
        "nine tenths.",
        *_untested(verdicts),
        *notes,
    )
    found = table(head, rows, numeric="Share | Pair spends | Draws a side")
    figure = figure_of(verdicts)
    proved = Section("verdicts", "Claim and proof", words, tables=(found,))
    return [Chapter("What was proved", (proved, Section("trade-off", "Trade-off", (figure.note,), figure)))]
