"""One line of a reproduction: an agent in a world, over so many independent runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

SIMULATION = "simulation, not private"


@dataclass(frozen=True)
class Row:
    """What a bench measured of one agent at one setting.

    Attributes
    ----------
    rho, epsilon
        As asked, exactly; both None without privacy.
    true_rho, true_epsilon
        What the noise that was drawn really costs: replace-one zCDP, and its epsilon at ``delta``.
    mean, std, runs
        Of ``metric`` over independent runs in this world; ``std`` divides by runs - 1.
    tie_share
        Share of the (step, state) pairs where clipping left several best actions; None for a control.
    noise
        Every row of a bench comes from seeded noise: it protects nobody.
    """

    agent: str
    variant: str
    trust: Literal["none", "central", "joint", "local", "shuffle"]
    world: str
    episodes: int
    rho: float | None
    epsilon: float | None
    delta: float | None
    calibration: str | None
    constants: str | None
    metric: str
    mean: float
    std: float
    runs: int
    true_rho: float | None = None
    true_epsilon: float | None = None
    tie_share: float | None = None
    noise: str = SIMULATION

    def as_dict(self) -> dict[str, Any]:
        """Plain values, in this order."""
        return asdict(self)
