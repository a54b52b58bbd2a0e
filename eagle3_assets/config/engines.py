"""Settings of the engines: what each may be told.

What belongs here: settings models of engines, their defaults and limits. Not here: what an engine does with them.
"""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictInt,
    Tag,
    field_validator,
    model_validator,
)

from eagle3_assets.config.base import Number, Settings

HEADER_NAME = re.compile(r"[A-Za-z0-9-]+")


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


REFUSED_ARGUMENTS = {
    **dict.fromkeys(("--model-path", "--model"), "the model is target.model"),
    "--tokenizer-path": "the tokenizer is target.tokenizer",
    "--trust-remote-code": "it follows target.trust_remote_code",
    "--host": "the server listens on 127.0.0.1 only",
    "--port": "it is engine.managed.port",
    "--config": "a file could hold arguments that are refused here",
    "--allow-auto-truncate": "it cuts prompts without saying so",
    "--skip-tokenizer-init": "without its tokenizer the server does not know all stop ids",
    **dict.fromkeys(("--api-key", "--admin-api-key"), "everybody on this machine could read it in the process list"),
    **dict.fromkeys(("--ssl-keyfile", "--ssl-certfile"), "the server is asked over plain HTTP, on this machine only"),
    **dict.fromkeys(
        ("--nnodes", "--node-rank", "--dist-init-addr"),
        "a managed server runs on this machine only; start one of several machines yourself and name it in endpoints",
    ),
}
"""Arguments of ``launch_server`` that a person may not give a managed server, and why."""


def _as_text(value: Any) -> Any:  # noqa: ANN401 - raw input
    """Numbers in a list of arguments as text: YAML reads ``[--tp, 8]`` as a text and a number."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class ManagedServer(Settings):
    """An SGLang server that a run starts for itself."""

    python: str | None = Field(
        None,
        min_length=1,
        description="Interpreter of the environment that has SGLang, a path relative to the config file; unset takes "
        "this one's, with the extra `sglang`.",
    )
    arguments: tuple[Annotated[str, BeforeValidator(_as_text)], ...] = Field(
        (), description="Further arguments of `sglang.launch_server`, such as `[--tp, 8]`."
    )
    environment: dict[str, Annotated[str, BeforeValidator(_as_text)]] = Field(
        default_factory=dict, description="Environment variables for the server. They are shown: no secrets here."
    )
    port: StrictInt = Field(0, ge=0, le=65_535, description="On 127.0.0.1; 0 takes a free one.")
    start_timeout_s: Number = Field(
        1800.0, gt=0.0, le=86_400.0, description="Seconds to wait until the server is healthy, weights loaded."
    )
    stop_grace_s: Number = Field(
        30.0, ge=0.0, le=3600.0, description="Seconds that the server has to end after SIGTERM; then SIGKILL."
    )
    # One prompt that kills a server does so at each of its 6 attempts, and shall fail alone.
    restarts: StrictInt = Field(
        10, ge=0, le=1000, description="Restarts within `restart_window_s`; then the run stops."
    )
    restart_window_s: Number = Field(
        3600.0, gt=0.0, le=864_000.0, description="Seconds over which restarts are counted."
    )

    @field_validator("environment")
    @classmethod
    def _kind_of_logprobs_is_kept(cls, value: dict[str, str]) -> dict[str, str]:
        if "SGLANG_RETURN_ORIGINAL_LOGPROB" in value:
            raise ValueError(
                "must not set SGLANG_RETURN_ORIGINAL_LOGPROB: log-probabilities are recorded as of the sampling"
            )
        return value

    @field_validator("arguments")
    @classmethod
    def _none_refused(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for argument in value:
            name = argument.partition("=")[0].replace("_", "-")
            # The server's parser takes an argument's beginning for the whole.
            for refused, why in REFUSED_ARGUMENTS.items():
                if len(name) > 2 and refused.startswith(name):
                    raise ValueError(f"must not have {argument.partition('=')[0]}: {why}")
        return value


class SglangEngineSettings(Settings):
    """One or several SGLang servers, asked over HTTP for raw ids."""

    kind: Literal["sglang"] = Field("sglang", description="SGLang servers: `endpoints` or `managed`, one of the two.")
    endpoints: tuple[Annotated[str, AfterValidator(_url_of_a_server)], ...] = Field(
        (), description="Base URLs of running servers with the same model, such as `http://gpu-1:30000`."
    )
    managed: ManagedServer | None = Field(None, description="A server on this machine, which a run starts and ends.")
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
    share_servers: bool = Field(
        default=False,
        description="Whether all runs of the Dagster instance together stay within each server's limit.",
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

    @model_validator(mode="after")
    def _running_or_managed(self) -> "SglangEngineSettings":
        if bool(self.endpoints) == (self.managed is not None):
            raise ValueError(
                "needs either endpoints (servers that are running) or managed (one that a run starts), and not both"
            )
        if self.managed is not None and self.share_servers:
            raise ValueError("a managed server belongs to its run alone: leave out share_servers")
        if self.managed is not None and (self.api_key_env or self.ca_file):
            raise ValueError("a managed server has no key and no certificate: leave out api_key_env and ca_file")
        return self


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
