"""The shipped tokenizer: structural tokens, round trips, and what the chat template renders."""

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3_assets.demo.tokenizer import MARKUP, STRUCTURAL, VOCAB_SIZE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

USER = {"role": "user", "content": "What time is it in Oslo?"}
TOOL = {
    "type": "function",
    "function": {"name": "get_time", "description": "d", "parameters": {"type": "object", "properties": {}}},
}
CALL = {
    "id": "functions.get_time:0",
    "type": "function",
    "function": {"name": "get_time", "arguments": '{"city": "Oslo"}'},
}


def test_structural_tokens_are_one_id_each_at_the_end(tokenizer: "PreTrainedTokenizerBase") -> None:
    ids = [tokenizer.encode(name) for name in STRUCTURAL]
    assert ids == [[index] for index in range(VOCAB_SIZE - len(STRUCTURAL), VOCAB_SIZE)]
    assert [tokenizer.decode(one) for one in ids] == list(STRUCTURAL)
    assert len(tokenizer) == VOCAB_SIZE


def test_structural_tokens_are_found_inside_text(tokenizer: "PreTrainedTokenizerBase") -> None:
    text = "a<think> b</think>c [PAD]<|im_end|>\n"
    ids = tokenizer.encode(text)
    assert [name for name in STRUCTURAL if tokenizer.convert_tokens_to_ids(name) in ids] == [
        "<|im_end|>",
        "<think>",
        "</think>",
        "[PAD]",
    ]
    assert tokenizer.decode(ids) == text


def test_skipping_special_tokens_keeps_reasoning_and_tool_markup(tokenizer: "PreTrainedTokenizerBase") -> None:
    vocabulary = tokenizer.get_vocab()
    ids = [vocabulary[name] for name in STRUCTURAL]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "".join(MARKUP)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_survives_the_round_trip(tokenizer: "PreTrainedTokenizerBase", text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*STRUCTURAL, " ", "Berlin", ' "a": 1.', "é你\n"])))
def test_text_between_structural_tokens_survives_too(tokenizer: "PreTrainedTokenizerBase", parts: list[str]) -> None:
    text = "".join(parts)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def render(
    tokenizer: "PreTrainedTokenizerBase", messages: list[dict[str, Any]], options: dict[str, Any] | None = None
) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, **(options or {})))


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "assistant", "content": "Hi"}, "reasoning_content"),
        ({"role": "assistant", "content": "Hi"}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [CALL]}, "content"),
        ({"role": "user"}, "content"),
        ({"role": "tool", "content": "3"}, "tool_call_id"),
    ],
)
def test_null_field_renders_as_absent(
    tokenizer: "PreTrainedTokenizerBase", message: dict[str, Any], field: str
) -> None:
    asked = {"role": "assistant", "tool_calls": [CALL]}
    absent = render(tokenizer, [USER, asked, message])
    assert render(tokenizer, [USER, asked, message | {field: None}]) == absent
    assert "None" not in absent


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools_renders_as_absent(tokenizer: "PreTrainedTokenizerBase", tools: list[Any] | None) -> None:
    assert render(tokenizer, [USER], {"tools": tools}) == render(tokenizer, [USER])


@pytest.mark.parametrize("options", [{}, {"thinking": True}, {"thinking": None}])
def test_suffix_opens_reasoning(tokenizer: "PreTrainedTokenizerBase", options: dict[str, Any]) -> None:
    text = render(tokenizer, [USER], {"add_generation_prompt": True, **options})
    assert text.endswith("<|im_end|><|im_assistant|>assistant<|im_middle|><think>")


def test_suffix_closes_reasoning_when_it_is_off(tokenizer: "PreTrainedTokenizerBase") -> None:
    text = render(tokenizer, [USER], {"add_generation_prompt": True, "thinking": False})
    assert text.endswith("<|im_end|><|im_assistant|>assistant<|im_middle|><think></think>")


def test_a_whole_conversation(tokenizer: "PreTrainedTokenizerBase") -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        USER,
        {"role": "assistant", "content": None, "reasoning_content": "A call.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": CALL["id"], "content": "12:00"},
        {"role": "assistant", "content": "Noon."},
    ]
    assert render(tokenizer, messages, {"tools": [TOOL]}) == (
        '<|im_system|>tool_declare<|im_middle|>[{"type":"function","function":{"name":"get_time","description":"d",'
        '"parameters":{"type":"object","properties":{}}}}]<|im_end|>'
        "<|im_system|>system<|im_middle|>Be kind.<|im_end|>"
        "<|im_user|>user<|im_middle|>What time is it in Oslo?<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think>A call.</think><|tool_calls_section_begin|><|tool_call_begin|>"
        'functions.get_time:0<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|>'
        "<|tool_calls_section_end|><|im_end|>"
        "<|im_system|>tool<|im_middle|>## Return of functions.get_time:0\n12:00<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think></think>Noon.<|im_end|>"
    )


def test_arguments_may_be_a_mapping_and_ids_may_be_missing(tokenizer: "PreTrainedTokenizerBase") -> None:
    bare = {"function": {"name": "get_time", "arguments": {"city": "Oslo"}}}
    result = {"role": "tool", "content": "12:00"}
    given_ids = render(
        tokenizer, [USER, {"role": "assistant", "tool_calls": [CALL]}, result | {"tool_call_id": CALL["id"]}]
    )
    assert render(tokenizer, [USER, {"role": "assistant", "tool_calls": [bare]}, result]) == given_ids


def test_text_parts_are_joined(tokenizer: "PreTrainedTokenizerBase") -> None:
    parts = [{"type": "text", "text": "What time "}, {"type": "text", "text": "is it in Oslo?"}]
    assert render(tokenizer, [{"role": "user", "content": parts}]) == render(tokenizer, [USER])


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"role": "critic", "content": "x"}, "Unknown role critic"),
        ({"role": "user", "content": [{"type": "image"}]}, "Only text parts"),
        ({"role": "user", "content": 5}, "a string, a list of text parts or null"),
    ],
)
def test_what_the_template_cannot_render_is_refused(
    tokenizer: "PreTrainedTokenizerBase", message: dict[str, Any], complaint: str
) -> None:
    from jinja2.exceptions import TemplateError

    with pytest.raises(TemplateError, match=complaint):
        render(tokenizer, [message])
