"""Logs of any size: files of a million rows, ids are text, and the card that reads them."""

from pathlib import Path

import numpy as np
import polars as pl

from pipeline.declaration.card import Card, load_card
from tests.benchmarks.count_speed import H, make_rows

EACH = 1_000_000
TOML = """
schema_version = 1
name = "scale"
kind = "synthetic"
[unit]
user = "u"
users_public = 100_000
[domain]
horizon = {H}
states = {{ column = "s", labels = 100 }}
actions = {{ column = "a", labels = 10 }}
[reward]
range = [0.0, 1.0]
steps = 10
[source]
files = ["log-*.parquet"]
columns = {{ user_id = "u", episode_id = "e", step = "t", reward = "r", next_state = "n" }}
[budget]
rho = 1.0
"""


def write_log(folder: Path, rows: int, horizon: int = H) -> Card:
    rng = np.random.default_rng(20261121)
    for i in range(max(1, rows // EACH)):
        episodes = min(rows, EACH) // horizon
        names = {"episode_id": "e", "step": "t", "state": "s", "action": "a", "reward": "r", "next_state": "n"}
        made = make_rows(episodes, i * (EACH // horizon), rng, horizon)
        told = made.select(u=pl.format("person-{}", "user_id"), **{v: pl.col(k) for k, v in names.items()})
        told.write_parquet(folder / f"log-{i:04d}.parquet")
    (folder / "card.toml").write_text(TOML.format(H=horizon), encoding="utf-8")
    return load_card(folder / "card.toml")
