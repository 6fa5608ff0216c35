"""A sum over partitions: the same integers, whoever adds them; nothing of it stays on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.logs import summing
from pipeline.logs.aggregate import CountSums
from pipeline.logs.elsewhere import Here, Packed
from pipeline.logs.regression_sums import TallySums
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources, sum_snapshot

from .conftest import make_card
from .test_aggregate import capped_card, people, same, snapshot

PARTS = 6


def opened(folder: Path) -> Snapshot:
    return Snapshot("tiny", 1, folder, "synthetic", "", "", "", 90, 90, 0, 0, {}, PARTS)


def work(which: str) -> Any:
    if which == "counts":
        return CountSums(make_card(Path(), ["log.csv"]))
    if which == "capped":
        return CountSums(capped_card())
    return TallySums(make_card(Path(), ["log.csv"]), 64, (0, 64), split=True)


def sums(which: str, found: Snapshot, resources: Resources = summing.HERE) -> dict[str, np.ndarray]:
    return dict(sum_snapshot(work(which), found, resources))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    snapshot([people(5, seed) for seed in range(PARTS)], tmp_path)
    return tmp_path


def test_a_sum_adds_every_group_and_keeps_nothing_on_disk(folder: Path, constants: Callable[..., None]) -> None:
    whole = {which: sums(which, opened(folder)) for which in ("counts", "capped", "linear")}
    before = sorted(folder.iterdir())
    constants(parts=1)
    for which, wanted in whole.items():
        progress = list[tuple[int, int | None]]()
        same(sums(which, opened(folder), Resources(progress=lambda *at, told=progress: told.append(at))), wanted)
        assert progress[-1] == (90, 90) and sorted(folder.iterdir()) == before


@dataclass(frozen=True)
class Forgetful(Here):
    """Who does not do the last task."""

    def each(self, tasks: Iterable[Any], seen: Callable[[int], None]) -> Iterator[tuple[Any, Any]]:
        """All others."""
        return super().each(list(tasks)[:-1], seen)


def test_a_sum_without_some_partition_is_refused(folder: Path) -> None:
    same(sums("counts", opened(folder), Resources(elsewhere=Here())), sums("counts", opened(folder)))
    with pytest.raises(RuntimeError, match="some partitions are in no sum; nothing was drawn"):
        sums("counts", opened(folder), Resources(elsewhere=Forgetful()))


@given(st.lists(st.integers(-(2**40), 2**40) | st.just(0), min_size=1, max_size=60))
def test_packed_sums_add_up_to_what_they_were(values: list[int]) -> None:
    table = np.array(values, dtype=np.int64)
    total = {"a": np.ones((len(values), 1), dtype=np.int64)}
    Packed.of({"a": table.reshape(-1, 1)}).add_to(total)
    np.testing.assert_array_equal(total["a"][:, 0], table + 1)
