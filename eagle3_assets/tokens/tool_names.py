"""Reading the tools that each row declares beside its ids.

What belongs here: one parse for each different list, whoever wrote it. Not here: whether outputs call these tools.
"""

from typing import Any

import polars as pl

from eagle3_assets.strict_json import StrictJsonError, parse
from eagle3_assets.tokens.safe_text import visible

_FACTS = pl.Schema({"record": pl.String(), "names": pl.List(pl.String), "fault": pl.String()})


def read_tool_names(records: pl.Series) -> pl.DataFrame:
    """Reads a String column of JSON lists of tools, in OpenAI's shape or with each tool's name on top.

    Returns:
        A frame of as many rows: ``names`` (List(String), null where the row does not say) and ``fault`` (String: why
        what it says names no tools; null where it does). A list or object without any tool is an answer: no name.
    """
    facts = pl.DataFrame([(r, *_read(r)) for r in records.unique().to_list()], schema=_FACTS, orient="row")
    return (
        pl.DataFrame({"record": records.cast(pl.String)})
        .join(facts, on="record", how="left", nulls_equal=True, maintain_order="left")
        .drop("record")
    )


def _read(record: str | None) -> tuple[list[str] | None, str | None]:
    if record is None or not record.strip():
        return None, None
    try:
        tools = parse(record.encode("utf-8", "surrogatepass"))
    except StrictJsonError as error:
        return None, visible(str(error))
    if tools is None:
        return None, None
    if tools == {}:
        return [], None
    if not isinstance(tools, list):
        return None, "is no list"
    names = [_name(tool) for tool in tools]
    if None in names:
        return None, f"tool {names.index(None) + 1} of {len(tools)} has no name"
    return [name for name in names if name is not None], None


def _name(tool: Any) -> str | None:  # noqa: ANN401 - any JSON value
    if not isinstance(tool, dict):
        return None
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else tool.get("name")
    return name if isinstance(name, str) and name else None
