"""Laws that decode outputs: the engine's own text, broken characters, and what a way over text would have changed.

They look at a sample of the rows (``Context.sample_rows``), and they only warn: ids are the data, text is a view.
"""

from collections import Counter

import numpy as np
import polars as pl

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.codec import Codec
from eagle3_assets.tokens.columns import Mask
from eagle3_assets.tokens.laws.base import RowJudgement, RowLaw, find, needs_tokenizer
from eagle3_assets.tokens.safe_text import quoted

BROKEN = "\ufffd"
"""Stands in decoded text for bytes that are no character."""

DRIFT_KINDS = ("whitespace", "digits", "multi_byte", "structural", "other")
"""Where a retokenized output begins to differ: kinds of tokens."""

SUSPICIOUS_ROWS = 500
"""From so many outputs on it is odd if not one of them drifts: of a target that drifts in 1 % of them, that is one
chance in 150."""


def judge_text_agrees(batch: Batch) -> RowJudgement:
    """Compares the engine's text with the decoded ids, with and without the stop token that an engine may trim.

    Of other tools it is not known whether they asked for special tokens in their text, so either is right.
    """
    codec = _codec(batch)
    given = batch.column("text", pl.String).to_list()
    judged = np.array([a is not None and b is not None for a, b in zip(given, batch.output_texts, strict=True)], bool)
    wrong = np.zeros(len(batch), np.bool_)
    index, places = np.full(len(batch), -1, np.int64), np.zeros(len(batch), np.int64)
    for row in np.flatnonzero(judged).tolist():
        ids, text, decoded = batch.output.row(row).tolist(), given[row], batch.output_texts[row] or ""
        if text != decoded and not _same_but_flags(text, ids, batch, row):
            wrong[row] = True
            places[row] = _first_difference(text, decoded)
            index[row] = codec.token_at(ids, int(places[row]))

    def detail(row: int) -> str:
        place, decoded = int(places[row]), batch.output_texts[row] or ""
        theirs, ours = (quoted(t[place : place + 12]) for t in (given[row], decoded))
        return f"from character {place} on the engine's text is {theirs}, the ids decode to {ours}"

    return RowJudgement(judged, (find(wrong, detail, index),))


def judge_no_replacement_character(batch: Batch) -> RowJudgement:
    """Looks for bytes that are no character, but for the last ones of an output which a cap ended."""
    codec = _codec(batch)
    judged = _decoded(batch)
    places = np.full(len(batch), -1, np.int64)
    index = np.full(len(batch), -1, np.int64)
    counts = np.zeros(len(batch), np.int64)
    for row in np.flatnonzero(judged).tolist():
        decoded = batch.output_texts[row] or ""
        text = decoded.rstrip(BROKEN) if batch.cut_off[row] else decoded
        if BROKEN in text:
            places[row], counts[row] = text.index(BROKEN), text.count(BROKEN)
            index[row] = codec.token_at(batch.output.row(row).tolist(), int(places[row]))

    def detail(row: int) -> str:
        token = int(batch.output.row(row)[index[row]])
        more = f" and {counts[row] - 1} more" if counts[row] > 1 else ""
        return f"the bytes of id {token} at index {index[row]} are no character{more}"

    return RowJudgement(judged, (find(places >= 0, detail, index),))


def judge_retokenization_drift(batch: Batch) -> RowJudgement:
    """Encodes the decoded outputs again and says where the ids depart, and at which kind of token."""
    codec = _codec(batch)
    judged = _decoded(batch)
    index = np.full(len(batch), -1, np.int64)
    kinds, said = {}, {}
    for row in np.flatnonzero(judged).tolist():
        ids = batch.output.row(row).tolist()
        again = codec.ids(batch.output_texts[row] or "")
        if again != ids:
            place = next((i for i, (a, b) in enumerate(zip(ids, again, strict=False)) if a != b), None)
            index[row] = place = min(len(ids), len(again)) if place is None else place
            was, now = ids[place : place + 1], again[place : place + 1]
            kinds[row] = _kind(was + now, codec)
            said[row] = f"{_shown(was, codec)} would become {_shown(now, codec)}"

    def detail(row: int) -> str:
        kind = kinds[row].replace("_", "-")
        return f"decoded and encoded again it differs from index {index[row]} on, at {kind} text: {said[row]}"

    counts = Counter({f"drift_{kind}": 0 for kind in DRIFT_KINDS})
    counts.update(f"drift_{kind}" for kind in kinds.values())
    return RowJudgement(judged, (find(index >= 0, detail, index),), counts=counts)


def remark_on_drift(judged: int, violations: int) -> str | None:
    """What is odd about no drift at all."""
    if violations or judged < SUSPICIOUS_ROWS:
        return None
    return (
        f"not one of {judged:,} outputs would be changed by decoding and encoding, as is usual of ids that were made"
        " from text"
    )


def _codec(batch: Batch) -> Codec:
    codec = batch.context.codec
    assert codec is not None  # noqa: S101 - the laws' condition
    return codec


def _decoded(batch: Batch) -> Mask:
    return np.array([text is not None for text in batch.output_texts], np.bool_)


def _same_but_flags(text: str, ids: list[int], batch: Batch, row: int) -> bool:
    """Whether a text is what other settings of the same decoding give."""
    codec, context = _codec(batch), batch.context
    forms = [ids, ids[:-1]] if ids[-1] in context.all_stop_ids else [ids]
    # This pipeline's own requests ask for every token.
    flags = (False,) if context.complete_records else (False, True)
    texts = {codec.text(form, skip_special_tokens=skip) for form in forms for skip in flags}
    if batch.cut_off[row]:  # a character that the cap cut in two may be kept back
        return text.rstrip(BROKEN) in {other.rstrip(BROKEN) for other in texts}
    return text in texts


def _first_difference(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _kind(ids: list[int], codec: Codec) -> str:
    if any(i in codec.control_ids for i in ids):
        return "structural"
    texts = [codec.text([i]) for i in ids]
    if not all(text.isascii() for text in texts):
        return "multi_byte"
    if any(not text.strip() for text in texts):
        return "whitespace"
    return "digits" if any(character.isdigit() for text in texts for character in text) else "other"


def _shown(ids: list[int], codec: Codec) -> str:
    if not ids:
        return "nothing"
    return codec.label(ids[0]) if ids[0] in codec.control_ids else f"id {ids[0]} {quoted(codec.text(ids))}"


_NOT_DECODED = "the tokenizer has no text for an id of theirs, or they have no ids"

TEXT_AGREES = RowLaw(
    name="text_agrees",
    definition="The engine's own text is what the output ids decode to, with the stop token or without it.",
    asset="raw_generations",
    effect="warn",
    meaning="Text and ids of one reply tell two stories: the engine's detokenizer is at fault, or one of them was"
    " changed on the way.",
    remedy="Train on the ids and never on that text; look at the first samples to see which of the two is wrong, and"
    " update the engine.",
    causes=("sgl-project/sglang#31598",),
    judge=judge_text_agrees,
    columns=("output_ids", "text"),
    nothing="no row records the engine's text beside ids that can be decoded",
    unless=needs_tokenizer,
    sampled=True,
)

NO_REPLACEMENT_CHARACTER = RowLaw(
    name="no_replacement_character",
    definition="The decoded output has no U+FFFD, but for the end of one that a cap cut off inside a character.",
    asset="raw_generations",
    effect="warn",
    meaning="Bytes of the output are no text: the target lost its way inside a character, or ids were lost or changed.",
    remedy="Look at the first samples; a few are a target's slips at high temperature, many are a fault of the engine.",
    judge=judge_no_replacement_character,
    columns=("output_ids",),
    nothing="no row has output ids that can be decoded",
    others=_NOT_DECODED,
    unless=needs_tokenizer,
    sampled=True,
)

RETOKENIZATION_DRIFT = RowLaw(
    name="retokenization_drift",
    definition="Decoding the output and encoding its text gives the same ids; over many outputs it hardly ever does so"
    " for all.",
    asset="raw_generations",
    effect="warn",
    meaning="The samples are right as they are, and a way over text, such as a chat endpoint, would have changed them:"
    " a drafter would learn tokens that its target never emits.",
    remedy="Nothing is to be mended while ids are kept as they came. If no output at all drifts, find out whether these"
    " ids were made from text.",
    causes=("huggingface/trl#5224", "rllm-org/rllm#272"),
    judge=judge_retokenization_drift,
    columns=("output_ids",),
    nothing="no row has output ids that can be decoded",
    others=_NOT_DECODED,
    unless=needs_tokenizer,
    sampled=True,
    remark=remark_on_drift,
)
