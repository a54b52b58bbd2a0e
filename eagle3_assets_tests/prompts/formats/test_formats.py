"""Every kind's usual rows, and the odd ones: each accepted rightly or refused by name."""

import json
import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from eagle3_assets.contract import PROMPTS
from eagle3_assets.prompts.dialogue import Dialogue, RefusedRowError
from eagle3_assets.prompts.formats import FORMAT_NAMES, LOOKED_AT, detect, read

ROOT = Path(__file__).parent.parent.parent.parent

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
USER = {"role": "user", "content": "Cold in Oslo?"}
CALL = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "-3"}
ANSWER = {"role": "assistant", "content": "Yes."}


def openai(*messages: Any, **row: Any) -> dict[str, Any]:
    return {"messages": list(messages), **row}


def sharegpt(*turns: tuple[str, Any], **row: Any) -> dict[str, Any]:
    return {"conversations": [{"from": role, "value": value} for role, value in turns], **row}


def without_tools(system: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "system", "content": system}, *messages]


GLAIVE = {
    "system": "SYSTEM: You are a helpful assistant with access to the following functions. Use them if required -\n"
    + json.dumps(WEATHER["function"], indent=4)
    + "\n"
    + json.dumps({"name": "now", "description": "The time"}, indent=4)
    + "\n",
    "chat": "USER: Cold in\n\n  Oslo?\n\n\nASSISTANT: Let me see. <functioncall> "
    """{"name": "get_weather", "arguments": '{"city": "Land\\'s End"}'} <|endoftext|>\n\n\n"""
    'FUNCTION RESPONSE: {"degrees": -3}\n\n\nASSISTANT: Yes.\n\n- very <|endoftext|>\n\n\n',
}

UNDECLARED = "the history has tool calls, and no tools are declared"
UNDECLARED_ANSWER = "the answer has tool calls, and no tools are declared"
ACCEPTED: dict[str, tuple[str, Any, list[dict[str, Any]], list[str]]] = {
    "openai": ("openai", openai(USER, CALLING, RESULT, ANSWER, tools=[WEATHER]), [USER, CALLING, RESULT, ANSWER], []),
    "openai, arguments as text, content null": (
        "openai",
        openai(
            USER,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
                ],
            },
            RESULT,
        ),
        [USER, CALLING, RESULT],
        [],
    ),
    "openai, arguments that are no object stay what a model wrote": (
        "openai",
        openai(USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"city": "Os'}}]}),
        [
            USER,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": '{"city": "Os'}}],
            },
        ],
        [],
    ),
    "openai, no arguments": (
        "openai",
        openai(USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}),
        [
            USER,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}],
            },
        ],
        [],
    ),
    "openai, the older function_call and function": (
        "openai",
        openai(
            USER,
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
            },
            {"role": "function", "name": "get_weather", "content": "-3"},
            functions=[WEATHER["function"]],
        ),
        [USER, CALLING, {**RESULT, "name": "get_weather"}],
        [],
    ),
    "openai, parquet: JSON text": (
        "openai",
        {"messages": json.dumps([USER, ANSWER]), "tools": json.dumps([WEATHER])},
        [USER, ANSWER],
        [],
    ),
    "openai, parquet: structs filled with nulls": (
        "openai",
        {
            "messages": [
                {**USER, "tool_calls": None, "name": None, "reasoning_content": None},
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": None,
                    "tool_calls": [
                        {
                            "id": None,
                            "type": "function",
                            "function": {"name": "get_weather", "arguments": {"city": "Oslo"}},
                        }
                    ],
                },
                {**RESULT, "tool_calls": []},
            ],
            "images": [],
            "tools": None,
        },
        [USER, CALLING, RESULT],
        [],
    ),
    "openai, a null in JSON text is the model's own": (
        "openai",
        openai(USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": null}'}}]}),
        [
            USER,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": None}}}],
            },
        ],
        [],
    ),
    "openai, developer, reasoning, text parts, a result as an object": (
        "openai",
        openai(
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Cold "}, {"type": "text", "text": "in Oslo?"}]},
            {**CALLING, "reasoning": "I ask."},
            {"role": "tool", "tool_call_id": "functions.get_weather:0", "content": {"degrees": -3}},
        ),
        [
            {"role": "system", "content": "Be kind."},
            USER,
            {**CALLING, "reasoning_content": "I ask."},
            {"role": "tool", "content": '{"degrees": -3}', "tool_call_id": "functions.get_weather:0"},
        ],
        [],
    ),
    "openai, a prompt as a list of messages, system beside": (
        "openai",
        {"prompt": [USER], "system": "Be kind."},
        without_tools("Be kind.", USER),
        [],
    ),
    "openai, assistant first": ("openai", openai(ANSWER, USER), [ANSWER, USER], []),
    "openai, two user turns": ("openai", openai(USER, USER), [USER, USER], []),
    "openai, a null in arguments that are an object is the writer's own": (
        "openai",
        openai(USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": None}}}]}),
        [
            USER,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": None}}}],
            },
        ],
        [],
    ),
    "openai, notes of a server, and keys that say nothing": (
        "openai",
        openai(
            {**USER, "openai_id": "chatcmpl-1", "system_fingerprint": "fp", "other": {"a": None, "b": [""]}},
            {**ANSWER, "function_call": {"name": None, "arguments": None}, "image": {"bytes": None, "path": None}},
            image={"bytes": None, "path": None},
        ),
        [USER, ANSWER],
        [],
    ),
    "openai, notes about a message": ("openai", openai({**USER, "timestamp": "now", "weight": 1}), [USER], []),
    "openai, reasoning in an earlier turn": (
        "openai",
        openai(USER, {"role": "assistant", "content": "<think>a</think>b"}, USER),
        [USER, {"role": "assistant", "content": "b", "reasoning_content": "a"}, USER],
        [],
    ),
    "openai, reasoning cut off": (
        "openai",
        openai(USER, {"role": "assistant", "content": "a</think>b"}, USER),
        [USER, {"role": "assistant", "content": "a</think>b"}, USER],
        ["message 2: the markup of its reasoning is not whole, all of it stays in the content"],
    ),
    "openai, a system turn without text": (
        "openai",
        openai({"role": "system", "content": " "}, USER, system="Be kind."),
        without_tools("Be kind.", USER),
        [],
    ),
    "openai, one conversation in two fields": (
        "openai",
        openai(USER, ANSWER, conversations=[{"from": "human", "value": "Cold in Oslo?"}, ANSWER], prompt=[USER]),
        [USER, ANSWER],
        [],
    ),
    "sharegpt, reasoning in an earlier turn": (
        "sharegpt",
        sharegpt(("human", "Cold in Oslo?"), ("gpt", "<think>a</think>Yes."), ("human", "Cold in Oslo?")),
        [USER, {**ANSWER, "reasoning_content": "a"}, USER],
        [],
    ),
    "sharegpt, an empty system turn": ("sharegpt", sharegpt(("system", ""), ("human", "Cold in Oslo?")), [USER], []),
    "sharegpt": (
        "sharegpt",
        sharegpt(
            ("human", "Cold in Oslo?"),
            ("function_call", '{"name": "get_weather", "arguments": {"city": "Oslo"}}'),
            ("observation", "-3"),
            ("gpt", "Yes."),
            system="Be kind.",
            tools=json.dumps([WEATHER["function"]]),
        ),
        without_tools("Be kind.", USER, CALLING, RESULT, ANSWER),
        [],
    ),
    "sharegpt, two calls at once": (
        "sharegpt",
        sharegpt(("user", "Cold in Oslo?"), ("function_call", [CALL["function"], CALL["function"]])),
        [USER, {**CALLING, "tool_calls": [CALL, CALL]}],
        [],
    ),
    "sharegpt, role and content": ("sharegpt", {"conversations": [USER, ANSWER]}, [USER, ANSWER], []),
    "glaive": (
        "glaive",
        GLAIVE,
        without_tools(
            "You are a helpful assistant.",
            {"role": "user", "content": "Cold in\n\n  Oslo?"},
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Land's End"}}}
                ],
            },
            {"role": "tool", "content": '{"degrees": -3}'},
            {"role": "assistant", "content": "Yes.\n\n- very"},
        ),
        [],
    ),
    "glaive, no functions, sound JSON": (
        "glaive",
        {
            "system": "SYSTEM: You are a helpful assistant, with no access to external functions.",
            "chat": 'USER: Cold in Oslo?\n\n\nASSISTANT: <functioncall> {"name": "get_weather", "arguments": '
            '{"city": "Oslo"}}\n\n\nFUNCTION RESPONSE: -3',
        },
        without_tools("You are a helpful assistant, with no access to external functions.", USER, CALLING, RESULT),
        [],
    ),
    "mixture-of-thoughts": (
        "mixture-of-thoughts",
        openai(USER, {"role": "assistant", "content": "<think>\nWinter,\n\nso.\n</think>\n\nYes."}, num_tokens=9),
        [USER, {**ANSWER, "reasoning_content": "Winter,\n\nso."}],
        [],
    ),
    "mixture-of-thoughts, reasoning cut off": (
        "mixture-of-thoughts",
        openai(USER, {"role": "assistant", "content": "<think>\nWinter"}, num_tokens=9),
        [USER, {"role": "assistant", "content": "<think>\nWinter"}],
        ["message 2: the markup of its reasoning is not whole, all of it stays in the content"],
    ),
    "mixture-of-thoughts, the words inside": (
        "mixture-of-thoughts",
        openai(USER, {"role": "assistant", "content": "<think>a <think> b</think>Yes."}),
        [USER, {"role": "assistant", "content": "<think>a <think> b</think>Yes."}],
        ["message 2: the markup of its reasoning is not whole, all of it stays in the content"],
    ),
    "openthoughts": (
        "openthoughts",
        sharegpt(
            ("user", "Cold in Oslo?"),
            (
                "assistant",
                "<|begin_of_thought|>\n\nWinter.\n\n<|end_of_thought|>\n\n"
                "<|begin_of_solution|>\n\nYes.\n\n<|end_of_solution|>",
            ),
            system="Think in two sections.",
        ),
        without_tools("Think in two sections.", USER, {**ANSWER, "reasoning_content": "Winter."}),
        [],
    ),
    "openthoughts, a solution without end": (
        "openthoughts",
        sharegpt(("user", "x"), ("assistant", "<|begin_of_thought|>a<|end_of_thought|><|begin_of_solution|>b")),
        [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "<|begin_of_thought|>a<|end_of_thought|><|begin_of_solution|>b"},
        ],
        ["message 2: the markup of its reasoning is not whole, all of it stays in the content"],
    ),
    "alpaca": (
        "alpaca",
        {
            "instruction": "Translate.",
            "input": "Ja.",
            "output": "Yes.",
            "history": [["Hi", "Hello"]],
            "system": "Be kind.",
        },
        without_tools(
            "Be kind.",
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "Translate.\nJa."},
            ANSWER,
        ),
        [],
    ),
    "alpaca, no input": ("alpaca", {"instruction": "Cold in Oslo?", "input": "", "output": ""}, [USER], []),
    "plain, a text": ("plain", "Cold in Oslo?", [USER], []),
    **{
        f"plain, no conversation: {said}": (
            "plain",
            {"prompt": said, "role": "poet"},
            [{"role": "user", "content": said}],
            [],
        )
        for said in ("Human: a being. Why?", "What does ### Response: mean?", "Explain <|im_start|> of ChatML")
    },
    "plain, an object": ("plain", {"question": "Cold in Oslo?", "answer": "Yes."}, [USER], []),
    "prompts": (
        "prompts",
        {
            **dict.fromkeys(PROMPTS),
            "sample_id": "c:1:0",
            "conversation_id": "c",
            "turn": 1,
            "sample_index": 0,
            "messages": json.dumps([USER]),
            "tools": json.dumps([WEATHER]),
        },
        [USER],
        [],
    ),
}


@pytest.mark.parametrize("tools", [None, [], "[]"])
def test_calls_without_tools_are_remarked_on(tools: Any) -> None:
    found = read("openai", openai(USER, CALLING, RESULT, tools=tools))
    assert found.remarks == (UNDECLARED,)
    assert read("openai", openai(USER, CALLING, RESULT, tools=[WEATHER])).remarks == ()


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_row_comes_in_its_normal_form(name: str) -> None:
    kind, row, messages, remarks = ACCEPTED[name]
    found = read(kind, row)
    assert found.messages == messages
    asked = max(i for i, message in enumerate(found.messages) if message["role"] != "assistant")
    calls = [i for i, message in enumerate(found.messages) if "tool_calls" in message and found.tools is None]
    undeclared = [UNDECLARED if calls[0] < asked else UNDECLARED_ANSWER] if calls else []
    assert list(found.remarks) == remarks + undeclared
    assert found.unread == (("role",) if "no conversation" in name else ())


@pytest.mark.parametrize("name", [name for name in ACCEPTED if "null in JSON text" not in name])
def test_the_normal_form_reads_as_itself(name: str) -> None:
    kind, row, *_ = ACCEPTED[name]
    found = read(kind, row)
    again = read("openai", {"messages": found.messages, "tools": found.tools})
    assert (again.messages, again.tools) == (found.messages, found.tools)


def test_every_format_has_rows_here() -> None:
    assert {kind for kind, *_ in ACCEPTED.values()} == set(FORMAT_NAMES)


@pytest.mark.parametrize(
    "name",
    ["openai", "openai, the older function_call and function", "openai, parquet: JSON text", "sharegpt", "prompts"],
)
def test_tools_come_in_openais_shape(name: str) -> None:
    kind, row, *_ = ACCEPTED[name]
    assert read(kind, row).tools == [WEATHER]


def test_glaives_functions_become_tools() -> None:
    now = {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}
    assert read("glaive", GLAIVE).tools == [WEATHER, {"type": "function", "function": now}]


IMAGE = {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "x"}}]}
MARK = "USER: x\n\n\nASSISTANT: "
NEXT = "\n\n\nUSER: y"

NO_MESSAGES: list[dict[str, Any]] = [openai(), {"messages": {}}, {"messages": "[]"}]

EMPTY: list[Any] = ["", "  ", []]

ODD_ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"role": "assistant", "content": None}, "`messages[1].content` is missing"),
    ({**ANSWER, "reasoning": "x", "reasoning_content": "y"}, "are both there and differ"),
    ({**CALLING, "function_call": CALL["function"]}, "both `tool_calls` and `function_call`"),
    ({**CALLING, "tool_calls": "x"}, "`messages[1].tool_calls` is not JSON"),
    ({**CALLING, "tool_calls": {"a": 1}}, "`messages[1].tool_calls` is an object, not a list"),
    ({**CALLING, "tool_calls": [{"function": {}}]}, "must be an object with `function.name`"),
    ({**CALLING, "tool_calls": [{"name": " "}]}, "must be a name"),
    ({**CALLING, "tool_calls": [{"name": "f", "arguments": [1]}]}, "is a list, not an object"),
    ({**CALLING, "tool_calls": [{"type": "custom", "name": "f"}]}, "only calls of functions"),
    ({**CALLING, "tool_calls": [{"name": "f", "arguments": {"x": float("nan")}}]}, "holds nan, which JSON cannot say"),
    (
        {**CALLING, "tool_calls": [{"name": "f", "arguments": {}, "output": "x"}]},
        "`messages[1].tool_calls[0]` has 'output', which is not known and would be lost",
    ),
    ({**CALLING, "tool_calls": [{**CALL, "result": "x"}]}, "has 'result', which is not known"),
    (
        {**CALLING, "tool_calls": [{"function": {"name": "f", "output": "x"}}]},
        "`messages[1].tool_calls[0].function` has 'output'",
    ),
]
"""Messages of the assistant that are refused in a history."""

REFUSED: list[tuple[str, Any, str]] = [
    *((kind, row, "the row is") for kind in FORMAT_NAMES for row in (None, 1, True, [], ["x"])),
    *((kind, {}, "missing") for kind in ("openai", "sharegpt", "mixture-of-thoughts", "openthoughts", "prompts")),
    *((kind, "x", "the row is text") for kind in FORMAT_NAMES if kind != "plain"),
    *(("openai", row, "must be a non-empty list") for row in NO_MESSAGES),
    ("openai", {"messages": "[{]"}, "`messages` is not JSON"),
    ("openai", openai({"role": "system", "content": "x"}), "no user message"),
    ("openai", openai(ANSWER), "no user message"),
    ("openai", openai(USER, RESULT), "message 2 is a tool's result, and no call stands before it"),
    ("openai", openai(USER, CALLING, USER, RESULT), "message 4 is a tool's result"),
    ("openai", openai({"role": "critic", "content": "x"}), "`messages[0].role` is 'critic'; known: system, developer"),
    ("openai", openai({"role": ["user"], "content": "x"}), "`messages[0].role` is ['user']"),
    ("openai", openai("hello"), "`messages[0]` is text, not an object"),
    ("openai", openai({"role": "user"}), "`messages[0].content` is missing"),
    ("openai", openai({"role": "user", "content": 3}), "`messages[0].content` is a number, not text"),
    ("openai", openai(IMAGE), "is a part of type 'image_url'; only text parts are supported"),
    ("openai", openai({**USER, "images": ["x.png"]}), "`messages[0].images` is there: only text is supported"),
    ("openai", openai(USER, videos=["x.mp4"]), "`videos` is there: only text is supported"),
    ("openai", openai({**USER, "refusal": "No."}), "`messages[0]` has 'refusal', which is not known and would be lost"),
    ("openai", openai({**USER, "tool_calls": [CALL]}), "has tool calls, which only the assistant makes"),
    ("openai", openai({**USER, "reasoning": "x"}), "has reasoning, which only the assistant does"),
    ("openai", openai({**USER, "name": ["x"]}), "`messages[0].name` is a list"),
    ("openai", openai(USER, id=1.5), "`id` must be a string or a whole number, not 1.5"),
    ("openai", openai(USER, id=float("nan")), "`id` is NaN, which is not a number"),
    ("openai", openai(USER, trajectory=[ANSWER, USER]), "`messages` and `trajectory` are both there and differ"),
    (
        "sharegpt",
        sharegpt(("human", "x"), trajectory=[USER]),
        "`conversations` and `trajectory` are both there and differ",
    ),
    ("openai", openai(USER, id=" "), "`id` must be printable text"),
    ("openai", openai({"role": "system", "content": "x"}, USER, system="y"), "a system turn that says something else"),
    ("openai", openai(USER, system_prompt=["y"]), "`system_prompt` is a list, not text"),
    (
        "openai",
        openai(USER, tools=[WEATHER], functions=[{"name": "other"}]),
        "`tools` and `functions` are both there and differ",
    ),
    ("openai", openai(USER, tools=[WEATHER], available_tools="[{}]"), "`available_tools[0]` must be"),
    ("openai", openai(USER, chat_template_kwargs={"python_tools": ["def f(): ..."]}), "python_tools` is there"),
    ("openai", openai(USER, chat_template_kwargs={"xml_tools": ["f()"]}), "`chat_template_kwargs.xml_tools[0]` is not"),
    ("openai", openai(USER, chat_template_kwargs=["x"]), "`chat_template_kwargs` is a list, not an object"),
    *(
        ("openai", openai(USER, ANSWER, {"role": "user", "content": said}), "message 3 is the user's and empty")
        for said in EMPTY
    ),
    ("sharegpt", sharegpt(("human", " ")), "message 1 is the user's and empty"),
    ("glaive", {"chat": "USER: \n\n\nASSISTANT: x"}, "message 1 is the user's and empty"),
    ("alpaca", {"instruction": "x", "history": [["", "a"]]}, "message 1 is the user's and empty"),
    ("openai", openai(USER, RESULT), "(calls written into the content as text are not read)"),
    (
        "openai",
        openai({"role": "user", "content": [{"x": 1}]}),
        "`messages[0].content[0]` is an object without `type` and `text`; a list of content has text parts only",
    ),
    (
        "openai",
        openai(USER, CALLING, IMAGE | {"role": "tool"}),
        "`messages[2].content[1]` is a part of type 'image_url'",
    ),
    ("openai", openai(USER, CALLING, {"role": "tool", "content": float("nan")}), "nan, which JSON cannot say"),
    ("openai", openai(USER, CALLING, {**RESULT, "tool_call_ids": ["a", "b"]}), "must be a list of one id"),
    (
        "openai",
        openai({"role": "user", "content": [{"type": "text", "text": "x", "citation": "y"}]}),
        "`messages[0].content[0]` has 'citation', which is not known and would be lost",
    ),
    *(
        (
            kind,
            openai(USER, conversations=[{"from": "human", "value": "x"}]),
            "`conversations` are both there and differ",
        )
        for kind in ("openai", "sharegpt")
    ),
    ("openai", openai(USER, prompt=[ANSWER]), "`prompt` and `messages` are both there and differ"),
    ("plain", {"prompt": "x", "messages": [USER]}, "`messages` is there, and its text is not in the prompt"),
    ("plain", {"text": "Yes.", "role": "assistant", "parent_id": "1"}, "`role` is there: the text is a message of a"),
    ("plain", {"text": "Yes.", "parent_id": "1"}, "`parent_id` is there: the text is a message of a conversation"),
    *(
        ("plain", {"text": said}, "the text is a conversation in markup")
        for said in (
            "### Human: hi### Assistant: ho",
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nho<|im_end|>\n",
            "\n\nHuman: hi\n\nAssistant: ho",
            "Below is an instruction.\n\n### Instruction:\nhi\n\n### Response:\nho",
            "<s>[INST] hi [/INST] ho",
        )
    ),
    ("sharegpt", sharegpt(), "`conversations` must be a non-empty list"),
    ("sharegpt", sharegpt(("alien", "x")), "`conversations[0].from` is 'alien'; known: system, developer, human"),
    ("sharegpt", sharegpt(("system", "x")), "no user message"),
    ("sharegpt", sharegpt(("human", None)), "`conversations[0].value` is missing"),
    ("sharegpt", sharegpt(("human", 7)), "`conversations[0].value` is a number, not text"),
    ("sharegpt", {"conversations": [{"role": "human"}]}, "`conversations[0].content` is missing"),
    ("sharegpt", {"conversations": [{"user": "human", "text": ["x", 7]}]}, "`conversations[0].text[1]` is a number"),
    (
        "sharegpt",
        {"conversations": [{"from": "human", "value": "x", "thought": "y"}]},
        "write it as `reasoning_content` or in `value`",
    ),
    ("sharegpt", sharegpt(("human", "x"), ("observation", "y")), "no call stands before it"),
    (
        "sharegpt",
        sharegpt(("human", "x"), ("function_call", "get_weather(Oslo)"), ("human", "y")),
        "`conversations[1].value` is not JSON",
    ),
    ("sharegpt", sharegpt(("human", "x"), ("function_call", ""), ("human", "y")), "there is no call in it"),
    (
        "sharegpt",
        sharegpt(("human", "x"), ("function_call", "{}"), ("human", "y")),
        "`conversations[1].value` must be an object with `function.name`",
    ),
    (
        "sharegpt",
        sharegpt(("human", "x"), ("function_call", '[{"name": "f"}, {}]'), ("human", "y")),
        "`conversations[1].value[1]` must be an object with `function.name`",
    ),
    ("sharegpt", sharegpt(("human", "<image>x"), image="x.png"), "`image` is there: only text is supported"),
    ("sharegpt", {"conversations": [{"from": "human", "value": "x", "content": "y"}]}, "both there and differ"),
    ("sharegpt", {"conversations": [{"from": "human", "value": "x", "quote": "y"}]}, "has 'quote', which is not known"),
    ("glaive", {"system": "", "chat": ""}, "`chat` does not begin with USER:"),
    ("glaive", {"system": "", "chat": "Hello USER: x"}, "`chat` does not begin with USER:"),
    ("glaive", {"system": "", "chat": "ASSISTANT: x"}, "no user message"),
    ("glaive", {"system": "", "chat": "USER: x\nASSISTANT: y"}, "turn 1 of `chat` is followed by a role's name"),
    ("glaive", {"system": "", "chat": MARK + "a <|endoftext|> b" + NEXT}, "turn 2 of `chat` has <|endoftext|> inside"),
    (
        "glaive",
        {"system": "", "chat": MARK + "<functioncall> get_weather()" + NEXT},
        "turn 2 of `chat`: `call` is not JSON",
    ),
    ("glaive", {"system": "", "chat": MARK + "<functioncall> {}" + NEXT}, "must be an object with `function.name`"),
    (
        "glaive",
        {"system": "", "chat": MARK + """<functioncall> {"name": "f", "arguments": '{"a": True}'}""" + NEXT},
        "the arguments of its call are no JSON object: '{\"a\": True}'",
    ),
    ("glaive", {"system": "SYSTEM: Use -\n{'name': 'f'}", "chat": "USER: x"}, "lists a function that is no JSON"),
    ("glaive", {"system": "SYSTEM: Use -\n{}", "chat": "USER: x"}, "`tools[0]` must be"),
    ("mixture-of-thoughts", openai(num_tokens=1), "must be a non-empty list"),
    ("openthoughts", sharegpt(("gpt", "<think>a</think>b")), "no user message"),
    ("alpaca", {"instruction": "", "input": " "}, "`instruction` and `input` are empty"),
    ("alpaca", {"instruction": None}, "`instruction` is missing, not text"),
    ("alpaca", {"instruction": "x", "input": 3}, "`input` is a number, not text"),
    ("alpaca", {"instruction": "x", "history": [["a"]]}, "`history[0]` is no pair of texts"),
    ("alpaca", {"instruction": "x", "history": "a"}, "`history` is not JSON"),
    ("plain", " \n", "the prompt is empty"),
    ("plain", {"headline": "x"}, "no prompt: one of `prompt`, `text`"),
    ("plain", {"prompt": "x", "text": "y"}, "`prompt` and `text` are both there and differ"),
    ("plain", {"prompt": ["x"]}, "`prompt` is a list, not text"),
    ("plain", {"question": "x", "choices": ["a", "b"]}, "`choices` is there, and its text is not in the prompt"),
    ("plain", {"prompt": "x", "audio": {"bytes": "x"}}, "`audio` is there: only text is supported"),
]


@pytest.mark.parametrize(("kind", "row", "reason"), REFUSED)
def test_an_odd_row_is_refused_by_name(kind: str, row: Any, reason: str) -> None:
    with pytest.raises(RefusedRowError) as refusal:
        read(kind, row)
    assert reason in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(("message", "reason"), ODD_ANSWERS)
def test_an_odd_message_of_the_assistants_is_refused_unless_it_is_the_answer(message: Any, reason: str) -> None:
    with pytest.raises(RefusedRowError, match=re.escape(reason)):
        read("openai", openai(USER, message, USER))
    assert read("openai", openai(USER, ANSWER, USER, message)).messages[:3] == [USER, ANSWER, USER]


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("sharegpt", sharegpt(("human", "Cold in Oslo?"), ("gpt", None))),
        ("sharegpt", sharegpt(("human", "Cold in Oslo?"), ("gpt", 3), ("function_call", "get_weather(Oslo)"))),
        ("alpaca", {"instruction": "Cold in Oslo?", "output": ["Yes.", "No."]}),
        ("alpaca", {"instruction": "Cold in Oslo?", "output": "Yes.", "response": "No."}),
        ("glaive", {"chat": "USER: Cold in Oslo?\n\n\nASSISTANT: <functioncall> get_weather(Oslo)"}),
        ("openai", openai(USER, IMAGE | {"role": "assistant"})),
    ],
)
def test_the_answer_may_be_anything(kind: str, row: dict[str, Any]) -> None:
    assert read(kind, row).messages[0] == USER


@pytest.mark.parametrize(
    ("content", "text"),
    [(-3, "-3"), (0.5, "0.5"), (True, "true"), ([1, {"a": None}], '[1, {"a": null}]'), (["é"], '["é"]'), ([], "")],
)
def test_a_result_that_is_no_text_becomes_json(content: Any, text: str) -> None:
    row = openai(USER, CALLING, {"role": "tool", "content": content})
    assert read("openai", row).messages[2] == {"role": "tool", "content": text}


POSTS = [{"id": 5, "text": "Cold here", "likes": 3}, {"text": "Snow"}]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (POSTS, json.dumps(POSTS)),
        (POSTS[1:], "Snow"),
        ([{"type": None, "text": "-3"}, {"text": "C"}], "-3C"),
        ([{"type": "text", "text": "-3", "id": "a"}, {"text": "C"}], "-3C"),
    ],
)
def test_a_list_of_objects_with_texts_is_one_of_parts_only_where_nothing_is_lost(content: Any, text: str) -> None:
    row = openai(USER, CALLING, {"role": "tool", "content": content})
    assert read("openai", row).messages[2]["content"] == text


@pytest.mark.parametrize("beside", ["", None, "I ask.", "\nI ask.\n"])
def test_reasoning_in_the_content_is_found_where_none_or_the_same_stands_beside_it(beside: str | None) -> None:
    turn = {"role": "assistant", "content": "<think>\nI ask.\n</think>\n\nYes.", "reasoning_content": beside}
    found = read("openai", openai(USER, turn, USER))
    assert found.messages[1] == {"role": "assistant", "content": "Yes.", "reasoning_content": "I ask."}
    assert found.remarks == ()


def test_other_reasoning_beside_that_in_the_content_is_remarked_on() -> None:
    turn = {"role": "assistant", "content": "<think>I ask.</think>Yes.", "reasoning_content": "I know."}
    found = read("openai", openai(USER, turn, USER))
    assert found.messages[1] == turn
    assert found.remarks == ("message 2: it has reasoning of its own, that in its content stays there",)


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("openai", openai(USER, {**ANSWER, "reasoning_content": "", "reasoning": "I ask."}, USER)),
        ("sharegpt", {"conversations": [], "conversation": [USER, {**ANSWER, "thinking": "I ask.", "text": ""}, USER]}),
    ],
)
def test_of_two_spellings_an_empty_one_says_nothing(kind: str, row: dict[str, Any]) -> None:
    assert read(kind, row).messages == [USER, {**ANSWER, "reasoning_content": "I ask."}, USER]


def test_a_stored_prompt_whose_sample_id_would_change_is_refused() -> None:
    stored = {**dict.fromkeys(PROMPTS, 0), "tools": None, "conversation_id": "a", "messages": [USER]}
    assert read("prompts", {**stored, "sample_id": "a:0:0"}).source_id == "a"
    with pytest.raises(RefusedRowError, match="`sample_id` is 'mine', and by the row's other columns 'a:0:0'"):
        read("prompts", {**stored, "sample_id": "mine"})


@pytest.mark.parametrize("given", [True, ["a"], {"a": 1}, 1.5])
def test_an_id_of_a_call_is_text_or_a_whole_number(given: Any) -> None:
    called = {"id": given, "function": {"name": "f", "arguments": {}}}
    with pytest.raises(RefusedRowError, match=r"`messages\[1\].tool_calls\[0\].id` is .*, not text"):
        read("openai", openai(USER, {"role": "assistant", "tool_calls": [called]}, USER))
    kept = read("openai", openai(USER, {"role": "assistant", "tool_calls": [{**called, "id": 7}]}, USER))
    assert kept.messages[1]["tool_calls"][0]["id"] == "7"


def one_message(kind: str, text: str) -> tuple[Any, Dialogue]:
    row: Any = {
        "openai": openai({"role": "user", "content": text}, id=7),
        "sharegpt": sharegpt(("human", text), id=7),
        "glaive": {"id": 7, "chat": f"USER: {text}\n\n\nASSISTANT: y <|endoftext|>"},
        "mixture-of-thoughts": openai({"role": "user", "content": text}, id=7, num_tokens=1),
        "openthoughts": sharegpt(("human", text), ("gpt", "<think>a</think>b"), id=7),
        "alpaca": {"id": 7, "instruction": text},
        "plain": {"id": 7, "prompt": text},
        "prompts": {
            **dict.fromkeys(PROMPTS, 0),
            "tools": None,
            "conversation_id": 7,
            "messages": [{"role": "user", "content": text}],
        },
    }[kind]
    return row, read(kind, row)


@pytest.mark.parametrize("kind", FORMAT_NAMES)
@pytest.mark.parametrize("text", ["x\r\n\ty \u200d\U0001f600", "A\n" * 500_000 + "z"], ids=["odd characters", "1 MB"])
def test_a_text_is_kept_to_the_letter_and_an_id_may_be_a_number(kind: str, text: str) -> None:
    row, found = one_message(kind, text)
    assert found.messages[0] == {"role": "user", "content": text}
    assert found.source_id == "7"
    assert detect([row]).format == kind


def test_a_deeply_nested_schema_is_taken_or_refused() -> None:
    parameters: Any = {"type": "dict", "properties": {"leaf": {"type": "float"}}}
    for _ in range(60):
        parameters = {"type": "dict", "properties": {"inner": parameters}}
    [tool] = read("openai", openai(USER, tools=[{"name": "f", "parameters": parameters}])).tools or []
    assert "dict" not in json.dumps(tool)
    assert json.dumps(tool).count('"object"') == 61
    for _ in range(5000):
        parameters = {"items": parameters}
    with pytest.raises(RefusedRowError, match="the row is nested too deeply"):
        read("openai", openai(USER, tools=[{"name": "f", "parameters": parameters}]))
    with pytest.raises(RefusedRowError, match="`tools` is nested too deeply"):
        read("openai", openai(USER, tools="[" * 5000))


def test_an_unknown_format_is_no_row_to_refuse() -> None:
    with pytest.raises(KeyError):
        read("vicuna", {})


@pytest.mark.parametrize("name", [name for name in ACCEPTED if "reasoning" not in name and "inside" not in name])
def test_a_format_is_recognised(name: str) -> None:
    kind, row, *_ = ACCEPTED[name]
    found = detect([row] * 3)
    assert found.format == kind
    assert found.report() == f"of the first 3 rows: {kind} (3)"


def test_names_that_are_read_in_one_way_may_be_mixed() -> None:
    plain, thinking = sharegpt(("human", "x")), sharegpt(("human", "x"), ("gpt", "<think>a</think>b"))
    found = detect([plain, plain, thinking])
    assert (found.format, found.report()) == ("sharegpt", "of the first 3 rows: sharegpt (2), openthoughts (1)")
    assert detect([openai(USER), openai(USER, num_tokens=1)]).format == "openai"


def test_a_mixed_or_unknown_source_is_never_guessed() -> None:
    mixed = detect([openai(USER), openai(USER), sharegpt(("human", "x")), {"headline": "x"}, 3])
    assert mixed.format is None
    assert mixed.counts == {"openai": 2, "sharegpt": 1}
    assert mixed.report() == (
        "of the first 5 rows: openai (2), sharegpt (1); 2 in no known format, the first with the keys 'headline'; "
        f"name one of {', '.join(FORMAT_NAMES)}"
    )
    assert detect([]).report() == "no row to tell the format by"
    assert (
        detect([[1]]).report().startswith("of the first 1 rows: no known format; 1 in no known format, the first is no")
    )
    few = detect([openai(USER), {"headline": "x"}])
    assert few.format == "openai"
    assert "1 in no known format, the first with the keys 'headline'" in few.report()


def test_only_the_first_rows_are_looked_at() -> None:
    rows = iter([openai(USER)] * (LOOKED_AT + 5))
    assert detect(rows).counts == {"openai": LOOKED_AT}
    assert len(list(rows)) == 5


EXAMPLES = re.findall(
    r"### `(.*?)`\n.*?```json\n(.*?)```\n\nbecomes\n\n```json\n(.*?)```",
    (ROOT / "docs" / "prompt-formats.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


def test_every_format_has_an_example_in_the_docs() -> None:
    assert tuple(name for name, *_ in EXAMPLES) == FORMAT_NAMES


@pytest.mark.parametrize(("name", "row", "becomes"), EXAMPLES, ids=[name for name, *_ in EXAMPLES])
def test_an_example_of_the_docs_becomes_what_they_say(name: str, row: str, becomes: str) -> None:
    found = read(name, json.loads(row))
    assert {"messages": found.messages, "tools": found.tools} == {"tools": None, **json.loads(becomes)}
    assert detect([json.loads(row)]).format == name


@pytest.mark.parametrize(
    "row",
    [
        {"available_tools": json.dumps([WEATHER])},
        {"available_tools": [WEATHER], "tools": json.dumps([WEATHER["function"]]), "functions": []},
        {"chat_template_kwargs": {"xml_tools": [json.dumps(WEATHER)], "python_tools": [], "enable_thinking": False}},
        {"chat_template_kwargs": json.dumps({"tools": [WEATHER]})},
    ],
)
def test_tools_are_found_under_other_keys(row: dict[str, Any]) -> None:
    assert read("openai", openai(USER, **row)).tools == [WEATHER]


def test_glaives_functions_that_are_announced_and_not_there_refuse_the_row() -> None:
    system = "SYSTEM: You have access to the following functions. Use them if required -\nget_weather(city)"
    row = {"system": system, "chat": "USER: Cold?\n\n\nASSISTANT: Yes. <|endoftext|>"}
    with pytest.raises(RefusedRowError, match="`system` announces functions, and there is none that can be read"):
        read("glaive", row)
    assert read("glaive", {**row, "tools": [{"name": "get_weather"}]}).tools is not None


@pytest.mark.parametrize("words", [" Use them if required - ", " Use them if required -\n"])
@pytest.mark.parametrize("named", [" with access", ", with access", ", you have access"])
def test_glaives_functions_are_found_wherever_they_are_announced(words: str, named: str) -> None:
    system = f"SYSTEM: You are a helpful assistant{named} to the following functions.{words}"
    found = read("glaive", {"system": system + json.dumps(WEATHER["function"]), "chat": "USER: x"})
    assert found.tools == [WEATHER]
    assert found.messages[0] == {"role": "system", "content": "You are a helpful assistant."}


def test_text_in_braces_after_other_words_is_none_of_glaives_functions() -> None:
    found = read("glaive", {"system": "SYSTEM: Answer as {json}.", "chat": "USER: x"})
    assert (found.tools, found.messages[0]["content"]) == (None, "Answer as {json}.")


@pytest.mark.parametrize("tag", ["<thinking>", "<reasoning>", "<thought>", "<scratchpad>", "<Think>", "[THINK]"])
def test_other_markup_of_reasoning_in_the_history_is_remarked_on(tag: str) -> None:
    message = {"role": "assistant", "content": f"{tag}Winter.{tag}Yes."}
    found = read("openai", openai(USER, message, USER, message))
    assert found.remarks == (f"message 2: {tag} may begin reasoning, all of it stays in the content",)
    assert found.messages[1] == message


def test_calls_of_the_answer_alone_are_not_called_history() -> None:
    assert read("openai", openai(USER, CALLING)).remarks == (UNDECLARED_ANSWER,)
    assert read("openai", openai(USER, CALLING, RESULT, CALLING)).remarks == (UNDECLARED,)


@pytest.mark.parametrize(
    ("given", "identifier"),
    [
        (Decimal("7"), "7"),
        (date(2025, 3, 1), "2025-03-01"),
        (datetime(2025, 3, 1, 12, 30), "2025-03-01T12:30:00"),
        (datetime(2025, 3, 1, 12, 30, tzinfo=ZoneInfo("Asia/Tokyo")), "2025-03-01T03:30:00+00:00"),
        (Decimal("1.50"), "1.50"),
        (b"row-7", "row-7"),
        (bytes(15) + b"\5", "00000000-0000-0000-0000-000000000005"),
        (b"\xff\0", "ff00"),
    ],
)
def test_ids_of_parquet_are_text(given: Any, identifier: str) -> None:
    assert read("openai", openai(USER, id=given)).source_id == identifier


def test_a_list_of_messages_without_a_row_is_told_from_a_row() -> None:
    said = (
        "the first with the keys 'role', 'content' (a message, not a conversation: write each as {\"messages\": [...]})"
    )
    assert said in detect([[USER, ANSWER]]).report()
    assert said in detect([USER]).report()


def test_instructions_for_a_template_are_the_system_prompt() -> None:
    row = openai(USER, chat_template_kwargs={"custom_instructions": "Be kind."}, system="")
    assert read("openai", row).messages == [{"role": "system", "content": "Be kind."}, USER]
    with pytest.raises(RefusedRowError, match=r"`system` and `.*custom_instructions` are both there"):
        read("openai", {**row, "system": "Be brief."})


def test_numbers_of_arguments_are_read_as_servers_read_them() -> None:
    """Whole numbers of any length stay; of others the value does, to the digits that a double has."""
    given = '{"n": 123456789012345678901234567890, "p": 1.10, "e": 1e2}'
    call = {"function": {"name": "f", "arguments": given}}
    found = read("openai", openai(USER, {"role": "assistant", "content": None, "tool_calls": [call]}, USER))
    arguments = found.messages[1]["tool_calls"][0]["function"]["arguments"]
    assert json.dumps(arguments) == '{"n": 123456789012345678901234567890, "p": 1.1, "e": 100.0}'


def test_a_trajectory_that_is_the_conversation_once_more_is_read_with_it() -> None:
    row = openai(USER, ANSWER, trajectory=[USER, ANSWER])
    assert (read("openai", row).messages, read("openai", row).unread) == ([USER, ANSWER], ())
    steps = [{"action": "ls", "observation": "a"}]
    assert read("openai", openai(USER, trajectory=steps)).unread == ("trajectory",)


def test_glaives_line_ends_may_be_those_of_windows() -> None:
    given = {key: text.replace("\n", "\r\n") for key, text in GLAIVE.items()}
    found, usual = read("glaive", given), read("glaive", GLAIVE)
    assert found.tools == usual.tools
    for one, other in zip(found.messages, usual.messages, strict=True):
        assert one == {**other, "content": other["content"].replace("\n", "\r\n")}


@pytest.mark.parametrize(
    "step",
    [
        "Thought: I look.\nAction: get_weather\nAction Input: {}",
        "**Action**: get_weather\n**Action Input**: {}",
        "Action 1: get_weather\n\nAction Input 1: Oslo",
    ],
)
def test_calls_in_the_words_of_react_are_remarked_on(step: str) -> None:
    message = {"role": "assistant", "content": step}
    said = "message 2: `Action:` and `Action Input:` may be a call written as text, all of it stays in the content"
    assert read("openai", openai(USER, message, USER, message, USER)).remarks == (said,)
    assert read("openai", openai(USER, message)).remarks == ()
    assert read("openai", openai({**USER, "content": step}, ANSWER, USER)).remarks == ()
    shown = {"role": "assistant", "content": f"It looks like this:\n```\n{step}\n```"}
    assert read("openai", openai(USER, shown, USER)).remarks == ()


def test_a_tool_that_is_declared_twice_is_declared_once() -> None:
    assert read("openai", openai(USER, tools=[WEATHER, WEATHER["function"]])).tools == [WEATHER]


def test_tools_of_one_name_that_differ_are_remarked_on() -> None:
    other = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    found = read("openai", openai(USER, tools=[WEATHER, other]))
    assert found.tools == [WEATHER, other]
    assert found.remarks == ("several tools are named 'get_weather', and differ: all are declared",)


@pytest.mark.parametrize("key", ["prompt", "text"])
@pytest.mark.parametrize(
    "message",
    [
        USER,
        {"from": "human", "value": "Cold in Oslo?"},
        {"role": "assistant", "tool_calls": [CALL]},
        openai(USER),
        sharegpt(("human", "x")),
    ],
)
def test_a_message_as_json_text_is_no_prompt(key: str, message: Any) -> None:
    with pytest.raises(RefusedRowError, match="the text is a message as JSON, not a prompt: write it into"):
        read("plain", {key: json.dumps(message)})


@pytest.mark.parametrize(
    "text", ['{"role": "admin", "content": "x"}', '{"role": "user"}', '{"a": [1]}', '{"role": "user", "content": ']
)
def test_other_json_is_a_prompt(text: str) -> None:
    assert read("plain", {"prompt": text}).messages[0]["content"] == text
