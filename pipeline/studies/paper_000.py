"""Paper 000, which prints theorems and no experiment: Private-LinOpt-VI and -PO, known and learnt rewards.

Both calibrations at delta = 1e-5, K = 10 000: RiverSwim of paper 001 with S = 3, the same with S = 5, and mixtures of
five known kernels over 8 and over 32 states, for the claim that regret does not depend on the number of states.

Its statements are judged on the tight calibration with known rewards; beside it the printed one, and learnt rewards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.declaration.numbers import number
from pipeline.simulation.trial import Trial
from pipeline.studies.paper_001 import DELTA, EPISODES, HOM, MIXTURE, RUNS, THREE
from pipeline.studies.study import Budget, Claim, Judged, Options, Place, Verdict, online, sweep
from pipeline.studies.study_rows import (
    LEARNT,
    SUBLINEAR,
    SURE,
    Found,
    Rows,
    as_asked,
    asked,
    end_loss,
    growth,
    learns,
    only,
    per,
    select,
    spread,
    standard_error,
    surely_below,
)

SMALL: Place = (HOM, THREE)
# chosen as paper_001.MIXTURE was
LARGE: Place = ("random_mixture", (("dimension", 5), ("seed", 28), ("states", 32), ("successors", 1)))
WIDE: Place = (HOM, (("states", 5),))
BUDGETS, MORE_BUDGETS = (1.0, 10.0), (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
VI, PO = "private-linopt-vi", "private-linopt-po"
KNOWN: Options = (("rewards", "known"),)
# calibration and rewards of each setting on which claims are judged
VARIANTS = {
    "tight, rewards known": ("tight", "known"),
    "tight, rewards learnt": ("tight", "learnt"),
    "paper, rewards known": ("paper", "known"),
    "paper, rewards learnt": ("paper", "learnt"),
}


def grid(runs: int = RUNS, episodes: int = EPISODES) -> list[Trial]:
    """All trials of the default run."""
    large = [
        t
        for agent in (VI, PO)
        for t in sweep([LARGE], [episodes], [(agent, KNOWN)], [Budget(e, DELTA, "tight") for e in BUDGETS], runs)
    ]
    return [
        *_beside(runs, episodes, (SMALL, MIXTURE, LARGE)),
        *_private(runs, episodes, BUDGETS, (SMALL, MIXTURE)),
        *large,
    ]


def full_grid(runs: int = RUNS) -> list[Trial]:
    """The same with more budgets, counters and S = 5."""
    counters: list[tuple[str, Options]] = [(VI, (("counter", name), *KNOWN)) for name in ("plain", "square-root")]
    places = (SMALL, WIDE, MIXTURE)
    return [
        *_beside(runs, EPISODES, (*places, LARGE)),
        *_private(runs, EPISODES, MORE_BUDGETS, places),
        *sweep([SMALL], [EPISODES], counters, [Budget(e, DELTA, "tight") for e in MORE_BUDGETS], runs),
    ]


def _beside(runs: int, episodes: int, places: tuple[Place, ...]) -> list[Trial]:
    found: list[Trial] = []
    for place in places:
        found += sweep([place], [episodes], ("uniform", "always-right") if place[0] == HOM else ("uniform",))
        found += sweep([place], [episodes], ("ucrl-vtr", "linopt-po"), seeds=runs)
        found += sweep([place], [episodes], [("no-data", (("of", VI),))], [Budget(1.0, DELTA, "tight")], runs)
    return found


def _private(runs: int, episodes: int, budgets: tuple[float, ...], places: tuple[Place, ...]) -> list[Trial]:
    agents: list[tuple[str, Options]] = [(a, (("rewards", r),)) for a in (VI, PO) for r in ("known", "learnt")]
    asked = [Budget(e, DELTA, "paper") for e in budgets] + [Budget(e, DELTA, "tight") for e in budgets]
    return sweep(places, [episodes], agents, asked, runs)


@dataclass(frozen=True)
class Evidence:
    """Rows of the study by variant.

    Parameters
    ----------
    rows
        Gathered rows of this study.
    """

    rows: Rows

    @property
    def river(self) -> str:
        """The world of the verdicts."""
        return next(str(r["world"]) for r in self.rows if "riverswim" in r["world"])

    @property
    def mixtures(self) -> list[str]:
        """Mixtures of kernels, by size."""
        found = dict.fromkeys(str(r["world"]) for r in self.rows if "mixture" in r["world"])
        return sorted(found, key=lambda world: "states" in world)

    def private(self, agent: str, variant: str, world: str | None = None) -> list[Found]:
        """A private agent by epsilon, with the default counter of its calibration."""
        calibration, rewards = VARIANTS[variant]
        found = select(self.rows, agent=agent, calibration=calibration, world=world or self.river)
        counter = "plain" if calibration == "paper" else "bottom-up"
        mine = (r for r in found if counter in r["variant"] and r["variant"].endswith(f"rewards {rewards}"))
        return sorted(mine, key=asked)


def _safe(e: Evidence, variant: str) -> Verdict:
    rows = [r for agent in (VI, PO) for r in e.private(agent, variant)]
    holds = all(as_asked(r) for r in rows)
    return holds, per(e.private(VI, variant), lambda r: f"{number(r['true_epsilon'], 3, 'up')} at δ = {r['delta']:g}")


def _sublinear(agent: str) -> Callable[[Evidence, str], Verdict]:
    def judge(e: Evidence, variant: str) -> Verdict:
        rows = e.private(agent, variant)
        last = rows[-1]
        said = per(rows, lambda r: f"{spread(r)}, grows {number(growth(r), 2)} ×, {number(end_loss(r), 2)} at the end")
        return growth(last) <= SUBLINEAR and learns(e.rows, last), said

    return judge


def _falls(e: Evidence, variant: str) -> Verdict:
    pairs = {agent: (e.private(agent, variant)[0], e.private(agent, variant)[-1]) for agent in (VI, PO)}
    said = "; ".join(f"{agent}: {spread(a)} to {spread(b)}" for agent, (a, b) in pairs.items())
    return all(surely_below(large, small) for small, large in pairs.values()), said


def _same(e: Evidence, variant: str) -> Verdict:
    vi, po = e.private(VI, variant)[-1], e.private(PO, variant)[-1]
    error = (standard_error(vi) ** 2 + standard_error(po) ** 2) ** 0.5
    return po["mean"] - vi["mean"] <= SURE * error, f"VI {spread(vi)}, PO {spread(po)} at ε = {number(vi['epsilon'])}"


def _states(e: Evidence, variant: str) -> Verdict:
    small, large = (e.private(VI, variant, w) for w in e.mixtures)
    if not large:
        return False, "not run with 32 states"
    uniform = [only(e.rows, agent="uniform", world=w)["mean"] for w in e.mixtures]
    shares = [
        (a["epsilon"], a["mean"] / uniform[0], b["mean"] / uniform[1])
        for a in small
        for b in large
        if a["epsilon"] == b["epsilon"]
    ]
    said = "; ".join(
        f"ε = {number(eps)}: {number(100 * a, 2)} % at 8 states, {number(100 * b, 2)} % at 32" for eps, a, b in shares
    )
    able = all(learns(e.rows, r) for r in (*small, *large))
    return able and all(b <= 2 * a for _, a, b in shares), said + ("" if able else "; not learnt at every ε and size")


def claims(rows: Rows) -> list[Judged]:
    """Every statement with its verdict, regime and rule, and the verdicts by variant."""
    e = Evidence(rows)
    sure = f"{SURE:.0f} standard errors"
    judged: list[Claim[Evidence]] = [
        Claim(
            "the noise gives the asked ε (Theorem 6.4)",
            "the ε recomputed at the same δ is at most what was asked",
            _safe,
        ),
        *(
            Claim(
                f"{name} has sublinear regret",
                f"at the largest ε, in {e.river}, regret after K is at most {number(SUBLINEAR, 2)} times that after "
                f"K / 10, and an episode at the end costs at most {100 * LEARNT:.0f} % of what it costs the better of "
                "uniform choice and the agent without data",
                _sublinear(agent),
            )
            for agent, name in ((VI, "Private-LinOpt-VI"), (PO, "Private-LinOpt-PO"))
        ),
        Claim(
            "regret falls as ε grows",
            f"for both agents the largest ε loses less than the smallest by more than {sure}",
            _falls,
        ),
        Claim(
            "policy optimization has the same regret as value iteration",
            f"at the largest ε the means differ by at most {sure}, or PO's is lower",
            _same,
        ),
        Claim(
            "regret does not depend on the number of states",
            "at every ε, for value iteration and mixtures of five kernels, the share of uniform choice's regret that "
            "is lost at 32 states is at most twice that at 8, and it learns at both (else nothing was compared)",
            _states,
        ),
    ]
    return [c.verdict(e, [*VARIANTS], "tight, rewards known") for c in judged]


STUDY = online("paper-000", grid, full_grid)
