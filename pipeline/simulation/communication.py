"""What one user of an online agent sends for an episode, at most: to whom, in how many messages and bits."""

from __future__ import annotations

import math
from typing import TypedDict

from pipeline.privacy.release import Release

_NUMBER_BITS = 64


class Sent(TypedDict):
    """To whom a user sends, and what, in words; how many messages, and their size together."""

    who: str
    messages: int
    bits: int


def sent_by_user(release: Release | None, steps: int, numbers: int) -> Sent | None:
    """Read off what left the private sum; None where nothing is private.

    Parameters
    ----------
    release
        Of all batches; its ``trust_model`` says who is sent to.
    steps, numbers
        Of an episode, and what one step of it says in the clear.
    """
    if release is None or release.noise == "none":
        return None
    if release.trust_model == "local":
        size = sum(m.cells for m in release.mechanisms)
        who = "the server: one message of noisy integers, drawn on the user's device"
        return Sent(who=who, messages=1, bits=size * _NUMBER_BITS)
    if bits := [(m.shuffled, m.cells) for m in release.mechanisms if m.shuffled is not None]:
        messages = max(cells * (1 + b.each) for b, cells in bits)
        tag = max(math.ceil(math.log2(max(2, cells))) for _, cells in bits)
        who = "the shuffler: one-bit messages, each under the number of its counter; at most, over all batches"
        return Sent(who=who, messages=messages, bits=messages * (1 + tag))
    whom = "the curator" if release.trust_model == "central" else "the server"
    return Sent(who=f"{whom}: the whole episode, in the clear", messages=steps, bits=steps * numbers * _NUMBER_BITS)
