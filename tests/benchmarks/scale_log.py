"""Logs of any size: files of a million rows, ids are text, and the card that reads them."""

from pathlib import Path

import numpy as np
import polars as pl

from pipeline.declaration.card import Card, load_card
from tests.benchmarks.count_speed import STEPS, A, H, S, make_rows
from tests.conftest import card_dict, toml

EACH = 1_000_000
NAMES = {"user_id": "u", "episode_id": "e", "step": "t", "reward": "r", "next_state": "n"}


def write_log(folder: Path, rows: int, horizon: int = H) -> Card:
    rng = np.random.default_rng(20261121)
    for i in range(max(1, rows // EACH)):
        episodes = min(rows, EACH) // horizon
        made = make_rows(episodes, i * (EACH // horizon), rng, horizon)
        cells = made.with_columns(user_id=pl.format("person-{}", "user_id"))
        told = cells.select(pl.col(k).alias(v) for k, v in (NAMES | {"state": "s", "action": "a"}).items())
        told.write_parquet(folder / f"log-{i:04d}.parquet")
    states, actions = {"column": "s", "labels": S}, {"column": "a", "labels": A}
    card = card_dict(
        name="scale",
        unit={"user": "u", "users_public": 100_000},
        domain={"horizon": horizon, "states": states, "actions": actions},
        reward={"range": [0.0, 1.0], "steps": STEPS},
        source={"files": ["log-*.parquet"], "columns": NAMES},
        budget={"rho": 1.0},
    )
    (folder / "card.toml").write_text(toml(card), encoding="utf-8")
    return load_card(folder / "card.toml")
