"""Reading the sampling parameters that each row records.

What belongs here: one parse for each different record. Not here: what the values ought to be.
"""

import polars as pl

from eagle3_assets.config import Sampling
from eagle3_assets.strict_json import StrictJsonError, parse

_FACTS = {"record": pl.String, "max_new_tokens": pl.Int64, "fault": pl.String}


def read_samplings(records: pl.Series) -> pl.DataFrame:
    """Reads a String column of JSON objects.

    Returns:
        A frame of as many rows: ``max_new_tokens`` (Int64, null where not recorded) and ``fault`` (String: why the
        record does not say explicitly how was sampled; null where it does).
    """
    facts = pl.DataFrame([(r, *_read(r)) for r in records.unique().to_list()], schema=_FACTS, orient="row")
    return (
        pl.DataFrame({"record": records.cast(pl.String)})
        .join(facts, on="record", how="left", nulls_equal=True, maintain_order="left")
        .drop("record")
    )


def _read(record: str | None) -> tuple[int | None, str | None]:
    if record is None:
        return None, "no sampling parameters are recorded"
    try:
        values = parse(record.encode())
    except StrictJsonError as error:
        return None, f"the record {error}"
    if not isinstance(values, dict):
        return None, "the record is no JSON object"
    cap = values.get("max_new_tokens")
    cap = cap if isinstance(cap, int) and not isinstance(cap, bool) and 0 <= cap < 2**63 else None
    absent = [name for name in Sampling.model_fields if values.get(name) is None]
    return cap, f"not explicit: {', '.join(absent)}" if absent else None
