"""What every asset shares: its partitions, its column schema, its usual metadata.

What belongs here: metadata forms. Not here: what any asset is about.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from textwrap import TextWrapper
from typing import Any

import dagster as dg
import polars as pl

from eagle3_assets.assets.refusals import refused
from eagle3_assets.contract import COLUMN_MEANINGS
from eagle3_assets.engines.base import EngineError
from eagle3_assets.exports.errors import ExportError
from eagle3_assets.generation.errors import GenerationError
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import PromptSourceError
from eagle3_assets.storage.files import StorageError
from eagle3_assets.target import TargetError, not_ended_by_code
from eagle3_assets.tokens.reasons import commonest_reason, reason_kinds
from eagle3_assets.tokens.safe_text import visible
from eagle3_assets.tokens.vocabulary import VocabularyError
from eagle3_assets.training import RefusedPartitionError

ERRORS_FOR_PEOPLE = (
    EngineError,
    ExportError,
    GenerationError,
    PromptSourceError,
    StorageError,
    TargetError,
    VocabularyError,
)
"""Errors whose text already says what is wrong, where and what to do."""


LINE = 52
"""Characters of a line: so many have room beside the keys in Dagster's UI on a screen of 1280 pixels."""


def partitions_definition(project: Project) -> dg.StaticPartitionsDefinition:
    """The one partitions definition of all per-partition assets and checks."""
    return dg.StaticPartitionsDefinition(list(project.partitions))


def column_schema(schema: pl.Schema) -> dict[str, Any]:
    """Definition metadata: the contract's columns as Dagster shows them."""
    columns = []
    for name, dtype in schema.items():
        inner = dtype.inner if isinstance(dtype, pl.List) else None
        # A type that spells all fields takes the width that the descriptions need.
        fields = f"; fields: {', '.join(field.name for field in inner.fields)}" if isinstance(inner, pl.Struct) else ""
        shown = "List(Struct)" if fields else str(dtype)
        columns.append(dg.TableColumn(name, type=shown, description=f"{COLUMN_MEANINGS.get(name, '')}{fields}" or None))
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def usual_metadata(rows: int, path: object) -> dict[str, Any]:
    """Row count and place, under the keys that Dagster's UI knows."""
    return {"dagster/row_count": rows, "path": dg.MetadataValue.path(str(path))}


def data_version(parts: Iterable[object]) -> dg.DataVersion:
    """A data version: changes exactly when one of the parts does."""
    total = hashlib.sha256()
    for part in parts:
        total.update(repr(part).encode("utf-8", "backslashreplace") + b"\0")
    return dg.DataVersion(total.hexdigest()[:16])


def reasons_table(reasons: pl.Series) -> dg.MetadataValue:
    """The most frequent kinds of reasons and how often each; see :func:`tokens.reasons.reason_kinds`."""
    return counts_table("reason", reason_kinds(reasons).head(20))


def reasons_metadata(name: str, reasons: pl.Series) -> dict[str, Any]:
    """That table under a name, and where there are reasons the commonest by one of its rows."""
    example = commonest_reason(reasons)
    return {name: reasons_table(reasons), **({"commonest_reason": example} if example else {})}


def counts_table(name: str, counts: pl.DataFrame, what: str = "rows") -> dg.MetadataValue:
    """A frame of a name and a count of something as a table; names may hold text that others wrote."""
    return dg.MetadataValue.table(
        [dg.TableRecord({name: visible(str(text)), what: count}) for text, count in counts.iter_rows()],
        schema=dg.TableSchema([dg.TableColumn(name, "string"), dg.TableColumn(what, "int")]),
    )


def wrapped(text: str) -> str:
    """Lines no longer than the UI's column; a code block there is neither wrapped nor easily scrolled."""
    wrap = TextWrapper(LINE, drop_whitespace=False, replace_whitespace=False, expand_tabs=False)
    return "\n".join(part for line in text.split("\n") for part in (wrap.wrap(line) or [""]))


@contextmanager
def failing_clearly() -> Iterator[None]:
    """Turns errors that are written for people into a failure with just that text; trying again would not help.

    Also as a decorator of an asset's function. The target's own code, where it is trusted, decodes in most assets and
    checks, and may not end their process.
    """
    try:
        with not_ended_by_code():
            yield
    except RefusedPartitionError as error:
        raise refused(str(error), error.partition, error.reasons, error.report) from error
    except ERRORS_FOR_PEOPLE as error:
        raise dg.Failure(visible(str(error), keep_lines=True), allow_retries=False) from error
    except pl.exceptions.ComputeError as error:
        raise dg.Failure(
            f"a stored file cannot be read to its end ({error}). Restore it from a copy, or materialize its asset"
            " again; raw_generations with regenerate.",
            allow_retries=False,
        ) from error
