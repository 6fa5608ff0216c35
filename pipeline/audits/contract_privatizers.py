"""What every central count privatizer must do: :class:`~pipeline.statistics.private_sum.PrivateSum`.

The checks build a tiny domain, enumerate every person in it through the code that counts, and draw on seeded noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pipeline.audits.attack import Attack, Side, attacked
from pipeline.audits.contract_broken import promised
from pipeline.audits.laws import Gaussian
from pipeline.declaration.card import Card
from pipeline.logs.aggregate import count_person
from pipeline.privacy.noise import NoiseSource, RealDataError, SeededNoise
from pipeline.privacy.release import Release, total_rho
from pipeline.statistics.count_layout import Person
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.private_sum import PrivateSum

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Make = Callable[[Card], PrivateSum]

_COPIES = 2000
# of the sample variance of 2000 draws: 6.5 of its own deviations, 0.2
_OFF = 0.2


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


def tables_are_known_beforehand(make: Make) -> None:
    """Every mechanism names a table that is counted, with its shape, and says what it costs."""
    tables = _everybody()[0]
    for m in make(tiny_card()).mechanisms:
        promised(m.table in tables, f"mechanism {m.table} is no table of counts: {', '.join(tables)}")
        promised(m.shape == tables[m.table].shape, f"table {m.table} has shape {tables[m.table].shape}, not {m.shape}")
        promised(m.rho is not None, f"table {m.table} has no noise")


def no_person_moves_a_table_further_than_it_says(make: Make) -> None:
    """Largest L2 and L1 distance over every pair of people, the absent one included."""
    people = _everybody()
    for m in make(tiny_card()).mechanisms:
        rows = np.unique([p[m.table].ravel() for p in people], axis=0)
        squares = (rows * rows).sum(1)
        l2 = int((squares[:, None] + squares - 2 * rows @ rows.T).max())
        l1 = max(int(np.abs(rows - row).sum(1).max()) for row in rows)
        promised(l2 <= m.l2_squared, f"table {m.table}: one person moves it by {l2} squared; it says {m.l2_squared}")
        promised(l1 <= m.l1, f"table {m.table}: one person moves it by {l1} in L1; it says {m.l1}")


def every_cell_gets_the_noise_it_says(make: Make) -> None:
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


def noise_does_not_look_at_the_counts(make: Make) -> None:
    """From one seed, two people's releases differ by what the people differ by, and by nothing else."""
    privatizer, people = make(tiny_card()), _everybody()
    one, other = people[0], people[-1]
    for seed in range(5):
        a, b = (privatizer.draw(_counts(p), SeededNoise(seed)) for p in (one, other))
        for m in privatizer.mechanisms:
            same = np.array_equal(a.tables[m.table] - b.tables[m.table], one[m.table] - other[m.table])
            promised(same, f"table {m.table}: the noise depends on the counts")


def releases_are_integers_that_name_their_source(make: Make) -> None:
    """``int64`` tables under the declared mechanisms, the noise named by its source."""
    privatizer = make(tiny_card())
    release = privatizer.draw(_counts(_everybody()[0]), SeededNoise(0))
    promised(release.mechanisms == privatizer.mechanisms, "the release names other mechanisms than the privatizer")
    promised(release.noise == "seeded", f"drawn from seeded noise, the release says {release.noise!r}")
    wrong = [name for name, table in release.tables.items() if table.dtype != np.int64]
    promised(not wrong, f"tables {wrong} are not int64")


def seeded_noise_never_touches_real_people(make: Make) -> None:
    """Data registered as real is refused before anything is drawn."""
    card = tiny_card("real")
    counts = ExactSums(card.name, "real", card.domain.dynamics, dict(_everybody()[0]))
    try:
        make(card).draw(counts, SeededNoise(0))
    except RealDataError:
        return
    promised(False, "drew seeded noise for data registered as real")


def the_worst_pair_is_no_easier_to_tell_apart_than_it_says(make: Make) -> None:
    """The audit's attack on 4000 releases of the worst pair: the proved loss stays below the claim."""
    privatizer = make(tiny_card())
    claimed = total_rho(privatizer.mechanisms)
    if claimed is None:
        return
    names = [m.table for m in privatizer.mechanisms]
    variances = {m.table: m.standard_deviation**2 for m in privatizer.mechanisms}

    def loss(pair: tuple[Mapping[str, Integers], Mapping[str, Integers]]) -> float:
        return sum(float(((pair[0][t] - pair[1][t]) ** 2).sum()) / variances[t] for t in names)

    pair = max(itertools.combinations(_extreme(), 2), key=loss)

    def path(side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        releases = [privatizer.draw(_counts(pair[side]), noise) for _ in range(copies)]
        return [np.stack([r.tables[t] for r in releases]).astype(np.float64) for t in names]

    attack = Attack(
        mechanism="counts",
        trust="central",
        path=path,
        means=([pair[0][t].astype(np.float64) for t in names], [pair[1][t].astype(np.float64) for t in names]),
        law=Gaussian([np.full(pair[0][t].shape, variances[t]) for t in names]),
        claimed_rho=claimed,
    )
    verdict = attacked(attack, SeededNoise(2), draws=_COPIES)
    promised(
        not verdict.violates, f"told apart like rho = {verdict.lower_bound_rho:.3g}; it says {verdict.claimed_rho:.3g}"
    )


PRIVATIZER_CHECKS: tuple[Callable[[Make], None], ...] = (
    tables_are_known_beforehand,
    no_person_moves_a_table_further_than_it_says,
    every_cell_gets_the_noise_it_says,
    noise_does_not_look_at_the_counts,
    releases_are_integers_that_name_their_source,
    seeded_noise_never_touches_real_people,
    the_worst_pair_is_no_easier_to_tell_apart_than_it_says,
)


def _counts(tables: Mapping[str, Integers]) -> ExactSums:
    return ExactSums(tiny_card().name, "synthetic", tiny_card().domain.dynamics, dict(tables))


def _drawn(privatizer: PrivateSum, tables: Mapping[str, Integers], seed: int) -> list[Release]:
    noise, counts = SeededNoise(seed), _counts(tables)
    return [privatizer.draw(counts, noise) for _ in range(_COPIES)]


@cache
def _everybody() -> list[Mapping[str, Integers]]:
    """What each person of the tiny domain adds, and one who is not there."""
    people = [count_person(tiny_card(), person) for person in _people()]
    return [*people, {name: np.zeros_like(table) for name, table in people[0].items()}]


@cache
def _extreme() -> list[Mapping[str, Integers]]:
    """Of those the ones that walk two whole steps and are paid alike at both."""
    return [count_person(tiny_card(), p) for p in _people() if len(p[0]) == 2 and p[0][0][2] == p[0][1][2]]


def _people() -> Iterator[Person]:
    """Every episode of one or two steps."""
    steps = itertools.product((0, 1), (0, 1), (0.0, 1.0), (0, 1, 2))
    for first in steps:
        yield [[first]]
        if first[3] < 2:
            for a, r, s2 in itertools.product((0, 1), (0.0, 1.0), (0, 1, 2)):
                yield [[first, (first[3], a, r, s2)]]
