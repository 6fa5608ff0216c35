"""One run of an online agent in a simulated world: what is asked, what came out, and what an agent registers.

A trial is plain values, so that it can travel to another process and name a kept result.  What an agent is to the rest
of the house is one :class:`OnlineAgent`; :mod:`pipeline.simulation.registry` knows them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, Required, TypedDict

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.toml import CardError
from pipeline.privacy.release import Release
from pipeline.simulation.communication import Sent
from pipeline.simulation.targets import Target

Trust = Literal["none", "central", "joint", "local", "shuffle"]
# a tuple is a row, or the rows of a matrix
Plain = str | int | float | bool | None | tuple[Any, ...]
Calibration = Literal["tight", "paper"]
# of an online agent: as its pseudo-code is printed, or chosen by us
Preset = Literal["practical", "paper"]


def run_named(said: Plain) -> Plain:
    """What is said of a knob or a world as a page shows it: a run by its name, whatever folder it lies in here."""
    named = isinstance(said, str) and said.startswith(("release:", "run:"))
    return str(said).rpartition("/")[2] if named else said


@dataclass(frozen=True)
class Trial:
    """One agent, one world, one seed.

    Parameters
    ----------
    agent, world, params
        A name of :mod:`pipeline.simulation.registry`; name and sorted parameters of the world.
    episodes
        K: users who come, one episode each.
    epsilon, delta
        The loss of one user that is asked for; both None without privacy.
    calibration
        ``tight`` or ``paper``; None without privacy.
    options
        Sorted knobs of the agent; what is left out has the agent's default.
    seed
        Of everything random: the world's stream must not depend on the agent, so that agents meet the same luck.
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

    def need_budget(self) -> tuple[float, float]:
        """Epsilon and delta; a CardError where one is missing."""
        if self.epsilon is None or self.delta is None:
            raise CardError(f"{self.agent} needs epsilon and delta")
        return self.epsilon, self.delta

    def over(self, defaults: Mapping[str, Any], **words: Sequence[str]) -> dict[str, Any]:
        """The options over an agent's defaults.

        Parameters
        ----------
        defaults
            Every option there is, with the value it has where nothing is said.
        words
            Of an option that is a word, those there are; a CardError names an option or a word that is none.
        """
        if unknown := sorted(set(self.knobs) - set(defaults)):
            raise CardError(f"{self.agent}: no option {unknown[0]!r}; there are: {', '.join(defaults)}")
        found = {**defaults, **self.knobs}
        for name in (name for name in words if found[name] not in words[name]):
            raise CardError(f"{self.agent}: {name} must be one of {', '.join(words[name])}; got {found[name]!r}")
        return found

    def told(self, **more: Plain) -> Trial:
        """The same with further options."""
        return replace(self, options=tuple(sorted({**self.knobs, **more}.items())))

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


class Facts(TypedDict, total=False):
    """What an agent said of its run, as far as studies read it; an agent may say more.  Most is as in a :class:`Row`.

    Attributes
    ----------
    true_epsilon_gdp
        By the conversion for Gaussians.
    of
        The agent that was kept from its data.
    final_loss
        V* - V^pi of the policy at the end, reward units.
    left_zero_at, shape
        First episode whose gain was not zero (None: never); (H, S, A) in the order the agent says it.
    """

    trust: Required[Trust]
    variant: str
    constants: str | None
    true_rho: float | None
    true_epsilon: float | None
    true_epsilon_gdp: float
    tie_share: float | None
    of: str | None
    final_loss: float
    left_zero_at: int | None
    shape: list[int]


class Measured(TypedDict):
    """An :class:`Outcome` as plain values, as it is kept, and what one user sends where it is private."""

    marks: list[int]
    regret: list[float]
    facts: Facts
    policy: list[Any] | None
    sent: Sent | None


@dataclass(frozen=True)
class Outcome:
    """What a trial measured.

    Parameters
    ----------
    marks, regret
        ``(n,)`` episodes, the last is K, and the regret summed up to each of them: V* - V^pi exactly, reward units.
    policy
        The policy at the end as nested lists: actions ``(H, S)`` or probabilities ``(H, S, A)``; of a linear plant the
        gains ``(H, d, n)``.  None: the agent says nothing of it.
    facts, release
        :class:`Facts`, and whatever the agent has to say; what left the private sum by the end, and by which
        mechanisms: no kept result holds it, a run is played again.
    numbers
        What one step of an episode says: state, action and reward; of a plant its coordinates and controls.
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
    """One registration: everything that the house asks of an online agent.  One of your own is the same type.

    Parameters
    ----------
    play
        From a trial to its outcome; the same trial gives the same outcome.  A private agent raises a ``CardError``
        where the trial has no epsilon or delta.
    trust
        Whom a user must trust; ``none``: the agent claims no privacy.
    plain, controls
        Names of what plays beside it: an agent without noise (the same planner, where there is one), and policies that
        learn nothing.
    defaults
        Every option of ``[agent]`` in a recipe with its default; None: the agent derives it from the trial.
    targets
        What an audit attacks, for a private agent: the message path of a trial at the trial's budget.
    cost
        What all that a trial releases costs one user, and what is claimed: exact rho, zCDP.  Given where an audit
        attacks a counter with fewer leaves than the trial's own.
    unread
        The agent to whom no data ever arrives, as a control: noise, ties and known rewards remain.
    from_logs
        Whether it learns from episodes that a fixed policy has logged.
    """

    play: Callable[[Trial], Outcome]
    trust: Trust = "none"
    plain: str | None = None
    controls: tuple[str, ...] = NOTHING_LEARNT
    defaults: Mapping[str, Plain] = field(default_factory=dict[str, Plain])
    targets: Callable[[Trial], Sequence[Target]] | None = None
    cost: Callable[[Trial], tuple[Fraction | None, Fraction]] | None = None
    unread: Callable[[Trial], Outcome] | None = None
    from_logs: bool = False

    @property
    def private(self) -> bool:
        """Whether it claims privacy, and needs epsilon and delta."""
        return self.trust != "none"

    @property
    def baselines(self) -> tuple[str, ...]:
        """Who plays beside it: itself without noise, and what learns nothing."""
        return (*(() if self.plain is None else (self.plain,)), *self.controls)


SIMULATION = "simulation, not private"


class Row(TypedDict):
    """What a study measured of one agent at one setting.

    Attributes
    ----------
    agent, variant, trust
        Who played, in which of its ways (``control``: nothing is learnt), and whom a user must trust.
    world, episodes, calibration, constants
        Where, how long, whose noise, and what was chosen beside it; None where there is none.
    rho, epsilon
        As asked, exactly; both None without privacy.
    true_rho, true_epsilon
        What the noise that was drawn really costs: replace-one zCDP, and its epsilon at ``delta``.
    messages, bits
        What one user sends, at most over the runs; None without privacy.
    metric, mean, std, runs
        What was measured, over independent runs in this world; ``std`` divides by runs - 1.
    tie_share
        Share of the (step, state) pairs where clipping left several best actions; None for a control.
    noise
        Every row of a study comes from seeded noise: it protects nobody.
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


def marks(episodes: int) -> NDArray[np.int64]:
    """Episodes at which a curve is read: all small ones, then 20 a decade, then K."""
    decades = np.log10(episodes)
    grid = np.rint(10 ** np.arange(0, decades, 1 / _A_DECADE)).astype(np.int64)
    return np.unique(np.append(grid, episodes))


def curve(regret: NDArray[np.float64]) -> tuple[list[int], list[float]]:
    """Marks and summed regret of per-episode ``regret (K,)``."""
    at = marks(len(regret))
    return at.tolist(), regret.cumsum()[at - 1].tolist()


def staged_curve(ends: Sequence[int], losses: Sequence[float]) -> tuple[list[int], list[float]]:
    """The same where the loss of an episode stays ``losses[i]`` up to episode ``ends[i]``: exact, at any K."""
    last = np.asarray(ends, dtype=np.int64)
    summed = np.append(0.0, np.cumsum(np.diff(np.append(0, last)) * np.asarray(losses)))
    at = marks(int(last[-1]))
    return at.tolist(), np.interp(at, np.append(0, last), summed).tolist()
