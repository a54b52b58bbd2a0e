"""Rows of ``raw_generations``: what is computed for each request and each reply.

What belongs here: seeds, checks before sending, the row of a reply, the row of a failure. Not here: when a request is
sent.

A row here is a dictionary with the columns of ``contract.RAW_GENERATIONS`` but for ``identity`` and ``sampling``, which
are the same in a whole partition (``sealing`` adds them).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eagle3_assets.config import Sampling
from eagle3_assets.contract import RAW_GENERATIONS
from eagle3_assets.engines.base import Description, Generation, Request
from eagle3_assets.identity import Identity, canonical_json, ids_sha256
from eagle3_assets.strict_json import storable
from eagle3_assets.tokens.batch import FAILED, GENERATED, REFUSED
from eagle3_assets.tokens.columns import MAX_ID, MIN_ID

Row = dict[str, Any]

DERIVED = ("identity", "sampling")
COLUMNS = tuple(name for name in RAW_GENERATIONS if name not in DERIVED)
FINISH_TYPES = ("stop", "length")

_STORABLE = (MIN_ID, MAX_ID + 1)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a prompt has no output."""

    kind: str
    """A few fixed words, to count by."""
    detail: str

    @property
    def reason(self) -> str:
        """The text of the row's ``reason``."""
        return f"{self.kind}: {self.detail}"


def seed_for(sampling_seed: int, sample_id: str) -> int:
    """The seed of one sample, 0 to 2**63 - 1: the same for the same sample whatever else is generated with it."""
    return _hashed("seed", str(sampling_seed), sample_id) >> 1


def wants_logprobs(sample_id: str, share: float) -> bool:
    """Whether a sample is among the share (0 to 1) whose log-probabilities are kept; always the same ones."""
    return _hashed("logprobs", sample_id) < share * 2**64


def request_sampling(identity: Identity) -> Sampling:
    """What is sent and recorded: every parameter explicit, the whole stop set of the identity among them."""
    return identity.sampling.model_copy(update={"stop_token_ids": identity.stop_token_ids})


def sampling_record(identity: Identity) -> str:
    """What each row of an identity records as its sampling: canonical JSON."""
    return canonical_json(request_sampling(identity).model_dump(mode="json"))


def request_for(key: str, sample_id: str, prompt_ids: list[int], sampling: Sampling, logprob_share: float) -> Request:
    """One prompt's request, with its own seed."""
    return Request(
        key=key,
        sample_id=sample_id,
        prompt_ids=prompt_ids,
        sampling=sampling,
        seed=seed_for(sampling.seed, sample_id),
        want_logprobs=wants_logprobs(sample_id, logprob_share),
    )


def unsendable(prompt_ids: Sequence[int], description: Description) -> Failure | None:
    """Why a prompt must never reach the engine, or None.

    One id outside the vocabulary takes a whole server down with everything in flight, and an empty prompt is answered
    with garbage. A prompt which leaves room for less than one output token fails; one which leaves less than
    ``max_new_tokens`` is sent, and the engine says by ``finish_length`` which cap it applied.
    """
    if len(prompt_ids) == 0:
        return Failure("empty prompt", "it has no ids")
    bad = _first_outside(prompt_ids, 0, description.vocab_size)
    if bad is not None:
        return Failure(
            "id outside the vocabulary",
            f"prompt_ids[{bad}] is {prompt_ids[bad]}, the target's vocabulary has {description.vocab_size:,}",
        )
    if len(prompt_ids) >= description.context_length:
        return Failure(
            "no room in the context",
            f"the prompt has {len(prompt_ids):,} ids, the target's context holds {description.context_length:,}, "
            "output included",
        )
    return None


def unusable(generation: Generation) -> Failure | None:
    """Why a reply cannot be stored as a generation, or None. Whether it is *right* is for the laws to say."""
    bad = _first_outside(generation.output_ids, *_STORABLE)
    if bad is not None:
        return Failure("unusable reply", f"output_ids[{bad}] is {generation.output_ids[bad]!r}, which is no 32-bit id")
    if generation.finish_type not in FINISH_TYPES:
        return Failure(
            "unusable reply", f"the engine ended it with {generation.finish_type!r}, neither stop nor length"
        )
    for name in ("completion_tokens", "prompt_tokens", "cached_tokens", "finish_length"):
        count = getattr(generation, name)
        if count is not None and not (isinstance(count, int) and 0 <= count <= MAX_ID):
            return Failure("unusable reply", f"its {name} is {count!r}")
    return None


def generated_row(request: Request, generation: Generation, environment: str, attempts: int) -> Row:
    """The row of a usable reply; the hash of its ids is taken here, before anything stores them."""
    matched = generation.matched_stop
    matched = _storable(matched) if isinstance(matched, str) else matched
    logprobs = generation.output_logprobs
    return {
        "sample_id": request.sample_id,
        "status": GENERATED,
        "reason": None,
        "prompt_ids": list(request.prompt_ids),
        "output_ids": list(generation.output_ids),
        "completion_tokens": generation.completion_tokens,
        "finish_type": generation.finish_type,
        "matched_stop": None if matched is None else canonical_json(matched),
        "finish_length": generation.finish_length,
        "server_prompt_tokens": generation.prompt_tokens,
        "cached_tokens": generation.cached_tokens,
        "output_logprobs": None if logprobs is None else [float(value) for value in logprobs],
        "logprob_kind": generation.logprob_kind,
        "text": _storable(generation.text),
        "weight_version": _storable(generation.weight_version),
        "endpoint": _storable(generation.endpoint),
        "latency_s": float(generation.latency_s),
        "attempts": attempts,
        "environment": environment,
        "request_key": request.key,
        "ids_sha256": ids_sha256(request.prompt_ids, generation.output_ids),
    }


def failed_row(
    key: str, sample_id: str, prompt_ids: list[int] | None, failure: Failure, environment: str, attempts: int
) -> Row:
    """The row of a prompt that has no output. ``attempts`` is 0 where it was never sent."""
    return _without_output(FAILED, failure.reason, key, sample_id, prompt_ids, attempts) | {"environment": environment}


def refused_row(key: str, sample_id: str, prompt_ids: list[int] | None, reason: str | None) -> Row:
    """The row of a prompt that was refused before generation; nothing was sent."""
    return _without_output(REFUSED, reason or "no reason recorded", key, sample_id, prompt_ids, 0)


def _without_output(
    status: str, reason: str, key: str, sample_id: str, prompt_ids: list[int] | None, attempts: int
) -> Row:
    row: Row = dict.fromkeys(COLUMNS)
    return row | {
        "sample_id": sample_id,
        "status": status,
        "reason": _storable(reason),
        "prompt_ids": prompt_ids
        if prompt_ids is None or _first_outside(prompt_ids, MIN_ID, MAX_ID + 1) is None
        else None,
        "attempts": attempts,
        "request_key": key,
    }


def _first_outside(ids: Sequence[int], low: int, high: int) -> int | None:
    """Index of the first id that is no integer of ``low <= id < high``, or None."""
    values = np.asarray(ids)
    if values.dtype.kind == "i":
        outside = (values < low) | (values >= high)
        return int(outside.argmax()) if outside.any() else None
    # Nulls, floats, integers beyond 64 bits: numpy makes something else of them, so look at each.
    return next((i for i, token in enumerate(ids) if not isinstance(token, int) or not low <= token < high), None)


def _hashed(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()[:8], "little")


def _storable(text: str | None) -> str | None:
    """Text as it can be stored: only ids must be kept bit by bit."""
    return None if text is None else storable(text)
