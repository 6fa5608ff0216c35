"""Online agents in simulated worlds: the runners, and exact regret.

One loop, :func:`play`, runs every agent.  An agent's queries are public (numbers of users and their policies); the
replies are whole episodes (:class:`EpisodeWorld`), counts that an interactive mechanism released (:class:`CountWorld`),
private tables of one batch (:class:`BatchWorld`), or episodes of a plant (:class:`~pipeline.online.plants.PlantWorld`).
Within a batch the policy is fixed, so its tables are drawn from the exact law, a chain of multinomials: a batch of 10^9
users costs what one of ten does.

Policies that learn nothing, in any tabular world: what an online agent must beat.

The world of a trial by name: states and actions, or a linear plant; shipped, written out, released, or your own.

=======================  ===========================================================================================
name                     what it is
=======================  ===========================================================================================
a name of ``worlds.py``  a tabular world, ``gymnasium:ID`` among them
``lq``, ``lq-1`` …       a linear plant of paper 004, by ``instance`` and ``seed``; or ``double_integrator``
``plant``                a linear plant that the recipe writes out: ``A``, ``B``, ``horizon``, ``Q``, ``R``, ``noise`` …
``release:FOLDER``       the released model of a run: post-processing of what has left already, so it costs nothing
``module:object``        a :class:`~pipeline.worlds.world.WorldFunction` of your own, which returns either kind
=======================  ===========================================================================================

And the prior knowledge of an online agent: counts that an offline run has released.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from pipeline.arrays import AnyArray, Array, Integers
from pipeline.declaration.card import Card
from pipeline.declaration.code import is_plugin, plugin
from pipeline.declaration.toml import CardError
from pipeline.facts.promise import DeclaredPlant
from pipeline.facts.report import read_report
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimum, policy_value
from pipeline.mdp.policy import Policy, constant, set_values
from pipeline.mdp.policy import uniform as uniformly
from pipeline.mdp.riccati import QuadraticCost
from pipeline.mdp.rollout import Batch, BatchRollout, Rollout, Trajectory
from pipeline.online.trial import OnlineAgent, Outcome, Trial, staged_curve
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics import online_counts
from pipeline.statistics.interactive_counts import BatchPrivatizer, InteractiveCounts
from pipeline.worlds import plants
from pipeline.worlds.catalog import builds_horizon, catalog_folder, load_world, refuse_unknown_world
from pipeline.worlds.synthetic import checked, read_run, released_card, released_world
from pipeline.worlds.world import World, WorldFunction, multinomials, sample_count_tables

RELEASE = "release:"
Params = tuple[tuple[str, Any], ...]
Kind = TypeVar("Kind", World, plants.LqSystem)
# end of the error where a world is of the other kind
_OTHERWISE: dict[type, str] = {
    World: "is a linear plant; use private-ofu-rl or another agent of plants",
    plants.LqSystem: "has states and actions; this agent is for linear plants such as lq",
}


def refuse_unknown_place(name: str) -> None:
    """Refuse a name that no world of a trial can have; builds nothing.

    Raises CardError if there is no such world, or it is a plug-in that is not permitted.
    """
    if name not in _PLANTS and name not in plants.LQ_WORLDS and not name.startswith(RELEASE):
        refuse_unknown_world(name)


@cache
def place_of(name: str, params: Params) -> World | plants.LqSystem:
    """The world or plant, before a world is cut at a horizon; a file it is made of is looked for on the shelves.

    Raises CardError if there is no such place, a parameter is unknown, or a run has released no model.
    """
    chosen = dict(params)
    try:
        if name.startswith(RELEASE):
            chosen.pop("horizon", None)
            return _released(Path(name.removeprefix(RELEASE)), **chosen)
        if name in plants.LQ_WORLDS and not chosen:
            return plants.load_lq_world(name)
        if name in _PLANTS:
            return _PLANTS[name](**chosen)
    except (TypeError, ValueError) as e:
        raise CardError(f"world {name}: {e}") from None
    if is_plugin(name) and isinstance(plant := _built(name, chosen), plants.LqSystem):
        return plant
    cut = {k: v for k, v in chosen.items() if k != "horizon" or builds_horizon(name)}
    return load_world(name, catalog_folder(name), **cut)


def typed_place(name: str, params: Params, kind: type[Kind]) -> Kind:
    """The same where it must have states and actions, or must be a linear plant.

    Raises CardError if it is the other kind, or there is none.
    """
    place = place_of(name, params)
    if not isinstance(place, kind):
        raise CardError(f"world {name}: {_OTHERWISE[kind]}")
    return place


def _lq(instance: int, seed: int = 11) -> plants.LqSystem:
    return plants.lq_instance(instance, seed)


_PLANTS = {"lq": _lq, "double_integrator": plants.double_integrator, "plant": plants.written_plant}


def _built(name: str, chosen: dict[str, Any]) -> object:
    """Result of a plug-in function; a tabular world is built by the registry of worlds, which checks it."""
    try:
        return plugin(name, WorldFunction).build(**chosen)
    except TypeError:
        return None


def _released(folder: Path) -> World | plants.LqSystem:
    """The released model of a run, over its declared labels or coordinates."""
    report = read_report(folder)
    if isinstance(report.dataset, DeclaredPlant):
        if report.model is None:
            raise ValueError(f"{folder.name} has released no plant; name a run of dp-lqr")
        d, model = report.dataset, (np.array(report.model.A), np.array(report.model.B))
        cost = QuadraticCost(np.array(d.cost.Q), np.array(d.cost.R), d.horizon)
        first = np.array(d.start_declared.mean)
        return plants.estimated_plant(report.run, model, cost, d.action.radius, np.array(d.noise_covariance), first)
    run = read_run(folder)
    values = released_card(run, name="released", episodes=1, episodes_per_user=1, rho=1.0)
    return released_world(run, checked(values))


RUN = "run:"


def counts_before(trial: Trial, layout: online_counts.OnlineLayout) -> online_counts.OnlineCounts:
    """Counts of the run that option ``warm_start`` names: post-processing, at no cost to the people of either.

    Where the run has one table for all steps, every step knows it; where the agent has one, it knows their sum.

    Raises CardError if there is no such run, it is of other states, actions or steps, or rewards are learnt.
    """
    source = trial.knobs.get("warm_start")
    if source is None:
        return online_counts.nothing_seen(layout)
    if not str(source).startswith(RUN):
        raise CardError(f"{trial.agent}: warm_start = {source!r}; say {RUN}NAME, a run of counts")
    if layout.rewards:
        raise CardError(f"{trial.agent}: warm_start brings transitions alone; leave out rewards = 'learnt'")
    folder = Path(str(source).removeprefix(RUN))
    run = read_run(folder)
    card = checked(released_card(run, name="released", episodes=1, episodes_per_user=1, rho=1.0))
    states, actions = _matched(card, typed_place(trial.world, trial.params, World), folder.name)
    n = run.release.tables["n_sas"].astype(np.float64)
    G, L, A, S = n.shape  # noqa: N806
    if 1 < G < layout.steps:
        raise CardError(f"{folder.name} has counts of {G} steps, this world of {layout.steps}; warm_start needs them")
    n = n if G == 1 else n[: layout.steps]
    sd = next(m for m in run.release.mechanisms if m.table == "n_sas").standard_deviation
    if layout.pooled:
        n, sd = n.sum(0, keepdims=True), sd * len(n) ** 0.5
    # ends are declared: their transitions are known
    ends = np.zeros((S - L, A, S))
    ends[np.arange(S - L), :, np.arange(L, S)] = trial.episodes
    with_ends = np.concatenate([n, np.broadcast_to(ends, (len(n), *ends.shape))], axis=1)
    matched = with_ends[:, states][:, :, actions][..., states]
    return online_counts.OnlineCounts(0, np.broadcast_to(matched, (*layout.cells, len(states))).copy(), None, sd, 0.0)


def _matched(card: Card, world: World, run: str) -> list[Integers]:
    """Index of each state and action of the world among the card's labels; in their order where no label is shared."""
    d, indices = card.domain, list[Integers]()
    for labels, names in ((d.state_labels, world.raw_labels), (d.action_labels, world.actions)):
        index_of = {label: i for i, label in enumerate(labels)}
        index = [index_of.get(name, -1) for name in names] if set(names) & set(labels) else list(range(len(names)))
        if sorted(index) != list(range(len(labels))):
            raise CardError(f"warm_start: {run} counts other states or actions than world {world.name} has")
        indices.append(np.array(index))
    return indices


Result = TypeVar("Result")
Query = TypeVar("Query")
Reply = TypeVar("Reply")


@dataclass(frozen=True)
class Played(Generic[Result]):
    """A run: of each rollout its last episode and the mean loss of its episodes, exactly, reward units.

    ``result``: what the agent returned.
    """

    ends: list[int]
    losses: list[float]
    result: Result

    @property
    def regret(self) -> Array:
        """Regret of every episode ``(K,)``."""
        return np.repeat(self.losses, np.diff(self.ends, prepend=0))


def play(agent: Generator[Query, Reply, Result], world: Callable[[Query], tuple[Reply, int, float]]) -> Played[Result]:
    """Run an agent until it returns.

    ``world``: from a query to its reply, the number of its episodes, and the mean loss of one.
    """
    ends, losses = list[int](), list[float]()
    query = next(agent)
    while True:
        reply, episodes, lost = world(query)
        ends.append(episodes + (ends[-1] if ends else 0))
        losses.append(lost)
        try:
            query = agent.send(reply)
        except StopIteration as end:
            return Played(ends, losses, end.value)


class EpisodeWorld:
    """Answers with whole episodes; ``rng`` belongs to the world alone, so that agents can share worlds.

    It draws H + 1 numbers an episode, whatever the agent and however it asks; the choices of a stochastic policy come
    from a stream spawned off ``rng``.
    """

    def __init__(self, mdp: TabularMDP, rng: np.random.Generator) -> None:
        self._mdp, self._sampler, self._best = mdp, Sampler(mdp, rng), optimum(mdp)
        self._last: Rollout | None = None
        self._lost = 0.0

    def __call__(self, rollout: Rollout) -> tuple[Trajectory, int, float]:
        """One policy may serve many episodes: it is valued once."""
        if rollout is not self._last:
            p = rollout.probabilities
            self._lost = self._best - policy_value(
                self._mdp, np.eye(self._mdp.shape[2])[rollout.policy] if p is None else p
            )
        self._last = rollout
        return self._sampler.episodes(rollout), rollout.episodes or 1, self._lost


class Sampler:
    """Draws episodes by inverting the cumulated start ``(S,)`` and transitions ``(H, S, A, S)``."""

    def __init__(self, mdp: TabularMDP, rng: np.random.Generator) -> None:
        self._rng, self._choices = rng, rng.spawn(1)[0]
        self._start, self._moves, self._rewards = mdp.start.cumsum(), mdp.transitions.cumsum(-1), mdp.rewards

    def episodes(self, rollout: Rollout) -> Trajectory:
        """Episodes of a rollout, one or several at once."""
        H, S, _ = self._rewards.shape  # noqa: N806
        n = rollout.episodes or 1
        u = self._rng.random((n, H + 1))
        chosen = self._chosen(rollout, n)
        states, actions = np.empty((n, H + 1), dtype=np.int64), np.empty((n, H), dtype=np.int64)
        # a cumulated row may end a rounding below 1
        states[:, 0] = np.minimum(self._start.searchsorted(u[:, 0], side="right"), S - 1)
        for h in range(H):
            s = states[:, h]
            actions[:, h] = a = chosen[h, s] if chosen.ndim == 2 else chosen[h, np.arange(n), s]
            if n == 1:
                states[0, h + 1] = min(int(self._moves[h, s[0], a[0]].searchsorted(u[0, h + 1], side="right")), S - 1)
            else:
                states[:, h + 1] = np.minimum((self._moves[h, s, a] <= u[:, h + 1, None]).sum(-1), S - 1)
        rewards = self._rewards[np.arange(H), states[:, :-1], actions]
        single = rollout.episodes is None
        return Trajectory(states[0], actions[0], rewards[0]) if single else Trajectory(states, actions, rewards)

    def _chosen(self, rollout: Rollout, n: int) -> Integers:
        """Actions ``(H, S)`` of each state, or ``(H, n, S)`` of each episode for a stochastic policy."""
        p = rollout.probabilities
        if p is None:
            return rollout.policy.astype(np.int64)
        u = self._choices.random((p.shape[0], n, 1, 1))
        return np.minimum((p.cumsum(-1)[:, None] <= u).sum(-1), p.shape[-1] - 1)


class CountWorld:
    """Answers with counts that an interactive mechanism released; ``rng`` belongs to the world alone.

    ``unread``: users' data are dropped, and the mechanism releases noise.
    """

    def __init__(
        self, mdp: TabularMDP, counts: InteractiveCounts, rng: np.random.Generator, *, unread: bool = False
    ) -> None:
        self._mdp, self._counts, self._rng, self._best = mdp, counts, rng, optimum(mdp)
        self._reads = int(not unread)
        self._highest = mdp.rewards.max((1, 2))

    def __call__(self, batch: Batch) -> tuple[online_counts.OnlineCounts, int, float]:
        """Within a batch the policy is fixed: its tables have an exact law."""
        mdp, highest, counts, rng = self._mdp, self._highest, self._counts, self._rng
        lost = self._best - policy_value(mdp, batch.policy)
        people = walked(mdp, batch.policy, batch.episodes, rng) if counts.protocol and self._reads else None
        if people is None:
            n_sas = sample_count_tables(mdp, batch.policy, batch.episodes, rng)
        else:
            n_sas = visits_of(people, mdp.shape)
            people = replace(people, rewards=people.rewards / np.where(highest > 0, highest, 1.0))
        learnt = counts.layout.rewards
        bits = self._reads * rounded_rewards(n_sas.sum(-1), mdp.rewards, highest, rng) if learnt else None
        counts.add(online_counts.Tally(batch.episodes, self._reads * n_sas, bits, people, batch.policy > 0))
        return counts.counts(), batch.episodes, lost


def walked(mdp: TabularMDP, policy: AnyArray, episodes: int, rng: np.random.Generator) -> Trajectory:
    """Whole episodes of users who follow one policy, one row each."""
    return Sampler(mdp, rng).episodes(Rollout(policy, episodes))


def visits_of(people: Trajectory, shape: tuple[int, int, int]) -> Integers:
    """Transitions ``(H, S, A, S)`` of whole episodes, summed."""
    H, S, A = shape  # noqa: N806
    n_sas = np.zeros((H, S, A, S), dtype=np.int64)
    states = people.states
    np.add.at(
        n_sas, (np.broadcast_to(np.arange(H), people.actions.shape), states[:, :-1], people.actions, states[:, 1:]), 1
    )
    return n_sas


def rounded_rewards(visits: Integers, rewards: Array, highest: Array, rng: np.random.Generator) -> Integers:
    """Sum of -1 or +1 a visit ``(H, S, A)``: each reward in [0, highest] rounded at random to an end of its range."""
    top = np.where(highest > 0, highest, 1.0)[:, None, None]
    return 2 * rng.binomial(visits, np.clip(rewards / top, 0.0, 1.0)) - visits


class BatchWorld:
    """Answers with private tables of one batch; ``rng`` belongs to the world alone.

    ``batches``: of each that was played its layout and noisy sums.
    Raises ValueError if rewards are not in [0, 1]: they travel as bits.
    """

    def __init__(
        self,
        mdp: TabularMDP,
        privatizer: BatchPrivatizer,
        rng: np.random.Generator,
        noise: SeededNoise,
        *,
        protocol: bool = False,
    ) -> None:
        if mdp.rewards.min() < 0 or mdp.rewards.max() > 1:
            raise ValueError("rewards must be in [0, 1]: a user sends each as one bit, rounded at random")
        self._mdp, self._privatizer, self._rng, self._noise, self._protocol = mdp, privatizer, rng, noise, protocol
        self._best = optimum(mdp)
        self.batches = list[tuple[online_counts.BatchLayout, online_counts.NoisyTables]]()

    def __call__(self, batch: BatchRollout) -> tuple[online_counts.PrivateBatch, int, float]:
        """Policies without users are left out."""
        mdp, rng = self._mdp, self._rng
        played, (first, stop) = batch.episodes > 0, batch.steps
        policies, episodes = batch.policies[played], batch.episodes[played]
        layout = online_counts.BatchLayout(
            (stop - first, *mdp.shape[1:]), batch.lean, batch.rewards, ends=stop == mdp.horizon
        )
        earned = set_values(mdp.transitions, mdp.rewards, mdp.start, policies)
        users = int(episodes.sum())
        all_steps, people = sample_batch(mdp, policies, episodes, rng), None
        if self._protocol:
            walks = [walked(mdp, p, int(n), rng) for p, n in zip(policies, episodes, strict=True)]
            people = [v for walk in walks for v in layout.values(_between(walk, first, stop))]
            n_sas = np.sum([visits_of(walk, mdp.shape) for walk in walks], axis=0)
            all_steps = online_counts.BatchTables(users, n_sas, rng.binomial(n_sas.sum(-1), mdp.rewards))
        tables = online_counts.BatchTables(users, all_steps.n_sas[first:stop], all_steps.r_sa[first:stop], people)
        private = self._privatizer.release(tables, layout, self._noise)
        self.batches.append((layout, private.noisy))
        return private, users, self._best - float(episodes @ earned) / users


def _between(people: Trajectory, first: int, stop: int) -> Trajectory:
    return Trajectory(people.states[:, first : stop + 1], people.actions[:, first:stop], people.rewards[:, first:stop])


def sample_batch(
    mdp: TabularMDP, policies: Integers, episodes: Integers, rng: np.random.Generator
) -> online_counts.BatchTables:
    """Tables of all steps when ``episodes (M,)`` users follow each of ``policies (M, H, S)``; rewards as bits."""
    H, S, A = mdp.shape  # noqa: N806
    n_sas, states = np.zeros((H, S, A, S), dtype=np.int64), np.arange(S)
    people = multinomials(episodes, np.broadcast_to(mdp.start, (len(episodes), S)), rng)
    for h in range(H):
        a = policies[:, h]
        moved = multinomials(people, mdp.transitions[h][states, a], rng)
        np.add.at(n_sas[h], (np.broadcast_to(states, a.shape), a), moved)
        people = moved.sum(1)
    return online_counts.BatchTables(int(episodes.sum()), n_sas, rng.binomial(n_sas.sum(-1), mdp.rewards))


def as_printed(trial: Trial) -> bool:
    """Whether the trial asks for the constants that a paper prints.

    Raises CardError if the option is neither ``practical`` nor ``paper``.
    """
    if (constants := trial.knobs.get("constants", "practical")) not in ("practical", "paper"):
        raise CardError(f"{trial.agent}: constants is one of practical, paper; got {constants!r}")
    return constants == "paper"


def emitted(policy: Array) -> list[Any]:
    """A policy ``(H, S, A)`` as an outcome holds it: actions where it never draws."""
    return (policy.argmax(-1) if np.isin(policy, (0, 1)).all() else policy).tolist()


def uniform(trial: Trial) -> Outcome:
    """Every action equally likely."""
    return _always(trial, uniformly(*world_of(trial).shape))


def always_first(trial: Trial) -> Outcome:
    """Action 0 everywhere, as ties broken by index would choose."""
    return _constant(trial, 0)


def always_right(trial: Trial) -> Outcome:
    """The last action everywhere: nearly optimal in RiverSwim without any learning."""
    return _constant(trial, world_of(trial).shape[2] - 1)


def best_constant(trial: Trial) -> Outcome:
    """The best single action for all states and steps, computed from the true world."""
    mdp = world_of(trial)
    worth = [policy_value(mdp, constant(*mdp.shape, a)) for a in range(mdp.shape[2])]
    return _constant(trial, int(np.argmax(worth)))


def behaviour(trial: Trial) -> Outcome:
    """The world's logging policy of option ``of``."""
    return _always(trial, logging_policy(trial, str(trial.knobs.get("of", "uniform"))))


def logging_policy(trial: Trial, name: str) -> Policy:
    """A logging policy of the trial's world, by name.

    Raises CardError if the world has no policy of that name.
    """
    H = world_of(trial).horizon  # noqa: N806
    p = typed_place(trial.world, trial.params, World).behaviours(name, H)
    return Policy(p, np.zeros(p.shape[:2], dtype=bool))


def world_of(trial: Trial) -> TabularMDP:
    """The trial's world, cut at its horizon (``horizon`` among its parameters, else the world's own)."""
    return named_world(trial.world, trial.params)


@cache
def named_world(name: str, params: tuple[tuple[str, object], ...]) -> TabularMDP:
    """The same by name and parameters.

    Raises CardError if there is no such world or parameter.
    """
    builds = not name.startswith(RELEASE) and builds_horizon(name)
    horizon = None if builds else dict(params).get("horizon")
    world = typed_place(name, params, World)
    return world.mdp(world.steps(None if horizon is None else int(str(horizon))))


def _constant(trial: Trial, action: int) -> Outcome:
    return _always(trial, constant(*world_of(trial).shape, action))


def _always(trial: Trial, policy: Policy) -> Outcome:
    mdp = world_of(trial)
    loss = optimum(mdp) - policy_value(mdp, policy)
    marks, summed = staged_curve([trial.episodes], [loss])
    facts = {"trust": "none", "variant": "control", "final_loss": loss, "optimum": optimum(mdp)}
    return Outcome(marks, summed, facts, emitted(policy.probabilities))


AGENTS = {
    "uniform": OnlineAgent(uniform),
    "always-first": OnlineAgent(always_first),
    "always-right": OnlineAgent(always_right),
    "best-constant": OnlineAgent(best_constant),
    "behaviour": OnlineAgent(behaviour, defaults={"of": "uniform"}),
}
