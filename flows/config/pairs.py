"""``--param key=value``, for a world and for a deployment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.declaration.card import CardError


def read_pairs(params: Sequence[str], parse: Callable[[str], object]) -> dict[str, object]:
    """Values by key.

    Parameters
    ----------
    params
        ``key=value`` each.
    parse
        Reads a value; what it raises ValueError for is a text.

    Raises
    ------
    CardError
        If a pair has no ``=``, or a key is no name or comes twice.
    """
    found: dict[str, object] = {}
    for pair in params:
        key, equals, value = pair.partition("=")
        if not (equals and key.isidentifier()) or key in found:
            raise CardError(f"--param {pair[:60]!r}: write key=value, e.g. states=5, and each key once")
        try:
            found[key] = parse(value)
        except (ValueError, RecursionError):
            found[key] = value
    return found
