"""What an audit attacks of an online agent: the path from a user's data to what is released, as plain values.

An agent's registration names these for a trial; :mod:`pipeline.audits.message_paths` makes an audit target of each.
Nobody plays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    # no agent runs, or is measured anew for, the mechanisms of another
    from pipeline.statistics.ask import Ask
    from pipeline.statistics.batch_counts import BatchLayout
    from pipeline.statistics.batch_privatizers import BatchPrivatizer
    from pipeline.statistics.interactive_counts import CountMechanism
    from pipeline.statistics.lq_layout import LqPlan
    from pipeline.statistics.lq_message import LqMessage, ResidualMessage
    from pipeline.statistics.mixture_message import Message
    from pipeline.statistics.online_counts import OnlineLayout
    from pipeline.statistics.private_sum import PrivateSum


@dataclass(frozen=True)
class CountsTarget:
    """Noisy counts of online users.

    Parameters
    ----------
    layout
        Which counts are kept: steps, states, actions, and whether rewards are among them.
    ask
        The budget of all counts together.
    mechanism
        The counter of joint privacy (``fresh``: each batch is one release); None: every user sends a local message.
    """

    layout: OnlineLayout
    ask: Ask
    mechanism: CountMechanism | None


@dataclass(frozen=True)
class ShuffledTarget:
    """Shuffled one-bit counts.

    Parameters
    ----------
    layout, ask
        As of :class:`CountsTarget`.
    users
        Of the first batch: the fewest that any batch has.
    honest
        Declared share of users who add their noise bits, in (0, 1].
    """

    layout: OnlineLayout
    ask: Ask
    users: int
    honest: float


@dataclass(frozen=True)
class BatchTarget:
    """The counts of one batch of ``users`` under a batch privatizer (paper 002).

    Parameters
    ----------
    layout
        Which counts one user of the batch sends.
    users
        Of the batch.
    privatizer
        Adds the noise, at the trial's budget.
    """

    layout: BatchLayout
    users: int
    privatizer: BatchPrivatizer


@dataclass(frozen=True)
class SumsTarget:
    """Noisy sums of linear mixture agents, of Private-OFU-RL, or of private adaptive LQR.

    Parameters
    ----------
    message
        What one episode adds.
    ask, mechanism
        As of :class:`CountsTarget`.
    """

    message: Message | LqMessage | ResidualMessage
    ask: Ask
    mechanism: CountMechanism | None


# a private sum of count tables, or of linear-quadratic moments, stands for its one release
Target: TypeAlias = "CountsTarget | ShuffledTarget | BatchTarget | SumsTarget | PrivateSum | LqPlan"
