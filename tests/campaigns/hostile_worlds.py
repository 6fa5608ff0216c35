"""Hostile worlds: does a page say "better" of what is not?  ``python -P -m tests.campaigns.hostile_worlds RUNS``.

Each run draws a world of a family (:mod:`tests.campaigns.hostile_families`), logs its people, and sends them through
the product: split, draw, learn, evaluate, decide.  What its policy gains is known exactly, in the true world with its
hidden traits.  RUNS a family are wanted.  Runs of this code that ``build/`` has are not made again, so a campaign that
was stopped goes on; counts a family are kept in ``results/hostile_worlds.csv``.

Nothing a run says is computed here: the verdict is the product's.  How often an interval holds was measured for one
code and a range of settings; elsewhere a page withholds, and a generator would see nothing.  So each run is asked
twice: what the page ``said`` of a log of real people, and what it ``would`` say had coverage been measured for it.  The
counts are of the latter, unless they are named otherwise.  Simulation: seeded noise.
"""

import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import fields, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import beta

from flows.jobs.run import standing
from pipeline.declaration.card import Card, CardError, task_of
from pipeline.declaration.code import syntax_digest
from pipeline.declaration.domain import Domain
from pipeline.evaluation.coverage import LINEAR_CODE, ONE_STEP_CODE, TABULAR_CODE
from pipeline.facts.promise import declared
from pipeline.facts.verdict import Verdict, confounding, decide
from pipeline.files import private_folder
from pipeline.learners.held_out import LearntHeldOut
from pipeline.learners.learner import LearntFacts, RunPlan, plan_run
from pipeline.learners.overlap import SELDOM
from pipeline.learners.tabular_facts import broken_off
from pipeline.learners.terms import Evaluate, Privacy, Terms
from pipeline.logs.parts import Split, part_key
from pipeline.logs.store import CANONICAL, Snapshot, part_file
from pipeline.logs.summing import Resources
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Release
from tests.campaigns import rows as committed
from tests.campaigns.hostile_families import FAMILIES, Rows, World
from tests.campaigns.resumed import adding
from tests.conftest import card_dict, domain_dict

TABLE = "hostile_worlds"
SHARE = 0.3
# cells of the largest tables that an agent is asked for here: a run shall take about a second
APART, POOLED, LINEAR = 20_000, 60_000, 16
PARTS = 4
UNCONDITIONAL, CONDITIONAL, WITHHELD, NOT = "better", "better_if", "withheld", "not_better"
# an operator's false word: counted apart, since no log contradicts it where choices alone are confounded
WORD = ("recorded_falsely", "rule_changed", "outcomes_lost", "returning_capped")
# draws of a seed that the product may refuse, as too few people for the noise
DRAWS = 60
# what a row depends on: an edit of anything else makes no run anew
_DECIDES = ("pipeline.facts.evaluation", "pipeline.facts.verdict")
_DECIDES += ("pipeline.learners.overlap", "pipeline.learners.tabular_facts")
_LEARNS = ("pipeline.agents.apvi", "pipeline.agents.vapvi")
CODE = {*TABULAR_CODE, *ONE_STEP_CODE, *LINEAR_CODE, *_LEARNS, *_DECIDES, "tests.campaigns.hostile_families"}
FIELDS = ("family", "seed", "refused", "agent", "dynamics", "states", "actions", "horizon", "episodes", "people")
FIELDS += ("rho", "nothing_better", "truth", "naive", "estimate", "lower", "upper", "calibrated")
FIELDS += ("placebo", "past", "hidden", "reach", "strength", "confounding", "said", "would", "seconds")


class Case(NamedTuple):
    """A world, how it is asked about, and how many draws before it the product refused to evaluate."""

    world: World
    agent: str
    dynamics: str
    card: Card
    plan: RunPlan
    refused: int
    seed: tuple[int, ...]


def case_of(family: str, seed: int) -> Case:
    """The case of a family's seed, the same whenever it is asked for: its first draw that the product evaluates."""
    entropy = zlib.crc32(family.encode()), seed
    g = np.random.default_rng(entropy)
    for refused in range(DRAWS):
        world = FAMILIES[family](g)
        agent, dynamics = asked_of(world, g)
        card = card_of(world, agent, dynamics)
        terms = Terms("hostile", agent, Privacy(rho=world.rho), evaluate=Evaluate(people=SHARE))
        try:
            plan = plan_run(card, terms)
        except CardError:
            continue
        return Case(world, agent, dynamics, card, plan, refused, (*entropy, 1))
    raise ValueError(f"{family}, seed {seed}: {DRAWS} draws were refused; the product evaluates none of this family")


def asked_of(world: World, g: np.random.Generator) -> tuple[str, str]:
    """An agent, and whether its tables pool steps: any of those that are cheap on such a world."""
    H, S, A = world.horizon, world.states, world.actions
    moves = S * A * (S + world.ends)
    agents = [("dp-one-step", "stationary" if world.ends and g.random() < 0.5 else "per_step")]
    if moves * H <= APART:
        agents.append(("dp-apvi", "per_step"))
    elif moves <= POOLED:
        agents.append(("dp-apvi", "stationary"))
    if S * A <= LINEAR and H <= 8 and world.episodes == 1:
        agents.append(("dp-vapvi", "per_step"))
    return agents[int(g.integers(len(agents)))]


def card_of(world: World, agent: str, dynamics: str) -> Card:
    """What a careful operator would declare of a world."""
    live = [f"s{i}" for i in range(world.states)]
    # of one step, where it leads is an end
    ends = [f"end{i}" for i in range(max(world.ends, int(world.horizon == 1)))]
    domain = domain_dict(world.horizon, live, world.actions, ends, dynamics=dynamics)
    if dynamics == "stationary":
        domain["cell_cap"] = 4
    if world.recorded and "practice" in Domain.model_fields:
        domain["practice"] = "recorded"
    low, high = world.range
    reward: dict[str, Any] = {"range": [low, high], "steps": world.steps}
    if world.entering is not None:
        reward = {"range": [low, high], "on_entering": {"end0": float(world.entering[world.states])}}
    more = {"features": {"kind": "one_hot"}} if agent == "dp-vapvi" else {}
    cap = 1 if world.capped else world.episodes
    unit = {"user": "user_id", "episodes_per_user": cap, "users_public": world.people}
    values = card_dict(name="hostile", domain=domain, reward=reward, unit=unit, budget={"rho": 100.0}, **more)
    if world.entering is not None:
        values["source"]["columns"].pop("reward")
    return Card.model_validate(values)


def snapshot_of(card: Card, frame: pl.DataFrame, folder: Path) -> Snapshot:
    """A snapshot as ingest writes one; each person is whole in one part."""
    # a person's rows are in order of episode and step: those of one step were made at once, after those before it
    frame, n = frame.sort("user_id", maintain_order=True), card.unit.users_public
    number = frame["user_id"].to_numpy()
    for i in range(PARTS):
        first, last = np.searchsorted(number, [n * i // PARTS, n * (i + 1) // PARTS])
        part = frame[int(first) : int(last)]
        part.write_parquet(part_file(private_folder(folder), i), compression="uncompressed")
    counts = len(frame), len(frame), n, n
    return Snapshot(card.name, 1, folder, card.kind, card.domain_hash(), "", "", *counts, {}, PARTS)


def logged(case: Case) -> pl.DataFrame:
    """Canonical rows of everybody in the case's log."""
    g = np.random.default_rng((*case.seed, 0))
    rows = case.world.sample(g)
    if case.world.lost is not None:
        kept = high_of(case.world, rows).astype(bool) | (g.random(len(rows.user)) >= case.world.lost[rows.action])
        rows = Rows(*(getattr(rows, f.name)[kept] for f in fields(Rows)))
    if case.world.left is not None:
        rows = stayed(rows, g.random(len(rows.user)) < case.world.left[rows.action, high_of(case.world, rows)])
    if case.world.capped:
        drawn = np.lexsort((g.random(len(rows.user)), rows.user))
        first = drawn[np.unique(rows.user[drawn], return_index=True)[1]]
        rows = Rows(*(getattr(rows, f.name)[first] for f in fields(Rows)))
    lone = case.world.horizon == 1 and case.world.ends == 0
    led = np.full_like(rows.next_state, case.world.states) if lone else rows.next_state
    columns = {"user_id": rows.user, "episode_id": rows.episode}
    columns |= {name: getattr(rows, name) for name in ("step", "state", "action", "reward")}
    columns |= {"next_state": led, "terminated": led >= case.world.states}
    columns["truncated"] = np.zeros(len(rows.user), bool)
    types = {**CANONICAL, "user_id": pl.Int64}
    return pl.DataFrame({k: pl.Series(k, v, dtype=types[k]) for k, v in columns.items()})


def high_of(world: World, rows: Rows) -> NDArray[np.int64]:
    """Whether a reward lies in the upper half of the range."""
    return (rows.reward >= sum(world.range) / 2).astype(int)


def stayed(rows: Rows, leaves: NDArray[np.bool_]) -> Rows:
    """Rows of episodes up to the first row after which somebody leaves."""
    _, episode = np.unique(np.stack([rows.user, rows.episode]), axis=1, return_inverse=True)
    last = np.full(episode.max() + 1, rows.step.max())
    np.minimum.at(last, episode[leaves], rows.step[leaves])
    return Rows(*(getattr(rows, f.name)[rows.step <= last[episode]] for f in fields(Rows)))


def learnt_of(case: Case) -> tuple[LearntHeldOut, Release]:
    """Split, draw and learn by the product's own code, over a snapshot in memory."""
    shelf = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="hostile-", dir=shelf if shelf.is_dir() else None))
    noise = SeededNoise(np.random.SeedSequence((*case.seed, 2)))
    try:
        snapshot = snapshot_of(case.card, logged(case), folder / "snapshot")
        key = part_key(b"hostile" + bytes(str(case.seed), "ascii"), case.card.name)
        split = partial(Split, key=key)
        release = case.plan.draw(snapshot, Resources(split=split), lambda _, draw: draw(noise))
    finally:
        shutil.rmtree(folder)
    found = case.plan.learn(release)
    assert isinstance(found, LearntHeldOut)
    return found, release


def verdict_of(facts: LearntFacts, case: Case, release: Release, *, covered: bool) -> Verdict:
    """The verdict of the page of a log of real people.

    ``facts``: of the run.
    ``case``, ``release``: what was run, and what it released.
    ``covered``: whether to decide as if coverage had been measured for this run.
    """
    data = declared(case.card, None).model_copy(update={"kind": "real"})
    found = facts.evaluation
    assert found is not None
    # more measurements would not cover a policy that nobody can contradict
    contradicted = not (found.outside or "").startswith(SELDOM)
    found = replace(found, calibrated=True) if covered and contradicted else found
    least, most = task_of(case.card).value_range(0)
    told = confounding(
        found,
        horizon=case.world.horizon,
        course=case.world.horizon > 1 or case.card.unit.episodes_per_user > 1,
        alike=case.card.domain.dynamics == "stationary",
        pays=most - least,
        pays_at_the_end=case.card.pays_at_the_end,
        recorded=True if case.world.recorded else None,
    )
    # a careful operator's card says where a person is one episode
    return decide(
        found,
        data,
        case.world.rho,
        told,
        facts.model_baselines.get("practice"),
        beyond_cap=case.world.capped,
        value=facts.value,
        broken_off=broken_off(release, case.card),
    )


def statement(verdict: Verdict) -> str:
    """Which kind of statement a verdict is: better, better if nothing hidden, withheld, or nothing of the kind."""
    if verdict.answer == "withheld":
        return WITHHELD
    if verdict.answer != "better":
        return NOT
    told = getattr(verdict, "confounding", None)
    sure = told is None or told.status in ("checked", "declared")
    return UNCONDITIONAL if verdict.holds and sure else CONDITIONAL


def run(family: str, seed: int) -> dict[str, str]:
    """One run: a row."""
    began = time.process_time()
    case = case_of(family, seed)
    w = case.world
    learnt, release = learnt_of(case)
    facts = standing(learnt.facts(), case.card, None)
    found = facts.evaluation
    assert found is not None
    made: Any = learnt.learnt
    policy: Policy = made.policy if hasattr(made, "policy") else made.learnt.plan.policy
    truth = w.gain(policy.probabilities, ~policy.abstains)
    said, would = (verdict_of(facts, case, release, covered=covered) for covered in (False, True))
    told = getattr(would, "confounding", None)
    row = {
        "family": family,
        "seed": seed,
        **{k: getattr(case, k) for k in ("refused", "agent", "dynamics")},
        **{k: getattr(w, k) for k in ("states", "actions", "horizon", "episodes", "people", "rho", "nothing_better")},
        "truth": 0.0 if abs(truth) <= w.tolerance else truth,
        "naive": w.naive(policy.probabilities),
        **{k: float(getattr(found.improvement, k)) for k in ("estimate", "lower", "upper")},
        "calibrated": found.calibrated,
        **{k: getattr(found, k, None) for k in ("placebo", "past", "hidden", "reach", "strength")},
        "confounding": None if told is None else told.status,
        "said": statement(said),
        "would": statement(would),
        "seconds": time.process_time() - began,
    }
    return {k: text_of(v) for k, v in row.items()}


def text_of(x: object) -> str:
    if x is None:
        return ""
    return f"{x:.4g}" if isinstance(x, float) else str(int(x)) if isinstance(x, bool) else str(x)


def counted(rows: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Counts over runs: a "better" is false where what is published gains nothing in the true world.

    ``beyond`` counts every "better", with or without a condition, whose lower end promises more than is true.
    """
    found = dict.fromkeys(COUNTS, 0)
    for r in rows:
        truth, lower, upper = (float(r[k]) for k in ("truth", "lower", "upper"))
        kind = "better" if truth > 0 else "level"
        said = {UNCONDITIONAL: "plain", CONDITIONAL: "if"}.get(r["would"])
        told = ["runs", kind, *(["held"] if lower <= truth <= upper else []), *([f"{kind}_{said}"] if said else [])]
        told += ["beyond"] if said and truth < lower else []
        told += ["withheld"] if r["would"] == WITHHELD else []
        told += ["calibrated"] if r["calibrated"] == "1" else []
        told += ["level_said"] if kind == "level" and r["said"] == UNCONDITIONAL else []
        for name in told:
            found[name] += 1
        found["refused"] += int(r["refused"])
    return found


COUNTS = ("runs", "refused", "held", "level", "level_plain", "level_if", "level_said", "better", "better_plain")
COUNTS += ("better_if", "beyond", "withheld", "calibrated")


def most(k: int, n: int) -> float:
    """Upper end of a share by Clopper and Pearson, one-sided 95 %."""
    return 1.0 if k >= n else float(beta.ppf(0.95, k + 1, n - k))


def raw() -> Path:
    """Where runs of this very code are kept, a row each."""
    return committed.ROOT / "build" / f"{TABLE}-{syntax_digest(CODE, committed.ROOT)[:16]}.csv"


def made() -> dict[tuple[str, int], dict[str, str]]:
    """Runs that are kept, by family and seed."""
    return {(r["family"], int(r["seed"])): r for r in committed.rows_in(raw())}


def add(families: Sequence[str], seeds: range, processes: int) -> list[dict[str, str]]:
    """Make the runs that are not kept yet; all that were asked for."""
    done, asked = made(), [(f, s) for s in seeds for f in families]
    left = [key for key in asked if key not in done]
    os.environ["POLARS_MAX_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # workers that are born anew read these numbers of threads before they load a library
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    with adding(raw(), FIELDS) as keep, pool:
        for at, future in enumerate(as_completed([pool.submit(run, *key) for key in left]), 1):
            row = future.result()
            done[row["family"], int(row["seed"])] = row
            keep(row)
            if at % 100 == 0:
                print(f"{at} of {len(left)}", flush=True)
    return [done[key] for key in asked]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Counts of families as Markdown: then pooled, an operator's false word apart."""
    head = ("family", "runs", "gain held", "not better", 'false "better"', "… if", "… on the page", "truly better")
    head += ('"better"', "… if", "promises too much", "withheld", "measured range")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    whole = {k: sum(int(r[k]) for r in rows if r["family"] not in WORD) for k in COUNTS}
    names = ("held", "level", "level_plain", "level_if", "level_said", "better", "better_plain", "better_if", "beyond")
    for r in (*rows, {"family": "**all**, but for an operator's false word", **whole}):
        lines.append(f"| {r['family']} | {r['runs']} | " + " | ".join(str(r[k]) for k in names) + " | ")
        lines[-1] += f"{r['withheld']} | {r['calibrated']} |"
    ends = (
        f"{what}: {whole[k]} of {whole['level']}, at most {most(whole[k], whole['level']):.1%}"
        for what, k in (('False "better"', "level_plain"), ("with a condition", "level_if"), ("on pages", "level_said"))
    )
    return "\n".join([*lines, "", "; ".join(ends) + " (Clopper and Pearson, one-sided 95 %)."])


def main() -> None:
    rows = add(list(FAMILIES), range(int(sys.argv[1])), 2)
    counts = [{"family": f, **counted(r for r in rows if r["family"] == f)} for f in FAMILIES]
    committed.write(TABLE, counts)
    print(table(counts))
    agents = sorted({r["agent"] for r in rows})
    print(table([{"family": a, **counted(r for r in rows if r["agent"] == a)} for a in agents]))
    mean = np.mean([float(r["seconds"]) for r in rows])
    print(f"rows: {raw().relative_to(committed.ROOT)}; {mean:.2f} s of processor a run")


if __name__ == "__main__":
    main()
