"""Figures of docs/lab/shuffle.md: first elimination, regret and the kept optimum of SDP-PE, as Markdown.

python -P -m tests.campaigns.shuffle_study bits | 64 | 512 | large | worlds [--runs 10]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from pipeline.privacy.shuffle_calibration import (
    delivered_epsilon,
    paper_bits,
    paper_total,
    smallest_total,
    tight_bits,
)
from pipeline.simulation.registry import run
from pipeline.simulation.trial import Outcome, Trial

Params = tuple[tuple[str, Any], ...]
WORLDS: dict[str, tuple[str, Params]] = {
    "64": ("random", (("actions", 2), ("horizon", 3), ("seed", 5), ("states", 2), ("successors", 2))),
    "512": ("riverswim", (("horizon", 3), ("states", 3))),
    "large": ("random", (("actions", 3), ("horizon", 5), ("seed", 0), ("states", 5), ("successors", 5))),
}
EPSILON, DELTA = 1.0, 1e-5
PAPER: dict[str, tuple[str | None, dict[str, Any]]] = {
    "paper, paper's bits": ("paper", {"mode": "paper"}),
    "paper, exact bits": ("tight", {"mode": "paper"}),
    "paper, no privacy": (None, {"mode": "paper", "trust": "none"}),
}
PRACTICAL: dict[str, tuple[str | None, dict[str, Any]]] = {
    "practical, shuffle": ("tight", {}),
    "practical, shuffle, mixtures": ("tight", {"mixed": True}),
    "practical, shuffle, forget": ("tight", {"pooled": False}),
    "practical, shuffle, three tables": ("tight", {"lean": False}),
    "practical, shuffle, paper's bits": ("paper", {}),
    "practical, joint": ("tight", {"trust": "joint"}),
    "practical, local": ("tight", {"trust": "local"}),
    "practical, local, no mixtures": ("tight", {"trust": "local", "mixed": False}),
    "practical, no privacy": (None, {"trust": "none"}),
}


def played(world: tuple[str, Params], episodes: int, how: tuple[str | None, dict[str, Any]], seed: int) -> Outcome:
    calibration, options = how
    asked = (None, None) if calibration is None else (EPSILON, DELTA)
    knobs = tuple(sorted({"certify": 0, **options}.items()))
    return run(Trial("sdp-pe", *world, episodes, *asked, calibration, knobs, seed))  # type: ignore[arg-type]


def table(name: str, runs: int) -> Iterator[str]:
    """Regret an episode over ``runs`` seeds; first elimination of the longest runs; stages that kept the optimum."""
    marks = [10**5, 10**6, 10**7, 10**9]
    rows = PRACTICAL if name == "large" else PAPER | PRACTICAL
    yield "| | first elimination | " + " | ".join(f"{k:.0e}" for k in marks) + " | optimum kept |"
    yield "|---|---|" + "---|" * (len(marks) + 1)
    for label, how in rows.items():
        longest = [3 * 10**10 if how[1].get("mode") == "paper" else marks[-1]]
        cells, kept, stages = list[str](), 0, 0
        for k in [*marks, *longest]:
            outcomes = [played(WORLDS[name], k, how, seed) for seed in range(runs)]
            kept += sum(o.facts["optimum_kept"] for o in outcomes)
            stages += sum(o.facts["stages"] for o in outcomes)
            loss = np.array([o.regret[-1] / k for o in outcomes])
            cells.append(f"{loss.mean():.3g} ± {loss.std(ddof=1):.1g}")
        first = [o.facts["first_elimination"] for o in outcomes]
        seen = sorted(f for f in first if f is not None)
        when = "none" if not seen else f"{np.median(seen):.1e}" + (f" (in {len(seen)})" if len(seen) < runs else "")
        yield f"| {label} | {when} | " + " | ".join(cells[: len(marks)]) + f" | {kept} of {stages} stages |"


def bits() -> Iterator[str]:
    """Fewest noise bits a counter at (1, 1e-5), against the paper's, and what the paper's deliver."""
    horizons = (2, 5, 10)
    tau = {H: paper_total(H, EPSILON, DELTA) for H in horizons}
    exact = {H: smallest_total(6 * H, EPSILON, DELTA) for H in horizons}
    basic = {H: 96 * np.log(2 * 6 * H / DELTA) * (6 * H / EPSILON) ** 2 for H in horizons}
    lean = {H: smallest_total(4 * H, EPSILON, DELTA) for H in horizons}
    crude = {H: f"{smallest_total(4, EPSILON, DELTA)} / {smallest_total(2, EPSILON, DELTA)}" for H in horizons}
    skew = {H: 4 * tight_bits(10**7, 6 * H, EPSILON, DELTA).standard_deviation ** 2 for H in horizons}
    told = {H: delivered_epsilon(paper_bits(int(np.ceil(tau[H])), H, EPSILON, DELTA), 6 * H, DELTA) for H in horizons}
    many = {H: delivered_epsilon(paper_bits(10**9, H, EPSILON, DELTA), 6 * H, DELTA) for H in horizons}
    yield "| | " + " | ".join(f"H = {H}" for H in horizons) + " |"
    yield "|---|" + "---|" * len(horizons)
    for label, row in {
        "paper: 864 H² ln(2/β)": {H: f"{tau[H]:,.0f}" for H in horizons},
        "basic composition of the 6H counters": {H: f"{basic[H]:,.0f}" for H in horizons},
        "exact, three tables (6H)": {H: f"{exact[H]:,}" for H in horizons},
        "exact, lean (4H)": {H: f"{lean[H]:,}" for H in horizons},
        "exact, crude batch, two tables / one": crude,
        "exact, three tables, 10⁷ users": {H: f"{skew[H]:,.0f}" for H in horizons},
        "the paper's bits are this many times more": {H: f"{tau[H] / exact[H]:.0f}" for H in horizons},
        "epsilon the paper's bits deliver, n = τ": {H: f"{told[H]:.3f}" for H in horizons},
        "epsilon the paper's bits deliver, n = 10⁹": {H: f"{many[H]:.3f}" for H in horizons},
    }.items():
        yield f"| {label} | " + " | ".join(str(row[H]) for H in horizons) + " |"


def many_worlds(runs: int) -> Iterator[str]:
    """Whether the optimum is kept in random worlds of every shape: stages, and runs that lost it."""
    for label in (
        "practical, shuffle",
        "practical, shuffle, mixtures",
        "practical, shuffle, forget",
        "practical, no privacy",
    ):
        lost = stages = 0
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            states, actions, horizon = (int(x) for x in rng.integers(2, 5, 3))
            params = (
                ("actions", actions),
                ("horizon", horizon),
                ("seed", seed),
                ("states", states),
                ("successors", int(rng.integers(1, states + 1))),
            )
            facts = played(("random", params), 10**6, PRACTICAL[label], seed).facts
            stages += facts["stages"]
            lost += facts["optimum_kept"] < facts["stages"]
        yield f"| {label} | {runs} worlds | {stages} stages | {lost} runs lost the optimum |"


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("what", choices=["bits", *WORLDS, "worlds"])
    ask.add_argument("--runs", type=int, default=10)
    given = ask.parse_args()
    made = {"bits": bits, "worlds": lambda: many_worlds(given.runs)}
    for line in made.get(given.what, lambda: table(given.what, given.runs))():
        print(line, flush=True)


if __name__ == "__main__":
    main()
