"""The law about rows that are equal, by hashes of their ids."""

import polars as pl

from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.laws.base import PartitionJudgement, PartitionLaw, alike, counted, shown_name
from eagle3_assets.tokens.wording import percent

_SAMPLE_OF_A_TURN = r":\d+$"
"""What tells several samples of one prompt apart: their ids are ``conversation:turn:sample``. Other
tools' ids do not say whether equal prompts are one that was asked several times, so that only the answers tell."""


def judge_duplicates(facts: pl.DataFrame, context: Context) -> PartitionJudgement:
    """Compares prompts, whole samples and outputs with one another."""
    has_output, known = facts["output_hash"].is_not_null(), pl.col("prompt_hash").is_not_null()
    rows = int(has_output.sum())
    if not rows:
        return PartitionJudgement(0, reason="there is no generated row with ids", judged=False)
    unknown = int((has_output & facts["prompt_hash"].is_null()).sum())
    # Most rows are like no other one, and are looked at no further.
    same = alike(facts["output_hash"]) | alike(facts["prompt_hash"])
    compared = facts.select("sample_id", "prompt_hash", "output_hash").filter(has_output & same)
    compared = compared.with_columns(
        prompt_known=known,
        turn=pl.when(pl.col("sample_id").str.contains(r":\d+:\d+$"))
        .then(pl.col("sample_id").str.replace(_SAMPLE_OF_A_TURN, ""))
        .otherwise(pl.lit("") if context.mixed_records else "sample_id"),
    )
    with_prompt = compared.filter("prompt_known")
    # A prompt that is not recorded may be any: each counts as one of its own, and no row is said to have another one.
    each = compared.with_columns(pl.col("prompt_hash").fill_null(pl.int_range(pl.len(), dtype=pl.Int64)))
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
            "the same output as",
            each.unique(["prompt_hash", "output_hash"], keep="first", maintain_order=True),
            ["output_hash"],
        ),
    ):
        surplus = _surplus(chosen, key)
        figures[name] = len(surplus)
        other = ", to another prompt," if name == "equal_outputs" else ""
        told = [
            (sample, f"{said}{other if prompts_known else ''} {shown_name(first)}")
            for sample, first, prompts_known in surplus.iter_rows()
        ]
        for sample, text in told:
            samples.setdefault(sample or "", text)
        if told:
            sample, text = told[0]
            details.append(
                f"{counted(len(told), noun)} equal to an earlier one ({percent(len(told) / rows, 2)}), first"
                f" {shown_name(sample)}: {text}"
            )
    held = f"no two of {counted(rows, 'sample')} are equal"
    reason = f"{counted(unknown, 'row')} without prompt" if unknown else None
    return PartitionJudgement(len(samples), tuple(details) or (held,), tuple(samples.items()), figures, reason)


def _surplus(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Rows whose key an earlier row has: their sample ids, the earlier one's, and whether both prompts are known."""
    first, known = (pl.col(name).first().over(key) for name in ("sample_id", "prompt_known"))
    return (
        rows.select(
            "sample_id",
            first.alias("first"),
            known & pl.col("prompt_known"),
            again=~pl.struct(key).is_first_distinct(),
        )
        .filter("again")
        .drop("again")
    )


DUPLICATES = PartitionLaw(
    name="duplicates",
    definition="No two conversations have the same prompt, no two rows the same prompt and output, and no two prompts"
    " the same output; where prompts are not recorded, no two rows have the same output. In files of other tools, rows"
    " with one prompt are samples of it.",
    asset="raw_generations",
    effect="warn",
    meaning="A drafter sees some text several times, and if training and evaluation data share it, its acceptance is"
    " overrated; equal outputs of different prompts can be replies that were mixed up.",
    remedy="Look at a few: drop doubled conversations from the source; at temperature 0 ask for one sample of each"
    " prompt; short answers may well be the same.",
    causes=("deepseek-ai/DeepSpec#28",),
    judge=judge_duplicates,
)
