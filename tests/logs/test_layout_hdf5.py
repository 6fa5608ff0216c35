"""Minari and HDF5: episodes that do not fit, links, bombs, numbers of any kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pytest

from pipeline.logs.readers import hdf5
from reticent import CardError, LogError

from .conftest import quarantine
from .layout_ingest import taken
from .layouts import LOG, cards, write_d4rl, write_minari_arrow, write_minari_hdf5


def test_episodes_of_minari_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write_minari_hdf5(tmp_path, LOG * 4)
    filed = quarantine(taken("Minari in HDF5", tmp_path, domain={"horizon": 2}).folder)
    order = filed.sort("line")["source"].struct.field("episode").str.split("#").list.last().cast(int).to_list()
    assert order == sorted(order) and max(order) > 10


def test_an_episode_whose_arrays_do_not_fit_is_filed_and_the_others_stay(tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        del file["episode_1/rewards"]
        file["episode_1/rewards"] = [0.0, 1.0]
        del file["episode_2/actions"]
    snapshot = taken("Minari in HDF5", tmp_path)
    assert snapshot.quarantined == {"malformed_line": 2} and snapshot.rows == 3
    assert quarantine(snapshot.folder)["text"].to_list() == [
        "episode_1: rewards holds 2 entries, total_steps is another number", "episode_2: no actions",
    ]  # fmt: skip


@pytest.mark.parametrize("odd", [0, 1])
def test_an_episode_of_another_type_is_filed_wherever_it_stands(odd: int, tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        steps = len(file[f"episode_{odd}/rewards"])
        del file[f"episode_{odd}/observations"]
        file[f"episode_{odd}/observations"] = np.zeros((steps + 1, 3))
    snapshot = taken("Minari in HDF5", tmp_path)
    assert snapshot.quarantined == {"malformed_line": 1} and snapshot.rows == 10 - steps


@pytest.mark.parametrize("told", ["x", [1, 2], 7])
def test_a_number_of_steps_that_is_wrong_costs_one_episode(told: Any, tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        file["episode_2"].attrs["total_steps"] = told
    assert taken("Minari in HDF5", tmp_path).quarantined == {"malformed_line": 1}


def test_fewer_episodes_than_the_metadata_tells_refuse_the_log(tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        del file["episode_3"]
    with pytest.raises(LogError, match=r"main_data.hdf5: 3 episodes, metadata.json tells of 4"):
        taken("Minari in HDF5", tmp_path)


def test_a_person_in_the_infos_is_the_unit_where_the_card_says_so(tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        for i, told in enumerate(LOG):
            file[f"episode_{i}"].create_dataset("infos/patient", data=[f"p{i % 2}"] * (told.steps + 1))
    columns = cards()["Minari in HDF5"]["source"]["columns"] | {"user_id": "infos/patient"}
    unit = {"user": "infos/patient", "episodes_per_user": 2}
    snapshot = taken("Minari in HDF5", tmp_path, unit=unit, source={"columns": columns})
    assert (snapshot.users, snapshot.episodes, snapshot.rows) == (2, 4, 10)


def test_two_files_with_an_episode_0_hold_two(tmp_path: Path) -> None:
    for half in ("one", "two"):
        write_minari_hdf5(tmp_path / half)
    snapshot = taken("Minari in HDF5", tmp_path, source={"files": ["*/data/*.hdf5"]})
    assert (snapshot.users, snapshot.episodes, snapshot.quarantined) == (8, 8, {})


def test_a_part_of_an_arrow_episode_is_filed_and_a_missing_one_refuses(tmp_path: Path) -> None:
    path = write_minari_arrow(tmp_path)
    pl.read_ipc(path.read_bytes()).head(3).write_ipc(path)
    snapshot = taken("Minari in Arrow", tmp_path)
    assert snapshot.quarantined == {"malformed_line": 1} and snapshot.rows == 6
    for file in (tmp_path / "data" / "2").iterdir():
        file.unlink()
    (tmp_path / "data" / "2").rmdir()
    with pytest.raises(LogError, match="episode 2 is missing"):
        taken("Minari in Arrow", tmp_path)
    (tmp_path / "data" / "metadata.json").write_text('{"total_episodes": "x"}')
    with pytest.raises(LogError, match=r"data/metadata.json: total_episodes is no whole number"):
        taken("Minari in Arrow", tmp_path)


def test_an_episode_that_is_a_link_is_set_aside(tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    write_minari_hdf5(tmp_path / "other")
    with h5py.File(path, "a") as file:
        del file["episode_0"]
        file["episode_0"] = h5py.ExternalLink("../other/data/main_data.hdf5", "episode_0")
    snapshot = taken("Minari in HDF5", tmp_path)
    assert "is a link" in quarantine(snapshot.folder)["text"].item() and snapshot.episodes == 3


@pytest.mark.parametrize("link", ["soft", "external"])
def test_links_in_hdf5_are_not_followed(link: str, tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    write_d4rl(tmp_path / "other")
    with h5py.File(path, "a") as file:
        del file["episode_0/rewards"]
        to = (
            h5py.SoftLink("/episode_1/rewards")
            if link == "soft"
            else h5py.ExternalLink("../other/maze.hdf5", "rewards")
        )
        file["episode_0/rewards"] = to
    snapshot = taken("Minari in HDF5", tmp_path)
    assert "episode_0: 'rewards' is a link" in quarantine(snapshot.folder)["text"].item() and snapshot.episodes == 3


def test_data_that_lies_in_another_file_is_refused(tmp_path: Path) -> None:
    path = write_d4rl(tmp_path)
    with h5py.File(path, "a") as file:
        rows = len(file["rewards"])
        del file["rewards"]
        layout = h5py.VirtualLayout((rows,), dtype="f4")
        layout[:] = h5py.VirtualSource("elsewhere.hdf5", "rewards", (rows,))
        file.create_virtual_dataset("rewards", layout)
    with pytest.raises(LogError, match="rewards lies in another file"):
        taken("D4RL", tmp_path)


def test_an_array_that_claims_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    path = write_d4rl(tmp_path)
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (10**12,), "f8", chunks=(10**6,), compression="gzip")
    with pytest.raises(LogError, match="claims to hold far more"):
        taken("D4RL", tmp_path)


def test_a_group_that_holds_itself_has_an_end(tmp_path: Path) -> None:
    path = write_d4rl(tmp_path)
    with h5py.File(path, "a") as file:
        file["infos"] = file["/"]
    with pytest.raises(LogError, match="groups inside groups"):
        taken("D4RL", tmp_path)


def test_without_h5py_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_d4rl(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(CardError, match=r"maze.hdf5: HDF5 files need h5py; pip install 'reticent\[formats\]'"):
        taken("D4RL", tmp_path)


def test_numbers_of_any_width_and_byte_order_are_columns(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for kind in (">i4", "<f2", ">f8", "u1", "?"):
            file[kind] = np.array([0, 1], dtype=kind)
        file["text"], file["image"] = ["a", "ü"], np.zeros((2, 64, 64), np.uint8)
        file["one"], file["two"] = np.ones((2, 1)), np.ones((2, 2), ">i2")
        data = hdf5.arrays(file, tmp_path / "x.h5", "/")
        found = {name: hdf5.type_of(stored) for name, stored in data.items()}
        assert found["image"] == pl.Object() and found["one"] == pl.Float64() and found["two"] == pl.Array(pl.Int16, 2)
        for kind in (">i4", "<f2", ">f8", "u1", "?"):
            assert hdf5.series(hdf5.values(data[kind], 0, 2)).cast(pl.Float64).to_list() == [0.0, 1.0]
            assert hdf5.series(hdf5.values(data[kind], 0, 2)).dtype == found[kind]
        assert hdf5.series(hdf5.values(data["text"], 1, 2)).to_list() == ["ü"]
