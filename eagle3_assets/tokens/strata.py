"""Which samples a person should look at: spread over the lengths, and every odd kind.

What belongs here: choosing. Not here: decoding, showing.
"""

from collections.abc import Collection

import polars as pl

from eagle3_assets.partitions import stable_rank
from eagle3_assets.tokens.quantiles import by_length, nearest_rank

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
PER_KIND = 3
"""Samples chosen of each odd kind."""
RANDOM = 8

FIRST_LOOK = ("shortest", "p25 of length", "p50 of length", "p75 of length", "longest")
"""Strata of the samples to look at first, the same that ``quantiles.spread`` takes."""
_GIVES_WAY = "p25 of length"
"""The one of them that is left out for a broken sample."""

CHOSEN = pl.Schema({"sample_id": pl.String, "stratum": pl.String})


def choose(facts: pl.DataFrame, findings: pl.DataFrame) -> pl.DataFrame:
    """Chooses a few dozen samples, the same ones whenever the data is the same.

    Args:
        facts: ``facts.OUTPUT_FACTS``, one row per output.
        findings: ``contract.SAMPLE_FINDINGS``.

    Returns:
        ``sample_id`` and ``stratum``: those spread over the lengths first, then those that break a law, some of every
        law; each sample once, under the first stratum that chose it. What a law only remarks on is no breach, and
        chosen apart, so that many remarks do not hide one breach.
    """
    ranks = pl.Series("rank", [stable_rank(sample_id) for sample_id in facts["sample_id"]], dtype=pl.UInt64)
    ordered = facts.with_columns(ranks)[by_length(facts["output"].to_numpy(), ranks.to_numpy())]
    if ordered.is_empty():
        return pl.DataFrame(schema=CHOSEN)
    last = len(ordered) - 1
    between = [(f"p{q * 100:.0f} of length", nearest_rank(len(ordered), q)) for q in QUANTILES]
    spread = [("shortest", 0), *((name, row) for name, row in between if 0 < row < last), ("longest", last)]
    chosen = pl.DataFrame([(ordered["sample_id"][row], name) for name, row in spread], schema=CHOSEN, orient="row")
    chosen = chosen.unique("sample_id", keep="first", maintain_order=True)
    is_error = pl.col("severity") == "error"
    kinds = [
        *_of_each_law("breaks", findings.filter(is_error)),
        *_of_each_law("remark of", findings.filter(~is_error)),
        ("cut off", pl.col("cut_off"), PER_KIND),
        ("most tool calls", _among_most("tool_calls", PER_KIND), PER_KIND),
        ("longest reasoning", _among_most("reasoning", 1), 1),
        ("longest answer", _among_most("answer", 1), 1),
        ("tool call", pl.col("tool_call"), PER_KIND),
        ("no tool call", ~pl.col("tool_call"), PER_KIND),
        ("no end of reasoning", pl.col("reasoning_opened") & (pl.col("reasoning_end") < 0), PER_KIND),
        ("random", pl.lit(value=True), RANDOM),
    ]
    for stratum, belongs, count in kinds:
        others = ordered.filter(belongs & ~pl.col("sample_id").is_in(chosen["sample_id"].to_list()))
        chosen.extend(others.sort("rank").head(count).select("sample_id", stratum=pl.lit(stratum)))
    return chosen


def first_look(chosen: pl.DataFrame, broken: Collection[str]) -> pl.DataFrame:
    """Of chosen samples the five to look at first: over the lengths from shortest to longest, a broken one among them.

    Args:
        chosen: of :func:`choose`, with any further columns.
        broken: ids of samples one of which shall be there, if any is chosen.

    Returns:
        Rows of ``chosen`` in its order; fewer where there are fewer.
    """
    over_lengths = pl.col("stratum").is_in(FIRST_LOOK)
    is_broken = pl.col("sample_id").is_in(list(broken))
    others = chosen.filter(is_broken & ~over_lengths).head(1)
    if others.is_empty() or len(chosen.filter(is_broken & over_lengths)):
        return chosen.filter(over_lengths)
    is_other = pl.col("sample_id") == others["sample_id"][0]
    return chosen.filter(is_other | (over_lengths & (pl.col("stratum") != _GIVES_WAY)))


def _of_each_law(stratum: str, findings: pl.DataFrame) -> list[tuple[str, pl.Expr, int]]:
    by_law = findings.group_by("law").agg("sample_id").sort("law")
    return [(f"{stratum} {law}", pl.col("sample_id").is_in(ids), PER_KIND) for law, ids in by_law.iter_rows()]


def _among_most(fact: str, count: int) -> pl.Expr:
    """The rows with the highest values of a fact, zeros excepted; of equal ones the first in the frame's order."""
    return (pl.col(fact) > 0) & (pl.col(fact).rank("ordinal", descending=True) <= count)
