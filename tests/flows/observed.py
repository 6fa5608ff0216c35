"""A card of real-valued observations, CartPole's, with a recipe for each agent that learns of them."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flows.config.home import Home
from tests.campaigns.cartpole_log import simulate
from tests.flows.shop import bare_recipe
from tests.jobs import home_at, ingest_job

ROOT = Path(__file__).parents[2]
AGENTS = {
    "exact": ("vapvi", ""),
    "plain": ("pevi", ""),
    "private": ("dp-vapvi", "[privacy]\nrho = 4.0"),
    "halves": ("dp-vapvi", "[privacy]\nrho = 4.0\n[linear]\nhalves = true"),
    "once": ("one-shot", ""),
    "private_once": ("dp-one-shot", "[privacy]\nrho = 4.0"),
}
PEOPLE, STEPS = 400, 6


def lay_out(folder: Path, card: str, agents=AGENTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "card.toml").write_text(card)
    for name, (agent, rest) in agents.items():
        bare_recipe(folder, name, agent, rest)
    return folder


def cartpole(people: int, steps: int, kind: str = "quadratic") -> str:
    card = (ROOT / "datasets" / "cartpole" / "card.toml").read_text()
    card = card.replace("users_public = 40000", f"users_public = {people}")
    card = card.replace("horizon = 20", f"horizon = {steps}")
    waves = "\nwaves = 6\nbandwidth = 0.5\nseed = 4" if kind == "fourier" else ""
    return card.replace('kind = "quadratic"', f'kind = "{kind}"{waves}').replace("rho = 8.0", "rho = 100.0")


def write_log(folder: Path, people: int, steps: int) -> None:
    """The log of a card of :func:`cartpole`, as one table: of Minari's groups h5py opens three hundred a second."""
    seen, actions, lengths = simulate(people, steps)
    e, h = np.nonzero(np.arange(steps) < lengths[:, None])
    last, whole = h == lengths[e] - 1, lengths[e] == steps
    told = {
        "episode": e, "step": h, "observations": list(seen[e, h]), "next_observations": list(seen[e, h + 1]),
        "actions": actions[e, h], "rewards": np.ones(len(e)),
        "terminations": last & ~whole, "truncations": last & whole,
    }  # fmt: skip
    pl.DataFrame(told).write_parquet(folder / "log.parquet")
    card = folder / "card.toml"
    minari = 'format = "minari"\nfiles = ["data/main_data.hdf5"]'
    card.write_text(card.read_text().replace(minari, 'files = ["log.parquet"]'))


def ingested(folder: Path, people: int, steps: int, agents: Any, kind: str = "quadratic") -> tuple[Path, Home]:
    """A shop of CartPole whose log is ingested, and its home."""
    shop, home = lay_out(folder / "shop", cartpole(people, steps, kind), agents), home_at(folder / "home")
    write_log(shop, people, steps)
    ingest_job(str(shop), home)
    return shop, home
