"""The drafter's vocabulary: which of the target's ids it can say, chosen by how often they are trained on.

What belongs here: counting ids, choosing, the two maps, coverage and its knee. Not here: whose outputs are counted
(``vocabularies``), files (``exports.vocabulary``), drawing (``pages.coverage``), Dagster.

A drafter of D ids has a head of D rows instead of the target's V. Draft id i stands for the target id ``ids[i]``, in
ascending order; what the target says and the drafter cannot costs one accepted token each time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eagle3_assets.tokens.columns import Ids, Ints, Mask
from eagle3_assets.tokens.wording import percent

MAX_VOCAB_SIZE = 1 << 24
"""More ids than any target has: what says more is damaged, and is not counted in so many places of memory."""

SHARES = (0.99, 0.999)
"""Shares of the tokens whose sizes the table names."""


class VocabularyError(ValueError):
    """No draft vocabulary can be made of this; the text says why and what may be done."""


def count_ids(ids: Ids, vocab_size: int) -> Ints:
    """How often each of the target's ids occurs, int64 of length ``vocab_size``.

    Args:
        ids: integers, in any number.
        vocab_size: of the model's config.

    Raises:
        VocabularyError: an id is none of the target's.
    """
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
        strange = ids[(ids < 0) | (ids >= vocab_size)][0]
        raise VocabularyError(
            f"id {strange} is none of the {vocab_size:,} of the target's vocabulary, and it is trained on;"
            " do not lower the law ids_in_vocabulary"
        )
    return np.bincount(ids, minlength=vocab_size).astype(np.int64, copy=False)


@dataclass(frozen=True, eq=False)
class DraftVocabulary:
    """The chosen ids, and what they were chosen by."""

    counts: Ints
    """How often each target id is trained on; int64 of length V."""
    structural: Mask
    """Which target ids are in whatever their count; bool of length V."""
    size: int
    """D: how many ids the drafter has."""

    @cached_property
    def order(self) -> Ints:
        """Target ids as they come in with a growing size, int64 of length V.

        Structural ones first; then the more frequent one, and of equals the lower one. Ids that were never seen are
        equals, too: so what fills a vocabulary larger than what was seen are the lowest ids.
        """
        return np.lexsort((np.arange(len(self.counts)), -self.counts, ~self.structural))

    @cached_property
    def ids(self) -> Ints:
        """The target id of each draft id, ascending; int64 of length D."""
        return np.sort(self.order[: self.size])

    @property
    def d2t(self) -> Ints:
        """What is added to a draft id to have the target's; int64 of length D."""
        return self.ids - np.arange(self.size)

    @property
    def t2d(self) -> Mask:
        """Whether the drafter has a target id; bool of length V."""
        chosen = np.zeros(len(self.counts), np.bool_)
        chosen[self.ids] = True
        return chosen

    @property
    def tokens(self) -> int:
        """Tokens that were counted."""
        return int(self.counts.sum())

    @property
    def seen(self) -> int:
        """Ids that occur at all."""
        return int(np.count_nonzero(self.counts))

    @property
    def unseen(self) -> tuple[int, int]:
        """Of the chosen ids that never occur: the structural ones, and those that fill the vocabulary up."""
        never = self.ids[self.counts[self.ids] == 0]
        structural = int(np.count_nonzero(self.structural[never]))
        return structural, len(never) - structural

    def covered(self, counts: Ints) -> Ints:
        """How many of some tokens a drafter of each size could say, in this order of ids.

        Args:
            counts: of the tokens, int64 of length V; the vocabulary's own, or those of a part.

        Returns:
            int64 of length V + 1, by size.
        """
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts[self.order])))

    @cached_property
    def knee(self) -> int:
        """The size up to which an id adds more than the average seen id does; beyond it each adds less.

        It is where the curve of coverage is farthest above the straight line to all seen ids. Not below the number of
        structural ids, which are in whatever they add.
        """
        # In whole numbers: of two sizes that are equally far above, the smaller one is the knee.
        above = self.covered(self.counts)[: self.seen + 1] * self.seen - np.arange(self.seen + 1) * self.tokens
        return max(int(self.structural.sum()), int(np.argmax(above)), 1)

    def size_for(self, share: float) -> int:
        """The least size that covers this share of the tokens."""
        return int(np.searchsorted(self.covered(self.counts), share * self.tokens))


def choose(counts: Ints, structural: Iterable[int], size: int) -> DraftVocabulary:
    """Chooses the drafter's ids by frequency.

    Args:
        counts: of :func:`count_ids`.
        structural: ids that are in whatever their count.
        size: ids wanted; all of the target's where that is fewer.

    Raises:
        VocabularyError: nothing was counted, or the structural ids alone are more than the size.
    """
    required = np.zeros(len(counts), np.bool_)
    required[list(structural)] = True
    if not counts.any():
        raise VocabularyError("no token is trained on, so none is more frequent than another")
    require_room(int(required.sum()), size)
    return DraftVocabulary(counts, required, min(size, len(counts)))


def require_room(structural: int, size: int) -> None:
    """Says so where the structural ids alone are too many.

    Args:
        structural: how many there are.
        size: ids wanted.

    Raises:
        VocabularyError: there are more than the size.
    """
    if size < structural:
        raise VocabularyError(
            f"a draft vocabulary of {size:,} has no room for the {structural:,} structural ids of the target;"
            " give a larger export.draft_vocab_size"
        )


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a drafter of one size could say of some tokens."""

    dataset: str | None
    """Whose tokens; None for all of them together."""
    size: int
    mark: str | None
    """Why this size is looked at; None for round numbers."""
    tokens: int
    covered: int

    @property
    def share(self) -> float:
        """Of the tokens."""
        return self.covered / self.tokens if self.tokens else 0.0


def marked_sizes(vocabulary: DraftVocabulary) -> dict[int, str | None]:
    """The sizes that a table looks at, ascending, and what each of them is if it is no mere round number."""
    least, most = int(vocabulary.structural.sum()), len(vocabulary.counts)
    sizes: dict[int, list[str]] = {size: [] for power in range(8) if least <= (size := 1_000 << power) < most}
    sizes.setdefault(vocabulary.size, []).append("chosen")
    sizes.setdefault(vocabulary.knee, []).append("knee")
    for share in SHARES:
        sizes.setdefault(vocabulary.size_for(share), []).append(percent(share))
    sizes.setdefault(vocabulary.size_for(1.0), []).append("all")
    sizes.setdefault(most, []).append("the target's own")
    return {size: ", ".join(marks) or None for size, marks in sorted(sizes.items()) if size >= least}


def coverage(vocabulary: DraftVocabulary, parts: Sequence[tuple[str, Ints]] = ()) -> Iterator[Coverage]:
    """The table: every marked size, of all tokens and of each part.

    Args:
        vocabulary: its order of ids is that of all parts together.
        parts: name and counts of each.
    """
    marks = marked_sizes(vocabulary)
    for name, counts in (*parts, (None, vocabulary.counts)):
        covered, tokens = vocabulary.covered(counts), int(counts.sum())
        for size, mark in marks.items():
            yield Coverage(name, size, mark, tokens, int(covered[size]))


def vocabulary_verdict(vocabulary: DraftVocabulary) -> str:
    """The vocabulary in one sentence."""
    curve, tokens, size = vocabulary.covered(vocabulary.counts), vocabulary.tokens, vocabulary.size
    structural, filled = vocabulary.unseen
    said = (
        f"{size:,} of {len(vocabulary.counts):,} ids cover {percent(curve[size] / tokens, 2)} of {tokens:,} tokens;"
        f" {vocabulary.seen:,} ids are seen; the knee is at {vocabulary.knee:,} "
        f"({percent(curve[vocabulary.knee] / tokens, 2)})"
    )
    said += f"; {structural:,} structural ids were never seen and are in" if structural else ""
    return said + (f"; {filled:,} of the lowest ids were never seen and fill it up" if filled else "")
