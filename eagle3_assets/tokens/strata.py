"""Which samples a person should look at: spread over the lengths, and every odd kind.

What belongs here: choosing. Not here: decoding, showing.
"""

import polars as pl

from eagle3_assets.partitions import stable_rank

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
PER_KIND = 3
"""Samples chosen of each odd kind."""
RANDOM = 8

CHOSEN = pl.Schema({"sample_id": pl.String, "stratum": pl.String})


def choose(facts: pl.DataFrame, findings: pl.DataFrame) -> pl.DataFrame:
    """Chooses a few dozen samples, the same ones whenever the data is the same.

    Args:
        facts: ``facts.OUTPUT_FACTS``, one row per output.
        findings: ``contract.SAMPLE_FINDINGS``.

    Returns:
        ``sample_id`` and ``stratum``: those spread over the lengths first, each sample once, under the first stratum
        that chose it.
    """
    # Ties are broken by a hash of the id, so that the choice is neither the source's order nor the alphabet's.
    ranks = pl.Series("rank", [stable_rank(sample_id) for sample_id in facts["sample_id"]], dtype=pl.UInt64)
    ordered = facts.with_columns(ranks).sort("output", "rank")
    if ordered.is_empty():
        return pl.DataFrame(schema=CHOSEN)
    last = len(ordered) - 1
    between = [(f"p{q * 100:.0f} of length", round(q * last)) for q in QUANTILES]
    spread = [("shortest", 0), *((name, row) for name, row in between if 0 < row < last), ("longest", last)]
    chosen = pl.DataFrame([(ordered["sample_id"][row], name) for name, row in spread], schema=CHOSEN, orient="row")
    chosen = chosen.unique("sample_id", keep="first", maintain_order=True)
    broken = findings.group_by("law").agg("sample_id").sort("law")
    kinds = [
        *((f"breaks {law}", pl.col("sample_id").is_in(ids), PER_KIND) for law, ids in broken.iter_rows()),
        ("cut off", pl.col("cut_off"), PER_KIND),
        ("most tool calls", _among_most("tool_calls", PER_KIND), PER_KIND),
        ("longest reasoning", _among_most("reasoning", 1), 1),
        ("longest answer", _among_most("answer", 1), 1),
        ("tool call", pl.col("tool_call"), PER_KIND),
        ("no tool call", ~pl.col("tool_call"), PER_KIND),
        ("no end of reasoning", pl.col("reasoning_end") < 0, PER_KIND),
        ("random", pl.lit(value=True), RANDOM),
    ]
    for stratum, belongs, count in kinds:
        others = ordered.filter(belongs & ~pl.col("sample_id").is_in(chosen["sample_id"].to_list()))
        chosen.extend(others.sort("rank").head(count).select("sample_id", stratum=pl.lit(stratum)))
    return chosen


def _among_most(fact: str, count: int) -> pl.Expr:
    """The rows with the highest values of a fact, zeros excepted; of equal ones the first in the frame's order."""
    return (pl.col(fact) > 0) & (pl.col(fact).rank("ordinal", descending=True) <= count)
