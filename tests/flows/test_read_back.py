"""A replay reads its run back where nothing that makes it has changed; else it writes it anew, to the same bytes."""

from __future__ import annotations

import shutil

import pytest

import flows.jobs.run as reading
from flows.jobs.intake import inspect_job
from flows.jobs.run import run_recipe
from tests.flows.shop import lay_out
from tests.jobs import home_at, ingest_job, register_job


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    folder, home = lay_out(root / "shop"), home_at(root / "home")
    register_job(str(folder), home)
    ingest_job(str(folder), home)
    return root, run_recipe(str(folder / "private.toml"), home)


@pytest.fixture
def replay(made, tmp_path, monkeypatch):
    """A copy of the home, and a replay that tells whether the run was written again."""
    root, first = made
    shutil.copytree(root, tmp_path / "office")
    wrote: list[str] = []
    publish = reading.publish_run
    monkeypatch.setattr(reading, "publish_run", lambda *a: wrote.append("again") or publish(*a))

    def again(change=lambda folder, home: None):
        folder, home = tmp_path / "office" / "shop", home_at(tmp_path / "office" / "home")
        change(folder, home)
        ran = run_recipe(str(folder / "private.toml"), home)
        assert ran.replayed and ran.run == first.run
        return bool(wrote), ran

    return first, again


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_an_untouched_run_is_read_back_and_says_the_same(replay):
    first, again = replay
    written, ran = again()
    assert not written
    differ = {"folder", "report", "replayed"}
    assert ran.model_dump(exclude=differ) == first.model_dump(exclude=differ)


@pytest.mark.parametrize("file", ["report.html", "report.json", "policy.parquet", "certificate.json", "release.json"])
def test_a_changed_file_is_written_anew(replay, file):
    first, again = replay
    places = []

    def change(_folder, home):
        places.append((home.runs / first.run, contents(home.runs / first.run)))
        (home.runs / first.run / file).write_bytes(b"changed")

    written, _ = again(change)
    [(place, before)] = places
    assert written and contents(place) == before


def test_a_missing_folder_and_a_strange_file_are_mended(replay):
    first, again = replay
    written, _ = again(lambda _, home: shutil.rmtree(home.runs / first.run))
    assert written
    written, _ = again(lambda _, home: (home.runs / first.run / "strange.txt").write_text("x"))
    assert written


def test_another_program_writes_again(replay, monkeypatch):
    _, again = replay
    now = reading.maker()
    monkeypatch.setattr(reading, "maker", lambda: {**now, "source": "another"})
    assert again()[0]


def test_another_remark_in_the_recipe_is_copied(replay):
    first, again = replay

    def remark(folder, _home):
        file = folder / "private.toml"
        file.write_text(file.read_text() + "# why\n")

    written, ran = again(remark)
    assert written and ran.run == first.run


def test_a_measured_containment_beside_the_card_is_told(replay):
    _, again = replay
    assert again(lambda folder, _: (folder / "containment.csv").write_text("world\n"))[0]


def test_a_look_at_the_data_is_told(replay):
    _, again = replay

    def look(folder, home):
        inspect_job(str(folder), home)

    assert again(look)[0]
