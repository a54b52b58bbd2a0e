"""What is left of a conversation without its texts, and that a template takes it."""

import json
from typing import Any

import polars as pl
import pytest
import transformers  # noqa: TID253 - tests need not load fast

from eagle3_assets.prompts.inert import declared_tools, inert_rows, unrendered
from eagle3_assets.prompts.render import tokenize_rows
from eagle3_assets_tests.conftest import DEMO

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather, now <|im_end|>",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Oslo", "[PAD] town"]}, "<think>": {"type": "number"}},
            "required": ["city"],
        },
    },
}


def inert(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, reasoning_end: str | None = None
) -> tuple[Any, Any]:
    row = {"sample_id": "s", "messages": json.dumps(messages), "tools": json.dumps(tools) if tools else None}
    made = inert_rows(pl.DataFrame([row], schema=dict.fromkeys(row, pl.String)), reasoning_end).row(0, named=True)
    assert made["sample_id"] == "s"
    return json.loads(made["messages"]), json.loads(made["tools"]) if made["tools"] else None


def test_texts_are_replaced_and_what_templates_decide_by_stays() -> None:
    messages, tools = inert(
        [
            {"role": "system", "content": "Be <|im_end|> kind"},
            {"role": "user", "content": "  "},
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "</think>",
                "tool_calls": [
                    {
                        "type": "function",
                        "id": "functions.get_weather:0",
                        "function": {"name": "get_weather", "arguments": {"city": "New [EOS] York", "n": 3}},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "functions.get_weather:0", "name": "get_weather", "content": "12 degrees"},
        ],
        [TOOL],
    )
    assert messages == [
        {"role": "system", "content": "inert_0"},
        {"role": "user", "content": "  "},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "inert",
            "tool_calls": [
                {
                    "type": "function",
                    "id": "xxxxxxxxx.xxxxxxxxxxx:0",
                    "function": {"name": "inert_2_call_0", "arguments": {"city": "inert", "n": 3}},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "xxxxxxxxx.xxxxxxxxxxx:0", "name": "inert", "content": "inert_3"},
    ]
    [tool] = tools
    assert tool["function"]["name"] == "get_weather"
    assert tool["function"]["description"] == "inert"
    properties = tool["function"]["parameters"]["properties"]
    assert properties == {"city": {"type": "string", "enum": ["Oslo", "inert"]}, "inert1": {"type": "number"}}


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ('{"city": "New York"}', '{"city":"inert"}'),
        ('{"city": "New', "inert"),
        ("", ""),
        ('"<|im_end|>"', '"inert"'),
        ({"list": ["a b", 1, None]}, {"list": ["inert", 1, None]}),
    ],
)
def test_arguments_keep_their_form(arguments: object, left: object) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    messages, _ = inert([{"role": "assistant", "tool_calls": [call]}])
    assert messages[0]["tool_calls"][0]["function"]["arguments"] == left


def test_an_id_that_spells_a_token_is_replaced() -> None:
    messages, _ = inert([{"role": "tool", "tool_call_id": "<|im_end|>", "content": "x"}])
    assert messages[0]["tool_call_id"] == "inert0"


def test_ids_are_told_apart_and_keep_their_length() -> None:
    given = [
        *(f"call0000{i}" for i in range(9)),
        "call00000",
        "4",
        "5",
        "call-",
        *(f"call000{i}" for i in range(10, 20)),
    ]
    messages, _ = inert([{"role": "tool", "tool_call_id": one, "content": "x"} for one in given])
    found = [message["tool_call_id"] for message in messages]
    assert found[0] == found[9] == "xxxxxxxx0"
    assert (len(set(found)), len(set(given))) == (22, 22)
    assert [len(one) for one in found[13:]] == [9] * 10
    assert all(set(one) <= set("x-0123456789") for one in found)


def test_names_of_declared_tools() -> None:
    rows = pl.DataFrame({"sample_id": ["a", "b", "c"], "tools": [json.dumps([TOOL]), None, json.dumps([TOOL, TOOL])]})
    assert declared_tools(rows) == {"a": ("get_weather",), "b": (), "c": ("get_weather", "get_weather")}


def test_reasoning_inside_the_content_of_a_turn_stays_reasoning() -> None:
    turns: list[dict[str, Any]] = [
        {"role": "assistant", "content": "<think>so</think>Well."},
        {"role": "assistant", "content": "Well."},
        {"role": "assistant", "content": "</think>", "reasoning_content": ""},
        {"role": "user", "content": "<think>so</think>"},
        {"role": "assistant", "tool_calls": []},
    ]
    made, _ = inert(turns, reasoning_end="</think>")
    assert [turn.get("reasoning_content") for turn in made] == ["inert", None, "", None, None]
    assert made[0]["content"] == "inert_0"
    made, _ = inert(turns)
    assert "reasoning_content" not in made[0]


TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}],
    },
    {"role": "tool", "content": "1"},
    {"role": "assistant", "content": "", "reasoning_content": "so"},
    *({"role": "user", "content": "go on"} for _ in range(7)),
]


CALLED = "inert_2_call_0"


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        (f"inert_0 inert_1 inert_2 {CALLED} inert_3 inert_5 inert_6 inert_7 inert_8 inert_9 inert_10 inert_11", []),
        # The name of its call is enough: some templates have no place for a text beside calls.
        (f"inert_0 inert_1 functions.{CALLED}:0 [inert_3] inert_5inert_6 inert_7 inert_8 inert_9 inert_10inert_11", []),
        (f"{CALLED} inert_3 inert_5 inert_6 inert_7 inert_8 inert_9 inert_10 inert_11", [0, 1]),
        (f"inert_0 inert_1 {CALLED} inert inert_5 inert_6 inert_7 inert_8 inert_9 inert_10", [3, 11]),
        ("", [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]),
    ],
)
def test_messages_that_became_nothing(text: str, lost: list[int]) -> None:
    assert unrendered(json.dumps(inert(TALK)[0]), text) == [f"message {n} ({TALK[n]['role']})" for n in lost]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("inert_0_call_0 inert_0_call_1", []),
        ("inert_0_call_1inert_0_call_0", []),
        ("inert_0 inert_0_call_0", ["the name of a call of message 0 (assistant)"]),
        ("inert_0 xxxx_x", ["the name of a call of message 0 (assistant)"]),
        ("xxxx_x", ["message 0 (assistant)"]),
    ],
)
@pytest.mark.parametrize("content", ["", "I look."])
def test_a_calls_name_that_is_not_there(text: str, lost: list[str], content: str) -> None:
    call = {"type": "function", "id": "call_1", "function": {"name": "f", "arguments": {}}}
    made, _ = inert([{"role": "assistant", "content": content, "tool_calls": [call, call]}])
    assert unrendered(json.dumps(made), text) == lost


# Like Qwen3's: reasoning in the content is taken out of it.
SPLITTING = (
    "{%- for m in messages -%}<|im_user|>{{ m.role }}<|im_middle|>"
    "{%- set ns = namespace(r=m.reasoning_content or '', c=m.content) -%}"
    "{%- if m.role == 'assistant' and '</think>' in ns.c -%}"
    "{%- set ns.r = ns.c.split('</think>')[0] -%}{%- set ns.c = ns.c.split('</think>')[1] -%}{%- endif -%}"
    "{%- if ns.r -%}<think>{{ ns.r.split('<think>')[-1] }}</think>{%- endif -%}{{ ns.c }}<|im_end|>{%- endfor -%}"
)


@pytest.mark.parametrize(("content", "same"), [("<think>so</think>Well.", True), ("Well <|im_end|>", False)])
def test_a_template_that_takes_reasoning_out_of_the_content(content: str, same: bool) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO / "model")
    messages = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}])
    rows = pl.DataFrame(
        [{"sample_id": "s", "messages": messages, "tools": None}], schema_overrides={"tools": pl.String}
    )
    real, twin = (
        tokenize_rows(tokenizer, frame, thinking=True, chat_template=SPLITTING, call_id=None)["prompt_ids"][0]
        for frame in (rows, inert_rows(rows, "</think>"))
    )
    structural = tokenizer.added_tokens_decoder.keys()
    assert ([i for i in real if i in structural] == [i for i in twin if i in structural]) == same
