"""One run at a time in a lineage's folder of the store, by a lock that dies with its process."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_at_a_time(folder: Path, *, wait: bool = True) -> Generator[str]:
    """Hold the lineage's lock from before INTENT to COMMIT; a second run waits and then replays.

    Yields
    ------
    A name of this place: a random token in the store, hashed with the machine's name.  While the lock is held, no
    attempt that drew here is alive; a copy of the store on another machine is another place.

    Raises
    ------
    BlockingIOError
        If ``wait`` is not set and another run holds it.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(folder / ".releasing", os.O_CREAT | os.O_RDWR, 0o600), "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        token = lock.read()
        if len(token) != 32:
            token = secrets.token_hex(16)
            lock.seek(0)
            lock.write(token)
            lock.flush()
        yield hashlib.sha256(f"{token} {platform.node()}".encode()).hexdigest()[:32]
