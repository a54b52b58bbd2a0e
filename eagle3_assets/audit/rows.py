"""One foreign JSON object as a row of the data contract: a pure mapping, which invents nothing.

What belongs here: the names under which other tools record what the contract has a column for. Not here: reading
files, whether a row is right (``tokens`` has the laws).

Where a reply's own ``meta_info`` and the line beside it both say something, ``meta_info`` counts: it is the engine's
word, the line may have been written by a tool in between. A null is the same as an absent key.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from eagle3_assets import strict_json
from eagle3_assets.config import Sampling
from eagle3_assets.identity import canonical_json
from eagle3_assets.interchange import (
    NAME_KEYS,
    OUTPUT_KEYS,
    PROMPT_KEYS,
    LineFaultError,
    check_number,
    name_of,
    shown,
)
from eagle3_assets.strict_json import EXACT, StrictJsonError, whole
from eagle3_assets.tokens.batch import FAILED, REFUSED, STOPPED
from eagle3_assets.tokens.columns import HUGE_ID
from eagle3_assets.tokens.laws.counts import CONTRADICTION, SERVER_PROMPT_IDS
from eagle3_assets.tokens.laws.records import LOGPROB_IDS

WideIds = pl.List(pl.Int64)
"""Foreign ids are judged as they are, far beyond any vocabulary too; beyond an int64 they are its last one."""

_COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    "sample_id": pl.String,
    "prompt_ids": WideIds,
    "thinking": pl.Boolean,
    "output_ids": WideIds,
    "completion_tokens": pl.Int64,
    "finish_type": pl.String,
    "matched_stop": pl.String,
    "finish_length": pl.Int64,
    "server_prompt_tokens": pl.Int64,
    SERVER_PROMPT_IDS: WideIds,
    "cached_tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,
    CONTRADICTION: pl.String,
    "output_logprobs": pl.List(pl.Float64),
    LOGPROB_IDS: WideIds,
    "text": pl.String,
    "weight_version": pl.String,
    "sampling": pl.String,
    "tools": pl.String,
    "ids_sha256": pl.String,
}
FOREIGN_ROWS = pl.Schema(_COLUMNS)
"""What a line can say, in the contract's names; ids in more bits than the contract's own."""

WITHOUT_OUTPUT = (FAILED, REFUSED)
"""What this pipeline's ``status`` says of a row that has no output; what other tools mean by such a key is theirs."""
DENIED_OUTPUT = "status {}, and an output"
"""What a row says that has both."""

_INT64 = range(-(2**63), 2**63)
"""Ids and counts of a line: what an int64 holds is read, negative or not, and for the laws to judge."""
_SAMPLING_NAMES = {"max_tokens": "max_new_tokens", "max_completion_tokens": "max_new_tokens", "sampling_seed": "seed"}
"""What OpenAI and SGLang call parameters that the contract has another name for."""
_NEUTRAL_SAMPLING = {"stop_token_ids": [], "seed": "the engine's own"}
"""What is said by not giving these two in a request: neither changes the distribution that tokens are drawn from."""

Line = Mapping[str, Any]


def contract_row(line: Line) -> dict[str, Any]:
    """Maps one line.

    Args:
        line: a JSON object.

    Returns:
        A value or None for each column of :data:`FOREIGN_ROWS`.

    Raises:
        LineFaultError: the line does not say which sample and which output ids it holds, or says something that
            cannot be read.
    """
    sample_id = sample_name(line)
    try:
        prompt_ids, output_ids = _ids(line)
        meta = _object("meta_info", line.get("meta_info"))
        usage = _object("usage", line.get("usage"))
        logprobs, logprob_ids = _logprobs(line, meta)
        return {
            "sample_id": sample_id,
            "prompt_ids": prompt_ids,
            "thinking": _typed("thinking", line.get("thinking"), bool, "true or false"),
            "output_ids": output_ids,
            "completion_tokens": _count("completion_tokens", meta, line, usage),
            **_finish(line, meta),
            "server_prompt_tokens": _count("prompt_tokens", meta, line, usage, also="server_prompt_tokens"),
            SERVER_PROMPT_IDS: _server_prompt(line, meta),
            "cached_tokens": _count("cached_tokens", meta, line, _object("usage", usage.get("prompt_tokens_details"))),
            "reasoning_tokens": _count(
                "reasoning_tokens", meta, line, _object("usage", usage.get("completion_tokens_details"))
            ),
            CONTRADICTION: _contradiction(line, meta, usage),
            "output_logprobs": logprobs,
            LOGPROB_IDS: logprob_ids,
            "text": _text("text", line.get("text")),
            "weight_version": _weight_version(line, meta),
            "sampling": _sampling(line),
            "tools": _json_text("tools", line.get("tools")),
            "ids_sha256": None if prompt_ids is None else _text("ids_sha256", line.get("ids_sha256")),
        }
    except LineFaultError as fault:
        fault.sample_id = sample_id
        raise


def sample_name(line: Line) -> str:
    """The sample's name.

    Raises:
        LineFaultError: there is none, or it is no name.
    """
    for key in NAME_KEYS:
        name = whole(line.get(key))
        if name is not None:
            return name_of(key, name)
    raise LineFaultError("has no sample_id (or id)")


def _ids(line: Line) -> tuple[list[int | None] | None, list[int | None]]:
    """Prompt ids, None where they are not there, and output ids."""
    outputs = [key for key in OUTPUT_KEYS if line.get(key) is not None]
    if line.get("loss_mask") is not None:
        if outputs:
            raise LineFaultError(f"has both {outputs[0]} and a loss_mask: which of them tells the output?")
        prompt_ids, output_ids = _trainer_row(line)
        said = next((key for key in PROMPT_KEYS if line.get(key) is not None), None)
        if said is not None and _id_list(said, line[said]) != prompt_ids:
            raise LineFaultError(f"{said} are not the input_ids that the loss_mask leaves out: which are the prompt?")
        return prompt_ids, output_ids
    if not outputs:
        named = next((key for key in OUTPUT_KEYS if key in line), None)
        if named is not None:
            raise LineFaultError.kind(named, None, "a list of token ids")
        raise LineFaultError("has no output_ids (or token_ids, or input_ids with a loss_mask)")
    output = _id_list(outputs[0], line[outputs[0]])
    if len(outputs) > 1 and _id_list(outputs[1], line[outputs[1]]) != output:
        raise LineFaultError(f"{outputs[0]} and {outputs[1]} are not the same")
    prompt_key = next((key for key in PROMPT_KEYS if line.get(key) is not None), None)
    if prompt_key is None:
        return None, output
    return _id_list(prompt_key, line[prompt_key]), output


def _id_list(key: str, value: object) -> list[int | None]:
    """A list of ids for the laws to judge: what is no id at all becomes null, as it would be in a table."""
    if not isinstance(value, list):
        raise LineFaultError.kind(key, value, "a list of token ids")
    # All of it runs in C: a line may hold a hundred thousand ids.
    if not value or (set(map(type, value)) == {int} and min(value) in _INT64 and max(value) in _INT64):
        return value
    ids = map(whole, value)
    return [(v if v in _INT64 else HUGE_ID) if type(v) is int else None for v in ids]  # bool is an int to isinstance


def _server_prompt(line: Line, meta: Line) -> list[int | None] | None:
    """The prompt ids that the engine returned: ``prompt_token_ids``, where other keys say what was sent."""
    named = ((SERVER_PROMPT_IDS, line), ("prompt_token_ids", meta), ("prompt_token_ids", line))
    key, holder = next(((k, h) for k, h in named if h.get(k) is not None), (None, line))
    if key is None or (holder is line and key in PROMPT_KEYS and line.get("prompt_ids") is None):
        return None
    return _id_list(key, holder[key])


def _trainer_row(line: Line) -> tuple[list[int | None], list[int | None]]:
    """A row for a trainer: the prompt is what the mask leaves out, the output what it holds."""
    ids, mask = _id_list("input_ids", line.get("input_ids")), line["loss_mask"]
    if not isinstance(mask, list) or not set(map(type, mask)) <= {int, bool, float} or not set(mask) <= {0, 1}:
        raise LineFaultError("loss_mask is not a list of zeros and ones")
    if len(mask) != len(ids):
        raise LineFaultError(f"loss_mask has {len(mask)} values for {len(ids)} input_ids")
    if 1 not in mask:
        raise LineFaultError("loss_mask is all zero: the row has no output")
    start = mask.index(1)
    if sum(mask) != len(mask) - start:
        where = "ends before the last id" if not mask[-1] else "has a gap"
        raise LineFaultError(f"loss_mask {where}: only one output, at the end of the row, can be judged")
    return ids[:start], ids[start:]


def _finish(line: Line, meta: Line) -> dict[str, Any]:
    """The finish in the contract's three columns: from SGLang's object, OpenAI's word, or columns of those names."""
    reason = _first("finish_reason", meta, line)
    if isinstance(reason, str) and reason.startswith("{"):
        reason = _object("finish_reason", reason)
    parts = reason if isinstance(reason, dict) else {"type": line.get("finish_type") if reason is None else reason}
    kind = parts.get("type")
    if kind is None and isinstance(reason, dict):
        raise LineFaultError("finish_reason has no type")
    matched = whole(parts.get("matched"))
    length = whole(parts.get("length", line.get("finish_length")))
    if length is not None:
        check_number("the finish's length", length, _INT64)
    return {
        "finish_type": _text("the finish type", kind),
        "matched_stop": _recorded_json(whole(line.get("matched_stop"))) if matched is None else _matched(matched),
        "finish_length": length,
    }


def _matched(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str | list):
        raise LineFaultError.kind("what the finish matched", value, "a token id or a text")
    return strict_json.storable(canonical_json(value))


def _recorded_json(value: object) -> str | None:
    """A value of the column ``matched_stop``: JSON text in the contract, in other files the value itself."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            strict_json.parse(value.encode("utf-8", "surrogatepass"))
        except StrictJsonError:
            return _matched(value)
        return value
    return _matched(value)


def _logprobs(line: Line, meta: Line) -> tuple[list[float | None] | None, list[int | None] | None]:
    """Log-probabilities, and the ids that they are of where that is recorded."""
    pairs = _first("output_token_logprobs", meta, line)
    if pairs is None:
        values = line.get("output_logprobs")
        if values is not None and not (isinstance(values, list) and all(map(_is_number, values))):
            raise LineFaultError("output_logprobs is not a list of numbers")
        return values, None
    if not isinstance(pairs, list):
        raise LineFaultError.kind("output_token_logprobs", pairs, "a list of [log-probability, id, text]")
    for index, pair in enumerate(pairs):
        place = f"output_token_logprobs[{index}]"
        if not isinstance(pair, list) or len(pair) not in (2, 3) or not _is_number(pair[0]):
            raise LineFaultError(f"{place} is not [log-probability, id, text]")
    return [pair[0] for pair in pairs], _id_list("output_token_logprobs", [pair[1] for pair in pairs])


def _is_number(value: object) -> bool:
    if value is None or isinstance(value, float):
        return True
    # A whole number of hundreds of digits is one that no float can hold.
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < EXACT


def _weight_version(line: Line, meta: Line) -> str | None:
    """The version of the weights; all of them where they changed within one reply."""
    spans = _first("weight_versions", meta, line)
    if spans is not None:
        if not isinstance(spans, list) or not all(isinstance(s, dict) and s.get("version") is not None for s in spans):
            raise LineFaultError("weight_versions is not a list of spans with a version")
        versions = list(dict.fromkeys(str(whole(span["version"])) for span in spans))
        if len(versions) > 1:
            return strict_json.storable(", ".join(versions))
    version = whole(_first("weight_version", meta, line))
    return None if version is None else strict_json.storable(str(version))


def _sampling(line: Line) -> str | None:
    params = line.get("sampling_params")
    if params is None:
        return _json_text("sampling", line.get("sampling"))
    # Where a cap stands there twice, the contract's own name counts; that the two differ is a contradiction.
    given = sorted(_object("sampling_params", params).items(), key=lambda item: item[0] not in _SAMPLING_NAMES)
    named = {_SAMPLING_NAMES.get(key, key): value for key, value in given if value is not None}
    fields = {key: value for key, value in named.items() if key in Sampling.model_fields or key == "ignore_eos"}
    return _json_text("sampling_params", _NEUTRAL_SAMPLING | fields)


def _count(key: str, *holders: Line, also: str | None = None) -> int | None:
    """A count from the first that has it."""
    value: int | None = whole(_first(key, *holders))
    if value is None and also is not None:
        value = whole(_first(also, *holders))
    if value is not None:
        check_number(key, value, _INT64)
    return value


def _contradiction(line: Line, meta: Line, usage: Line) -> str | None:
    """What the line, its ``meta_info`` and its ``usage`` say differently of one thing; None where they agree.

    The line holds an output.
    """
    holders = (meta, line, usage)
    said = [
        f"{key} {' and '.join(map(shown, values))}"
        for key in ("completion_tokens", "prompt_tokens")
        if len(values := list(dict.fromkeys(n for h in holders if isinstance(n := whole(h.get(key)), int)))) > 1
    ]
    kinds = [_finish_kind(h.get(key)) for h in (meta, line) for key in ("finish_reason", "finish_type")]
    finishes = list(dict.fromkeys("stop" if kind in STOPPED else kind for kind in kinds if isinstance(kind, str)))
    if len(finishes) > 1:
        said.append(f"finish {' and '.join(map(shown, finishes))}")
    params = _object("sampling_params", line.get("sampling_params"))
    caps = [whole(value) for key, value in params.items() if _SAMPLING_NAMES.get(key, key) == "max_new_tokens"]
    caps = [cap for i, cap in enumerate(caps) if cap is not None and cap not in caps[:i]]
    if len(caps) > 1:
        said.append(f"max_new_tokens {' and '.join(map(shown, caps))}")
    if line.get("status") in WITHOUT_OUTPUT:
        said.append(DENIED_OUTPUT.format(line["status"]))
    return strict_json.storable(", ".join(said)) if said else None


def _finish_kind(reason: object) -> object:
    if isinstance(reason, str) and reason.startswith("{"):
        reason = _object("finish_reason", reason)
    return reason.get("type") if isinstance(reason, dict) else reason


def _first(key: str, *holders: Line) -> Any:  # noqa: ANN401 - a JSON value
    return next((holder[key] for holder in holders if holder.get(key) is not None), None)


def _object(key: str, value: object) -> dict[str, Any]:
    """An object, or its JSON text as tables have it; empty where there is none."""
    if value is None:
        return {}
    if isinstance(value, str):
        try:
            value = strict_json.parse(value.encode("utf-8", "surrogatepass"), non_finite=True)
        except StrictJsonError as error:
            raise LineFaultError(f"{key} {error}") from None
    if not isinstance(value, dict):
        raise LineFaultError.kind(key, value, "an object")
    return value


def _json_text(key: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return _text(key, value)
    try:
        return strict_json.storable(canonical_json(value))
    except (TypeError, ValueError):
        raise LineFaultError(f"{key} is no JSON value: {shown(value)}") from None


def _text(key: str, value: object) -> str | None:
    text = _typed(key, value, str, "a string")
    return None if text is None else strict_json.storable(text)


def _typed(key: str, value: object, kind: type, wanted: str) -> Any:  # noqa: ANN401 - of that type, or None
    if value is not None and not isinstance(value, kind):
        raise LineFaultError.kind(key, value, wanted)
    return value
