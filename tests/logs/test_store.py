"""Snapshots: numbered, private, found again, and made once."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from pipeline.declaration.toml import DamagedError
from pipeline.logs.ingest import ingest
from pipeline.logs.store import (
    check_delivery,
    check_parts,
    earlier_twin,
    find_snapshot,
    intact,
    latest,
    load,
    snapshots,
)
from pipeline.logs.summing import Resources
from reticent import CardError, LogError

from .conftest import canonical, make_card, quarantine

TEXT = "user,episode,t,s,a,r\nu,1,0,x,0,1\nv,1,0,y,1,0.7\nv,1,1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text(TEXT, encoding="utf-8")
    return tmp_path


def test_nobody_but_the_owner_may_look(folder: Path) -> None:
    (folder / "home").mkdir()
    store = folder / "home" / "store"
    store.mkdir(mode=0o755)
    ingest(make_card(folder, ["log.csv"]), store, partitions=3)
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in [store, *store.rglob("*")]}
    assert set(modes.values()) == {0o700, 0o600}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items())


def test_every_ingest_makes_an_edition_and_equal_bytes_are_stored_once(folder: Path) -> None:
    card, store = make_card(folder, ["log.csv"]), folder / "store"
    first, second = ingest(card, store), ingest(card, store, partitions=2)
    assert (first.number, second.number) == (1, 2)
    assert replace(second, number=1, folder=first.folder) == first
    assert [p.stat().st_nlink for p in second.folder.iterdir() if p.suffix == ".parquet"] == [2, 2, 2]
    assert ingest(make_card(folder, ["log.csv"], domain={"horizon": 2}), store).number == 3
    (folder / "log.csv").write_text(TEXT + "w,1,0,x,0,1\n", encoding="utf-8")
    fourth = ingest(card, store)
    assert [s.number for s in snapshots(store, "tiny")] == [1, 2, 3, 4]
    assert latest(store, "tiny") == fourth == load(fourth.folder) == find_snapshot(store, "tiny", 4)
    assert latest(store, "nothing") is None and find_snapshot(store, "tiny", 5) is None
    assert [earlier_twin(store, s) for s in snapshots(store, "tiny")] == [None, 1, None, None]
    # what the first was purged of is still whole in the second
    shutil.rmtree(first.folder)
    assert intact(second) and len(canonical(second)) == 2


def test_damaged_bytes_are_not_shared_but_made_anew(folder: Path) -> None:
    card, store = make_card(folder, ["log.csv"]), folder / "store"
    first = ingest(card, store)
    whole = first.part_files[0].read_bytes()
    first.part_files[0].write_bytes(whole[:-1] + b"?")
    second = ingest(card, store)
    assert second.part_files[0].read_bytes() == whole and not intact(first)


def test_a_night_has_one_edition_and_that_before_it_where_nothing_can_be_read(folder: Path) -> None:
    card, store, night = make_card(folder, ["log.csv"]), folder / "store", date(2026, 1, 1)
    (folder / "log.csv").unlink()
    with pytest.raises(CardError):
        ingest(card, store, night=night)
    (folder / "log.csv").write_text(TEXT, encoding="utf-8")
    first = ingest(card, store, night=night)
    (folder / "log.csv").write_text(TEXT + "w,1,0,x,0,1\n", encoding="utf-8")
    assert ingest(card, store, night=night) == first == load(first.folder)
    (folder / "log.csv").unlink()
    second = ingest(card, store, night=date(2026, 1, 2))
    assert (second.number, second.night, second.data_digest) == (2, "2026-01-02", first.data_digest)
    with pytest.raises(LogError, match="nothing matches"):
        check_delivery(card, second)
    with pytest.raises(CardError):
        ingest(card, store)


def test_a_tightened_tolerance_holds_for_a_snapshot_made_before(folder: Path) -> None:
    made = ingest(make_card(folder, ["log.csv"]), folder / "store")
    with pytest.raises(LogError, match=r"reward_off_lattice.*log.csv, line 3;"):
        check_delivery(make_card(folder, ["log.csv"], tolerance={"reward_off_lattice": 0.1}), made)


def test_the_manifest_tells_what_was_read_and_what_became_of_it(folder: Path) -> None:
    snapshot = ingest(make_card(folder, ["log.csv"]), folder / "store", partitions=2)
    told = json.loads((snapshot.folder / "manifest.json").read_text(encoding="utf-8"))
    assert told["quarantined"] == {"malformed_line": 1, "reward_off_lattice": 1}
    assert (told["source_rows"], told["rows"], told["users"], told["episodes"], told["partitions"]) == (3, 2, 2, 2, 2)
    assert len(canonical(snapshot)) == 2
    assert snapshot.domain_hash == make_card(folder, ["log.csv"]).domain_hash()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": 1}', None])
def test_a_damaged_manifest_says_so(folder: Path, text: str | None) -> None:
    snapshot = ingest(make_card(folder, ["log.csv"]), folder / "store")
    manifest = snapshot.folder / "manifest.json"
    if text is None:
        manifest.unlink()
    else:
        manifest.write_text(text, encoding="utf-8")
    with pytest.raises(DamagedError, match="missing or damaged"):
        latest(folder / "store", "tiny")


def test_a_lost_part_file_says_so(folder: Path) -> None:
    snapshot = ingest(make_card(folder, ["log.csv"]), folder / "store")
    snapshot.part_files[0].unlink()
    with pytest.raises(DamagedError, match=r"part-0000.parquet cannot be read"):
        check_parts(load(snapshot.folder))


def test_what_a_killed_ingest_left_behind_is_swept_away(folder: Path) -> None:
    left = folder / "store" / "tiny" / ".ingest"
    left.mkdir(parents=True)
    (left / "spill-0000.arrow").write_bytes(b"half")
    snapshot = ingest(make_card(folder, ["log.csv"]), folder / "store")
    assert sorted(p.name for p in snapshot.folder.parent.iterdir()) == [".lock", "snapshot-0001"]


def test_progress_reaches_the_number_of_rows_twice(folder: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    heard = Resources(progress=lambda done, total: seen.append((done, total)))
    ingest(make_card(folder, ["log.csv"]), folder / "store", resources=heard)
    assert seen == [(3, None), (3, 3)]


@pytest.mark.parametrize("partitions", [0, 2049])
def test_a_partition_count_out_of_range_is_the_programmers_fault(folder: Path, partitions: int) -> None:
    with pytest.raises(ValueError, match="partitions must be 1 to "):
        ingest(make_card(folder, ["log.csv"]), folder / "store", partitions=partitions)


@pytest.mark.parametrize(("field", "value"), [("rows", "2"), ("rows", True), ("quarantined", {"malformed_line": 1.5})])
def test_a_manifest_of_other_types_is_damaged(folder: Path, field: str, value: object) -> None:
    snapshot = ingest(make_card(folder, ["log.csv"]), folder / "store")
    manifest = snapshot.folder / "manifest.json"
    told = json.loads(manifest.read_text(encoding="utf-8"))
    # without the digest of itself, as the manifests of before
    told.pop("sha256")
    manifest.write_text(json.dumps(told | {field: value}), encoding="utf-8")
    with pytest.raises(DamagedError, match="missing or damaged"):
        load(snapshot.folder)


def test_a_manifest_that_says_something_else_is_damaged_and_not_repeated(folder: Path) -> None:
    """The gate counts people by it: what it says once decided a run, and was copied to the next edition."""
    card, store = make_card(folder, ["log.csv"]), folder / "store"
    first = ingest(card, store)
    manifest = first.folder / "manifest.json"
    told = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps(told | {"set_aside": {"reward_off_lattice": 9}}), encoding="utf-8")
    with pytest.raises(DamagedError, match="missing or damaged"):
        load(first.folder)
    assert ingest(card, store).set_aside == first.set_aside
    # those of before have none
    manifest.write_text(json.dumps({k: v for k, v in told.items() if k != "sha256"}), encoding="utf-8")
    assert load(first.folder) == first


def test_a_damaged_quarantine_is_made_anew_by_the_next_ingest(folder: Path) -> None:
    card, store = make_card(folder, ["log.csv"]), folder / "store"
    first = ingest(card, store)
    for file in first.folder.glob("quarantine-*.parquet"):
        file.write_bytes(file.read_bytes()[:40])
    again = ingest(card, store)
    assert again.set_aside == first.set_aside and len(quarantine(again.folder)) == 2
