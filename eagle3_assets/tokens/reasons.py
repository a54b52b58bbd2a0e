"""Why prompts have no output, counted.

What belongs here: reading the ``reason`` columns. Not here: giving a reason.
"""

import polars as pl


def reason_kinds(reasons: pl.Series) -> pl.DataFrame:
    """Kinds of reasons and how often each, the most frequent first; a reason's kind stands before its first colon.

    Args:
        reasons: String, one for each row without a result; null where none is recorded.

    Returns:
        ``reason`` (String) and ``count`` (UInt32).
    """
    kinds = reasons.fill_null("no reason recorded").str.splitn(": ", 2).struct.field("field_0").alias("reason")
    return kinds.value_counts(sort=True)
