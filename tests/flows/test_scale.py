"""Memory and machines are settings of a place; progress is for the operator, and only where it takes a while."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import flows.terminal.screen as pacing
from flows.terminal.screen import Speed, duration, progress_lines
from pipeline.logs import spills
from pipeline.logs.sources import Sources
from reticent import CardError, Store, run
from tests.flows.shop import lay_out
from tests.flows.test_side_outputs import reticent
from tests.logs.conftest import make_card


def resources(**asked: str) -> tuple[int, str | None]:
    """Bytes and scheduler of a store."""
    found = Store(**asked).home.resources
    return found.memory, getattr(found.elsewhere, "address", None)


def test_sizes_are_read_and_durations_said_as_they_are_written() -> None:
    sizes = (("1073741824", 1 << 30), ("1.5 GiB", 3 << 29), ("800MB", 800_000_000), ("2gib", 2 << 30))
    assert [resources(memory=text)[0] for text, _ in sizes] == [size for _, size in sizes]
    for text in ("much", "1 parsec", "-1GiB", "500MiB", "nanGB"):
        with pytest.raises(CardError, match="--memory"):
            resources(memory=text)
    times = ((0, "0 s"), (89, "89 s"), (600, "10 min"), (7500, "2 h 05 min"), (86_400, "24 h 00 min"))
    assert [duration(seconds) for seconds, _ in times] == [text for _, text in times]


def test_options_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resources() == (2 << 30, None)
    monkeypatch.setenv("RETICENT_MEMORY", "3GiB")
    monkeypatch.setenv("RETICENT_DASK", "tcp://a:1")
    assert resources() == (3 << 30, "tcp://a:1")
    assert resources(memory="2GiB", dask="tls://b:2") == (2 << 30, "tls://b:2")
    with pytest.raises(CardError, match="address of a scheduler"):
        resources(dask="somewhere")


def test_the_command_line_takes_both(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shop = lay_out(tmp_path / "shop")
    assert reticent(tmp_path, "--memory", "lots", "ingest", shop) == 2
    assert "--memory 'lots': give a size such as 512MB or 1.5GiB" in capfd.readouterr().err
    assert reticent(tmp_path, "--memory", "2GiB", "--dask", "nowhere", "ingest", shop) == 2
    assert reticent(tmp_path, "--memory", "2GiB", "ingest", shop) == 0


def test_no_published_file_knows_of_either(tmp_path: Path) -> None:
    folders = list[Path]()
    for memory in ("1GiB", "3GiB"):
        shop, store = lay_out(tmp_path / memory / "shop"), Store(tmp_path / memory / "home", memory=memory)
        store.ingest(shop)
        folders.append(run(shop / "exact.toml", store=store).folder)
    names = [sorted(p.name for p in folder.iterdir()) for folder in folders]
    assert names[0] == names[1]
    for name in names[0]:
        if name not in ("certificate.json", "report.html", "report.md"):
            assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time of a pace, by hand."""
    now = [100.0]
    monkeypatch.setattr(pacing, "Speed", lambda: Speed(clock=lambda: now[0]))
    yield now


def test_what_is_quick_says_nothing(clock: list[float], capfd: pytest.CaptureFixture[str]) -> None:
    tell = progress_lines("ingest")
    for done in range(20):
        clock[0] += 0.09
        tell(done, 20)
    assert capfd.readouterr() == ("", "")


def test_a_pipe_gets_plain_lines_with_speed_and_time_left(
    clock: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    tell = progress_lines("counting")
    for done in range(0, 3_100_000, 100_000):
        tell(done, 3_000_000)
        clock[0] += 1.0
    said = capfd.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "counting: 200,000 of 3,000,000 rows, 100,000 rows/s, 28 s left"
    assert len(lines) == 3 and "\r" not in said.err and "\x1b" not in said.err


def test_what_was_done_before_is_no_speed_and_a_second_pass_begins_anew() -> None:
    now = [0.0]
    pace = Speed(clock=lambda: now[0])
    assert pace.update(5_000_000, 6_000_000) and pace.rate is None
    now[0] = 10.0
    assert not pace.update(5_500_000, 6_000_000) and pace.rate == 50_000
    assert pace.line("counting", "rows").endswith("50,000 rows/s, 10 s left")
    assert pace.update(0, 6_000_000) and pace.rate is None


def likely(rows: int, memory: int) -> int:
    card = make_card(Path(), ["log.csv"])
    return spills.likely_partitions(card, Sources((), {}, {}, None, rows), memory)


def test_less_memory_makes_more_partitions_and_too_little_is_refused(constants: Callable[..., None]) -> None:
    constants(open=lambda: 2048)
    assert [likely(10_000_000, m << 20) for m in (640, 1024, 1 << 20)] == [39, 11, 11]
    assert likely(20_000_000_000, 8 << 30) == 2048
    with pytest.raises(CardError, match=r"need about 5\.2 GiB; give --memory more"):
        likely(20_000_000_000, 1 << 30)


def test_as_many_partitions_as_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[Any] = [(256, 512)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))
    assert spills.most_partitions() == 384
    spills.allow_files(100)
    assert limits == [(256, 512)]
    spills.allow_files(384)
    assert limits[-1] == (512, 512)


@pytest.mark.slow
def test_ingest_cuts_as_memory_asks(tmp_path: Path, constants: Callable[..., None]) -> None:
    constants(partition=50)
    shop = lay_out(tmp_path / "shop")
    made = Store(tmp_path / "home").ingest(shop)
    assert made["partitions"] > 5
    parts = sorted((tmp_path / "home" / "store" / "shop" / "snapshot-0001").glob("part-*.parquet"))
    assert sum(len(pl.read_parquet(p)) for p in parts) == made["rows"]
