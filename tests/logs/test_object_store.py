"""Source files that come from another file system (docs/operate.md): copied in by pyarrow, ingested as ever."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from pyarrow import fs

from reticent import CardError

from .conftest import HEAD, ingest, make_card

LINES = [",".join(HEAD), *(f"u{i},1,{t},{'xy'[i % 2]},{i % 2},0.5" for i in range(20) for t in range(3))]


def test_files_copied_from_another_file_system_give_the_same_snapshot(tmp_path: Path) -> None:
    remote, source, text = fsspec.filesystem("memory"), "/bucket/logs", ("\n".join(LINES) + "\n").encode()
    remote.makedirs(source, exist_ok=True)
    remote = fs.PyFileSystem(fs.FSSpecHandler(remote))
    with remote.open_output_stream(f"{source}/log.csv") as out:
        out.write(text)
    (tmp_path / "plain.csv").write_bytes(text)
    (tmp_path / "logs").mkdir()
    to = str(tmp_path / "logs")
    fs.copy_files(source, to, source_filesystem=remote, destination_filesystem=fs.LocalFileSystem())
    copied = ingest(make_card(tmp_path, ["logs/*.csv"]), tmp_path / "home")
    plain = ingest(make_card(tmp_path, ["plain.csv"]), tmp_path / "other")
    assert copied.rows == 60 and copied.data_digest == plain.data_digest


def test_a_url_is_no_path_of_a_card(tmp_path: Path) -> None:
    with pytest.raises((CardError, ValueError)):
        ingest(make_card(tmp_path, ["s3://bucket/logs/*.csv"]), tmp_path / "home")
