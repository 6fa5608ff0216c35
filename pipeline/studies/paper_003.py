"""Paper 003, Section 6: DP-VAPVI beside VAPVI and PEVI in the linear world of its Appendix F.

| contender | features | noise | shift of the Gram |
|---|---|---|---|
| ``literal`` | as printed, norm^2 up to 7 | as printed | E/2, as printed |
| ``normalised`` | over sqrt(7) | as printed | E/2 |
| ``centred`` | over sqrt(7) | tight, targets less their mid-range | edge of the spectrum |
| ``one-shot`` | over sqrt(7) | tight, one non-adaptive release | edge of the spectrum |

Claims are judged on the paper's own setting (features and noise as printed); the same rule on the other variants says
where a claim would hold.  The paper prints neither rho nor beta nor C, so a verdict here contradicts nobody's figure:
it says under which reading the sentence is true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile

from pipeline.declaration.numbers import number
from pipeline.simulation import linear_trials
from pipeline.simulation.linear_trials import Cell, Contender
from pipeline.simulation.trial import Row
from pipeline.studies.study import Claim, Judged, Study, Verdict
from pipeline.studies.study_rows import SURE

# (agent, variant, asked rho)
Key = tuple[str, str, float | None]


@dataclass(frozen=True)
class Point:
    """Mean of equally weighted worlds; ``sd`` of all runs (worlds differ too), ``se`` of the mean, worlds fixed."""

    mean: float
    sd: float
    se: float
    ties: float | None


Curve = dict[int, Point]


def pooled(rows: Sequence[Row]) -> dict[Key, Curve]:
    """Curves by agent, variant and asked rho, in the order of the rows."""
    found: dict[Key, dict[int, list[Row]]] = {}
    for row in rows:
        curve = found.setdefault((row["agent"], row["variant"], row["rho"]), {})
        curve.setdefault(int(row["episodes"]), []).append(row)
    return {key: {K: _point(curve[K]) for K in sorted(curve)} for key, curve in found.items()}


def _point(rows: Sequence[Row]) -> Point:
    worlds, runs = len(rows), sum(int(r["runs"]) for r in rows)
    mean = sum(float(r["mean"]) for r in rows) / worlds
    inside = sum((int(r["runs"]) - 1) * float(r["std"]) ** 2 for r in rows)
    between = sum(int(r["runs"]) * (float(r["mean"]) - mean) ** 2 for r in rows)
    se = math.sqrt(sum(float(r["std"]) ** 2 / int(r["runs"]) for r in rows)) / worlds
    ties = [float(r["tie_share"]) for r in rows if r["tie_share"] is not None]
    sd = math.sqrt((inside + between) / (runs - 1)) if runs > 1 else 0.0
    return Point(mean, sd, se, sum(ties) / len(ties) if ties else None)


def where(kept: Sequence[int], all_of_them: Sequence[int]) -> str:
    """Which of the grid's K are kept, in words: everywhere, nowhere, from one on, up to one, between two, or a list."""
    inside = [K for K in sorted(all_of_them) if K in set(kept)]
    if not inside:
        return "nowhere"
    first, last = inside[0], inside[-1]
    within = [K for K in all_of_them if first <= K <= last]
    if len(inside) == 1:
        return f"at K = {first:,} only"
    if len(within) > len(inside):
        return f"at K = {', '.join(f'{K:,}' for K in inside)}"
    if len(inside) == len(all_of_them):
        return "at every K"
    if last == max(all_of_them):
        return f"from K = {first:,}"
    return f"at K = {first:,} to {last:,}"


EPISODES = (5, 20, 50, 100, 200, 500, 1000, 5000, 10_000, 100_000)
MORE_EPISODES = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 1_000_000)
BUDGETS = (1.0, 5.0, 25.0)
# worlds 0 and 1 also served to choose the constants; the others did not
WORLDS, MORE_WORLDS = (0, 1), (0, 1, 2, 3, 4)
RUNS, MORE_RUNS = 20, 50
CONTROLS = ("uniform", "behaviour", "always-first")
PAPER, VARIANTS = "literal", ("literal", "normalised", "centred", "one-shot")
# "slightly": at most this share of what a policy chosen uniformly at random loses
SLIGHT = 0.1
RANGE = 1000
LEARNERS = (
    Contender("vapvi", "literal", "literal"),
    Contender("vapvi", "normalised"),
    Contender("pevi", "literal, matched β", "literal", beta="matched"),
    Contender("pevi", "literal, theory β", "literal", beta="theory"),
    Contender("pevi", "normalised, matched β", beta="matched"),
    Contender("pevi", "normalised, theory β", beta="theory"),
    Contender("dp-vapvi", "literal", "literal"),
    Contender("dp-vapvi", "normalised"),
    Contender("dp-vapvi", "centred", release="centred"),
    Contender("dp-vapvi", "one-shot", release="one_shot"),
)


def grid(
    episodes: Sequence[int] = EPISODES,
    budgets: Sequence[float] = BUDGETS,
    worlds: Sequence[int] = WORLDS,
    runs: int = RUNS,
) -> list[Cell]:
    """All cells: learners without noise, private ones at each budget, controls; each at every K in every world."""
    asked = [(x.agent, x, rho) for x in LEARNERS for rho in (budgets if x.agent == "dp-vapvi" else (None,))]
    asked += [(name, None, None) for name in CONTROLS]
    return [Cell(*one, K, world, runs) for one in asked for K in episodes for world in worlds]


def full_grid() -> list[Cell]:
    """The same with more episodes, worlds and runs."""
    return grid(MORE_EPISODES, BUDGETS, MORE_WORLDS, MORE_RUNS)


@dataclass(frozen=True)
class Evidence:
    """Curves of one study, found by name.

    Parameters
    ----------
    rows
        What was measured of each cell.
    """

    rows: Sequence[Row]

    @cached_property
    def curves(self) -> dict[Key, Curve]:
        """Rows pooled over worlds."""
        return pooled(self.rows)

    @cached_property
    def episodes(self) -> list[int]:
        """All K of the grid."""
        return sorted({int(r["episodes"]) for r in self.rows})

    @cached_property
    def budgets(self) -> list[float]:
        """All asked rho of the grid."""
        return sorted({float(r["rho"]) for r in self.rows if r["rho"] is not None})

    @cached_property
    def variants(self) -> list[str]:
        """Variants of DP-VAPVI that were measured."""
        return [v for v in VARIANTS if any(key[:2] == ("dp-vapvi", v) for key in self.curves)]

    def private(self, variant: str, rho: float) -> Curve:
        """DP-VAPVI of a variant at an asked budget."""
        return self.curves["dp-vapvi", variant, rho]

    def plain(self, agent: str, variant: str, beta: str = "") -> Curve:
        """A baseline on the features the variant uses."""
        features = "literal" if variant == "literal" else "normalised"
        return self.curves[agent, f"{features}, {beta} β" if beta else features, None]

    @property
    def uniform(self) -> Curve:
        """The policy that looks at nothing."""
        return self.curves["uniform", "control", None]

    def slight(self, variant: str, rho: float) -> list[int]:
        """K where the gap to VAPVI is slight."""
        dp, plain = self.private(variant, rho), self.plain("vapvi", variant)
        return [K for K in self.episodes if dp[K].mean - plain[K].mean <= SLIGHT * self.uniform[K].mean]

    def slight_from(self, variant: str, rho: float) -> int | None:
        """Smallest K from which the gap is slight to the end of the grid."""
        kept = set(self.slight(variant, rho))
        lasting = list(takewhile(kept.__contains__, reversed(self.episodes)))
        return lasting[-1] if lasting else None


def _private(e: Evidence, variant: str) -> Verdict:
    mine = [r for r in e.rows if r["agent"] == "dp-vapvi" and r["variant"] == variant]
    rhos = [(r["rho"], r["true_rho"]) for r in mine]
    pairs = sorted({(asked, true) for asked, true in rhos if asked is not None and true is not None})
    ratio = max(true / asked for asked, true in pairs)
    spent = ", ".join(f"{number(t, 3, 'up')} for {number(a)}" for a, t in pairs)
    return ratio <= 1 + 1e-9, f"spends {number(ratio, 3, 'up')} × the asked ρ: {spent}"


def _slightly(e: Evidence, variant: str) -> Verdict:
    within = [K for K in e.episodes if K <= RANGE]
    slight = {rho: [K for K in e.slight(variant, rho) if K <= RANGE] for rho in e.budgets}
    holds = any(2 * len(found) > len(within) for found in slight.values())
    return holds, _per_budget({rho: where(found, within) for rho, found in slight.items()}, f"up to {RANGE:,}: ")


def _converges(e: Evidence, variant: str) -> Verdict:
    first = {rho: e.slight_from(variant, rho) for rho in e.budgets}
    said = {rho: f"not by {e.episodes[-1]:,}" if K is None else f"from K = {K:,}" for rho, K in first.items()}
    return all(K is not None for K in first.values()), _per_budget(said)


def _ordered(e: Evidence, variant: str) -> Verdict:
    curves = [e.private(variant, rho) for rho in e.budgets]
    closer = [K for K in e.episodes if surely_below(curves[-1][K], curves[0][K])]
    against = [K for K in e.episodes if any(surely_below(small[K], large[K]) for small, large in pairwise(curves))]
    regime = f"ρ = {number(e.budgets[-1])} loses less than ρ = {number(e.budgets[0])} {where(closer, e.episodes)}"
    if against:
        regime += f"; the order is reversed {where(against, e.episodes)}"
    return 2 * len(closer) > len(e.episodes) and not against, regime


def _beats(beta: str) -> Callable[[Evidence, str], Verdict]:
    def judge(e: Evidence, variant: str) -> Verdict:
        pevi = e.plain("pevi", variant, beta)
        won = {rho: [K for K in e.episodes if surely_below(e.private(variant, rho)[K], pevi[K])] for rho in e.budgets}
        cells, total = sum(map(len, won.values())), len(won) * len(e.episodes)
        hollow = sum(pevi[K].mean >= e.uniform[K].mean for found in won.values() for K in found)
        regime = f"{cells} of {total} cells"
        if cells:
            regime += ": " + _per_budget({rho: where(found, e.episodes) for rho, found in won.items()})
            regime += f"; in {hollow} of them uniform choice beats that PEVI too"
        return 2 * cells > total, regime

    return judge


def _weighting(e: Evidence, variant: str) -> Verdict:
    plain, pevi = e.plain("vapvi", variant), e.plain("pevi", variant, "matched")
    won = [K for K in e.episodes if surely_below(plain[K], pevi[K])]
    largest = max(abs(plain[K].mean - pevi[K].mean) for K in e.episodes)
    regime = f"VAPVI loses less {where(won, e.episodes)}; the two differ by at most {number(largest, 2)}"
    return 2 * len(won) > len(e.episodes), regime


def surely_below(low: Point, high: Point) -> bool:
    """Whether ``low`` loses less by more than chance would show."""
    return high.mean - low.mean > SURE * (low.se**2 + high.se**2) ** 0.5


def _per_budget(said: Mapping[float, str], lead: str = "") -> str:
    """Budgets that share a verdict stand together."""
    by_words: dict[str, list[str]] = {}
    for rho, words in said.items():
        by_words.setdefault(words, []).append(number(rho))
    if len(by_words) == 1:
        return f"{lead}{next(iter(by_words))}, whatever ρ"
    return lead + "; ".join(f"ρ = {', '.join(rhos)}: {words}" for words, rhos in by_words.items())


def claims(rows: Sequence[Row]) -> list[Judged]:
    """Every claim with its verdict, regime, rule, and the verdicts by variant."""
    e = Evidence(rows)
    tenth = f"{100 * SLIGHT:.0f} % of what uniform choice loses ({number(SLIGHT * e.uniform[e.episodes[-1]].mean, 2)})"
    sure = f"{SURE:.0f} standard errors"
    judged: list[Claim[Evidence]] = [
        Claim(
            "the printed noise gives the asked ρ",
            "the loss recomputed from printed scales, features and clips is at most what was asked",
            _private,
        ),
        Claim(
            f"DP-VAPVI is only slightly worse than VAPVI at K up to {RANGE:,}",
            f"at some ρ of the grid, for most K up to {RANGE:,}, mean loss exceeds VAPVI's by at most {tenth}",
            _slightly,
        ),
        Claim(
            "DP-VAPVI converges to VAPVI",
            f"at every ρ, at the largest K, mean loss exceeds VAPVI's by at most {tenth}",
            _converges,
        ),
        Claim(
            "a larger ρ is closer to VAPVI",
            f"the largest ρ loses less than the smallest by more than {sure} at most K, "
            "and no ρ loses more than the next smaller one by as much",
            _ordered,
        ),
        *(
            Claim(
                f"DP-VAPVI beats PEVI in most cases, {words}",
                f"mean loss is below PEVI's by more than {sure} at most (ρ, K)",
                _beats(beta),
            )
            for beta, words in (("theory", "β = c d H √log"), ("matched", "β = C √d, as VAPVI's"))
        ),
        Claim(
            "the advantage over PEVI comes from weighting by variance",
            f"without noise and at the same multiplier VAPVI loses less than PEVI by more than {sure} at most K",
            _weighting,
        ),
    ]
    return [c.verdict(e, e.variants, PAPER) for c in judged]


STUDY = Study("paper-003", grid, full_grid, linear_trials.measure, lambda _: (linear_trials.__name__,))
