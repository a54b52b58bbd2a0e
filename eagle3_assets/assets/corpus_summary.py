"""The asset ``corpus_summary``: all partitions together, as they are now. Without partitions, in a job of its own."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import polars as pl

from eagle3_assets.assets.common import column_schema, data_version, failing_clearly, usual_metadata
from eagle3_assets.contract import COLUMN_MEANINGS, CORPUS_SUMMARY
from eagle3_assets.pages.corpus import corpus_page
from eagle3_assets.pages.plots import overlay_markdown
from eagle3_assets.project import Project
from eagle3_assets.resources import TargetResource
from eagle3_assets.running import throughput_of
from eagle3_assets.storage.files import write_page
from eagle3_assets.storage.layout import WHOLE
from eagle3_assets.summary import summarize, summary_verdict
from eagle3_assets.tokens.safe_text import visible

NAME = "corpus_summary"
FIGURES = ("samples", "tokens", "median", "reasoning_share", "drift_share", "cut_off_share", "quarantined", "failed")
PROJECTED = ("held_up", "to_generate", "projected_tokens", "seconds_left")


def build(project: Project) -> dg.AssetsDefinition:
    """The asset for one config."""

    @dg.asset(
        name=NAME,
        description=(
            "All partitions together: per dataset how many samples and tokens, how long, what laws warn of; what is"
            " missing, stale or refused; how much it will be. Judges every partition anew; counts no trial, and none"
            " that a law refuses. Made by the job `corpus`."
        ),
        group_name="corpus",
        kinds={"polars", "parquet"},
        deps=["prompts", "tokenized_prompts", "raw_generations"],
        io_manager_key="parquet",
        code_version="1",
        metadata=column_schema(CORPUS_SUMMARY),
        output_required=False,
    )
    def corpus_summary(
        context: dg.AssetExecutionContext, target: dg.ResourceParam[TargetResource]
    ) -> Iterator[dg.MaterializeResult[pl.DataFrame]]:
        if partition := context.run.tags.get("dagster/partition"):
            context.log.info(f"left out of the run for {partition}: it is about all partitions. Use the job corpus.")
            return
        with failing_clearly():
            loaded = target.load()
            speed = throughput_of(context.instance, project.config.engine.kind, loaded.tokenizer_sha256)
            summary = summarize(project, loaded, speed)
            place = project.layout.corpus_page()
            write_page(corpus_page(summary), place)
        whole = summary.row(-1, named=True)
        yield dg.MaterializeResult(
            value=summary,
            metadata={
                "verdict": summary_verdict(summary),
                "lengths": dg.MetadataValue.md(overlay_markdown(summary.to_dicts())),
                "datasets": datasets_table(summary),
                "not_complete": partitions_table(whole),
                "page": dg.MetadataValue.path(str(place)),
                **({"throughput": whole["throughput"]} if whole["throughput"] else {}),
                **{key: round(whole[key], 4) for key in (*FIGURES, *PROJECTED) if whole[key] is not None},
                **usual_metadata(len(summary), project.layout.asset_file(NAME, WHOLE)),
            },
            data_version=data_version(summary.iter_rows()),
        )

    return corpus_summary


def datasets_table(summary: pl.DataFrame) -> dg.MetadataValue:
    """A row for each dataset and one for all."""
    columns = (*FIGURES, "laws_warned", *PROJECTED)
    return dg.MetadataValue.table(
        [
            dg.TableRecord({"dataset": row["dataset"] or "all", **{name: _cell(row[name]) for name in columns}})
            for row in summary.iter_rows(named=True)
        ],
        schema=dg.TableSchema(
            [
                dg.TableColumn("dataset", "string"),
                *(
                    dg.TableColumn(
                        name, "string" if name == "laws_warned" else "float", description=COLUMN_MEANINGS[name]
                    )
                    for name in columns
                ),
            ]
        ),
    )


def _cell(value: Any) -> str | float | None:  # noqa: ANN401 - a cell of any column
    if isinstance(value, list):
        return ", ".join(f"{found['law']} ({found['partitions']})" for found in value)
    return round(value, 4) if value is not None else None


def partitions_table(whole: dict[str, Any]) -> dg.MetadataValue:
    """Every partition that is not complete, and why."""
    columns = ("partition", "state", "why")
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {"partition": p["partition"], "state": p["state"], "why": visible(" ".join(p["why"]))},
            )
            for p in whole["partitions"]
            if p["state"] != "complete"
        ],
        schema=dg.TableSchema([dg.TableColumn(name, "string") for name in columns]),
    )
