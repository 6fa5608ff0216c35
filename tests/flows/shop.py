"""A small synthetic dataset on disk: a card, a CSV log and recipes, for end-to-end tests."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from flows.config.home import Home
from pipeline.files import private_folder
from pipeline.ledger.publication import KEY_FILE
from reticent import Run, Store, run
from tests.jobs import home_at, ingest_job, register_job

CARD = """
schema_version = 1
name = "{name}"
kind = "{kind}"
[unit]
user = "customer"
episodes_per_user = 1
users_public = {people}
[domain]
horizon = 3
states = {{ column = "mood", labels = ["cold", "warm"], ends = ["gone"] }}
actions = {{ column = "offer", labels = ["none", "mail", "call"] }}
vetoes = [["cold", "call"]]
[reward]
range = [0.0, 2.0]
steps = 2
[source]
files = ["log.csv"]
columns = {{ user_id = "customer", episode_id = "visit", step = "t", reward = "sale", terminated = "left" }}
[budget]
rho = {cap}
delta = 1e-6
ledger = "{ledger}"
"""
RECIPE = """
[recipe]
name = "{name}"
card = "card.toml"
agent = "{agent}"
{privacy}
[planner]
constants = "practical"
bounds = "tail"
"""
PLAIN = """
schema_version = 2
name = "{name}"
unit = {{ user = "{user}", users_public = {people} }}
reward = {{ range = [0.0, 1.0] }}
budget = {{ rho = 4.0, ledger = "ledger.db" }}
{top}
[domain]
horizon = {horizon}
states = {{ {states}ends = ["end"] }}
actions = {{ {actions} }}
{domain}
[source]
files = ["log.parquet"]
columns = {{ user_id = "{user}", {columns} }}
"""
SCHEDULE = """
[schedule]
release = "nightly"
"""
HELD = "[evaluate]\npeople = 0.3\n"


def rows(users: int = 400, seed: int = 0) -> list[tuple]:
    """Simulated customers: mail warms, calls sell to the warm."""
    return list(_simulated(users, seed))


@cache
def _simulated(users: int, seed: int) -> tuple[tuple, ...]:
    rng = np.random.default_rng(seed)
    found = []
    for u in range(users):
        mood = "cold" if rng.random() < 0.6 else "warm"
        for t in range(3):
            offer = str(rng.choice(["none", "mail", "call"]))
            sale = int(rng.random() < (0.7 if (mood, offer) == ("warm", "call") else 0.1)) * 2
            left = bool(rng.random() < 0.1)
            found.append((f"c{u}", 0, t, mood, offer, sale, left))
            if left:
                break
            mood = "warm" if offer == "mail" and rng.random() < 0.8 else mood
    return tuple(found)


def write_log(folder: Path, log, more: str = "") -> None:
    """Put a log in the place of the last; ``more``: names of further columns."""
    lines = [f"customer,visit,t,mood,offer,sale,left{more}", *(",".join(map(str, r)) for r in log)]
    (folder / "log.csv").write_text("\n".join(lines) + "\n")


def change(file: Path, old: str, new: str) -> None:
    """Put another text in the place of one that stands in a file."""
    text = file.read_text()
    assert old in text, (file, old)
    file.write_text(text.replace(old, new))


def add(file: Path, text: str) -> None:
    """Write a text behind what stands in a file."""
    file.write_text(file.read_text() + text)


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def card_text(*, name="shop", kind="synthetic", ledger=None, cap: float = 3.0, people: int = 400) -> str:
    """The card; real people have a ledger beside it."""
    ledger = ledger or ("ledger.db" if kind == "real" else "home")
    return CARD.format(name=name, kind=kind, ledger=ledger, cap=cap, people=people)


def plain_card(name: str, user: str, people: int, horizon: int, *, states="", top="", domain="", **told: str) -> str:
    """A card of version 2 of real people who are paid 0 or 1 a step; ``told``: ``actions`` and ``columns``."""
    more = {"states": states, "top": top, "domain": domain, **told}
    return PLAIN.format(name=name, user=user, people=people, horizon=horizon, **more)


def write_recipe(folder: Path, name: str, agent="dp-apvi", privacy="[privacy]\nrho = 1.0", more="") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(RECIPE.format(name=name, agent=agent, privacy=privacy) + more)
    return path


def bare_recipe(folder: Path, name: str, agent: str, rest="", card="card.toml") -> Path:
    """A recipe that leaves constants of planners out."""
    path = folder / f"{name}.toml"
    path.write_text(f'[recipe]\nname = "{name}"\ncard = "{card}"\nagent = "{agent}"\n{rest}\n')
    return path


def run_on_card(recipe: Path, *logs: Any) -> Run:
    """A run of a recipe on the card beside it, of its files or of the last of some deliveries."""
    card, store = recipe.with_name("card.toml"), Store(recipe.parent / "home")
    store.register(card)
    for log in logs or (None,):
        store.ingest(card, log)
    return run(recipe, store=store)


def lay_out(folder: Path, *, log=None, **told: Any) -> Path:
    """Write card, log and recipes, and return the folder; ``told`` as :func:`card_text` has it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "card.toml").write_text(card_text(**told) + "reserve = 0\n")
    write_log(folder, rows() if log is None else log)
    for name, agent, privacy in (
        ("private", "dp-apvi", "[privacy]\nrho = 1.0"),
        ("both", "dp-apvi", '[privacy]\nrho = 1.0\nrelease = "two_tables"'),
        ("pure", "dp-apvi", "[privacy]\nepsilon = 1.0"),
        ("greedy", "dp-apvi", "[privacy]\nrho = 2.5"),
        ("exact", "apvi", ""),
    ):
        write_recipe(folder, name, agent, privacy, SCHEDULE)
    return folder


class Opened:
    """Shops whose log is ingested, each made once in a folder of the session's and copied."""

    def __init__(self, place: Path) -> None:
        self._place, self._made = place, set[str]()

    def __call__(self, root: Path, **told: Any) -> tuple[Path, Home]:
        """``shop`` and ``home`` in a folder; ``told`` as :func:`lay_out` has it, real people where nothing is told."""
        told = {"kind": "real", **told}
        kept = self._place / " ".join(f"{key}={value}" for key, value in sorted(told.items()))
        if kept.name not in self._made:
            shop, home = lay_out(kept / "shop", **told), home_at(kept / "home")
            if told["kind"] == "real":
                register_job(str(shop), home)
            ingest_job(str(shop), home)
            self._made.add(kept.name)
        shutil.copytree(kept, root, dirs_exist_ok=True)
        return root / "shop", home_at(root / "home")


def same_key(store: Path) -> None:
    """Put one operator key into a store: a fresh one is random, and worlds are compared byte by byte."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    file = private_folder(store) / KEY_FILE
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    file.chmod(0o600)
