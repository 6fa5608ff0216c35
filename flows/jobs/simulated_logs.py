"""The jobs of ``simulate --logs``: logs of known worlds, and of a release.  No store, no ledger, no rows."""

from __future__ import annotations

import hashlib
import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.config.home import Home, find_card
from pipeline.declaration.card import AnyCard, CardError, load_any_card
from pipeline.declaration.lineage import catalogs
from pipeline.declaration.toml import read_pairs
from pipeline.facts.promise import Dump
from pipeline.files import whole_folder
from pipeline.ledger.chain import canonical_hash
from pipeline.worlds.catalog import WORLDS, arrays_file, load_world

if TYPE_CHECKING:
    from pipeline.worlds.synthetic import Simulated

_EPISODES = 10_000
_CAP = 4.0
_NAME = 63


@dataclass(frozen=True)
class LogOptions:
    """Options of a simulated log; None where not given.

    ``behaviour``: the logging policy: one of the world's own, or ``near-optimal-0.3`` and the like.
    ``horizon``: steps of an episode; the world's own where None.
    ``bins``: of ICU-Sepsis: 4, 8 or 32 bins of the SOFA score, or ``all``.
    """

    behaviour: str | None = None
    episodes: int | None = None
    horizon: int | None = None
    seed: int | None = None
    bins: str | None = None
    params: tuple[str, ...] = ()
    episodes_per_user: int | None = None
    rho: float | None = None
    name: str | None = None
    to: Path | None = None

    def arguments(self) -> dict[str, object]:
        """Of the world; as TOML has them, a bare word is text."""
        return read_pairs(self.params, lambda text: tomllib.loads(f"x = {text}")["x"])

    def dataset(self, place: str, spec: Sequence[object]) -> str:
        """Name of the new dataset: as given, else of the place and a hash of all options."""
        slug = re.sub("[^a-z0-9]+", "_", place.lower()).strip("_")
        return self.name or f"{slug}_{canonical_hash(spec)[:8]}"

    def refuse(self, what: str, owner: str, *options: str) -> None:
        """Refuse options that belong to logs of another kind: CardError naming the first that was given."""
        if wrong := [option for option in options if getattr(self, option)]:
            named = wrong[0].replace("_", "-").replace("params", "param")
            raise CardError(f"simulate {what}: --{named} belongs to {owner}")

    def command(self, what: str) -> str:
        """The command line with these options."""
        words = ["reticent", "simulate", *shlex.split(what), "--logs"]
        for key in ("behaviour", "episodes", "horizon", "seed", "bins", "episodes_per_user", "rho", "name"):
            value = getattr(self, key)
            words += [] if value is None else [f"--{key.replace('_', '-')}", str(value)]
        for param in self.params:
            words += ["--param", param]
        return shlex.join(words)


def simulate_logs(name: str, options: LogOptions, home: Home) -> Dump:
    """A shipped log anew where only its name is given, else a synthetic lineage of the world ``name``.

    Returns names of the files written, and the world or run; a shipped log has no new recipe.

    ``home``: where logs without a folder of their own go.
    """
    if options == LogOptions(to=options.to) and (shipped := _shipped(name, home)) is not None:
        return _regenerate(shipped, options.to)
    from pipeline.worlds.plants import LQ_WORLDS

    return _plant_log(name, options, home) if name in LQ_WORLDS else _world_log(name, options, home)


def _shipped(name: str, home: Home) -> AnyCard | None:
    named = any((shelf / name / "card.toml").is_file() for shelf in catalogs(home.shelf))
    named = named or (name not in WORLDS and Path(name).exists())
    return load_any_card(find_card(name, home.shelf)) if named else None


def _regenerate(card: AnyCard, to: Path | None) -> Dump:
    from pipeline.worlds.simulated_logs import regenerate

    files = regenerate(card, to or card.folder)
    return {
        "episodes": card.unit.users_public,
        "dataset": card.name,
        "card": str(card.folder / "card.toml"),
        "files": [str(f) for f in files],
    }


def _world_log(name: str, options: LogOptions, home: Home) -> Dump:
    from pipeline.mdp.planning import policy_value
    from pipeline.worlds.synthetic import Simulated, checked, tabular_log, world_card, world_readme
    from pipeline.worlds.world import best_bin_policy_value, world_values

    folder, params = world_folder(name, home), options.arguments()
    world = load_world(name, folder, **params)
    horizon, behaviour = world.steps(options.horizon), options.behaviour or "uniform"
    episodes, seed, m = options.episodes or _EPISODES, options.seed or 0, options.episodes_per_user or 1
    policy = world.behaviours(behaviour, horizon)
    rho = _CAP if options.rho is None else options.rho
    # a card that declares features is another lineage than one that did not
    named = ["features"] if options.bins == "all" and world.state_features else []
    spec = [name, params, behaviour, horizon, options.bins, episodes, seed, m, rho, *named]
    dataset = options.dataset(name.rpartition(":")[2], spec)
    values = world_card(
        world, name=dataset, horizon=horizon, bins=options.bins, episodes=episodes, episodes_per_user=m, rho=rho
    )
    card = checked(values)
    exact = world_values(world, horizon)
    exact = exact if behaviour in exact else exact | {behaviour: policy_value(world.mdp(horizon), policy)}
    if card.domain.markov == "aggregated":
        exact["best on these bins"] = best_bin_policy_value(card, world, behaviour)
    log = {"episodes": episodes, "episodes a user": m, "horizon": horizon, "logging policy": behaviour, "seed": seed}
    record = {
        "name": name,
        "behaviour": behaviour,
        "log": {"horizon": horizon, "episodes": episodes, "episodes_per_user": m, "seed": seed},
        "params": params,
    }
    command = options.command(name)
    readme = world_readme(name=dataset, world=name, params=params, log=log, values=exact, command=command)
    about = [f"{episodes} episodes of {name}, logged by {behaviour}.  See README.md."]
    log_of = tabular_log(world, behaviour, values, episodes, seed)
    simulated = Simulated(log_of, behaviour, episodes, values, about, readme, record)
    return {**_write(simulated, options.to, home, folder), "world": name, "behaviour": behaviour, "values": exact}


def _plant_log(name: str, options: LogOptions, home: Home) -> Dump:
    from pipeline.online.declared_world import plant_card
    from pipeline.worlds.plants import explorer_value, load_lq_world
    from pipeline.worlds.simulated_logs import LogRecipe, write_lq_log
    from pipeline.worlds.synthetic import Simulated, world_readme

    owner = "worlds of states and actions; a plant has its own"
    options.refuse(name, owner, "horizon", "bins", "params", "episodes_per_user")
    system, behaviour = load_lq_world(name), options.behaviour or "sphere"
    episodes, seed = options.episodes or _EPISODES, options.seed or 0
    rho = _CAP if options.rho is None else options.rho
    dataset = options.dataset(name, [name, behaviour, episodes, seed, rho])
    values = plant_card(system, name=dataset, episodes=episodes, rho=rho)
    exact = {
        "optimal": -system.expected_cost(system.optimal_gains()),
        "zero": explorer_value(system, "zero"),
        behaviour: explorer_value(system, behaviour),
    }
    log = {"episodes": episodes, "horizon": system.horizon, "logging policy": behaviour, "seed": seed}
    readme = world_readme(name=dataset, world=name, params={}, log=log, values=exact, command=options.command(name))
    about = [f"{episodes} episodes of the plant {name}, logged by {behaviour}.  See README.md."]
    made_of = LogRecipe(name, behaviour, episodes, seed)
    record = {"name": name, "behaviour": behaviour, "log": {"episodes": episodes, "seed": seed}}
    learner = {"recipe": {"agent": "dp-lqr"}}
    simulated = Simulated(
        lambda to: write_lq_log(made_of, to), behaviour, episodes, values, about, readme, record, {}, learner
    )
    return {**_write(simulated, options.to, home, None), "world": name, "behaviour": behaviour, "values": exact}


def simulate_from_run(run: Path, options: LogOptions, home: Home) -> Dump:
    """A synthetic log from the released model of a run; reads the run's folder and nothing else.

    ``home``: where logs without a folder of their own go.
    Raises CardError if an option of worlds was given, or the folder is no run's.
    """
    from pipeline.worlds import synthetic

    options.refuse("--from-run", "worlds; a release has its own", "behaviour", "horizon", "bins", "params")
    source = synthetic.read_run(run)
    m = options.episodes_per_user or source.dataset.episodes_per_user
    episodes, seed = options.episodes or source.dataset.users_public * m, options.seed or 0
    dataset = options.name or _of_run(source.dataset.name, source.name)
    rho = _CAP if options.rho is None else options.rho
    values = synthetic.released_card(source, name=dataset, episodes=episodes, episodes_per_user=m, rho=rho)
    world = synthetic.released_world(source, synthetic.checked(values))
    command = options.command(shlex.join(["--from-run", source.name]))
    about = synthetic.release_about(source, episodes)
    readme = synthetic.release_readme(name=dataset, run=source, episodes=episodes, seed=seed, command=command)
    log_of = synthetic.tabular_log(world, synthetic.PRACTICE, values, episodes, seed)
    simulated = synthetic.Simulated(log_of, synthetic.PRACTICE, episodes, values, about, readme, None)
    written = _write(simulated, options.to, home, None)
    return {**written, "from_run": source.name, "guarantee": source.guarantee.model_dump()}


def world_folder(name: str, home: Home) -> Path:
    """The shelf's folder of a world that has a file of its own; worlds without one need none."""
    for shelf in catalogs(home.shelf):
        if arrays_file(name, shelf / name).is_file():
            return shelf / name
    return home.root / "no-such-folder" / name


def _write(s: Simulated, to: Path | None, home: Home, source: Path | None) -> Dump:
    from pipeline.worlds.synthetic import refuse_foreign, write_folder

    name = s.values["name"]
    folder = (to or home.root / "simulated" / name).resolve()
    refuse_foreign(folder)
    with whole_folder(folder, over=True) as partial:
        files = write_folder(s, partial, source)
        load_any_card(partial / "card.toml")
    return {
        "episodes": s.episodes,
        "dataset": name,
        "folder": str(folder),
        "card": str(folder / "card.toml"),
        "recipe": str(folder / "recipe.toml"),
        "files": [str(folder / f) for f in files],
    }


def _of_run(dataset: str, run: str) -> str:
    digest = re.search(r"-([0-9a-f]{10})(?:-|$)", run)
    short = digest[1][:8] if digest else hashlib.sha256(run.encode()).hexdigest()[:8]
    tail = f"_synthetic_{short}"
    return dataset[: _NAME - len(tail)] + tail
