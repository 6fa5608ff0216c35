"""The job of ``simulate``: an online agent and what plays beside it in a known world, published as a run.

And its verification: the first run is played again and compared.

Results of a simulation as the typed facts of a run: its release, policy, value, worth and price.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from flows.config.home import ALONE, Home, Work
from flows.jobs.made_again import BROKEN, foreign_code, judged
from flows.jobs.proof import Vouched
from flows.jobs.run import PAGES, drawn_pages, write_pages, write_policy
from flows.jobs.studies import WorldRecipe, is_world_recipe, load_world_recipe
from pipeline.arrays import Array
from pipeline.declaration.card import AnyCard, CardError, LqCard
from pipeline.declaration.numbers import number
from pipeline.declaration.toml import read_toml
from pipeline.facts import learnt
from pipeline.facts.evaluation import Communication, Curve, PlayedAgent, Simulation, Spread
from pipeline.facts.promise import Dump, Guarantee, Joint, MechanismFacts, declared, present
from pipeline.facts.report import Report, read_report
from pipeline.files import copy_file, whole_folder, write_file
from pipeline.learners.lq import least_value
from pipeline.learners.policy_files import PolicyFiles, decision_facts, gain_files, played_files, read_view
from pipeline.ledger.account import card_hash
from pipeline.ledger.certificate import NOT_COVERED, Route, assumptions, certificate, guarantee, joint_of
from pipeline.ledger.chain import Body, canonical_hash
from pipeline.ledger.ledger import open_ledger
from pipeline.ledger.publication import file_digests, maker, operator_key
from pipeline.ledger.verify import Check, read_json
from pipeline.mdp.policy import Policy
from pipeline.online.cells import StudyRow, curve_points, gather, gathered_rows, measure_cells, printed
from pipeline.online.declared_world import Worth, declared_world, proposal_of
from pipeline.online.registry import find, plain_values, run
from pipeline.online.trial import Measured, Outcome, Trial, run_named
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe_mechanism, read_release, release_files
from pipeline.transaction.transaction import one_at_a_time
from reports.run.value_sections import played_answer
from reports.studies.study_page import table_files

LEVEL = 0.95
_OMITTED = ("trust", "variant")


def _labelled(card: AnyCard, table: Array) -> list[dict[str, object]]:
    """A policy by label: probabilities above 0, or all gains."""
    if isinstance(card, LqCard):
        observed, controls = card.domain.observation.labels, card.domain.action.labels
        return [
            {"step": h, "control": controls[i], "observed": observed[j], "gain": float(table[h, i, j])}
            for h, i, j in np.ndindex(table.shape)
        ]
    states, actions = card.domain.live_states, card.domain.action_labels
    return [
        {"step": int(h), "state": states[s], "action": actions[a], "probability": float(table[h, s, a])}
        for h, s, a in np.argwhere(table > 0)
    ]


@dataclass(frozen=True)
class PlayedSimulation:
    """A simulation that was played."""

    recipe: WorldRecipe
    name: str
    trials: Sequence[Trial]
    outcomes: Sequence[Measured]
    first: Outcome

    @cached_property
    def trial(self) -> Trial:
        """The agent's first."""
        return self.trials[0]

    @cached_property
    def card(self) -> AnyCard:
        """The card that a deployment would declare."""
        return declared_world(self.trial)

    @cached_property
    def rows(self) -> list[StudyRow]:
        """The agent's row over the seeds, then its baselines'."""
        return gathered_rows(self.trials, self.outcomes)

    @cached_property
    def release(self) -> Release:
        """The first run's release; empty where its agent looks at no data."""
        release = self.first.release
        if release is None:
            release = Release("", "synthetic", "per_step", (), {}, "none", "none: nothing was released")
        return replace(release, dataset=self.card.name)

    @cached_property
    def worth(self) -> Worth:
        """The known world, which values policies."""
        return Worth(self.trial)

    @cached_property
    def policy(self) -> Array:
        """``(H, S, A)`` probabilities or ``(H, d, n)`` gains that the first run emitted."""
        return self.worth.read(self.first.policy)

    @property
    def joint(self) -> Joint | None:
        """Joint bound of its tables, where they have one."""
        return joint_of(self.release)

    @property
    def route(self) -> Route:
        """How its release came to be."""
        return Route("exact" if self.release.noise == "none" else "played")

    @cached_property
    def shown(self) -> tuple[PolicyFiles, learnt.PolicyFacts]:
        """The policy in files and in numbers."""
        card, policy = self.card, self.policy
        if isinstance(card, LqCard):
            # by which its sums were released
            bounds = self.joint.bounds or () if self.joint is not None else ()
            facts = learnt.PolicyFacts(tie_share=0.0, abstain_share=0.0, left_zero=bool(policy.any()))
            return gain_files(card, policy, bounds), facts
        table = Policy(policy, np.zeros(policy.shape[:2], dtype=bool))
        tied = (policy == policy.max(-1, keepdims=True)).sum(-1) > 1
        return played_files(card, table, self.worth.visits(policy)), decision_facts(table, tied)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Least and most possible value of a policy; of a plant where the declared balls hold."""
        return (least_value(self.card), 0.0) if isinstance(self.card, LqCard) else self.worth.trivial()

    @cached_property
    def simulation(self) -> Simulation:
        """Measurements of all agents over the seeds."""
        agents, groups = [], gather(self.trials, self.outcomes).values()
        registration = find(self.trial.agent)
        for row, outcomes in zip(self.rows, groups, strict=True):
            lost = self.losses(outcomes)
            agent = row["agent"]
            role = "agent" if not agents else "plain" if agent == registration.plain else "control"
            worst = None if row["variant"] == "control" else self.worth.best - self.ends[0]
            agents.append(
                PlayedAgent(
                    agent=agent,
                    variant=str(row["variant"]),
                    role=role,
                    trust=row["trust"],
                    constants=row["constants"],
                    runs=row["runs"],
                    true_epsilon=row["true_epsilon"],
                    suboptimality=None if lost is None else _spread(lost, worst),
                    regret=_spread(row["totals"]),
                    curve=Curve(episodes=row["marks"], mean=row["curve_mean"], std=row["curve_std"]),
                    facts={k: _in_words(v) for k, v in row["facts"].items() if k not in _OMITTED and v is not None},
                )
            )
        plain = next((a.suboptimality for a in agents if a.role == "plain"), None)
        own = agents[0].suboptimality
        lost = self.worth.lost(self.policy)
        return Simulation(
            world=self.trial.place,
            episodes=self.trial.episodes,
            runs=agents[0].runs,
            seed=self.trial.seed,
            optimum=self.worth.best,
            value=self.worth.best - lost,
            suboptimality=lost,
            price=None if own is None or plain is None else own.mean - plain.mean,
            agents=agents,
            communication=None if (sent := self.outcomes[0]["sent"]) is None else Communication(**sent),
            proposal=proposal_of(self.trial),
        )

    @property
    def value(self) -> learnt.ValueFacts:
        """The interval of the policy's value: in a known world, over the seeds."""
        sim = self.simulation
        own, (low, high) = sim.agents[0].suboptimality, self.ends
        spread = None if own is None or own.lower is None or own.upper is None else (own.lower, own.upper)
        least, most = (low, high) if spread is None else (sim.optimum - spread[1], sim.optimum - spread[0])
        over_seeds = f"{LEVEL:.0%} Student interval of the mean over {sim.runs} independent runs"
        if own is not None and own.least == own.most and sim.agents[0].variant != "control":
            over_seeds = f"{LEVEL:.0%} interval of the mean, of {sim.runs} runs that agree: others may do anything"
        if spread is None:
            over_seeds = "one run: nothing is known of the spread over seeds"
        return learnt.ValueFacts(
            lower=max(low, least),
            upper=min(high, most),
            estimate=sim.value if own is None else sim.optimum - own.mean,
            lower_trivial=low,
            upper_trivial=high,
            gap=min(high, most) - max(low, least),
            optimal_upper=sim.optimum,
            status="modelled",
            assumes=["the world is the simulated one: each run's policy is valued in it exactly", over_seeds],
            start="declared",
        )

    @property
    def baselines(self) -> dict[str, learnt.Baseline]:
        """Estimated value of each other agent."""
        sim = self.simulation
        losses = {a.agent: a.suboptimality for a in sim.agents[1:]}
        return {
            name: learnt.Baseline(estimate=sim.optimum - lost.mean) for name, lost in losses.items() if lost is not None
        }

    def losses(self, outcomes: Sequence[Measured]) -> list[float] | None:
        """V* - V^pi of every run's policy; None where an agent emits none."""
        emitted = [o["policy"] for o in outcomes]
        return None if any(p is None for p in emitted) else [self.worth.lost(self.worth.read(p)) for p in emitted]

    def runs(self) -> list[dict[str, object]]:
        """One row a run: agent, seed, regret, and suboptimality of the policy emitted."""
        return [
            {
                "agent": t.agent,
                "seed": t.seed,
                "episodes": t.episodes,
                "regret": o["regret"][-1],
                "suboptimality": None if (lost := self.losses([o])) is None else lost[0],
            }
            for t, o in zip(self.trials, self.outcomes, strict=True)
        ]

    def policies(self) -> list[dict[str, object]]:
        """Every run's policy, by label: probabilities above 0, or gains."""
        rows: list[dict[str, object]] = []
        for t, o in zip(self.trials, self.outcomes, strict=True):
            if o["policy"] is not None:
                labelled = _labelled(self.card, self.worth.read(o["policy"]))
                rows += [{"agent": t.agent, "seed": t.seed, **row} for row in labelled]
        return rows


def _spread(values: Sequence[float], worst: float | None = None) -> Spread:
    """``worst``: the most that a run may lose, of an agent that learns; None: not known, or runs agree by nature."""
    x = np.array(values, dtype=np.float64)
    mean, std = float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else 0.0
    lower = upper = None
    if len(x) > 1:
        from scipy.stats import t

        half = float(t.isf((1 - LEVEL) / 2, len(x) - 1)) * std / math.sqrt(len(x))
        # nothing loses less than nothing
        lower, upper = max(0.0, mean - half), mean + half
        if worst is not None and x.min() == x.max():
            # runs that agree show no spread: of a share of seeds that none of them shows anything may be true
            unseen = 1 - ((1 - LEVEL) / 2) ** (1 / len(x))
            lower, upper = mean * (1 - unseen), mean + unseen * (worst - mean)
        upper = upper if worst is None else min(upper, worst)
    ends = {"least": float(x.min()), "most": float(x.max()), "median": float(np.median(x))}
    return Spread(mean=mean, std=std, lower=lower, upper=upper, level=LEVEL, **ends)


def _in_words(value: object) -> str:
    return number(value) if isinstance(value, str | int | float) else str(value)


_TABLES = ("runs", "curves", "policies")
_AGAIN = "played again from the recipe"


def play_job(path: Path, home: Home, work: Work = ALONE) -> Dump:
    """An online agent and its baselines in a known world, published in ``<home>/runs``.

    Returns ``run, agent, world, episodes, regret, suboptimality, baselines, true_epsilon, delta, files`` (design §5.5),
    and the rows.
    """
    recipe = load_world_recipe(path, home.runs)
    by_agent = recipe.trials()
    trials = [t for each in by_agent.values() for t in each]
    work.say(f"playing {len(trials)} runs of {', '.join(by_agent)}; simulation, not private")
    totals: dict[str, list[float]] = {}

    def tell(trial: Trial, outcome: Dump) -> None:
        seen = totals.setdefault(trial.agent, [])
        seen.append(outcome["regret"][-1])
        work.say(f"  {trial.agent}, run {len(seen)}: regret {seen[-1]:.4g}; so far {np.mean(seen):.4g} on average")

    cells = home.root / "simulations" / "cells"
    outcomes = work.step("play")(measure_cells, trials, cells, work.progress, tell)
    return work.step("report")(_publish, recipe, path, home, trials, outcomes)


def _publish(
    recipe: WorldRecipe, path: Path, home: Home, trials: Sequence[Trial], outcomes: Sequence[Measured]
) -> Dump:
    """Write the run's folder and have the ledger vouch for every file; what ``--json`` prints."""
    # one recipe makes one folder
    digest = canonical_hash(recipe.model_dump(mode="json", exclude_none=True))[:10]
    name = f"{recipe.recipe.name}-{digest}-simulation-not-private"
    # no kept result holds a release: the first run is played again, and is the same
    played = PlayedSimulation(recipe, name, trials, outcomes, run(trials[0]))
    final = home.runs / name
    with one_at_a_time(home.runs), whole_folder(final, over=True) as folder:
        _compose(played, path, folder)
        ledger = open_ledger(home.ledger_of(None), create=True)
        entries = ledger.entries()
        body = {
            "run": name,
            "run_key": canonical_hash([name]),
            "commit": None,
            "snapshot": None,
            "seen": entries[-1].seq if entries else 0,
            "card_hash": card_hash(played.card),
            "seed": played.trial.seed,
            "made_by": maker(),
            "files": file_digests(folder),
        }
        ledger.publish(played.card.name, body, operator_key(home.store))
    return _answer(played, final)


def _compose(played: PlayedSimulation, path: Path, folder: Path) -> None:
    for name, content in release_files(played.release).items():
        write_file(folder / name, content)
    copy_file(path, folder / "recipe.toml")
    for stem, rows in zip(_TABLES, (played.runs(), curve_points(played.rows), played.policies()), strict=True):
        if rows:
            write_file(folder / f"{stem}.parquet", table_files(rows)[0])
    files, facts = played.shown
    digests = write_policy(files, folder)
    report = _report(played, facts)
    proof = certificate(played.card, played.release, report, played.route, None, digests)
    write_pages(report, proof, read_view(report, folder), folder)


def _answer(played: PlayedSimulation, folder: Path) -> Dump:
    agent_row, measured = played.rows[0], played.simulation
    shared = ("agent", "world", "episodes", "trust")
    return {
        "name": played.recipe.recipe.name,
        "run": played.name,
        **{key: agent_row[key] for key in shared},
        "regret": {"mean": agent_row["mean"], "std": agent_row["std"]},
        "suboptimality": measured.suboptimality,
        "answer": played_answer(measured),
        "baselines": {r["agent"]: {"mean": r["mean"], "std": r["std"]} for r in played.rows[1:]},
        **{key: agent_row[key] for key in ("epsilon", "true_epsilon", "delta", "noise")},
        "proposal": measured.proposal,
        "rows": [printed(r) for r in played.rows],
        "facts": agent_row["facts"],
        "report": str(folder / PAGES[0]),
        "folder": str(folder),
        "files": [str(p) for p in sorted(folder.iterdir())],
    }


def _report(played: PlayedSimulation, policy: learnt.PolicyFacts) -> Report:
    """All of ``report.json``."""
    trial, release, card = played.trial, played.release, played.card
    return Report(
        schema_version=1,
        run=played.name,
        recipe=played.recipe.recipe.name,
        agent=trial.agent,
        dataset=declared(card, None),
        guarantee=_guarantee(played),
        constants=_constants(played),
        value=played.value,
        model_baselines=played.baselines,
        mechanisms=[MechanismFacts.model_validate(describe_mechanism(m)) for m in release.mechanisms],
        ledger=None,
        **present(joint=played.joint),
        policy=policy,
        assumptions=assumptions(card, (), played.route),
        not_covered=list(NOT_COVERED),
        verify=[
            f"reticent ledger verify {played.name}  # recomputes the certificate, and what the recipe would release",
            "reticent simulate recipe.toml  # plays it again, here or elsewhere: the same numbers",
        ],
        simulation=played.simulation,
    )


def _guarantee(played: PlayedSimulation) -> Guarantee:
    """The guarantee that the mechanism would have in a deployment, recomputed from the release."""
    trial = played.trial
    budget: Body = {} if trial.epsilon is None else {"epsilon": trial.epsilon, "delta": trial.delta}
    return guarantee(played.card, played.release, trial.calibration or "tight", budget)


def _constants(played: PlayedSimulation) -> learnt.PlayedConstants:
    trial = played.trial
    options = {k: run_named(v) for k, v in {**find(trial.agent).defaults, **trial.knobs}.items()}
    constants = str(played.rows[0]["constants"] or "none")
    preset = str(options.get("constants") or "practical")
    return learnt.PlayedConstants(
        policy=learnt.Preset(preset=preset, values={}, source={"chosen": constants}),
        options={k: v for k, v in options.items() if isinstance(v, str | int | float | bool) or v is None},
    )


def is_played(folder: Path) -> bool:
    """Whether a run's folder holds the recipe of a simulation."""
    try:
        return is_world_recipe(read_toml(folder / "recipe.toml"))
    except (OSError, CardError):
        return False


def played_again(folder: Path, held: Vouched) -> Iterator[Check]:
    """Play the agent's first run, and compare mechanisms, release, policy, guarantee and pages."""
    if (reason := foreign_code(folder, held)) is not None:
        yield Check(f"the first run, {_AGAIN}", None, f"not comparable: {reason}")
        return
    older = held.older(maker())
    try:
        recipe = load_world_recipe(folder / "recipe.toml", folder.parent)
        trial = recipe.trials()[recipe.recipe.agent][0]
        first = run(trial)
        played = PlayedSimulation(recipe, folder.name, [trial], [plain_values(trial, first)], first)
        for what, problem in _compared(folder, played):
            yield judged(what, problem, older)
    except BROKEN as e:
        problem = f"it cannot be played ({type(e).__name__}: {str(e)[:120]})"
        yield judged(f"the first run, {_AGAIN}", problem, older)
        return
    yield Check("regret and intervals over all seeds", None, "simulate its recipe again: kept runs are found again")


def _compared(folder: Path, played: PlayedSimulation) -> Iterator[tuple[str, str | None]]:
    """What a run's folder must have in common with the first run played again, and how it differs, if it does."""
    proof: Body = read_json(folder, "certificate.json")
    promise, again = None, _guarantee(played).model_dump()
    if [describe_mechanism(m) for m in played.release.mechanisms] != proof["mechanisms"]:
        promise = "the recipe releases other tables, or with other noise"
    elif differ := [key for key in again if again[key] != proof["guarantee"].get(key)]:
        promise = f"guarantee: {', '.join(differ)} differ"
    yield f"mechanisms and guarantee, {_AGAIN}", promise
    stored = read_release(folder).tables
    same = all(np.array_equal(stored[name], table) for name, table in played.release.tables.items())
    yield f"release.parquet, {_AGAIN}", None if same else "its numbers are others"
    files, _ = played.shown
    table, columns = pq.read_table(folder / "policy.parquet"), files.tables["policy"]
    same = all(np.allclose(table[name].to_numpy(), column, atol=1e-9) for name, column in columns.items())
    same = same and set(columns) == set(table.column_names)
    yield f"policy.parquet, {_AGAIN}", None if same else "its numbers are others"
    report = read_report(folder)
    drawn = zip(PAGES, drawn_pages(report, read_view(report, folder)), strict=True)
    other = (page for page, text in drawn if (folder / page).read_text(encoding="utf-8") != text)
    page = next(other, None)
    yield "the pages, drawn again from report.json", None if page is None else f"{page} says something else"
