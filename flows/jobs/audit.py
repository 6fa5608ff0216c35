"""``audit``: attack the mechanisms of a recipe with made-up neighbours; reads no rows, charges nothing.

With canaries the whole pipeline is audited in one run: made-up people go through ingest and run in a place of their
own, and are scored by what these wrote.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import csv
import secrets
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from flows.config.home import ALONE, Home, Work, find_recipe
from flows.config.recipe import Setting, setting
from flows.jobs import intake, studies
from flows.jobs.run import run_recipe
from pipeline.audits.attack import DRAWS, AttackResult, AuditTarget, OneRun, WholePlan, attack, guess, lower_epsilon
from pipeline.audits.message_paths import targets_of, whole_plan
from pipeline.declaration.toml import CardError, read_toml
from pipeline.facts.promise import Dump
from pipeline.files import json_text, write_folder
from pipeline.online.registry import find
from pipeline.privacy.budget import epsilon_from_rho
from pipeline.privacy.noise import FastOsNoise, NoiseSource
from reports.studies.study_page import audit_page, figure_of

# guesses at both ends of the scores: fewer could not break a claim of epsilon 5 even if every one were right
_SHARE, _DOUBT = 0.4, 1e-3
_HORIZON, _DELTA = 2, 1e-6
# card and recipe
_DECLARED = Path(__file__).with_name("canaries.toml")


@dataclass(frozen=True)
class Audited:
    """Results of the attacks on a recipe."""

    name: str
    dataset: str
    sampler: str
    verdicts: Sequence[AttackResult]
    seconds: Sequence[float]
    plan: WholePlan | None
    one_run: OneRun | None
    folder: Path

    @property
    def violates(self) -> bool:
        """Whether any claim is broken."""
        return any(v.violates for v in self.verdicts) or bool(self.faults)

    @property
    def faults(self) -> list[str]:
        """Sentences on the claims that the whole plan, or the whole pipeline, breaks."""
        over = [self.plan.words] if self.plan is not None and self.plan.over else []
        return [*over, *([self.one_run.words] if self.one_run is not None and self.one_run.violates else [])]

    def content(self) -> Dump:
        """The content of ``audit.json``."""
        worst, each = max(self.verdicts, key=lambda v: v.ratio), zip(self.verdicts, self.seconds, strict=True)
        content: Dump = {"name": self.name, "dataset": self.dataset, "sampler": self.sampler, **_plain(worst)}
        content |= {"violates": self.violates, "attacks": [_plain(v) | {"seconds": round(s, 2)} for v, s in each]}
        if (plan := self.plan) is not None:
            content["whole_plan"] = {"rho": float(plan.rho), "claimed_rho": float(plan.claimed), "over": plan.over}
        if (one_run := self.one_run) is not None:
            content["one_run"] = asdict(one_run) | {"violates": one_run.violates}
        return content

    def pages(self) -> dict[str, str]:
        """Every file of the folder by name."""
        notes = [each.words for each in (self.plan, self.one_run) if each is not None]
        page = audit_page(self.name, self.verdicts, notes, self.faults)
        return {
            "page.html": page.html,
            "page.md": page.markdown,
            "figure.svg": figure_of(self.verdicts).svg,
            "audit.json": json_text({"schema_version": 1, **self.content()}),
        }

    def answer(self) -> Dump:
        """The object that ``audit --json`` prints."""
        files = ["audit.json", "figure.svg", "page.html", "page.md"]
        return self.content() | {"folder": str(self.folder), "files": [str(self.folder / f) for f in files]}


def audit_job(
    recipe: str, home: Home, work: Work = ALONE, *, draws: int = DRAWS, canaries: int = 0, table: bool = False
) -> Audited:
    """Attack every mechanism of a recipe, and write a page of the verdicts.

    Raises CardError if the recipe is wrong, or adds no noise.
    """
    path = find_recipe(recipe)
    if studies.is_world_recipe(read_toml(path)):
        if canaries:
            raise CardError(f"{path.name}: --canaries go through ingest and run; a simulation has neither")
        name, dataset, targets, plan = _of_world(path, home, draws, work)
        s, noise = None, FastOsNoise()
    else:
        s = setting(recipe, home)
        if table and (privacy := s.recipe.privacy) is not None:
            # another plan, which lists what that sampler adds to delta
            s = replace(
                s, recipe=s.recipe.model_copy(update={"privacy": privacy.model_copy(update={"sampler": "table"})})
            )
        run, noise = s.plan, s.recipe.terms.noise()
        name, dataset = s.recipe.recipe.name, s.card.name
        targets = [*s.guarded.targets(), *run.targets(noise)]
        plan = run.whole_plan()
    timed = [_time(target, noise, draws, work) for target in targets]
    if plan is not None:
        work.say(plan.words)
    canary_run: OneRun | None = None
    if canaries and s is not None:
        work.say(f"sending {canaries:,} made-up people through ingest and run")
        canary_run = one_run(s, canaries)
    verdicts, seconds = zip(*timed, strict=True)
    result = Audited(name, dataset, noise.sampler, verdicts, seconds, plan, canary_run, home.root / "audits" / name)
    write_folder(result.folder, result.pages())
    return result


def _of_world(path: Path, home: Home, draws: int, work: Work) -> tuple[str, str, list[AuditTarget], WholePlan | None]:
    """Name and world of a simulation's recipe, a target for each table that its agent releases, and the whole plan."""
    recipe = studies.load_world_recipe(path, home.runs)
    agent = recipe.recipe.agent
    if not find(agent).private:
        raise CardError(f"{path.name}: {agent} adds no noise, no claim to attack")
    trial = recipe.trials()[agent][0]
    try:
        return recipe.recipe.name, trial.place, targets_of(trial, draws, work.say), whole_plan(trial)
    except ValueError as e:
        raise CardError(f"{path.name}: {e}") from None


def _time(target: AuditTarget, noise: NoiseSource, draws: int, work: Work) -> tuple[AttackResult, float]:
    work.say(f"attacking {target.mechanism}: {draws:,} releases of each neighbour")
    began = time.monotonic()
    return attack(target, noise, draws, progress=work.progress), time.monotonic() - began


def _plain(v: AttackResult) -> Dump:
    return asdict(v) | {"violates": v.violates, "ratio": v.ratio, "testable": v.testable}


def one_run(s: Setting, canaries: int) -> OneRun:
    """Register, ingest and run a log in which each of ``canaries`` people is in by a coin, at the recipe's budget.

    Every person takes an action that no other person takes, so each cell holds one person.
    """
    rho = s.recipe.terms.ask().zcdp()
    if rho is None:
        raise CardError(f"{s.recipe.path.name}: --canaries needs a budget in rho, or epsilon with delta")
    coins = np.array([secrets.randbits(1) for _ in range(canaries)], dtype=bool)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        values = {"n": canaries, "horizon": _HORIZON, "cap": 2 * float(rho), "delta": _DELTA, "rho": float(rho)}
        declared = _DECLARED.read_text(encoding="utf-8").format(**values).split("# ---\n")
        for name, text in zip(("card.toml", "recipe.toml"), declared, strict=True):
            (folder / name).write_text(text, encoding="utf-8")
        _write_log(folder / "log.csv", coins)
        home = Home(folder / "home")
        intake.ingest_job(str(folder / "card.toml"), home)
        result = run_recipe(str(folder / "recipe.toml"), home)
        scores = _scores(Path(result.folder), canaries)
        # in or out is half of a replacement: one 1 in each of H cells instead of two
        claimed = epsilon_from_rho(float(result.guarantee.rho or 0) / 2, _DELTA)
    guesses, right = guess(scores, coins, _SHARE)
    bound = lower_epsilon(canaries, guesses, right, _DELTA, _DOUBT)
    return OneRun(canaries, guesses, right, bound, claimed, _DELTA, 1 - _DOUBT)


def _write_log(path: Path, coins: np.ndarray) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["user_id", "episode_id", "step", "state", "action", "reward", "next_state"])
        for i in np.flatnonzero(coins):
            out.writerows([int(i), int(i), h, "here", int(i), 0.0, "here"] for h in range(_HORIZON))


def _scores(folder: Path, canaries: int) -> np.ndarray:
    """Mean noisy count of each person's own cells, read from the published release."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "release.parquet", filters=[("table", "=", "n_sas")])
    action, value = table["action"].to_numpy(), table["value"].to_numpy()
    return np.bincount(action, weights=value, minlength=canaries) / _HORIZON
