"""Central count privatizers: exact integers in, noisy integers out, one draw a table (003 eq. 2 and end of §3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.declaration.card import Card
from pipeline.privacy.noise import NoiseSource, RealDataError, admit_release
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.calibration import Ask, count_mechanisms
from pipeline.statistics.counts import Counts, PrivateCounts, Slack, private_counts


@dataclass(frozen=True)
class CentralCounts:
    """Adds the noise of ``mechanisms`` to each table of integers; never-visited cells get noise like all others."""

    card: Card
    mechanisms: tuple[Mechanism, ...]
    slack: Slack = "zero"

    @property
    def exact(self) -> bool:
        """Whether there is no noise at all."""
        return all(m.variance is None and m.scale is None for m in self.mechanisms)

    def admit(self, noise: NoiseSource) -> None:
        """Refuse, before any row is read, what would not be private on real data (privacy.md §0.1-2)."""
        silent = any(m.variance is None and m.scale is None for m in self.mechanisms)
        admit_release(noise, self.card.name, self.card.kind, silent)

    def draw(self, counts: Counts, noise: NoiseSource) -> Release:
        """See :class:`~pipeline.statistics.counts.CountsPrivatizer`."""
        self.admit(noise)
        if counts.data_kind != self.card.kind:
            noise.admit(counts.data_kind)
            raise RealDataError(f"counts say {counts.data_kind!r}, the card {self.card.kind!r}; nothing was drawn")
        if any(m.running is not None for m in self.mechanisms):
            raise ValueError("these are scales of a counter's rows: its nights are drawn one by one, never at once")
        check_slack(self.mechanisms, noise)
        tables = {}
        for m in self.mechanisms:
            exact = counts.tables[m.table]
            if exact.shape != m.shape:
                raise ValueError(f"table {m.table} must be {m.shape}; got {exact.shape}")
            drawn = np.zeros(m.cells, dtype=np.int64)
            if m.variance is not None:
                drawn = noise.gaussian(m.cells, m.variance, counts)
            elif m.scale is not None:
                drawn = noise.laplace(m.cells, m.scale, counts)
            tables[m.table] = exact + drawn.reshape(m.shape)
        return Release(
            dataset=counts.dataset,
            data_kind=counts.data_kind,
            dynamics=counts.dynamics,
            mechanisms=self.mechanisms,
            tables=tables,
            noise="none" if self.exact else noise.name,
            sampler="none: exact counts, simulation, not private" if self.exact else noise.sampler,
        )

    def release(self, counts: Counts, noise: NoiseSource) -> PrivateCounts:
        """See :class:`~pipeline.statistics.counts.CountsPrivatizer`."""
        return private_counts(self.draw(counts, noise), self.card, slack=self.slack)


def check_slack(mechanisms: tuple[Mechanism, ...], noise: NoiseSource) -> None:
    """Refuse a sampler whose share of delta the mechanisms do not count."""
    for m in mechanisms:
        if m.variance is not None and m.delta_slack < 2 * m.drawn * noise.tv_bound(m.variance):
            raise ValueError(f"table {m.table}: this sampler's share of delta is not counted; see with_sampler_slack")


def central_gaussian(card: Card, ask: Ask) -> CentralCounts:
    """rho-zCDP counts; ``ask`` gives rho, or epsilon with delta."""
    if ask.zcdp() is None:
        raise ValueError("the Gaussian privatizer needs rho, or epsilon with delta > 0")
    return CentralCounts(card, count_mechanisms(card, ask))


def central_laplace(card: Card, ask: Ask) -> CentralCounts:
    """Pure epsilon-DP counts; ``ask`` gives epsilon and no delta."""
    if not ask.pure:
        raise ValueError("the Laplace privatizer needs epsilon and no delta")
    return CentralCounts(card, count_mechanisms(card, ask))


def exact_counts(card: Card, tables: str = "one_table") -> CentralCounts:
    """No noise: the non-private baseline, for synthetic data only."""
    ask = Ask(tables="two_tables" if tables == "two_tables" else "one_table")
    return CentralCounts(card, count_mechanisms(card, ask))


def privatizer(card: Card, ask: Ask) -> CentralCounts:
    """The privatizer a recipe asks for."""
    if ask.rho is None and ask.epsilon is None:
        return exact_counts(card, ask.tables)
    return central_laplace(card, ask) if ask.pure else central_gaussian(card, ask)
