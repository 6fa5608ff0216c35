"""What is learnt of real-valued observations: ICU-Sepsis on 47 numbers, a pole that stays up."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.ledger.verify import verify_run
from reticent import CardError
from tests.campaigns.cartpole_log import simulate
from tests.flows.observed import AGENTS, ROOT, cartpole, lay_out, write_log
from tests.jobs import foresee_job, home_at, ingest_job, ledger_of, policy_of, run_job

pytestmark = pytest.mark.usefixtures("unread")


def icu_card(people: int, steps: int) -> str:
    shipped = tomllib.loads((ROOT / "datasets" / "icu_sepsis" / "card.toml").read_text())
    assert len(shipped["domain"]["actions"]["labels"]) == 25
    centers = ", ".join(f'"center_{i:02}"' for i in range(47))
    actions = ", ".join(f"[2, {fluid}, {pressor}]" for fluid in range(-2, 3) for pressor in range(-2, 3))
    return f"""
schema_version = 2
name = "icu_observed"
kind = "synthetic"
[unit]
user = "user_id"
users_public = {people}
[domain]
horizon = {steps}
states = {{ column = "sofa", bins = {{ by = "sofa", edges = [0.0] }}, ends = ["died", "survived", "end"] }}
observation = {{ columns = [{centers}], radius = 6.0 }}
actions = {{ column = "action", labels = 25 }}
start = {{ "sofa < 0" = 0.5, "sofa ≥ 0" = 0.5 }}
[features]
kind = "affine"
actions = [{actions}]
[reward]
range = [0.0, 1.0]
steps = 1
total = 1.0
[source]
files = ["log.parquet"]
columns = {{ user_id = "user_id", episode_id = "episode_id", step = "step", reward = "reward", terminated = "over" }}
[budget]
rho = 100.0
delta = 1e-6
"""


@pytest.mark.slow
def test_icu_sepsis_runs_on_its_47_numbers_crossed_with_bins(tmp_path, few):
    folder, people, steps = ROOT / "datasets" / "icu_sepsis", 300, 2
    log = pl.read_parquet(folder / "episodes-0000.parquet").filter(
        (pl.col("user_id") < people) & (pl.col("step") < steps)
    )
    numbers = pl.read_parquet(folder / "states.parquet")
    survived = (pl.col("next_state") == "survived").fill_null(value=False)
    over = pl.col("next_state").is_in(["died", "survived"]).fill_null(value=False)
    log = log.with_columns(
        pl.col("state").cast(pl.String), survived.cast(pl.Float64).alias("reward"), over.alias("over")
    )
    joined = log.join(numbers.with_columns(pl.col("state").cast(pl.String)), on="state", how="left")
    shop = lay_out(
        tmp_path / "shop",
        icu_card(people, steps),
        {"private": ("dp-vapvi", "[privacy]\nrho = 8.0"), "private_once": AGENTS["private_once"]},
    )
    joined.with_columns(pl.col("center_00").alias("sofa")).drop("state", "next_state").write_parquet(
        shop / "log.parquet"
    )
    home = home_at(tmp_path / "home")
    found = ingest_job(str(shop), home)
    assert found["users"] == people and set(found["quarantined"]) <= {"beyond_radius"}
    for name in ("private", "private_once"):
        folder_of_run = Path(run_job(str(shop / f"{name}.toml"), home)["folder"])
        stored = policy_of(folder_of_run)
        assert stored.features.dimension == 2 * 48 * 3
        told = stored.act(numbers.select(pl.exclude("state")).to_numpy()[:20], np.zeros(20, int), np.zeros(20, int))
        assert all(a["abstains"] or a["action"] in stored.labels["actions"] for a in told)
        with pytest.raises(CardError, match="--state must be one of"):
            stored.state_index(None)
        checks = verify_run(folder_of_run, ledger_of(home).entries())
        assert all(c.ok for c in checks), checks
    told = foresee_job(str(shop / "private_once.toml"), home)
    # so few people and so many numbers: the forecast says that nothing is learnt
    assert told["suboptimality"]["mean"] > 0.5 * told["reference"]["suboptimality"] > 0


def stands(stored: Any, steps: int, episodes: int = 200) -> float:
    """Mean number of steps that the pole stands under a policy."""
    import gymnasium

    env = gymnasium.make_vec("CartPole-v1", num_envs=episodes, vectorization_mode="vector_entry_point")
    seen, _ = env.reset(seed=99)
    alive, stood = np.ones(episodes, dtype=bool), 0
    for h in range(steps):
        said = stored.act(seen.astype(np.float64), np.full(episodes, h), np.zeros(episodes, dtype=np.int64))
        actions = np.array([int(s["action"] == "right") for s in said])
        seen, _, fallen, _, _ = env.step(actions)
        stood += int(alive.sum())
        alive &= ~fallen
    return stood / episodes


@pytest.mark.slow
def test_without_noise_it_keeps_the_pole_up_where_the_log_lets_it_fall(tmp_path):
    """Twelve hundred episodes of thirty steps: the log's pole stands 27 of them."""
    people, steps = 1200, 30
    shop, home = (
        lay_out(tmp_path / "shop", cartpole(people, steps), {"exact": AGENTS["exact"]}),
        home_at(tmp_path / "home"),
    )
    write_log(shop, people, steps)
    ingest_job(str(shop), home)
    stored = policy_of(Path(run_job(str(shop / "exact.toml"), home)["folder"]))
    logged = simulate(people, steps)[2].mean()
    assert logged < 28.5
    assert stands(stored, steps) > 29.5


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_privately_40_000_episodes_are_enough(tmp_path):
    # 20.0 in five draws of five; at rho = 2 seven gave 18.7 to 20.0, three below the log's 19.3: its chance is settled
    shop, home = (
        lay_out(tmp_path / "shop", cartpole(40_000, 20), {"private": ("dp-vapvi", "[privacy]\nrho = 8.0")}),
        home_at(tmp_path / "home"),
    )
    write_log(shop, 40_000, 20)
    ingest_job(str(shop), home)
    stored = policy_of(Path(run_job(str(shop / "private.toml"), home)["folder"]))
    assert stands(stored, 20) > simulate(2000, 20)[2].mean()
