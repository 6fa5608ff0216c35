"""How a broken contract is told."""

from __future__ import annotations


class BrokenContractError(AssertionError):
    """A plug-in does not do what its protocol promises; the message says what, where and what was found."""


def promised(holds: bool, message: str) -> None:
    """Raise :class:`BrokenContractError` with ``message`` unless ``holds``."""
    if not holds:
        raise BrokenContractError(message)
