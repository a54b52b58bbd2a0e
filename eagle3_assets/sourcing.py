"""A partition's prompts and the record of their source, in storage and against the source as it is now.

What belongs here: taking prompts from a source with all that is kept beside them, and telling whether they are still
what the source gives. Not here: reading sources (``prompts``), Dagster.
"""

from collections.abc import Callable

import polars as pl
from pydantic import ValidationError

from eagle3_assets.files import read_bytes, write_text
from eagle3_assets.partitions import Partition
from eagle3_assets.project import Project
from eagle3_assets.prompts.record import SourceRecord, rows_digest
from eagle3_assets.prompts.row_index import RememberedIndexes, RowIndexes, StaleIndexError
from eagle3_assets.prompts.rows import NotedRow, PromptRows, read_partition
from eagle3_assets.prompts.sources import differences, find
from eagle3_assets.storage.files import StorageError, scan_parquet, writing_text


def take_prompts(project: Project, partition: Partition) -> tuple[PromptRows, SourceRecord]:
    """Reads a partition's prompts from its source, and writes the refused rows and the record beside where they go.

    Raises:
        PromptSourceError: the source cannot be read.
        StorageError: nothing can be written; what was there before is unchanged.
    """

    def read() -> PromptRows:
        with writing_text(project.layout.refused_rows(partition.key)) as file:

            def write(row: NotedRow) -> None:
                file.write(row.model_dump_json() + "\n")

            return read_partition(partition, project.config.trial_rows, write, indexes)

    indexes = RowIndexes(project.layout, partition.dataset)
    found = _by_fresh_indexes(read)
    record = SourceRecord.of(found, partition, project.config.trial_rows)
    path = project.layout.source_record(partition.key)
    try:
        write_text(path, record.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
    return found, record


def stored_record(project: Project, partition: Partition) -> SourceRecord | None:
    """The record beside the stored prompts; None where there is none that can be read."""
    try:
        return SourceRecord.model_validate_json(read_bytes(project.layout.source_record(partition.key)))
    except (OSError, ValidationError):
        return None


def source_changes(project: Project, partition: Partition, record: SourceRecord) -> list[str]:
    """In what the source and its settings differ from those that prompts were made of, one line each.

    Files whose size and time of change are the same are taken to be the same; others are hashed.

    Raises:
        PromptSourceError: the source cannot be read.
    """
    settings = record.other_settings(partition, project.config.trial_rows)
    return settings + differences(record.files, find(partition.dataset.source).files, limited=record.limited)


def current_prompts(project: Project, partition: Partition, indexes: RememberedIndexes | None = None) -> PromptRows:
    """What the source gives now: the stored prompts where it is still what they were made of, else read anew.

    Args:
        project: that it is of.
        partition: one of its.
        indexes: of its dataset's sources; for reading one partition after the other.

    Raises:
        PromptSourceError: the source cannot be read.
    """
    record = stored_record(project, partition)
    if record is not None and not source_changes(project, partition, record):
        try:
            stored = scan_parquet(project.layout.asset_file("prompts", partition.key), asset="prompts").collect()
        except (StorageError, pl.exceptions.ComputeError):
            stored = None
        if stored is not None and rows_digest(stored) == record.prompts:
            return PromptRows(
                stored,
                record.accounts,
                record.refused,
                record.remarked,
                record.remarks,
                record.unread_keys,
                record.files,
                record.left_out_files,
            )
    return _by_fresh_indexes(lambda: read_partition(partition, project.config.trial_rows, indexes=indexes))


def _by_fresh_indexes(read: Callable[[], PromptRows]) -> PromptRows:
    """Reads again where that went by an index of another content, as shows only at the file's end."""
    while True:
        try:
            return read()
        except StaleIndexError:
            continue
