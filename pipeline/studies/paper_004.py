"""Paper 004: Private-OFU-RL beside OFU-RL, what learns nothing, and one release instead of a tree.

The paper has theorems and no experiment.  Worlds: five systems of the sizes and norms of Assumption 1, and a damped
double integrator; delta = 1e-5, alpha = 0.05, a new plan whenever the episodes have grown by 1.2.  Every agent of a
(world, K, run) meets the same plant noise.  Up to K = 10^4 every episode is simulated; longer stretches of one plan are
4 096 simulated episodes and exact means (:class:`~pipeline.mdp.rollout.LqBatch`).

Claims are judged at the K of the rows, on the printed noise; the same rule on our calibrations says whether less noise
would change the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pipeline.declaration.numbers import number
from pipeline.simulation.trial import Calibration, Trial
from pipeline.studies.study import Budget, Claim, Judged, Options, Place, Verdict, online, sweep
from pipeline.studies.study_rows import SURE, Found, Rows, surely_below, true_share

DELTA, EPISODES = 1e-5, 10_000
EPSILONS = (0.5, 1.0, 4.0)
WORLDS: tuple[Place, ...] = (
    *(("lq", (("instance", i),)) for i in range(1, 6)),
    ("double_integrator", ()),
)
# where Private-OFU-RL is followed until it leaves zero
LONG, MORE_EPISODES = WORLDS[:1] + WORLDS[4:5], (100_000, 1_000_000, 10_000_000, 100_000_000)
RUNS, PRIVATE_RUNS, MORE_RUNS = 10, 5, 3
EPOCHS: Options = (("counter", "epochs"), ("growth", 2.0))
PRIVATE: tuple[tuple[Calibration, Options], ...] = (("paper", ()), ("tight", ()), ("tight", EPOCHS))
# one run is far below another's regret where it is at most this part of it
FAR = 0.5
VARIANTS = ("paper", "tight", "one release a plan")


def grid(
    worlds: Sequence[Place] = WORLDS,
    episodes: Sequence[int] = (EPISODES,),
    runs: int = RUNS,
    private_runs: int = PRIVATE_RUNS,
) -> list[Trial]:
    """Every agent at every K in every world; the private ones at each epsilon."""
    found: list[Trial] = []
    for place in ([w] for w in worlds):
        for at in ([K] for K in episodes):
            found += sweep(place, at, ("zero", "certainty-equivalence"))
            found += sweep(place, at, ("fixed-gain", "ofu-rl"), seeds=runs)
            for e in EPSILONS:
                for calibration, options in PRIVATE:
                    asked = [Budget(e, DELTA, calibration)]
                    found += sweep(place, at, [("private-ofu-rl", options)], asked, private_runs)
                found += sweep(place, at, ("dp-lqr", "explore-then-commit"), [Budget(e, DELTA, "tight")], runs)
    return found


def full_grid() -> list[Trial]:
    """The same with more runs, and two worlds up to the K at which Private-OFU-RL leaves zero.

    dp-lqr is left out there: logs of as many episodes say nothing new from 10^5 on.
    """
    more = [t for t in grid(LONG, MORE_EPISODES, MORE_RUNS, MORE_RUNS) if t.agent != "dp-lqr"]
    return grid(runs=2 * RUNS, private_runs=2 * PRIVATE_RUNS) + more


def kind_of(row: Found) -> str:
    """Which of :data:`VARIANTS` a row of Private-OFU-RL is."""
    return VARIANTS[2] if "one release a plan" in row["variant"] else str(row["calibration"])


@dataclass(frozen=True)
class Evidence:
    """Rows of one study, found by name; ``episodes`` is the K at which claims are judged.

    Parameters
    ----------
    rows
        Gathered rows of this study.
    """

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
    ) -> Found | None:
        """The one row of these, or None."""
        K = self.episodes if episodes is None else episodes  # noqa: N806
        found = [
            r
            for r in self.rows
            if (r["agent"], r["world"], r["epsilon"], r["episodes"]) == (agent, world, epsilon, K)
            and (not kind or kind_of(r) == kind)
        ]
        return found[0] if found else None

    def need(self, agent: str, world: str, epsilon: float | None = None, kind: str = "") -> Found:
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


def _private(e: Evidence, kind: str) -> Verdict:
    rows = [e.need("private-ofu-rl", w, eps, kind) for w in e.worlds for eps in e.epsilons]
    worst = max(map(true_share, rows))
    return worst <= 1 + 1e-9, f"at most {number(worst, 3, 'up')} × the asked ε, if x, x' and u are cut to their balls"


def _learns(e: Evidence, kind: str) -> Verdict:
    cells = [(w, eps) for w in e.worlds for eps in e.epsilons]
    won = [c for c in cells if _clearly_below(e.need("private-ofu-rl", *c, kind), e.need("zero", c[0]))]
    rows = [e.need("private-ofu-rl", *c, kind) for c in cells]
    left = sum(r["facts"].get("left_zero_at") is not None for r in rows)
    regime = f"below in {len(won)} of {len(cells)} (world, ε)"
    return bool(won), f"{regime}; it {'never leaves the zero gain' if not left else f'leaves zero in {left} of them'}"


def _ordered(e: Evidence, kind: str) -> Verdict:
    ends = [[e.need("private-ofu-rl", w, eps, kind) for eps in (e.epsilons[-1], e.epsilons[0])] for w in e.worlds]
    won = sum(_clearly_below(large, small) for large, small in ends)
    same = sum(large["mean"] == small["mean"] for large, small in ends)
    return 2 * won > len(ends), f"in {won} of {len(ends)} worlds; the two are equal in {same}"


def _beats_fixed(e: Evidence, kind: str) -> Verdict:
    eps = e.epsilons[-1]
    times = [e.ratio("private-ofu-rl", w, eps, kind) / e.ratio("fixed-gain", w) for w in e.worlds]
    return 2 * sum(t < 1 for t in times) > len(times), (
        f"at ε = {number(eps)} its regret is {number(min(times), 2)} to {number(max(times), 2)} times as large"
    )


def _plain_learns(e: Evidence, _: str) -> Verdict:
    ratios = [e.ratio("ofu-rl", w) for w in e.worlds]
    return max(ratios) <= FAR, f"{number(min(ratios), 2)} to {number(max(ratios), 2)} of it"


def _everywhere(e: Evidence, agent: str, part: float) -> Verdict:
    by_epsilon = {eps: [e.ratio(agent, w, eps) for w in e.worlds] for eps in e.epsilons}
    said = "; ".join(
        f"ε = {number(k)}: {number(min(v), 2)} to {number(max(v), 2)} of it" for k, v in by_epsilon.items()
    )
    return max(max(v) for v in by_epsilon.values()) <= part, said


def _clearly_below(low: Found, high: Found) -> bool:
    # equal up to a rounding is no difference, however small its standard error
    return surely_below(low, high) and float(high["mean"]) - float(low["mean"]) > 1e-9 * float(high["mean"])


def claims(rows: Rows) -> list[Judged]:
    """Every claim with its verdict, regime, rule, and the verdicts by variant."""
    e = Evidence(rows)
    at = f"at K = {e.episodes:,}"
    sure = f"{SURE:.0f} standard errors"
    private: list[Claim[Evidence]] = [
        Claim(
            "Private-OFU-RL is (ε, δ)-jointly private at the asked ε",
            "ε recomputed from the noise drawn, over both counters, replace-one, is at most what was asked",
            _private,
        ),
        Claim(
            f"Private-OFU-RL learns {at}",
            f"mean regret is below the zero controller's by more than {sure}, at some ε in some world",
            _learns,
        ),
        Claim(
            "less privacy costs less regret",
            f"the largest ε loses less than the smallest by more than {sure} in most worlds",
            _ordered,
        ),
        Claim(
            "Private-OFU-RL beats a fixed gain from a model that is 30 % wrong",
            "mean regret is smaller in most worlds, at the largest ε",
            _beats_fixed,
        ),
    ]
    others: list[Claim[Evidence]] = [
        Claim(
            f"OFU-RL, without privacy, is far below the zero controller {at}",
            f"mean regret is at most {FAR:g} of the zero controller's in every world",
            _plain_learns,
        ),
        Claim(
            "dp-lqr, one release of as many logged episodes, is far below it at every ε (ours)",
            f"mean regret is at most {FAR:g} of the zero controller's in every world; logs cost no regret",
            lambda e, _: _everywhere(e, "dp-lqr", FAR),
        ),
        Claim(
            "explore-then-commit, exploration counted, is below it at every ε (ours)",
            "mean regret is below the zero controller's in every world",
            lambda e, _: _everywhere(e, "explore-then-commit", 1.0),
        ),
    ]
    found = [c.verdict(e, VARIANTS, VARIANTS[0]) for c in private]
    return [*found, *(c.verdict(e, (), None) for c in others)]


STUDY = online("paper-004", grid, full_grid)
