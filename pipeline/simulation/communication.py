"""What one user sends, at most, over all of their episodes: to whom, in how many messages and bits."""

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


def sent_by_user(release: Release | None, steps: int, numbers: int, episodes: int) -> Sent | None:
    """Read off what left the private sum; None where nothing is private.

    Parameters
    ----------
    release
        Of all batches; its ``trust_model`` says who is sent to.
    steps, numbers
        Of an episode, and what one step of it says in the clear.
    episodes
        Of one user, at most.
    """
    if release is None or release.noise == "none":
        return None
    if release.trust_model == "local":
        size = sum(m.cells for m in release.mechanisms)
        who = "the server: one message of noisy integers an episode, drawn on the user's device"
        return Sent(who=who, messages=episodes, bits=episodes * size * _NUMBER_BITS)
    if bits := [(m.shuffled, m.cells) for m in release.mechanisms if m.shuffled is not None]:
        messages = episodes * max(cells * (1 + b.each) for b, cells in bits)
        tag = max(math.ceil(math.log2(max(2, cells))) for _, cells in bits)
        who = "the shuffler: one-bit messages, each under the number of its counter; at most, over all batches"
        return Sent(who=who, messages=messages, bits=messages * (1 + tag))
    return in_the_clear("the curator" if release.trust_model == "central" else "the server", steps * episodes, numbers)


def in_the_clear(whom: str, steps: int, numbers: int) -> Sent:
    """Whole episodes, a message a step.

    Parameters
    ----------
    whom
        Who is trusted with them.
    steps, numbers
        Of all episodes of a user, and what one step says.
    """
    return Sent(who=f"{whom}: the whole episode, in the clear", messages=steps, bits=steps * numbers * _NUMBER_BITS)
