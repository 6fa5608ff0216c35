"""What a private sum costs somebody who joins or leaves: what a person pays who is in one of two disjoint lineages."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from pipeline.privacy.budget import rho_of_pure
from pipeline.statistics.private_sum import PrivateSum


def joining_cost(summed: PrivateSum) -> Fraction | None:
    """Exact zCDP cost under *add or remove one*.

    Returns
    -------
    At most what replacing costs, which may mean by nobody; None where a table has no noise.
    """
    scales = {m.table: m.scale for m in summed.mechanisms if m.scale}
    if len(scales) + len(summed.rates) < len(summed.mechanisms):
        return None
    pure = sum((t.add_remove.l1 / scales[t.name] for t in summed.layout.tables if t.name in scales), Fraction(0))
    gaussian = summed.layout.cost(summed.rates, "add_remove") * (1 if summed.time is None else summed.time.cost)
    return rho_of_pure(pure) + gaussian


def tell_joining(data_kind: str, costs: Iterable[Fraction | None]) -> dict[str, str]:
    """What somebody pays who joins or leaves, as an INTENT of real people says it.

    Parameters
    ----------
    data_kind
        ``real`` or ``synthetic``: synthetic people are in no other lineage, so nothing is said of them.
    costs
        Of all that is drawn, under *add or remove one*; None of what has no noise.
    """
    known = list(costs)
    if data_kind != "real" or None in known:
        return {}
    return {"rho_add_remove": str(sum((c for c in known if c is not None), Fraction(0)))}
