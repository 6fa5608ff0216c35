"""The ``dataset`` of report.json: what the card declares about the data; nothing in it was counted."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pipeline.declaration.card import AnyCard, Card, LqCard
from pipeline.declaration.linear_quadratic import Vector
from reports.facts.part import Dump, Matrix, Number, Part, present


class Declared(Part):
    """What is declared about the people of any dataset.

    Parameters
    ----------
    name
        The lineage in the ledger.
    kind
        Whether somebody real is in the log.
    user
        Column that names a person, or the record that is protected where files name none.
    episodes_per_user
        At most so many episodes of a person count.
    users_public
        Number of people; public.
    recurs
        Whether a person may return in a later batch.
    horizon
        Steps of an episode.
    snapshot
        Number of the ingested snapshot; None for a night of a counter, whose number would tell when the log changed.
    """

    name: str
    kind: Literal["synthetic", "real"]
    user: str
    episodes_per_user: int
    users_public: int
    recurs: str
    horizon: int
    snapshot: int | None


# beside a simulated log
RECORD = "generated.json"


class Made(Part):
    """How a simulated log was made.

    Parameters
    ----------
    world, behaviour, seed, episodes
        World and policy that made it, seed of the draws, and how many there are.
    sha256
        Of the files' digests, in order.
    """

    world: str
    behaviour: str
    seed: int
    episodes: int
    sha256: str


class DeclaredVector(Part):
    """Observation or control of a plant.

    Parameters
    ----------
    names
        Of its coordinates.
    scale
        A logged number is divided by its coordinate's scale.
    center
        What is taken from it before; None: nothing.
    radius
        Length beyond which a scaled vector is shortened.
    """

    names: list[str]
    scale: list[Number]
    center: list[Number] | None = None
    radius: Number


class DeclaredTables(Declared):
    """States and actions by label, and rewards on a lattice.

    Parameters
    ----------
    live_states, ends, actions
        The L live states, the ends of an episode, the A actions.
    vetoes
        Pairs of state and action that no policy may take.
    dynamics
        Whether each step has tables of its own.
    markov
        ``aggregated`` where the declared states hide part of what was logged.
    start
        Whether the distribution of first states is released or declared.
    cell_cap
        With stationary dynamics: how often one person counts in one cell at most.
    reward_kind
        ``table`` or ``on_entering`` where the card declares the rewards.
    reward_range, reward_unit, reward_total
        Least and greatest reward, a step of the lattice, and the most that one person's rewards sum to.
    start_declared
        Probability of each first state.
    reward_table
        ``(L, A)`` declared mean rewards, or one such table a step.
    reward_on_entering
        What a step pays for the state that it leads to, 0 for a label that is not named.
    state_features
        Names of the declared public numbers of every live state.
    observation
        Numbers logged beside the state, for linear agents.
    first_observations
        Where episodes begin, as logged, where that is declared.
    """

    live_states: list[str]
    ends: list[str]
    actions: list[str]
    vetoes: list[tuple[str, str]]
    dynamics: Literal["per_step", "stationary"]
    markov: Literal["declared", "aggregated"]
    start: Literal["released", "declared"]
    cell_cap: int | None
    reward_kind: str
    reward_range: tuple[Number, Number]
    reward_unit: Number
    reward_total: Number | None
    start_declared: dict[str, Number] | None = None
    reward_table: Matrix | list[Matrix] | None = None
    reward_on_entering: dict[str, Number] | None = None
    state_features: list[str] | None = None
    observation: DeclaredVector | None = None
    first_observations: Matrix | None = None


class FirstState(Part):
    """Declared ``mean (n,)`` and ``second_moment (n, n)`` of the first observation, scaled."""

    mean: list[Number]
    second_moment: Matrix


class Cost(Part):
    """What a step costs: x'Qx + u'Ru, ``Q (n, n)`` and ``R (d, d)``."""

    Q: Matrix
    R: Matrix


class DeclaredPlant(Declared):
    """A linear plant with quadratic costs, next x = A x + B u + noise; A and B are not declared.

    Parameters
    ----------
    dynamics
        Tells a plant from tables.
    markov, start
        Always declared.
    observation, action
        The vectors x and u.
    start_declared
        Moments of the first x.
    noise_covariance
        ``(n, n)``.
    parameter_norm
        Largest norm of [A, B]; None where not declared.
    cost
        Q and R.
    """

    dynamics: Literal["linear_quadratic"]
    markov: Literal["declared"]
    observation: DeclaredVector
    action: DeclaredVector
    start: Literal["declared"]
    start_declared: FirstState
    noise_covariance: Matrix
    parameter_norm: Number | None
    cost: Cost


def record_of(card: AnyCard) -> Path:
    """Where it stands how a simulated log was made.

    Parameters
    ----------
    card
        Of the log.
    """
    return card.folder / Path(card.source.files[0]).parent / RECORD


def declared(card: AnyCard, snapshot: int | None) -> DeclaredTables | DeclaredPlant:
    """What a card declares, as the page says it.

    Parameters
    ----------
    card
        Of either kind.
    snapshot
        Its number; None for a night of a counter.
    """
    unit = card.unit.model_dump(include={"user", "episodes_per_user", "users_public", "recurs"})
    alike = {"name": card.name, "kind": card.kind, **unit, "horizon": card.domain.horizon}
    return _tables(card, alike, snapshot) if isinstance(card, Card) else _plant(card, alike, snapshot)


def _plant(card: LqCard, alike: Dump, snapshot: int | None) -> DeclaredPlant:
    d, cost = card.domain, card.quadratic
    return DeclaredPlant(
        **alike,
        dynamics=d.dynamics,
        markov="declared",
        observation=vector_facts(d.observation),
        action=vector_facts(d.action),
        start="declared",
        start_declared=FirstState(mean=d.start.mean, second_moment=d.first_moment().tolist()),
        noise_covariance=d.noise().tolist(),
        parameter_norm=d.parameter_norm,
        cost=Cost(Q=cost.Q.tolist(), R=cost.R.tolist()),
        snapshot=snapshot,
    )


def vector_facts(v: Vector) -> DeclaredVector:
    """The declared names, scales and radius of a vector.

    Parameters
    ----------
    v
        Observation or control of a card.
    """
    return DeclaredVector(names=v.labels, scale=v.scales, radius=v.radius, **present(center=v.center))


def _tables(card: Card, alike: Dump, snapshot: int | None) -> DeclaredTables:
    d, r = card.domain, card.reward
    return DeclaredTables(
        **alike,
        live_states=d.live_states,
        ends=list(d.states.ends),
        actions=d.action_labels,
        vetoes=[(str(s), str(a)) for s, a in d.vetoes],
        dynamics=d.dynamics,
        markov=d.markov,
        start="released" if d.start == "released" else "declared",
        cell_cap=d.cell_cap,
        reward_kind=r.kind,
        reward_range=r.range,
        reward_unit=r.unit,
        reward_total=r.total,
        **present(
            start_declared=None if d.start == "released" else dict(d.start),
            reward_table=r.table,
            reward_on_entering=r.on_entering,
            state_features=None if d.states.features is None else list(d.states.features.columns),
            observation=None if d.observation is None else vector_facts(d.observation),
            first_observations=d.first_observations,
        ),
        snapshot=snapshot,
    )
