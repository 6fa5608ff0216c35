"""What a run promises and what it cost: ``guarantee``, ``mechanisms``, ``joint``, ``counter`` and ``ledger``."""

from __future__ import annotations

from typing import Literal

from reports.facts.part import Number, Part


class Guarantee(Part):
    """The promise of one release; losses are rounded up, None where there is no noise.

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
        The recipe's ``rho``, ``epsilon`` and ``delta``, as far as it names them.
    calibration
        ``tight``, or ``paper``: noise as printed there.
    sampler
        Program that drew the noise.
    data_kind
        Of the card.
    noise
        ``os``, ``seeded`` (a simulation, protects nobody) or ``none``.
    claim
        To whom the promise is made.
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


class Running(Part):
    """What makes a table a running sum of a counter; see :class:`pipeline.privacy.release.Running`.

    Parameters
    ----------
    cost
        Sum of squared weights of one night in all that is ever released.
    draws
        Noisy integers a cell over the counter's life.
    error
        Variance of one published integer in units of a row's variance.
    """

    cost: int
    draws: int
    error: Number


class Shuffled(Part):
    """What makes a table shuffled bits; see :class:`pipeline.privacy.release.ShuffledBits`.

    Parameters
    ----------
    users, honest
        Of the batch, and those who do add their coins.
    each, chance
        Coins a counter, of probability ``chance / 2^64``.
    changes, episodes
        Counters that a replaced episode moves by 1, and most episodes of one user.
    """

    users: int
    each: int
    chance: int
    changes: int
    honest: int
    episodes: int = 1


class MechanismFacts(Part):
    """One noisy table as the release describes it; exact fractions as text.

    Parameters
    ----------
    name
        Of the noise.
    table, shape, cells, unit
        What was released, and what one integer of it stands for.
    l2_squared, l1
        What one person may move; exact.
    sensitivity
        The one of the two that the noise is scaled to.
    sensitivity_rule
        Why that is so.
    variance, laplace_scale
        Parameter of the discrete Gaussian, or of the discrete Laplace.
    scale
        The same as a float: standard deviation, or the Laplace scale.
    rho, rho_exact, epsilon
        Loss; ``epsilon`` of a pure mechanism only.
    delta_slack
        What the sampler adds to delta, where that is not 0.
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
    shuffled: Shuffled | None = None


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
        What a bound on them together rests on; None where their costs add up.
    """

    tables: list[str]
    add_remove: list[int]
    joint: dict[str, int] | None


class PartJoint(Part):
    """What one part of the people is charged.

    Parameters
    ----------
    rho_exact, rho_add_remove
        Exact cost of replacing one person, and of one who joins or leaves.
    sums
        What is drawn of them.
    regressions
        What the cost of regressions rests on, whose scales follow answers.
    """

    rho_exact: str
    rho_add_remove: str
    sums: list[SumJoint]
    regressions: Joint | None = None


class Joint(Part):
    """What tables cost together where they were bounded jointly, and what that bound rests on.

    Parameters
    ----------
    rho_exact
        Exact rational; None where nothing is private.
    rule, variant
        How the bound was found, and for which kind of release.
    split, horizon, episodes, square, features_sha256, weights, tag, reward, steps, bounds
        The numbers it is computed from; see :mod:`pipeline.statistics.joint_loss`.
    stages, spread, version
        Of a one-step release: the sizes of both stages, and what else defines the question of the second.
    share, estimator, learn, evaluate
        Where people were held out: their declared share, how they evaluate, and what each part costs.
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
    """Where sums begin anew with every epoch of so many ``nights``; tables of ``opening`` are read when it begins."""

    nights: int
    opening: list[str]


class CounterFacts(Part):
    """Which counter, which night of it, and how noisy the sums of that night are.

    Parameters
    ----------
    kind
        Of the factorisation.
    key
        The counter's key in the ledger.
    night, nights, date, first, since
        Which night it is, of how many, its date, that of the first, and the first night that this draw covers.
    cost, error
        See :class:`Running`.
    drawn_sha256
        Digest of the rows that were drawn.
    share
        Of the people who are in no leaf, because they evaluate; absent where everybody is counted.
    epochs
        Absent where all sums run on.
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


class GateFacts(Part):
    """What was drawn before the release, and let it pass: how many people broke rules that the card tolerates.

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
