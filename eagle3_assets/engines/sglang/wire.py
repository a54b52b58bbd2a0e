"""SGLang's raw ``/generate``: the body of a request, the meaning of a reply.

What belongs here: the wire format and its strict reading. Not here: sending, and whether the ids are right: an echoed
prompt, a wrong count or a repeated reply pass as they are, since the laws judge them.
"""

import os
from http import HTTPStatus
from typing import Any

import msgspec

from eagle3_assets.config import Sampling
from eagle3_assets.contract import WEIGHT_VERSION_SEPARATOR
from eagle3_assets.engines.base import Generation, Request, RequestRefusedError, Scores, TransientEngineError

RETRIED_CLIENT_ERRORS = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
)
"""The 4xx that say nothing about the request itself."""

_LONGEST_QUOTE = 300


class _Finish(msgspec.Struct):
    type: str
    matched: int | str | list[int] | None = None
    length: int | None = None
    message: str | None = None
    status_code: int | None = None


class _Span(msgspec.Struct):
    version: str


class _Meta(msgspec.Struct):
    finish_reason: _Finish
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    weight_version: str | None = None
    weight_versions: list[_Span] | None = None
    output_token_logprobs: list[tuple[float | None, int, str | None]] | None = None


class _Reply(msgspec.Struct):
    output_ids: list[int]
    meta_info: _Meta
    text: str | None = None


_Place = tuple[float | None, int, str | None]


class _ScoresMeta(msgspec.Struct):
    finish_reason: _Finish
    prompt_tokens: int
    input_token_logprobs: list[_Place]
    input_top_logprobs: list[list[_Place] | None]


class _ScoresReply(msgspec.Struct):
    meta_info: _ScoresMeta


_REPLY = msgspec.json.Decoder(_Reply)
_SCORES_REPLY = msgspec.json.Decoder(_ScoresReply)


def request_body(request: Request, max_new_tokens: int) -> bytes:
    """The JSON body: every parameter explicit, since a server's defaults are not ours (its cap would be 128 tokens).

    Args:
        request: the prompt and its sampling.
        max_new_tokens: the cap to send, where it is not the sampling's own.
    """
    return msgspec.json.encode(
        {
            # A server refuses an id that it is still working on, so each sending has its own.
            "rid": f"{request.key}-{os.urandom(4).hex()}",
            "input_ids": request.prompt_ids,
            "stream": False,
            "return_logprob": request.want_logprobs,
            "sampling_params": _sampling_params(request.sampling, request.seed) | {"max_new_tokens": max_new_tokens},
        }
    )


def scores_body(prompt_ids: list[int], output_ids: list[int]) -> bytes:
    """The JSON body which asks how likely an output is, and generates nothing.

    The log-probabilities of a request's input are of the raw distribution on every server, whatever its flags.
    """
    return msgspec.json.encode(
        {
            "rid": f"score-{os.urandom(16).hex()}",
            "input_ids": prompt_ids + output_ids,
            "stream": False,
            "return_logprob": True,
            # The first id to be scored is the one after this place.
            "logprob_start_len": len(prompt_ids) - 1,
            "top_logprobs_num": 1,
            "sampling_params": _sampling_params(Sampling(temperature=0.0), 0) | {"max_new_tokens": 0},
        }
    )


def read_scores(body: bytes, prompt_ids: list[int], output_ids: list[int], endpoint: str) -> Scores:
    """Reads the reply to :func:`scores_body` with status 200.

    Raises:
        TransientEngineError: the reply is malformed, of other ids, or an abort.
        RequestRefusedError: an abort which says that the request is at fault.
    """
    try:
        meta = _SCORES_REPLY.decode(body).meta_info
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TransientEngineError(f"{endpoint}: malformed scores: {error}") from None
    _require_no_abort(meta.finish_reason, endpoint, "while scoring")
    sent = len(prompt_ids) + len(output_ids)
    if meta.prompt_tokens != sent:
        raise TransientEngineError(f"{endpoint}: scored {meta.prompt_tokens:,} ids where {sent:,} were sent")
    # The place before the output comes first, without a value.
    places, tops = meta.input_token_logprobs[1:], meta.input_top_logprobs[1:]
    if [token for _, token, _ in places] != output_ids or len(tops) != len(output_ids):
        raise TransientEngineError(
            f"{endpoint}: the scores are of other ids than the output's "
            f"({len(places):,} and {len(tops):,} of them, the output has {len(output_ids):,})"
        )
    logprobs = [value for value, _, _ in places if value is not None]
    best = [top[0][0] for top in tops if top and top[0][0] is not None]
    if len(logprobs) != len(output_ids) or len(best) != len(output_ids):
        raise TransientEngineError(f"{endpoint}: not every id of the output has a score")
    return Scores(logprobs, best)


def logprob_kind(sampling: Sampling) -> str:
    """``model`` where sampling does not change the distribution that SGLang reports from, else ``sampled``."""
    untouched = sampling.temperature in (0.0, 1.0) and sampling.repetition_penalty == 1.0
    whole = sampling.temperature == 0.0 or (sampling.top_k == -1 and sampling.top_p == 1.0 and sampling.min_p == 0.0)
    return "model" if untouched and whole else "sampled"


def read_reply(body: bytes, request: Request, endpoint: str, latency_s: float, *, want_text: bool) -> Generation:
    """Reads a reply with status 200.

    Args:
        body: as received.
        request: that it answers.
        endpoint: of the server.
        latency_s: from sending to the whole answer.
        want_text: whether to keep the server's text.

    Raises:
        TransientEngineError: the reply is malformed, or an abort.
        RequestRefusedError: an abort which says that the request is at fault.
    """
    try:
        reply = _REPLY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TransientEngineError(f"{endpoint}: malformed reply: {error}") from None
    meta, finish = reply.meta_info, reply.meta_info.finish_reason
    _require_no_abort(finish, endpoint, f"after {len(reply.output_ids):,} tokens")
    logprobs = None
    if request.want_logprobs and meta.output_token_logprobs is not None:
        if [token for _, token, _ in meta.output_token_logprobs] != reply.output_ids:
            raise TransientEngineError(
                f"{endpoint}: the log-probabilities are of other ids than output_ids "
                f"({len(meta.output_token_logprobs):,} and {len(reply.output_ids):,} of them)"
            )
        logprobs = [float("nan") if value is None else value for value, _, _ in meta.output_token_logprobs]
    return Generation(
        output_ids=reply.output_ids,
        completion_tokens=meta.completion_tokens,
        finish_type=finish.type,
        matched_stop=str(finish.matched) if isinstance(finish.matched, list) else finish.matched,
        finish_length=finish.length,
        prompt_tokens=meta.prompt_tokens,
        endpoint=endpoint,
        latency_s=latency_s,
        cached_tokens=meta.cached_tokens,
        output_logprobs=logprobs,
        logprob_kind=None if logprobs is None else logprob_kind(request.sampling),
        text=reply.text if want_text else None,
        weight_version=_weight_version(meta),
    )


def refuses(status: int) -> bool:
    """Whether a status says that this request will never work."""
    return 400 <= status < 500 and status not in RETRIED_CLIENT_ERRORS


def error_text(body: bytes) -> str:
    """What an error's body says, for people: SGLang words it in three shapes, and a proxy in its own."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = None
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    text = value if isinstance(value, str) else body.decode("utf-8", "replace")
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."


def _require_no_abort(finish: _Finish, endpoint: str, when: str) -> None:
    if finish.type != "abort":
        return
    said = f"{endpoint}: aborted {when}: {finish.message or 'no reason given'}"
    if finish.status_code is not None and refuses(finish.status_code):
        raise RequestRefusedError(said)
    raise TransientEngineError(said)


def _sampling_params(sampling: Sampling, seed: int) -> dict[str, Any]:
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "min_new_tokens": 0,
        "n": 1,
        "stop_token_ids": sampling.stop_token_ids,
        "ignore_eos": False,
        "skip_special_tokens": False,
        "no_stop_trim": True,
        "sampling_seed": seed,
    }


def _weight_version(meta: _Meta) -> str | None:
    versions = list(dict.fromkeys(span.version for span in meta.weight_versions or ()))
    return WEIGHT_VERSION_SEPARATOR.join(versions) if len(versions) > 1 else meta.weight_version
