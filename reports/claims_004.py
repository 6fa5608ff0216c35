"""What the rows say about paper 004: each claim by a stated rule, none by hand.

The paper has theorems and no experiment.  Its claims are judged at the K of the rows, on its printed noise; the same
rule on our calibrations says whether less noise would change the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reports.format import number

# one run is far below another's regret where it is at most this part of it
FAR = 0.5
SURE = 3.0
DEFAULT = 10_000
VARIANTS = ("paper", "tight", "one release a plan")

Rows = Sequence[Mapping[str, Any]]
Verdict = tuple[bool, str]


def kind_of(row: Mapping[str, Any]) -> str:
    """Which of :data:`VARIANTS` a row of Private-OFU-RL is."""
    return VARIANTS[2] if "one release a plan" in row["variant"] else str(row["calibration"])


@dataclass(frozen=True)
class Evidence:
    """Rows of one study, found by name; ``episodes`` is the K at which claims are judged."""

    rows: Rows

    @cached_property
    def episodes(self) -> int:
        """The smallest K of the rows."""
        return min(int(r["episodes"]) for r in self.rows)

    @cached_property
    def worlds(self) -> list[str]:
        """Worlds at that K."""
        return list(dict.fromkeys(str(r["world"]) for r in self.rows if r["episodes"] == self.episodes))

    @cached_property
    def epsilons(self) -> list[float]:
        """All asked epsilons."""
        return sorted({float(r["epsilon"]) for r in self.rows if r["epsilon"] is not None})

    def row(
        self, agent: str, world: str, epsilon: float | None = None, kind: str = "", episodes: int | None = None
    ) -> Mapping[str, Any] | None:
        """The one row of these, or None."""
        K = self.episodes if episodes is None else episodes  # noqa: N806
        found = [
            r
            for r in self.rows
            if (r["agent"], r["world"], r["epsilon"], r["episodes"]) == (agent, world, epsilon, K)
            and (not kind or kind_of(r) == kind)
        ]
        return found[0] if found else None

    def need(self, agent: str, world: str, epsilon: float | None = None, kind: str = "") -> Mapping[str, Any]:
        """The same where there must be one.

        Raises
        ------
        ValueError
            If there is none: the rows are not those of this study.
        """
        found = self.row(agent, world, epsilon, kind)
        if found is None:
            raise ValueError(f"no row of {agent} {kind} at epsilon {epsilon} in {world}")
        return found

    def ratio(self, agent: str, world: str, epsilon: float | None = None, kind: str = "") -> float:
        """Mean regret in parts of the zero controller's."""
        return float(self.need(agent, world, epsilon, kind)["mean"]) / float(self.need("zero", world)["mean"])


def claims(rows: Rows) -> list[dict[str, Any]]:
    """Every claim with its verdict, regime, rule, and the verdicts by variant."""
    e = Evidence(rows)
    at = f"at K = {e.episodes:,}"
    sure = f"{SURE:.0f} standard errors"
    private: list[tuple[str, str, Callable[[Evidence, str], Verdict]]] = [
        (
            "Private-OFU-RL is (ε, δ)-jointly private at the asked ε",
            "ε recomputed from the noise drawn, over both counters, replace-one, is at most what was asked",
            _private,
        ),
        (
            f"Private-OFU-RL learns {at}",
            f"mean regret is below the zero controller's by more than {sure}, at some ε in some world",
            _learns,
        ),
        (
            "less privacy costs less regret",
            f"the largest ε loses less than the smallest by more than {sure} in most worlds",
            _ordered,
        ),
        (
            "Private-OFU-RL beats a fixed gain from a model that is 30 % wrong",
            "mean regret is smaller in most worlds, at the largest ε",
            _beats_fixed,
        ),
    ]
    others: list[tuple[str, str, Callable[[Evidence], Verdict]]] = [
        (
            f"OFU-RL, without privacy, is far below the zero controller {at}",
            f"mean regret is at most {FAR:g} of the zero controller's in every world",
            _plain_learns,
        ),
        (
            "dp-lqr, one release of as many logged episodes, is far below it at every ε (ours)",
            f"mean regret is at most {FAR:g} of the zero controller's in every world; logs cost no regret",
            lambda e: _everywhere(e, "dp-lqr", FAR),
        ),
        (
            "explore-then-commit, exploration counted, is below it at every ε (ours)",
            "mean regret is below the zero controller's in every world",
            lambda e: _everywhere(e, "explore-then-commit", 1.0),
        ),
    ]
    found = [_by_variant(e, *one) for one in private]
    return [*found, *(_alone(e, *one) for one in others)]


def _by_variant(e: Evidence, claim: str, rule: str, judge: Callable[[Evidence, str], Verdict]) -> dict[str, Any]:
    each = {v: judge(e, v) for v in VARIANTS}
    holds, regime = each[VARIANTS[0]]
    by_variant = [{"variant": v, "holds": h, "regime": r} for v, (h, r) in each.items()]
    return {"claim": claim, "holds": holds, "regime": regime, "rule": rule, "variants": by_variant}


def _alone(e: Evidence, claim: str, rule: str, judge: Callable[[Evidence], Verdict]) -> dict[str, Any]:
    holds, regime = judge(e)
    return {"claim": claim, "holds": holds, "regime": regime, "rule": rule, "variants": []}


def _private(e: Evidence, kind: str) -> Verdict:
    rows = [e.need("private-ofu-rl", w, eps, kind) for w in e.worlds for eps in e.epsilons]
    worst = max(float(r["true_epsilon"]) / float(r["epsilon"]) for r in rows)
    return worst <= 1 + 1e-9, f"at most {number(worst, 3, 'up')} × the asked ε, if x, x' and u are cut to their balls"


def _learns(e: Evidence, kind: str) -> Verdict:
    cells = [(w, eps) for w in e.worlds for eps in e.epsilons]
    won = [c for c in cells if _surely_below(e.need("private-ofu-rl", *c, kind), e.need("zero", c[0]))]
    rows = [e.need("private-ofu-rl", *c, kind) for c in cells]
    left = sum(r["facts"]["left_zero_at"] is not None for r in rows)
    regime = f"below in {len(won)} of {len(cells)} (world, ε)"
    return bool(won), f"{regime}; it {'never leaves the zero gain' if not left else f'leaves zero in {left} of them'}"


def _ordered(e: Evidence, kind: str) -> Verdict:
    ends = [[e.need("private-ofu-rl", w, eps, kind) for eps in (e.epsilons[-1], e.epsilons[0])] for w in e.worlds]
    won = sum(_surely_below(large, small) for large, small in ends)
    same = sum(large["mean"] == small["mean"] for large, small in ends)
    return 2 * won > len(ends), f"in {won} of {len(ends)} worlds; the two are equal in {same}"


def _beats_fixed(e: Evidence, kind: str) -> Verdict:
    eps = e.epsilons[-1]
    times = [e.ratio("private-ofu-rl", w, eps, kind) / e.ratio("fixed-gain", w) for w in e.worlds]
    return 2 * sum(t < 1 for t in times) > len(times), (
        f"at ε = {number(eps)} its regret is {number(min(times), 2)} to {number(max(times), 2)} times as large"
    )


def _plain_learns(e: Evidence) -> Verdict:
    ratios = [e.ratio("ofu-rl", w) for w in e.worlds]
    return max(ratios) <= FAR, f"{number(min(ratios), 2)} to {number(max(ratios), 2)} of it"


def _everywhere(e: Evidence, agent: str, part: float) -> Verdict:
    by_epsilon = {eps: [e.ratio(agent, w, eps) for w in e.worlds] for eps in e.epsilons}
    said = "; ".join(
        f"ε = {number(k)}: {number(min(v), 2)} to {number(max(v), 2)} of it" for k, v in by_epsilon.items()
    )
    return max(max(v) for v in by_epsilon.values()) <= part, said


def _surely_below(low: Mapping[str, Any], high: Mapping[str, Any]) -> bool:
    se = sum(float(r["std"]) ** 2 / int(r["runs"]) for r in (low, high)) ** 0.5
    # equal up to a rounding is no difference, however small its standard error
    return float(high["mean"]) - float(low["mean"]) > max(SURE * se, 1e-9 * float(high["mean"]))
