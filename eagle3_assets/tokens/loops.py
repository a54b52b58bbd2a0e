"""Repetition in rows of ids: runs of one id, endings that go round in a circle, passages that come again.

What belongs here: measuring it, columnar for all rows and exactly for the few where it may be. Not here: how much of it
is too much.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from eagle3_assets.tokens.columns import Ids, Ints, Mask, TokenColumn

GRAM = 8
"""Ids that must come again in the same order to count as a repeated passage."""

_WINDOW = 32
"""Of so many neighbouring passages about one is looked at in the first pass."""

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


def ending_periods(column: TokenColumn, ends: Ints) -> Ints:
    """After how many ids the last ``GRAM`` before ``ends`` stood there the last time, 0 where they did not.

    Args:
        column: rows of ids.
        ends: for each row, the index after the last id that counts.
    """
    last = column.at(ends - 1)
    places = np.flatnonzero(column.values == np.repeat(last.astype(column.values.dtype), column.lengths))
    row = np.searchsorted(column.offsets, places, side="right") - 1
    at = places - column.offsets[row]
    keep = (at >= GRAM - 1) & (at < ends[row] - 1)
    row, at = row[keep], at[keep]
    for back in range(1, GRAM):  # one pass for each id of the passage, over what is left
        start = column.offsets[row]
        same = column.values[start + at - back] == column.values[start + ends[row] - 1 - back]
        row, at = row[same], at[same]
    periods = np.zeros(len(column), np.int64)
    periods[row] = ends[row] - 1 - at  # places go up in a row, so that the nearest one stays
    return periods


def ending_loop(ids: Ids, period: int) -> Stretch:
    """The stretch at the end of ``ids`` that repeats after ``period`` ids."""
    departs = np.flatnonzero(ids[period:] != ids[:-period])
    start = int(departs[-1]) + 1 if len(departs) else 0
    return Stretch(start, len(ids) - start, period)


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
