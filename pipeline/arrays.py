"""Arrays of numpy, by what they hold: one name for each in all rooms."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]
Hashes = NDArray[np.uint64]
AnyArray = NDArray[Any]


@cache
def triangle(size: int, above: int = 0) -> tuple[Integers, Integers]:
    """Rows and columns of the upper triangle from diagonal ``above`` on; kept, so nobody may write to them."""
    rows, columns = np.triu_indices(size, above)
    rows.flags.writeable = columns.flags.writeable = False
    return rows, columns
