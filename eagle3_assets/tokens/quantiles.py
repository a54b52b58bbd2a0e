"""Places at quantiles of lengths.

What belongs here: by which rule a quantile is a place in an order, for statistics and for samples alike. Not here: the
figures themselves (``lengths``), which samples else a person looks at (``strata``).
"""

import math
from collections.abc import Sequence

import numpy as np

from eagle3_assets.tokens.columns import Ids, Ints


def nearest_rank(count: int, q: float) -> int:
    """The place, from 0 on, of the first of so many ordered values which a share of at least ``q`` do not exceed.

    Args:
        count: one or more.
        q: 0 to 1.
    """
    return max(0, math.ceil(q * count - 1e-9) - 1)


def by_length(lengths: Sequence[int] | Ints, ranks: Sequence[int] | Ids) -> Ints:
    """Positions of samples from the shortest to the longest.

    Args:
        lengths: of each sample.
        ranks: ``stable_rank`` of each sample's id. It orders what is equally long, so that a choice is neither the
            source's order nor the alphabet's, and the same in whatever order the samples come.
    """
    return np.lexsort((np.asarray(ranks, np.uint64), np.asarray(lengths, np.int64)))


def spread(lengths: Sequence[int] | Ints, ranks: Sequence[int] | Ids, count: int) -> list[int]:
    """Positions at even quantiles of :func:`by_length`, the shortest and the longest among them, short to long.

    One alone is the median.
    """
    ordered = by_length(lengths, ranks).tolist()
    if count >= len(ordered):
        return list(ordered)
    quantiles = [step / (count - 1) for step in range(count)] if count > 1 else [0.5]
    return [ordered[nearest_rank(len(ordered), q)] for q in quantiles]
