"""Keyed 64-bit hashes with a public salt: they split and choose without looking at anything but one user."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import polars as pl


def keyed_hash(texts: Iterable[str], salt: str) -> pl.Series:
    """Hash each text; call it on distinct users or episodes, never on rows.

    Returns
    -------
    UInt64 series, as long as ``texts``.
    """
    empty = hashlib.blake2b(key=salt.encode()[:64], digest_size=8)

    def one(text: str) -> bytes:
        h = empty.copy()
        h.update(text.encode())
        return h.digest()

    # little-endian is spelt out: the choice must not depend on the machine
    return pl.Series(np.frombuffer(b"".join(map(one, texts)), dtype="<u8"))


def label_number(text: str) -> int:
    """63-bit number of an episode label that is not an integer."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
