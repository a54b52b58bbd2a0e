"""What the chat template itself writes of each conversation: its prompt with every text replaced by inert text.

What belongs here: what laws compare prompts with, in the few bytes for each that they need of it. Not here: making
inert text, rendering it, judging.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from eagle3_assets.tokens.codec import PLAIN, Codec
from eagle3_assets.tokens.columns import Mask, TokenColumn

INERT_PROMPTS = pl.Schema(
    {"sample_id": pl.String(), "prompt_ids": pl.List(pl.Int32()), "unrendered": pl.List(pl.String())}
)
"""Prompts of inert text, null ids where the template refused; ``unrendered`` names the messages that became nothing of
the prompt, as ``message 0 (system)``, and is null where that is not known."""

REFUSED = 0
"""The kind of the conversations that the template refuses with inert text."""


@dataclass(frozen=True)
class InertPrompts:
    """Prompts of inert text, by sample: without their texts few conversations differ, and each kind is kept once."""

    kinds: Mapping[str, int]
    """Number of each sample's kind, by sample id."""
    control: TokenColumn
    """Control ids of each kind in their order, one row for each; that of ``REFUSED`` is null."""
    untold: Mapping[str, frozenset[str]]
    """Declared tools that a sample's prompt of inert text does not name, by sample id; left out where it names all."""
    unrendered: Mapping[str, tuple[str, ...] | None] | None
    """Messages of which nothing is in a sample's prompt, by sample id; left out where there is something of all, None
    where that is not known of the sample, or of any."""

    @classmethod
    def of(
        cls,
        batches: Iterable[pl.DataFrame],
        control_ids: Iterable[int],
        codec: Codec | None = None,
        tools: Mapping[str, tuple[str, ...]] | None = None,
    ) -> "InertPrompts":
        """Reads each batch once and keeps none.

        Args:
            batches: columns of :data:`INERT_PROMPTS`, perhaps without ``unrendered``; of rows with the same sample id
                the first one counts.
            control_ids: ids of the target's own grammar.
            codec: to look for names of tools; without one, none is missed.
            tools: names of the tools that each sample declares, by sample id.
        """
        control_ids = frozenset(control_ids)
        kinds: dict[str, int] = {}
        numbers: dict[bytes | None, int] = {None: REFUSED}
        untold: dict[str, frozenset[str]] = {}
        unrendered: dict[str, tuple[str, ...] | None] = {}
        told = True
        for batch in batches:
            samples = batch["sample_id"].fill_null("").to_list()
            prompts = TokenColumn.from_series(batch["prompt_ids"])
            control = TokenColumn.from_marks(prompts.marks(control_ids))
            memory, ends = control.values.astype(np.int64).tobytes(), (control.offsets * 8).tolist()
            told &= "unrendered" in batch.columns
            lost: list[list[str] | None] = batch["unrendered"].to_list() if told else [[]] * len(batch)
            every = zip(samples, prompts.null_rows.tolist(), pairwise(ends), lost, strict=True)
            new = np.zeros(len(batch), np.bool_)
            for row, (sample, refused, (start, end), messages) in enumerate(every):
                if sample in kinds:
                    continue
                kinds[sample] = numbers.setdefault(None if refused else memory[start:end], len(numbers))
                new[row] = True
                if messages != []:
                    unrendered[sample] = None if messages is None else tuple(messages)
            if codec is not None and tools:
                untold.update(_untold(samples, prompts, new, codec, tools))
        ids = [np.frombuffer(key or b"", np.int64) for key in numbers]
        offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        control = TokenColumn(np.concatenate(ids), offsets, np.arange(len(ids)) == REFUSED)
        return cls(kinds, control, untold, unrendered if told else None)


def _untold(
    samples: Sequence[str], prompts: TokenColumn, chosen: Mask, codec: Codec, tools: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Of the chosen rows (bool) those whose prompt does not name all tools that their sample declares, and which."""
    declared = [tools.get(sample, ()) for sample in samples]
    texts = codec.texts(prompts, chosen & np.array([bool(names) for names in declared], np.bool_))
    for sample, names, text in zip(samples, declared, texts, strict=True):
        # Inert text keeps plain names alone.
        if text is not None and (lost := [n for n in names if PLAIN.fullmatch(n) and not tells(text, n)]):
            yield sample, frozenset(lost)


def tells(text: str, name: str) -> bool:
    """Whether a name stands in a text as it is or as JSON writes it, and not inside a longer word."""
    spellings = {name, json.dumps(name)[1:-1], json.dumps(name, ensure_ascii=False)[1:-1]}
    return any(re.search(rf"(?<!\w){re.escape(s)}(?!\w)", text, re.ASCII) for s in spellings if s in text)
