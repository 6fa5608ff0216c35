"""What a private sum costs somebody who joins or leaves: what a person pays who is in one of two disjoint lineages."""

from __future__ import annotations

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


def tell_joining(summed: PrivateSum) -> dict[str, str]:
    """The same as an INTENT of real people says it; nothing of synthetic ones, who are in no other lineage."""
    cost = joining_cost(summed) if summed.layout.data_kind == "real" else None
    return {} if cost is None else {"rho_add_remove": str(cost)}
