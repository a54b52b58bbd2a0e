"""Laws about a partition as a whole: every prompt accounted for, and figures that a person judges."""

from collections.abc import Set

import polars as pl

from eagle3_assets.tokens.batch import CUT_OFF, FAILED, GENERATED, REFUSED
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.laws.base import PartitionJudgement, PartitionLaw, alike, counted, shown_name
from eagle3_assets.tokens.laws.endings import SGLANG_CAP
from eagle3_assets.tokens.lengths import SHORT, band_misses, expects_lengths, figures_text, length_figures
from eagle3_assets.tokens.wording import percent

CUT_OFF_REMARK = 0.10
"""Share of cut-off outputs from which the check asks a person to look; below it the figure is only shown."""

UNRECORDED_CAP_ROWS = 3
"""Cut-off outputs of one length from which a cap is seen that nothing records."""


def judge_conservation(facts: pl.DataFrame, context: Context) -> PartitionJudgement:
    """Accounts for every prompt by id."""
    prompts = context.current_prompts
    if not len(facts) and (prompts is None or not prompts.hashes):
        return PartitionJudgement(0, reason="there are no rows", judged=False)
    by_id, doubled = _by_id(facts)
    unknown = by_id.filter(~pl.col("status").is_in([GENERATED, FAILED, REFUSED]).fill_null(value=False))
    faults = [(i, f"{n} rows with this sample id") for i, n in doubled.select("sample_id", "times").iter_rows()]
    faults += [(i, f"status {s!r} is no terminal state") for i, s in unknown.select("sample_id", "status").iter_rows()]
    if prompts is not None:
        faults += _against_prompts(by_id, prompts.hashes.keys(), prompts.ready)
    generated, sent = _coverage(by_id, context)
    share = generated / sent if sent else 0.0
    details = [f"{counted(len(faults), 'fault')}, first {shown_name(faults[0][0])}: {faults[0][1]}"] if faults else []
    all_refused = (len(by_id) if prompts is None else len(prompts.hashes)) if not sent else 0
    short = share < context.coverage or all_refused > 0
    if all_refused:
        details.append(f"no prompt was sent: all {all_refused:,} were refused")
    elif short:
        details.append(
            f"only {generated:,} of {sent:,} sent prompts have an output"
            f" ({percent(share, 2)} of {percent(context.coverage, 2)})"
        )
    return PartitionJudgement(
        len(faults) + short,
        tuple(details) or (f"{generated:,} of {sent:,} sent prompts have an output, each row has one state",),
        tuple((i or "", text) for i, text in faults),
        {"coverage": share, "generated": generated, "sent": sent},
        None if prompts is not None else "the tokenized prompts are not at hand: missing rows cannot be noticed",
    )


def judge_length_band(facts: pl.DataFrame, context: Context) -> PartitionJudgement:
    """Compares the outputs' lengths with the band that the dataset expects."""
    lengths = facts["output_tokens"].drop_nulls()
    if not len(lengths):
        return PartitionJudgement(0, reason="there is no generated row", judged=False)
    figures = length_figures(lengths)
    outside = band_misses(figures, context.length_band)
    stated = figures_text(figures)
    details = tuple(outside) or (f"{stated}: inside the band",)
    return PartitionJudgement(len(outside), details, figures=figures, concerned=len(lengths) if outside else 0)


def judge_cut_off_share(facts: pl.DataFrame, context: Context) -> PartitionJudgement:  # noqa: ARG001 - a law's form
    """Counts outputs which a cap ended, and looks for a cap that nobody asked for."""
    finished = facts.filter(pl.col("finish_type").is_not_null() & pl.col("output_tokens").is_not_null())
    if not len(finished):
        return PartitionJudgement(0, reason="no row records a finish type", judged=False)
    cut = finished.filter(pl.col("finish_type") == CUT_OFF)
    share = len(cut) / len(finished)
    details = [f"{len(cut):,} of {len(finished):,} outputs were cut off ({percent(share, 2)})"]
    foreign = _foreign_cap(cut)
    if foreign is not None:
        details.insert(0, foreign)
    violated = (share > CUT_OFF_REMARK) or foreign is not None
    return PartitionJudgement(
        int(violated), tuple(details), figures={"cut_off_share": share}, concerned=len(cut) if violated else 0
    )


def _by_id(facts: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """``sample_id`` and ``status`` of each sample's first row; ``sample_id`` and ``times`` of those that are doubled.

    Names are compared by their hash first: most are there once, and a table of all of them would be large.
    """
    rows = facts.select("sample_id", "status")
    again = alike(rows["sample_id"].hash())
    if not again.any():
        return rows, pl.DataFrame(schema={"sample_id": pl.String, "times": pl.UInt32})
    doubled = rows.filter(again)
    counts = doubled.group_by("sample_id", maintain_order=True).agg(pl.len().alias("times"))
    first = ~again
    first[again.arg_true()] = doubled["sample_id"].is_first_distinct()
    return rows.filter(first), counts.filter(pl.col("times") > 1)


def _against_prompts(by_id: pl.DataFrame, known: Set[str], ready: frozenset[str]) -> list[tuple[str, str]]:
    status = dict(zip(by_id["sample_id"].to_list(), by_id["status"].to_list(), strict=True))
    faults = [(i, "no row for this prompt") for i in known if i not in status]
    faults += [(i, "no such prompt in tokenized_prompts") for i in status if i not in known]
    for sample, state in status.items():
        if (state == REFUSED) == (sample in ready) and sample in known:
            prompt = "ready" if sample in ready else "refused"
            faults.append((sample, f"the prompt is {prompt}, the row says {state}"))
    return faults


def _coverage(by_id: pl.DataFrame, context: Context) -> tuple[int, int]:
    """Prompts with an output, and prompts that were to be sent."""
    prompts = context.current_prompts
    if prompts is None:
        counts = by_id.select(pl.col("status").eq(GENERATED).sum(), sent=pl.col("status").ne(REFUSED).sum())
        generated, sent = counts.row(0)
        return generated, sent
    ready = by_id.filter((pl.col("status") == GENERATED) & pl.col("sample_id").is_in(list(prompts.ready)))
    return len(ready), len(prompts.ready)


def _foreign_cap(cut: pl.DataFrame) -> str | None:
    """What is odd about the one length that cut-off outputs have; None where nothing is.

    Where a cap is recorded, all of them (two at least) must be as long, and another length than that; where none is,
    most of them and ``UNRECORDED_CAP_ROWS`` at least.
    """
    most = cut["output_tokens"].value_counts(sort=True).head(1)
    if most.is_empty():
        return None
    length, rows = most.row(0)
    default = ", SGLang's default" if length == SGLANG_CAP else ""
    recorded = cut["max_new_tokens"].drop_nulls()
    every = "every cut-off output has" if rows == len(cut) else f"{rows:,} of {len(cut):,} cut-off outputs have"
    if not len(recorded):
        if rows < UNRECORDED_CAP_ROWS or 2 * rows <= len(cut):
            return None
        return (
            f"{every} {length:,} tokens{default}, and no max_new_tokens is recorded: perhaps nobody asked for that cap"
        )
    if rows < 2 or rows < len(cut) or (recorded == length).any():
        return None
    return f"{every} {length} tokens{default}, which is not the recorded max_new_tokens"


def _has_band(context: Context) -> str | None:
    return None if expects_lengths(context.length_band) else "no expected lengths are at hand (a dataset's length_band)"


CONSERVATION = PartitionLaw(
    name="conservation",
    definition="Every prompt has exactly one row in one terminal state, there are no other rows, some prompts were"
    " sent, and enough of those have an output.",
    asset="raw_generations",
    effect="refuse",
    meaning="Samples were lost or doubled, so the data is not the dataset that the config names, and the loss may not"
    " be random.",
    remedy="Materialize the partition again: it generates only what is missing; failed rows are asked again with"
    " retry_failed; why prompts were refused stands in tokenized_prompts.",
    causes=("deepseek-ai/DeepSpec#28", "NousResearch/hermes-agent#112575"),
    judge=judge_conservation,
)

LENGTH_BAND = PartitionLaw(
    name="length_band",
    definition=f"Median, 95th percentile and share under {SHORT} tokens lie in the dataset's expected band.",
    asset="raw_generations",
    effect="warn",
    meaning="The outputs are longer or shorter than expected: often a cap, a missing thinking mode or another kind of"
    " prompt.",
    remedy="Look at the previews; correct the dataset's settings, or its length_band if the data is right.",
    judge=judge_length_band,
    unless=_has_band,
)

CUT_OFF_SHARE = PartitionLaw(
    name="cut_off_share",
    definition=f"At most {CUT_OFF_REMARK:.0%} of the outputs were cut off, and none at a length that nobody asked for.",
    asset="raw_generations",
    effect="warn",
    meaning="A drafter sees few endings, and the longest reasoning, which profits most from drafting, is missing.",
    remedy="Raise max_new_tokens; if the outputs were cut at another length, find who set it (SGLang's default is"
    " 128).",
    judge=judge_cut_off_share,
)
