"""The law about rows that are equal, by hashes of their ids."""

import polars as pl

from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.laws.base import PartitionJudgement, PartitionLaw, counted, shown_name
from eagle3_assets.tokens.wording import percent

_SAMPLE_OF_A_TURN = r":\d+$"
"""What tells several samples of one prompt apart: their ids are ``conversation:turn:sample``."""


def judge_duplicates(facts: pl.DataFrame, context: Context) -> PartitionJudgement:  # noqa: ARG001 - a law's form
    """Compares prompts, whole samples and outputs with one another."""
    rows = facts.filter(pl.col("output_hash").is_not_null()).with_columns(
        turn=pl.when(pl.col("sample_id").str.contains(r":\d+:\d+$"))
        .then(pl.col("sample_id").str.replace(_SAMPLE_OF_A_TURN, ""))
        .otherwise("sample_id")
    )
    if rows.is_empty():
        return PartitionJudgement(0, reason="there is no generated row with ids", judged=False)
    with_prompt = rows.filter(pl.col("prompt_hash").is_not_null())
    # A prompt that is not recorded is like no other one.
    each = rows.with_columns(pl.col("prompt_hash").fill_null(pl.int_range(pl.len(), dtype=pl.Int64)))
    samples: dict[str, str] = {}
    details, figures = [], {}
    for name, noun, said, chosen, key in (
        (
            "equal_prompts",
            "prompt",
            "the same prompt as",
            with_prompt.unique(["turn", "prompt_hash"], keep="first", maintain_order=True),
            ["prompt_hash"],
        ),
        ("equal_samples", "sample", "the same prompt and output as", with_prompt, ["prompt_hash", "output_hash"]),
        (
            "equal_outputs",
            "output",
            "the same output as, to another prompt,",
            each.unique(["prompt_hash", "output_hash"], keep="first", maintain_order=True),
            ["output_hash"],
        ),
    ):
        surplus = _surplus(chosen, key)
        figures[name] = len(surplus)
        for sample, first in surplus.iter_rows():
            samples.setdefault(sample or "", f"{said} {shown_name(first)}")
        if len(surplus):
            sample, first = surplus.row(0)
            details.append(
                f"{counted(len(surplus), noun)} equal to an earlier one ({percent(len(surplus) / len(rows), 2)}),"
                f" first {shown_name(sample)}: {said} {shown_name(first)}"
            )
    held = f"no two of {counted(len(rows), 'sample')} are equal"
    reason = None if len(with_prompt) == len(rows) else f"{counted(len(rows) - len(with_prompt), 'row')} without prompt"
    return PartitionJudgement(len(samples), tuple(details) or (held,), tuple(samples.items()), figures, reason)


def _surplus(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Rows whose key an earlier row has: their sample ids and the earlier one's."""
    first = pl.col("sample_id").first().over(key)
    return (
        rows.select("sample_id", first.alias("first"), again=~pl.struct(key).is_first_distinct())
        .filter("again")
        .drop("again")
    )


DUPLICATES = PartitionLaw(
    name="duplicates",
    definition="No two conversations have the same prompt, no two rows the same prompt and output, and no two prompts"
    " the same output.",
    asset="raw_generations",
    effect="warn",
    meaning="A drafter sees some text several times, and if training and evaluation data share it, its acceptance is"
    " overrated; equal outputs of different prompts can be replies that were mixed up.",
    remedy="Look at a few: drop doubled conversations from the source; at temperature 0 ask for one sample of each"
    " prompt; short answers may well be the same.",
    causes=("deepseek-ai/DeepSpec#28",),
    judge=judge_duplicates,
)
