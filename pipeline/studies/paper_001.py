"""Paper 001, section 6: LDP-UCRL-VTR in two RiverSwim chains, K = 10 000, mean and spread over runs.

The paper prints neither S nor its budgets nor c.  Chosen here: S = 3, and 5 for the inhomogeneous chain; epsilon 1, 2,
5 and 10 at its delta = 0.1; c by a committed table (:func:`tuned`).  Beside: the noise ``tight``, at delta = 1e-5, up
to K = 10^6; a mixture of five known kernels, where S^2 A = 192 unknowns become five; the controls.

Its sentences are judged on the noise it prints; the same rule on the tight noise says where a sentence would hold.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.declaration.numbers import number
from pipeline.simulation.trial import Trial
from pipeline.studies.study import NONE, Budget, Claim, Judged, Options, Place, Verdict, online, sweep
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
    select,
    spread,
    surely_below,
)

HOM, INHOM = "riverswim_homogeneous", "riverswim_inhomogeneous"
THREE: Options = (("states", 3),)
RIVERS: tuple[Place, ...] = ((HOM, THREE), (INHOM, THREE))
WIDE: Place = (INHOM, (("states", 5),))
# in the median instance whoever knows the kernels loses 1 % of what uniform choice loses, without any data; of 200
# seeds this is the one where data is worth most
MIXTURE: Place = ("random_mixture", (("dimension", 5), ("seed", 176), ("successors", 1)))
EPISODES, LONG, LONGEST = 10_000, 100_000, 1_000_000
PRINTED_DELTA, DELTA = 0.1, 1e-5
BUDGETS, TIGHT_BUDGETS = (1.0, 2.0, 5.0, 10.0), (1.0, 10.0, 50.0)
RUNS, LONG_RUNS = 10, 4
MORE_BUDGETS, BONUSES = (0.1, 1.0, 2.0, 5.0, 10.0, 50.0, 200.0), (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
# the paper's bonus, c on its first term alone, at the c, lambda and schedule that were tuned for both terms
AS_PRINTED: Options = (
    ("bonus", 0.015), ("constants", "paper"), ("features", "block"), ("growth", 1.005), ("lam", 0.01), ("unit", True),
)  # fmt: skip
CONTROLS = ("uniform", "always-right")
LDP = "ldp-ucrl-vtr"
# which noise, and the words of a row's variant that tell it
PRINTED, TIGHT = "as printed, block, rewards known", "unit, block, rewards known"
SCALES = {"printed": ("paper", PRINTED), "tight": ("tight", TIGHT)}
# written by tests/campaigns/tune_online.py
TABLE = Path(__file__).with_name("tuned_online.csv")


def grid(runs: int = RUNS, episodes: int = EPISODES) -> list[Trial]:
    """All trials of the default run."""
    return [*_short(runs, episodes), *(_long(min(runs, LONG_RUNS)) if episodes == EPISODES else ())]


def full_grid(runs: int = RUNS) -> list[Trial]:
    """The same with every budget and bonus in both chains."""
    bonuses: list[tuple[str, Options]] = [(LDP, (("bonus", c),)) for c in BONUSES]
    found = grid(runs)
    for place in RIVERS:
        for budget in (*map(printed, MORE_BUDGETS), *map(tight, MORE_BUDGETS)):
            found += sweep([place], [EPISODES], bonuses, [budget], runs)
    return found


def printed(epsilon: float) -> Budget:
    """The paper's noise at the paper's delta."""
    return Budget(epsilon, PRINTED_DELTA, "paper")


def tight(epsilon: float) -> Budget:
    """Ours, at a delta that means something."""
    return Budget(epsilon, DELTA, "tight")


def _short(runs: int, episodes: int) -> list[Trial]:
    found, at = list[Trial](), [episodes]
    for place in (*RIVERS, WIDE, MIXTURE):
        found += sweep([place], at, ["ucrl-vtr"], seeds=runs)
        # a control without randomness needs no second run
        found += sweep([place], at, CONTROLS if place != MIXTURE else CONTROLS[:1])
        found += sweep([place], at, [("no-data", (("of", LDP),))], [printed(1.0)], runs)
        few = place in (WIDE, MIXTURE)
        asked = [printed(e) for e in ((1.0, 10.0) if few else BUDGETS)] + [tight(e) for e in TIGHT_BUDGETS]
        found += sweep([place], at, [LDP], asked, runs)
    for place in RIVERS:
        found += sweep([place], at, [("ucrl-vtr", AS_PRINTED)], seeds=runs)
        found += sweep([place], at, [(LDP, (("features", "dense"),))], [printed(10.0)], runs)
    return found


def _long(runs: int) -> list[Trial]:
    """Does patience help?  The same budgets with ten and a hundred times the episodes."""
    found = list[Trial]()
    for place in RIVERS:
        for episodes in (LONG, LONGEST):
            found += sweep([place], [episodes], ["uniform"], [NONE])
            found += sweep([place], [episodes], [LDP], [tight(1.0), tight(10.0), printed(10.0)], runs)
    return found


def tuned(agent: str, knob: str) -> list[dict[str, str]]:
    """How a knob of an agent was chosen: rows ``world, epsilon, value, taken, mean, std, worst, runs, seeds``, as text.

    Parameters
    ----------
    agent, knob
        A linear mixture agent, and ``bonus`` or ``eta``.
    """
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["agent"] == agent and row["knob"] == knob]


@dataclass(frozen=True)
class Evidence:
    """Rows of the study at the paper's K.

    Parameters
    ----------
    every
        Gathered rows of this study, at all K.
    """

    every: Rows

    @property
    def K(self) -> int:  # noqa: N802
        """Episodes of the figure: the fewest that were played."""
        return min(int(r["episodes"]) for r in self.every)

    @property
    def rows(self) -> list[Found]:
        """Rows at that K."""
        return select(self.every, episodes=self.K)

    @property
    def rivers(self) -> list[str]:
        """The two chains of the figure, S = 3."""
        return [w for w in dict.fromkeys(str(r["world"]) for r in self.rows) if "states 3" in w]

    def private(self, scales: str, world: str) -> list[Found]:
        """LDP-UCRL-VTR by epsilon, with the tuned bonus."""
        calibration, variant = SCALES[scales]
        found = select(self.rows, agent=LDP, calibration=calibration, variant=variant, world=world)
        return sorted((r for r in found if "tuned" in (r["constants"] or "")), key=asked)

    def plain(self, world: str) -> Found:
        """UCRL-VTR with the tuned bonus."""
        return next(r for r in select(self.rows, agent="ucrl-vtr", world=world) if "tuned" in (r["constants"] or ""))


def _each(e: Evidence, scales: str, say: Callable[[Found], str]) -> str:
    """What is said of each row, chain by chain."""
    return "; ".join(
        f"{_stem(w)}: " + ", ".join(f"{say(r)} (ε {number(r['epsilon'])})" for r in e.private(scales, w))
        for w in e.rivers
    )


def _stem(world: str) -> str:
    return world.removeprefix("riverswim_")


def _all(e: Evidence, scales: str) -> list[Found]:
    return [r for w in e.rivers for r in e.private(scales, w)]


def _private(e: Evidence, scales: str) -> Verdict:
    mine = [r for r in e.rows if r["agent"] == LDP and r["calibration"] == SCALES[scales][0]]
    pairs = sorted({(asked(r), number(r["true_epsilon"], 3, "up")) for r in mine})
    holds = all(as_asked(r) for r in mine)
    words = ", ".join(f"{true} for {number(epsilon)}" for epsilon, true in pairs)
    return holds, f"at δ = {mine[0]['delta']:g}: {words}, over all worlds"


def _learns(e: Evidence, scales: str) -> Verdict:
    rows = _all(e, scales)
    said = _each(e, scales, lambda r: number(end_loss(r), 2))
    bars = ", ".join(
        f"{_stem(w)} {number(end_loss(only(e.rows, agent='uniform', world=w)), 2)} and "
        f"{number(end_loss(only(e.rows, agent='no-data', world=w)), 2)}"
        for w in e.rivers
    )
    return all(learns(e.rows, r) for r in rows), f"an episode costs {said}; uniform and without data: {bars}"


def _sublinear(e: Evidence, scales: str) -> Verdict:
    holds = all(growth(r) <= SUBLINEAR and learns(e.rows, r) for r in _all(e, scales))
    return holds, "grows " + _each(e, scales, lambda r: f"{number(growth(r), 2)} ×")


def _closer(e: Evidence, scales: str) -> Verdict:
    ends: Mapping[str, tuple[Found, Found]] = {w: (e.private(scales, w)[0], e.private(scales, w)[-1]) for w in e.rivers}
    said = "; ".join(
        f"{_stem(w)}: {spread(small)} at ε = {number(small['epsilon'])}, {spread(large)} at {number(large['epsilon'])}"
        for w, (small, large) in ends.items()
    )
    return all(surely_below(large, small) for small, large in ends.values()), said


def _larger(e: Evidence, scales: str) -> Verdict:
    holds = all(surely_below(e.plain(w), r) for w in e.rivers for r in e.private(scales, w))
    said = "; ".join(f"UCRL-VTR {spread(e.plain(w))} in {_stem(w)}" for w in e.rivers)
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


def claims(rows: Rows) -> list[Judged]:
    """Every sentence with its verdict, regime and rule, and the verdicts by scales."""
    e = Evidence(rows)
    sure = f"{SURE:.0f} standard errors"
    judged: list[Claim[Evidence]] = [
        Claim(
            "the printed noise gives the asked ε", "the ε recomputed at the same δ is at most what was asked", _private
        ),
        Claim(
            "LDP-UCRL-VTR learns",
            f"at every ε and in both chains an episode at the end costs at most {100 * LEARNT:.0f} % of what it costs "
            "the better of uniform choice and the same agent without data",
            _learns,
        ),
        Claim(
            "its regret is sublinear in K",
            f"at every ε and in both chains regret after K is at most {number(SUBLINEAR, 2)} times that after K / 10, "
            "and it learns",
            _sublinear,
        ),
        Claim(
            "a larger ε is closer to UCRL-VTR",
            f"in both chains the largest ε loses less than the smallest by more than {sure}",
            _closer,
        ),
        Claim(
            "its regret is larger than UCRL-VTR's",
            f"at every ε and in both chains the mean is larger by more than {sure}",
            _larger,
        ),
        Claim(
            "learning slows down as H and d grow",
            "at the largest ε of both, in the inhomogeneous chain, the share of uniform choice's loss that remains at "
            "the end is larger at S = 5 than at S = 3",
            _slower,
        ),
    ]
    return [c.verdict(e, [*SCALES], "printed") for c in judged]


STUDY = online("paper-001", grid, full_grid)
