"""What a partition's prompts were made of, as it is kept beside them.

What belongs here: the record and comparing it with settings. Not here: where it lies, reading the source.
"""

import hashlib
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict

from eagle3_assets.partitions import Partition
from eagle3_assets.prompts.row_index import READER
from eagle3_assets.prompts.rows import Accounts, NotedRow, PromptRows
from eagle3_assets.prompts.sources import FileState

_SETTINGS = (
    "format",
    "ignore_keys",
    "limit",
    "sample",
    "sample_seed",
    "samples_per_prompt",
    "shards",
    "skip",
    "system_prompt",
    "turns",
)
"""Of a dataset: those which decide its prompts. Not the place of its source, whose content counts."""


class SourceRecord(BaseModel):
    """The source of one partition's stored prompts, as it was read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reader: str
    settings: dict[str, Any]
    prompts: str
    """Hash of the rows that were made: tells whether the record belongs to those that are stored."""
    accounts: Accounts
    duplicates: int
    """Prompts that equal an earlier one under another id."""
    refused: tuple[NotedRow, ...]
    """The first; all are in the file of refused rows."""
    remarked: tuple[NotedRow, ...]
    """The first rows that were read, but not as they may be meant."""
    remarks: int
    """How many such rows there are."""
    unread_keys: dict[str, int] = {}
    """Keys that say something and are not read, with the number of rows; older records have none."""
    files: tuple[FileState, ...]
    left_out_files: tuple[str, ...]

    @classmethod
    def of(cls, found: PromptRows, partition: Partition, trial_rows: int) -> "SourceRecord":
        """The record of what was just read."""
        return cls(
            reader=READER,
            settings=settings_of(partition, trial_rows),
            prompts=rows_digest(found.rows),
            accounts=found.accounts,
            duplicates=equal_prompts(found.rows),
            refused=found.refused,
            remarked=found.remarked,
            remarks=found.remarks,
            unread_keys=dict(found.unread_keys),
            files=found.files,
            left_out_files=found.left_out_files,
        )

    @property
    def limited(self) -> bool:
        """Whether reading ended at the dataset's limit."""
        limit = self.settings.get("limit")
        return limit is not None and self.accounts.rows >= self.settings["skip"] + limit

    def other_settings(self, partition: Partition, trial_rows: int) -> list[str]:
        """In what the settings now differ from those of the record, one line each."""
        now = settings_of(partition, trial_rows)
        changed = [
            f"{key} was {self.settings.get(key)!r} and is {now.get(key)!r}"
            for key in sorted(self.settings.keys() | now.keys())
            if self.settings.get(key) != now.get(key)
        ]
        return changed if self.reader == READER else ["sources are read in another way by this version", *changed]


def settings_of(partition: Partition, trial_rows: int) -> dict[str, Any]:
    """What decides which prompts a partition takes from a given source, as JSON."""
    settings = partition.dataset.model_dump(mode="json", include=set(_SETTINGS))
    return {**settings, "trial_rows": trial_rows} if partition.trial else settings


def rows_digest(rows: pl.DataFrame) -> str:
    """Sixteen hex digits that change with the ids and contents of prompts, not with where they stand in the source."""
    total = hashlib.sha256()
    for row in rows.select("sample_id", "messages", "tools").iter_rows():
        total.update(repr(row).encode("utf-8", "backslashreplace") + b"\0")
    return total.hexdigest()[:16]


def equal_prompts(rows: pl.DataFrame) -> int:
    """How many prompts equal an earlier one; further samples of the same prompt are none."""
    prompts = rows.filter(pl.col("sample_index") == 0).select("messages", "tools")
    return len(prompts) - prompts.n_unique()
