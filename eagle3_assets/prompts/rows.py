"""A source read row by row into the prompts of one partition, with every row accounted for.

What belongs here: refusing by name, which rows a partition takes, counting. Not here: files (``sources``), what a row
means (``formats``), which turns it has (``turns``), what a template makes of it (``render``).
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Literal, NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict

from eagle3_assets.config import Dataset
from eagle3_assets.contract import PROMPTS, ROW_GROUP_ROWS
from eagle3_assets.partitions import Partition, dataset_partitions, stable_rank
from eagle3_assets.prompts.dialogue import Dialogue, RefusedRowError
from eagle3_assets.prompts.formats import LOOKED_AT, detect, read
from eagle3_assets.prompts.formats.messages import source_id
from eagle3_assets.prompts.formats.row_keys import without_keys
from eagle3_assets.prompts.row_index import Ranks, RowIndex, RowIndexes, StaleIndexError, fingerprint
from eagle3_assets.prompts.sampling import Smallest, in_share, sample_rank
from eagle3_assets.prompts.sources import FileState, OpenSource, PromptSourceError, SourceFile, SourceRow, find
from eagle3_assets.prompts.sources.changes import unread
from eagle3_assets.prompts.turns import conversation_id, history, turns_to_generate
from eagle3_assets.tokens.safe_text import quoted, visible

__all__ = ["Accounts", "NotedRow", "PromptRows", "PromptSourceError", "read_first", "read_partition"]

HOPELESS_ROWS = 10_000
"""Rows after which a file of which nothing could be read is given up; no more are held to find its format."""
SHOWN_ROWS = 20
"""Refused rows that are kept at hand, and rows with remarks; all refused ones go into the file beside the prompts."""
MOST_KEYS, LONGEST_KEY = 100, 80
"""Names of keys that are counted one by one, and their characters: a source may have a new one in every row."""
OTHER_KEYS = "(other keys)"

_Parsed = tuple[SourceRow, Any]
"""A row with its value, or with the ``RefusedRowError`` that says why it has none."""


class NotedRow(BaseModel):
    """One row of a source, and why it made no prompt or what is to be said of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    row: int
    conversation_id: str | None = None
    """The row's own id; None where it has none that can be read."""
    reason: str

    def __str__(self) -> str:
        """File, row and reason, in one line."""
        return f"{self.source}:{self.row}: {self.reason}"


class Accounts(BaseModel):
    """Where the rows that were read ended: each is counted in one place."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    """Read from the source; empty lines are none."""
    skipped: int
    refused: int
    """Of the whole source where a row could not be read, as it cannot be known which shard it would belong to; of this
    partition where a row's id was there already."""
    elsewhere: int
    """Of other partitions; in a trial, those that it does not take."""
    left_out: int
    """Not in the sample, though of this partition."""
    further_samples: int = 0
    """Of stored prompts, further samples of a prompt that another row gave."""
    used: int
    """That prompts were made of."""

    @property
    def unaccounted(self) -> int:
        """Rows that ended nowhere, or in two places if below 0."""
        ended = self.skipped + self.refused + self.elsewhere + self.left_out + self.further_samples + self.used
        return self.rows - ended

    @property
    def refused_share(self) -> float:
        """Of the rows that were looked at; 0 without any."""
        return self.refused / (self.rows - self.skipped) if self.rows > self.skipped else 0.0

    @property
    def nothing_usable(self) -> bool:
        """Whether no row makes a prompt of any partition."""
        return self.rows == self.skipped + self.refused


@dataclass(frozen=True, slots=True)
class PromptRows:
    """What a partition takes from its source."""

    rows: pl.DataFrame
    """Columns of ``contract.PROMPTS``, in source order."""
    accounts: Accounts
    refused: tuple[NotedRow, ...]
    """The first ``SHOWN_ROWS``."""
    remarked: tuple[NotedRow, ...]
    """The first ``SHOWN_ROWS`` rows of the partition that were read, but not as they may be meant."""
    remarks: int
    """How many such rows there are."""
    unread_keys: Mapping[str, int]
    """Keys that say something and are not read, with the number of the partition's rows that have them."""
    files: tuple[FileState, ...]
    """All that the source has, in reading order."""
    left_out_files: tuple[str, ...]
    """What lies in the source and is not read, and why."""

    @property
    def unread_said(self) -> str:
        """The keys that are not read, each with its number of rows."""
        return ", ".join(f"{key} ({rows:,})" for key, rows in self.unread_keys.items())


def read_partition(
    partition: Partition,
    trial_rows: int,
    refused: Callable[[NotedRow], object] = lambda _: None,
    indexes: RowIndexes | None = None,
) -> PromptRows:
    """Reads a dataset's source and keeps what belongs to one partition.

    Memory grows with the partition, not with the source, but for the index of one file.

    Args:
        partition: which rows to keep.
        trial_rows: how many conversations a trial takes: those first by stable hash.
        refused: is told every refused row.
        indexes: of the source's files: those that are there spare rows of other partitions, the others are made.
            They change nothing in what is read.

    Raises:
        PromptSourceError: the source is missing, unreadable or damaged, or its format cannot be told.
        StaleIndexError: there was an index of other rows of a file; call again, it is dropped.
    """
    return _read(_Reading(partition, trial_rows, refused, indexes))


def read_first(dataset: Dataset, rows: int) -> PromptRows:
    """What the first rows of a dataset's source become, with no sample taken and no shards made.

    Args:
        dataset: its source and settings.
        rows: how many to read after those that it skips.

    Raises:
        PromptSourceError: as in :func:`read_partition`, of what is read. Files are not hashed, nor read any further.
    """
    limit = rows if dataset.limit is None else min(rows, dataset.limit)
    whole = dataset.model_copy(update={"limit": limit, "shards": 1, "sample": None})
    return _read(_Reading(dataset_partitions(whole)[0], rows, lambda _: None, hash_files=False))


def _read(reading: "_Reading") -> PromptRows:
    found = find(reading.source)
    files = tuple(reading.take(file, alone=len(found.files) == 1) for file in found.files)
    rows = reading.chosen()
    return PromptRows(
        rows,
        reading.accounts(rows),
        tuple(reading.refused),
        tuple(reading.remarked),
        reading.remarks,
        dict(reading.unread_keys.most_common()),
        files,
        found.left_out,
    )


class _Reading:
    """One pass over a source for one partition."""

    def __init__(
        self,
        partition: Partition,
        trial_rows: int,
        tell: Callable[[NotedRow], object],
        indexes: RowIndexes | None = None,
        *,
        hash_files: bool = True,
    ) -> None:
        self._partition, self._dataset = partition, partition.dataset
        self._trial_rows, self._tell, self._hash_files = trial_rows, tell, hash_files
        self._indexes = indexes if self._dataset.shards > 1 else None  # one shard has no rows of others
        self.refused: list[NotedRow] = []
        self.remarked: list[NotedRow] = []
        self.remarks = 0
        self.unread_keys: Counter[str] = Counter()
        self._counts = dict.fromkeys(("rows", "skipped", "refused", "elsewhere", "left_out", "further_samples"), 0)
        self._kept = _Kept()
        # Of a sample or a trial, the conversations with the smallest ranks are wanted: others are let go on the way.
        sample = self._dataset.sample
        self._share = sample if isinstance(sample, float) else None
        self._sampled = Smallest(sample) if isinstance(sample, int) else None
        self._tried = Smallest(trial_rows) if partition.trial and not self._sampled else None

    def take(self, file: SourceFile, *, alone: bool) -> FileState:
        """Reads one file, as far as the limit allows; ``alone`` where the source has no other."""
        if self._at_limit:
            return unread(file)
        decided_by = self._fingerprint
        with OpenSource(file) as opened:
            if self._indexes and (known := self._indexes.find(file, decided_by)):
                return self._take_known(opened, known, self._indexes)
            rows = ((row, self._value(row)) for row in self._counted(opened.rows()))
            ranks = Ranks(sampled=self._dataset.sample is not None)
            told, format_name = self._format_told(file, rows, alone=alone)
            for row, value in told:
                ranks.add(self._take(row, value, format_name))
            if not self._hash_files:
                return unread(file).model_copy(update={"format": format_name})
            state = opened.state(format_name)
        if self._indexes:
            self._indexes.keep(RowIndex(state, decided_by, ranks.frame()))
        return state

    def _take_known(self, opened: OpenSource, index: RowIndex, indexes: RowIndexes) -> FileState:
        """Reads a file whose rows are known, if it is still the same: then no row of elsewhere is parsed."""
        format_name = index.state.format
        state = None
        with suppress(PromptSourceError):  # maybe of the index's making; without one it comes again if it is not
            for row, ranks in zip_longest(self._counted(opened.rows()), index.ranks.iter_rows()):
                if row is None or ranks is None:
                    break
                conversation, sample = ranks
                if conversation is None:
                    self._take(row, self._value(row), format_name)
                elif not self._ends(conversation, sample):
                    self._take(row, self._value(row), format_name, belongs=True)
            else:
                state = opened.state(format_name)
        if state is None or state.sha256 != index.state.sha256:
            indexes.drop(opened.file.name)
            raise StaleIndexError(f"{opened.file.path}: its index is of another content")
        return state

    @property
    def source(self) -> tuple[str, ...]:
        """Where the rows are."""
        return self._dataset.source

    def chosen(self) -> pl.DataFrame:
        """The partition's rows, once everything was read."""
        self._let_go()
        if self._partition.trial and self._sampled:  # the trial of a sample: which one that is shows only now
            ids = self._kept.ids().head(self._trial_rows)
            self._counts["elsewhere"] += self._kept.drop("id", ids[-1]) if len(ids) else 0
        return self._kept.rows()

    def accounts(self, rows: pl.DataFrame) -> Accounts:
        """Where every row that was read ended; those that were used are counted in the result itself."""
        return Accounts(used=used_rows(rows), **self._counts)

    @property
    def _at_limit(self) -> bool:
        limit = self._dataset.limit
        return limit is not None and self._counts["rows"] >= self._dataset.skip + limit

    @property
    def _fingerprint(self) -> str:
        """What decides the index of the file that is read next."""
        read, skip, limit = self._counts["rows"], self._dataset.skip, self._dataset.limit
        return fingerprint(self._dataset, max(0, skip - read), None if limit is None else limit - max(0, read - skip))

    def _counted(self, rows: Iterator[SourceRow]) -> Iterator[SourceRow]:
        """The rows that are looked at."""
        while not self._at_limit and (row := next(rows, None)):
            self._counts["rows"] += 1
            if self._counts["rows"] <= self._dataset.skip:
                self._counts["skipped"] += 1
            else:
                yield row

    def _value(self, row: SourceRow) -> Any:  # noqa: ANN401 - parsed JSON, or why there is none
        try:
            return without_keys(row.value(), self._dataset.ignore_keys)
        except RefusedRowError as refusal:
            return refusal

    def _format_told(
        self, file: SourceFile, rows: Iterator[_Parsed], *, alone: bool
    ) -> tuple[Iterator[_Parsed], str | None]:
        """The rows, and the format to read them as; None where none of them can be read as anything."""
        if self._dataset.format != "auto":
            return rows, self._dataset.format
        first: list[_Parsed] = []
        values: list[Any] = []
        for row, value in rows:
            first.append((row, value))
            if not isinstance(value, RefusedRowError):
                values.append(value)
            if len(first) == HOPELESS_ROWS and not values:
                raise PromptSourceError(f"{file.path}: none of its first {len(first):,} rows can be read; {value}")
            if len(values) == LOOKED_AT or len(first) == HOPELESS_ROWS:
                break
        if not values:
            return iter(first), None
        detection = detect(values)
        if detection.format is None:
            raise PromptSourceError(
                f"{file.path}: its format is not recognised ({detection.report()}); name it with the dataset's `format`"
                f"{'' if alone else ', or the files with a glob that leaves this one out'}"
            )
        return chain(first, rows), detection.format

    def _take(
        self,
        row: SourceRow,
        value: Any,  # noqa: ANN401 - parsed JSON, or why there is none
        format_name: str | None,
        *,
        belongs: bool = False,
    ) -> tuple[int, int] | None:
        """Takes a row, unless it does not belong to the partition.

        Args:
            row: of the source.
            value: as of ``_value``.
            format_name: what to read it as.
            belongs: whether that is known already.

        Returns:
            the ranks of its conversation; None where it cannot be read.
        """
        ranks = None
        try:
            if isinstance(value, RefusedRowError):
                raise value
            dialogue = read(format_name or "", value)
            turns = turns_to_generate(dialogue, self._dataset.turns)
            name = conversation_id(dialogue)
            sampled = self._dataset.sample is not None
            ranks = stable_rank(name), sample_rank(self._dataset.sample_seed, name) if sampled else 0
            if belongs or not self._ends(*ranks):
                self._keep(row, dialogue, name, turns, *ranks)
        except RefusedRowError as refusal:
            self._refuse(row, _id_of(value), str(refusal))
        return ranks

    def _ends(self, conversation: int, sample: int) -> bool:
        """Whether a row ends in the accounts, told by the ranks of its conversation alone. Once for each row."""
        in_sample = self._sampled.add(sample) if self._sampled else True
        if not self._partition.holds(conversation):
            self._counts["elsewhere"] += 1
        elif not in_sample or (self._share and not in_share(sample, self._share)):
            self._counts["left_out"] += 1
        elif self._tried and not self._tried.add(conversation):
            self._counts["elsewhere"] += 1
        else:
            return False
        return True

    def _keep(self, row: SourceRow, dialogue: Dialogue, name: str, turns: list[int], id_rank: int, rank: int) -> None:
        prompts = self._prompts(row, dialogue, name, turns)
        place = _Place(row.file.name, row.number)
        key = id_rank
        if dialogue.stored:  # such have a row for each turn of a conversation, and for each sample of a turn
            key = stable_rank(f"{name}:{dialogue.stored.turn}")
            _, _, _, _, messages, tools, *_ = prompts[0]
            place = place._replace(sample_index=dialogue.stored.sample_index, content=stable_rank(f"{messages}{tools}"))
        first = self._kept.add(key, id_rank, rank, place, prompts)
        if first and place.further_sample_of(first):
            self._counts["further_samples"] += 1
            return
        if first:
            already = f"its id {quoted(name)} is" if dialogue.source_id is not None else "the same conversation is"
            raise RefusedRowError(f"{already} {first.file}:{first.row}'s already")
        for unread_key in dialogue.unread:
            shown = visible(unread_key)[:LONGEST_KEY]
            known = shown in self.unread_keys or len(self.unread_keys) < MOST_KEYS
            self.unread_keys[shown if known else OTHER_KEYS] += 1
        if dialogue.remarks:
            self.remarks += 1
            if len(self.remarked) < SHOWN_ROWS:
                said = "; ".join(dialogue.remarks)
                self.remarked.append(
                    NotedRow(source=row.file.name, row=row.number, conversation_id=dialogue.source_id, reason=said)
                )
        if self._kept.crowded:
            self._let_go()

    def _prompts(self, row: SourceRow, dialogue: Dialogue, name: str, turns: list[int]) -> list[tuple[Any, ...]]:
        """Rows of ``contract.PROMPTS``: a turn's index is the one that it has in the source."""
        tools = _json(dialogue.tools) if dialogue.tools else None
        return [
            (f"{name}:{turn}:{index}", name, turn, index, messages, tools, row.file.name, row.number)
            for turn in turns
            for messages in [_json(history(dialogue, turn, self._dataset.system_prompt))]
            for index in range(self._dataset.samples_per_prompt)
        ]

    def _let_go(self) -> None:
        """Of what is kept, those that later conversations have pushed out of the sample or the trial."""
        if self._sampled:
            self._counts["left_out"] += self._kept.drop("rank", self._sampled.bound)
        elif self._tried:
            self._counts["elsewhere"] += self._kept.drop("id", self._tried.bound)

    def _refuse(self, row: SourceRow, name: str | None, reason: str) -> None:
        refused = NotedRow(source=row.file.name, row=row.number, conversation_id=name, reason=reason)
        self._counts["refused"] += 1
        if len(self.refused) < SHOWN_ROWS:
            self.refused.append(refused)
        self._tell(refused)


class _Place(NamedTuple):
    """Where a row stands, and of a stored prompt what tells its samples apart."""

    file: str
    row: int
    sample_index: int | None = None
    content: int = 0
    """A hash of its messages and tools."""

    def further_sample_of(self, first: "_Place") -> bool:
        """Whether it is another sample of the prompt in another row."""
        return self.sample_index != first.sample_index and self.content == first.content


class _Kept:
    """The prompts of a partition while they are gathered: in columns, with the ranks of their conversations."""

    _SCHEMA = pl.Schema([*PROMPTS.items(), *((name, pl.UInt64()) for name in ("key", "id", "rank"))])

    def __init__(self) -> None:
        self._frame = pl.DataFrame(schema=self._SCHEMA)
        self._new: list[tuple[Any, ...]] = []
        self._places: dict[int, _Place] = {}
        """Where each row stands, by the hash of what nothing else may have: 64 bits tell ids apart."""
        self._turns: dict[int, _Place] = {}
        """Of conversations that stored prompts are of, the first row: no other kind of row may be of them."""
        self._roomy = ROW_GROUP_ROWS

    def add(self, key: int, id_rank: int, rank: int, place: _Place, prompts: list[tuple[Any, ...]]) -> _Place | None:
        """Keeps the prompts of a row, unless one with its key is here: then it says where."""
        single = key != id_rank
        other = self._places.get(id_rank) if single else self._turns.get(id_rank)
        first = other or self._places.setdefault(key, place)
        if first is not place:
            return first
        if single:
            self._turns.setdefault(id_rank, place)
        self._new += [(*prompt, key, id_rank, rank) for prompt in prompts]
        if len(self._new) >= ROW_GROUP_ROWS:
            self._gather()
        return None

    @property
    def crowded(self) -> bool:
        """Whether so much was kept since the last drop that another is worth it."""
        return len(self._places) > self._roomy

    def drop(self, column: Literal["id", "rank"], bound: int) -> int:
        """Drops the rows of the source whose number in a column is above a bound, and says how many those were."""
        self._gather()
        self._frame = self._frame.filter(pl.col(column) <= bound)
        before, left = len(self._places), set(self._frame["key"])
        self._places = {number: place for number, place in self._places.items() if number in left}
        ids = set(self._frame["id"]) if self._turns else set()
        self._turns = {number: place for number, place in self._turns.items() if number in ids}
        self._roomy = 2 * len(left) + ROW_GROUP_ROWS
        return before - len(left)

    def ids(self) -> pl.Series:
        """The ranks of the ids of all conversations, sorted."""
        self._gather()
        return self._frame["id"].unique().sort()

    def rows(self) -> pl.DataFrame:
        """All of them, in the order in which they came."""
        self._gather()
        return self._frame.select(PROMPTS.names())

    def _gather(self) -> None:
        if self._new:
            self._frame.vstack(pl.DataFrame(self._new, schema=self._SCHEMA, orient="row"), in_place=True)
            self._new = []


def _id_of(value: Any) -> str | None:  # noqa: ANN401 - any JSON value, or why it is none
    try:
        return source_id(value) if isinstance(value, dict) else None
    except RefusedRowError:
        return None


def used_rows(prompts: pl.DataFrame) -> int:
    """How many rows of the source prompts were made of."""
    return prompts.select("source", "source_row").n_unique()


def _json(value: object) -> str:
    """JSON with its keys in the order of the source: templates print tools and arguments in the order they come in."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:  # parquet holds dates, and numbers that are none
        raise RefusedRowError(f"holds a value that JSON has not: {error}") from None
