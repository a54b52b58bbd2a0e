"""How a law is declared, and what its function gives back.

What belongs here: the forms. Not here: any law.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import HUGE_ID, NULL_ID, Ints, Mask
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.safe_text import visible

Asset = Literal["tokenized_prompts", "raw_generations"]
Scope = Literal["row", "partition"]
Effect = Literal["block", "refuse", "quarantine", "warn"]
Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Found:
    """Rows of a batch with one kind of fault.

    ``rows`` (int64) are row numbers of the batch, ``index`` (int64) the position of the offending id in each, -1 where
    the fault is at no single id; ``details`` say in words what is wrong with each.
    """

    rows: Ints
    index: Ints
    details: list[str]
    severity: Severity


def find(mask: Mask, detail: Callable[[int], str], index: Ints | None = None, severity: Severity = "error") -> Found:
    """The rows where ``mask`` (bool, one for each row) is true.

    Args:
        mask: which rows are at fault.
        detail: what is wrong with a row, given its number; called for rows at fault alone.
        index: int64, one for each row: the offending id's position; -1 or left out where there is no single one.
        severity: ``error`` breaks the law, ``warning`` is a remark.
    """
    rows = np.flatnonzero(mask)
    where = np.full(len(rows), -1, np.int64) if index is None else index[rows]
    return Found(rows, where, [detail(row) for row in rows.tolist()], severity)


@dataclass(frozen=True)
class RowJudgement:
    """What a row law says of a batch."""

    judged: Mask
    """Rows that it could say something about."""
    found: tuple[Found, ...] = ()
    missing: Mask | None = None
    """Rows that lack a value which the law is about. If others of the partition have it, they break the law."""
    recorded: Mask | None = None
    """Rows that have that value, where this is not the same as ``judged``."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers of rows by what was found in them; those of all batches are added up."""


@dataclass(frozen=True)
class PartitionJudgement:
    """What a partition law says."""

    violations: int
    details: tuple[str, ...] = ()
    """What was found, first the worst; may also state figures of a law that holds."""
    samples: tuple[tuple[str, str], ...] = ()
    """Sample id and detail of samples which the finding names."""
    figures: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None
    """What could not be judged."""
    judged: bool = True
    """Whether anything could be."""
    broken: tuple[tuple[str, str], ...] = ()
    """Sample id and detail of samples at fault by themselves: these are quarantined, whatever the law's effect."""
    concerned: int | None = None
    """Rows that the faults are about, where these are not one for each fault."""


def alike(hashes: pl.Series) -> pl.Series:
    """Which values of a column of 64-bit integers stand there more than once, bool; null ones never do.

    By sorting, in a few bytes a row: a table of all values, as polars makes it, has a hundred.
    """
    ordered = np.sort(hashes.drop_nulls().to_numpy())
    twice = pl.Series(np.unique(ordered[1:][ordered[1:] == ordered[:-1]]), dtype=hashes.dtype)
    return hashes.is_in(twice.implode()).fill_null(value=False)


def counted(number: int, noun: str) -> str:
    """``1 fault``, ``2 faults``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shown_id(token: int) -> str:
    """An id that is no token of the target's."""
    if token == HUGE_ID:
        return "an id of more than 63 bits"
    return "a missing id (null, or no whole number)" if token == NULL_ID else f"id {token}"


def shown_name(sample: str | None) -> str:
    """A sample's name, safe to show."""
    return visible(sample) if sample else "a row without sample id"


def unremarkable(judged: int, violations: int) -> str | None:  # noqa: ARG001 - the form of a remark
    """The remark of a law that has none about all of its rows."""
    return None


def always(context: Context) -> str | None:  # noqa: ARG001 - the form of a condition
    """The condition of a law that needs nothing but the rows."""
    return None


@dataclass(frozen=True, kw_only=True)
class Law:
    """One law of token fidelity: what it says, what breaking it means, and what a person does then."""

    name: str
    definition: str
    """One sentence: what holds."""
    asset: Asset
    effect: Effect
    meaning: str
    """One sentence, shown when it fails: what this means for a drafter."""
    remedy: str
    """One sentence: what a person does."""
    causes: tuple[str, ...] = ()
    """Public reports of faults that break it, as ``owner/repository#number``."""
    unless: Callable[[Context], str | None] = always
    """Why the law cannot be judged in a context; None where it can."""
    lowerable: bool = False
    """Whether breaking it can be a target's habit, so that the config may lower it to warn. Only for ``quarantine``."""

    @property
    def scope(self) -> Scope:
        """Whether it is about single rows or about all of them together."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class RowLaw(Law):
    """A law about single rows: its function sees one batch at a time."""

    judge: Callable[[Batch], RowJudgement]
    columns: tuple[str, ...]
    """Without these columns it is not judged."""
    nothing: str
    """Why it is not judged where no row is such that it could be."""
    others: str = ""
    """Why it says nothing of a row while it can be judged of others, where ``nothing`` does not say it of these."""
    missing: str = ""
    """What is wrong with a row that lacks a value which others have."""
    partly: Callable[[Context], str | None] = always
    """What of the law cannot be judged in a context though the rest can; None where all can."""
    explained_by_echo: bool = False
    """Whether an echoed prompt breaks this law too, so that its findings name the echo first."""
    sampled: bool = False
    """Whether it is too slow for every row: it is shown ``Context.sample_rows`` of them. Such laws only warn."""
    remark: Callable[[int, int], str | None] = unremarkable
    """What is odd about all rows together, given how many were judged and how many broke the law."""

    @property
    def scope(self) -> Scope:
        """``row``."""
        return "row"


@dataclass(frozen=True, kw_only=True)
class PartitionLaw(Law):
    """A law about all rows together: its function sees a few facts of each row, collected over the batches.

    The facts are a frame with the columns ``sample_id``, ``status``, ``reason``, ``output_tokens`` (null without an
    output), ``finish_type`` and ``max_new_tokens``, one row for each row of the partition in its order. Those of
    ``raw_generations`` have the columns ``weight_version``, ``endpoint``, ``prompt_tokens`` (0 without a prompt),
    ``prompt_hash``, ``output_hash`` (64 bits of the ids' sha256) and ``plain_end`` (last id of an output that holds no
    structural id of the target) and ``at_stop`` (whether the last id is a stop id) besides, which are null
    where a row is not generated or lacks the value.
    """

    judge: Callable[[pl.DataFrame, Context], PartitionJudgement]

    @property
    def scope(self) -> Scope:
        """``partition``."""
        return "partition"


def needs_reasoning(context: Context) -> str | None:
    """Condition of the laws about reasoning."""
    channel = context.profile.reasoning_channel
    if channel is not None:
        return f"the profile {context.profile.name!r} has reasoning in the channel {channel!r}, not between two tokens"
    if context.profile.reasoning_start is None or context.profile.reasoning_end is None:
        return f"the profile {context.profile.name!r} describes no reasoning"
    return None


def needs_tools(context: Context) -> str | None:
    """Condition of the laws about tool-call markup."""
    if context.profile.tools is None:
        return f"the profile {context.profile.name!r} describes no tool-call markup"
    return None


def needs_suffixes(context: Context) -> str | None:
    """Condition of the laws about the end of a prompt."""
    if not context.profile.suffixes:
        return f"the profile {context.profile.name!r} describes no generation suffix"
    return None


def needs_stop_ids(context: Context) -> str | None:
    """Condition of the laws about stop ids."""
    return None if context.all_stop_ids else "no stop ids are known"


def needs_tokenizer(context: Context) -> str | None:
    """Condition of the laws that ask the tokenizer."""
    return None if context.tokenizer is not None else "the target's tokenizer is not at hand"


def needs_current_prompts(context: Context) -> str | None:
    """Condition of the laws that compare with the prompts there are now."""
    return None if context.current_prompts is not None else "the tokenized prompts are not at hand"


def needs_source_sample_ids(context: Context) -> str | None:
    """Condition of the law that compares with the samples of ``prompts``."""
    return None if context.source_sample_ids is not None else "the prompts are not at hand"


def needs_inert_prompts(context: Context) -> str | None:
    """Condition of the law that compares with prompts of inert text."""
    return None if context.inert_prompts is not None else "no prompt was rendered with inert text"


def needs_unrendered_messages(context: Context) -> str | None:
    """Condition of the law that asks which messages became nothing."""
    if context.inert_prompts is None or context.inert_prompts.unrendered is not None:
        return needs_inert_prompts(context)
    return "which messages became nothing of a prompt is not known"


def needs_rerendered_prompts(context: Context) -> str | None:
    """Condition of the law that compares with prompts rendered again."""
    return None if context.rerendered_prompts is not None else "no prompt was rendered again"
