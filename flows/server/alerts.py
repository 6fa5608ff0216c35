"""An alert by a notification block of Prefect: Slack, e-mail, PagerDuty and whatever else a server has one for."""

from __future__ import annotations

import os
from typing import Any

from pipeline.declaration.card import CardError


def notify(block: str, text: str) -> None:
    """Send a text by a block of the server that ``PREFECT_API_URL`` names.

    Parameters
    ----------
    block
        Kind and name of a saved block, e.g. ``slack-webhook/ops``.
    text
        Without data: the recipe's name, the kind of an error, its exit code.

    Raises
    ------
    CardError
        If there is no server, no such block, or the block cannot notify.
    """
    if not os.environ.get("PREFECT_API_URL"):
        raise CardError("alert: PREFECT_API_URL names no server; a block lies on one")
    from prefect.blocks.core import Block

    try:
        found: Any = Block.load(block)
    except ValueError as e:
        raise CardError(f"alert: no block {block!r} on the server ({type(e).__name__}); give KIND/NAME") from None
    if not hasattr(found, "notify"):
        raise CardError(f"alert: {block!r} is no notification block")
    found.notify(text, subject="Reticent")
