"""The data contract: the columns of every asset, as polars schemas. One fact, one place.

What belongs here: column names, dtypes and what they mean. Not here: how a column is computed, where a file lies.
Token ids are ``List(Int32)`` everywhere; an id that does not fit is refused by sample, never cast.
"""

import polars as pl

TokenIds = pl.List(pl.Int32)
"""The dtype of every column of token ids."""

WEIGHT_VERSION_SEPARATOR = ", "
"""Between the names in a row's ``weight_version`` where the weights changed while it was generated."""

ROW_GROUP_ROWS = 2_000
"""Rows in a parquet row group: small groups keep the peak memory of streaming reads and writes low."""


def _schema(columns: dict[str, pl.DataType | type[pl.DataType]]) -> pl.Schema:
    return pl.Schema(columns)


PROMPTS = _schema(
    {
        "sample_id": pl.String,
        "conversation_id": pl.String,
        "turn": pl.Int32,
        "sample_index": pl.Int32,
        "messages": pl.String,
        "tools": pl.String,
        "source": pl.String,
        "source_row": pl.Int64,
    }
)

TOKENIZED_PROMPTS = _schema(
    {
        "sample_id": pl.String,
        "prompt_ids": TokenIds,
        "prompt_tokens": pl.Int32,
        "thinking": pl.Boolean,
        "status": pl.String,
        "reason": pl.String,
    }
)

RAW_GENERATIONS = _schema(
    {
        "sample_id": pl.String,
        "status": pl.String,
        "reason": pl.String,
        "prompt_ids": TokenIds,
        "output_ids": TokenIds,
        "completion_tokens": pl.Int32,
        "finish_type": pl.String,
        "matched_stop": pl.String,
        "finish_length": pl.Int32,
        "server_prompt_tokens": pl.Int32,
        "cached_tokens": pl.Int32,
        "output_logprobs": pl.List(pl.Float32),
        "logprob_kind": pl.String,
        "text": pl.String,
        "weight_version": pl.String,
        "endpoint": pl.String,
        "latency_s": pl.Float64,
        "attempts": pl.Int32,
        "sampling": pl.String,
        "identity": pl.String,
        "environment": pl.String,
        "request_key": pl.String,
        "ids_sha256": pl.String,
    }
)

SAMPLE_FINDINGS = _schema(
    {"sample_id": pl.String, "law": pl.String, "severity": pl.String, "index": pl.Int32, "detail": pl.String}
)

DECODED_PREVIEWS = _schema(
    {
        "sample_id": pl.String,
        "stratum": pl.String,
        "text": pl.String,
        "reasoning_end": pl.Int32,
        "completion_tokens": pl.Int32,
        "finish_type": pl.String,
        "findings": pl.List(pl.String),
        "spans": pl.List(pl.Struct({"kind": pl.String, "start": pl.Int32, "end": pl.Int32})),
    }
)

LENGTH_STATISTICS = _schema(
    {
        "section": pl.String,
        "turn": pl.Int32,
        "samples": pl.Int64,
        "tokens": pl.Int64,
        "mean": pl.Float64,
        "min": pl.Int32,
        "p05": pl.Int32,
        "p25": pl.Int32,
        "median": pl.Int32,
        "p75": pl.Int32,
        "p95": pl.Int32,
        "max": pl.Int32,
        "share_under_500": pl.Float64,
        "cut_off_share": pl.Float64,
        "tool_call_share": pl.Float64,
        "tool_calls": pl.Int64,
        "finish_types": pl.List(pl.Struct({"finish_type": pl.String, "samples": pl.Int64})),
        "histogram": pl.List(pl.Struct({"low": pl.Int32, "high": pl.Int32, "samples": pl.Int64})),
    }
)

TRAINING_SAMPLES = _schema(
    {
        "id": pl.String,
        "conversation_id": pl.String,
        "input_ids": TokenIds,
        "loss_mask": pl.List(pl.UInt8),
        "metadata": pl.String,
    }
)

CORPUS_SUMMARY = _schema(
    {
        "dataset": pl.String,
        "samples": pl.Int64,
        "tokens": pl.Int64,
        "mean": pl.Float64,
        "median": pl.Int32,
        "p95": pl.Int32,
        "share_under_500": pl.Float64,
        "reasoning_share": pl.Float64,
        "cut_off_share": pl.Float64,
        "drift_share": pl.Float64,
        "drift_samples": pl.Int64,
        "quarantined": pl.Int64,
        "failed": pl.Int64,
        "refused": pl.Int64,
        "laws_warned": pl.List(pl.Struct({"law": pl.String, "partitions": pl.Int32})),
        "histogram": pl.List(pl.Struct({"low": pl.Int32, "high": pl.Int32, "samples": pl.Int64})),
        "held_up": pl.Int64,
        "to_generate": pl.Int64,
        "projected_samples": pl.Int64,
        "projected_tokens": pl.Int64,
        "projected_at_cap": pl.Int64,
        "projection_basis": pl.String,
        "seconds_left": pl.Float64,
        "throughput": pl.String,
        "partitions": pl.List(
            pl.Struct(
                {
                    "partition": pl.String,
                    "state": pl.String,
                    "samples": pl.Int64,
                    "tokens": pl.Int64,
                    "held_up": pl.Int64,
                    "why": pl.List(pl.String),
                }
            )
        ),
    }
)

TRAINING_EXPORT = _schema(
    {
        "sample_id": pl.String,
        "conversation_id": pl.String,
        "fate": pl.String,
        "reason": pl.String,
        "file": pl.String,
        "row": pl.Int32,
        "sample_tokens": pl.Int32,
        "trained_tokens": pl.Int32,
        "masked_tail": pl.Int32,
        "finish_type": pl.String,
        "ids_sha256": pl.String,
    }
)
"""The index of an export: a row for each prompt, exported or not."""

DRAFT_VOCABULARY = _schema(
    {
        "dataset": pl.String,
        "draft_ids": pl.Int32,
        "mark": pl.String,
        "trained_tokens": pl.Int64,
        "covered_tokens": pl.Int64,
        "coverage": pl.Float64,
    }
)
"""What drafters of several sizes could say, in the order of ids that the whole corpus gives."""

SCHEMAS: dict[str, pl.Schema] = {
    "prompts": PROMPTS,
    "tokenized_prompts": TOKENIZED_PROMPTS,
    "raw_generations": RAW_GENERATIONS,
    "decoded_previews": DECODED_PREVIEWS,
    "length_statistics": LENGTH_STATISTICS,
    "training_samples": TRAINING_SAMPLES,
    "corpus_summary": CORPUS_SUMMARY,
    "draft_vocabulary": DRAFT_VOCABULARY,
    "training_export": TRAINING_EXPORT,
}
"""The columns of each asset."""

COLUMN_MEANINGS: dict[str, str] = {
    "sample_id": "conversation, turn and sample index: unique in a dataset",
    "conversation_id": "the source's id, or a hash of the conversation's content",
    "turn": "index of the assistant turn to generate among the messages of the source's row; in length_statistics null"
    " for all of them together",
    "sample_index": "0-based number of this sample of the same prompt",
    "messages": "the conversation up to the turn, JSON",
    "tools": "declared tools in OpenAI's shape, JSON; null without tools",
    "source": "file that the row comes from, relative to the dataset's source",
    "source_row": "1-based line in that file; in an array or a Parquet file, the row's number",
    "prompt_ids": "ids of the rendered prompt; in raw_generations, as sent",
    "prompt_tokens": "number of prompt ids",
    "thinking": "whether the prompt leaves reasoning to the target",
    "status": "tokenized_prompts: ready or refused; raw_generations: generated, failed or refused_prompt",
    "reason": "why a row was refused or failed; null otherwise",
    "output_ids": "exactly the ids that the target emitted, the stop token included",
    "completion_tokens": "number of output ids; in raw_generations, as the engine counted them",
    "finish_type": "stop or length, in SGLang's words",
    "matched_stop": "what ended the output as JSON: an id, or a string; null where the cap did",
    "finish_length": "the cap that the engine says it applied, in tokens",
    "server_prompt_tokens": "number of prompt ids as the engine counted them",
    "cached_tokens": "prompt ids that the engine took from its prefix cache",
    "output_logprobs": "natural-log probability of each output id, where recorded",
    "logprob_kind": "sampled (after temperature) or model (before it)",
    "text": "the output decoded; in raw_generations, by the engine, where recorded",
    "weight_version": "the engine's name for the weights that produced the row; several where they changed within it",
    "endpoint": "which server answered; embedded for the engine in this process",
    "latency_s": "seconds between asking and answer",
    "attempts": "how many times the request was sent",
    "sampling": "every sampling parameter of the request, canonical JSON",
    "identity": "fingerprint of what decides the tokens",
    "environment": "fingerprint of engine, versions and flags",
    "request_key": "hash of sample, prompt ids and identity: what resume and accounting go by",
    "ids_sha256": "sha256 of prompt and output ids, taken at capture",
    "stratum": "why this sample was chosen",
    "reasoning_end": "index of the end-of-reasoning id in the output ids, -1 where absent",
    "findings": "laws that this sample breaks or that remark on it",
    "spans": "sections of the output: kind, first index, index after the last",
    "section": "output, or its parts: reasoning and answer (tool calls included)",
    "samples": "generated outputs; in corpus_summary, those that training_samples takes",
    "tokens": "tokens in all of them",
    "mean": "tokens per output",
    "min": "tokens of the shortest",
    "p05": "tokens: 5 % of the outputs are not longer",
    "p25": "tokens: a quarter of the outputs are not longer",
    "median": "tokens: half of the outputs are not longer",
    "p75": "tokens: three quarters of the outputs are not longer",
    "p95": "tokens: 95 % of the outputs are not longer",
    "max": "tokens of the longest",
    "share_under_500": "share shorter than 500 tokens",
    "cut_off_share": "share that ended at the cap",
    "tool_call_share": "share in which a tool call begins",
    "tool_calls": "tool calls that begin after reasoning, in all outputs",
    "finish_types": "how outputs ended, and how many",
    "histogram": "outputs by length: from low tokens up to, and without, high",
    "dataset": "its name; null for all of them together",
    "reasoning_share": "share of the tokens that is reasoning",
    "drift_share": "share of outputs that a way over text would change, by those looked at of each partition; or null",
    "drift_samples": "outputs looked at for that",
    "quarantined": "outputs left out, since they break a law",
    "failed": "prompts that were sent and have no output, of every sealed partition, trials excepted",
    "refused": "prompts that were never sent, of every sealed partition, trials excepted",
    "laws_warned": "laws that warn, and of how many partitions",
    "held_up": "prompts without a usable output that materializing, as things are, brings none: of partitions that are"
    " refused, unreadable or blocked; of a partition null where that is unknown, and then not in the sum",
    "to_generate": "prompts that materializing, as things are, sends, of partitions that count or are missing; null"
    " where that is unknown",
    "projected_samples": "those that count, and an output of every prompt to generate",
    "projected_tokens": "tokens in all of them",
    "projected_at_cap": "of these, tokens of outputs that nothing tells the length of, each as long as max_new_tokens",
    "projection_basis": "where the other ones still to be generated are from: measured (outputs), band (length_band);"
    " cap (max_new_tokens) where there are none",
    "seconds_left": "seconds that generating the rest takes, an estimate; null without a measured throughput",
    "throughput": "the throughput that it is reckoned with, and which runs measured it; null without one",
    "partitions": "every partition, its state and why; of those that are not counted, samples and tokens are 0",
    "id": "the sample id",
    "input_ids": "prompt ids followed by output ids",
    "loss_mask": "0 for each prompt id, 1 for each output id; unshifted",
    "metadata": "where the sample comes from, JSON",
    "fate": "where the prompt ended; docs/export.md lists the fates",
    "file": "exported: the file, relative to the export; null otherwise",
    "row": "exported: 0-based row in that file",
    "sample_tokens": "number of input ids; null without an output",
    "trained_tokens": "ones in the loss mask; in training_export, as exported",
    "draft_ids": "size of the drafter's vocabulary: its most frequent ids, structural ones always in it",
    "mark": "why this size is looked at: chosen, knee (an id more adds less than the average seen one), a share of the"
    " tokens; null for round numbers",
    "covered_tokens": "tokens with a loss whose id a drafter of this size has",
    "coverage": "their share of the tokens with a loss",
    "masked_tail": "output ids at the end that the loss was taken off, because the cap ended the output",
}
"""What each column holds, shown in the Dagster UI's column schema."""
