"""The asset ``training_export``: a partition as the trainers take it."""

from typing import Any

import dagster as dg

from eagle3_assets.assets.common import column_schema, failing_clearly, partitions_definition, usual_metadata
from eagle3_assets.automation import GOOD
from eagle3_assets.contract import TRAINING_EXPORT
from eagle3_assets.exporting import REVISION, export
from eagle3_assets.exports.derived import untrainable
from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.manifest import Manifest
from eagle3_assets.project import Project
from eagle3_assets.resources import TargetResource
from eagle3_assets.tokens.safe_text import markdown_text, visible
from eagle3_assets.training import judge_for_training, read_stored


def build(project: Project) -> dg.AssetsDefinition:
    """The asset for one config."""

    @dg.asset(
        name="training_export",
        description=(
            "Training samples as files that a trainer reads, split, filtered and counted as the config's section export"
            " says. Applies every law anew, and its own laws to the files as read back. Fails where nothing is left to"
            " train on."
        ),
        group_name="training",
        kinds={"polars"},
        deps=["prompts", "tokenized_prompts", "raw_generations", "training_samples"],
        partitions_def=partitions_definition(project),
        code_version=REVISION,
        automation_condition=GOOD,
        metadata=column_schema(TRAINING_EXPORT),
    )
    @failing_clearly()
    def training_export(
        context: dg.AssetExecutionContext, target: dg.ResourceParam[TargetResource]
    ) -> dg.MaterializeResult[None]:
        partition = project.partition(context.partition_key)
        place, loaded = project.layout.export(partition.key), target.load()
        try:
            manifest = export(project, loaded, [partition], place, project.config.export, context.log.info).manifest
        except ExportError:
            # An export knows why laws refuse a partition, in words; judged again it has the figures that a page shows.
            judge_for_training(project, partition, loaded, read_stored(project, partition.key))
            raise
        if why := untrainable(manifest):
            raise ExportError(f"{place}: is whole, and {why}")
        return dg.MaterializeResult(
            metadata={**usual_metadata(sum(file.rows for file in manifest.files), place), **_metadata(manifest)},
            data_version=dg.DataVersion(manifest.data_version),
        )

    return training_export


def _metadata(manifest: Manifest) -> dict[str, Any]:
    laws = "\n".join(f"- {markdown_text(visible(figures.sentence))}" for figures in manifest.laws)
    return {
        "format": manifest.format,
        "train_rows": manifest.rows("train"),
        "eval_rows": manifest.rows("eval"),
        "tokens": sum(file.tokens for file in manifest.files),
        "trained_tokens": sum(file.trained_tokens for file in manifest.files),
        "where_prompts_went": dg.MetadataValue.json(manifest.fates),
        "laws": dg.MetadataValue.md(laws),
    }
