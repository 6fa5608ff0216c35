"""Logs from a release follow the released model, and nothing but the run's folder is read for them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from flows.config.home import Home
from flows.jobs.intake import ingest_job
from flows.jobs.registration import register_job
from flows.jobs.simulated_logs import simulate_from_run
from pipeline.mdp.planning import occupancies
from pipeline.privacy.release_file import release_files
from pipeline.worlds.simulated_logs import LogRows, sample_log
from pipeline.worlds.synthetic import PRACTICE, ReleasedRun, checked, read_run, released_card, released_world
from reticent import Card, CardError, LogOptions
from tests.flows.shop import lay_out
from tests.jobs import run_job

H, L, A, S = 3, 2, 3, 3


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a card of real people, its store gone since."""
    folder = tmp_path_factory.mktemp("real")
    shop, home = lay_out(folder / "shop", kind="real", ledger="ledger.db"), Home(folder / "home")
    register_job(str(shop), home)
    ingest_job(str(shop), home)
    run = Path(run_job(str(shop / "private.toml"), home)["folder"])
    kept = folder / "kept" / run.name
    shutil.copytree(run, kept)
    shutil.rmtree(folder / "home")
    shutil.rmtree(shop)
    return kept


@pytest.fixture(scope="module")
def run(real_run: Path) -> ReleasedRun:
    return read_run(real_run)


def card_of(run: ReleasedRun, episodes: int = 400) -> Card:
    return checked(released_card(run, name="copy", episodes=episodes, episodes_per_user=1, rho=4.0))


def chi_square(rows: LogRows, run: ReleasedRun, *, behind: int = 0) -> float:
    """p-value that the sampled steps follow the ratios of the released integers, worked out here in plain loops.

    ``behind`` shifts the released table by that many actions: a twin that must be found out.
    """
    card = card_of(run)
    world = released_world(run, card)
    noisy = np.maximum(run.release.tables["n_sas"].sum(-1), 0).astype(float)
    noisy = np.roll(noisy, behind, axis=2)
    n = np.zeros((H, L, A))
    np.add.at(n, (rows.step, rows.state, rows.action), 1)
    score, freedom = 0.0, 0
    for h in range(H):
        for s in range(L):
            expected = n[h, s].sum() * noisy[h, s] / noisy[h, s].sum()
            used = expected > 5
            if used.sum() > 1:
                score += float(((n[h, s] - expected)[used] ** 2 / expected[used]).sum())
                freedom += int(used.sum()) - 1
    for h, s, a in np.argwhere(n > 200):
        p = world.transition[h, s, a]
        seen = np.bincount(
            rows.next_state[(rows.step == h) & (rows.state == s) & (rows.action == a)], minlength=S
        ).astype(float)
        used = seen.sum() * p > 5
        score += float(((seen - seen.sum() * p)[used] ** 2 / (seen.sum() * p)[used]).sum())
        freedom += int(used.sum()) - 1
    return float(stats.chi2.sf(score, freedom))


def test_sampled_frequencies_are_those_of_the_release_and_of_no_other(run: ReleasedRun):
    world = released_world(run, card_of(run))
    rows = sample_log(world, PRACTICE, H, 40_000, np.random.default_rng(1))
    # two-sided: too good a fit would be as wrong as a bad one
    assert 1e-6 < chi_square(rows, run) < 1 - 1e-6
    assert chi_square(rows, run, behind=1) < 1e-12


def test_mean_rewards_and_visits_converge_to_the_released_ones(run: ReleasedRun):
    card = card_of(run)
    world = released_world(run, card)
    rows = sample_log(world, PRACTICE, H, 60_000, np.random.default_rng(2))
    lattice = {card.reward.range[0] + k * card.reward.unit for k in range(card.reward.steps + 1)}
    assert set(rows.reward) <= lattice
    d = occupancies(world.mdp(H), world.behaviours(PRACTICE, H))[:, :L]
    n, total = np.zeros((H, L, A)), np.zeros((H, L, A))
    np.add.at(n, (rows.step, rows.state, rows.action), 1)
    np.add.at(total, (rows.step, rows.state, rows.action), rows.reward)
    assert np.abs(n / 60_000 - d).max() < 0.012
    often = n > 2_000
    mean = total[often] / n[often]
    assert np.abs(mean - world.visit_reward[:, :L][often]).max() < 0.1
    assert np.ptp(world.visit_reward[:, :L][often]) > 0.3


def test_rows_use_declared_labels_ends_and_vetoes(run: ReleasedRun):
    card = card_of(run)
    assert card.kind == "synthetic" and card.budget.ledger == "home"
    assert card.domain.state_labels == ["cold", "warm", "gone"] and card.domain.vetoes == [("cold", "call")]
    world = released_world(run, card)
    assert world.actions == ["none", "mail", "call"] and dict(world.ends) == {2: "gone"}


def test_a_state_without_any_count_acts_evenly_and_goes_anywhere(run: ReleasedRun):
    tables = {name: table.copy() for name, table in run.release.tables.items()}
    for table in tables.values():
        table[1, 0] = -5
    from dataclasses import replace

    emptied = replace(run, release=replace(run.release, tables=tables))
    world = released_world(emptied, card_of(run))
    np.testing.assert_allclose(world.transition[1, 0], 1 / S)
    # uniform over what the card allows: calling the cold is vetoed
    np.testing.assert_allclose(world.behaviours(PRACTICE, H)[1, 0], [0.5, 0.5, 0])


def test_the_folder_says_what_it_is_and_runs_without_a_truth(real_run: Path, tmp_path: Path):
    r = simulate_from_run(real_run, LogOptions(episodes=800, seed=3), Home(tmp_path / "home"))
    folder = Path(r["folder"])
    assert r["dataset"].startswith("shop_synthetic_") and r["episodes"] == 800
    assert {p.name for p in folder.iterdir()} == {"card.toml", "recipe.toml", "README.md", "episodes-0000.parquet"}
    readme, card = (folder / "README.md").read_text(), (folder / "card.toml").read_text()
    proof = json.loads((real_run / "certificate.json").read_text())
    assert proof["guarantee"]["sentence"] in readme
    for words in ("Good for", "Not good for", "costs nothing beyond the release", "small cells", "effects"):
        assert words in readme
    assert "No new evidence" in card and "small cells are noise" in card
    home = Home(tmp_path / "home")
    s = ingest_job(str(folder), home)
    assert (s["users"], s["episodes"]) == (800, 800) and not any(s["quarantined"].values())
    facts = run_job(str(folder / "recipe.toml"), home)
    assert "truth" not in facts and facts["guarantee"]["claim"] == "none (simulation)"


def test_neither_store_nor_ledger_is_opened(real_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The fixture has deleted both; here a store that shouts when looked at."""
    monkeypatch.setattr(Home, "store", property(lambda _: pytest.fail("the store was opened")))
    monkeypatch.setattr(Home, "ledger_of", lambda *_: pytest.fail("the ledger was opened"))
    simulate_from_run(real_run, LogOptions(episodes=50), Home(tmp_path / "home"))
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["simulated"]


def test_same_seed_same_bytes_and_the_default_size_is_the_declared_one(real_run: Path, tmp_path: Path):
    def log(place: str, seed: int) -> bytes:
        r = simulate_from_run(real_run, LogOptions(seed=seed, to=tmp_path / place), Home(tmp_path / "home"))
        assert r["episodes"] == 400
        return Path(r["files"][0]).read_bytes()

    assert log("a", 1) == log("b", 1) != log("c", 2)


def test_an_edited_release_and_a_folder_that_is_no_run_are_refused(real_run: Path, tmp_path: Path, run: ReleasedRun):
    edited = tmp_path / "edited"
    shutil.copytree(real_run, edited)
    tables = {name: table + 1 for name, table in run.release.tables.items()}
    from dataclasses import replace

    for name, content in release_files(replace(run.release, tables=tables)).items():
        (edited / name).write_bytes(content)
    with pytest.raises(CardError, match="not the one its certificate names"):
        read_run(edited)
    with pytest.raises(CardError, match="not a run's folder"):
        read_run(tmp_path)


@pytest.mark.parametrize("option", [{"behaviour": "uniform"}, {"bins": "4"}, {"params": ("a=1",)}, {"horizon": 2}])
def test_options_of_worlds_do_not_go_with_a_release(real_run: Path, tmp_path: Path, option: dict[str, object]):
    with pytest.raises(CardError, match="belongs to worlds"):
        simulate_from_run(real_run, LogOptions(**option), Home(tmp_path))  # pyright: ignore[reportArgumentType]
