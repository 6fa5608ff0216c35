"""The goldens' own cards, recipes and small logs, written out once by ``make.py`` and committed."""

from __future__ import annotations

import random
from pathlib import Path

PEOPLE = 200
HORIZON = 3
STATES = ("low", "mid", "high")
NIGHTS = {"tree": (1, 2, 3), "toeplitz": (1, 2, 4)}
NEXT = {"tree": 4, "toeplitz": 5}

SHOP = """# Golden: {people} made-up people, {what}.
schema_version = 1
name = "{name}"
kind = "synthetic"

[unit]
user = "who"
{unit}
users_public = {people}

[domain]
horizon = 3
states = {{ column = "state", labels = ["low", "mid", "high"], ends = ["gone"] }}
actions = {{ column = "action", labels = ["wait", "push"] }}
{domain}

[reward]
range = [0.0, 2.0]
steps = 2

[source]
files = ["log.csv"]
columns = {{ user_id = "who", episode_id = "episode", step = "step", reward = "reward", terminated = "over" }}

[budget]
rho = 50.0
delta = 1e-6
ledger = "home"
"""
FEATURES = """
[features]
kind = "product"
states = [[1, 0], [1, 1], [0, 1]]
actions = [[1, 0], [0, 1]]
"""
PLANT = f"""# Golden: {PEOPLE} made-up people, a plant of two numbers and one control.
schema_version = 1
name = "golden_plant"
kind = "synthetic"

[unit]
user = "who"
episodes_per_user = 1
users_public = {PEOPLE}

[domain]
dynamics = "linear_quadratic"
horizon = 3
observation = {{ columns = ["p", "v"], radius = 2.0, scale = [1.0, 2.0], names = ["place", "pace"] }}
action = {{ columns = ["f"], radius = 1.0 }}
start = {{ mean = [1.0, 0.0] }}
noise_covariance = [0.01, 0.01]

[cost]
Q = [1.0, 1.0]
R = [0.1]

[source]
files = ["log.csv"]
columns = {{ user_id = "who", episode_id = "episode", step = "step", terminated = "over" }}

[budget]
rho = 50.0
delta = 1e-5
ledger = "home"
"""
RHO = "[privacy]\nrho = 1.0\n"
# folder -> recipe -> agent and the rest
RECIPES: dict[str, dict[str, tuple[str, str]]] = {
    "shop": {
        "count": ("dp-apvi", RHO),
        "linear": ("dp-vapvi", RHO),
        "two_tables": ("dp-apvi", RHO + 'release = "two_tables"\n'),
        "paper_scales": ("dp-apvi", RHO + 'release = "two_tables"\ncalibration = "paper"\n'),
        "pure": ("dp-apvi", "[privacy]\nepsilon = 4.0\n"),
        "pure_two_tables": ("dp-apvi", '[privacy]\nepsilon = 4.0\nrelease = "two_tables"\n'),
        "asked": ("dp-apvi", "[privacy]\nepsilon = 2.0\ndelta = 1e-6\n"),
        "tail": ("dp-apvi", RHO + '[planner]\nconstants = "tail"\nbounds = "tail"\n'),
        "paper": ("dp-apvi", RHO + '[planner]\nconstants = "paper"\nbounds = "paper"\n'),
        "practical": ("dp-apvi", RHO + '[planner]\nconstants = "practical"\nbounds = "practical"\n'),
        "hoeffding": ("dp-apvi", RHO + '[planner]\npenalty = "hoeffding"\nseed = 3\n'),
        "table_sampler": ("dp-apvi", RHO + 'sampler = "table"\n'),
        "split": ("dp-apvi", RHO + "split = { n_sas = 0.6, r_sa = 0.3 }\n"),
        "exact": ("apvi", ""),
        "halves": ("dp-vapvi", RHO + "[linear]\nhalves = true\n"),
        "printed": ("dp-vapvi", RHO + 'calibration = "paper"\n[linear]\ntargets = "paper"\n'),
        "one_shot": ("dp-one-shot", "[privacy]\nepsilon = 4.0\ndelta = 1e-6\n"),
        "exact_one_shot": ("one-shot", ""),
        "exact_linear": ("vapvi", ""),
        "exact_pevi": ("pevi", "[linear]\nbeta = 0.1\n"),
    },
    "loop": {
        "loop": ("dp-apvi", RHO),
        "loop_two_tables": ("dp-apvi", RHO + 'release = "two_tables"\n'),
        "loop_exact": ("apvi", ""),
    },
    "plant": {
        "control": ("dp-lqr", RHO),
        "control_cut": ("dp-lqr", "[privacy]\nepsilon = 4.0\ndelta = 1e-5\n[lq]\ncut = [1.0, 1.0]\nridge = 2.0\n"),
        "control_exact": ("lqr", ""),
    },
    "tree": {"tree": ("dp-apvi", RHO + '[nightly]\nnights = 8\nfirst = 2024-01-01\ncounter = "tree"\n')},
    "toeplitz": {
        "toeplitz": (
            "dp-apvi",
            RHO + 'release = "two_tables"\n[nightly]\nnights = 8\nfirst = 2024-01-01\ncounter = "toeplitz"\n',
        )
    },
}


def walk(people: range, seed: int, episode: int = 0) -> str:
    """A log of a small random walk; ``push`` climbs, and pays where it is high."""
    rng, lines = random.Random(seed), []
    for user in people:
        state = rng.choice(STATES)
        for step in range(HORIZON):
            action = rng.choice(("wait", "push"))
            pays = rng.random() < (0.8 if (state, action) == ("high", "push") else 0.1)
            over = rng.random() < 0.1
            lines.append(f"u{user},{episode},{step},{state},{action},{2 * pays},{str(over).lower()}\n")
            if over:
                break
            climb = 1 if action == "push" and rng.random() < 0.7 else -1
            state = STATES[min(2, max(0, STATES.index(state) + climb))]
    return "who,episode,step,state,action,reward,over\n" + "".join(lines)


def pushed(seed: int) -> str:
    """A log of the plant: three controls a person, and a last row that only observes."""
    rng, lines = random.Random(seed), []
    for user in range(PEOPLE):
        x, v = 1.0, 0.0
        for step in range(HORIZON + 1):
            f = rng.uniform(-1, 1)
            told = f"{f:.4f}" if step < HORIZON else ""
            lines.append(f"w{user},0,{step},{x:.4f},{2 * v:.4f},{told},false\n")
            x, v = 0.8 * x + 0.1 * v + 0.05 * f + rng.gauss(0, 0.1), 0.7 * v + 0.4 * f + rng.gauss(0, 0.1)
    return "who,episode,step,p,v,f,over\n" + "".join(lines)


def delivery(kind: str, night: int) -> str:
    """What came in on a night: fifty people, and of the capped lineage some come back with another episode."""
    if kind == "tree":
        return walk(range(50 * (night - 1), 50 * night), night)
    return walk(range(40 * (night - 1), 40 * (night - 1) + 60), 100 + night, episode=night)


def lay_out(shelf: Path) -> None:
    """Write everything below ``shelf``; the nights' logs as ``night-N.csv``, to be copied to ``log.csv``."""
    once, again = "episodes_per_user = 1", 'episodes_per_user = 2\nrecurs = "capped"'
    veto = 'vetoes = [["low", "push"]]'
    cards = {
        "shop": SHOP.format(name="golden_shop", what="a log at once", unit=once, domain=veto, people=PEOPLE) + FEATURES,
        "loop": SHOP.format(
            name="golden_loop",
            what="one table for all steps",
            unit=once,
            domain='dynamics = "stationary"\ncell_cap = 2',
            people=PEOPLE,
        ),
        "tree": SHOP.format(name="golden_tree", what="night by night", unit=once, domain="", people=PEOPLE),
        "toeplitz": SHOP.format(name="golden_toeplitz", what="who may come back", unit=again, domain="", people=PEOPLE),
        "plant": PLANT,
    }
    logs = {"shop": walk(range(PEOPLE), 1), "loop": walk(range(PEOPLE), 2), "plant": pushed(3)}
    for name, card in cards.items():
        folder = shelf / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "card.toml").write_text(card, encoding="utf-8")
        if name in logs:
            (folder / "log.csv").write_text(logs[name], encoding="utf-8")
        else:
            for night in (*NIGHTS[name], NEXT[name]):
                (folder / f"night-{night}.csv").write_text(delivery(name, night), encoding="utf-8")
        for recipe, (agent, rest) in RECIPES[name].items():
            head = f'[recipe]\nname = "{recipe}"\ncard = "card.toml"\nagent = "{agent}"\n\n'
            (folder / f"{recipe}.toml").write_text(head + rest, encoding="utf-8")
