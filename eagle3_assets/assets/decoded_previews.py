"""The asset ``decoded_previews``: what the model actually said, for a person to read."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import polars as pl

from eagle3_assets.assets.common import (
    LINE,
    column_schema,
    data_version,
    failing_clearly,
    partitions_definition,
    usual_metadata,
    wrapped,
)
from eagle3_assets.contract import DECODED_PREVIEWS
from eagle3_assets.generation.sealed import Sealed
from eagle3_assets.inspecting import inspect_partition
from eagle3_assets.pages.page import preview_page
from eagle3_assets.pages.plots import IN_PLACE
from eagle3_assets.project import Project
from eagle3_assets.resources import TargetResource
from eagle3_assets.storage.files import write_page
from eagle3_assets.tokens.laws.texts import DRIFT_KINDS
from eagle3_assets.tokens.safe_text import excerpt, markdown_block, markdown_code, visible
from eagle3_assets.tokens.strata import first_look
from eagle3_assets.tokens.verdict import Verdict

MOST_LINES = 30
"""Lines of a text; those of prose are fewer where it fits in place."""
ID_SHOWN, WORD_SHOWN = 80, 24
"""Characters of a sample's id and of a finish type; both are others' text and may be of any length."""


def build(project: Project) -> dg.AssetsDefinition:
    """The asset for one config."""

    @dg.asset(
        name="decoded_previews",
        description=(
            "A few dozen decoded outputs, structural tokens visible: over all lengths, and some of every odd kind."
            " Five stand in the metadata, all of them in a page beside the file."
            " The text is the model's own and not to be trusted."
        ),
        group_name="inspection",
        kinds={"huggingface", "polars"},
        partitions_def=partitions_definition(project),
        io_manager_key="parquet",
        code_version="4",
        metadata=column_schema(DECODED_PREVIEWS),
    )
    @failing_clearly()
    def decoded_previews(
        context: dg.AssetExecutionContext,
        prompts: pl.LazyFrame,
        tokenized_prompts: pl.LazyFrame,
        raw_generations: Sealed,
        target: dg.ResourceParam[TargetResource],
    ) -> dg.MaterializeResult[pl.DataFrame]:
        partition = project.partition(context.partition_key)
        loaded = target.load()
        inspection = inspect_partition(project, partition, loaded, prompts, tokenized_prompts, raw_generations)
        page, place = preview_page(inspection, loaded), project.layout.page(partition.key)
        write_page(page, place)
        previews, quarantined = inspection.previews, inspection.report.quarantined
        looked_at = first_look(previews, quarantined or inspection.report.broken).sort(
            "completion_tokens", maintain_order=True
        )
        shown = {
            f"preview_{number}": dg.MetadataValue.md(preview_markdown(row, quarantined=row["sample_id"] in quarantined))
            for number, row in enumerate(looked_at.iter_rows(named=True), start=1)
        }
        return dg.MaterializeResult(
            value=previews,
            metadata={
                **shown,
                "page": dg.MetadataValue.path(str(place)),
                "page_bytes": len(page.encode()),
                **drift_metadata(inspection.report["retokenization_drift"]),
                "more": f"eagle3-assets decode {partition.key} --spread",
                **usual_metadata(len(previews), project.layout.asset_file("decoded_previews", partition.key)),
            },
            data_version=data_version(previews.select("sample_id", "stratum", "text").iter_rows()),
        )

    return decoded_previews


def drift_metadata(verdict: Verdict) -> dict[str, dg.MetadataValue]:
    """What a way over text would have changed of the outputs; nothing where that was not judged."""
    if verdict.status == "not_judged":
        return {}
    kinds = [
        (kind.replace("_", "-"), int(verdict.figures[f"drift_{kind}"]), verdict.figures[f"drift_{kind}"] / verdict.rows)
        for kind in DRIFT_KINDS
    ]
    rows = [*kinds, ("all", verdict.violations, verdict.share)]
    return {
        "retokenization_drift": dg.MetadataValue.table(
            [
                dg.TableRecord({"begins at": kind, "samples": samples, "share": round(share, 6)})
                for kind, samples, share in rows
            ],
            schema=dg.TableSchema(
                [
                    dg.TableColumn("begins at", "string", description="kind of the first token that would change"),
                    dg.TableColumn("samples", "int"),
                    dg.TableColumn("share", "float", description=f"of {verdict.rows:,} samples looked at"),
                ]
            ),
        ),
        "retokenization_drift_share": dg.MetadataValue.float(verdict.share),
    }


def preview_markdown(row: Mapping[str, Any], *, quarantined: bool) -> str:
    """One preview, short and narrow enough to be shown in place; what is too long is cut, and shows where.

    Args:
        row: of ``contract.DECODED_PREVIEWS``.
        quarantined: whether the sample is never exported.
    """
    finish = row["finish_type"]
    said = [
        f"{markdown_code(excerpt(row['sample_id'], ID_SHOWN))}: {row['completion_tokens']:,} tokens",
        f"response@{row['reasoning_end']}",
        "no finish type" if finish is None else markdown_code(excerpt(finish, WORD_SHOWN)),
        row["stratum"],
        *(["quarantined"] if quarantined else []),
    ]
    # Cut after it was made visible: names of hidden characters are longer than these.
    whole = visible(row["text"], keep_lines=True)
    for kept in (IN_PLACE, *range(IN_PLACE - 150, 0, -50)):
        text = whole if len(whole) <= kept else f"{whole[: kept // 2]} [...] {whole[-(kept // 2) :]}"
        preview = f"{_in_lines(said)}\n\n{markdown_block(_few_lines(wrapped(text)))}"
        if _length_in_browser(preview) < IN_PLACE:
            break
    return preview


def _length_in_browser(text: str) -> int:
    """As JavaScript counts characters: those beyond U+FFFF are two."""
    return len(text.encode("utf-16-le")) // 2


def _few_lines(text: str) -> str:
    """A loop of line ends would take several screens."""
    lines = text.split("\n")
    half = MOST_LINES // 2
    return text if len(lines) <= MOST_LINES else "\n".join([*lines[:half], "[...]", *lines[-half:]])


def _in_lines(parts: Sequence[str]) -> str:
    """Parts of a sentence of Markdown, as many in a line as its column has room for: a long path makes it wider."""
    lines = [parts[0]]
    for part in parts[1:]:
        longer = f"{lines[-1]}, {part}"
        if len(longer) <= LINE:
            lines[-1] = longer
        else:
            lines.append(part)
    return ",\\\n".join(lines)
