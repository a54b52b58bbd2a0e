"""Where samples to look at come from: a file in the interchange format, or a partition's sealed generations.

What belongs here: choosing samples of a source and reading only those. Not here: decoding (``decoding``), the formats
themselves (``interchange``, ``generation.sealed``), the terminal (``cli``).
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from eagle3_assets.decoding import Sample, shown_line
from eagle3_assets.files import STDIN
from eagle3_assets.interchange import InterchangeError, Record, Refusal, Row, read_row_at, read_rows
from eagle3_assets.partitions import stable_rank
from eagle3_assets.tokens.quantiles import spread

if TYPE_CHECKING:
    import polars as pl

    from eagle3_assets.generation.sealed import Sealed

REPORTED = 100
"""Broken lines that are named; of a file that is something else altogether the rest is counted."""
SLICE_ROWS = 500


class SourceError(Exception):
    """A source has nothing of what was asked for; the text says what and where."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which samples of a source."""

    count: int = 5
    spread: bool = False
    """Over the lengths, short to long, instead of the first ones."""
    ids: tuple[str, ...] = ()
    """These samples, whatever the count; each as it is, or as it is shown. See :func:`named_by`."""


def named_by(ids: Iterable[str]) -> "pl.Expr":
    """Whether the column ``sample_id`` is one of these ids, or is shown like one.

    A page, a table and a heading show hidden characters by name, and what a person copies there finds the sample.
    """
    return shown_ids().is_in([shown_line(sample_id) for sample_id in ids])


def shown_ids() -> "pl.Expr":
    """The column ``sample_id`` as it is shown."""
    import polars as pl

    return pl.col("sample_id").map_elements(shown_line, return_dtype=pl.String)


def not_among(ids: Iterable[str], found: Iterable[str]) -> list[str]:
    """Those of the ids that name none of the samples that were found."""
    shown = set(map(shown_line, found))
    return [sample_id for sample_id in ids if shown_line(sample_id) not in shown]


class SampleSource(Protocol):
    """Something that samples are chosen from."""

    @property
    def faults(self) -> int:
        """How much of what was read so far is broken."""
        ...

    def samples(self, choice: Choice) -> Iterator[Sample]:
        """The chosen samples."""
        ...


class FileSource:
    """A file of raw responses. Broken lines are reported and counted as they are met; what is whole is shown.

    The first samples are shown without reading on. A choice by id or over the lengths reads the file to its end; the
    latter keeps a few numbers for each line and reads the chosen lines again.
    """

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        """Reads nothing yet.

        Args:
            path: the file.
            report: takes one line for each fault of the file, safe to show.

        Raises:
            SourceError: there is no such file.
        """
        if not path.exists():
            raise SourceError(f"there is no file {path}")
        self.path = path
        self.faults = 0
        self._lines = 0
        self._report = report

    def samples(self, choice: Choice) -> Iterator[Sample]:
        """The chosen samples, as they are found.

        Raises:
            InterchangeError: the file cannot be read.
            SourceError: nothing can be decoded, or an id is not there; after the samples that are.
        """
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise InterchangeError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        with file:
            shown = set()
            for record in self._chosen(file, choice):
                shown.add(record.sample_id)
                finish = record.extra.get("finish_type")
                yield Sample(
                    record.sample_id,
                    record.output_ids,
                    record.prompt_ids,
                    finish if isinstance(finish, str) else None,
                )
        if self.faults > REPORTED:
            self._report(f"{self._name}: {self.faults - REPORTED:,} more faults are not named")
        if missing := not_among(choice.ids, shown):
            raise SourceError(f"{self.path}: holds no readable sample {_listed(missing)}")
        if not shown:
            if self.path == STDIN and not self._lines:
                raise SourceError("standard input was empty: there is no sample to decode")
            raise SourceError(f"{self.path}: holds no sample that can be decoded")

    def _chosen(self, file: BinaryIO, choice: Choice) -> Iterator[Record]:
        if choice.ids:
            asked = set(map(shown_line, choice.ids))
            return (row.record for row in self._rows(file) if shown_line(row.record.sample_id) in asked)
        return self._over_lengths(file, choice.count) if choice.spread else self._first(file, choice.count)

    def _first(self, file: BinaryIO, count: int) -> Iterator[Record]:
        for taken, row in enumerate(self._rows(file), start=1):
            yield row.record
            if taken == count:
                if file.read(1):
                    self._report(f"{self._name}: read to line {row.line}; what comes after it was not checked")
                return

    def _over_lengths(self, file: BinaryIO, count: int) -> Iterator[Record]:
        if not file.seekable():
            raise SourceError(f"{self.path}: is read twice for a choice over the lengths, so it cannot be a pipe")
        lengths, ranks, lines, offsets = array("I"), array("Q"), array("Q"), array("Q")
        for row in self._rows(file):
            lengths.append(len(row.record.output_ids))
            ranks.append(stable_rank(row.record.sample_id))
            lines.append(row.line)
            offsets.append(row.offset)
        for position in spread(lengths, ranks, count):
            again = read_row_at(file, lines[position], offsets[position])
            if isinstance(again, Refusal):
                raise SourceError(f"{self.path}: line {lines[position]} changed while it was read")
            yield again.record

    def _rows(self, file: BinaryIO) -> Iterator[Row]:
        try:
            for row in read_rows(file):
                self._lines += 1
                if isinstance(row, Row):
                    if row.earlier_line is not None:
                        sample_id = shown_line(row.record.sample_id)
                        self._fault(row.line, f"holds sample {sample_id!r} again, after line {row.earlier_line}")
                    yield row
                else:
                    of = "" if row.sample_id is None else f"(sample {shown_line(row.sample_id)!r}) "
                    self._fault(row.line, f"{of}{shown_line(row.reason)}")
        except InterchangeError as error:
            raise InterchangeError(f"{self.path}: {error}") from error

    def _fault(self, line: int, reason: str) -> None:
        self.faults += 1
        if self.faults <= REPORTED:
            self._report(f"{self._name}:{line}: {reason}")

    @property
    def _name(self) -> str:
        return shown_line(str(self.path))


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """The generated rows of a partition's current sealed file."""

    sealed: "Sealed"

    @property
    def faults(self) -> int:
        """None: a sealed file is whole, or cannot be read at all."""
        return 0

    def samples(self, choice: Choice) -> Iterator[Sample]:
        """The chosen samples; only their rows' ids are read.

        Raises:
            SealedError: the file is damaged.
            SourceError: nothing was generated, or an id was not; after the samples that were.
        """
        from eagle3_assets.generation.sealed import scan_sealed

        frame = scan_sealed(self.sealed)
        with self._readable():
            positions = self._positions(frame, choice)
        if not positions and not choice.ids:
            raise SourceError(f"{self.sealed.path}: none of its {self.sealed.rows:,} rows was generated")
        columns = ["sample_id", "output_ids", "prompt_ids", "finish_type"]
        shown = set()
        for start, length in _runs(positions):
            with self._readable():
                rows = frame.slice(start, length).select(columns).collect().rows(named=True)
            for row in rows:
                shown.add(row["sample_id"])
                yield Sample(**row)
        if missing := not_among(choice.ids, shown):
            raise SourceError(f"{self.sealed.path}: {self._why_missing(frame, missing)}")

    def _positions(self, frame: "pl.LazyFrame", choice: Choice) -> list[int]:
        import polars as pl

        from eagle3_assets.tokens.facts import has_output

        generated = frame.with_row_index("row").filter(has_output())
        if choice.ids:
            chosen = generated.filter(named_by(choice.ids)).select("row").collect()
        elif choice.spread:
            lengths = generated.select("row", "sample_id", pl.col("output_ids").list.len().alias("tokens")).collect(
                engine="streaming"
            )
            ranks = [stable_rank(sample_id) for sample_id in lengths["sample_id"]]
            chosen = lengths[spread(lengths["tokens"].to_list(), ranks, choice.count)]
        else:
            chosen = generated.select("row").head(choice.count).collect()
        return chosen["row"].to_list()

    def _why_missing(self, frame: "pl.LazyFrame", missing: list[str]) -> str:
        import polars as pl

        with self._readable():
            named = pl.when(pl.col("reason").is_not_null()).then("reason").otherwise(pl.lit("without ids"))
            asked = frame.filter(named_by(missing))
            there = asked.select("sample_id", "status", reason=named).collect()
        failed = {row["sample_id"]: f"{row['status']}, {row['reason']}" for row in there.iter_rows(named=True)}
        if unknown := not_among(missing, failed):
            return f"holds no sample {_listed(unknown)}"
        return "; ".join(f"sample {sample_id!r} has no output ({why})" for sample_id, why in failed.items())

    @contextmanager
    def _readable(self) -> Iterator[None]:
        import polars as pl

        from eagle3_assets.generation.errors import SealedError

        try:
            yield
        except (OSError, pl.exceptions.PolarsError) as error:
            raise SealedError(f"{self.sealed.path}: cannot be read: {error}") from error


def _runs(positions: list[int]) -> Iterator[tuple[int, int]]:
    """Start and length of slices that follow each other in the file, none so long that it fills the memory."""
    for _, run in groupby(enumerate(positions), key=lambda item: item[1] - item[0]):
        rows = [position for _, position in run]
        for start in range(0, len(rows), SLICE_ROWS):
            yield rows[start], len(rows[start : start + SLICE_ROWS])


def _listed(sample_ids: list[str]) -> str:
    shown = ", ".join(repr(sample_id) for sample_id in sample_ids[:10])
    return shown + (f" and {len(sample_ids) - 10} more" if len(sample_ids) > 10 else "")
