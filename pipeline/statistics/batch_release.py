"""What leaves batches of users: shuffled ones of every counter, or the noisy sums of all batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.guarantee import Trust
from pipeline.privacy.release import Mechanism, Release, Running, ShuffledBits
from pipeline.privacy.shuffle import NoiseBits
from pipeline.statistics.layout import Layout

Integers = NDArray[np.int64]
_UNIT, _RULE = "ones", "a replaced user moves so many counters by 1, half of them up; everybody sends for every counter"


def release_of_shuffled(
    layout: Layout, changes: int, batches: Sequence[tuple[NoiseBits, int, Integers]], sampler: str
) -> Release:
    """Shuffled batches as one release; a user is in one of them.

    Parameters
    ----------
    layout
        Whose counters they are.
    changes
        Counters that one replaced user moves by 1.
    batches
        Of each its noise bits, how many users add theirs honestly, and the ones ``(C,)`` that were counted.
    sampler
        Program that drew the bits.
    """
    named = {f"batch_{i}": batch for i, batch in enumerate(batches)}
    return Release(
        dataset=layout.dataset,
        data_kind=layout.data_kind,
        dynamics=layout.dynamics,
        mechanisms=tuple(
            Mechanism(
                table=name,
                shape=ones.shape,
                unit=_UNIT,
                l2_squared=changes,
                l1=changes,
                rule=_RULE,
                shuffled=ShuffledBits(bits.users, bits.each, bits.chance, changes, honest),
            )
            for name, (bits, honest, ones) in named.items()
        ),
        tables={name: ones for name, (_, _, ones) in named.items()},
        noise="seeded",
        sampler=sampler,
        trust_model=Trust.SHUFFLE.value,
    )


def release_of_gaussian(
    layout: Layout, changes: int, variance: int | None, error: int, counts: Integers, trust: Trust, sampler: str
) -> Release:
    """The sum of all batches as one release; a user is in one of them, so no budget is divided.

    Parameters
    ----------
    layout, changes
        As of :func:`release_of_shuffled`.
    variance, error
        Of one draw, None without noise; and how many draws are in each counter of the sum.
    counts
        Noisy counters ``(C,)``, summed over the batches.
    trust, sampler
        Who adds the noise, and what drew it.
    """
    running = None if variance is None else Running(1, error, error)
    return Release(
        dataset=layout.dataset,
        data_kind=layout.data_kind,
        dynamics=layout.dynamics,
        mechanisms=(Mechanism("counters", counts.shape, _UNIT, changes, changes, _RULE, variance, running=running),),
        tables={"counters": counts},
        noise="none" if variance is None else "seeded",
        sampler=sampler,
        trust_model=trust.value,
    )
