"""Why prompts have no output: the reasons in rows, counted.

What belongs here: counting reasons, naming the commonest. Not here: giving a reason, how counts are shown.
"""

import polars as pl

from eagle3_assets.tokens.safe_text import excerpt

SHOWN = 120
"""Characters of a reason in a line."""


def reason_kinds(reasons: pl.Series) -> pl.DataFrame:
    """Kinds of reasons and how often each, the most frequent first; a reason's kind stands before its colon.

    Args:
        reasons: String, one for each row without a result.

    Returns:
        ``reason`` (String) and ``count``.
    """
    kinds = kinds_of(reasons.drop_nulls()).alias("reason").to_frame()
    counted = kinds.group_by("reason", maintain_order=True).len("count")
    return counted.sort("count", descending=True, maintain_order=True)


def commonest_reason(reasons: pl.Series) -> str | None:
    """The commonest kind of reason by one of its rows, such as ``3 of 4: too long: 9,000 tokens leave no room``.

    Args:
        reasons: String, one for each row without a result; the text may be others', and comes back safe and short.

    Returns:
        None where there are no reasons.
    """
    given = reasons.drop_nulls()
    if given.is_empty():
        return None
    kind, count = reason_kinds(given).row(0)
    example = given.filter(kinds_of(given) == kind)[0]
    return f"{count:,} of {len(given):,}: {excerpt(example, SHOWN)}"


def kinds_of(reasons: pl.Series) -> pl.Series:
    """Each reason's kind: what stands before its colon."""
    return reasons.str.split_exact(": ", 1).struct.field("field_0")
