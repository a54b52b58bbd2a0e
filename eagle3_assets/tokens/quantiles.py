"""Places at quantiles of lengths.

What belongs here: by which rule a quantile is a place in an order, for statistics and for samples alike. Not here: the
figures themselves (``lengths``), which samples else a person looks at (``strata``).
"""

import math
from collections.abc import Sequence


def nearest_rank(count: int, q: float) -> int:
    """The place, from 0 on, of the first of so many ordered values which a share of at least ``q`` do not exceed.

    Args:
        count: one or more.
        q: 0 to 1.
    """
    return max(0, math.ceil(q * count - 1e-9) - 1)


def spread(lengths: Sequence[int], count: int) -> list[int]:
    """Positions at even quantiles of the lengths, the shortest and the longest among them, short to long.

    Equal lengths are taken in their order, so the choice is the same every time. One alone is the median.
    """
    ordered = sorted(range(len(lengths)), key=lambda position: (lengths[position], position))
    if count >= len(ordered):
        return ordered
    quantiles = [step / (count - 1) for step in range(count)] if count > 1 else [0.5]
    return [ordered[nearest_rank(len(ordered), q)] for q in quantiles]
