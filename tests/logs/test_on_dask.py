"""Partitions on a real Dask scheduler with worker processes: the same integers, and nothing raw leaves through Dask."""

import logging
import os
import shutil
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from uuid import UUID

import distributed
import polars as pl
import pytest

from flows.config.home import Home
from flows.config.recipe import setting
from flows.jobs.intake import ingest_job
from flows.jobs.registration import register_job
from pipeline.declaration.code import code_digest
from pipeline.declaration.toml import DamagedError
from pipeline.ledger.ledger import open_ledger
from pipeline.logs import elsewhere
from pipeline.logs.aggregate import CountSums
from pipeline.logs.elsewhere import Done, OnDask, Trouble, attempt, sizes, trouble_with
from pipeline.logs.store import latest
from pipeline.logs.summing import Resources, SumParts, sum_snapshot
from reticent import CardError
from tests.flows.shop import lay_out, rows
from tests.jobs import run_job
from tests.ledger.postgres import binaries, postgres_server
from tests.logs.conftest import make_card
from tests.logs.dask_cluster import dask_cluster, free_port
from tests.logs.test_aggregate import capped_card, opened, people, same, snapshot, sums

pytestmark = pytest.mark.slow

PARTS = 6
LABEL, REWARD, USER = "kanarienvogel-4711", "31415.92653", "u-schwalbe-0815"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "snapshot").mkdir()
    name = pl.format(f"{USER}-{{}}", "user_id").alias("user_id")
    snapshot([people(5, seed).with_columns(name) for seed in range(PARTS)], tmp_path / "snapshot")
    return tmp_path / "snapshot"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with dask_cluster(tmp_path_factory.mktemp("dask")) as running:
        yield running


@pytest.fixture(autouse=True)
def quiet():
    """Dask logs that workers were killed, which they were."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


class Slow(CountSums):
    """A group takes a while, and says that it began."""

    together = 1

    def add(self, sums: Any, parts: Any, seen: Any) -> None:
        begun = parts[0].parent / f"{parts[0].name}.{os.getpid()}.begun"
        begun.touch()
        time.sleep(0.7)
        super().add(sums, parts, seen)


class Careless(CountSums):
    """Fails with what a row says in its text, as a library might."""

    def add(self, sums: Any, parts: Any, seen: Any) -> None:
        raise ValueError(f"could not parse {USER} in {REWARD}")


@pytest.mark.service
def test_two_workers_add_up_to_the_same_integers(cluster, folder):
    elsewhere = OnDask(cluster.address)
    elsewhere.ready(opened(folder).part_files)
    told: list[tuple[int, int | None]] = []
    for which in ("counts", "capped", "linear"):
        got = sums(which, opened(folder), Resources(elsewhere=elsewhere, progress=lambda *at: told.append(at)))
        same(got, sums(which, opened(folder)))
        assert told[-1] == (90, 90)


def summed_while_killed(cluster, folder, killed, begun="*.begun"):
    """The sums, while processes are killed once a group began."""

    def kill() -> None:
        end = time.monotonic() + 60
        while not list(folder.glob(begun)) and time.monotonic() < end:
            time.sleep(0.02)
        for process in killed:
            os.kill(process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        work = Slow(make_card(Path(), ["log.csv"]))
        return sum_snapshot(work, opened(folder), Resources(elsewhere=OnDask(cluster.address)))
    finally:
        killer.join()


@pytest.mark.service
def test_a_worker_killed_in_the_middle_changes_no_integer_and_a_scheduler_is_named(tmp_path, folder):
    """The group of the worker is summed by the other, once."""
    with dask_cluster(tmp_path / "dask") as cluster:
        scheduler, _, victim = cluster.processes
        got = summed_while_killed(cluster, folder, [victim], f"*.{victim.pid}.begun")
        assert victim.wait(20) == -signal.SIGKILL
        begun = list(folder.glob("*.begun"))
        parts = [p.name.split(".")[0] for p in begun]
        assert sorted(set(parts)) == [f"part-{i:04d}" for i in range(PARTS)] and len(parts) > PARTS
        same(got, sums("counts", opened(folder)))
        for path in begun:
            path.unlink()
        with pytest.raises(RuntimeError, match=r"part-\d+.parquet: the scheduler went away; start it, and run again"):
            summed_while_killed(cluster, folder, [scheduler])


@pytest.mark.service
def test_when_all_workers_are_killed_the_run_ends(tmp_path, folder, constants):
    """It waited for ever."""
    constants(patience=2.0)
    says = r"part-\d+.parquet: all workers went away; start some, and run again"
    with dask_cluster(tmp_path / "dask") as cluster, pytest.raises(RuntimeError, match=says):
        summed_while_killed(cluster, folder, cluster.workers)


@pytest.mark.service
def test_nothing_raw_leaves_through_pages_keys_or_logs(cluster, folder, monkeypatch):
    keys, pages = list[str](), list[str]()
    found = folder / "part-0003.parquet"
    names = ("main/workers", "main/logs", "main/exceptions")

    def look(*_: Any) -> None:
        pages.extend(cluster.page(f"info/{name}.html") for name in names)
        for key in keys:
            # a task that Dask has forgotten has no page
            with suppress(HTTPError):
                pages.append(cluster.page(f"info/task/{key}.html"))

    submit = distributed.Client.submit

    def noted(self: Any, *args: Any, **more: Any) -> Any:
        future = submit(self, *args, **more)
        keys.append(str(future.key))
        return future

    monkeypatch.setattr(distributed.Client, "submit", noted)
    card = make_card(Path(), ["log.csv"])
    resources = Resources(elsewhere=OnDask(cluster.address), progress=look)
    sum_snapshot(Slow(card), opened(folder), resources)
    with pytest.raises(RuntimeError, match=r"part-000\d.parquet: ValueError on a worker") as careless:
        sum_snapshot(Careless(card), opened(folder), resources)
    with found.open("r+b") as file:
        file.seek(100)
        file.write(b"\0" * 2000)
    with pytest.raises(RuntimeError, match=r"part-000\d.parquet: \w+ on a worker") as damaged:
        sum_snapshot(CountSums(card), opened(folder), resources)
    parts = [people(2), people(2)]
    snapshot([pl.concat(parts)] * PARTS, folder)
    with pytest.raises(DamagedError, match="not what ingest wrote"):
        sum_snapshot(CountSums(capped_card()), opened(folder), resources)
    look()
    texts = {"pages": "\n".join(pages), "logs": cluster.logs(), "errors": f"{careless.value} {damaged.value}"}
    assert len(keys) > PARTS and any(key in texts["pages"] for key in keys)
    for where, text in texts.items():
        for canary in (USER, REWARD):
            assert canary not in text, (canary, where)
        # Dask tells of its own connections; of a task of ours it tells nothing
        assert "Compute Failed" not in text and "pipeline/logs/" not in text, where
    assert all(UUID(key.removeprefix("attempt-")).version == 4 for key in keys)


@pytest.mark.service
def test_a_task_that_raised_would_be_caught(cluster, folder, monkeypatch):
    """The twin that lets a library's error out: Dask logs its text on the worker."""
    with distributed.Client(cluster.address, set_as_default=False) as client:
        work = Careless(make_card(Path(), ["log.csv"]))
        future = client.submit(work.add, None, opened(folder).part_files, None, key="twin", pure=False)
        assert isinstance(future.exception(timeout=60), ValueError)
    assert USER in cluster.logs()


@pytest.mark.service
def test_what_would_fail_later_is_refused_before_the_charge(cluster, tmp_path):
    shop, home = lay_out(tmp_path / "shop", kind="real", ledger="ledger.db"), Home(tmp_path / "home")
    register_job(str(shop), home)
    ingest_job(str(shop), home)
    spent = open_ledger(shop / "ledger.db", create=False)
    nobody = f"tcp://127.0.0.1:{free_port()}"
    for address, wrong in ((nobody, "no Dask scheduler answers"), ("tcp://nowhere", "no Dask scheduler answers")):
        with pytest.raises(CardError, match=wrong):
            run_job(str(shop / "private.toml"), Home(home.root, resources=Resources(elsewhere=OnDask(address))))
    with dask_cluster(tmp_path / "dask", workers=0) as idle:
        idle.wait_for("Scheduler at")
        with pytest.raises(CardError, match="has no worker"):
            run_job(str(shop / "private.toml"), Home(home.root, resources=Resources(elsewhere=OnDask(idle.address))))
    assert spent.account("shop").spent == 0 and [e.kind for e in spent.entries()] == ["REGISTER", "KEY"]


@pytest.mark.service
@pytest.mark.skipif(binaries() is None, reason="no PostgreSQL server: apt-get install postgresql")
def test_a_run_on_workers_with_the_ledger_on_postgresql(cluster, tmp_path):
    """A real dataset end to end: the release is of the same integers, and Dask has seen none of its people."""
    person = "u-amsel-0816"
    log = [*rows(300), (person, 0, 0, "warm", "call", 2, True)]
    with postgres_server() as server:
        server.psql("create database ledger")
        shop = lay_out(tmp_path / "shop", kind="real", ledger=server.url("ledger"), log=log)
        home = Home(tmp_path / "home", resources=Resources(elsewhere=OnDask(cluster.address)))
        register_job(str(shop), home)
        ingest_job(str(shop), home)
        found = run_job(str(shop / "private.toml"), home)
        ledger = open_ledger(server.url("ledger"), create=False)
        kinds = [e.kind for e in ledger.entries("shop")]
        assert kinds == ["REGISTER", "KEY", "INTENT", "DRAW", "COMMIT", "PUBLISH"]
    made, card = latest(home.store, "shop"), setting(str(shop / "private.toml"), home).tabular
    assert made is not None
    same(dict(sum_snapshot(CountSums(card), made, home.resources)), dict(sum_snapshot(CountSums(card), made)))
    published = "".join(p.read_text(errors="replace") for p in Path(found["folder"]).iterdir())
    assert "dask" not in published.lower() and cluster.address not in published
    assert person not in cluster.logs()


def test_a_worker_of_another_version_or_with_other_files_sums_nothing(folder, tmp_path):
    parts = opened(folder).part_files
    files, code, work = sizes(parts), code_digest(), CountSums(make_card(Path(), ["log.csv"]))
    assert trouble_with(files, code) == ""
    assert "another version" in trouble_with(files, "of code")
    parts[2].write_bytes(b"half")
    assert "does not see part-0002.parquet as it is here" in trouble_with(files, code)
    found = attempt(SumParts(work, parts), files, code)
    assert isinstance(found, Trouble) and found.kind == "worker"
    shutil.rmtree(folder)
    assert "does not see part-0000.parquet" in trouble_with(files, code)


def test_without_the_extra_dask_is_refused_by_name(folder, monkeypatch):
    monkeypatch.setattr(elsewhere, "find_spec", lambda _: None)
    with pytest.raises(CardError, match=r"reticent\[scale\]"):
        OnDask("tcp://127.0.0.1:1").ready(opened(folder).part_files)


def test_what_a_task_shows_of_itself_is_no_value(folder):
    """Dask prints a task's arguments where it may."""
    work = CountSums(make_card(Path(), ["log.csv"]))
    assert repr(work) == "CountSums()"
    task = SumParts(work, opened(folder).part_files)
    answer = attempt(task, sizes(task.files), code_digest())
    assert isinstance(answer, Done)
    for shown in (task, answer, answer.result):
        assert not any(character.isdigit() for character in repr(shown).split("0x")[0])
