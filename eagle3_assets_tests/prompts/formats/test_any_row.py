"""Whatever a row holds, reading it gives a dialogue or a reason."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3_assets.prompts.dialogue import RefusedRowError
from eagle3_assets.prompts.formats import FORMAT_NAMES, detect, read
from eagle3_assets.prompts.formats.glaive import CALL, END

WORDS = [
    *("user", "assistant", "system", "tool", "human", "gpt", "function_call", "observation", "function", "object"),
    *("USER: x\n\n\n", f"ASSISTANT: {CALL}", '{"name": "f", "arguments": ', "'{}'}", END, "FUNCTION RESPONSE: "),
    *("<think>", "</think>", "<|begin_of_thought|>", "[", '[{"name": "f"}]', "dict", "List[int]", "text", "7"),
]
KEYS = [
    *("id", "messages", "conversations", "role", "content", "from", "value", "tools", "tool_calls", "function"),
    *(
        "function_call",
        "name",
        "arguments",
        "parameters",
        "properties",
        "type",
        "items",
        "system",
        "chat",
        "instruction",
    ),
    *("metadata", "context", "thought", "tool_call_ids", "chat_template_kwargs"),
    *("input", "history", "prompt", "text", "num_tokens", "images", "reasoning", "function_declarations"),
]
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(WORDS)
leaves |= st.lists(st.sampled_from(WORDS)).map("".join)
keys = st.sampled_from(KEYS) | st.text(max_size=5)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=25
)
turns = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "assistant", "system", "tool"]) | values,
            "from": st.sampled_from(["human", "gpt", "function_call", "observation"]) | values,
            "content": values,
            "value": values,
            "tool_calls": values,
        },
    ),
    max_size=4,
)
rows = values | st.fixed_dictionaries(
    {}, optional={"messages": turns | values, "conversations": turns, "chat": leaves, "system": leaves, "tools": values}
)


@settings(max_examples=50)
@pytest.mark.parametrize("name", FORMAT_NAMES)
@given(row=rows)
def test_any_value_is_read_or_refused_in_words(name: str, row: Any) -> None:
    try:
        found = read(name, row)
    except RefusedRowError as refusal:
        assert str(refusal)
        return
    assert any(message["role"] == "user" for message in found.messages)
    assert json.loads(json.dumps([found.messages, found.tools], allow_nan=False)) == [found.messages, found.tools]


@settings(max_examples=40)
@given(some=st.lists(rows, max_size=5))
def test_any_source_is_told_in_words(some: list[Any]) -> None:
    found = detect(some)
    assert found.format is None or found.format in FORMAT_NAMES
    assert sum(found.counts.values()) + found.unknown == len(some)
    assert found.report()
