"""What the rows say about paper 001, section 6: its sentences on Figure 2, each by a stated rule.

Judged on the noise the paper prints, at its delta = 0.1; the same rule on the tight noise at delta = 1e-5 says where a
sentence would hold.  The paper prints neither S nor its budgets nor c.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.format import number
from reports.online_rows import (
    LEARNT,
    SUBLINEAR,
    SURE,
    Row,
    Rows,
    claim,
    end_loss,
    growth,
    learns,
    only,
    select,
    spread,
    surely_below,
)

PRINTED, TIGHT = "as printed, block, rewards known", "unit, block, rewards known"
SCALES = {"printed": ("paper", PRINTED), "tight": ("tight", TIGHT)}
Verdict = tuple[bool, str]


@dataclass(frozen=True)
class Evidence:
    """Rows of the study at the paper's K."""

    every: Rows

    @property
    def K(self) -> int:  # noqa: N802
        """Episodes of the figure: the fewest that were played."""
        return min(int(r["episodes"]) for r in self.every)

    @property
    def rows(self) -> list[Row]:
        """Rows at that K."""
        return select(self.every, episodes=self.K)

    @property
    def rivers(self) -> list[str]:
        """The two chains of the figure, S = 3."""
        return [w for w in dict.fromkeys(str(r["world"]) for r in self.rows) if "states 3" in w]

    def private(self, scales: str, world: str) -> list[Row]:
        """LDP-UCRL-VTR by epsilon, with the tuned bonus."""
        calibration, variant = SCALES[scales]
        found = select(self.rows, agent="ldp-ucrl-vtr", calibration=calibration, variant=variant, world=world)
        return sorted((r for r in found if "tuned" in r["constants"]), key=lambda r: r["epsilon"])

    def plain(self, world: str) -> Row:
        """UCRL-VTR with the tuned bonus."""
        return next(r for r in select(self.rows, agent="ucrl-vtr", world=world) if "tuned" in r["constants"])


def claims(rows: Rows) -> list[dict[str, Any]]:
    """Every sentence with its verdict, regime and rule, and the verdicts by scales."""
    e = Evidence(rows)
    sure = f"{SURE:.0f} standard errors"
    judged: Sequence[tuple[str, str, Callable[[Evidence, str], Verdict]]] = (
        ("the printed noise gives the asked ε", "the ε recomputed at the same δ is at most what was asked", _private),
        (
            "LDP-UCRL-VTR learns",
            f"at every ε and in both chains an episode at the end costs at most {100 * LEARNT:.0f} % of what it costs "
            "the better of uniform choice and the same agent without data",
            _learns,
        ),
        (
            "its regret is sublinear in K",
            f"at every ε and in both chains regret after K is at most {number(SUBLINEAR, 2)} times that after K / 10, "
            "and it learns",
            _sublinear,
        ),
        (
            "a larger ε is closer to UCRL-VTR",
            f"in both chains the largest ε loses less than the smallest by more than {sure}",
            _closer,
        ),
        (
            "its regret is larger than UCRL-VTR's",
            f"at every ε and in both chains the mean is larger by more than {sure}",
            _larger,
        ),
        (
            "learning slows down as H and d grow",
            "at the largest ε of both, in the inhomogeneous chain, the share of uniform choice's loss that remains at "
            "the end is larger at S = 5 than at S = 3",
            _slower,
        ),
    )
    return [claim(text, rule, {s: judge(e, s) for s in SCALES}, "printed") for text, rule, judge in judged]


def _each(e: Evidence, scales: str, say: Callable[[Row], str]) -> str:
    """What is said of each row, chain by chain."""
    return "; ".join(
        f"{_short(w)}: " + ", ".join(f"{say(r)} (ε {number(r['epsilon'])})" for r in e.private(scales, w))
        for w in e.rivers
    )


def _short(world: str) -> str:
    return world.removeprefix("riverswim_")


def _all(e: Evidence, scales: str) -> list[Row]:
    return [r for w in e.rivers for r in e.private(scales, w)]


def _private(e: Evidence, scales: str) -> Verdict:
    mine = [r for r in e.rows if r["agent"] == "ldp-ucrl-vtr" and r["calibration"] == SCALES[scales][0]]
    pairs = sorted({(float(r["epsilon"]), number(r["true_epsilon"], 3, "up")) for r in mine})
    holds = all(r["true_epsilon"] <= r["epsilon"] * (1 + 1e-9) for r in mine)
    words = ", ".join(f"{true} for {number(asked)}" for asked, true in pairs)
    return holds, f"at δ = {mine[0]['delta']:g}: {words}, over all worlds"


def _learns(e: Evidence, scales: str) -> Verdict:
    rows = _all(e, scales)
    said = _each(e, scales, lambda r: number(end_loss(r), 2))
    bars = ", ".join(
        f"{_short(w)} {number(end_loss(only(e.rows, agent='uniform', world=w)), 2)} and "
        f"{number(end_loss(only(e.rows, agent='no-data', world=w)), 2)}"
        for w in e.rivers
    )
    return all(learns(e.rows, r) for r in rows), f"an episode costs {said}; uniform and without data: {bars}"


def _sublinear(e: Evidence, scales: str) -> Verdict:
    holds = all(growth(r) <= SUBLINEAR and learns(e.rows, r) for r in _all(e, scales))
    return holds, "grows " + _each(e, scales, lambda r: f"{number(growth(r), 2)} ×")


def _closer(e: Evidence, scales: str) -> Verdict:
    ends: Mapping[str, tuple[Row, Row]] = {w: (e.private(scales, w)[0], e.private(scales, w)[-1]) for w in e.rivers}
    said = "; ".join(
        f"{_short(w)}: {spread(small)} at ε = {number(small['epsilon'])}, {spread(large)} at {number(large['epsilon'])}"
        for w, (small, large) in ends.items()
    )
    return all(surely_below(large, small) for small, large in ends.values()), said


def _larger(e: Evidence, scales: str) -> Verdict:
    holds = all(surely_below(e.plain(w), r) for w in e.rivers for r in e.private(scales, w))
    said = "; ".join(f"UCRL-VTR {spread(e.plain(w))} in {_short(w)}" for w in e.rivers)
    return holds, said


def _slower(e: Evidence, scales: str) -> Verdict:
    worlds = [w for w in dict.fromkeys(str(r["world"]) for r in e.rows) if "inhomogeneous" in w]
    last = {w: e.private(scales, w) for w in worlds}
    shared = set.intersection(*({r["epsilon"] for r in found} for found in last.values()))
    shares = {
        w: next(r for r in found if r["epsilon"] == max(shared))["mean"]
        / only(e.rows, agent="uniform", world=w)["mean"]
        for w, found in last.items()
    }
    small, large = (next(x for w, x in shares.items() if f"states {s}" in w) for s in (3, 5))
    words = f"{number(100 * small, 2)} % at S = 3, {number(100 * large, 2)} % at S = 5, ε = {number(max(shared))}"
    return large > small, words
