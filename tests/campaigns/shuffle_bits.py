"""What shuffling costs a user, in bits: ``python -P -m tests.campaigns.shuffle_bits`` prints a table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeline.privacy.shuffle import delivered_epsilon, paper_bits, paper_total, smallest_total, tight_bits

EPSILON, DELTA = 1.0, 1e-5


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


if __name__ == "__main__":
    print(*bits(), sep="\n")
