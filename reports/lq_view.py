"""What a report may see of a linear controller: names and gains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class GainsView:
    """u = K_h x, both scaled.

    Parameters
    ----------
    observation, action
        Names of the n coordinates and the d controls.
    gains
        ``(H, d, n)``.
    """

    observation: list[str]
    action: list[str]
    gains: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.gains.shape[1:] != (len(self.action), len(self.observation)):
            raise ValueError(f"gains must be (H, {len(self.action)}, {len(self.observation)}); got {self.gains.shape}")


def is_lq(facts: Mapping[str, Any]) -> bool:
    """Whether a run controls a linear plant."""
    return facts["dataset"]["dynamics"] == "linear_quadratic"
