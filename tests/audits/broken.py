"""What breaks a mechanism from the outside: noise sources that draw too little or repeat, and a twin of an attack."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from pipeline.audits.attack import AuditTarget, silence
from pipeline.privacy.noise import FastOsNoise, NoiseSource, SeededNoise
from pipeline.privacy.release import Release
from pipeline.statistics.private_sum import PrivateSum

Make = Callable[[], AuditTarget]
# draws a side, for twins that lose so many times a claim of rho = 0.9 to 1.1: the mean bound is 6 deviations above it
FOUR_THIRDS, THREE_HALVES, THREE = 12_000, 6_000, 1_000


@dataclass(frozen=True)
class Twin:
    """A broken attack, and how many releases a side show it."""

    make: Make
    draws: int = 3000
    noise: Callable[[], NoiseSource] = FastOsNoise


def drawing(target: AuditTarget, **broken) -> AuditTarget:
    """The attack on what is shipped, held against a path of which one part is another."""
    return replace(target, path=replace(target.path, **broken))


def drawing_sum(target: AuditTarget, drawn: PrivateSum) -> AuditTarget:
    """The same, where another sum is drawn."""
    return drawing(target, drawn=replace(drawn, layout=target.path.drawn.layout))


def releasing(target: AuditTarget, draw: Callable[..., Release]) -> AuditTarget:
    """The same, where another function makes whole releases: the attacker knows what it publishes."""
    path = replace(target.whole, draw=draw)
    return replace(target, path=path, means=silence(path), whole=None)


class Thinner:
    """Draws all noise at a share of the variance asked."""

    def __init__(self, source: NoiseSource, share: float) -> None:
        self.source, self.share = source, share
        self.name, self.sampler = source.name, source.sampler

    def admit(self, data_kind: str) -> None:
        self.source.admit(data_kind)

    def gaussian(self, size: int, variance: int, data) -> np.ndarray:
        return self.source.gaussian(size, max(1, int(variance * self.share)), data)

    def tv_bound(self, variance: int) -> Fraction:
        return self.source.tv_bound(variance)


class Repeating:
    """Operating-system noise in name; in truth the same seed at every call."""

    name, sampler = "os", "seeded"

    def admit(self, data_kind: str) -> None: ...

    def gaussian(self, size: int, variance: int, data) -> np.ndarray:
        # the first call's law is right, and every later call repeats it
        return np.resize(SeededNoise(7).gaussian(1, variance, data), size)

    def tv_bound(self, variance: int) -> Fraction:
        return Fraction(0)


class RepeatingCoins(SeededNoise):
    """Coins that fall alike in every batch."""

    def __init__(self) -> None:
        super().__init__(7)

    def heads(self, size: int, trials: int, chance: int, data) -> np.ndarray:
        return np.resize(SeededNoise(7).heads(1, trials, chance, data), size)


class FewCoins(SeededNoise):
    """Half of a batch's coins, moved to where all of them would lie."""

    def __init__(self) -> None:
        super().__init__(np.random.SeedSequence())

    def heads(self, size: int, trials: int, chance: int, data) -> np.ndarray:
        few = trials // 2
        return super().heads(size, few, chance, data) + round((trials - few) * chance / 2**64)
