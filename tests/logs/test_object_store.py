"""Source files that come from another file system (docs/operate.md): copied in by pyarrow, ingested as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow import fs

from reticent import CardError

from .conftest import HEAD, ingest, make_card

LINES = [",".join(HEAD), *(f"u{i},1,{t},{'xy'[i % 2]},{i % 2},0.5" for i in range(20) for t in range(3))]


def in_memory(folder: Path) -> tuple[Any, str]:
    remote = fsspec.filesystem("memory")
    remote.makedirs("/bucket/logs", exist_ok=True)
    return fs.PyFileSystem(fs.FSSpecHandler(remote)), "/bucket/logs"


def elsewhere(folder: Path) -> tuple[Any, str]:
    (folder / "remote" / "bucket" / "logs").mkdir(parents=True)
    return fs.SubTreeFileSystem(str(folder / "remote"), fs.LocalFileSystem()), "bucket/logs"


@pytest.mark.parametrize("where", [in_memory, elsewhere])
def test_files_copied_from_another_file_system_give_the_same_snapshot(tmp_path: Path, where: Any) -> None:
    (remote, source), text = where(tmp_path), ("\n".join(LINES) + "\n").encode()
    with remote.open_output_stream(f"{source}/log.csv") as out:
        out.write(text)
    (tmp_path / "plain.csv").write_bytes(text)
    (tmp_path / "logs").mkdir()
    fs.copy_files(
        source,
        str(tmp_path / "logs"),
        source_filesystem=remote,
        destination_filesystem=fs.LocalFileSystem(),
    )
    copied = ingest(make_card(tmp_path, ["logs/*.csv"]), tmp_path / "home")
    plain = ingest(make_card(tmp_path, ["plain.csv"]), tmp_path / "other")
    assert copied.rows == 60 and copied.data_digest == plain.data_digest


def test_a_url_is_no_path_of_a_card(tmp_path: Path) -> None:
    with pytest.raises((CardError, ValueError)):
        ingest(make_card(tmp_path, ["s3://bucket/logs/*.csv"]), tmp_path / "home")
