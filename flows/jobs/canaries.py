"""The one-run audit of the whole pipeline: made-up people through ingest and run, scored by what these wrote."""

from __future__ import annotations

import csv
import secrets
import tempfile
from pathlib import Path

import numpy as np

from flows.config.home import Home
from flows.config.setting import Setting
from flows.jobs.run import ingest_job, run_recipe
from pipeline.audits.laws import OneRun, guess, lower_epsilon
from pipeline.declaration.card import CardError
from pipeline.privacy.budget import epsilon_from_rho

# guesses at both ends of the scores: fewer could not break a claim of epsilon 5 even if every one were right
_SHARE, _DOUBT = 0.4, 1e-3
_HORIZON, _DELTA = 2, 1e-6
_CARD = """schema_version = 1
name = "canaries"
kind = "synthetic"
[unit]
user = "user_id"
users_public = {n}
[domain]
horizon = {horizon}
[domain.states]
column = "state"
labels = ["here"]
[domain.actions]
column = "action"
labels = {n}
[reward]
range = [0.0, 1.0]
[source]
files = ["log.csv"]
[source.columns]
user_id = "user_id"
episode_id = "episode_id"
step = "step"
reward = "reward"
next_state = "next_state"
[budget]
rho = {cap}
delta = {delta}
"""
_RECIPE = """[recipe]
name = "canaries"
card = "card.toml"
agent = "dp-apvi"
[privacy]
rho = {rho}
"""


def one_run(s: Setting, canaries: int) -> OneRun:
    """Register, ingest and run a log in which each of ``canaries`` people is in by a coin, at the recipe's budget.

    Every person takes an action of its own at every step: its cells hold nobody else.
    """
    rho = s.recipe.terms.ask().zcdp()
    if rho is None:
        raise CardError(f"{s.recipe.path.name}: --canaries needs a budget in rho, or epsilon with delta")
    coins = np.array([secrets.randbits(1) for _ in range(canaries)], dtype=bool)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        values = {"n": canaries, "horizon": _HORIZON, "cap": 2 * float(rho), "delta": _DELTA, "rho": float(rho)}
        (folder / "card.toml").write_text(_CARD.format(**values), encoding="utf-8")
        (folder / "recipe.toml").write_text(_RECIPE.format(**values), encoding="utf-8")
        _write_log(folder / "log.csv", coins)
        home = Home(folder / "home")
        ingest_job(str(folder / "card.toml"), home)
        result = run_recipe(str(folder / "recipe.toml"), home)
        scores = _scores(Path(result.folder), canaries)
        # in or out is half of a replacement: one 1 in each of H cells instead of two
        claimed = epsilon_from_rho(float(result.guarantee.rho or 0) / 2, _DELTA)
    guesses, right = guess(scores, coins, _SHARE)
    bound = lower_epsilon(canaries, guesses, right, _DELTA, _DOUBT)
    return OneRun(canaries, guesses, right, bound, claimed, _DELTA, 1 - _DOUBT)


def _write_log(path: Path, coins: np.ndarray) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["user_id", "episode_id", "step", "state", "action", "reward", "next_state"])
        for i in np.flatnonzero(coins):
            out.writerows([int(i), int(i), h, "here", int(i), 0.0, "here"] for h in range(_HORIZON))


def _scores(folder: Path, canaries: int) -> np.ndarray:
    """Mean noisy count of each person's own cells, read from the published release."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "release.parquet", filters=[("table", "=", "n_sas")])
    action, value = table["action"].to_numpy(), table["value"].to_numpy()
    return np.bincount(action, weights=value, minlength=canaries) / _HORIZON
