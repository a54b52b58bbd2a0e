"""What is there of a partition and what is missing, read without making or changing anything.

What belongs here: counting prompts and outputs for a plan. Not here: estimates from the counts (``planning``),
generating, Dagster.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import polars as pl

from eagle3_assets.contract import TOKENIZED_PROMPTS
from eagle3_assets.engines.base import Description
from eagle3_assets.frames import batches
from eagle3_assets.generating import identity_of
from eagle3_assets.generation.errors import GenerationError, SealedError
from eagle3_assets.generation.journal import Unfinished
from eagle3_assets.generation.plan import SealedIndex, index_sealed, iterate_prompts, prompt_key
from eagle3_assets.generation.sealed import Sealed, read_current, read_identity, scan_sealed
from eagle3_assets.generation.shared import find_unfinished
from eagle3_assets.identity import Identity
from eagle3_assets.judging import RERENDERED_ROWS, Judged, judge_tokenized, tokenize
from eagle3_assets.partitions import Partition, dataset_partitions
from eagle3_assets.planning import Outputs
from eagle3_assets.project import Project
from eagle3_assets.prompts.row_index import RememberedIndexes
from eagle3_assets.prompts.rows import PromptRows
from eagle3_assets.sourcing import current_prompts
from eagle3_assets.storage.files import StorageError, is_stored, scan_parquet
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.batch import FAILED, GENERATED
from eagle3_assets.tokens.reasons import commonest_reason, kinds_of

_OF_THE_SOURCE = ("prompts_accounted", "prompt_reproducible")
"""Laws that stored prompts break when the source, the template or the tokenizer has changed since."""


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One partition, counted. Every prompt is generated, failed, refused or missing."""

    partition: Partition
    source: PromptRows
    """What its source gives now, and the rows that are unusable."""
    why_tokenized: str | None
    """Why the prompts were rendered and tokenized in memory; None where the stored ones were used."""
    lengths: pl.Series
    """Int32, tokens of each prompt that may be sent."""
    generated: int
    failed: int
    """Failed in earlier runs, and kept so unless they are asked again."""
    refused: int
    missing: int
    outputs: Outputs
    """Of the whole dataset, its trial included, that can be read and were made with the settings that there are now."""
    kept: Outputs
    """Of this partition's sealed file, if a run would go on from it."""
    unfinished: Outputs
    """Of this partition's unfinished run, made with the settings that there are now."""
    commonest_refusal: str | None = None
    refusals: tuple[str, ...] = ()
    """Why nothing would be generated."""
    other_identity: tuple[str, ...] = ()
    """In what the stored generations differ from the settings now; such are never extended."""

    @property
    def prompts(self) -> int:
        """All of them."""
        return len(self.source.rows)

    @property
    def hindrances(self) -> tuple[str, ...]:
        """Why materializing would refuse to generate as things are; empty if it would not."""
        sources = ", ".join(self.partition.dataset.source)
        nothing = (f"{sources} has no usable row.",) if self.source.accounts.nothing_usable else ()
        other = (
            f"it holds outputs of other settings ({'; '.join(self.other_identity)}), and two are never mixed. Go back"
            " to the former settings, or --regenerate: that is what is counted here."
        )
        return (*nothing, *self.refusals, *((other,) if self.other_identity and not self.partition.trial else ()))

    @property
    def blocked(self) -> bool:
        """Whether materializing would refuse to generate as things are."""
        return bool(self.hindrances)


@dataclass(slots=True)
class _Stored:
    """What is generated of a partition, by one identity, with the settings that there are now."""

    fingerprint: str | None = None
    sealed: Sealed | None = None
    """The file that a run would go on from."""
    journal: dict[bytes, str] = field(default_factory=dict)
    kept: Outputs = field(default_factory=Outputs)
    unfinished: Outputs = field(default_factory=Outputs)
    other_identity: tuple[str, ...] = ()

    @property
    def outputs(self) -> Outputs:
        return self.kept + self.unfinished


class Survey:
    """Counts partitions. Of each dataset's others only what tells how long outputs are is read, once, and kept.

    A dataset whose partitions are counted one after the other has each file of its source parsed once.
    """

    def __init__(self, project: Project, target: LoadedTarget) -> None:
        self._project = project
        self._target = target
        self._outputs: dict[str, Outputs] = {}
        """By dataset."""
        self._indexes: dict[str, RememberedIndexes] = {}
        """Of the dataset that was counted last."""

    def of(self, partition: Partition) -> Surveyed:
        """Counts one.

        Whether the engine serves other weights by now is not known before it starts, and has no part in this. Siblings
        that cannot be read tell nothing of how long outputs are, and hinder nothing.

        Raises:
            PromptSourceError: its source cannot be read.
            GenerationError: its sealed generations or its journal are damaged.
        """
        dataset = partition.dataset
        if dataset.name not in self._outputs:
            self._outputs[dataset.name] = sum(map(self._outputs_of, dataset_partitions(dataset)), start=Outputs())
        if dataset.name not in self._indexes:
            self._indexes = {dataset.name: RememberedIndexes(self._project.layout, dataset)}
        stored = _stored(self._project, partition, self._target)
        source = current_prompts(self._project, partition, self._indexes[dataset.name])
        return _surveyed(self._project, partition, self._target, source, stored, self._outputs[dataset.name])

    def _outputs_of(self, partition: Partition) -> Outputs:
        try:
            return _stored(self._project, partition, self._target).outputs
        except GenerationError:
            return Outputs()


def _surveyed(
    project: Project,
    partition: Partition,
    target: LoadedTarget,
    source: PromptRows,
    stored: _Stored,
    outputs: Outputs,
) -> Surveyed:
    tokenized, judged, why = _tokenized(project, partition, target, source.rows)
    sealed = _index(stored)
    counts = {GENERATED: 0, FAILED: 0, None: 0}
    for prompt in iterate_prompts(tokenized):
        if prompt.status == "ready":
            key = bytes.fromhex(prompt_key(prompt, stored.fingerprint)) if stored.fingerprint else b""
            found = {sealed.of(key), stored.journal.get(key)}
            # A generated row counts before a failed one.
            counts[GENERATED if GENERATED in found else FAILED if FAILED in found else None] += 1
    facts = tokenized.select("status", "reason", "prompt_tokens").collect()
    refused = facts.filter(pl.col("status") == "refused")
    return Surveyed(
        partition=partition,
        source=source,
        why_tokenized=why,
        lengths=facts.filter(pl.col("status") == "ready")["prompt_tokens"],
        generated=counts[GENERATED],
        failed=counts[FAILED],
        refused=len(refused),
        missing=counts[None],
        outputs=outputs,
        kept=stored.kept,
        unfinished=stored.unfinished,
        commonest_refusal=commonest_reason(refused["reason"]),
        refusals=judged.report.refusals,
        other_identity=stored.other_identity,
    )


def _tokenized(
    project: Project, partition: Partition, target: LoadedTarget, rows: pl.DataFrame
) -> tuple[pl.LazyFrame, Judged, str | None]:
    """The stored prompts where they are still those of the source, else new ones in memory, and why."""

    def judge(tokenized: pl.LazyFrame) -> Judged:
        return judge_tokenized(project, partition, target, rows.lazy(), tokenized)

    try:
        before, tokenized = (
            scan_parquet(project.layout.asset_file(asset, partition.key), asset=asset)
            for asset in ("prompts", "tokenized_prompts")
        )
        asked = ("sample_id", "messages", "tools")
        if before.select(asked).collect().equals(rows.select(asked)):
            judged = judge(tokenized)
            broken = any(judged.report[law].status == "failed" for law in _OF_THE_SOURCE)
            if not broken and _still_refused(project, partition, target, rows, tokenized):
                return tokenized, judged, None
            why = "the stored ones are not what template and tokenizer make of the source now"
        else:
            why = "the source has changed since they were stored"
    except (StorageError, pl.exceptions.ComputeError):
        there = is_stored(project.layout.asset_file("tokenized_prompts", partition.key))
        why = "the stored ones cannot be read" if there else "none are stored yet"
    parts = [tokenize(project, partition, target, some) for some in batches(rows.lazy())]
    fresh = pl.concat([pl.DataFrame(schema=TOKENIZED_PROMPTS), *parts]).lazy()
    return fresh, judge(fresh), why


def _still_refused(
    project: Project, partition: Partition, target: LoadedTarget, rows: pl.DataFrame, tokenized: pl.LazyFrame
) -> bool:
    """Whether prompts that were refused would be so again; no law asks for that, as they have no use.

    Of each kind of reason as many are asked, so that few of one are not missed behind many of another.
    """
    every = tokenized.filter(pl.col("status") == "refused").select("sample_id", "reason").collect()
    place = pl.int_range(pl.len()).over(kinds_of(every["reason"]))
    refused = every.sort(place, maintain_order=True).head(RERENDERED_ROWS)
    again = tokenize(project, partition, target, rows.join(refused, on="sample_id", how="semi", maintain_order="left"))
    return bool((again["status"] == "refused").all())


def _stored(project: Project, partition: Partition, target: LoadedTarget) -> _Stored:
    """What a materialization now would go on from, as ``generation.plan.settle_base`` chooses it."""
    journal = find_unfinished(project.layout.journals(partition.key), project.sharing(partition.key))
    current = read_current(project.layout.generations(partition.key))
    if journal and current and journal.header.id == current.pointer.journal:
        journal = None
    stored = _Stored()
    if journal:
        stored.other_identity = _differences(journal.header.identity, partition, target)
        if stored.other_identity:
            return stored
        _add_journal(stored, journal)
        if journal.header.fresh:
            return stored
    if current:
        identity = read_identity(current.directory, current.pointer.fingerprint)
        stored.other_identity = _differences(identity, partition, target)
        if not stored.other_identity and stored.fingerprint in (None, identity.fingerprint):
            _add_sealed(stored, current)
    return stored


def _differences(identity: Identity, partition: Partition, target: LoadedTarget) -> tuple[str, ...]:
    """How an identity differs from the settings now, as far as that can be known without the engine."""
    engine = Description(identity.weights, identity.stop_token_ids, target.vocab_size, target.context_length)
    dataset = partition.dataset
    return tuple(
        identity.differences(identity_of(target, engine, thinking=dataset.thinking, sampling=dataset.sampling))
    )


def _add_journal(stored: _Stored, journal: Unfinished) -> None:
    stored.fingerprint = journal.header.identity.fingerprint
    stored.journal = journal.status
    stored.unfinished += Outputs(journal.outputs, journal.output_tokens)


def _add_sealed(stored: _Stored, current: Sealed) -> None:
    stored.fingerprint, stored.sealed = current.pointer.fingerprint, current
    generated = (
        scan_sealed(current)
        .filter(pl.col("status") == GENERATED)
        .select(count=pl.len(), tokens=pl.col("completion_tokens").cast(pl.Int64).sum())
    )
    with _naming(current):
        stored.kept += Outputs(*generated.collect().row(0))


def _index(stored: _Stored) -> SealedIndex:
    if stored.sealed is None:
        return SealedIndex()
    with _naming(stored.sealed):
        return index_sealed(scan_sealed(stored.sealed))


@contextmanager
def _naming(sealed: Sealed) -> Iterator[None]:
    try:
        yield
    except pl.exceptions.ComputeError as error:
        raise SealedError(f"{sealed.path}: cannot be read to its end ({error}); restore it from a copy") from error
