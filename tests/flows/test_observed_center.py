"""Numbers that people measure are rarely about 0: a declared center takes it away, everywhere alike."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipeline.logs.store import snapshots
from reticent import CardError, load_card
from tests.jobs import home_at, ingest_job, policy_of, run_job

pytestmark = pytest.mark.usefixtures("unread")

CENTER = np.array([120.0, 80.0])
CARD = """
schema_version = 2
name = "sugar"
kind = "synthetic"
[unit]
user = "pid"
users_public = 300
[domain]
horizon = 3
first_observations = [{first}]
[domain.observation]
columns = ["glucose", "weight"]
scale = [64.0, 32.0]
radius = 1.5
{center}
[domain.states]
ends = ["end"]
[domain.actions]
column = "drug"
labels = ["diet", "insulin"]
[features]
kind = "quadratic"
[reward]
range = [0.0, 1.0]
steps = 1
[source]
files = ["log.csv"]
columns = {{ user_id = "pid", episode_id = "pid", step = "visit", reward = "ok" }}
[budget]
rho = 2.0
delta = 1e-6
ledger = "home"
"""
RECIPE = '[recipe]\nname = "sugar"\ncard = "card.toml"\nagent = "vapvi"\n'


def lay_out(folder, by, center):
    """A log whose numbers are moved by ``by``, all of them multiples of 1/8: no arithmetic rounds them."""
    rng = np.random.default_rng(3)
    x = rng.integers(-500, 500, (300, 3, 2)) / 8 + by
    rows = [
        {"pid": u, "visit": t, "glucose": x[u, t, 0], "weight": x[u, t, 1], "drug": ("diet", "insulin")[(u + t) % 2]}
        for u in range(300)
        for t in range(3)
    ]
    high = np.where(np.arange(900) // 3 % 2, x.reshape(-1, 2)[:, 0] > by[0], x.reshape(-1, 2)[:, 1] > by[1])
    folder.mkdir()
    pl.DataFrame(rows).with_columns(ok=pl.Series(high.astype(int))).write_csv(folder / "log.csv")
    (folder / "card.toml").write_text(CARD.format(first=[float(by[0]) + 16, float(by[1]) + 8], center=center))
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


def learn(folder):
    home = home_at(folder / "home")
    ingest_job(str(folder), home)
    run = run_job(str(folder / "recipe.toml"), home)
    (snapshot,) = snapshots(home.store, "sugar")
    rows = pl.concat([pl.read_parquet(part) for part in snapshot.part_files]).sort("user_id", "step")
    stored = policy_of(home.runs / run["run"])
    return rows, stored


def test_a_center_moves_the_log_the_first_observations_and_the_policy(tmp_path):
    rows, plain = learn(lay_out(tmp_path / "plain", np.zeros(2), ""))
    same, moved = learn(lay_out(tmp_path / "moved", CENTER, f"center = {CENTER.tolist()}"))
    assert rows.equals(same)
    asked = np.random.default_rng(0).normal(0, 40, (50, 2)).round(0)
    steps, states = np.arange(50) % 3, np.zeros(50, dtype=int)
    advice, told = plain.act(asked, steps, states), moved.act(asked + CENTER, steps, states)
    keys = "step", "action", "advice", "tie", "outside"
    assert [[a[k] for k in keys] for a in advice] == [[a[k] for k in keys] for a in told]
    assert {a["outside"] for a in told} == {True, False} and len({a["action"] for a in told}) == 2
    # without it most lie beyond the ball
    _, lost = learn(lay_out(tmp_path / "lost", CENTER, ""))
    beyond = [sum(a["outside"] for a in of.act(asked + CENTER, steps, states)) for of in (moved, lost)]
    assert 3 * beyond[0] < beyond[1], beyond


def test_a_card_without_a_center_has_the_hash_it_had(tmp_path):
    with_none = load_card(lay_out(tmp_path / "a", np.zeros(2), "") / "card.toml")
    assert "center" not in with_none.domain.model_dump(mode="json")["observation"]
    with_some = load_card(lay_out(tmp_path / "b", np.zeros(2), "center = [1.0, 0.0]") / "card.toml")
    assert with_none.domain_hash() != with_some.domain_hash()


def test_a_center_of_another_size_is_refused(tmp_path):
    with pytest.raises(CardError, match="'center' has 1 entries, the dimension is 2"):
        load_card(lay_out(tmp_path / "c", np.zeros(2), "center = [1.0]") / "card.toml")
