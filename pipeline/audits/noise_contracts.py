"""What every privatizer and every noise source must do, and how a broken contract is told.

A privatizer is a function from a card to a :class:`~pipeline.statistics.private_sum.PrivateSum`.  Its checks build a
tiny domain, enumerate every person in it through the code that counts, and draw on seeded noise.  A noise source is
given as a function without arguments that makes one: a :class:`~pipeline.privacy.noise.NoiseSource` draws the law that
it names.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pipeline.audits.attack import attack
from pipeline.audits.tables import counts_target
from pipeline.declaration.card import Card
from pipeline.logs.aggregate import count_person
from pipeline.privacy.noise import NoiseSource, RealDataError, SeededNoise, SimulatedWorld
from pipeline.privacy.release import Release, total_rho
from pipeline.statistics.count_layout import Person
from pipeline.statistics.layout import ExactSums, Tables
from pipeline.statistics.private_sum import PrivateSum

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Privatizer = Callable[[Card], PrivateSum]
Source = Callable[[], NoiseSource]

_COPIES = 2000
# of the sample variance of 2000 draws: 6.5 of its own deviations, 0.2
_OFF = 0.2
_NOWHERE = SimulatedWorld("contract")
_DRAWS = 20_000
# one false alarm in 10^8; a scale 10 % off is far beyond it at this many draws
_DOUBT = 1e-8
_LARGEST_SLACK = Fraction(1, 2**60)


Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Contract(Generic[Subject]):
    """What all subjects of one kind promise.

    Parameters
    ----------
    kind
        What they are, in a word.
    checks
        Each looks at one promise of a subject, and raises a :class:`BrokenContractError` that says what was found.
    """

    kind: str
    checks: list[Callable[[Subject], None]] = field(default_factory=list[Callable[[Subject], None]])

    def check(self, promise: Callable[[Subject], None]) -> Callable[[Subject], None]:
        """Add a check; a decorator."""
        self.checks.append(promise)
        return promise


PRIVATIZER, NOISE = Contract[Privatizer]("privatizer"), Contract[Source]("noise source")


class BrokenContractError(AssertionError):
    """A plug-in does not do what its protocol promises; the message says what, where and what was found."""


def promised(holds: bool, message: str) -> None:
    """Hold a subject to a promise.

    Raises
    ------
    BrokenContractError
        With the message, where it was not.
    """
    if not holds:
        raise BrokenContractError(message)


@cache
def tiny_card(kind: str = "synthetic") -> Card:
    """Two states and an end, two actions, two steps, rewards 0 or 1."""
    columns = {"user_id": "user_id", "episode_id": "episode_id", "step": "step", "reward": "reward"}
    return Card.model_validate(
        {
            "schema_version": 1,
            "name": "contract",
            "kind": kind,
            "unit": {"user": "user_id", "episodes_per_user": 1, "users_public": 100},
            "domain": {
                "horizon": 2,
                "states": {"column": "state", "labels": ["x", "y"], "ends": ["end"]},
                "actions": {"column": "action", "labels": ["a", "b"]},
            },
            "reward": {"range": [0.0, 1.0], "steps": 1},
            "source": {"files": ["log.csv"], "columns": columns},
            "budget": {"rho": 10.0, "ledger": "ledger.db" if kind == "real" else "home"},
        }
    )


@PRIVATIZER.check
def tables_are_known_beforehand(make: Privatizer) -> None:
    """Every mechanism names a table that is counted, with its shape, and says what it costs."""
    tables = _everybody()[0]
    for m in make(tiny_card()).mechanisms:
        promised(m.table in tables, f"mechanism {m.table} is no table of counts: {', '.join(tables)}")
        promised(m.shape == tables[m.table].shape, f"table {m.table} has shape {tables[m.table].shape}, not {m.shape}")
        promised(m.rho is not None, f"table {m.table} has no noise")


@PRIVATIZER.check
def no_person_moves_a_table_further_than_it_says(make: Privatizer) -> None:
    """Largest L2 and L1 distance over every pair of people, the absent one included."""
    people = _everybody()
    for m in make(tiny_card()).mechanisms:
        rows = np.unique([p[m.table].ravel() for p in people], axis=0)
        squares = (rows * rows).sum(1)
        l2 = int((squares[:, None] + squares - 2 * rows @ rows.T).max())
        l1 = max(int(np.abs(rows - row).sum(1).max()) for row in rows)
        promised(l2 <= m.l2_squared, f"table {m.table}: one person moves it by {l2} squared; it says {m.l2_squared}")
        promised(l1 <= m.l1, f"table {m.table}: one person moves it by {l1} in L1; it says {m.l1}")


@PRIVATIZER.check
def every_cell_gets_the_noise_it_says(make: Privatizer) -> None:
    """Never-visited cells too, on both sides: neither 30 % less nor 30 % more."""
    privatizer = make(tiny_card())
    drawn = _drawn(privatizer, _everybody()[0], 1)
    for m in privatizer.mechanisms:
        noise = np.stack([r.tables[m.table] for r in drawn]).astype(np.float64)
        claimed = m.standard_deviation**2
        silent = int((noise.std(0) == 0).sum())
        promised(not silent, f"table {m.table}: {silent} cells get no noise")
        found = float(noise.var())
        promised(
            abs(found / claimed - 1) < _OFF, f"table {m.table}: variance of the noise is {found:.4g}, not {claimed:.4g}"
        )


@PRIVATIZER.check
def noise_does_not_look_at_the_counts(make: Privatizer) -> None:
    """From one seed, two people's releases differ by what the people differ by, and by nothing else."""
    privatizer, people = make(tiny_card()), _everybody()
    one, other = people[0], people[-1]
    for seed in range(5):
        a, b = (privatizer.draw(_counts(p), SeededNoise(seed)) for p in (one, other))
        for m in privatizer.mechanisms:
            same = np.array_equal(a.tables[m.table] - b.tables[m.table], one[m.table] - other[m.table])
            promised(same, f"table {m.table}: the noise depends on the counts")


@PRIVATIZER.check
def releases_are_integers_that_name_their_source(make: Privatizer) -> None:
    """``int64`` tables under the declared mechanisms, the noise named by its source."""
    privatizer = make(tiny_card())
    release = privatizer.draw(_counts(_everybody()[0]), SeededNoise(0))
    promised(release.mechanisms == privatizer.mechanisms, "the release names other mechanisms than the privatizer")
    promised(release.noise == "seeded", f"drawn from seeded noise, the release says {release.noise!r}")
    wrong = [name for name, table in release.tables.items() if table.dtype != np.int64]
    promised(not wrong, f"tables {wrong} are not int64")


@PRIVATIZER.check
def seeded_noise_never_touches_real_people(make: Privatizer) -> None:
    """Data registered as real is refused before anything is drawn."""
    card = tiny_card("real")
    counts = ExactSums(card.name, "real", card.domain.dynamics, dict(_everybody()[0]))
    try:
        make(card).draw(counts, SeededNoise(0))
    except RealDataError:
        return
    promised(False, "drew seeded noise for data registered as real")


@PRIVATIZER.check
def the_worst_pair_is_no_easier_to_tell_apart_than_it_says(make: Privatizer) -> None:
    """The audit's attack on 4000 releases of the worst pair: the proved loss stays below the claim."""
    privatizer = make(tiny_card())
    if total_rho(privatizer.mechanisms) is None:
        return
    verdict = attack(counts_target(privatizer), SeededNoise(2), draws=_COPIES)
    promised(
        not verdict.violates, f"told apart like rho = {verdict.lower_bound_rho:.3g}; it says {verdict.claimed_rho:.3g}"
    )


@NOISE.check
def gaussian_draws_have_their_law(make: Source) -> None:
    """Chi-square of 20 000 draws at variances 2 and 30 against the discrete Gaussian."""
    for variance in (2, 30):
        drawn = make().gaussian(_DRAWS, variance, _NOWHERE)
        _law(drawn, f"gaussian, variance {variance}", lambda x, v=variance: np.exp(-(x**2) / (2 * v)))


@NOISE.check
def laplace_draws_have_their_law(make: Source) -> None:
    """The same of the discrete Laplace at scales 3/2 and 7."""
    for scale in (Fraction(3, 2), Fraction(7)):
        drawn = make().laplace(_DRAWS, scale, _NOWHERE)
        _law(drawn, f"laplace, scale {scale}", lambda x, b=float(scale): np.exp(-np.abs(x) / b))


@NOISE.check
def neighbouring_draws_do_not_follow_each_other(make: Source) -> None:
    """No correlation between one draw and the next, nor between two calls."""
    noise = make()
    one, other = (noise.gaussian(_DRAWS, 100, _NOWHERE).astype(np.float64) for _ in range(2))
    for name, x, y in (("draws", one[:-1], one[1:]), ("calls", one, other)):
        r = float(np.corrcoef(x, y)[0, 1])
        promised(abs(r) < 6.5 / np.sqrt(_DRAWS), f"neighbouring {name} correlate by {r:.3f}")


@NOISE.check
def what_can_be_repeated_refuses_real_people(make: Source) -> None:
    """A source that draws the same twice is known to whoever knows the seed."""
    one, other = (make().gaussian(64, 10**6, _NOWHERE) for _ in range(2))
    if not np.array_equal(one, other):
        return
    try:
        make().admit("real")
    except RealDataError:
        return
    promised(False, "draws the same numbers twice, and serves data registered as real")


@NOISE.check
def the_distance_from_the_law_is_small(make: Source) -> None:
    """``tv_bound`` is what a draw may be off; it is counted in delta, so it must be tiny."""
    bound = make().tv_bound(10**6)
    promised(0 <= bound <= _LARGEST_SLACK, f"tv_bound is {float(bound):.3g} a draw")


def _counts(tables: Tables) -> ExactSums:
    return ExactSums(tiny_card().name, "synthetic", tiny_card().domain.dynamics, dict(tables))


def _drawn(privatizer: PrivateSum, tables: Tables, seed: int) -> list[Release]:
    noise, counts = SeededNoise(seed), _counts(tables)
    return [privatizer.draw(counts, noise) for _ in range(_COPIES)]


@cache
def _everybody() -> list[Tables]:
    """What each person of the tiny domain adds, and one who is not there."""
    people = [count_person(tiny_card(), person) for person in _people()]
    return [*people, {name: np.zeros_like(table) for name, table in people[0].items()}]


def _people() -> Iterator[Person]:
    """Every episode of one or two steps."""
    steps = itertools.product((0, 1), (0, 1), (0.0, 1.0), (0, 1, 2))
    for first in steps:
        yield [[first]]
        if first[3] < 2:
            for a, r, s2 in itertools.product((0, 1), (0.0, 1.0), (0, 1, 2)):
                yield [[first, (first[3], a, r, s2)]]


def _law(drawn: NDArray[np.int64], name: str, weight: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> None:
    promised(drawn.shape == (_DRAWS,) and drawn.dtype == np.int64, f"{name}: {drawn.shape} of {drawn.dtype}, not int64")
    support = np.arange(-400, 401)
    mass = weight(support) / weight(support).sum()
    # tails are pooled so that every cell expects at least 20
    inner = support[mass * _DRAWS >= 20]
    low, high = int(inner[0]), int(inner[-1])
    seen = np.bincount(np.clip(drawn, low, high) - low, minlength=high - low + 1)
    expected = mass[(support >= low) & (support <= high)].copy()
    expected[0] += mass[support < low].sum()
    expected[-1] += mass[support > high].sum()
    p = float(stats.chisquare(seen, expected * _DRAWS).pvalue)
    promised(p > _DOUBT, f"{name}: not the law it names (p = {p:.1g}); spread {drawn.std():.3f}")
