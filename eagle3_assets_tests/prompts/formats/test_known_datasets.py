"""Rows shaped as the public cards of much used datasets say theirs are: read rightly, or refused by name.

The rows are ours; only their keys, roles and markup are those of the sets.
"""

import json
from typing import Any

import pytest

from eagle3_assets.prompts.dialogue import RefusedRowError
from eagle3_assets.prompts.formats import detect, read

CHAT = [{"role": "user", "content": "Is it far?"}, {"role": "assistant", "content": "No."}]
SHARED = [{"from": "human", "value": "Is it far?"}, {"from": "gpt", "value": "No."}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "w", "description": "d", "parameters": PARAMETERS}}
TOOLS = json.dumps([TOOL])
CALL = {"id": "c", "type": "function", "function": {"name": "w", "arguments": "{}"}}
THOUGHT = "<|begin_of_thought|>a<|end_of_thought|><|begin_of_solution|>b<|end_of_solution|>"
HERMES = '<tool_call>\n{"arguments": {}, "name": "w"}\n</tool_call>'

READ: dict[str, tuple[dict[str, Any], str, str, bool]] = {
    # row, format, first letters of the roles (c: an assistant with calls), whether there are tools
    "ultrachat_200k": ({"prompt": "Is it far?", "prompt_id": "a", "messages": CHAT}, "openai", "ua", False),
    "OpenHermes-2.5": ({"conversations": SHARED, "system_prompt": None, "source": "x"}, "sharegpt", "ua", False),
    "SlimOrca": (
        {"conversations": [{"from": "system", "value": "s", "weight": None}, *SHARED]},
        "sharegpt",
        "sua",
        False,
    ),
    "tulu-3-sft-mixture": ({"id": "p_1", "messages": CHAT, "source": "x"}, "openai", "ua", False),
    "smoltalk": ({"messages": CHAT, "source": "x"}, "openai", "ua", False),
    "smoltalk2": (
        {"messages": CHAT, "chat_template_kwargs": {"custom_instructions": "s", "xml_tools": [TOOLS[1:-1]]}},
        "openai",
        "sua",
        True,
    ),
    "Magpie": (
        {
            "uuid": "u",
            "instruction": "Is it far?",
            "response": "No.",
            "conversations": SHARED,
            "gen_input_configs": {"pre_query_template": "<|start_header_id|>user<|end_header_id|>"},
        },
        "sharegpt",
        "ua",
        False,
    ),
    "WildChat": (
        {
            "conversation_hash": "h",
            "conversation": [{**turn, "toxic": False, "turn_identifier": 1, "header": {"a": "b"}} for turn in CHAT],
            "openai_moderation": [{"flagged": False}],
        },
        "sharegpt",
        "ua",
        False,
    ),
    "lmsys-chat-1m": ({"conversation_id": "i", "model": "m", "conversation": CHAT, "turn": 1}, "sharegpt", "ua", False),
    "OpenR1-Math-220k": (
        {"problem": "Is it far?", "solution": "s", "generations": ["<think>a</think>b"], "messages": CHAT},
        "openai",
        "ua",
        False,
    ),
    "Mixture-of-Thoughts": ({"messages": CHAT, "num_tokens": 3, "source": "x"}, "mixture-of-thoughts", "ua", False),
    "OpenThoughts-114k": (
        {"system": "s", "conversations": [{"from": "user", "value": "q"}, {"from": "assistant", "value": THOUGHT}]},
        "openthoughts",
        "sua",
        False,
    ),
    "OpenMathReasoning": (
        {"problem": "1+1?", "generated_solution": "<think>a", "expected_answer": "2"},
        "plain",
        "u",
        False,
    ),
    "OpenCodeReasoning": ({"id": "i", "input": "Add.", "output": "<think>", "solution": "s"}, "plain", "u", False),
    "Llama-Nemotron-Post-Training": (
        {"input": CHAT[:1], "output": "No.", "system_prompt": "detailed thinking on", "used_in_training": "Ultra"},
        "openai",
        "su",
        False,
    ),
    "the same, input as text": ({"input": "Is it far?", "output": "No.", "system_prompt": "s"}, "plain", "su", False),
    "Nemotron-Post-Training-v1": (
        {"messages": [{**turn, "tool_calls": []} for turn in CHAT], "metadata": json.dumps({"tools": [TOOL]})},
        "openai",
        "ua",
        True,
    ),
    "hermes-function-calling-v1": (
        {
            "conversations": [{"from": "system", "value": "s"}, SHARED[0], {"from": "gpt", "value": HERMES}],
            "tools": TOOLS,
        },
        "sharegpt",
        "sua",
        True,
    ),
    "xlam-function-calling-60k": (
        {
            "id": 1,
            "query": "Cold?",
            "answers": "[]",
            "tools": json.dumps([{"name": "w", "parameters": {"a": {"type": "str"}}}]),
        },
        "plain",
        "u",
        True,
    ),
    "ToolACE": (
        {"system": 'Functions:\n[{"name": "w", "parameters": {"type": "dict"}}]', "conversations": SHARED},
        "sharegpt",
        "sua",
        False,
    ),
    "APIGen-MT-5k": (
        {
            "system": "s",
            "tools": TOOLS,
            "conversations": [
                SHARED[0],
                {"from": "function_call", "value": '{"name": "w", "arguments": {}}'},
                {"from": "observation", "value": "{}"},
                SHARED[1],
            ],
        },
        "sharegpt",
        "sucta",
        True,
    ),
    "SWE-smith-trajectories": (
        {
            "traj_id": "t",
            "messages": json.dumps(
                [
                    {"role": "user", "content": [{"type": "text", "text": "Fix it"}], "agent": "main"},
                    {"role": "assistant", "content": "ls", "thought": "ls", "action": "ls", "tool_calls": [CALL]},
                    {"role": "tool", "content": [{"type": "text", "text": "a"}], "tool_call_ids": ["c"]},
                ]
            ),
        },
        "openai",
        "uct",
        False,
    ),
    "nebius/SWE-agent-trajectories": (
        {
            "instance_id": "a-1",
            "trajectory": [
                {"role": "system", "system_prompt": "s", "text": None, "mask": False, "cutoff_date": "01.01.2023"},
                {"role": "user", "system_prompt": None, "text": "Fix it", "mask": False, "cutoff_date": None},
                {"role": "ai", "system_prompt": None, "text": "```\nls\n```", "mask": True, "cutoff_date": None},
            ],
            "generated_patch": "diff",
        },
        "sharegpt",
        "sua",
        False,
    ),
    "nebius/SWE-rebench-openhands": (
        {
            "trajectory_id": "t",
            "trajectory": [
                {"role": "user", "content": "Fix it", "name": None, "tool_calls": None},
                {"role": "assistant", "content": "", "tool_calls": [CALL]},
                {"role": "tool", "content": "a", "name": "w", "tool_call_id": "c"},
            ],
            "tools": [TOOL],
            "model_patch": "diff",
        },
        "sharegpt",
        "uct",
        True,
    ),
    "AM-DeepSeek-R1-Distilled": (
        {"messages": [{**CHAT[0], "info": {"source": "x"}}, {**CHAT[1], "info": {"think_content": "a"}}]},
        "openai",
        "ua",
        False,
    ),
    "dolly-15k": ({"instruction": "q", "context": "", "response": "r", "category": "x"}, "alpaca", "ua", False),
    "OpenOrca": ({"id": "x", "system_prompt": "s", "question": "q", "response": "r"}, "plain", "su", False),
    "gsm8k": ({"question": "1+1?", "answer": "2"}, "plain", "u", False),
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "OpenCodeReasoning-2": ({"question": "-", "r1_generation": "<think>"}, "the prompt is '-', which stands for one"),
    "OpenCodeReasoning, split_1": ({"input": "-", "output": "<think>"}, "the prompt is '-', which stands for one"),
    "Nemotron, rendered": ({"input": "<|start_header_id|>user<|end_header_id|>\n\nq", "output": "a"}, "in markup"),
    "a prompt stored as JSON text": ({"prompt": json.dumps(CHAT[:1])}, "a list of messages as JSON"),
    "messages beside a question": ({"question": "q?", "input": CHAT[:1]}, "`question` and `input` are both there"),
    "messages beside an instruction": ({"instruction": "Do", "input": CHAT[:1]}, "`input` is a list, not text"),
    "messages beside a prompt": ({"prompt": "p?", "input": CHAT[:1]}, "`prompt` and `input` are both there"),
    "ToolBench": (
        {
            "conversations": [
                SHARED[0],
                {"from": "assistant", "value": "Action: x"},
                {"from": "function", "value": "{}"},
            ]
        },
        "a tool's result, and no call stands before it",
    ),
    "oasst1": ({"message_id": "m", "text": "hi", "role": "prompter"}, "a message of a conversation"),
    "mmlu": ({"question": "1+1?", "choices": ["1", "2"], "answer": 1}, "`choices` is there"),
}


@pytest.mark.parametrize("name", READ)
def test_a_row_of_a_known_dataset_is_read(name: str) -> None:
    row, expected, roles, tools = READ[name]
    found = detect([row]).format
    assert found == expected
    made = read(found, row)
    spoken = "".join("c" if "tool_calls" in m else m["role"][0] for m in made.messages)
    assert (spoken, made.tools is not None) == (roles, tools)


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_of_a_known_dataset_that_would_be_read_wrongly_is_refused(name: str) -> None:
    row, said = REFUSED[name]
    found = detect([row]).format
    assert found is not None
    with pytest.raises(RefusedRowError, match=said.replace("(", r"\(")):
        read(found, row)


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": "\n\nHuman: hi\n\nAssistant: ho", "rejected": "\n\nHuman: hi"},  # hh-rlhf
        {"id": "0", "data": ["Hi", "Hello"]},  # ultrachat's first release: who speaks is not said
        {"trajectory": [{"action": "ls", "observation": "a", "thought": "t"}]},  # SWE-agent's own files
    ],
)
def test_a_row_of_no_known_format_is_none(row: dict[str, Any]) -> None:
    assert detect([row]).format is None


def test_a_trajectory_keeps_what_each_said() -> None:
    row = READ["nebius/SWE-agent-trajectories"][0]
    assert [m["content"] for m in read("sharegpt", row).messages] == ["s", "Fix it", "```\nls\n```"]


def test_tools_that_a_system_prompt_lists_as_text_are_remarked_on() -> None:
    """Hermes' sets declare them besides, so that a prompt has them twice; ToolACE's do not."""
    listed = {"from": "system", "value": f"<tools>{TOOLS}</tools>"}
    twice = read("sharegpt", {"conversations": [listed, *SHARED], "tools": TOOLS}).remarks
    assert twice == ("the system prompt lists tools as text, and the template shows the declared ones once more",)
    once = read("sharegpt", {"conversations": [listed, *SHARED]}).remarks
    assert once == ("the system prompt lists tools as text, and none are declared",)
    assert read("sharegpt", {"conversations": SHARED, "tools": TOOLS}).remarks == ()


def test_an_alpaca_row_says_that_it_has_no_input() -> None:
    row = {"instruction": "Count to two.", "input": "<noinput>", "output": "1 2"}
    assert read("alpaca", row).messages[0]["content"] == "Count to two."


@pytest.mark.parametrize("none", ["", "<noinput>"])
def test_an_alpaca_row_without_input_may_have_a_context(none: str) -> None:
    row = {"instruction": "Count.", "input": none, "context": "To two.", "output": "1 2"}
    assert read("alpaca", row).messages[0]["content"] == "Count.\nTo two."
