"""Paper 002, Table I: regret of one planner under four trust models, beside SDP-PE, against K and epsilon.

Everybody plays the same two worlds, learns the rewards as well as the transitions, and has the same (epsilon, delta).
Counts are drawn batch by batch and never episodes, so that 10^9 of them cost what 10^4 do.

The table lists upper bounds over all worlds; here are two worlds.  A bound that is not met from below is no error of
the paper: it says how far the worst case is from these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.declaration.numbers import number
from pipeline.simulation.trial import Trial
from pipeline.studies.study import Budget, Claim, Judged, Options, Place, Verdict, online, sweep
from pipeline.studies.study_rows import SURE, Found, Rows, surely_below, true_share

DELTA = 1e-5
EPISODES = (10**4, 10**5, 10**6, 10**7, 10**8, 10**9)
BUDGETS, AT = (0.1, 0.3, 1.0, 3.0, 10.0), 10**7
RUNS, MORE_RUNS = 10, 40
WORLDS: tuple[Place, ...] = (
    ("riverswim_homogeneous", (("states", 3),)),
    ("random", (("actions", 2), ("horizon", 3), ("seed", 5), ("states", 2), ("successors", 2))),
)
PLANNERS = ("ucbvi", "dp-ucbvi-jdp", "counts-shuffle", "dp-ucbvi-ldp")
PRIVATE = (*PLANNERS[1:], "sdp-pe")
NONE, JOINT, SHUFFLE, LOCAL, PE, PE_NONE = "none", "joint", "shuffle", "local", "SDP-PE", "SDP-PE, no noise"
MODELS = (NONE, JOINT, SHUFFLE, LOCAL)
# slopes are read from this K on, where every planner has left its start
FROM = 10**6
# a slope is "about" a number within this much
ABOUT = 0.2

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def grid(
    episodes: Sequence[int] = EPISODES, budgets: Sequence[float] = BUDGETS, runs: int = RUNS, at: int = AT
) -> list[Trial]:
    """All K at epsilon = 1, all epsilon at K = ``at``; SDP-PE without noise and uniform choice beside."""
    one, others = [_asked(1.0)], [_asked(e) for e in budgets if e != 1.0]
    found = [t for agent in ("ucbvi", "sdp-pe") for t in sweep(WORLDS, episodes, [_told(agent, True)], seeds=runs)]
    for agent in PRIVATE:
        for world in WORLDS:
            found += sweep([world], episodes, [_told(agent)], one, runs)
            found += sweep([world], [at], [_told(agent)], others, runs)
    return found + sweep(WORLDS, episodes, ["uniform"])


def full_grid() -> list[Trial]:
    """The same with more runs."""
    return grid(runs=MORE_RUNS)


def _asked(epsilon: float) -> Budget:
    return Budget(epsilon, DELTA, "tight")


def _told(agent: str, exact: bool = False) -> tuple[str, Options]:
    if agent != "sdp-pe":
        # joint noise with the bonus and batches of shuffled counts: the trust model alone differs
        alike: Options = (("c", 0.4), ("visits", 1.0)) if agent == "dp-ucbvi-jdp" else ()
        return agent, (*alike, ("rewards", "learnt"))
    # its linear programme is checked in its own study
    return agent, (("certify", 0), *((("trust", "none"),) if exact else ()))


@dataclass(frozen=True)
class Evidence:
    """Points of one study, found by world, model, K and epsilon.

    Parameters
    ----------
    rows
        Gathered rows of this study.
    """

    rows: Rows

    @cached_property
    def points(self) -> dict[tuple[str, str, int, float | None], Found]:
        """All measured points; without privacy epsilon is None."""
        return {(str(r["world"]), model_of(r), int(r["episodes"]), r["epsilon"]): r for r in self.rows}

    @cached_property
    def worlds(self) -> list[str]:
        """In the order of the grid."""
        return list(dict.fromkeys(at[0] for at in self.points))

    @cached_property
    def episodes(self) -> list[int]:
        """All K at epsilon = 1."""
        return sorted({at[2] for at in self.points if at[1] == JOINT and at[3] == 1.0})

    @cached_property
    def budgets(self) -> list[float]:
        """All epsilon of the grid, and :attr:`at` is where they were tried."""
        return sorted({at[3] for at in self.points if at[3] is not None})

    @cached_property
    def at(self) -> int:
        """K at which every epsilon was tried."""
        tried = {K: {at[3] for at in self.points if at[1] == JOINT and at[2] == K} for K in self.episodes}
        return max(tried, key=lambda count: len(tried[count]))

    def point(self, world: str, model: str, K: int, epsilon: float = 1.0) -> Found:  # noqa: N803
        """One point; of a model without privacy whatever epsilon says."""
        return self.points[world, model, K, None if model in (NONE, PE_NONE, "uniform") else epsilon]

    def cost(self, world: str, model: str, K: int, epsilon: float = 1.0) -> float:  # noqa: N803
        """What privacy costs: mean regret beyond that of the same planner without noise, at least 1e-9."""
        base = PE_NONE if model == PE else NONE
        return max(self.point(world, model, K, epsilon)["mean"] - self.point(world, base, K)["mean"], 1e-9)

    def slope_in_episodes(self, world: str, model: str, *, cost: bool) -> float:
        """Exponent of K from :data:`FROM` on, of the regret or of what privacy costs."""
        K = [k for k in self.episodes if k >= FROM]  # noqa: N806
        y = [self.cost(world, model, k) if cost else self.point(world, model, k)["mean"] for k in K]
        return exponent(K, y)

    def slope_in_loss(self, world: str, model: str) -> float:
        """Exponent of 1/epsilon in what privacy costs at :attr:`at`."""
        return exponent([1 / e for e in self.budgets], [self.cost(world, model, self.at, e) for e in self.budgets])


def model_of(row: Found) -> str:
    """The line of the figure a row belongs to."""
    if row["variant"] == "control":
        return str(row["agent"])
    if row["agent"] == "sdp-pe":
        return PE_NONE if row["epsilon"] is None else PE
    return str(row["trust"])


def power(K: int) -> str:  # noqa: N803
    """A power of ten as it is written, e.g. 10⁴; other numbers in digits."""
    e = len(str(K)) - 1
    return f"10{str(e).translate(_RAISED)}" if 10**e == K else f"{K:,}"


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Least-squares slope of log y over log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _private(e: Evidence, world: str) -> Verdict:
    mine = [r for at, r in e.points.items() if at[0] == world and at[3] is not None]
    ratio = max(map(true_share, mine))
    return ratio <= 1 + 1e-9, f"at most {number(ratio, 3, 'up')} × the asked ε"


def _below(slope: float, bound: float) -> Verdict:
    return slope < bound, f"exponent {number(slope, 2)}"


def _about(slope: float, target: float) -> Verdict:
    return abs(slope - target) <= ABOUT, f"exponent {number(slope, 2)}"


def _per_loss(model: str) -> Callable[[Evidence, str], Verdict]:
    return lambda e, world: _about(e.slope_in_loss(world, model), 1.0)


def _comparable(e: Evidence, world: str) -> Verdict:
    ratios = [e.point(world, SHUFFLE, K)["mean"] / e.point(world, JOINT, K)["mean"] for K in e.episodes if K >= FROM]
    return max(ratios) <= 2, f"{number(min(ratios), 2)} to {number(max(ratios), 2)} times"


def _beats(low: str, high: str) -> Callable[[Evidence, str], Verdict]:
    def judge(e: Evidence, world: str) -> Verdict:
        pairs = [(e.point(world, low, K), e.point(world, high, K)) for K in e.episodes]
        won = [a for a, b in pairs if surely_below(a, b)]
        ratios = [b["mean"] / a["mean"] for a, b in pairs]
        first, last = number(ratios[0], 2), number(ratios[-1], 2)
        said = f"at {len(won)} of {len(pairs)} K; {first} times less at the smallest, {last} at the largest"
        return len(won) == len(pairs), said

    return judge


def claims(rows: Rows) -> list[Judged]:
    """Every claim with its verdict, regime, rule, and the verdicts by world."""
    e = Evidence(rows)
    last, sure = e.episodes[-1], f"{SURE:.0f} standard errors"
    fit = f"least squares of logarithms over K from {power(FROM)} to {power(last)}"
    judged: list[Claim[Evidence]] = [
        Claim(
            "the noise gives the ε that was asked",
            "ε recomputed from what was drawn is at most the asked one",
            _private,
        ),
        Claim(
            "joint privacy costs a sum that does not grow with K",
            f"exponent of K in the regret beyond the non-private one is below {ABOUT:g}; {fit}",
            lambda e, w: _below(e.slope_in_episodes(w, JOINT, cost=True), ABOUT),
        ),
        Claim(
            "local privacy costs √K",
            f"the same exponent is within {ABOUT:g} of 1/2",
            lambda e, w: _about(e.slope_in_episodes(w, LOCAL, cost=True), 0.5),
        ),
        Claim(
            "shuffle privacy costs a sum that does not grow with K: counts-shuffle",
            f"the same exponent is below {ABOUT:g}",
            lambda e, w: _below(e.slope_in_episodes(w, SHUFFLE, cost=True), ABOUT),
        ),
        Claim(
            "the same of SDP-PE",
            f"the same exponent, beyond SDP-PE without noise, is below {ABOUT:g}",
            lambda e, w: _below(e.slope_in_episodes(w, PE, cost=True), ABOUT),
        ),
        *(
            Claim(
                f"{name} privacy costs 1/ε",
                f"exponent of 1/ε in that cost at K = {power(e.at)} is within {ABOUT:g} of 1",
                _per_loss(model),
            )
            for name, model in (("joint", JOINT), ("shuffle", SHUFFLE), ("local", LOCAL))
        ),
        Claim(
            "shuffle is comparable to joint",
            f"counts-shuffle's mean regret is at most twice joint's at every K from {power(FROM)} on",
            _comparable,
        ),
        Claim(
            "shuffle is far better than local",
            f"counts-shuffle's regret is below local's by more than {sure} at every K",
            _beats(SHUFFLE, LOCAL),
        ),
        Claim(
            "SDP-PE is far better than local",
            f"SDP-PE's regret is below local's by more than {sure} at every K",
            _beats(PE, LOCAL),
        ),
        Claim(
            "policy elimination is worth it under shuffle privacy",
            f"SDP-PE's regret is below counts-shuffle's by more than {sure} at every K",
            _beats(PE, SHUFFLE),
        ),
        Claim(
            "without privacy regret grows like √K",
            f"exponent of K in UCBVI's regret is within {ABOUT:g} of 1/2; {fit}",
            lambda e, w: _about(e.slope_in_episodes(w, NONE, cost=False), 0.5),
        ),
    ]
    return [c.verdict(e, e.worlds, None) for c in judged]


STUDY = online("paper-002", grid, full_grid)
