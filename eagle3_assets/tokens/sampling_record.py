"""Reading the sampling parameters that each row records.

What belongs here: one parse for each different record, and what no value can mean. Not here: what the values ought to
be.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from eagle3_assets.config import Sampling
from eagle3_assets.interchange import shown
from eagle3_assets.strict_json import StrictJsonError, parse, whole
from eagle3_assets.tokens.safe_text import visible

_FACTS: dict[str, pl.DataType | type[pl.DataType]] = {
    "record": pl.String,
    "max_new_tokens": pl.Int64,
    "stop_token_ids": pl.List(pl.Int64),
    "ignore_eos": pl.Boolean,
    "fault": pl.String,
}


def read_samplings(records: pl.Series) -> pl.DataFrame:
    """Reads a String column of JSON objects.

    Returns:
        A frame of as many rows: ``max_new_tokens`` (Int64), ``stop_token_ids`` (List of Int64) and ``ignore_eos``
        (Boolean), null where not recorded, and ``fault`` (String: why the record does not say explicitly how was
        sampled; null where it does).
    """
    facts = pl.DataFrame([(r, *_read(r)) for r in records.unique().to_list()], schema=_FACTS, orient="row")
    return (
        pl.DataFrame({"record": records.cast(pl.String)})
        .join(facts, on="record", how="left", nulls_equal=True, maintain_order="left")
        .drop("record")
    )


def _read(record: str | None) -> tuple[int | None, list[int] | None, bool | None, str | None]:
    unread = None, None, None
    if record is None:
        return *unread, "no sampling parameters are recorded"
    try:
        values = parse(record.encode())
    except StrictJsonError as error:
        return *unread, f"the record {error}"
    if not isinstance(values, dict):
        return *unread, "the record is no JSON object"
    values = {name: whole(value) for name, value in values.items()}
    cap = values.get("max_new_tokens")
    cap = cap if _is_count(cap) and cap in range(2**63) else None
    absent = [name for name in Sampling.model_fields if values.get(name) is None]
    faults = [f"not explicit: {', '.join(absent)}"] if absent else []
    faults += [
        f"{name} is {visible(shown(values[name]))}, not {meaning}"
        for name, (meaning, means) in _MEANINGS.items()
        if values.get(name) is not None and not means(values[name])
    ]
    stops = values.get("stop_token_ids")
    stops = [whole(i) for i in stops if _is_count(whole(i)) and i < 2**31] if isinstance(stops, list) else None
    ignores = values.get("ignore_eos")
    return cap, stops, ignores if isinstance(ignores, bool) else None, "; ".join(faults) or None


def _is_number(value: Any) -> bool:  # noqa: ANN401 - a JSON value
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any, least: int = 0) -> bool:  # noqa: ANN401
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_MEANINGS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "max_new_tokens": ("a whole number, 0 or more", _is_count),
    "temperature": ("a number, 0 or more", lambda v: _is_number(v) and v >= 0),
    "top_p": ("a number above 0, at most 1", lambda v: _is_number(v) and 0 < v <= 1),
    "top_k": ("a whole number, -1 or more", lambda v: _is_count(v, -1)),
    "min_p": ("a number from 0 to 1", lambda v: _is_number(v) and 0 <= v <= 1),
    "repetition_penalty": ("a number above 0", lambda v: _is_number(v) and v > 0),
    "stop_token_ids": ("a list of token ids", lambda v: isinstance(v, list) and all(_is_count(whole(i)) for i in v)),
}
"""What any engine can mean by a parameter; what a config of ours may ask for is less."""
