"""How often an audit flags what is right and what is broken, and how much of a claim it proves.

    python -P -m tests.campaigns.audits [AUDITS] [DRAWS]

For each mechanism of tests/audits: so many audits of the shipped path, and as many of each broken twin that draws as
many copies as it is asked for at once.  Draws are those of the table sampler, the law of the exact one; noise
wider than its table is numpy's, on seeds of the operating system: the exact rejection takes ten times as long.  The
last lines audit what is shipped once, with five times the draws: how tight the bounds get.
"""

import re
import sys
import time
from dataclasses import replace

import numpy as np

from pipeline.audits.attack import AuditTarget, attack, fresh
from pipeline.privacy.noise import LARGEST_VARIANCE, DataHandle, FastOsNoise, Integers, NoiseSource
from tests.audits.broken import Thinner
from tests.audits.online_twins import MECHANISMS
from tests.campaigns.rows import markdown, read

# the twin that every mechanism has, under its names
HALVED = ("half the variance", "half the scale", "twice the epsilon", "half the coins")
OTHERS = ("m instead of m²", "N instead of N²", "integer messages")


class Quick(FastOsNoise):
    """The table, and beyond it a rounded normal law on a fresh seed."""

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        if variance <= LARGEST_VARIANCE:
            return super().gaussian(size, variance, data)
        return fresh().gaussian(size, variance, data)


def quick(noise: NoiseSource) -> NoiseSource:
    """The same fault on quick noise."""
    return Thinner(Quick(), noise.share) if isinstance(noise, Thinner) else Quick()


def main(audits: int = 20, draws: int = 20_000) -> None:
    print(f"{audits} audits each, {draws:,} releases a side")
    print(f"{'mechanism':44} {'twin':28} {'flagged':>8} {'bound/claim':>12} {'pair spends':>12} {'seconds':>8}")
    for name, (right, twins) in MECHANISMS.items():
        line(name, "(as shipped)", right(), Quick(), audits, draws)
        for what, twin in twins.items():
            if what in (*HALVED, *OTHERS):
                # drawn in large batches too: a source that is broken is broken there, and whole releases take hours
                line(name, what, replace(twin.make(), whole=None), quick(twin.noise()), audits, draws)
    for name, (right, _) in MECHANISMS.items():
        line(name, "(as shipped)", right(), Quick(), 1, 5 * draws)


def line(name: str, what: str, target: AuditTarget, noise: NoiseSource, audits: int, draws: int) -> None:
    began = time.monotonic()
    found = [attack(target, noise, draws) for _ in range(audits)]
    each = (time.monotonic() - began) / audits
    flagged, ratio = sum(v.violates for v in found), np.mean([v.ratio for v in found])
    spent = f"{target.attained:.3f}"
    print(f"{name:44} {what:28} {flagged:>4}/{audits:<3} {ratio:>12.3f} {spent:>12} {each:>8.1f}", flush=True)


def shown(name: str) -> str:
    """A line a mechanism: what is shipped, audited many times and once with more draws, and its twin."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for row in read(name):
        cells = re.split(r"  +", row["printed"].strip())
        if len(cells) == 6 and "/" in cells[2]:
            found.setdefault(cells[0], []).append((cells[1], cells[2:4]))
    lines = list[list[str]]()
    for mechanism, of in found.items():
        (_, shipped), (twin, broken), (_, more) = *of[:2], of[-1]
        lines.append([mechanism, *shipped, more[1], twin, *broken])
    head = ["mechanism", "flagged", "bound/claim", "with more draws", "broken twin", "flagged", "bound/claim"]
    return markdown(head, lines)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
