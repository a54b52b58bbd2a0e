"""``eagle3.yaml``: what may stand in it but for the engines.

What belongs here: settings models, their defaults and limits. Not here: engines (``engines``), reading the file
(``loading``), anything that acts on a setting.
"""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictInt, field_validator, model_validator

from eagle3_assets.config.base import Number, Settings
from eagle3_assets.config.engines import EngineSettings, TransformersEngineSettings
from eagle3_assets.config.operating import Alerts, Metrics

TRIAL_SUFFIX = "-trial"

NAME_LENGTH = 128
"""Most characters of a dataset's name: with a shard's suffix and an ending it names files, which have at most 255."""

SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]*(?:-[A-Za-z0-9_.]+)*")
SHARD_LIKE = re.compile(r".*-\d+of\d+")


GIVEN_TO_TEMPLATE = {
    **dict.fromkeys(("messages", "conversation", "tools"), "it comes from the source's rows"),
    **dict.fromkeys(("thinking", "enable_thinking"), "the dataset's `thinking` sets it"),
    "chat_template": "it is target.chat_template",
    **dict.fromkeys(
        (
            *("tokenize", "add_generation_prompt", "continue_final_message", "padding", "truncation", "max_length"),
            *("return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
        ),
        "it says what rendering gives back, which is not the template's",
    ),
}
"""Arguments of a chat template that are none of the config's, and why."""


class Sampling(Settings):
    """Every parameter that decides which token comes next. All of them are recorded with every row."""

    max_new_tokens: StrictInt = Field(
        512, ge=1, le=1_000_000, description="Cap on output tokens, the stop token included."
    )
    temperature: Number = Field(1.0, ge=0.0, le=10.0, description="0 takes the likeliest token (greedy).")
    top_p: Number = Field(1.0, gt=0.0, le=1.0, description="Smallest set of tokens holding this much probability.")
    top_k: StrictInt = Field(-1, ge=-1, description="Only the k likeliest tokens; -1 for all.")
    min_p: Number = Field(0.0, ge=0.0, le=1.0, description="Only tokens at least this share of the likeliest.")
    repetition_penalty: Number = Field(1.0, gt=0.0, le=2.0, description="1 for none.")
    stop_token_ids: tuple[StrictInt, ...] = Field((), description="Stop ids in addition to the model's own.")
    seed: StrictInt = Field(
        0, ge=0, lt=2**31, description="Each sample's own seed is derived from this one and its id."
    )

    @field_validator("top_k")
    @classmethod
    def _top_k_is_not_zero(cls, value: int) -> int:
        if value == 0:
            raise ValueError("0 would allow no token; give -1 for all tokens, or 1 or more")
        return value

    @field_validator("stop_token_ids")
    @classmethod
    def _sorted_ids(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 0 <= i < 2**31 for i in value):
            raise ValueError("token ids are from 0 to 2147483647")
        return tuple(sorted(set(value)))


class Target(Settings):
    """The model whose tokens the drafter shall learn."""

    model: str = Field(
        description="Directory of the checkpoint; relative to the config file. `demo` is the packaged model."
    )
    tokenizer: str | None = Field(None, description="Directory of the tokenizer, where it is not the model's.")
    trust_remote_code: bool = Field(
        False, description="Runs Python code that lies beside the model. Off unless you read it."
    )
    profile: str = Field(
        "auto",
        description="Name of a built-in profile (docs/profiles.md); auto finds it by the tokenizer's token names and,"
        " of one family, by how the chat template ends a prompt.",
    )
    profile_overrides: dict[str, Any] = Field(
        default_factory=dict, description="Single facts of the profile, corrected."
    )
    chat_template: str | None = Field(None, description="File with a chat template to use instead of the tokenizer's.")
    template_arguments: dict[str, Any] = Field(
        default_factory=dict, description="Extra arguments of the chat template."
    )

    @field_validator("template_arguments")
    @classmethod
    def _no_argument_that_is_given_already(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name in GIVEN_TO_TEMPLATE:
                raise ValueError(f"{name!r} cannot be given here: {GIVEN_TO_TEMPLATE[name]}")
        try:
            json.dumps(value, allow_nan=False, sort_keys=True)  # as it is hashed
        except (TypeError, ValueError) as error:
            raise ValueError(f"must be what JSON can say, with text in quotes (YAML reads dates): {error}") from None
        return value


class Band(Settings):
    """A range that a figure is expected in, both ends included."""

    low: Number = Field(ge=0)
    high: Number = Field(ge=0)

    @model_validator(mode="before")
    @classmethod
    def _from_pair(cls, value: Any) -> Any:  # noqa: ANN401 - raw input
        if isinstance(value, list | tuple):
            if len(value) != 2:
                raise ValueError("a band is two numbers: [low, high]")
            return {"low": value[0], "high": value[1]}
        return value

    @model_validator(mode="after")
    def _ordered(self) -> "Band":
        if self.low > self.high:
            raise ValueError(f"the band's low end {self.low:g} is above its high end {self.high:g}")
        return self

    def __contains__(self, value: float) -> bool:
        """Whether the value lies in the band, ends included."""
        return self.low <= value <= self.high


class LengthBand(Settings):
    """How long outputs are expected to be, in tokens. What is left out is not judged."""

    median: Band | None = Field(None, description="`[low, high]` in tokens.")
    p95: Band | None = Field(None, description="`[low, high]` in tokens; 5 % of the outputs are longer.")
    share_under_500: Band | None = Field(None, description="Share of outputs shorter than 500 tokens, 0 to 1.")


SourceFormat = Literal[
    "auto", "openai", "sharegpt", "glaive", "mixture-of-thoughts", "openthoughts", "alpaca", "plain", "prompts"
]
"""How the rows of a source are written; each but ``auto`` is one that ``prompts.formats`` reads."""

Turns = Literal["last", "first", "all"]
"""Which assistant turns of a conversation are generated."""


def _one_or_many(value: Any) -> Any:  # noqa: ANN401 - raw input
    if not isinstance(value, str | list | tuple):
        raise ValueError("must be a path, or a list of paths")
    return (value,) if isinstance(value, str) else value


def _share_or_count(value: Any) -> Any:  # noqa: ANN401 - raw input
    count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    share = isinstance(value, float) and 0.0 < value <= 1.0
    if value is not None and not count and not share:
        raise ValueError("must be a share above 0.0 and up to 1.0, or a count of 1 or more")
    return value


class Dataset(Settings):
    """One source of prompts and how to generate on it."""

    name: str = Field(description="Becomes the partition key: letters, digits, `_`, `.` and `-`.")
    source: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_one_or_many)] = Field(
        min_length=1,
        description="A file (JSONL, JSON array or Parquet; .gz and .zst too), a directory, a glob,"
        " `hf://datasets/OWNER/NAME@COMMIT/PATH`, or a list of these; paths are relative to the config file"
        " (docs/prompts.md).",
    )
    format: SourceFormat = Field(
        "auto",
        description="Name of a format (docs/prompt-formats.md); auto finds it for each file by its first rows.",
    )
    ignore_keys: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        description="Keys of the source's rows that are not looked at, whatever they hold: `story`; in an object or"
        " in a list of them `metadata.tools`, `messages[].thought` (docs/prompt-formats.md).",
    )
    skip: StrictInt = Field(0, ge=0, description="Rows at the source's beginning to leave out.")
    limit: StrictInt | None = Field(
        None, ge=1, description="Most rows to read after those; what lies behind them is not read."
    )
    sample: Annotated[int | float | None, BeforeValidator(_share_or_count)] = Field(
        None,
        description="Take only this share (up to 1.0) or count of the conversations, chosen by a hash of their ids.",
    )
    sample_seed: StrictInt = Field(0, ge=0, lt=2**31, description="Another seed chooses another sample.")
    turns: Turns = Field(
        "last", description="Which assistant turns to generate, each with the source's turns before it."
    )
    system_prompt: str | None = Field(None, description="Put first in a conversation that has no system message.")
    max_prompt_tokens: StrictInt | None = Field(
        None, ge=1, description="A longer prompt is refused with its length and never sent; nothing is ever cut."
    )
    refused_limit: Number = Field(
        0.0, ge=0.0, le=1.0, description="Share of refused source rows above which `source_rows_accounted` fails."
    )
    shards: StrictInt = Field(
        1, ge=1, le=10_000, description="Number of partitions. A shard should hold thousands of rows."
    )
    samples_per_prompt: StrictInt = Field(
        1, ge=1, le=1_000, description="Outputs of the same prompt, differing by seed."
    )
    thinking: bool = Field(True, description="Whether the chat template leaves reasoning to the target.")
    sampling: Sampling = Field(default_factory=Sampling)
    length_band: LengthBand = Field(default_factory=LengthBand)
    quarantine_limit: Number = Field(
        0.01, ge=0.0, le=1.0, description="Share of quarantined rows above which it is refused."
    )
    coverage: Number = Field(1.0, ge=0.0, le=1.0, description="Least share of sent prompts that must have an output.")

    @field_validator("system_prompt")
    @classmethod
    def _says_something(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("must be a text that says something; leave it out for none")
        return value

    @field_validator("name")
    @classmethod
    def _slug(cls, value: str) -> str:
        if not SLUG.fullmatch(value):
            raise ValueError(
                "only letters, digits, `_`, `.` and single `-` between them: it names files and partitions"
            )
        if len(value) > NAME_LENGTH:
            raise ValueError(
                f"must have at most {NAME_LENGTH} characters, not {len(value)}: it names files and partitions"
            )
        if value.endswith(TRIAL_SUFFIX) or SHARD_LIKE.fullmatch(value):
            raise ValueError("must not end like a shard (-00of16) or a trial (-trial): those names are derived")
        return value


ExportFormat = Literal["jsonl", "speculators", "parquet", "raw-responses", "lossy-conversations"]
"""How an export is written; each is one that ``exports.formats`` has."""


class Export(Settings):
    """What trainers get of the training samples, and in which form."""

    format: ExportFormat = Field("jsonl", description="How it is written (docs/export.md).")
    max_length: StrictInt | None = Field(
        None,
        ge=2,
        lt=2**31,
        description="The trainer's own limit in tokens: longer samples are left out, counted, never cut.",
    )
    eval_share: Number = Field(
        0.02, ge=0.0, lt=1.0, description="Share of the conversations held out, chosen by a hash of their ids."
    )
    cut_off: Literal["keep", "drop", "mask"] = Field(
        "keep", description="What becomes of outputs that the cap ended; `mask` takes the loss off their last tokens."
    )
    cut_off_tail: StrictInt = Field(64, ge=1, lt=2**31, description="How many tokens `mask` takes the loss off.")
    shard_rows: StrictInt = Field(10_000, ge=1, description="Most rows in a file; very long rows make it fewer.")
    vocabulary: bool = Field(
        True, description="Whether an export holds a draft vocabulary, counted over what it trains on; needs torch."
    )
    draft_vocab_size: StrictInt = Field(
        32_000,
        ge=1,
        description="Ids of the drafter's vocabulary, as the trainer's draft config says it; all of the target's where"
        " that is fewer (docs/draft-vocabulary.md).",
    )


class Storage(Settings):
    """Where everything that is made lies."""

    root: str | None = Field(
        None, description="Directory or object-store URL (docs/storage.md); relative to the config file."
    )
    scratch: str | None = Field(
        None,
        description="Local directory for journals and servers' logs where the root is an object store, relative to the"
        " config file; unset takes `.eagle3` below the folder in which the command runs.",
    )
    flush_rows: StrictInt = Field(
        500, ge=1, le=1_000_000, description="On an object store: finished rows after which they are uploaded."
    )
    flush_seconds: Number = Field(
        30.0, gt=0.0, le=86_400.0, description="On an object store: seconds after which finished rows are uploaded."
    )
    lease_seconds: Number = Field(
        120.0,
        ge=10.0,
        le=86_400.0,
        description="On an object store: seconds without a sign of life after which another machine may take a"
        " partition over; a run that cannot reach the store for so long stops.",
    )


class Eagle3Config(Settings):
    """The whole of ``eagle3.yaml``."""

    target: Target
    engine: EngineSettings = Field(default_factory=TransformersEngineSettings)
    storage: Storage = Field(default_factory=Storage)
    export: Export = Field(default_factory=Export)
    alerts: Alerts = Field(default_factory=Alerts)
    metrics: Metrics = Field(default_factory=Metrics)
    datasets: tuple[Dataset, ...] = Field(min_length=1)
    trial_rows: StrictInt = Field(20, ge=1, le=10_000, description="Conversations of a dataset's trial partition.")
    law_effects: dict[str, Literal["warn"]] = Field(
        default_factory=dict, description="Row laws lowered to warn, where breaking them is this target's habit."
    )

    @model_validator(mode="after")
    def _names_differ(self) -> "Eagle3Config":
        # Names become files, and some file systems do not tell upper from lower case.
        names = [dataset.name.lower() for dataset in self.datasets]
        doubled = sorted({d.name for d in self.datasets if names.count(d.name.lower()) > 1})
        if doubled:
            raise ValueError(f"dataset names must differ by more than case; given twice: {', '.join(doubled)}")
        return self

    def dataset(self, name: str) -> Dataset:
        """The dataset of that name.

        Raises:
            KeyError: there is none.
        """
        return next(d for d in self.datasets if d.name == name)
