"""Repetition in rows of ids: runs of one id, endings in a circle, beginnings and passages that come again.

What belongs here: measuring it, columnar for all rows and exactly for the few where it may be. Not here: how much of it
is too much.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from eagle3_assets.tokens.columns import NO_ID, Ids, Ints, Mask, TokenColumn

GRAM = 8
"""Ids that must come again in the same order to count as a repeated passage."""

_WINDOW = 32
"""Of so many neighbouring passages about one is looked at in the first pass."""

_BEGINNINGS = 16
"""Of several places where a row begins again so many are tried."""

_SPARSE = 64
"""One of so many ids is counted to learn which are frequent."""

_PIECE = 1 << 15
"""Ids that the first pass takes at once: a few arrays of them fit into a processor's cache."""


@dataclass(frozen=True)
class Stretch:
    """Ids ``start`` to ``start + length`` of a row, which repeat after ``period`` ids."""

    start: int
    length: int
    period: int

    @property
    def times(self) -> float:
        """How often the repeated part stands there, the first time counted."""
        return self.length / self.period


def longest_run(ids: Ids) -> Stretch:
    """The longest stretch of one id."""
    bounds = np.concatenate(([0], np.flatnonzero(np.diff(ids)) + 1, [len(ids)]))
    lengths = np.diff(bounds)
    longest = int(lengths.argmax())
    return Stretch(int(bounds[longest]), int(lengths[longest]), 1)


def may_have_run(column: TokenColumn, shortest: int) -> Ints:
    """Numbers of the rows that may have a run of ``shortest`` ids, three at least; none that has one is left out."""
    step = shortest // 3  # a run of three steps holds two neighbouring pairs of equal ids
    every = np.ascontiguousarray(column.values[::step])
    pairs = every[1:] == every[:-1]
    twice = np.flatnonzero(pairs[1:] & pairs[:-1]) * step
    for between in (1, step // 2, step + 1, 2 * step - 1):  # frequent ids are often equal at three places by chance
        twice = twice[column.values[twice + between] == column.values[twice]]
    inside = np.searchsorted(column.offsets, twice, side="right")
    last = np.searchsorted(column.offsets, twice + 2 * step, side="right")
    return np.unique(np.concatenate([inside, last])) - 1 if len(twice) else np.empty(0, np.int64)


def edges_again(column: TokenColumn, starts: Ints, ends: Ints) -> tuple[Mask, Mask]:
    """Rows that may begin again, or end in a loop, one bool each; none that does is left out.

    A row begins again where the ids from its start on, ``GRAM`` at least, stand there a second time right after the
    first; or fewer of them, if that second time in turn is the beginning of more which stand there twice. It ends in a
    loop where its last ids, ``GRAM`` at least, stand before its end, not further away than a third of the row.

    Args:
        column: rows of ids.
        starts: for each row, the index of the first id that counts.
        ends: for each row, the index after the last id that counts.
    """
    if not len(column.values):
        return np.zeros(len(column), np.bool_), np.zeros(len(column), np.bool_)
    first, last = _window(column, starts, 2 * GRAM - 2), _window(column, ends - GRAM, GRAM)
    # Of the passage at each edge its rarest id is looked for; that of the first passage in a row's first half, that of
    # the last one in the rest, so that it takes one pass over all ids.
    often = np.bincount(column.values[::_SPARSE] & 0xFFFF, minlength=0x10000)
    place, place_last = (often[ids & 0xFFFF].argmin(axis=1) for ids in (first[:, :GRAM], last))
    every = np.arange(len(column))
    wanted = np.column_stack((first[every, place], last[every, place_last])).ravel().astype(column.values.dtype)
    middle = np.minimum((column.lengths + starts) // 2 + GRAM, column.lengths)
    sizes = np.column_stack((middle, column.lengths - middle)).ravel()
    places = np.flatnonzero(column.values == np.repeat(wanted, sizes))
    row = np.searchsorted(column.offsets, places, side="right") - 1
    at = places - column.offsets[row]
    early = at < middle[row]
    begins, loops = np.zeros((2, len(column)), np.bool_)
    begins[_begins_again(column, starts, row[early], (at - place[row])[early], GRAM)] = True
    begins[_begins_with_more(column, starts, first)] = True
    loops[_ends_again(column, ends, row[~early], (at - place_last[row])[~early], last)] = True
    return begins, loops


def _window(column: TokenColumn, start: Ints, width: int) -> Ints:
    """So many ids of each row from an index on, ``NO_ID`` outside of the row: int64 ``[rows, width]``."""
    index = start[:, np.newaxis] + np.arange(width)
    inside = (index >= 0) & (index < column.lengths[:, np.newaxis])
    ids: Ints = np.where(inside, column.values[np.where(inside, column.offsets[:-1, np.newaxis] + index, 0)], NO_ID)
    return ids


def _begins_again(column: TokenColumn, starts: Ints, row: Ints, at: Ints, shortest: int | Ints) -> Ints:
    """In which rows ``shortest`` ids or more from the start on may stand a second time at one of these indices.

    All ids before the second time stand there twice then: the first few of them are compared, and the last one.
    """
    period = at - starts[row]
    inside = (period >= shortest) & (at + period <= column.lengths[row])
    row, at, period = row[inside], (column.offsets[row] + at)[inside], period[inside]
    for step in (*range(GRAM), None):  # one pass for each of a few ids, over what is left
        place = at + (period - 1 if step is None else np.minimum(step, period - 1))
        same = column.values[place] == column.values[place - period]
        row, at, period = row[same], at[same], period[same]
    return row


def _begins_with_more(column: TokenColumn, starts: Ints, first: Ints) -> Ints:
    """Rows that begin with the same few ids twice, fewer than ``GRAM``, and may go on with more that stand there twice.

    The second time is the beginning of those, as of the pieces of a stream that each repeat the last one.
    """
    periods = np.arange(1, GRAM)
    twice = np.column_stack([(first[:, :p] == first[:, p : 2 * p]).all(axis=1) for p in periods])
    rows, period = np.nonzero(twice & (starts[:, np.newaxis] + 2 * periods <= column.lengths[:, np.newaxis]))
    few, second = column.take(rows), starts[rows] + periods[period]
    places = np.flatnonzero(few.values == np.repeat(first[rows, 0], few.lengths))
    row = np.searchsorted(few.offsets, places, side="right") - 1
    return rows[_begins_again(few, second, row, places - few.offsets[row], periods[period][row] + 1)]


def _ends_again(column: TokenColumn, ends: Ints, row: Ints, at: Ints, last: Ints) -> Ints:
    """In which rows the last passage stands at one of these indices, before the end."""
    inside = (at >= 0) & (at < ends[row] - GRAM)
    row, at = row[inside], at[inside]
    for step in range(GRAM):
        same = column.values[column.offsets[row] + at + step] == last[row, step]
        row, at = row[same], at[same]
    return row


def ending_loops(ids: Ids, shortest: int, times: int) -> Iterator[Stretch]:
    """Stretches at the end of ``ids`` that repeat, of ``shortest`` ids and ``times`` rounds at least.

    The first one has the shortest period; each of the others is longer than the one before it, so that the rounds of
    a loop that itself ends in a loop are found as well.
    """
    sums = _Sums(ids)
    periods = np.arange(1, len(ids) // times + 1)
    lengths = np.maximum(shortest, times * periods)
    periods, lengths = periods[lengths <= len(ids)], lengths[lengths <= len(ids)]
    start = len(ids) - lengths
    loop = sums.same(start, start + periods, lengths - periods)
    periods, lengths = periods[loop], lengths[loop]
    while len(periods):
        found = ending_loop(ids, int(periods[0]))
        if found.length >= lengths[0]:
            yield found
        longer = lengths > max(found.length, int(lengths[0]))
        periods, lengths = periods[longer], lengths[longer]


def ending_loop(ids: Ids, period: int) -> Stretch:
    """The stretch at the end of ``ids`` that repeats after ``period`` ids."""
    departs = np.flatnonzero(ids[period:] != ids[:-period])
    start = int(departs[-1]) + 1 if len(departs) else 0
    return Stretch(start, len(ids) - start, period)


def growing_beginnings(ids: Ids) -> list[int]:
    """Where ``ids`` begin again and again, each time with more: the pieces of a stream that each repeat the last one.

    Returns:
        The index where each piece begins, without the first one's 0. Each piece is the beginning of the next one and
        shorter, but for the last, which may be as long. Empty where ids do not begin again.
    """
    candidates = np.flatnonzero(ids == ids[0]) if len(ids) else np.empty(0, np.int64)
    sums = _Sums(ids)

    def doubled(start: int, longer_than: int) -> Iterator[int]:
        """Lengths of what stands twice from ``start`` on, the shortest first."""
        first, last = np.searchsorted(candidates, (start + longer_than, (start + len(ids)) // 2), side="right").tolist()
        taken = 1  # twice as many each time: mostly the next one is not far, and then the rest need not be looked at
        while first < last:
            lengths = candidates[first : min(first + taken, last)] - start
            for n in lengths[sums.same(start, start + lengths, lengths)].tolist():
                if np.array_equal(ids[start : start + n], ids[start + n : start + 2 * n]):
                    yield n
            first, taken = first + taken, 2 * taken

    best: list[int] = []
    for first in islice(doubled(0, 0), _BEGINNINGS):
        pieces, start, length = [first], first, first
        while (longer := next(doubled(start, length), None)) is not None:
            length = longer
            start += length
            pieces.append(start)
        if not best or pieces[-1] > best[-1]:
            best = pieces
    if not best:
        return []
    # A loop can be read as pieces of one, two, three rounds, and yet has no more each time.
    end = 2 * best[-1] - [0, *best][-2]
    return best[:1] if np.array_equal(ids[best[0] : end], ids[: end - best[0]]) else best


class _Sums:
    """Sums over the beginnings of ids, which tell in one step whether two slices are equal, but for rare mistakes."""

    def __init__(self, ids: Ids) -> None:
        factors = np.full(len(ids) + 1, 0x9E3779B97F4A7C15, np.uint64)
        factors[0] = 1
        self._powers = np.multiply.accumulate(factors)
        self._sums = np.zeros(len(ids) + 1, np.uint64)
        np.cumsum((ids.astype(np.uint64) + np.uint64(1)) * self._powers[:-1], out=self._sums[1:])

    def same(self, first: int | Ints, second: Ints, length: Ints) -> Mask:
        """Whether the slices of ``length`` ids from ``first`` and from ``second``, which comes later, are equal."""
        ours = (self._sums[first + length] - self._sums[first]) * self._powers[second - first]
        equal: Mask = ours == self._sums[second + length] - self._sums[second]
        return equal


def repeated_shares(column: TokenColumn) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """About what share, 0 to 1, of each row's passages stood in it before: an estimate from a few of them.

    Passages are chosen by their content, the least hash among neighbours, so that equal ones are chosen alike.
    """
    chosen, hashes = _chosen_passages(column.values)
    row = np.searchsorted(column.offsets, chosen, side="right") - 1
    inside = chosen + GRAM <= column.offsets[row + 1]
    row = row[inside]
    keys = (row.astype(np.uint64) << np.uint64(32)) | hashes[inside]
    keys.sort()
    new = np.ones(len(keys), np.bool_)
    new[1:] = keys[1:] != keys[:-1]
    total = np.bincount(row, minlength=len(column))
    distinct = np.bincount((keys[new] >> np.uint64(32)).astype(np.int64), minlength=len(column))
    return np.where(total > 0, 1 - distinct / np.maximum(total, 1), 0.0)


def repeated_share(ids: Ids) -> tuple[float, int]:
    """What share, 0 to 1, of the passages of ``ids`` stood there before, and the index of the first that did."""
    hashes = _gram_hashes(ids)
    if not len(hashes):
        return 0.0, -1
    _, first = np.unique(hashes, return_index=True)
    again: Mask = np.ones(len(hashes), np.bool_)
    again[first] = False
    return float(again.mean()), int(again.argmax()) if again.any() else -1


def _chosen_passages(values: Ids) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.uint32]]]:
    """Where a passage has the least hash of the ``_WINDOW`` around it, and those hashes."""
    half = _WINDOW // 2
    places, found = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
    for start in range(0, len(values), _PIECE):  # pieces overlap, so that they give what the whole would
        hashes = _gram_hashes(values[start : start + _PIECE + _WINDOW + GRAM - 2])
        if len(hashes) < _WINDOW:
            break
        least = hashes
        for step in (1 << n for n in range(_WINDOW.bit_length() - 1)):
            least = np.minimum(least[:-step], least[step:])
        chosen = np.flatnonzero(hashes[half : half + len(least)] == least) + half
        places.append(chosen + start)
        found.append(hashes[chosen])
    return np.concatenate(places), np.concatenate(found)


def _gram_hashes(values: Ids) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """A 32-bit hash of each ``GRAM`` neighbouring ids, by doubling: of two, of four, of eight."""
    hashes = values.view(np.uint32) if values.dtype == np.int32 else values.astype(np.uint32)
    for step, factor in _doublings():
        if len(hashes) <= step:
            return np.empty(0, np.uint32)
        hashes = hashes[:-step] * np.uint32(factor) + hashes[step:]
    return hashes * np.uint32(0x9E3779B1)


def _doublings() -> Iterable[tuple[int, int]]:
    return zip((1, 2, 4), (0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F), strict=True)
