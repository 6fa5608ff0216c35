"""How often an audit flags what is right and what is broken, and how much of a claim it proves.

    python -P -m tests.campaigns.audits [AUDITS] [DRAWS]

For each mechanism of tests/audits/mutants.py: so many audits of the shipped path, and as many of each broken twin.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from pipeline.audits.attack import attacked
from pipeline.privacy.fast_noise import FastOsNoise
from pipeline.privacy.noise import OsNoise
from tests.audits.mutants import MECHANISMS


def main(audits: int = 20, draws: int = 20_000, only: str = "") -> None:
    print(f"{audits} audits each, {draws:,} releases a side")
    print(f"{'mechanism':44} {'twin':28} {'flagged':>8} {'bound/claim':>12} {'seconds':>8}")
    for name, (right, twins) in MECHANISMS.items():
        if only not in name:
            continue
        for what, made in {"(as shipped)": right, **twins}.items():
            began, attack = time.monotonic(), made()
            noise = OsNoise() if name.startswith("counts") else FastOsNoise()
            found = [attacked(attack, noise, draws) for _ in range(audits)]
            each = (time.monotonic() - began) / audits
            flagged, ratio = sum(v.violates for v in found), np.mean([v.ratio for v in found])
            print(f"{name:44} {what:28} {flagged:>4}/{audits:<3} {ratio:>12.3f} {each:>8.1f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
