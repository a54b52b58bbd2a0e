"""What an SGLang server says of itself, and whether it may be used.

What belongs here: reading ``/model_info`` and ``/server_info``, the conditions on one server, comparing two. Not here:
asking (``client``).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eagle3_assets.engines.sglang.errors import UnsuitableError

LEAST_VERSION = (0, 5, 5)

# What changes which token comes next, or how exactly it is computed. The server's random seed is not among them: it is
# drawn at each start, and in this engine only a sample's own seed could decide anything.
FLAGS = (
    "version",
    "device",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "load_format",
    "model_impl",
    "json_model_override_args",
    "tp_size",
    "ep_size",
    "pp_size",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "sampling_backend",
    "moe_runner_backend",
    "enable_deterministic_inference",
    "preferred_sampling_params",
    "enable_custom_logit_processor",
    "enable_watermark",
    "lora_paths",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
)
_LOSSY = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")


@dataclass(frozen=True, slots=True)
class Facts:
    """One server's word."""

    model_path: str
    weight_version: str
    tokenizer_path: str | None
    context_length: int | None
    vocab_size: int | None
    max_running_requests: int | None
    reserved_tokens: int
    """Places of the context which speculative decoding keeps for its drafts."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Version and flags."""

    @property
    def weights(self) -> str:
        """The name of the weights; see ``Identity.weights``."""
        return f"path:{self.model_path}@{self.weight_version}"


def read_facts(
    endpoint: str, model_info: Mapping[str, Any], server_info: Mapping[str, Any], models: Mapping[str, Any]
) -> Facts:
    """Brings a server's answers into one form.

    Args:
        endpoint: for messages.
        model_info: of ``/model_info``.
        server_info: of ``/server_info``; without a version where a router answers in its servers' place.
        models: of ``/v1/models``.

    Raises:
        UnsuitableError: the server must not be used.
    """
    path = _text(model_info.get("model_path"))
    if path is None:
        raise UnsuitableError(f"{endpoint}: is no SGLang server: its /model_info names no model_path")
    _require_usable(endpoint, model_info, server_info)
    environment = {name: server_info[name] for name in FLAGS if server_info.get(name) not in (None, False, "", [], {})}
    if model_info.get("preferred_sampling_params"):
        environment["preferred_sampling_params"] = model_info["preferred_sampling_params"]
    if "version" not in server_info:
        environment["version"] = "not told by the router"
        environment["sampling_parameters"] = "not confirmed: a router may drop those that it does not know"
    return Facts(
        model_path=path,
        weight_version=_text(model_info.get("weight_version")) or "unknown",
        tokenizer_path=_text(model_info.get("tokenizer_path")),
        context_length=_count(server_info.get("context_length")) or _count(_first(models).get("max_model_len")),
        vocab_size=_count(server_info.get("vocab_size")) or _count(model_info.get("vocab_size")),
        max_running_requests=_running_requests(server_info),
        reserved_tokens=_reserved_tokens(server_info),
        environment=environment,
    )


def require_alike(first: str, ours: Facts, second: str, theirs: Facts) -> None:
    """Compares what decides tokens on two servers.

    Raises:
        UnsuitableError: they differ; both are named.
    """
    differing = [
        f"{name} is {getattr(ours, name)!r} on {first} and {getattr(theirs, name)!r} on {second}"
        for name in ("model_path", "weight_version", "tokenizer_path", "context_length", "vocab_size")
        if getattr(ours, name) != getattr(theirs, name)
    ]
    if differing:
        raise UnsuitableError("the servers do not serve the same: " + "; ".join(differing))


def _require_usable(endpoint: str, model_info: Mapping[str, Any], server_info: Mapping[str, Any]) -> None:
    if model_info.get("is_generation") is False:
        raise UnsuitableError(f"{endpoint}: serves a model that generates nothing (is_generation is false)")
    version = server_info.get("version")
    if version is None and "model_path" in server_info:
        raise UnsuitableError(f"{endpoint}: does not tell its version; SGLang 0.5.5 or newer is needed")
    if version is not None and _parsed(str(version)) < LEAST_VERSION:
        raise UnsuitableError(
            f"{endpoint}: runs SGLang {version}; 0.5.5 or newer is needed, since older ones put ids of the prompt into "
            "output_ids or return none"
        )
    if server_info.get("allow_auto_truncate"):
        raise UnsuitableError(
            f"{endpoint}: was started with --allow-auto-truncate, which cuts prompts without saying so"
        )
    for name in _LOSSY:
        if isinstance(server_info.get(name), int | float) and server_info[name] < 1.0:
            raise UnsuitableError(
                f"{endpoint}: was started with {name} {server_info[name]}: it emits drafted tokens that are not the "
                "target's own"
            )


def _parsed(version: str) -> tuple[int, ...]:
    """The leading numbers of a version; a build without one is taken for the newest."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    numbers = tuple(int(number or 0) for number in found.groups()) if found else (0, 0, 0)
    return numbers if any(numbers) else (2**31,)


def _running_requests(server_info: Mapping[str, Any]) -> int | None:
    """Over all data-parallel ranks, as far as told."""
    states = server_info.get("internal_states")
    states = [state for state in states if isinstance(state, dict)] if isinstance(states, list) else []
    effective = [_count(state.get("effective_max_running_requests_per_dp")) for state in states]
    return sum(count for count in effective if count) or _count(server_info.get("max_running_requests"))


def _reserved_tokens(server_info: Mapping[str, Any]) -> int:
    """As SGLang itself computes them, or more."""
    if not server_info.get("speculative_algorithm"):
        return 0
    topk, steps, drafts = (
        _count(server_info.get(f"speculative_{name}")) or 0 for name in ("eagle_topk", "num_steps", "num_draft_tokens")
    )
    return max(topk * steps, drafts)


def _first(models: Mapping[str, Any]) -> Mapping[str, Any]:
    data = models.get("data")
    return data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}


def _count(value: Any) -> int | None:  # noqa: ANN401 - a JSON value
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Any) -> str | None:  # noqa: ANN401 - a JSON value
    return value if isinstance(value, str) else None
