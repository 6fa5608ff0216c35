"""Who adds the noise, and what the noise that is drawn gives one person."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Protocol

from pipeline.privacy.budget import up
from pipeline.privacy.losses import safe_epsilon


class Trust(StrEnum):
    """Who adds the noise, and who sees what: the trust model of a release.

    ``NONE``: nobody adds any (simulation only).  ``CENTRAL``: a curator adds it to the sums.  ``JOINT``: so does a
    curator, and every user gets what is computed for them from the sums of all others.  ``LOCAL``: everybody adds it to
    their own message.  ``SHUFFLE``: so they do, and a shuffler hides whose message is whose.  On logs the trust model
    is always central (privacy.md §0.1-3).
    """

    NONE = "none"
    CENTRAL = "central"
    JOINT = "joint"
    LOCAL = "local"
    SHUFFLE = "shuffle"


class Promise(Protocol):
    """What the noise that is drawn gives one user, replace-one."""

    @property
    def trust(self) -> Trust:
        """Whom the user must trust."""
        ...

    @property
    def rho(self) -> Fraction | None:
        """zCDP; None without noise, and where the noise is not Gaussian."""
        ...

    def epsilon(self, delta: float) -> float | None:
        """Epsilon at ``delta``; None without noise."""
        ...


@dataclass(frozen=True)
class Guarantee:
    """What Gaussian noise gives one user, replace-one.

    Parameters
    ----------
    trust
        Whom the user must trust.
    rho
        Exact zCDP cost of all that is ever released; None without noise.
    """

    trust: Trust
    rho: Fraction | None

    def epsilon(self, delta: float) -> float | None:
        """Epsilon at ``delta``: recomputed from what is drawn, whatever was asked; None without noise."""
        return None if self.rho is None else safe_epsilon(up(self.rho), delta)

    def beside(self, other: Guarantee) -> Guarantee:
        """Both released from the same users: costs add up."""
        both = None if self.rho is None or other.rho is None else self.rho + other.rho
        return Guarantee(self.trust, both)
