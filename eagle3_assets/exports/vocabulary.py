"""The draft vocabulary as files that the trainers read: written, read back, and judged as read.

What belongs here: the files' forms and their laws. Not here: choosing ids (``tokens.vocabulary``), whose tokens are
counted (``exporting``, ``vocabularies``), Dagster.

    token_freq.pt       {target id: how often it is trained on}, ids that occur, ascending; speculators
    d2t.npy, t2d.npy    int64[D] of offsets, bool[V]: target id = draft id + d2t[draft id]; speculators
    vocab_mapping.pt    {"d2t": int64[D], "t2d": bool[V]}, the same; SpecForge
    vocabulary.json     what they were made of

The bytes are the same for the same vocabulary and the same versions of numpy and torch. Only the ``.pt`` files need
torch: to be written, and to be judged.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from upath import UPath

from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.laws import Rows
from eagle3_assets.files import make_directory, read_bytes, write_bytes
from eagle3_assets.tokens.columns import Ints, Mask
from eagle3_assets.tokens.laws.base import counted
from eagle3_assets.tokens.vocabulary import DraftVocabulary, choose, count_ids

FOLDER = "vocabulary"
"""Of an export."""
TOKEN_FREQ, D2T, T2D, MAPPING, RECORD = "token_freq.pt", "d2t.npy", "t2d.npy", "vocab_mapping.pt", "vocabulary.json"
FILES = (TOKEN_FREQ, D2T, T2D, MAPPING, RECORD)

NO_TORCH = "torch is not installed here"


class VocabularyRecord(BaseModel):
    """What a draft vocabulary was made of: ``vocabulary.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vocab_size: int = Field(ge=1)
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
    recount: Ints | None
    """The trained tokens counted again, int64[V]."""
    why_no_recount: str = ""


def read_vocabulary(
    place: UPath,
    *,
    structural: Iterable[int] | None = None,
    recount: Ints | None = None,
    why_no_recount: str = "",
) -> ReadVocabulary | str:
    """Reads the files of a directory; what cannot be read and why, if so.

    Args:
        place: the directory.
        structural: ids that must be in; without them those of the record.
        recount: the trained tokens counted again, int64[V].
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

    return torch.load(io.BytesIO(read_bytes(path)), weights_only=True)


def _of_form(array: Any, dtype: type) -> Any:  # noqa: ANN401 - what numpy reads
    if array.dtype != dtype or array.ndim != 1:
        raise ValueError(f"holds {array.dtype} of {array.ndim} dimensions, not one row of {np.dtype(dtype)}")
    return array


def _counts(frequencies: Any, vocab_size: int) -> Ints:  # noqa: ANN401 - what torch reads
    ids = np.fromiter(frequencies.keys(), np.int64, len(frequencies))
    counts = np.zeros(vocab_size, np.int64)
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise ValueError(f"has ids beyond the target's {vocab_size:,}")
    counts[ids] = np.fromiter(frequencies.values(), np.int64, len(frequencies))
    return counts


@dataclass(frozen=True, slots=True)
class VocabularyLaw:
    """One law of a draft vocabulary."""

    name: str
    definition: str
    """One sentence: what holds."""
    meaning: str
    """One sentence: what breaking it means for a trainer."""
    judge: Callable[[ReadVocabulary], str | None]
    """What breaks it, or None."""
    unjudged: Callable[[ReadVocabulary], str | None] = lambda _: None
    """Why it cannot be judged, or None."""


def _maps_agree(read: ReadVocabulary) -> str | None:
    size, vocab_size = read.record.draft_vocab_size, read.record.vocab_size
    if (len(read.d2t), len(read.t2d)) != (size, vocab_size):
        return f"they are of {len(read.d2t):,} and {len(read.t2d):,} ids, {RECORD} says {size:,} and {vocab_size:,}"
    chosen, drafted = np.flatnonzero(read.t2d), np.arange(size) + read.d2t
    if len(chosen) != size:
        return f"{T2D} has {counted(len(chosen), 'id')}, {D2T} has {size:,}"
    if len(wrong := np.flatnonzero(chosen != drafted)):
        draft = wrong[0]
        return f"draft id {draft} is target id {drafted[draft]} by {D2T} and {chosen[draft]} by {T2D}"
    return None


def _mapping_agrees(read: ReadVocabulary) -> str | None:
    assert read.mapping is not None  # noqa: S101 - else it is not judged
    for name, ours, other in zip((D2T, T2D), (read.d2t, read.t2d), read.mapping, strict=True):
        if not np.array_equal(ours, other):
            return f"{MAPPING} and {name} differ"
    return None


def _structural_drafted(read: ReadVocabulary) -> str | None:
    lacking = sorted(i for i in read.structural if not (0 <= i < len(read.t2d) and read.t2d[i]))
    return f"{counted(len(lacking), 'structural id')} lacking, first {lacking[0]}" if lacking else None


def _most_frequent_drafted(read: ReadVocabulary) -> str | None:
    assert read.counts is not None  # noqa: S101 - else it is not judged
    if len(read.t2d) != len(read.counts) or not read.counts.any():
        return f"{TOKEN_FREQ} counts nothing, or {T2D} is of another vocabulary"
    wanted = choose(read.counts, read.record.structural_ids, read.record.draft_vocab_size).t2d
    if len(wrong := np.flatnonzero(wanted != read.t2d)):
        first = wrong[0]
        state = "is in" if read.t2d[first] else "is not in"
        return f"target id {first}, trained on {read.counts[first]:,} times, {state}"
    return None


def _counts_are_trained(read: ReadVocabulary) -> str | None:
    assert read.counts is not None  # noqa: S101 - else it is not judged
    assert read.recount is not None  # noqa: S101 - likewise
    if len(read.counts) != len(read.recount):
        return f"it is of {len(read.counts):,} ids, the target has {len(read.recount):,}"
    ours, again = int(read.counts.sum()), int(read.recount.sum())
    if (ours, ours) != (again, read.record.tokens):
        return f"{TOKEN_FREQ} counts {ours:,} tokens, {RECORD} {read.record.tokens:,}, and {again:,} have a loss"
    if len(wrong := np.flatnonzero(read.counts != read.recount)):
        first = wrong[0]
        return f"target id {first} is counted {read.counts[first]:,} times and trained on {read.recount[first]:,} times"
    return None


def _without_torch(read: ReadVocabulary) -> str | None:
    return NO_TORCH if read.counts is None else None


LAWS = (
    VocabularyLaw(
        "draft_maps_agree",
        "d2t and t2d are of the sizes D and V, and the ids that t2d has are draft id + d2t, ascending.",
        "the drafter would learn one token and propose another.",
        _maps_agree,
    ),
    VocabularyLaw(
        "vocab_mapping_agrees",
        "vocab_mapping.pt holds the same maps as d2t.npy and t2d.npy.",
        "the two trainers would train drafters of different vocabularies.",
        _mapping_agrees,
        _without_torch,
    ),
    VocabularyLaw(
        "structural_ids_drafted",
        "The drafter has every structural id of the target's profile.",
        "it could never propose to end, to close the reasoning, or to open a tool call.",
        _structural_drafted,
    ),
    VocabularyLaw(
        "most_frequent_drafted",
        "Beside structural ids the drafter has those most often trained on, of equals the lower one.",
        "coverage is less than it could be, and other tools would choose other ids.",
        _most_frequent_drafted,
        _without_torch,
    ),
    VocabularyLaw(
        "counts_are_trained_tokens",
        "token_freq.pt counts each id as often as it has a loss in the training samples, and nothing else.",
        "the vocabulary was chosen by other data than what is trained on.",
        _counts_are_trained,
        lambda read: _without_torch(read) or (read.why_no_recount if read.recount is None else None),
    ),
)
"""Every law of a draft vocabulary."""


@dataclass(frozen=True, slots=True)
class VocabularyVerdict:
    """What one law said."""

    law: VocabularyLaw
    fault: str | None
    unjudged: str | None

    @property
    def sentence(self) -> str:
        """What it said, for a person."""
        if self.fault:
            return f"{self.law.name}: {self.fault}"
        return f"{self.law.name}: {f'not judged: {self.unjudged}' if self.unjudged else 'kept'}"


def judge_vocabulary(read: ReadVocabulary | str) -> tuple[VocabularyVerdict, ...]:
    """Every law over files as read; files that cannot be read break the first and leave the others unjudged."""
    if isinstance(read, str):
        first, *others = LAWS
        unreadable = (VocabularyVerdict(law, None, "the files cannot be read") for law in others)
        return (VocabularyVerdict(first, read, None), *unreadable)
    verdicts = []
    for law in LAWS:
        unjudged = law.unjudged(read)
        verdicts.append(VocabularyVerdict(law, None if unjudged else law.judge(read), unjudged))
    return tuple(verdicts)


def trained_counts(rows: Rows) -> Ints:
    """How often each id has a loss in the rows of one file, int64[V]; ids that the target does not have are left out.

    Rows whose mask does not fit their ids give no count at all: other laws name them.
    """
    if not rows.same_length.all():
        return np.zeros(rows.vocab_size, np.int64)
    trained = rows.tokens.values[rows.mask.values == 1]
    return count_ids(trained[(trained >= 0) & (trained < rows.vocab_size)], rows.vocab_size)
