"""What a judgement needs besides the rows: the target, the dataset's limits, and what the rows are compared with.

What belongs here: plain values, and the index of current prompts. Not here: reading any of them from files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import Literal

import numpy as np
import polars as pl

from eagle3_assets.config import LengthBand
from eagle3_assets.tokens.codec import Codec
from eagle3_assets.tokens.columns import TokenColumn, where
from eagle3_assets.tokens.inert_prompts import InertPrompts
from eagle3_assets.tokens.profile import TargetProfile, Tokenizer

SAMPLE_ROWS = 1_000
"""Rows of a partition that laws which decode look at, unless they are told otherwise."""


@dataclass(frozen=True)
class PromptIndex:
    """The prompts that a partition of generations is compared with, a few dozen bytes for each."""

    hashes: Mapping[str, int | None]
    """Of the prompt ids (``TokenColumn.hashes``), by sample id; None where a sample has no prompt."""
    ready: frozenset[str]
    """Ids of the samples whose prompt may be sent."""

    @classmethod
    def of(cls, batches: Iterable[pl.DataFrame]) -> "PromptIndex":
        """Reads batches of ``tokenized_prompts``: columns ``sample_id``, ``status``, ``prompt_ids``."""
        hashes: dict[str, int | None] = {}
        ready: set[str] = set()
        for batch in batches:
            ids = batch["sample_id"].to_list()
            prompts = TokenColumn.from_series(batch["prompt_ids"])
            found: list[int | None] = [*prompts.hashes()]
            for row in np.flatnonzero(prompts.null_rows).tolist():
                found[row] = None
            hashes.update(zip(ids, found, strict=True))
            ready.update(compress(ids, where(batch["status"] == "ready")))
        return cls(hashes, frozenset(ready))


@dataclass(frozen=True)
class FileIdentity:
    """What a sealed file says of all its rows together."""

    fingerprint: str
    sampling: str
    """As each row records it: canonical JSON."""
    weights: str | None = None
    """Name of the weights, with their version where a server has one: ``path:...@default``."""


@dataclass(frozen=True)
class Context:
    """Everything but the rows. What is left out makes the laws that need it say so; nothing passes for want of it."""

    profile: TargetProfile
    stop_token_ids: frozenset[int] | None = None
    """The stop set recorded in the partition's identity; without one, the profile's."""
    quarantine_limit: float = 0.01
    """Share of rows, 0 to 1, above which a quarantining law refuses the partition."""
    coverage: float = 1.0
    """Least share of sent prompts that must have an output, 0 to 1."""
    length_band: LengthBand = field(default_factory=LengthBand)
    law_effects: Mapping[str, Literal["warn"]] = field(default_factory=dict)
    """Quarantining laws lowered to warn for this target."""
    tokenizer: Tokenizer | None = None
    remote_code: tuple[str, ...] = ()
    """What code of the target's own the tokenizer was loaded with: a name and hash for each file."""
    current_prompts: PromptIndex | None = None
    """What ``tokenized_prompts`` holds now."""
    rerendered_prompts: pl.DataFrame | None = None
    """``sample_id`` and ``prompt_ids`` of prompts rendered again just now: all of them, or some.

    A sample that was to be rendered again and gave nothing stands there with null ids.
    """
    inert_prompts: InertPrompts | None = None
    """The same conversations rendered with every text replaced by inert text; see :meth:`with_inert_prompts`."""
    source_sample_ids: frozenset[str] | None = None
    """Ids of the samples that ``prompts`` holds now."""
    declared_tools: Mapping[str, tuple[str, ...]] | None = None
    """Names of the tools that each sample's prompt declares, by sample id; empty for a sample without tools.

    Without it, what the rows say themselves in a column ``tools`` counts.
    """
    file_identity: FileIdentity | None = None
    """Of the sealed file that the rows come from."""
    replay_tolerance: float | None = None
    """How far a replay's log-probabilities may lie from genuine ones, in natural-log units; None without a replay."""
    complete_records: bool = False
    """Whether this pipeline wrote the rows. It records everything, so a value that is in no row at all breaks the law
    that needs it, as one that is only in some rows does anywhere."""
    mixed_records: bool = False
    """Whether rows may come from different tools, so that what some of them record says nothing of the others: a row
    without a value is then not judged by the laws that need it."""
    sample_rows: int = SAMPLE_ROWS
    """Most rows that laws which decode look at: those first by a stable hash of the sample id."""

    def with_inert_prompts(self, batches: Iterable[pl.DataFrame]) -> "Context":
        """The same context with prompts of inert text: columns of ``inert_prompts.INERT_PROMPTS``."""
        inert = InertPrompts.of(batches, self.control_ids, self.codec, self.declared_tools)
        return replace(self, inert_prompts=inert)

    @cached_property
    def rerendered(self) -> tuple[Mapping[str | None, int], TokenColumn]:
        """The prompts that were rendered again, after the last one a null row, and each sample's row, its first."""
        frame = self.rerendered_prompts
        assert frame is not None  # noqa: S101 - the condition of the law that asks
        rows = {sample: row for row, sample in reversed([*enumerate(frame["sample_id"].to_list())])}
        ids = frame["prompt_ids"]
        return rows, TokenColumn.from_series(pl.concat([ids, ids.clear(1)]))

    @cached_property
    def codec(self) -> Codec | None:
        """The tokenizer, ready to decode and encode."""
        return Codec(self.tokenizer, self.profile) if self.tokenizer is not None else None

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """Ids of the target's own grammar, as far as they are known."""
        named = frozenset(self.profile.tokens) | self.profile.stop_ids
        return self.codec.control_ids if self.codec is not None else named

    def label(self, token_id: int) -> str:
        """An id as people read it."""
        return self.profile.label(token_id) if self.codec is None else self.codec.label(token_id)

    @cached_property
    def recorded_stop_ids(self) -> frozenset[int]:
        """The ids at which the engine stopped."""
        return self.profile.stop_ids if self.stop_token_ids is None else self.stop_token_ids

    @cached_property
    def all_stop_ids(self) -> frozenset[int]:
        """The ids after which an output must not go on: those the engine stopped at, and those the target ends with."""
        return self.recorded_stop_ids | self.profile.stop_ids
