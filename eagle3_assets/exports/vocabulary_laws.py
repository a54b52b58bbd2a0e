"""The laws of a draft vocabulary, judged on its files as they are read back.

What belongs here: one function for each law. Not here: the files' forms (``vocabulary``), whose tokens are counted
(``exporting``, ``vocabularies``), Dagster.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eagle3_assets.exports.vocabulary import (
    D2T,
    MAPPING,
    NO_TORCH,
    RECORD,
    T2D,
    TOKEN_FREQ,
    ReadVocabulary,
    vocabulary_record,
)
from eagle3_assets.identity import differences
from eagle3_assets.tokens.laws.base import counted
from eagle3_assets.tokens.vocabulary import choose


@dataclass(frozen=True, slots=True)
class VocabularyLaw:
    """One law of a draft vocabulary."""

    name: str
    definition: str
    """One sentence: what holds."""
    meaning: str
    """One sentence: what breaking it means for a trainer."""
    judge: Callable[[ReadVocabulary], str | None]
    """What breaks it, or None."""
    unjudged: Callable[[ReadVocabulary], str | None] = lambda _: None
    """Why it cannot be judged, or None."""


def _maps_agree(read: ReadVocabulary) -> str | None:
    size, vocab_size = read.record.draft_vocab_size, read.record.vocab_size
    if (len(read.d2t), len(read.t2d)) != (size, vocab_size):
        return f"they are of {len(read.d2t):,} and {len(read.t2d):,} ids, {RECORD} says {size:,} and {vocab_size:,}"
    chosen, drafted = np.flatnonzero(read.t2d), np.arange(size) + read.d2t
    if len(chosen) != size:
        return f"{T2D} has {counted(len(chosen), 'id')}, {D2T} has {size:,}"
    if len(wrong := np.flatnonzero(chosen != drafted)):
        draft = wrong[0]
        return f"draft id {draft} is target id {drafted[draft]} by {D2T} and {chosen[draft]} by {T2D}"
    return None


def _mapping_agrees(read: ReadVocabulary) -> str | None:
    assert read.mapping is not None  # noqa: S101 - else it is not judged
    for name, ours, other in zip((D2T, T2D), (read.d2t, read.t2d), read.mapping, strict=True):
        if not np.array_equal(ours, other):
            return f"{MAPPING} and {name} differ"
    return None


def _structural_drafted(read: ReadVocabulary) -> str | None:
    lacking = sorted(i for i in read.structural if not (0 <= i < len(read.t2d) and read.t2d[i]))
    return f"{counted(len(lacking), 'structural id')} lacking, first {lacking[0]}" if lacking else None


def _most_frequent_drafted(read: ReadVocabulary) -> str | None:
    assert read.counts is not None  # noqa: S101 - else it is not judged
    if len(read.t2d) != len(read.counts) or not read.counts.any():
        return f"{TOKEN_FREQ} counts nothing, or {T2D} is of another vocabulary"
    wanted = choose(read.counts, read.record.structural_ids, read.record.draft_vocab_size).t2d
    if len(wrong := np.flatnonzero(wanted != read.t2d)):
        first = wrong[0]
        state = "is in" if read.t2d[first] else "is not in"
        return f"target id {first}, trained on {read.counts[first]:,} times, {state}"
    return None


def _counts_are_trained(read: ReadVocabulary) -> str | None:
    assert read.counts is not None  # noqa: S101 - else it is not judged
    assert read.recount is not None  # noqa: S101 - likewise
    if len(read.counts) != len(read.recount.counts):
        return f"it is of {len(read.counts):,} ids, the target has {len(read.recount.counts):,}"
    again = read.recount.counts
    if read.counts.sum() != again.sum():
        return f"{TOKEN_FREQ} counts {read.counts.sum():,} tokens, and {again.sum():,} have a loss"
    if len(wrong := np.flatnonzero(read.counts != again)):
        first = wrong[0]
        return f"target id {first} is counted {read.counts[first]:,} times and trained on {again[first]:,} times"
    return None


def _record_agrees(read: ReadVocabulary) -> str | None:
    assert read.counts is not None  # noqa: S101 - else it is not judged
    record = read.record
    if not read.counts.any():
        return f"{TOKEN_FREQ} counts nothing, {RECORD} {record.tokens:,} tokens"
    again = vocabulary_record(
        choose(read.counts, record.structural_ids, record.draft_vocab_size),
        record.profile,
        record.tokenizer_sha256,
        record.partitions if read.recount is None else read.recount.partitions,
    )
    wrong = differences(again.model_dump(), record.model_dump())
    if not wrong and sum(record.partitions.values()) != record.tokens:
        wrong = [f"partitions: {record.tokens:,} tokens -> {sum(record.partitions.values()):,}"]
    return f"as counted, and as {RECORD} says: {'; '.join(wrong)}" if wrong else None


def _without_torch(read: ReadVocabulary) -> str | None:
    return NO_TORCH if read.counts is None else None


LAWS = (
    VocabularyLaw(
        "vocabulary_readable",
        "Every file is there, and holds what its form asks for and nothing else.",
        "a trainer stops at it, or reads something that nobody meant.",
        lambda _: None,  # what was read is readable
    ),
    VocabularyLaw(
        "draft_maps_agree",
        "d2t and t2d are of the sizes D and V, and the ids that t2d has are draft id + d2t, ascending.",
        "the drafter would learn one token and propose another.",
        _maps_agree,
    ),
    VocabularyLaw(
        "vocab_mapping_agrees",
        "vocab_mapping.pt holds the same maps as d2t.npy and t2d.npy.",
        "the two trainers would train drafters of different vocabularies.",
        _mapping_agrees,
        _without_torch,
    ),
    VocabularyLaw(
        "structural_ids_drafted",
        "The drafter has every structural id of the target's profile.",
        "it could never propose to end, to close the reasoning, or to open a tool call.",
        _structural_drafted,
    ),
    VocabularyLaw(
        "most_frequent_drafted",
        "Beside structural ids the drafter has those most often trained on, of equals the lower one.",
        "coverage is less than it could be, and other tools would choose other ids.",
        _most_frequent_drafted,
        _without_torch,
    ),
    VocabularyLaw(
        "counts_are_trained_tokens",
        "token_freq.pt counts each id as often as it has a loss in the training samples, and nothing else.",
        "the vocabulary was chosen by other data than what is trained on.",
        _counts_are_trained,
        lambda read: _without_torch(read) or (read.why_no_recount if read.recount is None else None),
    ),
    VocabularyLaw(
        "record_agrees",
        "vocabulary.json says of tokens, seen ids, coverage, knee and partitions what the counts give.",
        "a person would choose a size by figures of other data.",
        _record_agrees,
        _without_torch,
    ),
)
"""Every law of a draft vocabulary."""


@dataclass(frozen=True, slots=True)
class VocabularyVerdict:
    """What one law said."""

    law: VocabularyLaw
    fault: str | None
    unjudged: str | None

    @property
    def sentence(self) -> str:
        """What it said, for a person."""
        if self.fault:
            return f"{self.law.name}: {self.fault}"
        return f"{self.law.name}: {f'not judged: {self.unjudged}' if self.unjudged else 'kept'}"


def judge_vocabulary(read: ReadVocabulary | str) -> tuple[VocabularyVerdict, ...]:
    """Every law over files as read; files that cannot be read break the first and leave the others unjudged."""
    if isinstance(read, str):
        first, *others = LAWS
        unreadable = (VocabularyVerdict(law, None, "the files cannot be read") for law in others)
        return (VocabularyVerdict(first, read, None), *unreadable)
    verdicts = []
    for law in LAWS:
        unjudged = law.unjudged(read)
        verdicts.append(VocabularyVerdict(law, None if unjudged else law.judge(read), unjudged))
    return tuple(verdicts)
