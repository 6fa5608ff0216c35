"""A small plant with people behind it: a card, a CSV log with a column a coordinate, and recipes."""

from pathlib import Path

import numpy as np

CARD = """
schema_version = 1
name = "plant"
kind = "{kind}"
[unit]
user = "who"
episodes_per_user = {m}
users_public = {people}
[domain]
dynamics = "linear_quadratic"
horizon = 4
observation = {{ columns = ["p", "v"], radius = 2.0, scale = [1.0, 2.0], names = ["place", "pace"] }}
action = {{ columns = ["f"], radius = 1.0 }}
start = {{ mean = [1.0, 0.0] }}
noise_covariance = [0.01, 0.01]
[cost]
Q = [1.0, 1.0]
R = [0.1]
[source]
files = ["log.csv"]
columns = {{ user_id = "who", episode_id = "e", step = "t", terminated = "over" }}
[budget]
rho = {cap}
delta = 1e-5
ledger = "{ledger}"
reserve = 0
"""
RECIPE = '[recipe]\nname = "{name}"\ncard = "card.toml"\nagent = "{agent}"\n{rest}\n'
RECIPES = {
    "private": ("dp-lqr", "[privacy]\nrho = 1.0"),
    "asked": ("dp-lqr", "[privacy]\nepsilon = 4.0\ndelta = 1e-5\n[lq]\ncut = [1.0, 1.0]"),
    "ridged": ("dp-lqr", "[privacy]\nrho = 1.0\n[lq]\nridge = 2.0"),
    "wider": ("dp-lqr", "[privacy]\nrho = 1.0\n[lq]\ncut = [0.6, 0.7]"),
    "exact": ("lqr", ""),
}
A, B = np.array([[0.8, 0.1], [0.0, 0.7]]), np.array([[0.05], [0.4]])
HEAD = "who,e,t,p,v,f,over"
# records of one person; a number, a word and a user id that stand nowhere else
NUMBER, WORD, USER = "31415.92653", "kanarienvogel-4711", "u-schwalbe-0815"
ODD = {
    "too many steps": [(USER, 0, t, -1, 1, -1, "") for t in range(9)],
    "far away": [(USER, 0, t, NUMBER, NUMBER, NUMBER, "") for t in range(4)],
    "no numbers": [(USER, 0, 0, WORD, 0, 0, ""), (USER, 0, 1, "nan", "inf", "", "")],
    "many episodes": [(USER, e, t, 1, 0, 1, "") for e in range(7) for t in range(2)],
    "a line that is no row": [(USER, 0, 0, f'"{WORD}', 0, 0, ""), (USER, 0, 1, 1)],
}


def rows(people: int = 300, seed: int = 0) -> list[tuple]:
    """Simulated people, four controls each; a fifth row holds the last observation."""
    rng = np.random.default_rng(seed)
    x, found = np.tile([1.0, 0.0], (people, 1)), []
    for t in range(5):
        u = rng.uniform(-1, 1, (people, 1))
        for i in range(people):
            # pace is logged in halves: its scale is 2
            f = f"{u[i, 0]:.6f}" if t < 4 else ""
            found.append((f"w{i}", 0, t, f"{x[i, 0]:.6f}", f"{2 * x[i, 1]:.6f}", f, "false"))
        x = x @ A.T + u @ B.T + rng.normal(0, 0.1, (people, 2))
    return sorted(found, key=lambda r: (int(r[0][1:]), r[2]))


def lay_out_plant(
    folder: Path, *, kind: str = "synthetic", ledger: str = "home", cap: float = 9.0, log=None, m: int = 1, people=300
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "card.toml").write_text(CARD.format(kind=kind, ledger=ledger, cap=cap, m=m, people=people))
    lines = [HEAD, *(",".join(map(str, r)) for r in (rows() if log is None else log))]
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    for name, (agent, rest) in RECIPES.items():
        (folder / f"{name}.toml").write_text(RECIPE.format(name=name, agent=agent, rest=rest))
    return folder
