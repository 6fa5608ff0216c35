"""Guarantee and cost of a run: ``guarantee``, ``mechanisms``, ``joint``, ``counter`` and ``ledger``.

The base of all parts of ``report.json``: closed, frozen, and dumped as they were given.

The ``dataset`` of report.json: the card's declarations about the data; nothing in it was counted.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline.declaration import domain, toml
from pipeline.declaration.card import AnyCard, Card, LqCard
from pipeline.privacy.release import Running, ShuffledBits

# an integer stays one: 40 is not written as 40.0
Number = Annotated[int | float, pydantic.WithJsonSchema({"type": "number"})]
Matrix = list[list[Number]]
# an object of JSON, as it is dumped for a file or for ``--json``; nothing reads it again
Dump = dict[str, Any]


def present(**parts: object) -> Dump:
    """The parts that are not None: a part that is None is absent from the dump, and not null."""
    return {name: part for name, part in parts.items() if part is not None}


class Part(pydantic.BaseModel):
    """An object of ``report.json``.

    A key that was not given is absent from the dump, not null; keys keep the order in which they were given.  So a file
    that was read is written again byte for byte.
    """

    # few of the many models are used: each builds its schema at first use
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, defer_build=True)

    _keys: tuple[str, ...] = pydantic.PrivateAttr(())

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _remember(cls, data: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        part = handler(data)
        if (keys := toml.table_in(data)) is not None:
            part._keys = tuple(keys)
        return part

    @pydantic.model_serializer(mode="wrap")
    def _as_given(self, handler: pydantic.SerializerFunctionWrapHandler) -> Dump:
        values = handler(self)
        return {key: values[key] for key in self._keys if key in values}

    def parts(self) -> Dump:
        """The given values by key, for another part that has the same keys."""
        return {key: getattr(self, key) for key in self._keys}


class Guarantee(Part):
    """The guarantee of one release; losses are rounded up, None where there is no noise.

    Parameters
    ----------
    sentence
        All of it in plain words.
    relation, unit, trust_model
        Which two logs look alike, whose rows differ between them, and who sees the raw rows.
    rho, epsilon, delta
        zCDP, and what follows from it at ``delta``; of a pure guarantee ``delta`` is 0.
    pure
        Whether ``epsilon`` holds with no ``delta``.
    asked
        The recipe's ``rho``, ``epsilon`` and ``delta``, where it names them.
    calibration
        ``tight``, or ``paper``: noise as printed there.
    sampler
        Program that drew the noise.
    data_kind
        Of the card.
    noise
        ``os``, ``seeded`` (a simulation, protects nobody) or ``none``.
    claim
        The people to whom the guarantee is given.
    protected
        The record that is protected where files name no people.
    """

    sentence: str
    relation: str
    unit: str
    trust_model: str
    rho: Number | None
    epsilon: Number | None
    delta: Number | None
    pure: bool
    asked: dict[str, Number]
    calibration: str
    sampler: str
    data_kind: Literal["synthetic", "real"]
    noise: Literal["os", "seeded", "none"]
    claim: str
    protected: str | None = None


class MechanismFacts(Part):
    """One noisy table as the release describes it; exact fractions as text.

    Parameters
    ----------
    name
        Of the noise.
    table, shape, cells, unit
        The released table, and the unit of its integers.
    l2_squared, l1
        Sensitivity to one person; exact.
    sensitivity
        The one of the two that the noise is scaled to.
    sensitivity_rule
        Its derivation, in words.
    variance, laplace_scale
        Parameter of the discrete Gaussian, or of the discrete Laplace.
    scale
        The same as a float: standard deviation, or the Laplace scale.
    rho, rho_exact, epsilon
        Loss; ``epsilon`` of a pure mechanism only.
    delta_slack
        The sampler's addition to delta, where it is not 0.
    running
        Where the table is a running sum over nights.
    shuffled
        Where it is the ones of a batch of shuffled messages.
    """

    name: str
    table: str
    shape: list[int]
    cells: int
    unit: str
    l2_squared: int
    l1: int
    sensitivity: Number
    sensitivity_rule: str
    variance: int | None
    laplace_scale: str | None
    scale: Number
    rho: Number | None
    rho_exact: str | None
    epsilon: Number | None
    delta_slack: str | None = None
    running: Running | None = None
    shuffled: ShuffledBits | None = None


class StageJoint(Part):
    """One stage of a one-step release.

    Parameters
    ----------
    rows, cap
        Rows of one person that count, and rows of one person in a key.
    keys
        How many keys there are.
    steps
        Lattice steps from 0 to the largest target.
    """

    rows: int
    cap: int
    keys: int
    steps: int


class SumJoint(Part):
    """One private sum of a part of the people.

    Parameters
    ----------
    tables
        Their names.
    add_remove
        Squared move of each where one person joins or leaves.
    joint
        Numbers behind a bound on them together; None where their costs add up.
    """

    tables: list[str]
    add_remove: list[int]
    joint: dict[str, int] | None


class PartJoint(Part):
    """Charge of one part of the people.

    Parameters
    ----------
    rho_exact, rho_add_remove
        Exact cost of replacing one person, and of one who joins or leaves.
    sums
        The sums that are drawn of them.
    regressions
        Grounds of the cost of regressions, whose scales follow answers.
    """

    rho_exact: str
    rho_add_remove: str
    sums: list[SumJoint]
    regressions: "Joint | None" = None


class Joint(Part):
    """Joint cost of tables that were bounded together, and the grounds of that bound.

    Parameters
    ----------
    rho_exact
        Exact rational; None where nothing is private.
    rule, variant
        How the bound was found, and for which kind of release.
    split, horizon, episodes, square, features_sha256, weights, tag, reward, steps, bounds
        The numbers it is computed from; see :mod:`pipeline.statistics.held_out`.
    stages, spread, version
        Of a one-step release: the sizes of both stages, and the rest of the definition of the second query.
    share, estimator, learn, evaluate
        Where people were held out: their declared share, the estimator, and the cost of each part.
    """

    rho_exact: str | None
    rule: str | None = None
    variant: str | None = None
    split: bool | None = None
    horizon: int | None = None
    episodes: int | None = None
    square: int | None = None
    features_sha256: str | None = None
    weights: dict[str, int] | None = None
    tag: int | None = None
    reward: int | None = None
    steps: int | None = None
    bounds: list[Number] | None = None
    stages: dict[str, StageJoint] | None = None
    spread: int | None = None
    version: int | None = None
    share: str | None = None
    estimator: str | None = None
    learn: PartJoint | None = None
    evaluate: PartJoint | None = None


class EpochFacts(Part):
    """Epochs of ``nights`` nights, with which sums begin anew; tables of ``opening`` are read when one begins."""

    nights: int
    opening: list[str]


class PlayFacts(Part):
    """The people who met a policy: ``id`` of the policy, ``share`` of the people."""

    id: str
    share: Number


class CounterFacts(Part):
    """A night of a counter, and the noise of its sums.

    Parameters
    ----------
    kind
        Of the factorisation.
    key
        The counter's key in the ledger.
    night, nights, date, first, since
        Which night it is, of how many, its date, that of the first, and the first night that this draw covers.
    cost, error
        See :class:`pipeline.privacy.release.Running`.
    drawn_sha256
        Digest of the rows that were drawn.
    share
        Of the held-out people, who are in no leaf; absent where all are counted.
    epochs
        Absent where all sums run on.
    window
        How many nights the sums are of, the last ones; absent: all so far.
    episodes
        ``closed``: they wait for their end; absent: they count as they are first delivered.
    play
        The people who met the policy in use, by its id and share; absent where arms are not compared, or no person
        met one.
    standard_deviation
        Of this night's sums, by table.
    times_one_release
        Their variance beside one release of the same sums at the same budget.
    """

    kind: str
    key: str
    night: int
    nights: int
    date: str
    first: str
    since: int
    cost: int
    error: Number
    drawn_sha256: str
    standard_deviation: dict[str, Number]
    times_one_release: Number
    share: str | None = None
    epochs: EpochFacts | None = None
    window: int | None = None
    episodes: str | None = None
    play: PlayFacts | None = None


class GateFacts(Part):
    """The gate before the release: noisy numbers of people who broke rules that the card tolerates.

    Parameters
    ----------
    mechanism
        Its counts, and their noise.
    entry, hash
        Its COMMIT in the ledger.
    """

    mechanism: MechanismFacts
    entry: int
    hash: str


class Declared(Part):
    """Declarations about the people of any dataset.

    Parameters
    ----------
    name
        The lineage in the ledger.
    kind
        Whether real people are in the log.
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


class SimulatedLog(Part):
    """Origin of a simulated log.

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
        Subtracted from it before; None: 0.
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
    practice
        ``recorded`` where the operator declares that the row's state and step alone decided every choice.
    start
        Whether the distribution of first states is released or declared.
    cell_cap
        With stationary dynamics: how often one person counts in one cell at most.
    reward_kind
        ``table`` or ``on_entering`` where the card declares the rewards.
    reward_range, reward_unit, reward_total
        Least and greatest reward, a step of the lattice, and the most that one person's rewards sum to.
    reward_called
        Name of the unit of rewards, where it is declared.
    reward_paid
        ``last`` where only the last row of an episode pays.
    discount
        Worth of a reward one step later, where the card declares one.
    start_declared
        Probability of each first state.
    reward_table
        ``(L, A)`` declared mean rewards, or one such table a step.
    reward_on_entering
        Reward of a step for the state that it leads to, 0 for a label that is not named.
    state_features
        Names of the declared public numbers of every live state.
    observation
        Numbers logged beside the state, for linear agents.
    first_observations
        Declared first observations of episodes, as logged.
    """

    live_states: list[str]
    ends: list[str]
    actions: list[str]
    vetoes: list[tuple[str, str]]
    dynamics: Literal["per_step", "stationary"]
    markov: Literal["declared", "aggregated"]
    practice: Literal["recorded"] | None = None
    start: Literal["released", "declared"]
    cell_cap: int | None
    reward_kind: str
    reward_range: tuple[Number, Number]
    reward_unit: Number
    reward_total: Number | None
    reward_called: str | None = None
    reward_paid: Literal["last"] | None = None
    discount: Number | None = None
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


class StepCost(Part):
    """Cost of a step: x'Qx + u'Ru, ``Q (n, n)`` and ``R (d, d)``."""

    Q: Matrix
    R: Matrix


class DeclaredPlant(Declared):
    """A linear plant with quadratic costs, next x = A x + B u + noise; A and B are not declared.

    Parameters
    ----------
    dynamics
        Distinguishes a plant from tables.
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
    cost: StepCost


def record_of(card: AnyCard) -> Path:
    """Path of the file with the origin of a simulated log."""
    return card.folder / Path(card.source.files[0]).parent / RECORD


def declared(card: AnyCard, snapshot: int | None) -> DeclaredTables | DeclaredPlant:
    """Declarations of a card, for the page; ``snapshot`` is None for a night of a counter."""
    unit = card.unit.model_dump(include={"user", "episodes_per_user", "users_public", "recurs"})
    shared = {"name": card.name, "kind": card.kind, **unit, "horizon": card.domain.horizon}
    return _tables(card, shared, snapshot) if isinstance(card, Card) else _plant(card, shared, snapshot)


def _plant(card: LqCard, shared: Dump, snapshot: int | None) -> DeclaredPlant:
    d, cost = card.domain, card.quadratic
    return DeclaredPlant(
        **shared,
        dynamics=d.dynamics,
        markov="declared",
        observation=vector_facts(d.observation),
        action=vector_facts(d.action),
        start="declared",
        start_declared=FirstState(mean=d.start.mean, second_moment=d.first_moment().tolist()),
        noise_covariance=d.noise().tolist(),
        parameter_norm=d.parameter_norm,
        cost=StepCost(Q=cost.Q.tolist(), R=cost.R.tolist()),
        snapshot=snapshot,
    )


def vector_facts(v: domain.Vector) -> DeclaredVector:
    """The declared names, scales and radius of an observation or control."""
    return DeclaredVector(names=v.labels, scale=v.scales, radius=v.radius, **present(center=v.center))


def _tables(card: Card, shared: Dump, snapshot: int | None) -> DeclaredTables:
    d, r = card.domain, card.reward
    return DeclaredTables(
        **shared,
        live_states=d.live_states,
        ends=list(d.states.ends),
        actions=d.action_labels,
        vetoes=[(str(s), str(a)) for s, a in d.vetoes],
        dynamics=d.dynamics,
        markov=d.markov,
        **present(practice=d.practice),
        start="released" if d.start == "released" else "declared",
        cell_cap=d.cell_cap,
        reward_kind=r.kind,
        reward_range=r.range,
        reward_unit=r.unit,
        reward_total=r.total,
        **present(
            reward_called=r.called,
            reward_paid=None if r.paid == "each" else r.paid,
            discount=None if d.discount == 1 else d.discount,
            start_declared=None if d.start == "released" else dict(d.start),
            reward_table=r.table,
            reward_on_entering=r.on_entering,
            state_features=None if d.states.features is None else list(d.states.features.columns),
            observation=None if d.observation is None else vector_facts(d.observation),
            first_observations=d.first_observations,
        ),
        snapshot=snapshot,
    )
