"""HMAC-SHA-256 (RFC 2104) of many short texts under one key, whose two blocks are made once.

``hmac.digest`` prepares the key anew for every text: three quarters of the time of a split of a million people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256

_BLOCK = 64
_INNER, _OUTER = (bytes(x ^ pad for x in range(256)) for pad in (0x36, 0x5C))


def keyed_digests(key: bytes, texts: Iterable[str]) -> Iterator[bytes]:
    """The 32 bytes of ``hmac.digest(key, text, "sha256")`` of each text, in UTF-8."""
    block = (sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    inner, outer = block.translate(_INNER), block.translate(_OUTER)
    for text in texts:
        yield sha256(outer + sha256(inner + text.encode()).digest()).digest()
