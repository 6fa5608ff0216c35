"""One run of an online agent in a simulated world: the trial, its outcome, and the registration of an agent.

A trial is plain values, so that it can travel to another process and name a kept result.  An agent is registered as
one :class:`OnlineAgent`; :mod:`pipeline.online.registry` lists them by name.

Targets of an audit: the path from a user's data to the release, as plain values.

An agent's registration names these for a trial; :mod:`pipeline.audits.message_paths` makes an audit target of each
without playing the trial.

Communication of one user, at most, over all of their episodes: recipient, messages and bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.declaration.toml import CardError
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Release
from pipeline.statistics.ask import Ask

if TYPE_CHECKING:
    from pipeline.statistics.interactive_counts import BatchPrivatizer, CountMechanism
    from pipeline.statistics.lq import LqMessage, ResidualMessage
    from pipeline.statistics.mixture import MixtureMessage
    from pipeline.statistics.online_counts import BatchLayout, OnlineLayout
    from pipeline.statistics.private_sum import PrivateSum


@dataclass(frozen=True)
class CountsTarget:
    """Noisy counts of online users.

    ``mechanism``: the counter of joint privacy (``fresh``: each batch is one release); None: every user sends a local
    message.
    """

    layout: OnlineLayout
    ask: Ask
    mechanism: CountMechanism | None


@dataclass(frozen=True)
class ShuffledTarget:
    """Shuffled one-bit counts.

    ``honest``: declared share of users who add their noise bits, in (0, 1].
    """

    layout: OnlineLayout
    ask: Ask
    users: int
    honest: float


@dataclass(frozen=True)
class BatchTarget:
    """The counts of one batch of ``users`` under a batch privatizer (paper 002)."""

    layout: BatchLayout
    users: int
    privatizer: BatchPrivatizer


@dataclass(frozen=True)
class SumsTarget:
    """Noisy sums of linear mixture agents, of Private-OFU-RL, or of private adaptive LQR."""

    message: MixtureMessage | LqMessage | ResidualMessage
    ask: Ask
    mechanism: CountMechanism | None


# a private sum of count tables, or of linear-quadratic moments, stands for its one release
Target: TypeAlias = "CountsTarget | ShuffledTarget | BatchTarget | SumsTarget | PrivateSum"


_NUMBER_BITS = 64


class Sent(TypedDict):
    """Recipient and content of a user's messages in words, their number, and their size together."""

    who: str
    messages: int
    bits: int


def sent_by_user(release: Release | None, steps: int, numbers: int, episodes: int) -> Sent | None:
    """Communication of one user, by the release; None where nothing is private.

    ``episodes``: of one user, at most.
    """
    if release is None or release.noise == "none":
        return None
    if release.trust_model == "local":
        size = sum(m.cells for m in release.mechanisms)
        who = "the server: one message of noisy integers an episode, drawn on the user's device"
        return Sent(who=who, messages=episodes, bits=episodes * size * _NUMBER_BITS)
    if bits := [(m.shuffled, m.cells) for m in release.mechanisms if m.shuffled is not None]:
        messages = episodes * max(cells * (1 + b.each) for b, cells in bits)
        tag = max(math.ceil(math.log2(max(2, cells))) for _, cells in bits)
        who = "the shuffler: one-bit messages, each under the number of its counter; at most, over all batches"
        return Sent(who=who, messages=messages, bits=messages * (1 + tag))
    return in_the_clear("the curator" if release.trust_model == "central" else "the server", steps * episodes, numbers)


def in_the_clear(to: str, steps: int, numbers: int) -> Sent:
    """Whole episodes, a message a step."""
    return Sent(who=f"{to}: the whole episode, in the clear", messages=steps, bits=steps * numbers * _NUMBER_BITS)


Trust = Literal["none", "central", "joint", "local", "shuffle"]
# a tuple is a row, or the rows of a matrix
Plain = str | int | float | bool | None | tuple[Any, ...]
Calibration = Literal["tight", "paper"]
# of an online agent: as its pseudo-code is printed, or chosen by us
Preset = Literal["practical", "paper"]


def run_named(value: Plain) -> Plain:
    """A knob or a world for a page: a run by its name, without its folder."""
    named = isinstance(value, str) and value.startswith(("release:", "run:"))
    return str(value).rpartition("/")[2] if named else value


@dataclass(frozen=True)
class Trial:
    """One agent, one world, one seed.

    ``agent``, ``world``, ``params``: A name of :mod:`pipeline.online.registry`; name and sorted parameters of the
    world.
    ``epsilon``, ``delta``: the asked loss of one user; both None without privacy.
    ``calibration``: ``tight`` or ``paper``; None without privacy.
    ``seed``: of everything random; the world's stream does not depend on the agent, so that agents share it.
    """

    agent: str
    world: str
    params: tuple[tuple[str, Plain], ...]
    episodes: int
    epsilon: float | None = None
    delta: float | None = None
    calibration: Calibration | None = None
    options: tuple[tuple[str, Plain], ...] = ()
    seed: int = 0

    @property
    def knobs(self) -> dict[str, Any]:
        """The options by name."""
        return dict(self.options)

    def ask(self) -> Ask:
        """The budget; a CardError where epsilon or delta is missing."""
        if self.epsilon is None or self.delta is None:
            raise CardError(f"{self.agent} needs epsilon and delta")
        return Ask(epsilon=self.epsilon, delta=self.delta, calibration=self.calibration or "tight")

    def over(self, defaults: Mapping[str, Any], **words: Sequence[str]) -> dict[str, Any]:
        """The options over an agent's defaults."""
        if unknown := sorted(set(self.knobs) - set(defaults)):
            raise CardError(f"{self.agent}: no option {unknown[0]!r}; there are: {', '.join(defaults)}")
        options = {**defaults, **self.knobs}
        for name in (name for name in words if options[name] not in words[name]):
            raise CardError(f"{self.agent}: {name} must be one of {', '.join(words[name])}; got {options[name]!r}")
        return options

    @property
    def episodes_per_user(self) -> int:
        """Most episodes of one user; 1 for an agent that prices no more."""
        return int(self.knobs.get("episodes_per_user", 1))

    @property
    def place(self) -> str:
        """World and parameters in words."""
        # a matrix is written in the recipe
        params = (k if isinstance(v, tuple) else f"{k} {v}" for k, v in self.params)
        return ", ".join([str(run_named(self.world)), *params])

    def stream(self, purpose: int) -> np.random.Generator:
        """Generator of one purpose; 0 is the world's, the same for every agent in it."""
        return np.random.default_rng((purpose, self.seed, self.episodes if purpose else 0))

    def noise(self, purpose: int, *more: int) -> SeededNoise:
        """Noise of one purpose, apart from every stream."""
        return SeededNoise(np.random.SeedSequence((purpose, self.seed, self.episodes, *more)))


class Measured(TypedDict):
    """An :class:`Outcome` as plain values, and one user's communication where it is private."""

    marks: list[int]
    regret: list[float]
    facts: dict[str, Any]
    policy: list[Any] | None
    sent: Sent | None


@dataclass(frozen=True)
class Outcome:
    """Result of a trial.

    ``marks``, ``regret`` ``(n,)``: episodes, the last is K, and the regret summed up to each of them: V* - V^pi
    exactly, reward units.
    ``facts``: ``trust``, which it must have; ``variant``, ``constants``, ``true_rho``, ``true_epsilon``, ``tie_share``
    as in a :class:`TrialRow`; ``of``, ``final_loss``, ``left_zero_at`` (first episode whose gain was not zero, None:
    never) and ``shape`` (H, S, A in the order the agent says it).  Studies read these; an agent may add others.
    ``policy``: the policy at the end as nested lists: actions ``(H, S)`` or probabilities ``(H, S, A)``; of a linear
    plant the gains ``(H, d, n)``.  None: the agent gives none.
    """

    marks: list[int]
    regret: list[float]
    facts: Mapping[str, Any]
    policy: list[Any] | None = None
    release: Release | None = field(default=None, compare=False, repr=False)
    numbers: int = 3


NOTHING_LEARNT = ("uniform", "always-first", "always-right")
NOTHING_CONTROLLED = ("zero", "fixed-gain")


@dataclass(frozen=True)
class OnlineAgent:
    """Registration of an online agent; a plug-in agent is the same type.

    ``trust``: the trust model; ``none``: the agent claims no privacy.
    ``plain``, ``controls``: names of its baselines: an agent without noise (the same planner, where there is one), and
    policies that learn nothing.
    ``defaults``: every option of ``[agent]`` in a recipe with its default; None: the agent derives it from the trial.
    ``cost``: cost of a trial's whole release to one user, and the claim: exact rho, zCDP.  Given where an audit attacks
    a counter with fewer leaves than the trial's own.
    """

    play: Callable[[Trial], Outcome]
    trust: Trust = "none"
    plain: str | None = None
    controls: tuple[str, ...] = NOTHING_LEARNT
    defaults: Mapping[str, Plain] = field(default_factory=dict[str, Plain])
    targets: Callable[[Trial], Sequence[Target]] | None = None
    cost: Callable[[Trial], tuple[Fraction | None, Fraction]] | None = None
    unread: Callable[[Trial], Outcome] | None = None

    @property
    def private(self) -> bool:
        """Whether it claims privacy, and needs epsilon and delta."""
        return self.trust != "none"

    @property
    def baselines(self) -> tuple[str, ...]:
        """Agents that play beside it: the one without noise, and those that learn nothing."""
        return (*(() if self.plain is None else (self.plain,)), *self.controls)


SIMULATION = "simulation, not private"


class TrialRow(TypedDict):
    """Result of a study for one agent at one setting.

    ``agent``, ``variant``, ``trust``: the agent, its variant (``control``: nothing is learnt), and its trust model.
    ``world``, ``episodes``, ``calibration``, ``constants``: world, length, calibration of the noise, and chosen
    constants; None where there are none.
    ``rho``, ``epsilon``: as asked, exactly; both None without privacy.
    ``messages``, ``bits``: one user's communication, at most over the runs; None without privacy.
    ``metric``, ``mean``, ``std``, ``runs``: over independent runs in this world; ``std`` divides by runs - 1.
    ``tie_share``: share of the (step, state) pairs where clipping left several best actions; None for a control.
    """

    agent: str
    variant: str
    trust: Trust
    world: str
    episodes: int
    rho: float | None
    epsilon: float | None
    delta: float | None
    calibration: str | None
    constants: str | None
    metric: str
    mean: float
    std: float
    runs: int
    true_rho: float | None
    true_epsilon: float | None
    messages: int | None
    bits: int | None
    tie_share: float | None
    noise: str


_A_DECADE = 20


def marks(episodes: int) -> Integers:
    """Episodes at which a curve is read: all small ones, then 20 a decade, then K."""
    decades = np.log10(episodes)
    grid = np.rint(10 ** np.arange(0, decades, 1 / _A_DECADE)).astype(np.int64)
    return np.unique(np.append(grid, episodes))


def staged_curve(ends: Sequence[int], losses: Sequence[float] | Array) -> tuple[list[int], list[float]]:
    """Marks and summed regret where an episode loses ``losses[i]`` up to episode ``ends[i]``: exact, at any K."""
    last = np.asarray(ends, dtype=np.int64)
    summed = np.append(0.0, np.cumsum(np.diff(np.append(0, last)) * np.asarray(losses)))
    read_at = marks(int(last[-1]))
    return read_at.tolist(), np.interp(read_at, np.append(0, last), summed).tolist()
