"""Which conversations of a source are chosen, by hashes of their ids alone: never by where they stand.

What belongs here: ranks and the smallest of them. Not here: rows.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

_LEAST_CLEARED = 4096


def sample_rank(seed: int, conversation_id: str) -> int:
    """A number below 2**64, the same on every machine: a sample takes the conversations with the smallest.

    It has nothing to do with the number that chooses the shard.
    """
    return int.from_bytes(hashlib.sha256(f"sample {seed} {conversation_id}".encode()).digest()[:8], "big")


def in_share(rank: int, share: float) -> bool:
    """Whether a rank is in a sample of this share. No other conversation has a say in it."""
    return rank < share * 2**64


class Smallest:
    """The n smallest of the ranks seen so far, equal ones counted once, in memory of about n of them."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._held: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._new: list[int] = []
        self._bound = 2**64 - 1

    def add(self, rank: int) -> bool:
        """Whether the rank may be among the n smallest: not if n smaller ones are known."""
        if rank > self._bound:
            return False
        self._new.append(rank)
        if len(self._new) > max(self._n, _LEAST_CLEARED):
            self._clear()
        return True

    @property
    def bound(self) -> int:
        """The largest of the n smallest; the largest rank there is while there are not n of them."""
        self._clear()
        return self._bound

    def _clear(self) -> None:
        if self._new:
            self._held = np.unique(np.concatenate([self._held, np.array(self._new, dtype=np.uint64)]))[: self._n]
            self._new = []
            if len(self._held) == self._n:
                self._bound = int(self._held[-1])
