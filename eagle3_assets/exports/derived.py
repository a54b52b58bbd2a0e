"""What of an export follows from its other parts: computed when it is made, and again when it is verified.

What belongs here: pure functions of the index and the list of files. Not here: what must hold (``laws``,
``consistency``), reading and writing.
"""

from collections.abc import Iterable

import polars as pl

from eagle3_assets.exports.formats import Format
from eagle3_assets.exports.manifest import DataFile, Lengths, Manifest
from eagle3_assets.exports.selection import EVAL, FATES, SPLITS, TRAIN
from eagle3_assets.identity import digest


def fates_in(index: pl.DataFrame) -> dict[str, int]:
    """How many prompts ended where, in the order of ``FATES``; what is none of them comes last.

    Args:
        index: ``contract.TRAINING_EXPORT`` of a partition.
    """
    counts = dict(index.group_by("fate", maintain_order=True).len().iter_rows())
    return {fate: counts[fate] for fate in (*FATES, *(counts.keys() - FATES.keys())) if fate in counts}


def untrainable(manifest: Manifest) -> str | None:
    """Why a drafter cannot be trained on an export that is whole, as it has no rows for that; None where it can."""
    if manifest.rows(TRAIN):
        return None
    held_out = manifest.rows(EVAL)
    why = f": all {held_out:,} exported rows are held out; give a smaller eval_share" if held_out else ""
    return f"no sample is left to train on{why}"


def lengths_in(index: pl.DataFrame) -> dict[str, Lengths]:
    """Lengths of the exported rows of a partition, by side of the split; a side without rows is not there.

    Args:
        index: ``contract.TRAINING_EXPORT`` of it.
    """
    return {split: _lengths(rows) for split in SPLITS if len(rows := index.filter(pl.col("fate") == split))}


def _lengths(rows: pl.DataFrame) -> Lengths:
    tokens = rows["sample_tokens"]
    return Lengths(
        rows=len(rows),
        tokens=int(tokens.sum()),
        trained_tokens=int(rows["trained_tokens"].sum()),
        median=int(tokens.quantile(0.5, "nearest") or 0),
        p95=int(tokens.quantile(0.95, "nearest") or 0),
        longest=int(tokens.max() or 0),  # type: ignore[arg-type] # the stubs know no dtype
    )


def files_beside(form: Format, files: Iterable[DataFile]) -> dict[str, bytes]:
    """What the format needs beside its data, by path: for each side of the split, and for both together."""
    in_order = sorted(files, key=lambda file: SPLITS.index(file.split))
    made: dict[str, bytes] = {}
    for folder in ("", *(f"{split}/" for split in SPLITS)):
        inside = [file for file in in_order if file.path.startswith(folder)]
        key = digest([file.sha256 for file in inside])
        if inside:
            beside = form.beside([file.path.removeprefix(folder) for file in inside], key)
            made |= {folder + name: text.encode() for name, text in beside.items()}
    return made
