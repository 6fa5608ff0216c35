"""What an offline recipe asks of a learner: budget, planner and the section of its own, checked by pydantic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.declaration.card import AnyCard
from pipeline.declaration.lineage import Nightly
from pipeline.declaration.toml import CardError, Epsilon, Rho, Strict
from pipeline.learners.evaluation_terms import Earlier, Evaluate, Known
from pipeline.privacy.budget import check_delta, fraction_of
from pipeline.privacy.fast_noise import FastOsNoise
from pipeline.privacy.noise import NoiseSource, OsNoise
from pipeline.privacy.opendp_noise import OpenDpNoise
from pipeline.statistics.ask import Ask

Preset = Literal["paper", "tail", "practical"]
Part = Annotated[float, Field(gt=0, le=1)]


class Privacy(Strict):
    """Budget of one run: ``rho``, or ``epsilon`` with ``delta``, or ``epsilon`` alone (pure, Laplace).

    Parameters
    ----------
    rho
        zCDP.
    epsilon, delta
        Approximate where delta is given and positive.
    calibration
        ``tight``: scales from the true sensitivity; ``paper``: as printed, with the true cost recomputed.
    release
        Of counts: transitions alone, visits by summation; or ``two_tables``, as paper 003 has it.
    sampler
        Of counts, all exact: ``exact`` is ours, ``opendp`` that of OpenDP, slower; ``table`` draws as ``exact`` and
        still counts 2^-130 a draw in delta, as its releases are known by it.
    split
        Of counts: share of the budget by table; by sensitivity where it is left out.
    gate
        Share of the budget on the gate before a release of real people whose card has a [tolerance]; 0: no gate.
    """

    rho: Rho | None = None
    epsilon: Epsilon | None = None
    delta: Annotated[float, Field(ge=0, lt=1)] | None = None
    calibration: Literal["tight", "paper"] = "tight"
    release: Literal["one_table", "two_tables"] = "one_table"
    sampler: Literal["exact", "opendp", "table"] = "exact"
    split: dict[Literal["n_0", "n_sa", "n_sas", "r_sa"], Annotated[float, Field(gt=0, le=1)]] | None = None
    gate: Annotated[float, Field(ge=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if (self.rho is None) == (self.epsilon is None):
            raise ValueError("give exactly one of 'rho' and 'epsilon'")
        if self.rho is not None and self.delta is not None:
            raise ValueError("'delta' goes with 'epsilon'; a zCDP budget 'rho' has none")
        return self


class Planner(Strict):
    """Which constants make the policy, which its value bounds, and the seed that breaks ties.

    Parameters
    ----------
    constants, bounds
        Presets of :func:`pipeline.agents.pessimism.constants`, of the policy and of its interval; only ``paper`` has
        the theorem.
    penalty
        Form of the width.
    failure
        Probability that some width fails.
    seed
        Breaks ties; hides nothing.
    """

    constants: Preset = "practical"
    bounds: Preset = "tail"
    penalty: Literal["bernstein", "hoeffding"] = "bernstein"
    failure: Annotated[float, Field(gt=0, lt=1)] = 0.1
    seed: int = 0


class Linear(Strict):
    """How a linear agent asks and plans; with an adaptive one all of it is part of the release (privacy.md §0.1-4).

    Parameters
    ----------
    C, D, ridge
        The width is C √d ‖φ‖ + D / K in the inverse Gram matrix, to which ridge λ is added.
    shift
        What keeps a noisy Gram matrix positive: the ``edge`` of the noise's spectrum, or the ``paper``'s.
    targets
        Centred on the middle of the private values, or as the paper prints them.
    halves
        Of dp-vapvi: variances from one half of the people, the rest from the other.
    steps
        Lattice steps of the reward range.
    beta
        Of pevi: its multiplier; C √d where it is left out.
    """

    C: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    D: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    ridge: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.01
    shift: Literal["paper", "edge"] = "edge"
    targets: Literal["centred", "paper"] = "centred"
    halves: bool = False
    steps: Annotated[int, Field(ge=1, le=2**20)] = 1024
    beta: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class Lq(Strict):
    """How an LQ agent asks and plans: cut, gram_share and steps are part of the release, ridge and floor are free.

    Parameters
    ----------
    cut
        Lengths to which observations and next observations are shortened, in parts of the radius.
    gram_share
        Of the budget on sums of z z', z = (x, u); the rest goes to z x_next'.
    steps
        Lattice steps from the middle of a ball to its edge.
    ridge
        λ in sums of squares of (x, u), balls of radius 1.
    floor
        Multiple of the noise's spectral norm below which a direction is not trusted.
    """

    cut: Annotated[tuple[Part, Part], Field(strict=False)] = (0.5, 0.7)
    gram_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    steps: Annotated[int, Field(ge=1, le=2**20)] = 4096
    ridge: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    floor: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 3.0


class OneStep(Strict):
    """How a one-step agent asks and plans: rows, cap and share are part of the release, the rest is free.

    Parameters
    ----------
    rows
        Of one person, the first so many count; 3/5 of all that a person may have where it is left out.
    cap
        Of these, the first so many a state (stage 1), or a state and action (stage 2).
    value_share
        Of the budget on what practice is worth; the rest goes to what actions gain.
    pessimism
        Posterior standard deviations by which an action is marked down.
    support
        Standard deviations of noise that its rows must exceed.
    floor
        Least share of a state's rows that an action must have to be recommended.
    """

    rows: Annotated[int, Field(ge=1)] | None = None
    cap: Annotated[int, Field(ge=1)] = 1
    value_share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    pessimism: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5
    support: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 3.0
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.05


@dataclass(frozen=True)
class Terms:
    """The part of a recipe that decides what is drawn and learnt; which card it is for comes separately.

    Parameters
    ----------
    where
        Name of the recipe's file, for messages.
    agent
        The agent's name as the recipe writes it; it is part of an adaptive release's key.
    privacy
        The budget; None for an agent without noise.
    planner
        Constants and ties.
    linear, lq, one_step
        The section of such an agent; None where the recipe leaves it out, which means its defaults.
    evaluate
        Who measures what the policy is worth, and the known world of a synthetic log.
    nightly
        The counter of which each run is a leaf; None for a release of its own.
    taken
        What of the budget is spent before: in epsilon where it is pure, else in rho.
    earlier
        The run that people who evaluate are asked about as well.
    """

    where: str
    agent: str
    privacy: Privacy | None = None
    planner: Planner = field(default_factory=Planner)
    linear: Linear | None = None
    lq: Lq | None = None
    evaluate: Evaluate | None = None
    nightly: Nightly | None = None
    one_step: OneStep | None = None
    taken: Fraction = Fraction(0)
    earlier: Earlier | None = None

    @property
    def held_out(self) -> Fraction:
        """Share of the people who evaluate, exactly as it was typed; 0: nobody."""
        return Fraction(0) if self.evaluate is None else fraction_of(self.evaluate.people)

    @property
    def logged(self) -> bool:
        """Whether rows of those people are weighed by what they tell of practice themselves."""
        return self.evaluate is not None and self.evaluate.probabilities == "logged"

    @property
    def spread(self) -> int:
        """Ranges of values that a score may be from the middle, at least: by the least declared chance."""
        least = None if self.evaluate is None else self.evaluate.least
        return 1 if least is None else 2 ** math.ceil(math.log2(1 / least))

    @property
    def known(self) -> Known | None:
        """The world that made a synthetic log; None where none is named."""
        e = self.evaluate
        return None if e is None or e.world is None else Known(e.world, e.behaviour)

    def ask(self) -> Ask:
        """The budget as the calibration understands it; none at all for an agent without noise."""
        p = self.privacy
        if p is None:
            return Ask()
        split = None if p.split is None else {str(table): share for table, share in p.split.items()}
        counter = None if self.nightly is None else self.nightly.factorisation
        whole = Ask(p.rho, p.epsilon, p.delta, p.release, p.calibration, split, counter)
        return whole.less(self.taken) if self.taken else whole

    def ask_for(self, card: AnyCard) -> Ask:
        """The same budget, refused where its delta means nothing for so few people.

        Parameters
        ----------
        card
            Declares how many people there are, and whether they are real.

        Raises
        ------
        CardError
            If the people are real and delta exceeds 1 / (10 people).
        """
        ask = self.ask()
        if card.kind == "real" and ask.delta:
            try:
                check_delta("privacy.delta", ask.delta, card.unit.users_public)
            except ValueError as e:
                raise CardError(f"{self.where}: {e}") from None
        return ask

    def noise(self) -> NoiseSource:
        """The operating-system noise that the recipe names: all of them draw the same laws."""
        named: dict[str, type[NoiseSource]] = {"exact": OsNoise, "opendp": OpenDpNoise, "table": FastOsNoise}
        return named["exact" if self.privacy is None else self.privacy.sampler]()
