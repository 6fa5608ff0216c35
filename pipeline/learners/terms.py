"""Terms of an offline recipe: budget, planner and the learner's own section, checked by pydantic.

:func:`recipe_identity` decides whether two recipes are the same.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline.declaration.card import AnyCard, Card
from pipeline.declaration.code import is_plugin, plugin_digest
from pipeline.declaration.lineage import Nightly
from pipeline.declaration.numbers import number
from pipeline.declaration.toml import CardError, Epsilon, Rho, Strict
from pipeline.facts.evaluation import GATE, MOST_PEOPLE_ROOT_RHO
from pipeline.ledger.chain import canonical_hash
from pipeline.privacy.budget import check_delta, fraction_of
from pipeline.privacy.noise import FastOsNoise, NoiseSource, OpenDpNoise, OsNoise
from pipeline.statistics.ask import Ask

Preset = Literal["paper", "tail", "practical"]
Part = Annotated[float, Field(gt=0, le=1)]


class Privacy(Strict):
    """Budget of one run: ``rho``, or ``epsilon`` with ``delta``, or ``epsilon`` alone (pure, Laplace).

    ``release``: of counts: transitions alone, visits by summation; or ``two_tables``, as paper 003 has it.
    ``sampler``: of counts, all exact: ``exact`` is ours, ``opendp`` that of OpenDP, slower; ``table`` draws as
    ``exact`` and still counts 2^-130 a draw in delta, as its releases are known by it.
    ``split``: of counts: share of the budget by table; by sensitivity where it is left out.
    ``gate``: share of the budget on the gate before a release of real people whose card has a [tolerance]; 0: no gate.
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
    """Constants of the policy and of its value bounds, and the seed that breaks ties.

    ``constants``, ``bounds``: presets of :func:`pipeline.agents.pessimism.constants`, of the policy and of its
    interval; only ``paper`` has the theorem.
    """

    constants: Preset = "practical"
    bounds: Preset = "tail"
    penalty: Literal["bernstein", "hoeffding"] = "bernstein"
    failure: Annotated[float, Field(gt=0, lt=1)] = 0.1
    seed: int = 0


class Linear(Strict):
    """Queries and planning of a linear agent; all of it is part of an adaptive release (privacy.md §0.1-4).

    ``shift``: keeps a noisy Gram matrix positive: the ``edge`` of the noise's spectrum, or the ``paper``'s.
    ``halves``: of dp-vapvi: variances from one half of the people, the rest from the other.
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
    """Queries and planning of an LQ agent: cut, gram_share and steps are part of the release, ridge and floor are free.

    ``cut``: lengths to which observations and next observations are shortened, in parts of the radius.
    ``ridge``: λ in sums of squares of (x, u), balls of radius 1.
    """

    cut: Annotated[tuple[Part, Part], Field(strict=False)] = (0.5, 0.7)
    gram_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    steps: Annotated[int, Field(ge=1, le=2**20)] = 4096
    ridge: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    floor: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 3.0


class OneStep(Strict):
    """Queries and planning of a one-step agent: rows, cap and share are part of the release, the rest is free.

    ``rows``: of one person, the first so many count; 3/5 of all that a person may have where it is left out.
    ``cap``: of these, the first so many a state (stage 1), or a state and action (stage 2).
    ``support``: standard deviations of noise that its rows must exceed.
    ``floor``: least share of a state's rows that an action must have to be recommended.
    """

    # defaults where groups of states are queried: less noise is left, and few single cells exceed it
    of_groups: ClassVar = {"pessimism": 1.0, "support": 1.0, "floor": 0.1}
    rows: Annotated[int, Field(ge=1)] | None = None
    cap: Annotated[int, Field(ge=1)] = 1
    value_share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    pessimism: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5
    support: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 3.0
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.05

    def by_groups(self) -> OneStep:
        """The settings where groups of states are queried."""
        left_out = {k: v for k, v in self.of_groups.items() if k not in self.model_fields_set}
        return self.model_copy(update=left_out)


# least share of held-out people: less of all people there are is nobody
_ONE_IN_A_MILLION = 1e-6


class Evaluate(Strict):
    """Evaluation of a policy: on held-out people, and exactly where a log's world is known.

    ``people``: share of the people held out for the evaluation; 0: none, and nothing is measured.  ``auto``: computed
    from declared people and budget, see :func:`share_for`.
    ``since``, ``users_since``: held-out people are only those who first came in after this edition, and their declared
    number; None: all.
    ``world``, ``behaviour``: of a synthetic log, names of the world and of its policy that made it; None: unknown.
    ``least``: declared lower bound of logged probabilities: rows at or above it are weighed in full.  None: taken from
    the release.
    """

    later: ClassVar = {"people": 0.0, "probabilities": "released", "least": None, "since": None, "users_since": None}
    gone: ClassVar = {
        "against": "a policy is compared with current practice; `reticent compare-runs` lays two runs side by side",
        "dates": "`[schedule] release` draws a release with a verdict of its own on each of its dates",
    }
    people: float | Literal["auto"] = 0.0
    since: Annotated[int, Field(ge=1)] | None = None
    users_since: Annotated[int, Field(ge=1, le=10**12)] | None = None
    world: str | None = None
    behaviour: str = "uniform"
    probabilities: Literal["released", "logged"] = "released"
    least: Annotated[float, Field(ge=1 / 64, le=1)] | None = None

    @field_validator("people", mode="before")
    @classmethod
    def _share(cls, people: object) -> object:
        share = people if isinstance(people, int | float) and not isinstance(people, bool) else math.nan
        if people != "auto" and share != 0 and not _ONE_IN_A_MILLION <= share < 1:
            raise ValueError(
                f"a share of the people from 0.000001 to below 1, 0 for nobody, or 'auto'; found {people!r:.60}"
            )
        return people

    @model_validator(mode="after")
    def _of_whom(self) -> Self:
        if (self.since is None) != (self.users_since is None):
            raise ValueError("'since' goes with 'users_since', how many people came in after that edition")
        if self.since is not None and not self.people:
            raise ValueError("'since' says which of the 'people' judge; give these, or drop it")
        return self


# of the held-out people: least and most share, and their wanted number times the root of rho
_LEAST_SHARE, _MOST_SHARE, _PEOPLE_ROOT_RHO = 0.3, 0.5, 5000.0


def share_for(people: int, rho: Fraction | None) -> float:
    """Share of held-out people: half where people are few beside the noise, three in ten where they are many.

    Fewer where so many would be more than coverage was measured for.

    ``people``: declared.
    ``rho``: budget; None without noise.
    """
    people_root_rho = math.inf if rho is None else people * math.sqrt(rho)
    usual = round(min(max(_LEAST_SHARE, _PEOPLE_ROOT_RHO / people_root_rho), _MOST_SHARE), 2)
    most = 1.0 if rho is None else MOST_PEOPLE_ROOT_RHO / (people * math.sqrt(min(rho, 1)))
    return usual if usual <= most else float(number(most, 2, "down"))


@dataclass(frozen=True)
class Known:
    """A known world, and the name of its policy that made the log."""

    world: str
    behaviour: str


@dataclass(frozen=True)
class Terms:
    """The part of a recipe that decides what is drawn and learnt; the card comes separately.

    ``privacy``: the budget; None for an agent without noise.
    ``linear``, ``lq``, ``one_step``: the section of such an agent; None where the recipe leaves it out, which means its
    defaults.
    ``nightly``: the counter of which each run is a leaf; None for a single release.
    ``taken``: part of the budget that the gate takes.
    ``reserve``: share of the people who never teach, as in the ledger (:mod:`pipeline.ledger.account`).
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
    reserve: Fraction = Fraction(0)

    @property
    def held_out(self) -> Fraction:
        """Share of held-out people, exactly as it was typed; 0: none.

        Raises ValueError if it is still to be computed, see :meth:`settled`.
        """
        if self.evaluate is None:
            return Fraction(0)
        if self.evaluate.people == "auto":
            raise ValueError("[evaluate] people = 'auto' is a number once the card is known")
        return fraction_of(self.evaluate.people)

    def settled(self, card: AnyCard) -> Terms:
        """The same terms with ``people = "auto"`` replaced by its share."""
        e = self.evaluate
        if e is None or e.people != "auto":
            return self
        share = share_for(card.unit.users_public, self.ask().zcdp())
        return replace(self, evaluate=e.model_copy(update={"people": share}))

    @property
    def teaching(self) -> Fraction:
        """Share of the people who teach, exactly: neither reserved nor held out."""
        return 1 - max(self.held_out, self.reserve)

    def judging(self, card: AnyCard) -> Fraction:
        """Held-out people as a share of all declared people: of those since an edition, where the recipe names one."""
        e = self.evaluate
        if e is None or e.users_since is None:
            return self.held_out
        return self.held_out * Fraction(e.users_since, card.unit.users_public)

    def teachers(self, card: AnyCard) -> float:
        """Declared people who teach."""
        return card.unit.users_public * float(self.teaching)

    @property
    def logged(self) -> bool:
        """True where rows of held-out people are weighed by logged probabilities."""
        return self.evaluate is not None and self.evaluate.probabilities == "logged"

    @property
    def spread(self) -> int:
        """Ranges of values that a score may be from the middle, at least: by the least declared probability."""
        least = None if self.evaluate is None else self.evaluate.least
        return 1 if least is None else 2 ** math.ceil(math.log2(1 / least))

    @property
    def known(self) -> Known | None:
        """The world that made a synthetic log; None where none is named."""
        e = self.evaluate
        return None if e is None or e.world is None else Known(e.world, e.behaviour)

    def ask(self) -> Ask:
        """The budget as the calibration takes it; empty for an agent without noise."""
        p = self.privacy
        if p is None:
            return Ask()
        split = None if p.split is None else {str(table): share for table, share in p.split.items()}
        counter = None if self.nightly is None else self.nightly.factorisation
        budget = Ask(p.rho, p.epsilon, p.delta, p.release, p.calibration, split, counter)
        return budget.less(self.taken) if self.taken else budget

    @property
    def gate(self) -> Fraction:
        """Share of the budget that a gate takes, where there is one."""
        p = self.privacy
        return GATE if p is None or p.gate is None else fraction_of(p.gate)

    @property
    def drift(self) -> Fraction:
        """Part of the budget that releases each night's mean reward, as an exact zCDP rho; 0: none."""
        if self.nightly is None or self.nightly.drift is None:
            return Fraction(0)
        return fraction_of(self.nightly.drift) * (self.ask().zcdp() or Fraction(0))

    def ask_for(self, card: AnyCard) -> Ask:
        """The same budget, refused where its delta means nothing for so few people.

        Raises CardError if the people are real and delta exceeds 1 / (10 people).
        """
        ask = self.ask()
        if card.kind == "real" and ask.delta:
            try:
                check_delta("privacy.delta", ask.delta, card.unit.users_public)
            except ValueError as e:
                raise CardError(f"{self.where}: {e}") from None
        return ask

    def noise(self) -> NoiseSource:
        """The operating-system sampler that the recipe names: all of them draw the same laws."""
        sampler = "exact" if self.privacy is None else self.privacy.sampler
        if sampler == "opendp":
            return OpenDpNoise()
        return FastOsNoise() if sampler == "table" else OsNoise()


def check_gaussian(agent: str, p: Privacy | None) -> None:
    """Refuse settings that only count tables have.

    ``p``: the budget; None of an agent without noise.
    Raises ValueError if the budget is pure, or splits or samples as only count tables do.
    """
    if p is not None and p.rho is None and not p.delta:
        raise ValueError(f"[privacy]: {agent} draws Gaussian noise: give 'rho', or 'epsilon' with 'delta'")
    if p is not None and (p.split is not None or p.sampler == "table"):
        raise ValueError("[privacy]: 'split' and sampler = 'table' belong to count tables")


# packages whose code makes a policy of rows; their text is digested
_POLICY_CODE = ("agents", "learners", "mdp", "statistics")
_ROOT = Path(__file__).resolve().parents[1]
# fields of a card that name its files, budget and gate, and do not shape a policy
_NO_PART = {**dict.fromkeys(("schema_version", "name", "budget", "provenance", "tolerance"), True), "source": {"files"}}
# options that may differ between equal recipes; with a plug-in agent, the dates alone
_DATES = frozenset({"first", "dates"})
_MAY_DIFFER = _DATES | {"rho", "epsilon", "delta", "seed", "people", "world", "behaviour", "since", "users_since"}


def recipe_identity(card: AnyCard, terms: Terms) -> str:
    """Hex digest of all of a recipe that may shape a policy, and could have been chosen after an earlier answer.

    Edition, date, budget, share, the seed of ties and names may differ: none of them can carry an earlier answer.  All
    else can: agent and options, the declared domain, vetoes and features, how columns are read, and code.  With a
    plug-in agent only edition and date may differ: its code may depend on a budget, a share or a seed.
    """
    is_own_code, reader = is_plugin(terms.agent), card.source.format
    may_differ, agent_name = (_DATES, terms.agent.rpartition(":")[2]) if is_own_code else (_MAY_DIFFER, terms.agent)

    def options(section: Strict | None) -> dict[str, object]:
        fields = {} if section is None else section.model_dump(mode="json", exclude_defaults=True)
        return {k: v for k, v in fields.items() if k not in may_differ}

    sections = (terms.privacy, terms.planner, terms.linear, terms.lq, terms.one_step, terms.evaluate, terms.nightly)
    # budget and share decide whether groups are queried, and may differ: the settings of groups are digested as well
    pooling = isinstance(card, Card) and card.domain.dynamics == "stationary"
    by_groups = (terms.one_step or OneStep()).by_groups().model_dump(mode="json") if pooling else {}
    declared = card.model_dump(mode="json", exclude=_NO_PART, exclude_defaults=True)
    code = [plugin_digest(name) if is_plugin(name) else "" for name in (terms.agent, reader)]
    parts = [agent_name, [options(s) for s in sections], by_groups, declared, _code_digest(), code]
    return canonical_hash(parts)


@cache
def _code_digest() -> str:
    """Hex digest of all code that makes a policy of rows."""
    digest = hashlib.sha256()
    for folder in _POLICY_CODE:
        for path in sorted((_ROOT / folder).glob("*.py")):
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
