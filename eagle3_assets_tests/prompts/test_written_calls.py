"""Calls that a source wrote as text are seen, and texts about calls are left alone."""

# ruff: noqa: RUF001 - DeepSeek writes its tokens with a wide bar.

import time
from typing import Any

import pytest

from eagle3_assets.config import Turns
from eagle3_assets.prompts.dialogue import Dialogue, RefusedRowError, StoredPrompt
from eagle3_assets.prompts.turns import turns_to_generate
from eagle3_assets.prompts.written_calls import first_written_call

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CALL = '{"name": "f", "arguments": {"a": 1}}'

CALLS = {
    "<tool_call>": [
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>",
        "<tool_call>\n{'arguments': {'a': 1}, 'name': 'f'}\n</tool_call>",
        f"I look. <tool_call>{CALL}",
        f"<tool_calls>[{CALL}]</tool_calls>",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    ],
    "<functioncall>": [f"<functioncall> {CALL}", '<functioncall> {"name": "f", "arguments": \'{}\'} <|endoftext|>'],
    "<function=...>": ["<function=f>{}</function>", '<function=f>{"a": 1}'],
    "<invoke>": ['<function_calls>\n<invoke name="f">\n</invoke>\n</function_calls>'],
    "<TOOLCALL>": [f"<TOOLCALL>[{CALL}]</TOOLCALL>"],
    "<|tool_call|>": [f"<|tool_call|>[{CALL}]", "<|tool_call_start|>[f(a=1)]<|tool_call_end|>"],
    "[TOOL_CALLS]": [f"[TOOL_CALLS] [{CALL}]", '[TOOL_CALLS]f{"a": 1}'],
    "<|python_tag|>": ['<|python_tag|>brave_search.call(query="x")', "Well. <|python_tag|>{}"],
    "<|tool_call_begin|>": [
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    ],
    "<｜tool▁call▁begin｜>": ["<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>"],
    "<|channel|>commentary": [
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
        " to=functions.f<|channel|>commentary json<|message|>{}",
    ],
    "[name(...)]": ["[f()]", "[f(a=1)]", '[Get Weather(city="Oslo (N)", n=[1, 2]), api.g(x={"y": (1, 2)})]\n'],
    "JSON with a declared tool's name": [
        CALL,
        f"[{CALL}, {CALL}]",
        '{"type": "function", "name": "f", "parameters": {}}',
    ],
}

NO_CALLS = [
    "Hermes puts calls into <tool_call> and </tool_call>.",
    f"It looks like this:\n```\n<tool_call>\n{CALL}\n</tool_call>\n```\nAnd so on.",
    f"Write `<tool_call>{CALL}</tool_call>`.",
    f"```xml\n<functioncall> {CALL}",
    "The token <|python_tag|> begins a call, as do <|tool_calls_section_begin|> and <｜tool▁calls▁begin｜>.",
    "<function> and <invoke> are tags.",
    "[print(x=1) for x in range(3)]",
    "[a](b)",
    "[1, 2, 3]",
    "f(a=1)",
    "[f(1)]",
    '{"name": "Ada", "arguments": {"a": 1}}',
    '{"name": "f"}',
    "[]",
    "{}",
    "{not JSON",
    "",
]


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


@pytest.mark.parametrize(("markup", "text"), [(markup, text) for markup, texts in CALLS.items() for text in texts])
def test_a_call_as_text_is_named_by_its_markup(markup: str, text: str) -> None:
    history = [said("user", "q"), said("assistant", text), said("user", "and?")]
    assert first_written_call(history, ["f"]) == f"message 2 has a tool call written as text, {markup}"
    # Whoever asks may write the same.
    assert first_written_call([said("user", text), said("assistant", "a"), said("user", text)], ["f"]) is None
    assert first_written_call([said("system", text), said("tool", text)], ["f"]) is None


@pytest.mark.parametrize("text", NO_CALLS)
def test_a_text_about_calls_is_none(text: str) -> None:
    assert first_written_call([said("user", "q"), said("assistant", text), said("user", "and?")], ["f"]) is None


def test_a_result_as_the_users_text() -> None:
    result = "<tool_response>\n{}\n</tool_response>"
    history = [said("user", "q"), said("assistant", ""), said("user", result)]
    assert first_written_call(history) == "message 3 is the user's and a tool's result written as text, <tool_response>"
    assert first_written_call([said("user", result)]) is None
    assert first_written_call([*history[:2], said("user", f"What is {result}?")]) is None


@pytest.mark.parametrize("turns", ["last", "all"])
def test_a_row_is_refused_where_a_history_has_one(turns: Turns) -> None:
    messages = [said("user", "q"), said("assistant", CALL), said("user", "and?"), said("assistant", "a")]
    with pytest.raises(RefusedRowError, match=r"message 2 .*: give calls as `tool_calls` and results as"):
        turns_to_generate(Dialogue(None, messages, [TOOL]), turns)
    assert turns_to_generate(Dialogue(None, messages, None), turns)[-1] == 3
    with pytest.raises(RefusedRowError, match="message 2"):
        turns_to_generate(Dialogue("x", messages[:3], [TOOL], stored=StoredPrompt(3, 0)), turns)


def test_the_answer_itself_is_no_part_of_a_history() -> None:
    messages = [said("user", "q"), said("assistant", f"<tool_call>{CALL}</tool_call>"), said("user", "and?")]
    assert turns_to_generate(Dialogue(None, messages[:2], [TOOL]), "last") == [1]
    assert turns_to_generate(Dialogue(None, messages, [TOOL]), "first") == [1]


@pytest.mark.parametrize(
    "text", ["[f(a=" + "'" * 40_001, "[f(a=" + "(x)" * 40_000, "[" + "f(), " * 40_000, "`<" * 40_000]
)
def test_a_long_turn_does_not_take_long(text: str) -> None:
    begun = time.process_time()
    assert first_written_call([said("assistant", text)]) is None
    assert time.process_time() - begun < 30
