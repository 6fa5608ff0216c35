"""Logs from a release follow the released model, and nothing but the run's folder is read for them."""

import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

import reticent
from pipeline.worlds.synthetic import PRACTICE, checked, read_run, released_card, released_world
from reticent import CardError, LogOptions, Store
from tests.flows.shop import lay_out
from tests.jobs import home_at, ingest_job, register_job, run_job
from tests.statistics.test_consistency import by_bisection

H, L, A, S = 3, 2, 3, 3
STATES, ACTIONS = ["cold", "warm", "gone"], ["none", "mail", "call"]


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a card of real people, its store gone since."""
    folder = tmp_path_factory.mktemp("real")
    shop, home = lay_out(folder / "shop", kind="real", ledger="ledger.db"), home_at(folder / "home")
    register_job(str(shop), home)
    ingest_job(str(shop), home)
    run = Path(run_job(str(shop / "private.toml"), home)["folder"])
    kept = folder / "kept" / run.name
    shutil.copytree(run, kept)
    shutil.rmtree(folder / "home")
    shutil.rmtree(shop)
    return kept


def write(run: Path, home: Path, **asked) -> dict:
    return reticent.simulate_logs(from_run=run, asked=LogOptions(**asked), store=Store(home))


def rows_of(said: dict) -> pl.DataFrame:
    """Of a written log, labels by their numbers."""
    log = pl.concat(map(pl.read_parquet, said["files"])).sort("user_id", "episode_id", "step")
    number = {name: pl.col(name).replace_strict(labels, range(len(labels)), default=None, return_dtype=pl.Int64)
              for name, labels in (("state", STATES), ("action", ACTIONS), ("next_state", STATES))}  # fmt: skip
    return log.with_columns(**number)


@pytest.fixture(scope="module")
def log(real_run: Path, tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    return rows_of(write(real_run, tmp_path_factory.mktemp("large"), episodes=60_000, seed=1))


def released(run: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Consistent counts ``(H, L, A, S)``, noisy visits and rewards ``(H, L, A)`` of the release's own integers."""
    told = pl.read_parquet(run / "release.parquet")
    shapes = {"n_sas": (H, L, A, S), "r_sa": (H, L, A)}
    n_sas, r_sa = (
        told.filter(pl.col("table") == name)["value"].to_numpy().reshape(shape).astype(float)
        for name, shape in shapes.items()
    )
    whole = np.apply_along_axis(lambda n: by_bisection(max(0.0, n.sum()), np.maximum(n, 0.0)), -1, n_sas)
    return whole, np.maximum(n_sas.sum(-1), 0), r_sa


def counted(log: pl.DataFrame, *by: str) -> np.ndarray:
    n = np.zeros(tuple({"step": H, "state": L, "action": A, "next_state": S}[name] for name in by))
    np.add.at(n, tuple(log[name].to_numpy() for name in by), 1)
    return n


def chi_square(log: pl.DataFrame, run: Path, *, behind: int = 0) -> float:
    """p-value that the sampled steps follow the ratios of the released integers, worked out here in plain loops.

    ``behind`` shifts the released table by that many actions: a twin that must be found out.
    """
    whole, visits, _ = released(run)
    noisy = np.roll(visits, behind, axis=2)
    # where an episode goes on, the next row tells the state
    led = log.with_columns(
        next_state=pl.coalesce("next_state", pl.col("state").shift(-1).over("user_id", "episode_id"))
    ).drop_nulls("next_state")
    n, moved = counted(log, "step", "state", "action"), counted(led, "step", "state", "action", "next_state")
    score, freedom = 0.0, 0
    laws = [(n[h, s], noisy[h, s]) for h, s in np.ndindex(H, L)]
    laws.append((n[0].sum(-1), whole[0].sum((1, 2))))
    laws += [(moved[h, s, a], whole[h, s, a]) for h, s, a in np.argwhere(n > 200)]
    for seen, law in laws:
        expected = seen.sum() * law / law.sum()
        used = expected > 5
        if used.sum() > 1:
            score += float(((seen - expected)[used] ** 2 / expected[used]).sum())
            freedom += int(used.sum()) - 1
    return float(stats.chi2.sf(score, freedom))


def test_sampled_frequencies_are_those_of_the_release_and_of_no_other(real_run, log):
    # two-sided: too good a fit would be as wrong as a bad one
    assert 1e-6 < chi_square(log, real_run) < 1 - 1e-6
    assert chi_square(log, real_run, behind=1) < 1e-12


def test_mean_rewards_converge_to_the_released_ones_on_the_lattice(real_run, log):
    assert set(log["reward"]) <= {0.0, 1.0, 2.0}
    whole, _, r_sa = released(real_run)
    n, total = counted(log, "step", "state", "action"), np.zeros((H, L, A))
    np.add.at(total, tuple(log[name].to_numpy() for name in ("step", "state", "action")), log["reward"].to_numpy())
    often = n > 2_000
    # around the middle of [0, 2], in half units of its two steps
    told = np.clip(1 + r_sa[often] / whole.sum(-1)[often] / 2, 0, 2)
    assert np.abs(total[often] / n[often] - told).max() < 0.1 and np.ptp(told) > 0.3


def test_the_folder_says_what_it_is_and_runs_without_a_truth_though_store_and_ledger_are_gone(real_run, tmp_path):
    said = write(real_run, tmp_path / "home", episodes=800, seed=3)
    assert {p.name for p in (tmp_path / "home").iterdir()} == {"simulated", "runs"}
    folder = Path(said["folder"])
    assert said["dataset"].startswith("shop_synthetic_") and said["episodes"] == 800
    assert {p.name for p in folder.iterdir()} == {"card.toml", "recipe.toml", "README.md", "episodes-0000.parquet"}
    readme, text = (folder / "README.md").read_text(), (folder / "card.toml").read_text()
    proof = json.loads((real_run / "certificate.json").read_text())
    assert proof["guarantee"]["sentence"] in readme
    for words in ("Good for", "Not good for", "costs nothing beyond the release", "small cells", "effects"):
        assert words in readme
    assert "No new evidence" in text and "small cells are noise" in text
    card = tomllib.loads(text)
    assert (card["kind"], card["budget"]["ledger"]) == ("synthetic", "home")
    assert card["domain"]["vetoes"] == [["cold", "call"]]
    home = home_at(tmp_path / "home")
    s = ingest_job(str(folder), home)
    assert (s["users"], s["episodes"]) == (800, 800) and not any(s["quarantined"].values())
    facts = run_job(str(folder / "recipe.toml"), home)
    assert "truth" not in facts and facts["guarantee"]["claim"] == "none (simulation)"


def test_a_state_without_any_count_acts_evenly_and_goes_anywhere(real_run):
    run = read_run(real_run)
    tables = {name: table.copy() for name, table in run.release.tables.items()}
    for table in tables.values():
        table[1, 0] = -5
    card = checked(released_card(run, name="copy", episodes=400, episodes_per_user=1, rho=4.0))
    world = released_world(replace(run, release=replace(run.release, tables=tables)), card)
    np.testing.assert_allclose(world.transition[1, 0], 1 / S)
    # uniform over what the card allows: calling the cold is vetoed
    np.testing.assert_allclose(world.behaviours(PRACTICE, H)[1, 0], [0.5, 0.5, 0])


def test_same_seed_same_bytes_and_the_default_size_is_the_declared_one(real_run, tmp_path):
    def log(place: str, seed: int) -> bytes:
        said = write(real_run, tmp_path / "home", seed=seed, to=tmp_path / place)
        assert said["episodes"] == 400
        return Path(said["files"][0]).read_bytes()

    assert log("a", 1) == log("b", 1) != log("c", 2)


def test_an_edited_release_and_a_folder_that_is_no_run_are_refused(real_run, tmp_path):
    shutil.copytree(real_run, edited := tmp_path / "edited")
    other = pl.read_parquet(edited / "release.parquet").with_columns(pl.col("value") + 1)
    other.write_parquet(edited / "release.parquet")
    with pytest.raises(CardError, match="not the one its certificate names"):
        write(edited, tmp_path / "home")
    with pytest.raises(CardError, match=r"no run|not a run"):
        write(tmp_path, tmp_path / "home")


@pytest.mark.parametrize("option", [{"behaviour": "uniform"}, {"bins": "4"}, {"params": ("a=1",)}, {"horizon": 2}])
def test_options_of_worlds_do_not_go_with_a_release(real_run, tmp_path, option):
    with pytest.raises(CardError, match="belongs to worlds"):
        write(real_run, tmp_path, **option)
