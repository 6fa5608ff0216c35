"""(b): what every recipe releases, plans and reports under a fixed noise source, and what simulated agents regret."""

import json
import random
import shutil
from datetime import date
from pathlib import Path
from typing import Any

from tests.goldens import content, shelf
from tests.goldens.adapter import said, seeded_run
from tests.goldens.places import HOME, ROOT

SEED = 20240101
# what version 0.1 shipped for the lineage icu_sepsis, whose log is made on demand today
BEFORE = ("demo", "icu_sepsis_baseline")
# card on the shelf -> recipes
SHIPPED = {
    "icu_sepsis": ("demo", "icu_sepsis_baseline"),
    "riverswim": ("riverswim", "riverswim_linear"),
    "double_integrator": ("double_integrator", "double_integrator_baseline"),
}
PEOPLE = ("two_step_game", "two_step_adults", "two_step_chance")
# the fast sampler's slack leaves nothing of delta under so large a cap: there is a key, but no run
UNRUN = ("table_sampler",)
TINY = {
    card: tuple(name for name in recipes if name not in UNRUN)
    for card, recipes in shelf.RECIPES.items()
    if card not in shelf.NIGHTS
}

_SWIM = 'name = "riverswim_homogeneous"\nstates = 3'
_MIX = 'name = "random_mixture"\ndimension = 3\nseed = 176'
_PLANT = 'name = "lq"\ninstance = 1'
# agent -> world, episodes; each stands with its own usual baselines
ONLINE = dict.fromkeys(("dp-ucbvi-jdp", "dp-ucbvi-ldp", "counts-shuffle", "sdp-pe", "dp-apvi"), (_SWIM, 500))
ONLINE |= dict.fromkeys(("private-linopt-vi", "private-linopt-po", "ldp-ucrl-vtr"), (_MIX, 300))
ONLINE |= dict.fromkeys(("private-ofu-rl", "dp-lqr", "explore-then-commit"), (_PLANT, 50))


def of_run(folder: Path) -> dict[str, Any]:
    """Release, policy and numbers of a run's folder."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    tables = {kind: content.table(folder / f"{kind}.parquet") for kind in ("release", "policy")}
    return {**tables, "report": content.numbers(report)}


def of_recipe(recipe: str, home: Path, on: Path | None) -> dict[str, Any]:
    """The same of a recipe, run with the fixed noise source on a snapshot that is there."""
    return of_run(Path(seeded_run(recipe, home, on, SEED)["folder"]))


def shipped(card: str, folder: Path) -> dict[str, Any]:
    """Of the recipes that are shipped with a log."""
    said(folder / "home", "ingest", card)
    return {recipe: of_recipe(recipe, folder / "home", None) for recipe in SHIPPED[card]}


def shelf_before(folder: Path) -> Path:
    """A shelf as in version 0.1: the card icu_sepsis is that of the uniform log, and its world lies beside it."""
    place, today = folder / "shelf" / "icu_sepsis", ROOT / "datasets"
    shutil.copytree(today / "icu_sepsis_uniform", place, ignore=shutil.ignore_patterns("data"))
    shutil.copyfile(today / "icu_sepsis" / "world.npz", place / "world.npz")
    return place.parent


def before(folder: Path) -> dict[str, Any]:
    """Of recipes that version 0.1 shipped, on the log that it shipped."""
    shelf, home = shelf_before(folder), folder / "home"
    said(home, "simulate", "icu_sepsis", "--logs", shelf=shelf)
    said(home, "ingest", "icu_sepsis", shelf=shelf)
    return {recipe: of_recipe(recipe_before(recipe), home, shelf) for recipe in BEFORE}


def recipe_before(name: str) -> str:
    """Path of a recipe that version 0.1 shipped."""
    return str(ROOT / "tests" / "goldens" / "recipes" / f"{name}.toml")


def people(name: str, folder: Path) -> dict[str, Any]:
    """Of a recipe for logs of real people, on made-up ones; the card says so."""
    shutil.copytree(ROOT / "datasets" / name, folder / name, ignore=shutil.ignore_patterns("ledger", "data"))
    card = folder / name / "card.toml"
    text = card.read_text(encoding="utf-8")
    made_up = text.replace('kind = "real"', 'kind = "synthetic"').replace('"ledger/ledger.db"', '"home"')
    if made_up.count('kind = "synthetic"') != 1 or 'ledger = "home"' not in made_up:
        raise ValueError(f"{card}: not the card that this golden knows")
    card.write_text(made_up, encoding="utf-8")
    file, log = _played(name)
    (folder / name / "data").mkdir()
    (folder / name / "data" / file).write_text(log, encoding="utf-8")
    recipe = (ROOT / "flows" / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    (folder / name / f"{name}.toml").write_text(recipe.replace(f'card = "{name}"', 'card = "card.toml"'))
    said(folder / "home", "ingest", folder / name)
    return {name: of_recipe(str(folder / name / f"{name}.toml"), folder / "home", None)}


def _played(name: str) -> tuple[str, str]:
    """A made-up log of a two-step game: as many people and rounds as the card keeps, so that none is dropped."""
    rng, lines = random.Random(name), []
    if name == "two_step_game":
        for user in range(93):
            for _ in range(80):
                pair = rng.choice(([1, 2], [2, 1], [3, 4], [4, 3]))
                choice = rng.choice(pair)
                planet = 1 if choice % 2 == (rng.random() < 0.9) else 2
                lines.append(f'p{user},"{pair}",{choice},{planet},{rng.randint(0, 4) + 5 * (planet == 1)}\n')
        return "model_based_model_free.csv", "userID,stimuli,choice,planet,points\n" + "".join(lines)
    if name == "two_step_adults":
        for user in range(24):
            for trial in range(40):
                pair, ship = rng.randint(1, 2), rng.randint(1, 2)
                planet = ship if rng.random() < 0.9 else 3 - ship
                points = round(rng.randint(0, 9) / 9, 6)
                lines.append(f"a{user},{trial},{pair},{planet},{2 * (pair - 1) + ship},{points}\n")
        return "two_step_adults.csv", "ppt,trial,s1,s2,choice,points\n" + "".join(lines)
    for user in range(11):
        for trial in range(100):
            first, second = rng.randint(1, 2), rng.randint(1, 2)
            pair = first if rng.random() < 0.7 else 3 - first
            paid = int(rng.random() < (0.6 if pair == second else 0.3))
            lines.append(f"c{user},{trial},{first},{2 * (pair - 1) + second},{paid}\n")
    return "ts_exampleData.csv", "subjID,trial,level1_choice,level2_choice,reward\n" + "".join(lines)


def tiny(card: str, folder: Path) -> dict[str, Any]:
    """Of every recipe on a card of the golden shelf, each a lineage of its own: no spending of another is in it."""
    found: dict[str, Any] = {}
    said(folder / "ingested", "ingest", HOME / "shelf" / card)
    for recipe in TINY[card]:
        home = shutil.copytree(folder / "ingested", folder / recipe)
        found[recipe] = of_recipe(str(HOME / "shelf" / card / f"{recipe}.toml"), home, None)
    return found


def nights(kind: str, folder: Path) -> dict[str, Any]:
    """Of every night of a counter that is drawn with fixed sources, one a night."""
    shop, found = folder / kind, dict[str, Any]()
    shelf.lay_out(kind, shop)
    for night in (*shelf.NIGHTS[kind], shelf.NEXT[kind]):
        (shop / "log.csv").write_text(shelf.delivery(kind, night), encoding="utf-8")
        said(folder / "home", "ingest", shop)
        day = date(2024, 1, night)
        run = seeded_run(str(shop / f"{kind}.toml"), folder / "home", None, SEED + night, day)
        found[f"night {night}"] = of_run(Path(run["folder"]))
    return found


def online(agent: str, folder: Path) -> dict[str, Any]:
    """Regret of an online agent and its baselines, their losses and all rows."""
    world, episodes = ONLINE[agent]
    text = (
        f'[recipe]\nname = "golden"\nagent = "{agent}"\n[privacy]\nepsilon = 1.0\ndelta = 1e-5\n'
        f"[world]\n{world}\n[runs]\nepisodes = {episodes}\nruns = 2\n"
    )
    return simulated(text, folder)


def joint(folder: Path) -> dict[str, Any]:
    """The shipped simulation with fewer episodes and runs."""
    text = (ROOT / "flows" / "recipes" / "riverswim_joint.toml").read_text(encoding="utf-8")
    shorter = text.replace("episodes = 10_000", "episodes = 1_000").replace("runs = 4", "runs = 2")
    if shorter.count("1_000") != 1 or "runs = 2" not in shorter:
        raise ValueError("riverswim_joint: not the recipe that this golden knows")
    return simulated(shorter, folder)


def simulated(recipe: str, folder: Path) -> dict[str, Any]:
    """What ``simulate RECIPE`` says of regret and loss."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "golden.toml"
    path.write_text(recipe, encoding="utf-8")
    answer = said(folder / "home", "simulate", path)
    return content.numbers({k: v for k, v in answer.items() if k not in ("files", "folder")})
