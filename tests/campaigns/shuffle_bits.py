"""What shuffling costs a user, in bits: ``python -P -m tests.campaigns.shuffle_bits`` prints a table."""

from collections.abc import Callable

import numpy as np

from pipeline.privacy.shuffle import delivered_epsilon, paper_bits, paper_total, smallest_total, tight_bits
from tests.campaigns.rows import markdown

EPSILON, DELTA, HORIZONS = 1.0, 1e-5, (2, 5, 10)


def tau(H: int) -> float:
    """The paper's number of bits."""
    return paper_total(H, EPSILON, DELTA)


def fewest(counters: int) -> int:
    """Fewest noise bits a counter at (1, 1e-5)."""
    return smallest_total(counters, EPSILON, DELTA)


def delivered(H: int, users: int) -> float:
    """What the paper's bits deliver."""
    return delivered_epsilon(paper_bits(users, H, EPSILON, DELTA), 6 * H, DELTA)


LINES: dict[str, Callable[[int], str]] = {
    "paper: 864 H² ln(2/β)": lambda H: f"{tau(H):,.0f}",
    "basic composition of the 6H counters": lambda H: f"{96 * np.log(2 * 6 * H / DELTA) * (6 * H / EPSILON) ** 2:,.0f}",
    "exact, three tables (6H)": lambda H: f"{fewest(6 * H):,}",
    "exact, lean (4H)": lambda H: f"{fewest(4 * H):,}",
    "exact, crude batch, two tables / one": lambda H: f"{fewest(4)} / {fewest(2)}",
    "exact, three tables, 10⁷ users": lambda H: (
        f"{4 * tight_bits(10**7, 6 * H, EPSILON, DELTA).standard_deviation ** 2:,.0f}"
    ),
    "the paper's bits are this many times more": lambda H: f"{tau(H) / fewest(6 * H):.0f}",
    "epsilon the paper's bits deliver, n = τ": lambda H: f"{delivered(H, int(np.ceil(tau(H)))):.3f}",
    "epsilon the paper's bits deliver, n = 10⁹": lambda H: f"{delivered(H, 10**9):.3f}",
}


if __name__ == "__main__":
    head = ["", *(f"H = {H}" for H in HORIZONS)]
    print(markdown(head, ([label, *map(of, HORIZONS)] for label, of in LINES.items())))
