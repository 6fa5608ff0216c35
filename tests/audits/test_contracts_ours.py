"""Everything of ours passes the contracts that plug-ins are put to."""

from functools import cache, partial
from pathlib import Path

import pytest

from pipeline.audits.contracts import AGENT, NOISE, PRIVATIZER, READER, WORLD, LogReader, Player
from pipeline.logs.sources import TABLES
from pipeline.online.registry import AGENTS
from pipeline.privacy.noise import FastOsNoise, OsNoise, SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.worlds.catalog import WORLDS, load_world

ROOT = Path(__file__).resolve().parent.parent.parent


@cache
def world(name):
    return load_world(name, ROOT / "datasets" / name)


HEAD = ("who", "step", "state")
LINES = {
    ".csv": (b"%s,%d,x", lambda records: b"\n".join([b"who,step,state", *records])),
    ".ndjson": (b'{"who":"%s","step":%d,"state":"x"}', b"\n".join),
}
READERS = {
    suffix: LogReader(
        TABLES[suffix], suffix,
        [(who, form % (who.encode(), t)) for who, t in (("anna", 0), ("bert", 0), ("bert", 1), ("cleo", 0))],
        write, HEAD,
    )
    for suffix, (form, write) in LINES.items()
}  # fmt: skip
PLANTS = {"ofu-rl", "private-ofu-rl", "dp-lqr", "explore-then-commit", "adaptive-lqr", "private-adaptive-lqr"}
PLANTS |= {"dp-residual-lqr", "zero", "fixed-gain", "certainty-equivalence"}


class Played(Player):
    """What it plays of seed 0 is read by five checks; that seed 3 repeats itself is played twice."""

    def outcome(self, seed=0):
        return _played(self) if seed == 0 else super().outcome(seed)


@cache
def _played(player):
    return Player.outcome(player)


QUICK = ("uniform", "always-first", "always-right", "ucbvi", "dp-ucbvi-jdp", "dp-ucbvi-ldp", "counts-shuffle")
QUICK += ("best-constant", "behaviour", "apvi", "dp-apvi", "sdp-pe")
SLOW = ("ucrl-vtr", "linopt-po", "private-linopt-vi", "private-linopt-po", "ldp-ucrl-vtr")
PLAYERS = [*map(Played, QUICK), *(Played(a, episodes=60) for a in SLOW)]
PLAYERS.append(Played("no-data", options=(("of", "ucrl-vtr"),)))


MADE = {
    "gaussian": lambda card: count_sum(card, Ask(rho=0.5)),
    "two tables": lambda card: count_sum(card, Ask(rho=0.5, tables="two_tables")),
    "laplace": lambda card: count_sum(card, Ask(epsilon=1.0)),
}
NOISES = {"os": OsNoise, "table": FastOsNoise, "seeded": lambda: SeededNoise(7)}
# contract -> name -> how to make a subject of ours; of readers of rows and episodes: tests/logs/test_one_persons_*.py
OURS = (
    (WORLD, {name: partial(world, name) for name in WORLDS}),
    (AGENT, {p.agent: lambda p=p: p for p in PLAYERS}),
    (READER, {suffix: lambda log=log: log for suffix, log in READERS.items()}),
    (PRIVATIZER, {name: lambda make=make: make for name, make in MADE.items()}),
    (NOISE, {name: lambda make=make: make for name, make in NOISES.items()}),
)


# the shipped file of ten million chances, by its bins by default; rows that the lines of CSV stand for; tables whose
# noise is that of one
LONG = {"icu_sepsis-a_card_can_be_written", "icu_sepsis-a_log_follows_the_tables", ".ndjson-nobodys_bytes_move_another"}
LONG |= {"icu_sepsis-transitions_are_distributions", "two tables-every_cell_gets_the_noise_it_says"}
# and agents that tests/online/test_agents.py plays again by default
AGAIN = ("ucbvi", "ucrl-vtr", "linopt-po", "private-linopt-vi", "private-linopt-po", "ldp-ucrl-vtr", "sdp-pe")
LONG |= {f"{agent}-the_same_trial_gives_the_same_outcome" for agent in AGAIN}


def case(name, check, subject):
    known = f"{name}-{check.__name__}"
    return pytest.param(check, subject, id=known, marks=pytest.mark.slow if known in LONG else ())


@pytest.mark.parametrize(
    ("check", "subject"),
    [
        case(name, check, subject)
        for contract, subjects in OURS
        for name, subject in subjects.items()
        for check in contract.checks
    ],
)
def test_ours_keep_the_contract(check, subject):
    check(subject())


def test_every_agent_is_put_to_it_or_controls_a_plant():
    assert {p.agent for p in PLAYERS} | PLANTS == set(AGENTS)
