"""The asset ``tokenized_prompts``: the ids that the target will be given."""

import time

import dagster as dg
import polars as pl

from eagle3_assets.assets.common import (
    column_schema,
    data_version,
    failing_clearly,
    partitions_definition,
    reasons_metadata,
    usual_metadata,
    wrapped,
)
from eagle3_assets.contract import TOKENIZED_PROMPTS
from eagle3_assets.judging import given_other_ids, given_without_names
from eagle3_assets.project import Project
from eagle3_assets.remote_code import warning
from eagle3_assets.resources import ProgressListener, TargetResource
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokenizing import tokenized
from eagle3_assets.tokens.columns import TokenColumn
from eagle3_assets.tokens.safe_text import markdown_block, visible

TOLD_EVERY_S = 30.0
"""Seconds between two lines of progress in the run's log."""
SHOWN = 4_000
"""Characters of the first prompt in the metadata; every materialization stores them in the instance."""


def build(project: Project) -> dg.AssetsDefinition:
    """The asset for one config."""

    @dg.asset(
        name="tokenized_prompts",
        description=(
            "Prompt ids from the target's own chat template, up to where the target goes on. A prompt that"
            " the template, a law or the context's length refuses is kept with its reason and never sent."
        ),
        group_name="prompts",
        kinds={"huggingface", "polars"},
        partitions_def=partitions_definition(project),
        io_manager_key="parquet",
        code_version="1",
        metadata=column_schema(TOKENIZED_PROMPTS),
    )
    @failing_clearly()
    def tokenized_prompts(
        context: dg.AssetExecutionContext,
        prompts: pl.LazyFrame,
        target: dg.ResourceParam[TargetResource],
        progress: dg.ResourceParam[ProgressListener],
    ) -> dg.MaterializeResult[pl.DataFrame]:
        partition = project.partition(context.partition_key)
        loaded = target.load()
        if loaded.settings.trust_remote_code:
            context.log.warning(visible(warning(loaded.code)))
        parts, versions = [pl.DataFrame(schema=TOKENIZED_PROMPTS)], []
        total, told = prompts.select(pl.len()).collect().item(), time.monotonic()
        for part in tokenized(project, partition, loaded, prompts):
            parts.append(part)
            versions += TokenColumn.from_series(part["prompt_ids"]).digests()
            progress.prompts(partition.key, "rendered", len(versions), total)
            if time.monotonic() - told >= TOLD_EVERY_S:
                context.log.info(f"rendered {len(versions):,} of {total:,} prompts")
                told = time.monotonic()
        result = pl.concat(parts)
        ready = result.filter(pl.col("status") == "ready")["sample_id"]
        other_ids = len(set(given_other_ids(partition, loaded, prompts)) & set(ready))
        if other_ids:
            form = loaded.profile.tool_call_id
            context.log.info(
                f"{other_ids:,} of the prompts have calls without ids of the form {form}, or with numbers out of order,"
                " and are rendered with such: the chat template prints them in place of functions' names"
            )
        nameless = len(set(given_without_names(partition, loaded, prompts)) & set(ready))
        if nameless:
            context.log.warning(
                f"in {nameless:,} of the prompts a speaker has a `name` that the chat template does not print"
            )
        refused = result.filter(pl.col("status") == "refused")
        return dg.MaterializeResult(
            value=result,
            metadata={
                **usual_metadata(len(result), project.layout.asset_file("tokenized_prompts", partition.key)),
                "ready": len(result) - len(refused),
                "refused": len(refused),
                "other_call_ids": other_ids,
                "names_left_out": nameless,
                **reasons_metadata("refusals", refused["reason"]),
                "prompt_tokens": int(result["prompt_tokens"].sum()),
                "longest_prompt": result.select(pl.col("prompt_tokens").max()).item() or 0,
                "tokenizer_sha256": loaded.tokenizer_sha256,
                "chat_template_sha256": loaded.template_sha256,
                "profile": loaded.profile.name,
                "trust_remote_code": loaded.settings.trust_remote_code,
                "remote_code": _code_table(loaded),
                "first_prompt": _first_prompt(result, loaded),
            },
            data_version=data_version([*versions, *result["status"]]),
        )

    return tokenized_prompts


def _code_table(target: LoadedTarget) -> dg.MetadataValue:
    columns = [
        dg.TableColumn("file", "string"),
        dg.TableColumn("loaded_as", "string", description="by an auto_map; empty where only other code imports it"),
        dg.TableColumn("sha256", "string"),
    ]
    return dg.MetadataValue.table(
        [
            dg.TableRecord({"file": visible(c.name), "loaded_as": visible(", ".join(c.loaded_as)), "sha256": c.sha256})
            for c in target.code
        ],
        schema=dg.TableSchema(columns),
    )


def _first_prompt(result: pl.DataFrame, target: LoadedTarget) -> dg.MetadataValue:
    ready = result.filter(pl.col("status") == "ready")
    if ready.is_empty():
        return dg.MetadataValue.text("no prompt is ready")
    text = str(target.tokenizer.decode(ready["prompt_ids"][0].to_list(), skip_special_tokens=False))
    shown = visible(text if len(text) <= SHOWN else f"{text[:SHOWN]} [...]", keep_lines=True)
    return dg.MetadataValue.md(markdown_block(wrapped(shown)))
