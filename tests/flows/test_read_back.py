"""A replay reads its run back where nothing that makes it has changed; else it writes it anew, to the same bytes."""

from __future__ import annotations

import shutil

import pytest

from tests.flows.shop import lay_out
from tests.jobs import home_at, ingest_job, inspect_job, register_job, run_job


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    folder, home = lay_out(root / "shop"), home_at(root / "home")
    register_job(str(folder), home)
    ingest_job(str(folder), home)
    return root, run_job(str(folder / "private.toml"), home)


@pytest.fixture
def office(made, tmp_path):
    """A copy of all of it: the shop's folder, the home, and the run's folder."""
    shutil.copytree(made[0], tmp_path / "office")
    home = home_at(tmp_path / "office" / "home")
    return tmp_path / "office" / "shop", home, home.runs / made[1]["run"]


def again(office, made) -> bool:
    """Whether a replay writes the run again: then its folder is another one."""
    folder, home, run = office
    before = run.stat().st_ino if run.exists() else None
    ran = run_job(str(folder / "private.toml"), home)
    assert ran["replayed"] and ran["run"] == made[1]["run"]
    return run.stat().st_ino != before


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_an_untouched_run_is_read_back_and_says_the_same(office, made):
    assert not again(office, made)
    said = run_job(str(office[0] / "private.toml"), office[1])
    assert {key for key in said if said[key] != made[1][key]} == {"folder", "report", "replayed"}


@pytest.mark.parametrize("file", ["report.html", "report.json", "policy.parquet", "certificate.json", "release.json"])
def test_a_changed_file_is_written_anew(office, made, file):
    before = contents(office[2])
    (office[2] / file).write_bytes(b"changed")
    assert again(office, made) and contents(office[2]) == before


def remark(folder, *_):
    file = folder / "private.toml"
    file.write_text(file.read_text() + "# why\n")


CHANGES = {
    "a missing folder": lambda _, __, run: shutil.rmtree(run),
    "a strange file": lambda _, __, run: (run / "strange.txt").write_text("x"),
    "another remark in the recipe": remark,
    "a measured containment beside the card": lambda folder, *_: (folder / "containment.csv").write_text("world\n"),
    "a look at the data": lambda folder, home, _: inspect_job(str(folder), home),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_not_as_it_was_is_mended_copied_or_told(office, made, what):
    CHANGES[what](*office)
    assert again(office, made)


def test_another_program_writes_again(office, made, newer):
    assert again(office, made)
