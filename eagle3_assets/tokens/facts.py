"""A few facts about each output, small enough to keep for a whole partition.

What belongs here: the frame that statistics and the choice of previews start from. Not here: what they make of it.
"""

from collections.abc import Iterable

import polars as pl

from eagle3_assets.tokens.anatomy import anatomy
from eagle3_assets.tokens.batch import CUT_OFF, GENERATED
from eagle3_assets.tokens.profile import TargetProfile

OUTPUT_FACTS = pl.Schema(
    {
        "sample_id": pl.String,
        "turn": pl.Int32,
        "output": pl.Int32,
        "reasoning": pl.Int32,
        "answer": pl.Int32,
        "reasoning_opened": pl.Boolean,
        "reasoning_end": pl.Int32,
        "finish_type": pl.String,
        "cut_off": pl.Boolean,
        "tool_call": pl.Boolean,
        "tool_calls": pl.Int32,
    }
)
"""Lengths in tokens (``answer`` with its tool calls); whether the output begins in reasoning, and the index of
its end, -1 where there is none; how many calls begin in its tool sections, and whether any does. ``turn`` is null where
the sample's id does not say it."""

OUTPUT_COLUMNS = ("sample_id", "prompt_ids", "output_ids", "finish_type")
"""What facts are made of."""

_TURN = r":(\d+):\d+$"
"""The end of a sample's id: turn and sample index."""


def has_output() -> pl.Expr:
    """The rows of ``raw_generations`` that facts can be made of; a row that lacks its ids is the laws' matter."""
    return (pl.col("status") == GENERATED) & pl.all_horizontal(pl.col("sample_id", "output_ids").is_not_null())


def output_facts(batches: Iterable[pl.DataFrame], profile: TargetProfile) -> pl.DataFrame:
    """Facts of every output.

    Args:
        batches: generated rows with the columns ``OUTPUT_COLUMNS``.
        profile: of the target.

    Returns:
        :data:`OUTPUT_FACTS`, one row per given row in the same order.
    """
    parts = [pl.DataFrame(schema=OUTPUT_FACTS)]
    for rows in batches:
        sections = anatomy(rows, profile)
        parts.append(
            rows.select(
                "sample_id",
                pl.col("sample_id").str.extract(_TURN).cast(pl.Int32, strict=False).alias("turn"),
                pl.col("output_ids").list.len().cast(pl.Int32).alias("output"),
                sections["reasoning_tokens"].alias("reasoning"),
                (sections["answer_tokens"] + sections["tool_tokens"]).alias("answer"),
                sections["reasoning_opened"],
                sections["reasoning_end"],
                "finish_type",
                (pl.col("finish_type") == CUT_OFF).fill_null(value=False).alias("cut_off"),
                (sections["tool_calls"] > 0).alias("tool_call"),
                sections["tool_calls"],
            )
        )
    return pl.concat(parts)
