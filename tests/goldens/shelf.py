"""What lies on the golden home's shelf, and what came in on its nights."""

import random
import shutil
from pathlib import Path

from tests.goldens.places import HOME

HORIZON = 3
STATES = ("low", "mid", "high")
NIGHTS = {"tree": (1, 2, 3), "toeplitz": (1, 2, 4)}
NEXT = {"tree": 4, "toeplitz": 5}
# folder -> recipes
RECIPES = {
    folder.name: [path.stem for path in sorted(folder.glob("*.toml")) if path.name != "card.toml"]
    for folder in sorted((HOME / "shelf").iterdir())
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


def delivery(kind: str, night: int) -> str:
    """What came in on a night: fifty people, and of the capped lineage some come back with another episode."""
    if kind == "tree":
        return walk(range(50 * (night - 1), 50 * night), night)
    return walk(range(40 * (night - 1), 40 * (night - 1) + 60), 100 + night, episode=night)


def lay_out(kind: str, folder: Path) -> None:
    """Card and recipe of a counter, without a log."""
    folder.mkdir(parents=True)
    for name in ("card", kind):
        shutil.copyfile(HOME / "shelf" / kind / f"{name}.toml", folder / f"{name}.toml")
