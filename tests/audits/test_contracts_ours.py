"""Everything of ours passes the contracts that plug-ins are put to."""

from __future__ import annotations

from functools import cache
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


def named(check):
    return check.__name__


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
PLANTS = (
    "ofu-rl",
    "private-ofu-rl",
    "dp-lqr",
    "explore-then-commit",
    "adaptive-lqr",
    "private-adaptive-lqr",
    "dp-residual-lqr",
    "zero",
    "fixed-gain",
    "certainty-equivalence",
)


class Played(Player):
    """What it plays of seed 0 is read by five checks; that seed 3 repeats itself is played twice."""

    def outcome(self, seed=0):
        return _played(self) if seed == 0 else super().outcome(seed)


@cache
def _played(player):
    return Player.outcome(player)


PLAYERS = [
    *(Played(a) for a in ("uniform", "always-first", "always-right", "ucbvi", "dp-ucbvi-jdp", "dp-ucbvi-ldp")),
    Played("counts-shuffle"),
    *(Played(a) for a in ("best-constant", "behaviour", "apvi", "dp-apvi")),
    *(
        Played(a, episodes=60)
        for a in ("ucrl-vtr", "linopt-po", "private-linopt-vi", "private-linopt-po", "ldp-ucrl-vtr")
    ),
    Played("no-data", options=(("of", "ucrl-vtr"),)),
    Played("sdp-pe"),
]


@pytest.mark.parametrize("check", WORLD.checks, ids=named)
@pytest.mark.parametrize("name", WORLDS)
def test_worlds(name, check):
    check(world(name))


@pytest.mark.parametrize("check", AGENT.checks, ids=named)
@pytest.mark.parametrize("player", PLAYERS, ids=lambda p: p.agent)
def test_tabular_agents(player, check):
    check(player)


def test_every_agent_is_put_to_it_or_controls_a_plant():
    assert {p.agent for p in PLAYERS} | set(PLANTS) == set(AGENTS)


@pytest.mark.parametrize("check", READER.checks, ids=named)
@pytest.mark.parametrize("suffix", READERS)
def test_readers_of_lines(suffix, check):
    """Of rows and episodes: tests/logs/test_one_persons_bytes.py, test_one_persons_episodes.py."""
    check(READERS[suffix])


@pytest.mark.parametrize("check", PRIVATIZER.checks, ids=named)
@pytest.mark.parametrize(
    "make",
    [
        lambda card: count_sum(card, Ask(rho=0.5)),
        lambda card: count_sum(card, Ask(rho=0.5, tables="two_tables")),
        lambda card: count_sum(card, Ask(epsilon=1.0)),
    ],
    ids=["gaussian", "two tables", "laplace"],
)
def test_privatizers(make, check):
    check(make)


@pytest.mark.parametrize("check", NOISE.checks, ids=named)
@pytest.mark.parametrize("make", [OsNoise, FastOsNoise, lambda: SeededNoise(7)], ids=["os", "table", "seeded"])
def test_noise_sources(make, check):
    check(make)
