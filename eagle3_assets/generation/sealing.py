"""Seals a partition: journal and former file become one parquet file in prompt order.

What belongs here: merging, streaming to parquet, swapping the pointer, and what may be deleted afterwards. Not here:
the layout's names and reading (``sealed``), deciding what is missing (``plan``).

Memory stays at a few thousand rows: the prompts are read in batches, a journal's row is found by its offset, the former
file is read in slices, and polars' sink writes a row group when it is full.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
from polars.io.plugins import register_io_source
from upath import UPath

from eagle3_assets.contract import RAW_GENERATIONS, ROW_GROUP_ROWS
from eagle3_assets.files import ZSTD_LEVEL, delete, local_path, publish_new, write_text
from eagle3_assets.generation.errors import PromptsError, SealedError
from eagle3_assets.generation.journal import Journal
from eagle3_assets.generation.plan import BATCH_ROWS, Prompt, PromptIndex, SealedIndex, iterate_prompts, prompt_key
from eagle3_assets.generation.rows import Row, refused_row, sampling_record
from eagle3_assets.generation.sealed import CURRENT, Pointer, Sealed, next_file, read_current, write_identity
from eagle3_assets.identity import Identity
from eagle3_assets.tokens.batch import FAILED, GENERATED, REFUSED


@dataclass(frozen=True, slots=True)
class Source:
    """What a seal is made of."""

    prompts: pl.LazyFrame
    index: PromptIndex
    journal: Journal
    base: Sealed | None
    """The file it extends."""
    base_rows: pl.LazyFrame | None
    base_index: SealedIndex


@dataclass(slots=True)
class _Tally:
    rows: dict[str, int] = field(default_factory=lambda: {GENERATED: 0, FAILED: 0, REFUSED: 0})
    from_base: int = 0
    """Generated rows that came from the former file."""


def seal(
    directory: UPath, scratch: Path, source: Source, identity: Identity, environment: str | None, current: Sealed | None
) -> tuple[Sealed, list[str]]:
    """Writes the new file, points to it, and deletes what is contained in it.

    Args:
        directory: the partition's.
        scratch: local directory for a temporary file where ``directory`` is on an object store.
        source: what goes in; every prompt has a row in the journal or the former file, or is refused.
        identity: of every row.
        environment: digest of the newest rows' environment.
        current: the sealed file that counted when the run began.

    Returns:
        the new current file, and files left because they hold generated rows which it does not.

    Raises:
        SealedError: it could not be written, or another run sealed meanwhile. Journal and former file are kept.
        JournalError: a row cannot be read back, or another machine may write by now.
    """
    name = next_file(directory, identity.fingerprint)
    temporary = (local_path(directory) or scratch) / f".{name}.tmp"
    try:
        tally = _write(temporary, source, identity)
        size = temporary.stat().st_size
        _require_unchanged(directory, current)
        source.journal.require_sole_writer()
        write_identity(directory, identity)
        publish_new(temporary, directory / name)
        pointer = Pointer(
            file=name,
            fingerprint=identity.fingerprint,
            rows=sum(tally.rows.values()),
            size_bytes=size,
            generated=tally.rows[GENERATED],
            failed=tally.rows[FAILED],
            refused=tally.rows[REFUSED],
            environment=environment,
            journal=source.journal.header.id if source.journal.header else None,
            sealed_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        source.journal.require_sole_writer()
        write_text(directory / CURRENT, pointer.model_dump_json(indent=1))
    except OSError as error:
        raise SealedError(
            f"{directory}: the sealed file could not be written: {error}. The journal keeps every finished row: run "
            f"again when that is mended, and only the sealing is done again."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return Sealed(directory, pointer), _clean_up(source, tally)


def _write(target: Path, source: Source, identity: Identity) -> _Tally:
    tally = _Tally()
    fault: list[Exception] = []

    def frames(*_: object) -> Iterator[pl.DataFrame]:
        # Polars says which columns and rows it needs; for a sink of everything that is all of them.
        try:
            yield from _frames(source, identity, tally)
        except Exception as error:  # polars would turn it into one of its own, and its kind would be lost
            fault.append(error)
            raise

    try:
        register_io_source(frames, schema=RAW_GENERATIONS).sink_parquet(
            target,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            row_group_size=ROW_GROUP_ROWS,
            maintain_order=True,
        )
    except pl.exceptions.PolarsError as error:
        target.unlink(missing_ok=True)
        if fault and isinstance(fault[0], pl.exceptions.PolarsError):
            raise _changed("they, or the former generations, cannot be read again") from error
        if fault:
            raise fault[0] from error
        raise OSError(str(error)) from error
    written = sum(tally.rows.values())
    if written != len(source.index.keys):
        target.unlink(missing_ok=True)
        raise _changed(f"{written:,} of {len(source.index.keys):,} could be read again")
    return tally


def _changed(what: str) -> PromptsError:
    return PromptsError(
        f"the prompts changed while this run generated ({what}). Every row is in the journal: materialize again, with"
        " the prompts that there are now or with the former ones."
    )


def _frames(source: Source, identity: Identity, tally: _Tally) -> Iterator[pl.DataFrame]:
    constants = {
        "identity": identity.fingerprint,
        "sampling": sampling_record(identity),
    }
    batch: list[Prompt] = []
    for prompt in iterate_prompts(source.prompts):
        batch.append(prompt)
        if len(batch) == BATCH_ROWS:
            yield _frame(batch, source, constants, tally)
            batch = []
    if batch:
        yield _frame(batch, source, constants, tally)


def _frame(batch: list[Prompt], source: Source, constants: Row, tally: _Tally) -> pl.DataFrame:
    """Some consecutive prompts' rows."""
    rows: list[Row] = []
    places: list[int] = []
    from_base: dict[int, int] = {}  # row number in the former file -> place in the batch
    for place, prompt in enumerate(batch):
        if prompt.position >= len(source.index.keys):
            raise _changed("there are more of them")
        key = source.index.keys[prompt.position]
        if prompt_key(prompt, constants["identity"]) != key.hex():
            raise _changed(f"{prompt.sample_id} is another one")
        if source.index.refused[prompt.position]:
            row = refused_row(key.hex(), prompt.sample_id, prompt.prompt_ids, prompt.reason)
        elif source.journal.status(key) is None or (
            # A failure now does not push out what was generated before.
            source.journal.status(key) != GENERATED and source.base_index.of(key) == GENERATED
        ):
            from_base[source.base_index.rows[key]] = place
            continue
        else:
            row = source.journal.row(key)
        tally.rows[row["status"]] += 1
        rows.append(row | constants)
        places.append(place)
    frame = pl.DataFrame(rows, schema=RAW_GENERATIONS, strict=True)
    if from_base:
        old = _base_rows(source, from_base)
        for status, count in old["status"].value_counts().iter_rows():
            tally.rows[status] += count
            tally.from_base += count if status == GENERATED else 0
        places += old["place"].to_list()
        frame = pl.concat([frame, old.drop("place")])
    order = pl.Series(places, dtype=pl.UInt32).arg_sort()
    return frame[order]


def _base_rows(source: Source, wanted: dict[int, int]) -> pl.DataFrame:
    if source.base_rows is None:
        raise ValueError("a prompt has neither a row in the journal nor a former file")  # seal's precondition
    first, last = min(wanted), max(wanted)
    places = pl.LazyFrame(
        {"row": wanted.keys(), "place": wanted.values()}, schema={"row": pl.UInt32, "place": pl.UInt32}
    )
    # In the usual case, the same prompts and some more, a batch's rows lie together and the slice is all that is read.
    return (
        source.base_rows.with_row_index("row")
        .slice(first, last - first + 1)
        .join(places, on="row", how="inner")
        .drop("row")
        .collect(engine="streaming")
    )


def _require_unchanged(directory: UPath, current: Sealed | None) -> None:
    now = read_current(directory)
    if now != current:
        raise SealedError(
            f"{directory / CURRENT}: another run sealed this partition while this one ran. The journal keeps this "
            f"run's rows: look which of the two you want, and let one machine at a time generate a partition."
        )


def _clean_up(source: Source, tally: _Tally) -> list[str]:
    left: list[str] = []
    wanted = {key for key, refused in zip(source.index.keys, source.index.refused, strict=True) if not refused}
    if source.base is not None:
        contained = tally.from_base == source.base_index.generated
        if not (contained and _deleted(source.base.path)):
            left.append(str(source.base.path))
    if all(key in wanted for key in source.journal.generated()):
        source.journal.discard()
    else:
        left.append(str(source.journal.set_aside()))
    return left


def _deleted(path: UPath) -> bool:
    try:
        delete(path)
    except OSError:
        return False
    return True
