"""The target's tokenizer as laws use it: ids to text and back, every flag explicit.

What belongs here: decoding, encoding, and which ids stand apart from ordinary text. Not here: what a text should be.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eagle3_assets.tokens.columns import Mask, TokenColumn
from eagle3_assets.tokens.profile import TargetProfile, Tokenizer

PLAIN = re.compile(r"[\w.:$/-]*")
"""Text that spells no structural token: those stand in brackets of some kind."""

_MARKUP = re.compile(r"<.+>|\[.+\]", re.DOTALL)


def marked(ids: Iterable[object]) -> str:
    """How ids without a text are shown, so that none disappears: ``<id 999999>``."""
    return "".join(f"<id {token_id}>" for token_id in ids)


@dataclass(frozen=True)
class Codec:
    """A tokenizer and its profile."""

    tokenizer: Tokenizer
    profile: TargetProfile

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """Ids of the target's own grammar: the profile's, special tokens, and added ones that look like markup.

        Others that a tokenizer adds are ordinary text: runs of spaces, single letters.
        """
        added = self.tokenizer.added_tokens_decoder
        markup = {i for i, token in added.items() if token.special or _MARKUP.fullmatch(token.content)}
        return frozenset(markup) | self.profile.tokens.keys() | self.profile.stop_ids

    @cached_property
    def known(self) -> Mask:
        """For each id of the model's vocabulary whether the tokenizer has a text for it."""
        known = np.zeros(self.profile.vocab_size, np.bool_)
        ids = np.fromiter({*self.tokenizer.get_vocab().values(), *self.tokenizer.added_tokens_decoder}, np.int64)
        known[ids[(ids >= 0) & (ids < len(known))]] = True
        return known

    def label(self, token_id: int) -> str:
        """An id as people read it: ``</think> (163607)``, or ``id 17`` for an ordinary one."""
        token = self.tokenizer.added_tokens_decoder.get(token_id)
        return self.profile.label(token_id) if token is None else f"{token.content} ({token_id})"

    def text(self, ids: list[int], *, skip_special_tokens: bool = False) -> str:
        """The text of known ids. Nothing is tidied: a space that was not generated is in no output."""
        return str(
            self.tokenizer.decode(
                ids,
                skip_special_tokens=skip_special_tokens,
                clean_up_tokenization_spaces=False,
                spaces_between_special_tokens=False,
            )
        )

    def has_text(self, token_id: int) -> bool:
        """Whether an id, any number at all, is one that the tokenizer has a text for."""
        return 0 <= token_id < len(self.known) and bool(self.known[token_id])

    def texts(self, column: TokenColumn, wanted: Mask | None = None) -> list[str | None]:
        """The text of each row; None where the row is null or empty, has an id without text, or is not wanted."""
        judged = (column.lengths > 0) & (column.not_among(self.known).count() == 0)
        judged &= True if wanted is None else wanted
        return [self.text(column.row(row).tolist()) if judged[row] else None for row in range(len(column))]

    def ids(self, text: str) -> list[int]:
        """The ids of a text, tokens that it spells among them."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def token_at(self, ids: list[int], character: int) -> int:
        """Index of the id that the character at this place of the ids' text comes from; past its end, the last one."""
        through = bisect_right(range(len(ids)), character, key=lambda count: len(self.text(ids[:count])))
        return through - 1
