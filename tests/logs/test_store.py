"""Snapshots: numbered, private, found again, and made once."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from pipeline.declaration.toml import LogError
from pipeline.logs.ingest import ingest
from pipeline.logs.store import latest, load, snapshots

from .conftest import canonical, make_card

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


def test_the_same_log_and_card_make_no_second_snapshot(folder: Path) -> None:
    card, store = make_card(folder, ["log.csv"]), folder / "store"
    first = ingest(card, store)
    assert ingest(card, store, partitions=2) == first
    assert ingest(make_card(folder, ["log.csv"], domain={"horizon": 2}), store).number == 2
    (folder / "log.csv").write_text(TEXT + "w,1,0,x,0,1\n", encoding="utf-8")
    third = ingest(card, store)
    assert [s.number for s in snapshots(store, "tiny")] == [1, 2, 3]
    assert latest(store, "tiny") == third == load(third.folder)
    assert latest(store, "nothing") is None


def test_a_tightened_tolerance_holds_for_a_snapshot_made_before(folder: Path) -> None:
    store = folder / "store"
    ingest(make_card(folder, ["log.csv"]), store)
    with pytest.raises(LogError, match=r"reward_off_lattice.*log.csv, line 3;"):
        ingest(make_card(folder, ["log.csv"], tolerance={"reward_off_lattice": 0.1}), store)


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
    with pytest.raises(LogError, match="missing or damaged"):
        latest(folder / "store", "tiny")


def test_a_lost_part_file_says_so(folder: Path) -> None:
    snapshot = ingest(make_card(folder, ["log.csv"]), folder / "store")
    snapshot.part_files[0].unlink()
    with pytest.raises(LogError, match=r"part-0000.parquet is gone"):
        load(snapshot.folder)


def test_what_a_killed_ingest_left_behind_is_swept_away(folder: Path) -> None:
    left = folder / "store" / "tiny" / ".ingest"
    left.mkdir(parents=True)
    (left / "spill-0000.arrow").write_bytes(b"half")
    snapshot = ingest(make_card(folder, ["log.csv"]), folder / "store")
    assert sorted(p.name for p in snapshot.folder.parent.iterdir()) == [".lock", "snapshot-0001"]


def test_progress_reaches_the_number_of_rows_twice(folder: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    ingest(make_card(folder, ["log.csv"]), folder / "store", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(3, None), (3, 3)]


@pytest.mark.parametrize("partitions", [0, 2049])
def test_a_partition_count_out_of_range_is_the_programmers_fault(folder: Path, partitions: int) -> None:
    with pytest.raises(ValueError, match="partitions must be 1 to "):
        ingest(make_card(folder, ["log.csv"]), folder / "store", partitions=partitions)
