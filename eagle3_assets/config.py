"""``eagle3.yaml``: what may stand in it, how it is found, and what a person is told when it is wrong.

What belongs here: settings models, their defaults and limits, loading. Not here: anything that acts on a setting.
"""

import json
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import fsspec  # type: ignore[import-untyped] # it ships no types
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictInt,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from eagle3_assets.tokens.safe_text import quoted

CONFIG_VARIABLE = "EAGLE3_CONFIG"
STORAGE_VARIABLE = "EAGLE3_STORAGE"
TRIAL_SUFFIX = "-trial"

SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]*(?:-[A-Za-z0-9_.]+)*")
SHARD_LIKE = re.compile(r".*-\d+of\d+")
HEADER_NAME = re.compile(r"[A-Za-z0-9-]+")


class ConfigError(Exception):
    """The config cannot be used. The text names the file, the key and what is allowed."""


def _no_truth_value(value: Any) -> Any:  # noqa: ANN401 - raw input
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


Number = Annotated[float, BeforeValidator(_no_truth_value)]
"""A float; ``yes`` and ``true``, which would count as 1, are none."""


class Settings(BaseModel):
    """Base of all settings: unknown keys are errors, values cannot be changed after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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


class TransformersEngineSettings(Settings):
    """The embedded engine: any local checkpoint, in this process."""

    kind: Literal["transformers"] = Field("transformers", description="The embedded engine; needs the extra `local`.")
    batch_size: StrictInt = Field(32, ge=1, le=4096, description="Prompts per padded batch.")
    device: str = Field("auto", description="A torch device; auto takes a GPU where there is one.")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="float32 is what makes batches exact."
    )
    threads: StrictInt | None = Field(
        None, ge=1, le=512, description="CPU threads for torch; unset leaves torch's choice."
    )
    logprob_share: Number = Field(
        0.01, ge=0.0, le=1.0, description="Share of samples whose log-probabilities are kept."
    )


def _url_of_a_server(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if "@" not in url and (not valid or parts.query or parts.fragment):  # with an @ a fault must not repeat it
        raise ValueError("must be a server's URL, such as http://gpu-1:30000")
    return url


class SglangEngineSettings(Settings):
    """One or several SGLang servers, asked over HTTP for raw ids."""

    kind: Literal["sglang"] = Field("sglang", description="SGLang servers, which run elsewhere.")
    endpoints: tuple[Annotated[str, AfterValidator(_url_of_a_server)], ...] = Field(
        min_length=1, description="Base URLs of servers with the same model, such as `http://gpu-1:30000`."
    )
    api_key_env: str | None = Field(
        None, min_length=1, description="Name of the environment variable that holds the servers' API key."
    )
    api_key_header: str = Field(
        "Authorization", description="Header that carries the key; in `Authorization` it is a bearer token."
    )
    ca_file: str | None = Field(
        None, description="PEM file of the authority to trust for https; relative to the config file."
    )
    max_in_flight: StrictInt | None = Field(
        None, ge=1, le=4096, description="Most requests at once to one server; unset takes its own limit, 256 at most."
    )
    request_timeout_s: Number = Field(
        3600.0, gt=0.0, le=86_400.0, description="Seconds to wait for an answer; it must cover the longest output."
    )
    unavailable_wait_s: Number = Field(
        600.0, ge=0.0, le=86_400.0, description="Seconds to wait when every server is gone; then the run stops."
    )
    beyond_context: Literal["cap", "refuse"] = Field(
        "cap",
        description="Where prompt and `max_new_tokens` exceed the context: lower the cap for that prompt, or fail it.",
    )
    want_text: bool = Field(False, description="Whether to keep the server's own text beside the ids.")
    logprob_share: Number = Field(
        0.01, ge=0.0, le=1.0, description="Share of samples whose log-probabilities are kept."
    )

    @field_validator("endpoints")
    @classmethod
    def _no_secrets_no_doubles(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any("@" in url for url in value):
            raise ValueError("must hold no user and password (they are logged and stored): use api_key_env")
        urls = tuple(url.rstrip("/") for url in value)
        doubled = sorted({url for url in urls if urls.count(url) > 1})
        if doubled:
            raise ValueError(f"must differ: {doubled[0]} is given twice")
        return urls

    @field_validator("api_key_header")
    @classmethod
    def _header_name(cls, value: str) -> str:
        if not HEADER_NAME.fullmatch(value):
            raise ValueError("must be a header's name: letters, digits and `-`")
        return value


ENGINES: dict[str, type[Settings]] = {"transformers": TransformersEngineSettings, "sglang": SglangEngineSettings}
"""Settings by kind of engine."""


def _engine_kind(value: Any) -> str | None:  # noqa: ANN401 - raw input or a settings model
    if isinstance(value, dict):
        return str(value.get("kind", "transformers"))
    return getattr(value, "kind", None)


EngineSettings = Annotated[
    Annotated[TransformersEngineSettings, Tag("transformers")] | Annotated[SglangEngineSettings, Tag("sglang")],
    Discriminator(_engine_kind),
]


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


class Dataset(Settings):
    """One source of prompts and how to generate on it."""

    name: str = Field(description="Becomes the partition key: letters, digits, `_`, `.` and `-`.")
    source: str = Field(description="JSONL file with OpenAI-style rows; relative to the config file.")
    format: Literal["openai"] = Field("openai", description="Rows {id?, messages, tools?}.")
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

    @field_validator("name")
    @classmethod
    def _slug(cls, value: str) -> str:
        if not SLUG.fullmatch(value):
            raise ValueError(
                "only letters, digits, `_`, `.` and single `-` between them: it names files and partitions"
            )
        if value.endswith(TRIAL_SUFFIX) or SHARD_LIKE.fullmatch(value):
            raise ValueError("must not end like a shard (-00of16) or a trial (-trial): those names are derived")
        return value


class Storage(Settings):
    """Where everything that is made lies."""

    root: str | None = Field(None, description="Directory or object-store URL; relative to the config file.")


class Eagle3Config(Settings):
    """The whole of ``eagle3.yaml``."""

    target: Target
    engine: EngineSettings = Field(default_factory=TransformersEngineSettings)
    storage: Storage = Field(default_factory=Storage)
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


def config_path() -> Path:
    """The config file: ``$EAGLE3_CONFIG``, or the packaged demo's."""
    named = os.environ.get(CONFIG_VARIABLE)
    return Path(named) if named else Path(str(files("eagle3_assets.demo") / "eagle3.yaml"))


def load_config(path: Path | None = None) -> Eagle3Config:
    """Reads and checks a config; relative paths in it come back absolute.

    Args:
        path: the file; without one, the one that :func:`config_path` finds.

    Raises:
        ConfigError: unreadable, not YAML, or a key is wrong; one line for each fault with the key's path.
    """
    path = path or config_path()
    try:
        raw = yaml.load(path.read_text(encoding="utf-8-sig"), Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror} (set {CONFIG_VARIABLE} to your config)") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {_one_line(str(error))}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply") from None
    except ValueError as error:  # such as a date that is none, or a number of thousands of digits
        raise ConfigError(f"{path}: holds a value that cannot be read: {_one_line(str(error))}") from None
    if _refers_to_itself(raw):
        raise ConfigError(f"{path}: an anchor (&name) is used inside of what it names (*name)")
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping with the keys target and datasets, not {type(raw).__name__}")
    try:
        config = Eagle3Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in _faults(error))) from None
    faults = [*_unknown_names(config), *_unreachable_places(config)]
    if faults:
        raise ConfigError("\n".join(f"{path}: {line}" for line in faults))
    return _resolved(config, path.resolve().parent)


def _refers_to_itself(raw: object) -> bool:
    try:
        json.dumps(raw, default=str, skipkeys=True)
    except ValueError:
        return True
    return False


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a key stands once: of two, the loader would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        doubled = next((key for i, key in enumerate(keys) if key in keys[:i] and key != "<<"), None)
        if doubled is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {doubled!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _unknown_names(config: Eagle3Config) -> list[str]:
    """Names of laws and profiles that do not exist."""
    # Laws read settings: importing them above would go in a circle.
    from eagle3_assets.tokens.laws import lowerable_laws
    from eagle3_assets.tokens.profile import check_profile

    lowerable = lowerable_laws()
    faults = [
        f"law_effects.{name}: is no law that can be lowered to warn; those are: {', '.join(lowerable)}"
        for name in config.law_effects
        if name not in lowerable
    ]
    fault = check_profile(config.target.profile, config.target.profile_overrides)
    return [*faults, f"target.profile: {fault}"] if fault else faults


def _unreachable_places(config: Eagle3Config) -> list[str]:
    """Addresses that nothing here can open."""
    target = config.target
    local = {
        "target.model": target.model,
        "target.tokenizer": target.tokenizer,
        "target.chat_template": target.chat_template,
    }
    local |= {f"datasets[{i}].source": dataset.source for i, dataset in enumerate(config.datasets)}
    faults = [f"{key}: must be a local path, not {place}" for key, place in local.items() if place and "://" in place]
    root = os.environ.get(STORAGE_VARIABLE) or config.storage.root
    if root and "://" in root:
        try:
            fsspec.get_filesystem_class(root.split("://", 1)[0])
        except (ImportError, ValueError) as error:
            faults.append(f"storage.root: {root} cannot be used: {error}")
    return faults


def _resolved(config: Eagle3Config, base: Path) -> Eagle3Config:
    def local(text: str) -> str:
        try:
            return text if "://" in text else str((base / Path(text).expanduser()).resolve())
        except (RuntimeError, ValueError) as error:  # a home directory of nobody, a zero byte
            raise ConfigError(f"{text!r} is no path: {error}") from None

    engine = config.engine
    if isinstance(engine, SglangEngineSettings) and engine.ca_file:
        engine = engine.model_copy(update={"ca_file": local(engine.ca_file)})
    target = config.target
    model = str(files("eagle3_assets.demo") / "model") if target.model == "demo" else local(target.model)
    root = os.environ.get(STORAGE_VARIABLE)
    if root:
        root = root if "://" in root else str(Path(root).absolute())
    elif config.storage.root:
        root = local(config.storage.root)
    else:
        root = str(Path.cwd() / ".eagle3" / "data")
    return config.model_copy(
        update={
            "target": target.model_copy(
                update={
                    "model": model,
                    "tokenizer": local(target.tokenizer) if target.tokenizer else None,
                    "chat_template": local(target.chat_template) if target.chat_template else None,
                }
            ),
            "engine": engine,
            "storage": Storage(root=root),
            "datasets": tuple(d.model_copy(update={"source": local(d.source)}) for d in config.datasets),
        }
    )


def _faults(error: ValidationError) -> list[str]:
    faults = error.errors()
    places = [fault["loc"] for fault in faults]
    # A list whose items are all wrong is reported as empty too: the items' own faults say more.
    return [
        f"{_key(place)}{_explained(fault)}"
        for fault, place in zip(faults, places, strict=True)
        if not any(other != place and other[: len(place)] == place for other in places)
    ]


def _key(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in _walk(location)[0]:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".") or "(top level)"


def _explained(fault: Any) -> str:  # noqa: ANN401 - pydantic's error dictionary
    kind, message = fault["type"], str(fault["msg"]).removeprefix("Value error, ")
    if kind == "missing":
        return ": is required"
    if kind == "extra_forbidden":
        owner = _walk(tuple(fault["loc"][:-1]))[1]
        allowed = f"; allowed here: {', '.join(owner.model_fields)}" if owner else ""
        return f": is not a known key{allowed}"
    if kind == "union_tag_invalid":
        return f".kind: must be one of {', '.join(ENGINES)}, not {_shown(fault['ctx']['tag'])}"
    if kind == "union_tag_not_found":
        return f": must be a mapping with the key kind, not {_shown(fault['input'])}"
    return f": {message[:1].lower()}{message[1:]}, not {_shown(fault['input'])}"


def _walk(location: tuple[int | str, ...]) -> tuple[list[int | str], type[BaseModel] | None]:
    """Follows pydantic's location of a fault.

    Returns:
        the keys as they stand in the file (pydantic names the kind of engine among them), and the settings model which
        holds the keys at that place.
    """
    keys: list[int | str] = []
    models: tuple[type[BaseModel], ...] = (Eagle3Config,)
    for part in location:
        if isinstance(part, int):
            keys.append(part)
        elif len(models) > 1 and part in ENGINES:
            models = (ENGINES[part],)
        else:
            keys.append(part)
            field = models[0].model_fields.get(part) if models else None
            models = inner_models(field.annotation) if field else ()
    return keys, models[0] if models else None


def inner_models(annotation: Any) -> tuple[type[BaseModel], ...]:  # noqa: ANN401 - a type form
    """The settings models that a field's type holds, alone, in a tuple or in a union; none where it holds none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(model for arg in getattr(annotation, "__args__", ()) for model in inner_models(arg))


def _shown(value: Any) -> str:  # noqa: ANN401 - raw input
    if isinstance(value, dict | list):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}"
    return quoted(value)


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
