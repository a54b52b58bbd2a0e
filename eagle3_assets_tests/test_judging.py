import json

import polars as pl

from eagle3_assets.contract import PROMPTS
from eagle3_assets.judging import declared_tools


def test_tools_that_prompts_declare() -> None:
    def tools(*names: str) -> str:
        return json.dumps([{"type": "function", "function": {"name": name}} for name in names])

    rows = {"a": tools("add", "sub"), "b": None, "c": tools("add", "sub"), "d": tools("mul")}
    frame = pl.DataFrame({"sample_id": list(rows), "tools": list(rows.values())})
    known = declared_tools(frame.match_to_schema({k: PROMPTS[k] for k in ("sample_id", "tools")}).lazy())
    assert known == {"a": ("add", "sub"), "b": (), "c": ("add", "sub"), "d": ("mul",)}
    assert known["a"] is known["c"]
