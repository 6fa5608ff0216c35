"""Attack on linear mixture agents' messages: in a continual counter under joint privacy, or one by one under local.

The worst pair of episodes: rows in blocks, or on coordinates, of their own, longer than the declared bounds allow.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline.audits.attack import Attack, Trust
from pipeline.audits.laws import Gaussian
from pipeline.audits.pooled import Silence
from pipeline.audits.streams import LEAVES, Built, CounterPath, Kind, factors, time_of
from pipeline.declaration.card import CardError
from pipeline.privacy.noise import Integers
from pipeline.privacy.running import RunningSum
from pipeline.statistics.ask import Ask
from pipeline.statistics.mixture_message import Message, Visits
from pipeline.statistics.online_sum import Variances, cost_of, entry_variances, tight
from pipeline.statistics.regularizers import paper_000, paper_001

_WORDS: dict[Kind, str] = {
    "plain": "plain tree",
    "bottom-up": "bottom-up tree",
    "square-root": "square-root counter",
    "once": "local messages",
}


def counter_attack(
    message: Message,
    ask: Ask,
    kind: Kind,
    *,
    leaves: int = LEAVES,
    variances: Variances | None = None,
    build: Built = RunningSum,
    integers: Callable[[Visits], Integers] | None = None,
) -> Attack:
    """The worst pair of first episodes against a counter of ``leaves`` leaves, or against a message of its own.

    Parameters
    ----------
    variances, build, integers
        What really calibrates, counts, and turns an episode into integers, where a test breaks one of them.

    Raises
    ------
    CardError
        If no noise is asked for.
    """
    leaves = 1 if kind == "once" else leaves
    time = time_of(kind, leaves)
    claimed_noise = _calibrated(message, ask, kind, leaves)
    claimed = cost_of(message, claimed_noise, time.cost)
    if claimed_noise is None or claimed is None:
        raise CardError("an audit needs noise: epsilon is infinite")
    pair = [*message.extremes()]
    sides = tuple((integers or message.integers)(episode) for episode in pair)
    honest = tuple(message.integers(episode) for episode in pair)
    where = sides[0] != sides[1]
    entries = entry_variances(message, claimed_noise)[where]
    drawn = entry_variances(message, variances or claimed_noise)[where]
    path = CounterPath(kind, leaves, time, (sides[0][where], sides[1][where]), drawn, build)
    model = CounterPath(kind, leaves, time, (honest[0][where], honest[1][where]), entries)
    trust: Trust = "local" if kind == "once" else "joint"
    words = [_WORDS[kind], message.of, "discrete gaussian", ask.calibration, *(["unit rows"] if message.unit else [])]
    return Attack(
        mechanism=", ".join(words),
        trust=trust,
        path=path,
        means=([t[0] for t in model(0, Silence(), 1)], [t[0] for t in model(1, Silence(), 1)]),
        law=Gaussian([entries * factor for factor in factors(kind, leaves)]),
        claimed_rho=claimed,
    )


def _calibrated(message: Message, ask: Ask, kind: Kind, leaves: int) -> Variances | None:
    if ask.calibration == "tight":
        return tight(message, ask, time_of(kind, leaves).cost)
    return paper_001(message, ask) if kind == "once" else paper_000(message, ask, leaves)
