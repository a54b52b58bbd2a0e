"""The draft vocabulary as files that the trainers read: written, and read back.

What belongs here: the files' forms. Not here: choosing ids (``tokens.vocabulary``), whose tokens are counted
(``exporting``, ``vocabularies``), what must hold of them (``vocabulary_laws``), Dagster.

    token_freq.pt       {target id: how often it is trained on}, ids that occur, ascending; speculators
    d2t.npy, t2d.npy    int64[D] of offsets, bool[V]: target id = draft id + d2t[draft id]; speculators
    vocab_mapping.pt    {"d2t": int64[D], "t2d": bool[V]}, the same; SpecForge
    vocabulary.json     what they were made of

The bytes are the same for the same vocabulary and the same versions of numpy and torch. Only the ``.pt`` files need
torch: to be written, and to be judged.
"""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pickle import UnpicklingError
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from upath import UPath

from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.laws import Rows
from eagle3_assets.files import make_directory, read_bytes, write_bytes
from eagle3_assets.tokens.columns import Ints, Mask
from eagle3_assets.tokens.vocabulary import MAX_VOCAB_SIZE, DraftVocabulary, count_ids

FOLDER = "vocabulary"
"""Of an export."""
TOKEN_FREQ, D2T, T2D, MAPPING, RECORD = "token_freq.pt", "d2t.npy", "t2d.npy", "vocab_mapping.pt", "vocabulary.json"
FILES = (TOKEN_FREQ, D2T, T2D, MAPPING, RECORD)

NO_TORCH = "torch is not installed here"


class VocabularyRecord(BaseModel):
    """What a draft vocabulary was made of: ``vocabulary.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vocab_size: int = Field(ge=1, le=MAX_VOCAB_SIZE)
    """V, of the model's config."""
    draft_vocab_size: int = Field(ge=1)
    """D."""
    structural_ids: tuple[int, ...]
    """In whatever their count."""
    tokens: int
    """Counted: those with a loss."""
    seen_ids: int
    covered_tokens: int
    """Of the tokens, those whose id the drafter has."""
    knee: int
    profile: str
    tokenizer_sha256: str
    partitions: dict[str, int]
    """Tokens that were counted, by partition."""

    @model_validator(mode="after")
    def _possible(self) -> "VocabularyRecord":
        if not all(0 <= i < self.vocab_size for i in self.structural_ids):
            raise ValueError("a structural id is none of the vocabulary's")
        if not len(self.structural_ids) <= self.draft_vocab_size <= self.vocab_size:
            raise ValueError("draft_vocab_size is below the structural ids, or above vocab_size")
        return self

    @property
    def coverage(self) -> float:
        """Share of the tokens whose id the drafter has."""
        return self.covered_tokens / self.tokens


def require_torch() -> None:
    """Says what to do before anything is written that would lack a file.

    Raises:
        ExportError: torch is not installed.
    """
    if find_spec("torch") is None:
        raise ExportError(
            f"{TOKEN_FREQ} and {MAPPING} are files of torch, and {NO_TORCH}: pip install 'eagle3-assets[local]', or"
            " export without a vocabulary (export --no-vocabulary, or export.vocabulary: false)"
        )


def vocabulary_record(
    vocabulary: DraftVocabulary, profile: str, tokenizer_sha256: str, partitions: Mapping[str, int]
) -> VocabularyRecord:
    """What is written beside a vocabulary.

    Args:
        vocabulary: chosen.
        profile: the target's, which names the structural ids.
        tokenizer_sha256: of the target.
        partitions: tokens that were counted, by partition.
    """
    return VocabularyRecord(
        vocab_size=len(vocabulary.counts),
        draft_vocab_size=vocabulary.size,
        structural_ids=tuple(np.flatnonzero(vocabulary.structural).tolist()),
        tokens=vocabulary.tokens,
        seen_ids=vocabulary.seen,
        covered_tokens=int(vocabulary.counts[vocabulary.ids].sum()),
        knee=vocabulary.knee,
        profile=profile,
        tokenizer_sha256=tokenizer_sha256,
        partitions=dict(partitions),
    )


def vocabulary_files(vocabulary: DraftVocabulary, record: VocabularyRecord) -> dict[str, bytes]:
    """The content of every file by its name, the record last.

    Raises:
        ExportError: torch is not installed.
    """
    require_torch()
    import torch

    d2t, t2d = vocabulary.d2t.astype("<i8"), vocabulary.t2d
    seen = np.flatnonzero(vocabulary.counts)
    frequencies = dict(zip(seen.tolist(), vocabulary.counts[seen].tolist(), strict=True))
    return {
        TOKEN_FREQ: _torch_file(frequencies),
        D2T: _numpy_file(d2t),
        T2D: _numpy_file(t2d),
        MAPPING: _torch_file({"d2t": torch.from_numpy(d2t), "t2d": torch.from_numpy(t2d)}),
        RECORD: (record.model_dump_json(indent=1) + "\n").encode(),
    }


def _torch_file(value: object) -> bytes:
    import torch

    # Into memory: to a path torch writes the path's name into the file as well.
    memory = io.BytesIO()
    torch.save(value, memory)
    return memory.getvalue()


def _numpy_file(array: Ints | Mask) -> bytes:
    memory = io.BytesIO()
    np.save(memory, array, allow_pickle=False)
    return memory.getvalue()


def write_vocabulary(contents: Mapping[str, bytes], place: UPath) -> None:
    """Writes the files into a directory; each is there whole or not at all.

    Raises:
        ExportError: the disk is full, the place is read-only or unreachable.
    """
    try:
        make_directory(place)
        for name, content in contents.items():
            write_bytes(place / name, content)
    except OSError as error:
        raise ExportError(f"{place}: cannot be written: {error.strerror or error}") from error


@dataclass(frozen=True, eq=False)
class Recount:
    """The trained tokens counted again, from the data."""

    counts: Ints
    """int64[V]."""
    partitions: dict[str, int]
    """Tokens by partition."""

    def add(self, partition: str, counts: Ints) -> None:
        """Adds what was counted of a partition, int64[V]."""
        np.add(self.counts, counts, out=self.counts)
        self.partitions[partition] = self.partitions.get(partition, 0) + int(counts.sum())


@dataclass(frozen=True, eq=False)
class ReadVocabulary:
    """The files as they lie there, and what they are judged against."""

    record: VocabularyRecord
    d2t: Ints
    t2d: Mask
    counts: Ints | None
    """Of ``token_freq.pt``, int64[V]; None without torch."""
    mapping: tuple[Ints, Mask] | None
    """Of ``vocab_mapping.pt``; None without torch."""
    structural: frozenset[int]
    """Ids that must be in."""
    recount: Recount | None
    why_no_recount: str = ""


def read_vocabulary(
    place: UPath,
    *,
    structural: Iterable[int] | None = None,
    recount: Recount | None = None,
    why_no_recount: str = "",
) -> ReadVocabulary | str:
    """Reads the files of a directory; what cannot be read and why, if so.

    Args:
        place: the directory.
        structural: ids that must be in; without them those of the record.
        recount: the trained tokens counted again.
        why_no_recount: where they were not.
    """
    name = RECORD
    try:
        record = VocabularyRecord.model_validate_json(read_bytes(place / name))
        name = D2T
        d2t = _of_form(np.load(io.BytesIO(read_bytes(place / name)), allow_pickle=False), np.int64)
        name = T2D
        t2d = _of_form(np.load(io.BytesIO(read_bytes(place / name)), allow_pickle=False), np.bool_)
        counts, mapping = None, None
        if find_spec("torch") is not None:
            name = TOKEN_FREQ
            counts = _counts(_loaded(place / name), record.vocab_size)
            name = MAPPING
            maps = _loaded(place / name)
            if not isinstance(maps, dict) or maps.keys() != {"d2t", "t2d"}:
                raise ValueError("holds something other than d2t and t2d")
            mapping = (_of_form(maps["d2t"].numpy(), np.int64), _of_form(maps["t2d"].numpy(), np.bool_))
    except FileNotFoundError:
        return f"{name}: is not there"
    except ValidationError as error:
        return f"{name}: is no record of this version ({error.errors()[0]['msg']})"
    except Exception as error:  # noqa: BLE001 - torch and numpy raise whatever a damaged file makes them raise
        return f"{name}: cannot be read: {(str(error).strip() or type(error).__name__).splitlines()[0]}"
    must = frozenset(record.structural_ids if structural is None else structural)
    return ReadVocabulary(record, d2t, t2d, counts, mapping, must, recount, why_no_recount)


def _loaded(path: UPath) -> Any:  # noqa: ANN401 - what torch reads
    import torch

    content = io.BytesIO(read_bytes(path))
    try:
        return torch.load(content, weights_only=True)
    except UnpicklingError as error:  # torch's own text advises to load it all the same, with what code it holds
        raise ValueError("is no file of plain numbers and tensors") from error


def _of_form(array: Any, dtype: type) -> Any:  # noqa: ANN401 - what numpy reads
    if array.dtype != dtype or array.ndim != 1:
        raise ValueError(f"holds {array.dtype} of {array.ndim} dimensions, not one row of {np.dtype(dtype)}")
    return array


def _counts(frequencies: Any, vocab_size: int) -> Ints:  # noqa: ANN401 - what torch reads
    if not isinstance(frequencies, dict) or not all(type(n) is int for pair in frequencies.items() for n in pair):
        raise ValueError("holds something other than whole numbers by id")
    ids, found = (np.fromiter(some, np.int64, len(frequencies)) for some in (frequencies, frequencies.values()))
    if (np.diff(ids) <= 0).any():
        raise ValueError("its ids are not ascending")
    if len(ids) and not 0 <= ids[0] <= ids[-1] < vocab_size:
        raise ValueError(f"has ids beyond the target's {vocab_size:,}")
    if (found < 1).any():
        raise ValueError("has ids that do not occur")
    counts = np.zeros(vocab_size, np.int64)
    counts[ids] = found
    return counts


def trained_counts(rows: Rows) -> Ints:
    """How often each id has a loss in the rows of one file, int64[V]; ids that the target does not have are left out.

    Rows whose mask does not fit their ids give no count at all: other laws name them.
    """
    if not rows.same_length.all():
        return np.zeros(rows.facts.vocab_size, np.int64)
    trained = rows.tokens.values[rows.mask.values == 1]
    return count_ids(trained[(trained >= 0) & (trained < rows.facts.vocab_size)], rows.facts.vocab_size)
