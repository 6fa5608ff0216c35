"""No setting of the shell reaches a golden."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("RETICENT_", "PREFECT_API"))]:
            patch.delenv(name)
        yield
