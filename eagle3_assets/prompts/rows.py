"""A source file, read line by line into prompt rows, with every line accounted for.

What belongs here: reading, refusing by name, ids of rows, which rows a partition takes. Not here: what a conversation
is (``conversation``), what a template makes of it (``render``).
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from eagle3_assets.contract import PROMPTS
from eagle3_assets.partitions import Partition, stable_rank
from eagle3_assets.prompts.conversation import Conversation, RefusedRowError, from_openai
from eagle3_assets.strict_json import StrictJsonError, parse
from eagle3_assets.tokens.safe_text import quoted


class PromptSourceError(Exception):
    """A source that cannot be read at all; the text names the file."""


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """One line of a source that made no prompt."""

    source: str
    line: int
    reason: str

    def __str__(self) -> str:
        """File, line and reason, in one line."""
        return f"{self.source}:{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PromptRows:
    """What a partition takes from its source."""

    rows: pl.DataFrame
    """Columns of ``contract.PROMPTS``, in source order."""
    refused: list[RefusedRow]
    """Every unusable line of the whole source: which shard it would belong to cannot be known."""
    lines: int
    """Non-empty lines of the source."""
    elsewhere: int
    """Good rows which belong to other partitions."""


def read_partition(partition: Partition, trial_rows: int) -> PromptRows:
    """Reads a dataset's source and keeps what belongs to one partition.

    Args:
        partition: which rows to keep.
        trial_rows: how many conversations a trial takes: those first by stable hash.

    Raises:
        PromptSourceError: the file is missing or unreadable.
    """
    path = Path(partition.dataset.source)
    refused: list[RefusedRow] = []
    seen: dict[str, int] = {}
    lines = good = 0

    def conversations() -> Iterator[tuple[int, Conversation]]:
        nonlocal lines, good
        for line, text in _lines(path):
            lines += 1
            try:
                conversation = from_openai(_parsed(text))
                first = seen.setdefault(conversation.conversation_id, line)
                if first != line:
                    raise RefusedRowError(f"its id {quoted(conversation.conversation_id)} is line {first}'s already")
            except RefusedRowError as refusal:
                refused.append(RefusedRow(path.name, line, str(refusal)))
                continue
            good += 1
            if partition.holds(conversation.conversation_id):
                yield line, conversation

    if partition.trial:
        # Of a stream: a trial holds no more than its own rows.
        kept = heapq.nsmallest(trial_rows, conversations(), key=lambda item: stable_rank(item[1].conversation_id))
        kept.sort(key=lambda item: item[0])
    else:
        kept = list(conversations())
    rows = [
        {
            "sample_id": f"{conversation.conversation_id}:{conversation.turn}:{index}",
            "conversation_id": conversation.conversation_id,
            "turn": conversation.turn,
            "sample_index": index,
            "messages": conversation.messages_json(),
            "tools": conversation.tools_json(),
            "source": path.name,
            "source_row": line,
        }
        for line, conversation in kept
        for index in range(partition.dataset.samples_per_prompt)
    ]
    elsewhere = good - len(kept)
    return PromptRows(pl.DataFrame(rows, schema=PROMPTS), refused, lines, elsewhere)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Non-empty lines with their 1-based numbers."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise PromptSourceError(f"{path}: the dataset's source cannot be read: {error.strerror}") from None


def _parsed(line: bytes) -> Any:  # noqa: ANN401 - parsed JSON
    try:
        return parse(line)
    except StrictJsonError as error:
        raise RefusedRowError(str(error)) from None
