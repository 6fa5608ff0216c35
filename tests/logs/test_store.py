"""Snapshots: numbered, private, found again, and made once."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.logs.ingest import ingest as ingest_night
from pipeline.logs.store import check_delivery, load
from pipeline.logs.summing import Resources
from reticent import CardError, LogError, Store

from .conftest import Edition, canonical, ingest, make_card, quarantine

TEXT = "user,episode,t,s,a,r\nu,1,0,x,0,1\nv,1,0,y,1,0.7\nv,1,1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text(TEXT, encoding="utf-8")
    return tmp_path


def problems(folder: Path) -> list[str | None]:
    """What is wrong with each edition, oldest first."""
    return [s["problem"] for s in Store(folder / "home").verify(make_card(folder, ["log.csv"]))["snapshots"]]


def test_nobody_but_the_owner_may_look(folder: Path) -> None:
    store = folder / "home" / "store"
    store.mkdir(mode=0o755, parents=True)
    ingest(make_card(folder, ["log.csv"]), folder / "home")
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in [store, *store.rglob("*")]}
    assert set(modes.values()) == {0o700, 0o600}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items())


def test_every_ingest_makes_an_edition_and_equal_bytes_are_stored_once(folder: Path) -> None:
    card, home = make_card(folder, ["log.csv"]), folder / "home"
    first, second = ingest(card, home), ingest(card, home)
    assert (first.number, second.number, first.same_as, second.same_as) == (1, 2, None, 1)
    assert first.data_digest == second.data_digest and first.quarantined == second.quarantined
    assert [p.stat().st_nlink for p in second.folder.iterdir() if p.suffix == ".parquet"] == [2] * 3
    assert ingest(make_card(folder, ["log.csv"], domain={"horizon": 2}), home).number == 3
    (folder / "log.csv").write_text(TEXT + "w,1,0,x,0,1\n", encoding="utf-8")
    fourth = ingest(card, home)
    assert (fourth.number, fourth.same_as) == (4, None)
    # what the first was purged of is still whole in the second
    shutil.rmtree(first.folder)
    assert problems(folder) == [None] * 3 and len(canonical(second)) == 2


def test_damaged_bytes_are_not_shared_but_made_anew(folder: Path) -> None:
    card = make_card(folder, ["log.csv"])
    first = ingest(card, folder / "home")
    whole = first.part_files[0].read_bytes()
    first.part_files[0].write_bytes(whole[:-1] + b"?")
    for file in first.folder.glob("quarantine-*.parquet"):
        file.write_bytes(file.read_bytes()[:40])
    second = ingest(card, folder / "home")
    assert second.part_files[0].read_bytes() == whole and len(quarantine(second.folder)) == 2
    assert second.set_aside == first.set_aside
    broken, whole_again = problems(folder)
    assert broken is not None and whole_again is None


def test_a_night_has_one_edition_and_that_before_it_where_nothing_can_be_read(folder: Path) -> None:
    card, store, night = make_card(folder, ["log.csv"]), folder / "store", date(2026, 1, 1)
    (folder / "log.csv").unlink()
    with pytest.raises(CardError):
        ingest_night(card, store, night=night)
    (folder / "log.csv").write_text(TEXT, encoding="utf-8")
    first = ingest_night(card, store, night=night)
    (folder / "log.csv").write_text(TEXT + "w,1,0,x,0,1\n", encoding="utf-8")
    assert ingest_night(card, store, night=night) == first == load(first.folder)
    (folder / "log.csv").unlink()
    second = ingest_night(card, store, night=date(2026, 1, 2))
    assert (second.number, second.night, second.data_digest) == (2, "2026-01-02", first.data_digest)
    with pytest.raises(LogError, match="nothing matches"):
        check_delivery(card, second)
    with pytest.raises(CardError):
        ingest_night(card, store)


def test_a_tightened_tolerance_holds_for_an_edition_of_the_same_rows(folder: Path) -> None:
    assert ingest(make_card(folder, ["log.csv"]), folder / "home").problem is None
    tight = make_card(folder, ["log.csv"], tolerance={"reward_off_lattice": 0.1})
    told = ingest(tight, folder / "home")
    assert told.same_as == 1 and "reward_off_lattice" in told.problem and "log.csv, line 3;" in told.problem


def test_the_manifest_tells_what_was_read_and_what_became_of_it(folder: Path) -> None:
    told = ingest(make_card(folder, ["log.csv"]), folder / "home")
    assert told.quarantined == {"malformed_line": 1, "reward_off_lattice": 1}
    assert (told.source_rows, told.rows, told.users, told.episodes, told.partitions) == (3, 2, 2, 2, 1)
    assert len(canonical(told)) == 2
    group = pq.ParquetFile(told.part_files[0]).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    for needed in ("step", "state", "action", "reward", "next_state"):
        assert "RLE_DICTIONARY" in columns[needed].encodings and columns[needed].compression == "ZSTD", needed
    assert told.domain_hash == make_card(folder, ["log.csv"]).domain_hash()


def _manifest(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Edition], object]:
    def spoil(made: Edition) -> None:
        manifest = made.folder / "manifest.json"
        manifest.write_text(json.dumps(change(json.loads(manifest.read_text(encoding="utf-8")))), encoding="utf-8")

    return spoil


def _of_before(told: dict[str, Any]) -> dict[str, Any]:
    """Without the digest of itself, as the manifests of before."""
    return {k: v for k, v in told.items() if k != "sha256"}


MANIFEST = "missing or damaged"
SPOILT: list[tuple[str, Callable[[Edition], object]]] = [
    *((MANIFEST, lambda made, t=t: (made.folder / "manifest.json").write_text(t)) for t in ("", "{", "[]", "{}")),
    (MANIFEST, lambda made: (made.folder / "manifest.json").write_text('{"schema_version": 1}')),
    (MANIFEST, lambda made: (made.folder / "manifest.json").unlink()),
    (MANIFEST, _manifest(lambda told: _of_before(told) | {"rows": "2"})),
    (MANIFEST, _manifest(lambda told: _of_before(told) | {"rows": True})),
    (MANIFEST, _manifest(lambda told: _of_before(told) | {"quarantined": {"malformed_line": 1.5}})),
    # the gate counts people by it: what it says once decided a run, and was copied to the next edition
    (MANIFEST, _manifest(lambda told: told | {"set_aside": {"reward_off_lattice": 9}})),
    ("part-0000.parquet cannot be read", lambda made: made.part_files[0].unlink()),
]


@pytest.mark.parametrize(("says", "spoil"), SPOILT)
def test_what_is_damaged_says_so_and_is_not_repeated(
    folder: Path, says: str, spoil: Callable[[Edition], object]
) -> None:
    card = make_card(folder, ["log.csv"])
    first = ingest(card, folder / "home")
    spoil(first)
    [problem] = problems(folder)
    assert problem is not None and says in problem
    assert ingest(card, folder / "home").set_aside == first.set_aside


def test_a_manifest_of_before_has_no_digest_of_itself(folder: Path) -> None:
    made = ingest(make_card(folder, ["log.csv"]), folder / "home")
    _manifest(_of_before)(made)
    assert problems(folder) == [None]


def test_progress_reaches_the_number_of_rows_twice(folder: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    heard = Resources(progress=lambda done, total: seen.append((done, total)))
    ingest_night(make_card(folder, ["log.csv"]), folder / "store", resources=heard)
    assert seen == [(3, None), (3, 3)]


@pytest.mark.parametrize("partitions", [0, 2049])
def test_a_partition_count_out_of_range_is_the_programmers_fault(folder: Path, partitions: int) -> None:
    with pytest.raises(ValueError, match="partitions must be 1 to "):
        ingest_night(make_card(folder, ["log.csv"]), folder / "store", partitions=partitions)
