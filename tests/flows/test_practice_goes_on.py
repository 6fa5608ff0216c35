"""States whose practice noise hides: where nothing matters, the policy that keeps practice there is not better."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reticent import Store, run
from tests.flows.shop import write_recipe

pytestmark = pytest.mark.usefixtures("settled")
PEOPLE, STATES, RARE = 100_000, 50, 15
CARD = f"""
schema_version = 2
name = "visits"
budget = {{ rho = 4.0, ledger = "ledger.db" }}
[unit]
user = "who"
users_public = {PEOPLE}
[domain]
horizon = 1
practice = "recorded"
states = {{ column = "state", labels = {json.dumps([str(s) for s in range(STATES)])}, ends = ["end"] }}
actions = {{ column = "done", labels = ["0", "1", "2"] }}
[reward]
range = [0.0, 1.0]
[source]
files = ["frame.parquet"]
columns = {{ user_id = "who", reward = "good" }}
"""


def nothing_matters() -> pl.DataFrame:
    """One visit each; 6 % of people are in rare states, and fare badly there, whatever is done."""
    g = np.random.default_rng(21)
    often = STATES - RARE
    state = g.choice(STATES, PEOPLE, p=np.repeat([0.94 / often, 0.06 / RARE], [often, RARE]))
    # practice is nearly one rule, and tosses a coin in two states
    usual = np.where(g.random(PEOPLE) < 0.98, 0, g.integers(1, 3, PEOPLE))
    done = np.where(state < 2, g.integers(0, 2, PEOPLE), usual)
    good = g.random(PEOPLE) < np.where(state < often, 0.5, 0.1)
    return pl.DataFrame(
        {"who": np.arange(PEOPLE), "state": state.astype(str), "done": done.astype(str), "good": good * 1.0}
    )


def test_where_practice_goes_on_and_noise_hides_it_nothing_is_gained(tmp_path: Path):
    """What the model supposes of practice in such states, a uniform choice, has no say in people's scores."""
    (tmp_path / "card.toml").write_text(CARD)
    store = Store(tmp_path / "home")
    store.register(tmp_path / "card.toml")
    store.ingest(tmp_path / "card.toml", nothing_matters())
    more = "[evaluate]\npeople = 0.5\n"
    done = run(write_recipe(tmp_path, "visits", "dp-apvi", "[privacy]\nrho = 0.07", more), store=store)
    assert done.verdict.answer != "better"
    gain = done.improvement
    assert gain is not None and gain.lower < 0.002 and gain.upper > -0.002
