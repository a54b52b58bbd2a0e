"""Whole partitions before the laws: frames in storage to a report.

What belongs here: reading what a judgement compares with, and building its context. Asset checks, ``training_samples``
and previews all judge through this. Not here: any law (``tokens.laws``), Dagster.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import polars as pl

from eagle3_assets.contract import TOKENIZED_PROMPTS
from eagle3_assets.frames import batches
from eagle3_assets.generation.rows import sampling_record
from eagle3_assets.generation.sealed import Sealed, read_identity, scan_sealed
from eagle3_assets.identity import Identity
from eagle3_assets.partitions import Partition, stable_rank
from eagle3_assets.project import Project
from eagle3_assets.prompts.inert import declared_tools, inert_rows, unrendered
from eagle3_assets.prompts.render import render_text, rows_with_other_ids, tokenize_rows
from eagle3_assets.prompts.speaker_names import roles_without_names, rows_without_names
from eagle3_assets.prompts.template_forms import CallForm, call_form
from eagle3_assets.target import LoadedTarget, not_ended_by_code
from eagle3_assets.tokens.codec import Codec
from eagle3_assets.tokens.columns import TokenColumn
from eagle3_assets.tokens.context import Context, FileIdentity, PromptIndex
from eagle3_assets.tokens.inert_prompts import INERT_PROMPTS
from eagle3_assets.tokens.judge import judge_generations, judge_prompts, prompt_faults
from eagle3_assets.tokens.verdict import Report

RERENDERED_ROWS = 1_000
"""How many prompts of a partition are rendered a second time to see whether that gives the same ids; as many again of
those whose calls get other ids than the source's."""


@not_ended_by_code()
def render_rows(target: LoadedTarget, rows: pl.DataFrame, *, thinking: bool) -> pl.DataFrame:
    """Prompt rows rendered and tokenized as the target's config says; see :func:`prompts.render.tokenize_rows`.

    Raises:
        TargetError: the target's own code would have ended this process.
    """
    return tokenize_rows(
        target.tokenizer,
        rows,
        thinking=thinking,
        chat_template=target.chat_template,
        arguments=target.settings.template_arguments,
        call_id=target.profile.tool_call_id,
    )


@not_ended_by_code()
def target_call_form(target: LoadedTarget, *, thinking: bool) -> CallForm:
    """How the target's chat template takes the calls of earlier turns.

    Raises:
        TargetError: the target's own code would have ended this process.
    """
    return call_form(
        lambda messages, tools: render_text(
            target.tokenizer,
            messages,
            tools,
            thinking=thinking,
            chat_template=target.chat_template,
            arguments=target.settings.template_arguments,
        )
    )


def given_other_ids(partition: Partition, target: LoadedTarget, prompts: pl.LazyFrame) -> list[str]:
    """Sample ids of a partition's ``prompts``, as ``prompts.render.rows_with_other_ids`` finds them."""
    form = target_call_form(target, thinking=partition.dataset.thinking)
    every = (rows_with_other_ids(rows, form, target.profile.tool_call_id) for rows in batches(prompts))
    return list(chain.from_iterable(every))


@not_ended_by_code()
def given_without_names(partition: Partition, target: LoadedTarget, prompts: pl.LazyFrame) -> list[str]:
    """Sample ids of a partition's ``prompts`` of whose messages the template leaves out a speaker's ``name``.

    Raises:
        TargetError: the target's own code would have ended this process.
    """
    roles = roles_without_names(
        lambda messages: render_text(
            target.tokenizer,
            messages,
            None,
            thinking=partition.dataset.thinking,
            chat_template=target.chat_template,
            arguments=target.settings.template_arguments,
        )
    )
    return list(chain.from_iterable(rows_without_names(rows, roles) for rows in batches(prompts)))


def render_inert(target: LoadedTarget, rows: pl.DataFrame, *, thinking: bool) -> pl.DataFrame:
    """The same conversations of inert text rendered and tokenized: columns of ``tokens.inert_prompts.INERT_PROMPTS``.

    Without their texts few conversations differ, and each kind is rendered once: so every prompt has its twin.
    """
    end = target.profile.reasoning_end
    inert = inert_rows(rows, None if end is None else target.profile.tokens.get(end))
    kinds = inert.unique(["messages", "tools"], maintain_order=True)
    ids = render_rows(target, kinds, thinking=thinking)["prompt_ids"]
    texts = Codec(target.tokenizer, target.profile).texts(TokenColumn.from_series(ids))
    lost = [
        None if text is None else unrendered(messages, text)
        for messages, text in zip(kinds["messages"], texts, strict=True)
    ]
    rendered = kinds.select("messages", "tools", ids, unrendered=pl.Series(lost, dtype=pl.List(pl.String)))
    return inert.join(rendered, on=["messages", "tools"], nulls_equal=True, how="left", maintain_order="left").select(
        INERT_PROMPTS.names()
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """A report, and what it was judged against."""

    report: Report
    context: Context


def judge_tokenized(
    project: Project,
    partition: Partition,
    target: LoadedTarget,
    prompts: pl.LazyFrame,
    tokenized: pl.LazyFrame,
    *,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> Judged:
    """Judges the tokenized prompts of a partition, some of them rendered again, and all as inert text.

    Args:
        project: its config.
        partition: to judge.
        target: its tokenizer and template.
        prompts: ``contract.PROMPTS``.
        tokenized: ``contract.TOKENIZED_PROMPTS``.
        progress: is told how many prompts are rendered for this, and of how many.
    """
    known = tokenized.select("sample_id").collect()
    # Those that get other ids besides: earlier versions rendered them with the source's.
    otherwise = set(given_other_ids(partition, target, prompts)) & set(known["sample_id"])
    every = (sorted(some, key=stable_rank)[:RERENDERED_ROWS] for some in (known["sample_id"], otherwise))
    chosen = list(dict.fromkeys(chain.from_iterable(every)))
    again = pl.DataFrame({"sample_id": chosen}, schema={"sample_id": pl.String})
    rows = prompts.filter(pl.col("sample_id").is_in(again["sample_id"].to_list())).collect()
    thinking = partition.dataset.thinking
    every_id = frozenset(prompts.select("sample_id").collect()["sample_id"])

    def inert() -> Iterator[pl.DataFrame]:
        done = 0
        for batch in batches(prompts):
            yield render_inert(target, batch, thinking=thinking)
            done += len(batch)
            progress(done, len(every_id))

    rendered = render_rows(target, rows, thinking=thinking).select("sample_id", "prompt_ids")
    context = _context(
        project,
        partition,
        target,
        # Without ids where the prompt is gone or the template refuses it now: that is no way to be the same.
        rerendered=again.join(rendered, on="sample_id", how="left", maintain_order="left"),
        tools=_tools(prompts),
        source_ids=every_id,
    ).with_inert_prompts(inert())
    return Judged(judge_prompts(batches(tokenized), context), context)


def tokenize(project: Project, partition: Partition, target: LoadedTarget, rows: pl.DataFrame) -> pl.DataFrame:
    """Prompt rows as ``tokenized_prompts`` has them: rendered, and those refused which must not be sent.

    Args:
        project: its config lowers laws.
        partition: that the rows are of.
        target: its tokenizer and template.
        rows: ``contract.PROMPTS``.

    Returns:
        ``contract.TOKENIZED_PROMPTS``, in the same order.
    """
    tokenized = render_rows(target, rows, thinking=partition.dataset.thinking)
    inert = render_inert(target, rows, thinking=partition.dataset.thinking)
    context = _context(project, partition, target, tools=declared_tools(rows)).with_inert_prompts([inert])
    faults = prompt_faults(tokenized, context)
    return _marked(tokenized, faults, target.context_length, partition.dataset.max_prompt_tokens)


def judge_raw(
    project: Project,
    partition: Partition,
    target: LoadedTarget,
    tokenized: pl.LazyFrame,
    sealed: Sealed,
    *,
    prompts: pl.LazyFrame | None = None,
) -> Judged:
    """Judges sealed generations of a partition against the prompts that there are now.

    Args:
        project: its config and files.
        partition: to judge.
        target: that made it.
        tokenized: the partition's ``tokenized_prompts``.
        sealed: the generations.
        prompts: for the names of the tools that they declare; no law that asks for them keeps a sample from being used.

    Raises:
        SealedError: the file, or the record of its identity, is missing or damaged.
    """
    identity = read_identity(sealed.directory, sealed.pointer.fingerprint)
    index = PromptIndex.of(batches(tokenized.select("sample_id", "status", "prompt_ids")))
    tools = None if prompts is None else _tools(prompts)
    context = _context(project, partition, target, identity=identity, current=index, tools=tools)
    return Judged(judge_generations(batches(scan_sealed(sealed)), context), context)


def without_origin(prompts: pl.LazyFrame, raw: pl.LazyFrame) -> list[str]:
    """Why outputs cannot be traced to their conversation; empty if all can be. Train and eval are split by it."""
    lost = raw.select("sample_id").join(prompts, on="sample_id", how="anti").collect()["sample_id"]
    if lost.is_empty():
        return []
    return [
        f"prompts: {len(lost):,} generated samples, first {lost[0]}, are no prompts of the source any more."
        " Restore the source and materialize prompts again, or materialize everything of this partition anew."
    ]


def replay_context(
    project: Project, partition: Partition, target: LoadedTarget, identity: Identity, tolerance: float
) -> Context:
    """What a replay is judged against.

    Args:
        project: its config.
        partition: that the rows are of.
        target: its tokenizer and profile.
        identity: of the sealed file that the rows come from.
        tolerance: how far log-probabilities may lie apart, in natural-log units.
    """
    return replace(_context(project, partition, target, identity=identity), replay_tolerance=tolerance)


def _marked(
    tokenized: pl.DataFrame, faults: pl.DataFrame, context_length: int, max_prompt_tokens: int | None
) -> pl.DataFrame:
    """Marks prompts that must not be sent as refused, with the reason; their ids stay for a person to look at."""
    broken = faults.select("sample_id", law_reason=pl.format("law {}", "reason"))
    room = pl.when(pl.col("prompt_tokens") >= context_length).then(
        pl.format(
            "too long: {} tokens leave no room in the target's context of {}", "prompt_tokens", pl.lit(context_length)
        )
    )
    limit = pl.lit(max_prompt_tokens, dtype=pl.Int64)  # null without one, and so is what is compared with it
    over = pl.when(pl.col("prompt_tokens") > limit).then(
        pl.format("too long: {} tokens are more than max_prompt_tokens, {}", "prompt_tokens", limit)
    )
    reason = pl.coalesce(pl.col("reason"), pl.col("law_reason"), room, over)
    return (
        tokenized.join(broken, on="sample_id", how="left", maintain_order="left")
        .with_columns(reason=reason)
        .with_columns(status=pl.when(pl.col("reason").is_null()).then(pl.lit("ready")).otherwise(pl.lit("refused")))
        .select(TOKENIZED_PROMPTS.names())
    )


def _tools(prompts: pl.LazyFrame) -> dict[str, tuple[str, ...]]:
    """What each prompt declares; the lists themselves are long, and not kept."""
    found: dict[str, tuple[str, ...]] = {}
    for batch in batches(prompts.select("sample_id", "tools")):
        found |= declared_tools(batch)
    return found


def _context(
    project: Project,
    partition: Partition,
    target: LoadedTarget,
    *,
    rerendered: pl.DataFrame | None = None,
    tools: Mapping[str, tuple[str, ...]] | None = None,
    source_ids: frozenset[str] | None = None,
    identity: Identity | None = None,
    current: PromptIndex | None = None,
) -> Context:
    dataset = partition.dataset
    return Context(
        profile=target.profile,
        stop_token_ids=frozenset(identity.stop_token_ids) if identity else None,
        quarantine_limit=dataset.quarantine_limit,
        coverage=dataset.coverage,
        length_band=dataset.length_band,
        law_effects=project.config.law_effects,
        tokenizer=target.tokenizer,
        remote_code=tuple(map(str, target.code)),
        current_prompts=current,
        rerendered_prompts=rerendered,
        source_sample_ids=source_ids,
        declared_tools=tools,
        file_identity=FileIdentity(identity.fingerprint, sampling_record(identity), identity.weights)
        if identity
        else None,
        complete_records=True,
    )
