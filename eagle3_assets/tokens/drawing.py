"""A sample of a partition's rows for laws that cannot look at all of them.

What belongs here: which rows are drawn. Not here: what is done with them.
"""

from collections.abc import Iterable, Sequence

import polars as pl

from eagle3_assets.partitions import stable_rank
from eagle3_assets.tokens.columns import Ints

_RANK, _PLACE = "rank of the row", "place of the row"


class Draw:
    """Takes rows batch by batch and keeps those with the lowest stable hash of their sample id.

    So the choice depends on the ids alone: the same rows in other batches, or in another order, give the same sample,
    and rows that are added push out as few as they must.
    """

    def __init__(self, size: int, columns: Iterable[str]) -> None:
        """A sample of at most ``size`` rows, with those of ``columns`` that the rows have."""
        self._size, self._columns = size, set(columns)
        self._kept = pl.DataFrame(schema={_RANK: pl.UInt64, _PLACE: pl.Int64})

    def add(self, rows: pl.DataFrame, places: Sequence[int] | Ints) -> None:
        """Offers rows with a column ``sample_id``, which have these places in the partition."""
        ranks = [stable_rank(sample) for sample in rows["sample_id"].fill_null("")]
        part = rows.select(name for name in rows.columns if name in self._columns).with_columns(
            pl.Series(_RANK, ranks, pl.UInt64), pl.Series(_PLACE, places, pl.Int64)
        )
        if len(self._kept) == self._size:
            part = part.filter(pl.col(_RANK) <= self._kept[_RANK].max())
        if len(part):
            together = pl.concat([self._kept, part], how="diagonal_relaxed")
            self._kept = together.sort(_RANK, _PLACE).head(self._size)

    def rows(self) -> tuple[pl.DataFrame, list[int]]:
        """The sample in the partition's order, and its rows' places there."""
        kept = self._kept.sort(_PLACE)
        return kept.drop(_RANK, _PLACE), kept[_PLACE].to_list()
