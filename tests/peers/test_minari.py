"""What Minari's own tests hold every data set to, held to what ``store export`` writes; Minari itself reads it.

The properties are those of ``tests/dataset/test_minari_dataset.py``, ``tests/utils/test_dataset_combine.py`` and
``tests/common.py`` of Farama-Foundation/Minari (MIT), as of commits 0309e9b and 01db932, said anew in our words: none
of that code is here.
"""

from __future__ import annotations

import minari
import numpy as np
import pytest

from flows.config.home import Home
from flows.jobs.intake import ingest_job
from flows.jobs.snapshots import export_job
from tests.flows.shop import lay_out, rows

PEOPLE = 40


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    """Two exports of one card, below the folder in which Minari looks."""
    shop, home, out = lay_out(tmp_path / "shop"), Home(tmp_path / "home"), tmp_path / "out"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(out))
    found = []
    for seed in (0, 1):
        lay_out(shop, log=rows(PEOPLE, seed=seed))
        ingest_job(str(shop), home)
        found.append(export_job(str(shop), home, out)["minari"])
    return found


def sound(episodes, dataset):
    """One more observation than actions; as many rewards and both kinds of ends; all inside the spaces."""
    seen, acted = dataset.spec.observation_space, dataset.spec.action_space
    for e in episodes:
        assert len(e.observations) == len(e) + 1
        assert {len(x) for x in (e.actions, e.rewards, e.terminations, e.truncations)} == {len(e)}
        assert all(seen.contains(x) for x in e.observations) and all(acted.contains(x) for x in e.actions)
        assert not (e.terminations[:-1] | e.truncations[:-1]).any()
        assert e.terminations[-1] != e.truncations[-1]
        yield e.id


def test_it_is_listed_loaded_and_counted(datasets):
    assert set(datasets) == set(minari.list_local_datasets())
    d = minari.load_dataset(datasets[-1])
    assert d.spec.dataset_id == datasets[-1] and d.spec.minari_version
    assert d.total_episodes == d.spec.total_episodes == len(d) == len(d.episode_indices) == PEOPLE
    assert sum(map(len, d.iterate_episodes())) == d.total_steps == d.spec.total_steps


def test_every_episode_is_whole_and_inside_its_spaces_however_it_is_reached(datasets):
    d = minari.load_dataset(datasets[-1])
    assert list(sound(d.iterate_episodes(), d)) == list(range(PEOPLE))
    assert set(sound(d.iterate_episodes([1, 3, 5]), d)) == {1, 3, 5}
    assert [(d[i].id, e.id) for i, e in enumerate(d)] == [(i, i) for i in range(PEOPLE)]


def test_samples_are_whole_repeat_with_their_seed_and_are_never_larger_than_what_is_there(datasets):
    d = minari.load_dataset(datasets[-1])
    few = d.filter_episodes(lambda e: e.id >= PEOPLE - 7)
    for n in (1, 7):
        few.set_seed(n)
        drawn = list(sound(few.sample_episodes(n), d))
        few.set_seed(n)
        assert len(set(drawn)) == n and drawn == [e.id for e in few.sample_episodes(n)]
    with pytest.raises(ValueError):
        few.sample_episodes(8)


def test_filtered_episodes_keep_their_numbers_and_the_storage_stays_whole(datasets):
    d = minari.load_dataset(datasets[-1])
    few = d.filter_episodes(lambda e: e.id <= 6)
    assert few.total_episodes == few.spec.total_episodes == 7 and list(few.episode_indices) == list(range(7))
    assert few.storage.total_episodes == d.storage.total_episodes == PEOPLE
    assert list(sound(few, d)) == list(range(7))
    short = d.filter_episodes(lambda e: len(e.rewards) < 2)
    assert all(len(e) == 1 for e in short)


def test_two_editions_are_combined_and_split(datasets):
    both = minari.combine_datasets([minari.load_dataset(name) for name in datasets], "shop-both-v0")
    assert both.total_episodes == 2 * PEOPLE
    assert both.total_steps == sum(minari.load_dataset(name).total_steps for name in datasets)
    assert list(sound(both, both)) == list(range(2 * PEOPLE))
    parts = minari.split_dataset(both, [PEOPLE // 2, PEOPLE], seed=0)
    assert [p.total_episodes for p in parts] == [PEOPLE // 2, PEOPLE]
    assert not set(parts[0].episode_indices) & set(parts[1].episode_indices)


def test_episodes_of_a_collector_can_be_added(datasets):
    d = minari.load_dataset(datasets[-1])
    from minari.data_collector import EpisodeBuffer

    one = next(iter(d))
    extra = EpisodeBuffer(
        observations=one.observations,
        actions=one.actions,
        rewards=list(one.rewards),
        terminations=list(one.terminations),
        truncations=list(one.truncations),
    )
    d.update_dataset_from_buffer([extra])
    again = minari.load_dataset(datasets[-1])
    assert again.total_episodes == PEOPLE + 1 and again.total_steps == d.total_steps
    np.testing.assert_array_equal(again[PEOPLE].observations, one.observations)


def test_it_is_deleted(datasets, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    minari.delete_dataset(datasets[0])
    assert set(minari.list_local_datasets()) == {datasets[1]}


def test_there_is_no_environment_to_recover(datasets):
    with pytest.raises(ValueError, match=r"(?i)env"):
        minari.load_dataset(datasets[-1]).recover_environment()
