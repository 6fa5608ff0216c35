"""What a simulated run measured: an online agent and what plays beside it in a known world."""

from __future__ import annotations

from reports.facts.part import Number, Part


class Spread(Part):
    """Of independent runs.

    Parameters
    ----------
    mean, std
        Over the runs; ``std`` divides by runs - 1.
    lower, upper
        Student's interval of the mean at ``level``; None with one run.
    least, most
        Of the runs.
    level
        Of the interval.
    """

    mean: Number
    std: Number
    lower: Number | None
    upper: Number | None
    least: Number
    most: Number
    level: Number


class Curve(Part):
    """Regret summed up to an episode.

    Parameters
    ----------
    episodes
        At which the curve is read.
    mean, std
        Over the runs, at each of them.
    """

    episodes: list[int]
    mean: list[Number]
    std: list[Number]


class PlayedAgent(Part):
    """One agent in the world, over all seeds.

    Parameters
    ----------
    agent, variant, trust, constants
        Who, in which of its ways, whom its users trust, and what was chosen.
    role
        ``agent``; ``plain``: the same planner without noise; ``control``: learns nothing, or gets no data.
    runs
        How many.
    true_epsilon
        What the noise that was drawn costs a user, at the delta asked.
    suboptimality
        v* - v of the policy emitted at the end, exactly, in reward units; None where the agent emits none.
    regret
        Summed over all episodes, exactly.
    curve
        Of the regret.
    facts
        What it said of its first run, by name.
    """

    agent: str
    variant: str
    role: str
    trust: str
    constants: str | None
    runs: int
    true_epsilon: Number | None
    suboptimality: Spread | None
    regret: Spread
    curve: Curve
    facts: dict[str, str]


class Communication(Part):
    """What one user sends, at most.

    Parameters
    ----------
    who
        To whom, and what it is, in words.
    messages, bits
        How many, and their size together.
    """

    who: str
    messages: int
    bits: int


class Simulation(Part):
    """An online agent that was played in a known world.

    Parameters
    ----------
    world
        With its parameters, in words.
    episodes, runs, seed
        K users who came one by one, independent runs, and the seed of the first; its policy is the one emitted.
    optimum
        v*: value of the best policy.
    value
        Of the emitted policy, exactly.
    suboptimality
        What that loses against the best, exactly.
    price
        How much more the emitted policies lose on average than those of the same planner without noise; None where
        nothing is private.
    agents
        The agent, then what plays beside it.
    communication
        What a user sends.
    proposal
        What would do better here at the same promise, in words; None: nothing that is known.
    """

    world: str
    episodes: int
    runs: int
    seed: int
    optimum: Number
    value: Number
    suboptimality: Number
    price: Number | None
    agents: list[PlayedAgent]
    communication: Communication | None
    proposal: str | None = None
