"""A card of real-valued observations, CartPole's, with a recipe for each agent that learns of them."""

from __future__ import annotations

from pathlib import Path

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
        recipe = f'[recipe]\nname = "{name}"\ncard = "card.toml"\nagent = "{agent}"\n{rest}\n'
        (folder / f"{name}.toml").write_text(recipe)
    return folder


def cartpole(people: int, steps: int, kind: str = "quadratic") -> str:
    card = (ROOT / "datasets" / "cartpole" / "card.toml").read_text()
    card = card.replace("users_public = 40000", f"users_public = {people}").replace(
        "horizon = 20", f"horizon = {steps}"
    )
    waves = "\nwaves = 6\nbandwidth = 0.5\nseed = 4" if kind == "fourier" else ""
    return card.replace('kind = "quadratic"', f'kind = "{kind}"{waves}').replace("rho = 8.0", "rho = 100.0")
