"""A config held against what is on this machine, before anything is made of it.

What belongs here: looking, and saying what is wrong. Nothing is stored, no server and no Hub is asked, no weights are
loaded. Not here: what may stand in a config (``config``), the laws, how it is shown (``cli``).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from eagle3_assets.config import HUB_SCHEME, Dataset, Eagle3Config, SglangEngineSettings, Target
from eagle3_assets.contract import PROMPTS, TOKENIZED_PROMPTS
from eagle3_assets.engines.checkpoint import weight_files
from eagle3_assets.judging import given_other_ids, given_without_names, judge_tokenized, target_call_form, tokenize
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.planning import Expected, Outputs, expected_output, prompt_tokens
from eagle3_assets.project import Project
from eagle3_assets.prompt_views import PromptView, prompt_view
from eagle3_assets.prompts.rows import PromptRows, PromptSourceError, read_first
from eagle3_assets.prompts.sources import estimate_rows, find
from eagle3_assets.prompts.sources.hub import HubError, local_snapshot
from eagle3_assets.prompts.template_forms import CallForm
from eagle3_assets.target import LoadedTarget, TargetError, load_target
from eagle3_assets.tokens.verdict import Report, Verdict
from eagle3_assets.tokens.wording import percent

_CANARY = "tokenizer_canary"


@dataclass(frozen=True, slots=True)
class CheckedTarget:
    """The target, as far as it can be used."""

    loaded: LoadedTarget | None
    canary: Verdict | None
    """What the tokenizer says of its own structural tokens; None where it is not loaded."""
    faults: tuple[str, ...]
    call_form: CallForm | None = None
    """How the template takes the calls of earlier turns; None where there is none at hand."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a whole dataset would be, from its first rows."""

    source_rows: int
    """Those that its settings read."""
    prompts: int
    """That may be sent."""
    prompt_tokens: int
    output: Expected
    exact: bool
    """Whether every row was looked at; else all but counted rows is extrapolated."""


@dataclass(frozen=True, slots=True)
class CheckedDataset:
    """One dataset, by its first rows."""

    dataset: Dataset
    faults: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    """What a person should know, though nothing is wrong."""
    found: PromptRows | None = None
    """None where the source cannot be read."""
    lengths: pl.Series | None = None
    """Tokens of the prompts that may be sent; None without a target."""
    report: Report | None = None
    """The laws about prompts over these rows."""
    example: PromptView | None = None
    """The last prompt of the first conversation that may be sent, or of the first refused one where none may be."""
    estimate: Estimate | None = None


def check_target(project: Project) -> CheckedTarget:
    """Loads the tokenizer and has the canary judge it."""
    settings, faults = project.config.target, []
    try:
        loaded = load_target(settings)
    except TargetError as error:
        return CheckedTarget(None, None, (str(error),))
    if project.config.engine.kind == "transformers" and not weight_files(Path(settings.model)):
        faults.append(f"target.model: {settings.model} has no weights, which the embedded engine loads")
    partition = next(iter(project.partitions.values()))
    nothing = (pl.LazyFrame(schema=PROMPTS), pl.LazyFrame(schema=TOKENIZED_PROMPTS))
    verdicts = judge_tokenized(project, partition, loaded, *nothing).report.verdicts
    canary = next(verdict for verdict in verdicts if verdict.law.name == _CANARY)
    if canary.status != "passed":
        faults.append(f"target.tokenizer: {_CANARY}: {canary.summary}")
    return CheckedTarget(loaded, canary, tuple(faults), target_call_form(loaded, thinking=partition.dataset.thinking))


def check_engine(config: Eagle3Config) -> list[str]:
    """What of the engine's settings is not there on this machine. No server is asked."""
    engine = config.engine
    if not isinstance(engine, SglangEngineSettings):
        return []
    faults = []
    if engine.ca_file and not Path(engine.ca_file).is_file():
        faults.append(f"engine.ca_file: there is no file {engine.ca_file}")
    python = engine.managed.python if engine.managed else None
    if python and "/" in python and not Path(python).is_file():
        faults.append(f"engine.managed.python: there is no file {python}")
    return faults


def check_metrics(config: Eagle3Config) -> list[str]:
    """Why a run would keep no figures, though it shall."""
    directory = config.metrics.directory
    if directory is None:
        return []
    faults = [] if Path(directory).is_dir() else [f"metrics.directory: there is no directory {directory}"]
    if find_spec("prometheus_client") is None:
        faults.append("metrics.directory: needs the extra: pip install '.[metrics]'")
    return faults


def code_that_does_not_run(settings: Target) -> list[str]:
    """Python files beside a tokenizer whose code is not trusted."""
    directory = Path(settings.tokenizer or settings.model)
    return [] if settings.trust_remote_code else sorted(path.name for path in directory.glob("*.py"))


def check_datasets(project: Project, target: LoadedTarget | None, rows: int) -> Iterator[CheckedDataset]:
    """Each dataset by its first rows; without a target only its source and format."""
    for dataset in project.config.datasets:
        yield _checked(project, dataset, target, rows)


def _checked(project: Project, dataset: Dataset, target: LoadedTarget | None, rows: int) -> CheckedDataset:
    faults = _ids_beyond(dataset, target)
    try:
        local = dataset.model_copy(update={"source": tuple(map(_on_this_machine, dataset.source))})
        found = read_first(local, rows)
        counted = estimate_rows(find(local.source).files)
    except PromptSourceError as error:
        return CheckedDataset(dataset, (*faults, str(error)))
    except HubError as error:
        return CheckedDataset(dataset, (*faults, f"the source is not on this machine: {error}"))
    accounts = found.accounts
    if accounts.nothing_usable:
        empty = ": `skip` leaves out every row" if accounts.rows else ": the source is empty"
        faults.append(f"no row is usable{f'; first {found.refused[0]}' if found.refused else empty}")
    elif accounts.refused_share > dataset.refused_limit:
        faults.append(
            f"{accounts.refused:,} of the first {accounts.rows - accounts.skipped:,} rows are refused,"
            f" {percent(accounts.refused_share, 2)}, more than refused_limit ({percent(dataset.refused_limit, 2)})"
        )
    if target is None:
        return CheckedDataset(dataset, tuple(faults), found=found)
    partition = dataset_partitions(dataset)[0]
    tokenized = tokenize(project, partition, target, found.rows)
    report = judge_tokenized(project, partition, target, found.rows.lazy(), tokenized.lazy()).report
    faults += report.refusals
    ready = tokenized.filter(pl.col("status") == "ready")
    lengths = ready["prompt_tokens"]
    ids = set(ready["sample_id"])
    other_ids = ids.intersection(given_other_ids(partition, target, found.rows.lazy()))
    nameless = ids.intersection(given_without_names(partition, target, found.rows.lazy()))
    return CheckedDataset(
        dataset,
        tuple(faults),
        tuple(_remarks(dataset, target, lengths, len(other_ids), len(nameless))),
        found,
        lengths,
        report,
        _example(target, found, tokenized),
        _estimate(dataset, found, lengths, counted.rows, whole=counted.exact),
    )


def _on_this_machine(place: str) -> str:
    """A place of a source; of the Hub the directory of its cache."""
    if not place.startswith(HUB_SCHEME):
        return place
    try:
        snapshot = local_snapshot(place, ask=False)
    except HubError as error:
        raise HubError(f"{place}: {error}; materializing downloads it") from None
    return str(snapshot.root / snapshot.path)


def _ids_beyond(dataset: Dataset, target: LoadedTarget | None) -> list[str]:
    beyond = [i for i in dataset.sampling.stop_token_ids if target and i >= target.vocab_size]
    return [f"sampling.stop_token_ids: {i} is no id of the target's vocabulary" for i in beyond]


def _remarks(
    dataset: Dataset, target: LoadedTarget, lengths: pl.Series, other_ids: int, nameless: int
) -> Iterator[str]:
    if other_ids:
        yield (
            f"{other_ids:,} of the prompts have calls without ids of the target's form {target.profile.tool_call_id},"
            " or with numbers out of order: they are rendered with such ids, counted from 0"
        )
    if nameless:
        yield f"in {nameless:,} of the prompts a speaker has a `name` that the chat template does not print"
    figures = prompt_tokens(lengths)
    longest = figures.longest if figures else 0
    cap = dataset.sampling.max_new_tokens
    if longest + cap > target.context_length:
        yield (
            f"max_new_tokens {cap:,} after a prompt of {longest:,} tokens is beyond the target's context of"
            f" {target.context_length:,}: outputs may be cut off there"
        )


def _example(target: LoadedTarget, found: PromptRows, tokenized: pl.DataFrame) -> PromptView | None:
    if tokenized.is_empty():
        return None
    ready = tokenized.filter(pl.col("status") == "ready")
    rows = found.rows.join(tokenized if ready.is_empty() else ready, on="sample_id", how="semi", maintain_order="left")
    # With `turns: all` the last has the most to look at: earlier answers, calls and results.
    source = rows.filter(pl.col("conversation_id") == rows["conversation_id"][0]).row(-1, named=True)
    [row] = tokenized.filter(pl.col("sample_id") == source["sample_id"]).rows(named=True)
    return prompt_view(target, row, source)


def _estimate(dataset: Dataset, found: PromptRows, lengths: pl.Series, source_rows: int, *, whole: bool) -> Estimate:
    """The whole dataset, each row taken to be like those that were looked at."""
    accounts = found.accounts
    looked_at = accounts.rows - accounts.skipped
    rows = max(0, source_rows - dataset.skip)
    rows = min(rows, dataset.limit) if dataset.limit is not None else rows
    conversations = rows * accounts.used / looked_at if looked_at else 0.0
    if isinstance(dataset.sample, float):
        conversations *= dataset.sample
    elif dataset.sample is not None:
        conversations = min(conversations, dataset.sample)
    prompts = conversations * len(lengths) / accounts.used if accounts.used else 0.0
    figures = prompt_tokens(lengths)
    tokens = round(prompts * figures.total / len(lengths)) if figures else 0
    output = expected_output(round(prompts), Outputs(), dataset.length_band.median, dataset.sampling.max_new_tokens)
    exact = whole and looked_at == rows and dataset.sample is None
    return Estimate(rows, round(prompts), tokens, output, exact)
