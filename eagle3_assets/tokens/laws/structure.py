"""Whether the outputs are of this target at all: some of them have to hold what only its outputs hold.

What belongs here: that question, over all rows together. Not here: where a structural id may stand in one row.
"""

import polars as pl

from eagle3_assets.tokens.batch import STOPPED
from eagle3_assets.tokens.builtin_profiles import PROFILES
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.known_ids import KNOWN_IDS
from eagle3_assets.tokens.laws.base import PartitionJudgement, PartitionLaw, counted, needs_stop_ids
from eagle3_assets.tokens.wording import percent

CHANCE = 0.01
"""Share of outputs in which an ordinary id of another vocabulary may happen to be a structural one of this one."""
COMMON_LENGTH = 0.1
"""Share of the rows from which one length is taken for a cap, be it that of outputs or that of a trainer's rows."""

UNENDED_ROWS, UNENDED_SHARE = 3, 0.1
"""Outputs, and share of those of which nothing says how they ended, that may not end on a stop id without a remark."""


def judge_target_structure(facts: pl.DataFrame, context: Context) -> PartitionJudgement:
    """Counts the outputs with structure against those that ended, so that cut ones are no evidence of its absence."""
    outputs = facts.filter(pl.col("output_tokens") > 0)
    if outputs.is_empty():
        return PartitionJudgement(0, reason="there is no output with ids", judged=False)
    at_cap = (pl.col("output_tokens") >= pl.col("max_new_tokens")).fill_null(value=False)
    ended = outputs.filter(pl.col("finish_type").is_in(STOPPED).fill_null(value=True) & ~at_cap)
    holding = len(outputs.filter(pl.col("plain_end").is_null()))
    ending = _ending(ended)
    ended = ended if ending else ended.filter(~_maybe_cut(ended))
    # Most outputs ending on one id of another family is no accident, however little else is known of them.
    if not ending and holding > CHANCE * len(ended):
        unended = _unended(ended)
        if unended is not None:
            return PartitionJudgement(1, (unended,), concerned=int((~ended["at_stop"]).sum()))
        return PartitionJudgement(0, (f"{counted(holding, 'output')} with a structural id of the target",))
    silent = ended["finish_type"].is_null().all()
    if not ending and silent and ended["output_tokens"].n_unique() <= 1:  # none at all, or too few to tell
        return PartitionJudgement(0, reason="every output was cut off, or may have been", judged=False)
    some = f"only {holding:,}" if holding else "none"
    said = f"{some} of {counted(len(ended), 'output')} that ended holds a structural id of the profile"
    said += f" {context.profile.name!r}{ending}: the ids are probably another target's"
    details = (said if ending else f"{said}, or every structural id was taken out",)
    return PartitionJudgement(1, details, concerned=int(ended["plain_end"].is_not_null().sum()))


def _maybe_cut(ended: pl.DataFrame) -> pl.Series:
    """Rows of which nothing says how they ended, and which are as long as many are: as a cap leaves them."""
    enough = max(2, COMMON_LENGTH * len(ended))
    whole = pl.col("prompt_tokens") + pl.col("output_tokens")
    common = (pl.len().over("output_tokens") >= enough) | (pl.len().over(whole) >= enough)
    return ended.select(common & pl.col("finish_type").is_null()).to_series()


def _unended(ended: pl.DataFrame) -> str | None:
    """What is said of rows that end on no stop id though nothing says that they were cut; None where they are few."""
    silent = ended.filter(pl.col("finish_type").is_null())
    unended = int((~silent["at_stop"]).sum())
    if unended < UNENDED_ROWS or unended <= UNENDED_SHARE * len(silent):
        return None
    return (
        f"{unended:,} of {counted(len(silent), 'output')} ({percent(unended / len(silent))}) end on no stop id, and"
        " nothing says that they were cut off: the ids at which they ended were probably taken out"
    )


def _ending(ended: pl.DataFrame) -> str:
    """The stop id of another family at which most of the outputs end; empty where they do not."""
    last = ended["plain_end"].drop_nulls().value_counts(sort=True).head(1)
    for token_id, count in last.iter_rows():
        for name, known in KNOWN_IDS.items():
            named = (*PROFILES[name].stop, *PROFILES[name].stop_optional)
            stops = {known.tokens[token]: token for token in named if token in known.tokens}
            if token_id in stops and 2 * count > len(ended):
                return f", and {count:,} end with {token_id}, which is {stops[token_id]} of the profile {name!r}"
    return ""


TARGET_STRUCTURE = PartitionLaw(
    name="target_structure",
    definition="Some of the outputs that ended hold a structural id of the target: a stop id, or markup of its own; and"
    f" at most {UNENDED_SHARE:.0%} of those of which nothing says how they ended, nor looks cut, end on no stop id.",
    asset="raw_generations",
    effect="warn",
    meaning="The ids are another target's, or software took its structure out of them: what other laws found or did"
    " not find says little.",
    remedy="Judge by the profile or tokenizer of the target that wrote them; if it is this one, look for a layer that"
    " strips special tokens.",
    judge=judge_target_structure,
    unless=needs_stop_ids,
)
