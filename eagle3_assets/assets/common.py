"""What every asset shares: its partitions, its column schema, its usual metadata.

What belongs here: metadata forms. Not here: what any asset is about.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import polars as pl

from eagle3_assets.contract import COLUMN_MEANINGS
from eagle3_assets.engines.base import EngineError
from eagle3_assets.generation.errors import GenerationError
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import SourceError
from eagle3_assets.storage.files import StorageError
from eagle3_assets.target import TargetError

ERRORS_FOR_PEOPLE = (EngineError, GenerationError, SourceError, StorageError, TargetError)
"""Errors whose text already says what is wrong, where and what to do."""


def partitions_definition(project: Project) -> dg.StaticPartitionsDefinition:
    """The one partitions definition of all per-partition assets and checks."""
    return dg.StaticPartitionsDefinition(list(project.partitions))


def column_schema(schema: pl.Schema) -> dict[str, Any]:
    """Definition metadata: the contract's columns as Dagster shows them."""
    columns = [
        dg.TableColumn(name, type=str(dtype), description=COLUMN_MEANINGS.get(name)) for name, dtype in schema.items()
    ]
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


def counts_table(counts: Iterable[tuple[str, int]]) -> dg.MetadataValue:
    """Reasons and how often each, as a table."""
    return dg.MetadataValue.table(
        [dg.TableRecord({"reason": reason, "rows": rows}) for reason, rows in counts],
        schema=dg.TableSchema([dg.TableColumn("reason", "string"), dg.TableColumn("rows", "int")]),
    )


@contextmanager
def failing_clearly() -> Iterator[None]:
    """Turns errors that are written for people into a failure with just that text; trying again would not help."""
    try:
        yield
    except ERRORS_FOR_PEOPLE as error:
        raise dg.Failure(str(error), allow_retries=False) from error
