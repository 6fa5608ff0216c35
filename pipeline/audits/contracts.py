"""Contracts: checks that all shipped parts pass, and that plug-ins can be put to (docs/extend.md).

==================  ==============================================  ====================================================
contract            a subject                                       its checks stand
==================  ==============================================  ====================================================
:data:`WORLD`       a :class:`~pipeline.worlds.world.World`   here: a world is a process, and its logs are of it
:data:`AGENT`       a :class:`Player`                               here: short trials in RiverSwim, or its own world
:data:`PRIVATIZER`  a function from a card to a private sum         below
:data:`NOISE`       a function that makes a noise source            below
:data:`READER`      a :class:`LogReader`                            below
==================  ==============================================  ====================================================

A check proves only its own promise.  Each catches a twin made to break it: a test compares :data:`CONTRACTS` with the
twins of ``tests/audits/test_contracts_twins.py``.

A privatizer is a function from a card to a :class:`~pipeline.statistics.private_sum.PrivateSum`.  Its checks build a
tiny domain, enumerate every person in it through the code that counts, and draw on seeded noise.  A noise source is
given as a function without arguments that makes one: a :class:`~pipeline.privacy.noise.NoiseSource` draws the law that
it names.

A log reader keeps the rows of all other people as they are, whatever one person's record holds.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
import itertools
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from scipy import stats

from pipeline.arrays import Array, Integers
from pipeline.audits.attack import attack
from pipeline.audits.tables import counts_target
from pipeline.declaration.card import Card
from pipeline.declaration.toml import CardError
from pipeline.logs.aggregate import count_person
from pipeline.logs.readers.batch import RECORD_BYTES, Batch, Request
from pipeline.logs.sources import Reader
from pipeline.mdp.planning import optimum, policy_value
from pipeline.mdp.policy import Policy
from pipeline.online.registry import find, plain_values, run
from pipeline.online.rollouts import world_of
from pipeline.online.trial import Outcome, Plain, Trial
from pipeline.privacy.noise import NoiseSource, RealDataError, SeededNoise, SimulatedWorld
from pipeline.privacy.release import total_rho
from pipeline.statistics.count_layout import Person
from pipeline.statistics.layout import ExactSums, Tables
from pipeline.statistics.private_sum import PrivateSum
from pipeline.worlds.simulated_logs import sample_log
from pipeline.worlds.synthetic import checked, world_card
from pipeline.worlds.world import World, declared_actions, declared_states

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
    """The promises of all subjects of one kind.

    Parameters
    ----------
    kind
        Name of the kind.
    checks
        Each checks one promise of a subject, and raises a :class:`BrokenContractError` where it is broken.
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
        With the message, where it does not hold.
    """
    if not holds:
        raise BrokenContractError(message)


def refused(error: type[Exception], act: Callable[[], object], message: str) -> None:
    """Hold a subject to the promise that it raises an error; BrokenContractError with the message where it does not."""
    try:
        act()
    except error:
        return
    promised(False, message)


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
    """Every mechanism names a table that is counted, with its shape, and its cost."""
    tables = _all_people()[0]
    for m in make(tiny_card()).mechanisms:
        promised(m.table in tables, f"mechanism {m.table} is no table of counts: {', '.join(tables)}")
        promised(m.shape == tables[m.table].shape, f"table {m.table} has shape {tables[m.table].shape}, not {m.shape}")
        promised(m.rho is not None, f"table {m.table} has no noise")


@PRIVATIZER.check
def no_person_moves_a_table_further_than_it_says(make: Privatizer) -> None:
    """Largest L2 and L1 distance over every pair of people, the absent one included."""
    people = _all_people()
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
    privatizer, noise, counts = make(tiny_card()), SeededNoise(1), _counts(_all_people()[0])
    drawn = [privatizer.draw(counts, noise) for _ in range(_COPIES)]
    for m in privatizer.mechanisms:
        tables = np.stack([r.tables[m.table] for r in drawn]).astype(np.float64)
        claimed, variance = m.standard_deviation**2, float(tables.var())
        silent = int((tables.std(0) == 0).sum())
        promised(not silent, f"table {m.table}: {silent} cells get no noise")
        promised(
            abs(variance / claimed - 1) < _OFF,
            f"table {m.table}: variance of the noise is {variance:.4g}, not {claimed:.4g}",
        )


@PRIVATIZER.check
def noise_does_not_look_at_the_counts(make: Privatizer) -> None:
    """From one seed, two people's releases differ exactly by the difference of the people's counts."""
    privatizer, people = make(tiny_card()), _all_people()
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
    release = privatizer.draw(_counts(_all_people()[0]), SeededNoise(0))
    promised(release.mechanisms == privatizer.mechanisms, "the release names other mechanisms than the privatizer")
    promised(release.noise == "seeded", f"drawn from seeded noise, the release says {release.noise!r}")
    wrong = [name for name, table in release.tables.items() if table.dtype != np.int64]
    promised(not wrong, f"tables {wrong} are not int64")


@PRIVATIZER.check
def seeded_noise_never_touches_real_people(make: Privatizer) -> None:
    """Data registered as real is refused before anything is drawn."""
    card = tiny_card("real")
    counts = ExactSums(card.name, "real", card.domain.dynamics, dict(_all_people()[0]))
    broken = "drew seeded noise for data registered as real"
    refused(RealDataError, lambda: make(card).draw(counts, SeededNoise(0)), broken)


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
        _check_law(drawn, f"gaussian, variance {variance}", lambda x, v=variance: np.exp(-(x**2) / (2 * v)))


@NOISE.check
def laplace_draws_have_their_law(make: Source) -> None:
    """The same of the discrete Laplace at scales 3/2 and 7."""
    for scale in (Fraction(3, 2), Fraction(7)):
        drawn = make().laplace(_DRAWS, scale, _NOWHERE)
        _check_law(drawn, f"laplace, scale {scale}", lambda x, b=float(scale): np.exp(-np.abs(x) / b))


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
    """A source that draws the same numbers twice serves no real data: whoever knows the seed knows its noise."""
    one, other = (make().gaussian(64, 10**6, _NOWHERE) for _ in range(2))
    if not np.array_equal(one, other):
        return
    broken = "draws the same numbers twice, and serves data registered as real"
    refused(RealDataError, lambda: make().admit("real"), broken)


@NOISE.check
def the_distance_from_the_law_is_small(make: Source) -> None:
    """``tv_bound``, the total variation of a draw from its law, is counted in delta, so it must be tiny."""
    bound = make().tv_bound(10**6)
    promised(0 <= bound <= _LARGEST_SLACK, f"tv_bound is {float(bound):.3g} a draw")


def _counts(tables: Tables) -> ExactSums:
    return ExactSums(tiny_card().name, "synthetic", tiny_card().domain.dynamics, dict(tables))


@cache
def _all_people() -> list[Tables]:
    """Tables of each person of the tiny domain, and of an absent one."""
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


def _check_law(drawn: Integers, name: str, weight: Callable[[Integers], Array]) -> None:
    promised(drawn.shape == (_DRAWS,) and drawn.dtype == np.int64, f"{name}: {drawn.shape} of {drawn.dtype}, not int64")
    support = np.arange(-400, 401)
    mass = weight(support) / weight(support).sum()
    # tails are pooled so that every cell expects at least 20
    inner = support[mass * _DRAWS >= 20]
    low, high = int(inner[0]), int(inner[-1])
    counts = np.bincount(np.clip(drawn, low, high) - low, minlength=high - low + 1)
    expected = mass[(support >= low) & (support <= high)].copy()
    expected[0] += mass[support < low].sum()
    expected[-1] += mass[support > high].sum()
    p = float(stats.chisquare(counts, expected * _DRAWS).pvalue)
    promised(p > _DOUBT, f"{name}: not the law it names (p = {p:.1g}); spread {drawn.std():.3f}")


_DAMAGES = (
    b"", b" ", b"\xff", b"\0", b'"', b"'", b",", b";", b"|", b"\t", b"\r", b"\\", b"{", b"[" * 1000, b"\xed\xa0\x80",
    b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"nan", b"1e999", b"9" * 400, b"x" * (RECORD_BYTES + 1),
)  # fmt: skip


@dataclass(frozen=True)
class LogReader:
    r"""A reader, and a good log to test it with.

    Parameters
    ----------
    reader
        As a card's ``source.format`` names it.
    suffix
        Of the file that is written, dot included.
    records
        Person and bytes of each record in the file; of three people at least.
    write
        Records -> the bytes of a file.  Lines: ``lambda records: b"\n".join(records)``.
    columns
        To be read; the first holds the user ids.
    """

    reader: Reader
    suffix: str
    records: Sequence[tuple[str, bytes]]
    write: Callable[[Sequence[bytes]], bytes]
    columns: Sequence[str]

    def batches(self, records: Sequence[bytes]) -> list[Batch]:
        """Batches that the reader makes of a file of these records."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"log{self.suffix}"
            path.write_bytes(self.write(records))
            request = Request(list(self.columns))
            if self.reader.types is not None:
                self.reader.types(path, request)
            return list(self.reader.read(path, request))

    def rows(self, records: Sequence[bytes]) -> dict[str, list[tuple[Any, ...]]]:
        """Rows of each user, in their order."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for batch in self.batches(records):
            for row in batch.frame.rows():
                rows.setdefault(str(row[0]), []).append(row)
        return rows


READER = Contract[LogReader]("log reader")


@READER.check
def everybody_is_read(log: LogReader) -> None:
    """Of a good log no record is set aside, and the columns are those requested."""
    batches = log.batches([record for _, record in log.records])
    promised(all(len(batch.malformed) == 0 for batch in batches), "records of a good log are set aside")
    wrong = [batch.frame.columns for batch in batches if batch.frame.columns != list(log.columns)]
    promised(not wrong, f"the columns are {wrong[:1]}, asked was {list(log.columns)}")
    read, people = set(log.rows([record for _, record in log.records])), {user for user, _ in log.records}
    promised(read == people, f"{len(read)} people are read, the log holds {len(people)}")


@READER.check
def nobodys_bytes_move_another(log: LogReader) -> None:
    """Where one record is cut, no text, longer than a record may be, or gone, all others stay."""
    records = [record for _, record in log.records]
    good = log.rows(records)
    for i, (user, record) in enumerate(log.records):
        for change, altered in _twins(record):
            try:
                rows = log.rows([*records[:i], *altered, *records[i + 1 :]])
            except Exception as e:  # whatever it raises, all others are gone
                promised(False, f"record {i + 1} {change}: the file is refused ({type(e).__name__})")
                continue
            changed = [who for who, expected in good.items() if who != user and rows.get(who) != expected]
            promised(not changed, f"record {i + 1} {change}: rows of {len(changed)} others change")


def _twins(record: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Altered forms of a record, each with its description; none has a newline, which would make two of it."""
    yield "is gone", []
    yield "stands there twice", [record, record]
    for share in (1, 2, 3):
        yield f"is cut at {share}/4", [record[: len(record) * share // 4]]
    for damage in _DAMAGES:
        yield f"ends in {damage[:8]!r}", [record + damage]
        yield f"holds {damage[:8]!r} in its middle", [record[: len(record) // 2] + damage + record[len(record) // 2 :]]


# imported by the tests of a plug-in (docs/extend.md)
__all__ = ["AGENT", "CONTRACTS", "NOISE", "PRIVATIZER", "READER", "WORLD", "BrokenContractError", "LogReader", "Player"]

WORLD = Contract[World]("world")
_TRUSTS = ("none", "joint", "local", "shuffle", "central")
_ROUNDING = 1e-9
# a frequency this many standard deviations off is a defect, not luck: one false alarm in 10^9
_SIGMAS = 6.5
_EPISODES = 4000


@WORLD.check
def transitions_are_distributions(world: World) -> None:
    """Every row of ``transition`` and ``start`` is a distribution."""
    for name, table in (("transition", world.transition), ("start", world.start)):
        where = np.argwhere((table < 0).any(-1) | (np.abs(table.sum(-1) - 1) > _ROUNDING))
        promised(not len(where), f"{name}{where[:1].tolist()}: negative, or does not sum to 1")


@WORLD.check
def rewards_are_finite(world: World) -> None:
    """So that a card can declare their range."""
    for name, table in (("visit_reward", world.visit_reward), ("entry_reward", world.entry_reward)):
        promised(bool(np.isfinite(table).all()), f"{name} holds numbers that are not finite")


@WORLD.check
def labels_fit(world: World) -> None:
    """One label a state, one an action; ends are states."""
    S, A = world.shape  # noqa: N806
    promised(len(world.raw_labels) == S, f"{S} states have {len(world.raw_labels)} labels")
    promised(len(set(world.actions)) == A, f"{A} actions have {len(set(world.actions))} different labels")
    unknown = [s for s in world.ends if not 0 <= s < S]
    promised(not unknown, f"ends {unknown} are no states")


@WORLD.check
def ends_are_worth_nothing(world: World) -> None:
    """An episode stops on entering an end, so the tables must pay 0 from there on."""
    transitions = world.transition.reshape(-1, *world.transition.shape[-3:])
    reached = world.terminal.copy()
    for _ in range(len(reached)):
        reached |= (transitions[:, reached] > 0).any((0, 1, 2))
    paid = np.broadcast_to(world.expected_reward, (len(transitions), *world.shape))[:, reached]
    promised(
        not paid.any(), "something is paid after an end; pay on the way to it, or let it lead to a state that pays 0"
    )


@WORLD.check
def every_behaviour_is_a_policy(world: World) -> None:
    """Logging policies are distributions over actions, and ``uniform`` is among them."""
    horizon = world.steps()
    promised("uniform" in world.policies, "there is no logging policy 'uniform'")
    for name in (*world.policies, "near-optimal-0.3"):
        p = world.behaviours(name, horizon)
        promised(p.shape == (horizon, *world.shape), f"behaviour {name} has shape {p.shape}")
        promised(bool((p >= 0).all() and np.allclose(p.sum(-1), 1)), f"behaviour {name}: rows are no distributions")


@WORLD.check
def a_log_follows_the_tables(world: World) -> None:
    """Successors and rewards of 4000 simulated episodes have the frequencies and sums of the tables."""
    horizon = world.steps()
    rows = sample_log(world, "uniform", horizon, _EPISODES, np.random.default_rng(0))
    S, A = world.shape  # noqa: N806
    shape = (horizon, S, A, S)
    visited = (rows.step, rows.state, rows.action)
    P = np.broadcast_to(world.transition, shape)[visited]  # noqa: N806
    impossible = P[np.arange(len(P)), rows.next_state] <= 0
    promised(not impossible.any(), "the log holds a step that the tables make impossible")
    entries = np.bincount(rows.next_state, minlength=S)
    spread = np.sqrt((P * (1 - P)).sum(0)) + 1
    deviation = np.abs(entries - P.sum(0)) / spread
    promised(
        bool((deviation < _SIGMAS).all()),
        f"entries into state {deviation.argmax()} are {deviation.max():.1f} deviations off",
    )
    expected = np.broadcast_to(world.expected_reward, shape[:3])[visited]
    error = rows.reward - expected
    deviations = abs(error.sum()) / (np.sqrt((error**2).sum()) + _ROUNDING)
    promised(deviations < _SIGMAS, f"summed rewards are {deviations:.1f} deviations off")


@WORLD.check
def a_card_can_be_written(world: World) -> None:
    """A card of the usual horizon covers every state and action, and holds every reward."""
    try:
        card = checked(
            world_card(
                world, name="contract", rho=1.0, horizon=world.steps(), bins=None, episodes=1000, episodes_per_user=1
            )
        )
        declared_states(card, world)
        declared_actions(card, world)
    except CardError as e:
        raise BrokenContractError(str(e)) from None


@dataclass(frozen=True)
class Player:
    """An agent by name (``module:object`` of a plug-in), and the world that it plays in."""

    agent: str
    world: str = "riverswim_homogeneous"
    params: tuple[tuple[str, Plain], ...] = (("states", 3),)
    episodes: int = 200
    options: tuple[tuple[str, Plain], ...] = ()

    @property
    def private(self) -> bool:
        """Whether it declares a trust model."""
        return find(self.agent).private

    def trial(self, seed: int = 0) -> Trial:
        """One short trial; epsilon = 1 where the agent is private."""
        bare = Trial(self.agent, self.world, self.params, self.episodes, options=self.options, seed=seed)
        return replace(bare, epsilon=1.0, delta=1e-5, calibration="tight") if self.private else bare

    def outcome(self, seed: int = 0) -> Outcome:
        """Outcome of that trial."""
        return run(self.trial(seed))


AGENT = Contract[Player]("online agent")


@AGENT.check
def marks_and_regret_are_a_curve(player: Player) -> None:
    """Marks rise to K; regret never falls, and is at most that of the worst policy."""
    out, mdp = player.outcome(), world_of(player.trial())
    promised(out.marks[-1] == player.episodes, f"the last mark is {out.marks[-1]}, not K = {player.episodes}")
    promised(bool((np.diff(out.marks) > 0).all()), "marks do not rise")
    promised(len(out.marks) == len(out.regret), f"{len(out.marks)} marks, {len(out.regret)} regrets")
    promised(
        bool((np.diff([0.0, *out.regret]) >= -_ROUNDING).all()), "summed regret falls: some policy beats the optimum"
    )
    least = sum(float(r.min()) for r in mdp.rewards)
    most = player.episodes * (optimum(mdp) - least)
    promised(out.regret[-1] <= most + _ROUNDING, f"regret {out.regret[-1]} exceeds {most}, all that there is to lose")


@AGENT.check
def the_same_trial_gives_the_same_outcome(player: Player) -> None:
    """Everything random comes from the trial's seed."""
    one, other = player.outcome(3), player.outcome(3)
    promised(one == other, "two plays of one trial differ: something random does not come from trial.seed")


@AGENT.check
def outcomes_are_plain_values(player: Player) -> None:
    """Outcomes are JSON values, to be stored and sent between processes; no number is NaN."""
    try:
        json.dumps(plain_values(player.trial(), player.outcome()), allow_nan=False)
    except (TypeError, ValueError) as e:
        raise BrokenContractError(f"the outcome is not plain values: {e}") from None


@AGENT.check
def facts_say_what_it_is(player: Player) -> None:
    """Facts hold the declared trust model; those of a private agent hold the true cost of its noise."""
    facts = player.outcome().facts
    declared = find(player.agent).trust
    promised(facts.get("trust") in _TRUSTS, f"facts['trust'] is {facts.get('trust')!r}, not one of {_TRUSTS}")
    promised(facts["trust"] == declared, f"facts say {facts['trust']!r}, its registration {declared!r}")
    if player.private:
        true = facts.get("true_epsilon")
        spent = true if isinstance(true, float) and math.isfinite(true) else 0.0
        promised(spent > 0, f"facts['true_epsilon'] is {true!r}")
        promised(spent <= 1.0 + _ROUNDING, f"asked for epsilon = 1, the noise costs {spent}")


@AGENT.check
def no_budget_is_refused(player: Player) -> None:
    """A private agent without epsilon plays nothing."""
    if not player.private:
        return
    bare = replace(player.trial(), epsilon=None, delta=None, calibration=None)
    broken = "plays without a budget; raise CardError where trial.epsilon or trial.delta is None"
    refused(CardError, lambda: run(bare), broken)


@AGENT.check
def less_privacy_is_less_noise(player: Player) -> None:
    """At epsilon = 100 the true epsilon is larger than at 1: the budget reaches the noise."""
    if not player.private:
        return
    loose = run(replace(player.trial(), epsilon=100.0)).facts["true_epsilon"]
    tight = player.outcome().facts["true_epsilon"]
    promised(loose > 2 * tight, f"true epsilon {tight} at 1, {loose} at 100: the noise does not follow the budget")


@AGENT.check
def the_policy_is_one_of_the_worlds(player: Player) -> None:
    """Actions ``(H, S)`` that exist, or their chances ``(H, S, A)``, worth no more than the optimum; or none."""
    table, mdp = player.outcome().policy, world_of(player.trial())
    if table is None:
        return
    H, S, A = mdp.shape  # noqa: N806
    policy = np.asarray(table)
    if policy.ndim == 2:
        promised(policy.shape == (H, S), f"policy has shape {policy.shape}, not {(H, S)}")
        promised(bool(((policy >= 0) & (policy < A)).all()), "the policy takes actions that do not exist")
        policy = np.eye(A)[policy]
    promised(policy.shape == (H, S, A), f"policy has shape {policy.shape}, not {(H, S, A)}")
    promised(bool((policy >= 0).all()) and np.allclose(policy.sum(-1), 1), "the chances of a state are no distribution")
    value = policy_value(mdp, Policy(policy, np.zeros((H, S), dtype=bool)))
    promised(value <= optimum(mdp) + _ROUNDING, "the policy beats the optimum")


CONTRACTS: tuple[Contract[Any], ...] = (WORLD, AGENT, PRIVATIZER, NOISE, READER)
