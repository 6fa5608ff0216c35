"""The protocol between an online agent and a linear-quadratic world: ``batch = yield LinearRollout(gains, episodes)``.

An agent that keeps its gains for many episodes asks for them together: the law is that of one after the other.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LinearRollout:
    """Play ``episodes`` episodes by u = K_h x + xi, with ``gains (H, d, n)`` and xi uniform on the sphere of radius
    ``explore``.
    """

    gains: Array
    episodes: int
    explore: float = 0.0


@dataclass(frozen=True)
class LqBatch:
    """What the episodes of one rollout were.

    Parameters
    ----------
    states, controls
        ``(B, H+1, n)`` and ``(B, H, d)``.
    episodes
        How many episodes they stand for, at least B.
    means
        Where ``episodes`` is larger than B: exact means of one episode's sum of z z' ``(n+d, n+d)`` and of z x_next'
        ``(n+d, n)``, with z = (x, u).  The sums over all episodes are then their multiple, plus the deviation of the
        B episodes at sqrt(episodes / B) times its size: right in mean and covariance, and close to normal like the sum.
    """

    states: Array
    controls: Array
    episodes: int
    means: tuple[Array, Array] | None = None


# what an online agent is: asks for rollouts, gets batches, returns what it has to say at the end
LqAgent = Generator[LinearRollout, LqBatch, Any]
