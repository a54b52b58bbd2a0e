"""The asset ``draft_vocabulary``: which ids a drafter has. Without partitions, in the job of the corpus."""

from collections.abc import Iterator

import dagster as dg
import polars as pl

from eagle3_assets.assets.common import column_schema, data_version, failing_clearly, usual_metadata
from eagle3_assets.contract import DRAFT_VOCABULARY
from eagle3_assets.exports.vocabulary import FILES, require_torch, vocabulary_files, write_vocabulary
from eagle3_assets.pages.coverage import coverage_markdown, coverage_page
from eagle3_assets.project import Project
from eagle3_assets.resources import TargetResource
from eagle3_assets.storage.files import write_page
from eagle3_assets.storage.layout import WHOLE
from eagle3_assets.tokens.safe_text import markdown_text
from eagle3_assets.tokens.vocabulary import vocabulary_verdict
from eagle3_assets.usable import left_out_text
from eagle3_assets.vocabularies import CorpusVocabulary, corpus_vocabulary

NAME = "draft_vocabulary"


def build(project: Project) -> dg.AssetsDefinition:
    """The asset for one config."""

    @dg.asset(
        name=NAME,
        description=(
            "The ids that a drafter has, chosen by how often each has a loss in all partitions together, structural"
            " ones always in; as the files that SpecForge and speculators read, and how much of each dataset they"
            " cover. Judges every partition anew; counts no trial, and none that a law refuses. Made by the job"
            " `corpus`."
        ),
        group_name="corpus",
        kinds={"polars", "parquet"},
        deps=["prompts", "tokenized_prompts", "raw_generations"],
        io_manager_key="parquet",
        code_version="1",
        metadata=column_schema(DRAFT_VOCABULARY),
        output_required=False,
    )
    def draft_vocabulary(
        context: dg.AssetExecutionContext, target: dg.ResourceParam[TargetResource]
    ) -> Iterator[dg.MaterializeResult[pl.DataFrame]]:
        if partition := context.run.tags.get("dagster/partition"):
            context.log.info(f"left out of the run for {partition}: it is about all partitions. Use the job corpus.")
            return
        with failing_clearly():
            require_torch()
            made = corpus_vocabulary(project, target.load(), project.config.export.draft_vocab_size)
            files = vocabulary_files(made.vocabulary, made.record)
            write_vocabulary(files, project.layout.vocabulary())
            place = project.layout.corpus_page(NAME)
            write_page(coverage_page(made), place)
        table = made.table()
        yield dg.MaterializeResult(
            value=table,
            metadata={
                "verdict": vocabulary_verdict(made.vocabulary),
                "coverage": dg.MetadataValue.md(coverage_markdown(made)),
                "sizes": sizes_table(table),
                "left_out": dg.MetadataValue.md(markdown_text(left_out_text(made.left_out))),
                "page": dg.MetadataValue.path(str(place)),
                "files": dg.MetadataValue.json({name: str(project.layout.vocabulary() / name) for name in FILES}),
                **_figures(made),
                **usual_metadata(len(table), project.layout.asset_file(NAME, WHOLE)),
            },
            data_version=data_version(files.values()),
        )

    return draft_vocabulary


def _figures(made: CorpusVocabulary) -> dict[str, float]:
    vocabulary, record = made.vocabulary, made.record
    structural, filled = vocabulary.unseen
    return {
        "draft_ids": record.draft_vocab_size,
        "trained_tokens": record.tokens,
        "coverage_of_all": round(record.coverage, 6),
        "knee": record.knee,
        "seen_ids": record.seen_ids,
        "structural_ids": len(record.structural_ids),
        "structural_ids_never_seen": structural,
        "filled_up": filled,
    }


def sizes_table(table: pl.DataFrame) -> dg.MetadataValue:
    """Sizes down, datasets across."""
    # Names with a space are no dataset's.
    wide = table.select(
        pl.col("draft_ids").alias("draft ids"),
        pl.col("mark").alias("what it is"),
        pl.col("dataset").fill_null("all datasets"),
        pl.col("coverage").round(6),
    ).pivot("dataset", index=["draft ids", "what it is"], values="coverage", maintain_order=True)
    kinds = {"draft ids": "int", "what it is": "string"}
    return dg.MetadataValue.table(
        [dg.TableRecord(row) for row in wide.iter_rows(named=True)],
        schema=dg.TableSchema(
            [dg.TableColumn(name, kinds.get(name, "float")) for name in wide.columns],
        ),
    )
