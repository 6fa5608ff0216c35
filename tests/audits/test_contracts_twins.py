"""Every contract catches a twin that breaks it, and says what is wrong."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import polars as pl
import pytest

from pipeline.audits.contracts import (
    AGENT,
    CONTRACTS,
    NOISE,
    PRIVATIZER,
    READER,
    WORLD,
    BrokenContractError,
    LogReader,
    Player,
)
from pipeline.logs.readers.batch import NO_LINES, Batch, lines_from
from pipeline.logs.sources import Reader
from pipeline.online import rollouts, tabular
from pipeline.online.trial import OnlineAgent, Outcome, Trial
from pipeline.privacy.noise import OsNoise, SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.private_sum import PrivateSum
from pipeline.worlds.catalog import riverswim_homogeneous

RIVER = riverswim_homogeneous(states=3)


def check(contract, name, subject):
    next(promise for promise in contract.checks if promise.__name__ == name)(subject)


def with_visits(change):
    """A world whose simulated reward is not that of its tables."""

    class Twin(type(RIVER)):
        @property
        def expected_reward(self):
            return change(super().expected_reward)

    return Twin(**{f: getattr(RIVER, f) for f in RIVER.__dataclass_fields__})


def wild_policy():
    policies = dict(RIVER.policies)
    policies["uniform"] = policies["uniform"] * 1.1
    return replace(RIVER, policies=policies)


WORLDS = {
    "transitions_are_distributions": lambda: replace(RIVER, transition=RIVER.transition * 0.99),
    "rewards_are_finite": lambda: replace(RIVER, visit_reward=RIVER.visit_reward + np.nan),
    "labels_fit": lambda: replace(RIVER, raw_labels=RIVER.raw_labels[:-1]),
    "ends_are_worth_nothing": lambda: replace(RIVER, ends={2: "out"}),
    "every_behaviour_is_a_policy": wild_policy,
    "a_log_follows_the_tables": lambda: with_visits(lambda r: r + 0.01),
    "a_card_can_be_written": lambda: replace(RIVER, ends={2: RIVER.raw_labels[0]}),
}


@OnlineAgent
def falling(trial: Trial) -> Outcome:
    """Claims to beat the optimum."""
    out = rollouts.uniform(trial)
    return replace(out, regret=out.regret[::-1])


@OnlineAgent
def forgetful(trial: Trial) -> Outcome:
    """Draws from numpy's global stream."""
    out = rollouts.uniform(trial)
    return replace(out, facts={**out.facts, "luck": float(np.random.default_rng().random())})


@OnlineAgent
def crooked(trial: Trial) -> Outcome:
    """Puts an array into the facts."""
    out = rollouts.uniform(trial)
    return replace(out, facts={**out.facts, "counts": np.zeros(3)})


def _joint(trial: Trial) -> Outcome:
    return tabular.ucbvi_agent(replace(trial, agent="dp-ucbvi-jdp"))


@OnlineAgent
def secretive(trial: Trial) -> Outcome:
    """Uses a joint desk and says that it is not private."""
    return _joint(replace(trial, epsilon=1.0, delta=1e-5))


@partial(OnlineAgent, trust="joint")
def generous(trial: Trial) -> Outcome:
    """Draws noise for ten times the budget asked for."""
    return _joint(trial if trial.epsilon is None else replace(trial, epsilon=10 * trial.epsilon))


@partial(OnlineAgent, trust="joint")
def careless(trial: Trial) -> Outcome:
    """Plays without a budget."""
    return _joint(trial if trial.epsilon else replace(trial, epsilon=1.0, delta=1e-5))


@partial(OnlineAgent, trust="joint")
def stubborn(trial: Trial) -> Outcome:
    """Draws the same noise whatever is asked for."""
    return _joint(replace(trial, epsilon=None if trial.epsilon is None else 1.0))


@OnlineAgent
def impossible(trial: Trial) -> Outcome:
    """Emits an action that does not exist."""
    out = rollouts.always_first(trial)
    assert out.policy is not None
    return replace(out, policy=[[7 for _ in row] for row in out.policy])


AGENTS = {
    "marks_and_regret_are_a_curve": falling,
    "the_same_trial_gives_the_same_outcome": forgetful,
    "outcomes_are_plain_values": crooked,
    "facts_say_what_it_is": secretive,
    "no_budget_is_refused": careless,
    "less_privacy_is_less_noise": stubborn,
    "the_policy_is_one_of_the_worlds": impossible,
}


def test_an_agent_that_spends_more_than_it_is_given():
    with pytest.raises(BrokenContractError, match="the noise costs"):
        check(AGENT, "facts_say_what_it_is", Player(f"{__name__}:generous"))


def shipped(card) -> PrivateSum:
    return count_sum(card, Ask(rho=0.5))


def claiming(change):
    """The shipped privatizer with other claims; it draws as it claims."""
    return lambda card: PrivateSum(CountLayout(card), tuple(change(m) for m in shipped(card).mechanisms))


class Quiet(PrivateSum):
    """Draws half the variance it names."""

    def draw(self, counts, noise):
        half = PrivateSum(self.layout, tuple(replace(m, variance=m.variance // 2) for m in self.mechanisms))
        return replace(half.draw(counts, noise), mechanisms=self.mechanisms)


class Shy(PrivateSum):
    """Leaves never-visited cells as they are."""

    def draw(self, counts, noise):
        out = super().draw(counts, noise)
        return replace(out, tables={k: np.where(counts.tables[k] == 0, 0, t) for k, t in out.tables.items()})


class Blunt(PrivateSum):
    """Passes a simulation off as private."""

    def draw(self, counts, noise):
        return replace(super().draw(counts, noise), noise="os")


class Reckless(PrivateSum):
    """Treats people as a simulation."""

    def draw(self, counts, noise):
        free = PrivateSum(CountLayout(self.layout.card.model_copy(update={"kind": "synthetic"})), self.mechanisms)
        return free.draw(ExactSums(counts.dataset, "synthetic", counts.dynamics, counts.tables), noise)


def of(kind):
    return lambda card: kind(CountLayout(card), shipped(card).mechanisms)


PRIVATIZERS = [
    ("tables_are_known_beforehand", claiming(lambda m: replace(m, table="n_xy"))),
    ("tables_are_known_beforehand", claiming(lambda m: replace(m, variance=None))),
    ("no_person_moves_a_table_further_than_it_says", claiming(lambda m: replace(m, l2_squared=m.l2_squared // 2))),
    ("no_person_moves_a_table_further_than_it_says", claiming(lambda m: replace(m, l1=m.l1 - 1))),
    ("every_cell_gets_the_noise_it_says", of(Quiet)),
    ("every_cell_gets_the_noise_it_says", of(Shy)),
    ("noise_does_not_look_at_the_counts", of(Shy)),
    ("releases_are_integers_that_name_their_source", of(Blunt)),
    ("seeded_noise_never_touches_real_people", of(Reckless)),
    ("the_worst_pair_is_no_easier_to_tell_apart_than_it_says", of(Quiet)),
]


class Narrow(SeededNoise):
    """Gaussian draws 30 % too narrow."""

    def gaussian(self, size, variance, data):
        return super().gaussian(size, max(1, round(0.49 * variance)), data)


class Wide(SeededNoise):
    """Laplace draws 30 % too wide."""

    def laplace(self, size, scale, data):
        return super().laplace(size, scale * Fraction(13, 10), data)


class Sticky(SeededNoise):
    """Every draw twice."""

    def gaussian(self, size, variance, data):
        return np.repeat(super().gaussian((size + 1) // 2, variance, data), 2)[:size]


class Bold(SeededNoise):
    """Seeded, and serves anybody."""

    def admit(self, data_kind):
        pass


class Rough(OsNoise):
    """Far from its law, and says so."""

    def tv_bound(self, variance):
        return Fraction(1, 1000)


NOISES = {
    "gaussian_draws_have_their_law": lambda: Narrow(1),
    "laplace_draws_have_their_law": lambda: Wide(1),
    "neighbouring_draws_do_not_follow_each_other": lambda: Sticky(1),
    "what_can_be_repeated_refuses_real_people": lambda: Bold(1),
    "the_distance_from_the_law_is_small": Rough,
}


def reading(split):
    """A reader of bars whose ``split`` tells whose rows are in a file's bytes, or raises."""

    def read(path, asked):
        rows = split(path.read_bytes())
        frame = pl.DataFrame(rows, schema=dict.fromkeys(asked.columns, pl.String()), orient="row")
        yield Batch(frame, lines_from(1, len(frame)), NO_LINES)

    log = [(who, f"{who}|{visit}".encode()) for who in ("anna", "bert", "cleo") for visit in (0, 1)]
    return LogReader(Reader(None, read), ".log", log, b"\n".join, ("who", "visit"))


def strict(data):
    """One byte that is no text, or a line that is short, takes the file with it."""
    return [tuple(line.split("|", 1)) for line in data.decode("utf-8").splitlines()]


def quoting(data):
    """A quote reaches into the next lines."""
    text = "".join(
        part.replace("\n", " ") if i % 2 else part for i, part in enumerate(data.decode("latin-1").split('"'))
    )
    return [pair for line in text.split("\n") if len(pair := tuple(line.split("|"))) == 2]


def guessing(data):
    """One word makes text of everybody's numbers."""
    rows = [pair for line in data.decode("latin-1").split("\n") if len(pair := tuple(line.split("|"))) == 2]
    whole = all(visit.isdigit() for _, visit in rows)
    return [(who, visit if whole else f"{visit}.0") for who, visit in rows]


READERS = {
    "everybody_is_read": lambda: reading(lambda data: [("anna", "0")]),
    "nobodys_bytes_move_another": lambda: reading(strict),
}


# contract, its check, and how to make what breaks it
BROKEN = [
    *((WORLD, name, make) for name, make in WORLDS.items()),
    *((AGENT, name, lambda a=a: Player(f"{__name__}:{a.play.__name__}")) for name, a in AGENTS.items()),
    *((PRIVATIZER, name, lambda make=make: make) for name, make in PRIVATIZERS),
    *((NOISE, name, lambda make=make: make) for name, make in NOISES.items()),
    *((READER, name, make) for name, make in READERS.items()),
]


@pytest.mark.parametrize(
    ("contract", "name", "make"), BROKEN, ids=[f"{c.kind}-{n}-{i}" for i, (c, n, _) in enumerate(BROKEN)]
)
def test_a_broken_twin_is_caught(contract, name, make):
    with pytest.raises(BrokenContractError):
        check(contract, name, make())


@pytest.mark.parametrize("split", [quoting, guessing])
def test_a_reader_in_which_one_record_speaks_for_others(split):
    check(READER, "everybody_is_read", reading(split))
    with pytest.raises(BrokenContractError, match=r"rows of . others change"):
        check(READER, "nobodys_bytes_move_another", reading(split))


def test_every_check_has_a_twin():
    twins = {
        "log reader": set(READERS),
        "world": set(WORLDS),
        "online agent": set(AGENTS),
        "privatizer": {name for name, _ in PRIVATIZERS},
        "noise source": set(NOISES),
    }
    assert {c.kind: {promise.__name__ for promise in c.checks} for c in CONTRACTS} == twins
