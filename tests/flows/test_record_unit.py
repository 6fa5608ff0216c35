"""Where the files name no people, everything that is promised says what is protected instead."""

from __future__ import annotations

import json

import pytest

from flows.jobs import ingest_job, run_job
from flows.shelf import Home
from flows.verbs.run import summary
from tests.campaigns.bad_input import toml
from tests.logs.layouts import LOG, cards, write_minari_hdf5

pytest.importorskip("h5py")
RECIPE = '[recipe]\nname = "lake"\ncard = "card.toml"\nagent = "dp-apvi"\n\n[privacy]\nrho = 0.5\n'


def test_an_episode_that_is_the_unit_is_no_person_in_any_page(tmp_path):
    home, folder = Home(tmp_path / "home"), tmp_path / "lake"
    write_minari_hdf5(folder, LOG * 50)
    (folder / "card.toml").write_text(toml(cards()["Minari in HDF5"]), encoding="utf-8")
    (folder / "private.toml").write_text(RECIPE, encoding="utf-8")
    assert ingest_job(str(folder), home)["users"] == 200
    result = run_job(str(folder / "private.toml"), home)
    assert "replace one episode" in str(summary(result)[0])
    told = json.loads((home.runs / result["run"] / "certificate.json").read_text(encoding="utf-8"))
    text = json.dumps(told, ensure_ascii=False)
    assert "Replacing one episode, meaning all rows of one episode (at most 4 steps; somebody with several" in text
    assert "the files name no people: one episode is protected" in text and "identifies a person" not in text
