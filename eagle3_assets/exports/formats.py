"""The formats of an export: how rows become a file, and how that file is read back.

What belongs here: one ``Format`` for each. Not here: which rows (``selection``), what must hold of them (``laws``),
names and hashes (``writing``).

A frame to write has the columns of ``contract.TRAINING_SAMPLES``, and beside them ``partition`` (String), ``text``
(String, of all input ids) for a format with ``texts``, and ``messages`` and ``answer`` (String) for a lossy one.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from eagle3_assets.config import Export, ExportFormat
from eagle3_assets.contract import ROW_GROUP_ROWS
from eagle3_assets.exports.laws import RowFacts, Rows
from eagle3_assets.files import ZSTD_LEVEL
from eagle3_assets.interchange import Record, Row, read_rows, write_records

METADATA = pl.Struct(
    {
        "turn": pl.Int32,
        "sample_index": pl.Int32,
        "source": pl.String,
        "source_row": pl.Int64,
        "finish_type": pl.String,
        "identity": pl.String,
        "request_key": pl.String,
        "ids_sha256": pl.String,
    }
)
"""What ``training_samples`` says of each sample."""

_MESSAGE = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")
"""Keys of a message, in lossy conversations."""

_INT64 = pl.List(pl.Int64)

ReadBack = pl.Schema([("id", pl.String()), ("input_ids", _INT64), ("loss_mask", _INT64)])
"""What a file is read back as. ``id`` is null where the format is not ``named``, the lists where it is ``lossy``."""


def _nothing(files: Sequence[str], key: str) -> dict[str, str]:  # noqa: ARG001 - the form
    return {}


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write training samples."""

    name: ExportFormat
    suffix: str
    summary: str
    loading: str
    """How to load it, as the dataset card says it; ``{split}`` is train or eval."""
    hub_files: bool
    """Whether the Hub's viewer and ``load_dataset`` read the files as they are."""
    write: Callable[[pl.DataFrame, Path], None]
    read: Callable[[Path], pl.DataFrame]
    """As ``ReadBack``."""
    lossy: bool = False
    """Whether the target's ids are lost in it."""
    named: bool = True
    """Whether it has a place for the ids of samples."""
    texts: bool = False
    beside: Callable[[Sequence[str], str], dict[str, str]] = _nothing
    """What a reader needs beside some files, by name, given their paths from there and a key of their content. It is
    written for each side of the split, and for both together, what to train on first."""
    masks: bool = True
    """Whether a loss mask other than prompt and output can be written."""


def file_rows(form: Format, path: Path, index: pl.DataFrame, facts: RowFacts) -> Rows | str:
    """Reads a file back beside its index; why it cannot be, if so.

    Args:
        form: of the file.
        path: on a local disk.
        index: ``contract.TRAINING_EXPORT`` of its rows, in order.
        facts: of the export.
    """
    try:
        read = form.read(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        return f"cannot be read back: {str(error).strip().splitlines()[0]}"
    if len(read) != len(index):
        return f"has {len(read):,} rows, the index says {len(index):,}"
    return Rows.of(read, index, facts)


def row_facts(form: Format, vocab_size: int, settings: Export) -> RowFacts:
    """What the laws of an export need beside its rows."""
    return RowFacts(vocab_size, settings.max_length, settings.eval_share, named=form.named, lossy=form.lossy)


def prompt_tokens() -> pl.Expr:
    """Length of the prompt in a sample whose mask is 1 for all of the output, of ``loss_mask``."""
    return pl.col("loss_mask").list.len() - pl.col("loss_mask").list.sum()


def _told(rows: pl.DataFrame) -> pl.Expr:
    """The metadata as a struct, with what the other columns would lose."""
    facts = rows["metadata"].str.json_decode(METADATA).struct.unnest()
    return pl.struct(rows["partition"], rows["conversation_id"], *facts)


def _write_jsonl(rows: pl.DataFrame, path: Path) -> None:
    rows.select("id", "input_ids", "loss_mask", "text", metadata=_told(rows)).write_ndjson(path)


def _read_jsonl(path: Path) -> pl.DataFrame:
    # Opened here: in a path, polars takes brackets and stars for a pattern.
    with path.open("rb") as file:
        return pl.read_ndjson(file, schema=ReadBack)


def _write_parquet(rows: pl.DataFrame, path: Path) -> None:
    table = rows.select("id", "input_ids", "loss_mask", metadata=_told(rows))
    table.write_parquet(path, compression="zstd", compression_level=ZSTD_LEVEL, row_group_size=ROW_GROUP_ROWS)


def _read_parquet(path: Path) -> pl.DataFrame:
    return pl.read_parquet(path, columns=ReadBack.names(), glob=False).cast(ReadBack)


def _write_arrow(rows: pl.DataFrame, path: Path) -> None:
    # Not compressed: datasets maps the file into memory, which a compressed one does not allow.
    rows.select(
        pl.col("input_ids", "loss_mask").cast(_INT64), seq_len=pl.col("input_ids").list.len().cast(pl.Int64)
    ).write_ipc_stream(path)


def _read_arrow(path: Path) -> pl.DataFrame:
    return pl.read_ipc_stream(path).select(pl.lit(None, pl.String).alias("id"), "input_ids", "loss_mask")


def _dataset_files(files: Sequence[str], key: str) -> dict[str, str]:
    """What ``datasets.load_from_disk`` reads beside the data. Its rows come as torch tensors, as the trainer needs."""
    number = {"dtype": "int64", "_type": "Value"}
    ids = {"feature": number, "_type": "LargeList"}
    info = {"features": {"input_ids": ids, "loss_mask": ids, "seq_len": number}}
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in files],
        "_fingerprint": key,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": "torch",
        "_output_all_columns": False,
        "_split": None,
    }
    return {"dataset_info.json": json.dumps(info, indent=1), "state.json": json.dumps(state, indent=1)}


def _write_responses(rows: pl.DataFrame, path: Path) -> None:
    prompt = prompt_tokens()
    parts = rows.select(
        "id",
        prompt_ids=pl.col("input_ids").list.head(prompt),
        output_ids=pl.col("input_ids").list.slice(prompt),
        told=_told(rows),
    )
    write_records(
        (
            Record(
                sample_id=row["id"],
                output_ids=row["output_ids"],
                completion_tokens=len(row["output_ids"]),
                prompt_ids=row["prompt_ids"],
                extra={"metadata": row["told"]},
            )
            for row in parts.iter_rows(named=True)
        ),
        path,
    )


def _read_responses(path: Path) -> pl.DataFrame:
    ids: list[str | None] = []
    tokens: list[list[int]] = []
    masks: list[list[int]] = []
    with path.open("rb") as file:
        for row in read_rows(file):
            # A line that is no record stays as a row without ids, which breaks the laws at its place.
            record = row.record if isinstance(row, Row) else Record("", [], None)
            prompt = record.prompt_ids or []
            ids.append(record.sample_id)
            tokens.append(prompt + record.output_ids)
            masks.append([0] * len(prompt) + [1] * len(record.output_ids))
    return pl.DataFrame([ids, tokens, masks], schema=ReadBack, orient="col")


def _write_conversations(rows: pl.DataFrame, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows.select("id", "messages", "answer", told=_told(rows)).iter_rows(named=True):
            turns = [*json.loads(row["messages"]), {"role": "assistant", "content": row["answer"]}]
            line = {"id": row["id"], "conversations": [*map(_as_text, turns)], "lossy": True, "metadata": row["told"]}
            file.write(json.dumps(line, ensure_ascii=True) + "\n")


def _as_text(message: dict[str, Any]) -> dict[str, str]:
    """A message with every key, each a text: calls are JSON, and what it does not have is empty.

    Arrow, which loads these files, knows one shape for all messages of all files, and every tool has other arguments.
    """
    given = {key: message.get(key) or "" for key in _MESSAGE}
    return {key: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for key, one in given.items()}


def _read_conversations(path: Path) -> pl.DataFrame:
    with path.open("rb") as file:
        named = pl.read_ndjson(file, schema={"id": pl.String})
    return named.with_columns(input_ids=pl.lit(None, _INT64), loss_mask=pl.lit(None, _INT64))


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format(
            "jsonl",
            ".jsonl",
            "one JSON object a line: `id`, `input_ids`, `loss_mask`, `text`, `metadata`; SpecForge and speculators read"
            " it",
            'load_dataset("json", data_files="{split}/*.jsonl", split="train")',
            True,
            _write_jsonl,
            _read_jsonl,
            texts=True,
        ),
        Format(
            "speculators",
            ".arrow",
            "an Arrow dataset on disk for each side of the split, and one of both: `input_ids`, `loss_mask`, `seq_len`,"
            " all int64; speculators' `ArrowDataset` opens it",
            'load_from_disk("{split}")',
            False,
            _write_arrow,
            _read_arrow,
            named=False,
            beside=_dataset_files,
        ),
        Format(
            "parquet",
            ".parquet",
            "Parquet, zstd: `id`, `input_ids` (int32), `loss_mask` (uint8), `metadata`",
            'load_dataset("parquet", data_files="{split}/*.parquet", split="train")',
            True,
            _write_parquet,
            _read_parquet,
        ),
        Format(
            "raw-responses",
            ".jsonl",
            "one JSON object a line: `sample_id`, `output_ids`, `completion_tokens`, `prompt_ids`, `metadata`; no loss"
            " mask, which is 0 for the prompt and 1 for the output",
            'load_dataset("json", data_files="{split}/*.jsonl", split="train")',
            True,
            _write_responses,
            _read_responses,
            masks=False,
        ),
        Format(
            "lossy-conversations",
            ".lossy.jsonl",
            "**lossy**: messages, every key of each a text: calls are JSON, what a message does not have is empty, and"
            " declared tools are not in it. What a trainer tokenizes from it is not what the target emitted: reasoning,"
            " tool-call markup and stop tokens are rendered anew by a template",
            'load_dataset("json", data_files="{split}/*.lossy.jsonl", split="train")',
            True,
            _write_conversations,
            _read_conversations,
            lossy=True,
            masks=False,
        ),
    )
}
"""Every format by its name in the config."""
