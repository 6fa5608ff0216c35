"""A world that changes: what helped, harms from one night on.  An outside system plays what is in use, and logs it."""

import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.statistics.played import meets

FIRST = date(2026, 1, 1)
HORIZON, STATES, ACTIONS = 5, ("calm", "tense"), ("rest", "walk")
# chances of a reward where the action suits the state, and where it does not
SUITS, OTHERWISE = 0.8, 0.2
CARD = f"""
schema_version = 2
name = "clinic"
kind = "synthetic"
unit = {{ user = "user", users_public = 100000 }}
reward = {{ range = [0.0, 1.0], steps = 1 }}
budget = {{ rho = 1.0 }}
[domain]
horizon = {HORIZON}
states = {{ column = "state", labels = ["calm", "tense"] }}
actions = {{ column = "action", labels = ["rest", "walk"] }}
[source]
files = ["tonight.parquet"]
columns = {{ user_id = "user", episode_id = "episode", step = "step", reward = "reward", next_state = "next" }}
"""
RECIPE = """
[recipe]
name = "left_alone"
card = "card.toml"
agent = "{agent}"
[privacy]
rho = 1.0
[nightly]
first = "{first}"
nights = {nights}
counter = "toeplitz"
drift = 0.05
{window}
[promote]
status = "modelled"
[play]
share = 0.5
"""


class Clinic:
    """People who come night by night; those under practice are treated at random.

    ``reticent``: a call of the command line that returns its JSON.
    ``changes``: the first night of the other world; None: it stays as it is.
    ``rewards``: mean reward an episode of each night, as it would be known to who sees all of it.
    """

    def __init__(
        self,
        folder: Path,
        reticent: Callable[..., dict[str, Any]],
        *,
        people: int = 1000,
        nights: int = 30,
        window: int | None = None,
        changes: int | None = None,
        agent: str = "dp-apvi",
        seed: int = 0,
        first: date = FIRST,
    ) -> None:
        self.folder, self.reticent, self.people, self.changes = folder, reticent, people, changes
        self.first = first
        self.rng, self.rewards = np.random.default_rng(seed), list[float]()
        folder.mkdir(parents=True)
        (folder / "card.toml").write_text(CARD)
        self.recipe = folder / "left_alone.toml"
        within = "" if window is None else f"window = {window}"
        self.recipe.write_text(RECIPE.format(agent=agent, first=first, nights=nights, window=within))

    def in_use(self) -> tuple[dict[str, Any] | None, np.ndarray]:
        """Who meets the policy in use, and what it does ``(H, S, A)``; None where practice serves."""
        uniform = np.full((HORIZON, len(STATES), len(ACTIONS)), 1 / len(ACTIONS))
        if not (self.folder.parent / "home" / "runs" / "current").is_symlink():
            return None, uniform
        to = self.folder / "policy.json"
        self.reticent("policy", "export", "current", "--to", to, "--format", "json", "--force")
        told = json.loads(to.read_text())
        policy = np.zeros(uniform.shape)
        for row in told["rows"]:
            at = row["step"], STATES.index(row["state"])
            if row["action"]:
                policy[(*at, ACTIONS.index(row["action"]))] = row["probability"]
        unsure = policy.sum(-1) == 0
        policy[unsure] = uniform[unsure]
        return told["play"], policy

    def log(self, k: int) -> pl.DataFrame:
        """Night ``k``: everybody comes once, meets the policy or practice, and is logged."""
        play, policy = self.in_use()
        users = [f"{k}-{i}" for i in range(self.people)]
        met = np.array([play is not None and meets(play, user) for user in users])
        states = self.rng.integers(0, 2, (self.people, HORIZON + 1))
        walks = np.stack(
            [np.where(met, policy[h, states[:, h], 1], 0.5) for h in range(HORIZON)], axis=1
        ) > self.rng.random((self.people, HORIZON))
        suits = walks == states[:, :-1]
        if self.changes is not None and k >= self.changes:
            suits = ~suits
        rewards = self.rng.random(suits.shape) < np.where(suits, SUITS, OTHERWISE)
        self.rewards.append(float(rewards.sum(1).mean()))
        by_row = np.repeat(np.arange(self.people), HORIZON)
        return pl.DataFrame(
            {
                "user": [users[i] for i in by_row],
                "episode": np.zeros(len(by_row), dtype=np.int64),
                "step": np.tile(np.arange(HORIZON), self.people),
                "state": [STATES[s] for s in states[:, :-1].ravel()],
                "action": [ACTIONS[int(a)] for a in walks.ravel()],
                "reward": rewards.ravel().astype(np.float64),
                "next": [STATES[s] for s in states[:, 1:].ravel()],
            }
        )

    def night(self, k: int) -> dict[str, Any]:
        """Log night ``k`` under the policy in use, then let the program have its night."""
        self.log(k).write_parquet(self.folder / "tonight.parquet")
        return self.reticent("nightly", self.recipe, "--night", self.first + timedelta(days=k - 1))
