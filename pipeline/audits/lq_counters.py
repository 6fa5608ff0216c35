"""Attack on Private-OFU-RL's sums (paper 004): the tree over people, or one release of a batch, on two people's rows.

The tree is the shipped one that draws what is read; the attacker reads it after 1, 2, 4, ... people.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pipeline.audits.attack import Array, Attack
from pipeline.audits.laws import Gaussian
from pipeline.audits.pooled import Silence
from pipeline.audits.streams import LEAVES, Built, CounterPath, Kind, ends, factors, time_of
from pipeline.declaration.card import CardError
from pipeline.privacy.noise import Integers
from pipeline.privacy.running import LazyTree, RunningSum
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq_message import LqMessage
from pipeline.statistics.lq_regularizers import paper_004
from pipeline.statistics.online_sum import Variances, cost_of, entry_variances, tight

Sums = Callable[[Array, Array], Integers]


def lq_counter_attack(
    message: LqMessage,
    ask: Ask,
    counter: Literal["tree", "epochs"],
    *,
    leaves: int = LEAVES,
    variances: Variances | None = None,
    build: Built = RunningSum,
    sums: Sums | None = None,
) -> Attack:
    """The worst angle of a family of pairs against a tree of ``leaves`` people, or against one release (``epochs``).

    Parameters
    ----------
    variances, build, sums
        What really calibrates, counts, and turns an episode into integers, where a test breaks one of them.

    Raises
    ------
    CardError
        If no noise is asked for.
    """
    paper = ask.calibration == "paper"
    tree = "plain" if paper else "bottom-up"
    kind: Kind = "once" if counter == "epochs" else tree
    leaves = 1 if kind == "once" else leaves
    time = time_of(kind, leaves) if kind == "once" else LazyTree(ends(kind, leaves), tree)
    noise = paper_004(message, ask, leaves) if paper else tight(message, ask, time.cost)
    claimed = cost_of(message, noise, time.cost)
    if noise is None or claimed is None:
        raise CardError("an audit needs noise: epsilon is infinite")
    entries = entry_variances(message, noise)
    still, *turned = message.extremes()
    rows = still, max(turned, key=lambda person: _apart(message, (still, person), entries))
    honest, sent = ([(of or message.integers)(*person) for person in rows] for of in (None, sums))
    where = sent[0] != sent[1]
    drawn = entry_variances(message, variances or noise)[where]
    path = CounterPath(kind, leaves, time, (sent[0][where], sent[1][where]), drawn, build)
    model = CounterPath(kind, leaves, time, (honest[0][where], honest[1][where]), drawn)
    words = "one release of a batch" if kind == "once" else f"{kind} tree"
    return Attack(
        mechanism=f"lq sums, {words}, discrete gaussian, {ask.calibration}",
        trust="joint",
        path=path,
        means=([t[0] for t in model(0, Silence(), 1)], [t[0] for t in model(1, Silence(), 1)]),
        law=Gaussian([entries[where] * factor for factor in factors(kind, leaves)]),
        claimed_rho=claimed,
    )


def _apart(message: LqMessage, pair: tuple[tuple[Array, Array], ...], entries: Array) -> float:
    one, other = (message.integers(*person) for person in pair)
    return float(((one - other) ** 2 / entries).sum())
