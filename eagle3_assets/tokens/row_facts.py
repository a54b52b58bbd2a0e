"""What laws about whole partitions see of each row: a few facts, gathered batch by batch.

What belongs here: those facts, small enough to keep one row of them for each row of a partition. Not here: any law,
facts of single outputs for people (``facts``).
"""

import numpy as np
import polars as pl

from eagle3_assets.tokens.batch import GENERATED, Batch
from eagle3_assets.tokens.columns import Mask
from eagle3_assets.tokens.laws.base import Asset

_NAMES = pl.Categorical()
"""For columns with a few names over and over: four bytes in each row."""

_PROMPT_FACTS = pl.Schema(
    [
        ("sample_id", pl.String()),
        ("status", _NAMES),
        ("reason", _NAMES),
        ("output_tokens", pl.Int32()),
        ("finish_type", _NAMES),
        ("max_new_tokens", pl.Int64()),
    ]
)

_GENERATION_FACTS = pl.Schema(
    [
        ("weight_version", _NAMES),
        ("endpoint", _NAMES),
        ("prompt_tokens", pl.Int32()),
        ("prompt_hash", pl.Int64()),
        ("output_hash", pl.Int64()),
        ("plain_end", pl.Int32()),
        ("at_stop", pl.Boolean()),
    ]
)


def facts_schema(asset: Asset) -> pl.Schema:
    """The columns of the facts that are gathered of an asset."""
    return pl.Schema({**_PROMPT_FACTS, **(_GENERATION_FACTS if asset == "raw_generations" else {})})


def row_facts(batch: Batch, schema: pl.Schema) -> pl.DataFrame:
    """The facts of a batch's rows, in its order, with the columns of ``schema``."""
    frame = batch.frame
    status = frame["status"] if batch.has("status") else pl.repeat(GENERATED, len(frame), eager=True)
    generated = batch.generated
    has_output = pl.Series(generated & batch.present("output_ids"))
    lengths = pl.Series(batch.output.lengths) if batch.has("output_ids") else pl.repeat(None, len(frame), eager=True)
    return pl.DataFrame(
        {
            "sample_id": frame["sample_id"],
            "status": status,
            "reason": batch.column("reason", pl.String),
            "output_tokens": pl.select(pl.when(has_output).then(lengths)).to_series(),
            "finish_type": batch.column("finish_type", pl.String),
            "max_new_tokens": batch.samplings["max_new_tokens"],
            **(_generation_facts(batch, generated) if "output_hash" in schema else {}),
        }
    ).cast(dict(schema))  # type: ignore[arg-type] # the stubs know no mapping of names to dtype objects


def _generation_facts(batch: Batch, generated: Mask) -> dict[str, pl.Series]:
    values = pl.DataFrame(
        {
            "weight_version": batch.column("weight_version", pl.String),
            "endpoint": batch.column("endpoint", pl.String),
            "prompt_tokens": pl.Series(batch.prompt.lengths),
            "prompt_hash": pl.Series(batch.prompt_hashes, dtype=pl.Int64),
            "output_hash": pl.Series(batch.output_hashes, dtype=pl.Int64),
            "plain_end": _plain_ends(batch),
            "at_stop": pl.Series(batch.at_stop),
        }
    )
    with_prompt, with_output = (pl.Series(generated & ~ids.null_rows) for ids in (batch.prompt, batch.output))
    return values.select(  # in one go: each query has a price of its own
        pl.when(pl.Series(generated)).then(pl.col("weight_version", "endpoint", "prompt_tokens")),
        pl.when(with_prompt).then("prompt_hash").alias("prompt_hash"),
        pl.when(with_output).then(pl.col("output_hash", "plain_end", "at_stop")),
    ).to_dict()


def _plain_ends(batch: Batch) -> pl.Series:
    """The last id of each output that holds no structure, null for others: markup, or a stop id where outputs end."""
    profile, marks = batch.context.profile, batch.output_marks
    named = {i for i in (profile.bos, profile.pad, profile.unk) if i is not None} | profile.media_ids
    stops = batch.context.all_stop_ids
    at_end = marks.index == batch.output.lengths[marks.row] - 1
    own = np.where(np.isin(marks.id, list(stops)), at_end, ~np.isin(marks.id, list(named)))
    plain = pl.Series(marks.where(own).count() == 0)
    last = pl.Series(batch.output.last).cast(pl.Int32, strict=False)
    return pl.select(pl.when(plain).then(last)).to_series()
