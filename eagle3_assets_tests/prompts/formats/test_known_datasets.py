"""Rows shaped as the public cards of much used datasets say theirs are: read rightly, or refused by name.

The rows are ours; only their keys, roles and markup are those of the sets. Of which sets these were looked up in a
public source, and of which they are from knowledge, docs/prompt-formats.md says.
"""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eagle3_assets.prompts.dialogue import RefusedRowError
from eagle3_assets.prompts.formats import detect, read

ROOT = Path(__file__).parents[3]
CHAT = [{"role": "user", "content": "Is it far?"}, {"role": "assistant", "content": "No."}]
SHARED = [{"from": "human", "value": "Is it far?"}, {"from": "gpt", "value": "No."}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "w", "description": "d", "parameters": PARAMETERS}}
TOOLS = json.dumps([TOOL])
CALL = {"id": "c", "type": "function", "function": {"name": "w", "arguments": "{}"}}
THOUGHT = "<|begin_of_thought|>a<|end_of_thought|><|begin_of_solution|>b<|end_of_solution|>"
DECLARED = f"<|im_system|>tool_declare<|im_middle|>{TOOLS}<|im_end|>"
"""As Kimi's template writes tools; Toucan has it in the system turn."""
HERMES = '<tool_call>\n{"arguments": {}, "name": "w"}\n</tool_call>'

READ: dict[str, tuple[dict[str, Any], str, str, bool]] = {
    # row, format, first letters of the roles (c: an assistant with calls), whether there are tools
    "UltraChat 200k": ({"prompt": "Is it far?", "prompt_id": "a", "messages": CHAT}, "openai", "ua", False),
    "OpenHermes 2.5": ({"conversations": SHARED, "system_prompt": None, "source": "x"}, "sharegpt", "ua", False),
    "SlimOrca": (
        {"conversations": [{"from": "system", "value": "s", "weight": None}, *SHARED]},
        "sharegpt",
        "sua",
        False,
    ),
    "Tulu 3": ({"id": "p_1", "messages": CHAT, "source": "x"}, "openai", "ua", False),
    "SmolTalk": ({"messages": CHAT, "source": "x"}, "openai", "ua", False),
    "SmolTalk 2": (
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
            "model": "m",
            "timestamp": datetime(2023, 4, 9, tzinfo=UTC),
            "conversation": [
                {
                    **turn,
                    "country": "c",
                    "hashed_ip": "h",
                    "header": {"accept-language": "b", "user-agent": "u"},
                    "language": "English",
                    "redacted": False,
                    "state": "s",
                    "timestamp": datetime(2023, 4, 9, tzinfo=UTC),
                    "toxic": False,
                    "turn_identifier": 1,
                }
                for turn in CHAT
            ],
            "turn": 1,
            "language": "English",
            "openai_moderation": [{"categories": {"hate": False}, "category_scores": {"hate": 0.1}, "flagged": False}],
            "detoxify_moderation": [{"toxicity": 0.1}],
            "toxic": False,
            "redacted": False,
            "state": "s",
            "country": "c",
            "hashed_ip": "h",
            "header": {"accept-language": "b", "user-agent": "u"},
        },
        "sharegpt",
        "ua",
        False,
    ),
    "LMSYS-Chat-1M": ({"conversation_id": "i", "model": "m", "conversation": CHAT, "turn": 1}, "sharegpt", "ua", False),
    "OpenR1-Math": (
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
    "Llama-Nemotron Post-Training": (
        {"input": CHAT[:1], "output": "No.", "system_prompt": "detailed thinking on", "used_in_training": "Ultra"},
        "openai",
        "su",
        False,
    ),
    "Llama-Nemotron Post-Training, texts": (
        {"input": "Is it far?", "output": "No.", "system_prompt": "s"},
        "plain",
        "su",
        False,
    ),
    "Nemotron Post-Training v1": (
        {"messages": [{**turn, "tool_calls": []} for turn in CHAT], "metadata": json.dumps({"tools": [TOOL]})},
        "openai",
        "ua",
        True,
    ),
    "Nemotron Post-Training v2": (
        {
            "uuid": "u",
            "license": "l",
            "generator": "g",
            "version": "v",
            "category": "c",
            "reasoning": "on",
            "messages": [{"role": "system", "content": ""}, *CHAT],
        },
        "openai",
        "ua",
        False,
    ),
    "Nemotron SFT Agentic v2": (
        {
            "messages": [
                CHAT[0],
                {"role": "assistant", "content": "", "reasoning_content": "a", "tool_calls": [CALL]},
                {"role": "tool", "content": "-3", "tool_call_id": "c"},
            ],
            "tools": [TOOL],
            "parallel_tool_calls": False,
            "chat_template_kwargs": {"thinking": True},
            "filter_reason": None,
            "processing_info": {"stages": ["tool_validation"]},
            "metadata": {"uuid": "u", "turn_token_count": [{"reasoning": 0, "content": 2}]},
        },
        "openai",
        "uct",
        True,
    ),
    "Toucan": (
        {
            "uuid": "u",
            "subset_name": "single-turn-original",
            "messages": json.dumps(
                [
                    {"role": "system", "content": DECLARED},
                    {"role": "user", "content": "Cold?"},
                    {"role": "assistant", "content": "", "function_call": CALL["function"]},
                    {"role": "function", "content": "-3", "name": "w"},
                    CHAT[1],
                ]
            ),
            "question": "Cold?",
            "available_tools": TOOLS,
            "target_tools": "w",
            "question_quality_assessment": json.dumps({"question_quality": {"reasoning": "r", "score": 5}}),
            "response_quality_assessment": json.dumps({"completeness": {"reasoning": "r", "score": 5}}),
            "metadata": json.dumps({"mcp_servers": [{"tools": [{"name": "w", "input_schema": PARAMETERS}]}]}),
        },
        "openai",
        "ucta",
        True,
    ),
    "Toucan, SFT": (
        {
            "uuid": "u",
            "subset_name": "single-turn-original",
            "question": "Cold?",
            "target_tools": "w",
            "tools": TOOLS,
            "messages": json.dumps(
                [
                    {"role": "system", "content": DECLARED},
                    {"role": "user", "content": "Cold?"},
                    {"role": "assistant", "content": "I look."},
                    {"role": "tool_call", "content": str({"name": "w", "arguments": '{"city": "Land\'s End"}'})},
                    {"role": "tool_call", "content": str({"name": "w", "arguments": "{}"})},
                    {"role": "tool_response", "content": "-3"},
                    {"role": "tool_response", "content": "-4"},
                    CHAT[1],
                ]
            ),
        },
        "openai",
        "uctta",
        True,
    ),
    "OpenThoughts3": (
        {
            "difficulty": 7,
            "source": "x",
            "domain": "math",
            "conversations": [SHARED[0], {"from": "assistant", "value": "<think>a</think>b"}],
        },
        "openthoughts",
        "ua",
        False,
    ),
    "Multilingual-Thinking": (
        {
            "reasoning_language": "French",
            "developer": "s",
            "user": "Is it far?",
            "analysis": "a",
            "final": "No.",
            "messages": [
                {"role": "system", "content": "reasoning language: French\n\ns", "thinking": None},
                {**CHAT[0], "thinking": None},
                {**CHAT[1], "thinking": "a"},
            ],
        },
        "openai",
        "sua",
        False,
    ),
    "Tulu 3 personas": (
        {"id": "p", "prompt": "Is it far?", "messages": CHAT, "constraints": ["format:title"]},
        "openai",
        "ua",
        False,
    ),
    "LongAlign": ({"id": "a", "dataset": "d", "messages": CHAT, "length": 9}, "openai", "ua", False),
    "ShareGPT": ({"id": "a_0", "conversations": SHARED}, "sharegpt", "ua", False),
    "SpecForge": ({"id": "a", "conversations": CHAT}, "sharegpt", "ua", False),
    "AgentInstruct": (
        {
            "id": "os_0",
            "conversations": [{**SHARED[0], "loss": None}, {**SHARED[1], "loss": True}, {**SHARED[0], "loss": None}],
        },
        "sharegpt",
        "uau",
        False,
    ),
    "Orca-AgentInstruct": ({"messages": json.dumps(CHAT)}, "openai", "ua", False),
    "OpenCodeInstruct": (
        {
            "id": "i",
            "input": "Add.",
            "output": "o",
            "domain": "generic",
            "generation_algorithm": "self-instruct",
            "llm_judgement": '{"logical_correctness": {"score": 5, "justification": "j"}}',
            "unit_tests": '["assert add(1, 2) == 3"]',
            "tests_execution_status": '["pass"]',
            "average_test_score": 1.0,
        },
        "plain",
        "u",
        False,
    ),
    "glaive-function-calling-v2": (
        {
            "system": "SYSTEM: You are a helpful assistant, with access to the following functions. "
            "Use them if required -\n" + json.dumps(TOOL["function"], indent=4) + "\n",
            "chat": "USER: Cold?\n\n\nASSISTANT: <functioncall> "
            """{"name": "w", "arguments": '{"city": "Oslo"}'} <|endoftext|>\n\n\n"""
            "FUNCTION RESPONSE: -3\n\n\nASSISTANT: Yes. <|endoftext|>\n\n\n",
        },
        "glaive",
        "sucta",
        True,
    ),
    "hermes-function-calling": (
        {
            "conversations": [{"from": "system", "value": "s"}, SHARED[0], {"from": "gpt", "value": HERMES}],
            "tools": TOOLS,
        },
        "sharegpt",
        "sua",
        True,
    ),
    "xLAM function calling": (
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
    "APIGen-MT": (
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
    "SWE-smith trajectories": (
        {
            "traj_id": "t",
            "instance_id": "i",
            "model": "m",
            "resolved": True,
            "messages": json.dumps(
                [
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": "Fix it"}],
                        "agent": "main",
                        "message_type": "observation",
                    },
                    {"role": "assistant", "content": "ls", "thought": "ls", "action": "ls", "tool_calls": [CALL]},
                    {"role": "tool", "content": [{"type": "text", "text": "a"}], "tool_call_ids": ["c"]},
                ]
            ),
        },
        "openai",
        "uct",
        False,
    ),
    "Nebius SWE-agent": (
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
    "Nebius OpenHands": (
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
    "CodeForces-CoTs": (
        {
            "id": "1/A",
            "contest_id": "1",
            "title": "t",
            "description": "Is it",
            "input_format": "far?",
            "examples": [{"input": "1", "output": "2"}],
            "prompt": "Is it far?",
            "generation": "<think>a</think>b",
            "api_metadata": {"completion_tokens": 1, "prompt_tokens": 2},
            "messages": CHAT,
        },
        "openai",
        "ua",
        False,
    ),
    "DAPO-Math": (
        {
            "data_source": "math_dapo",
            "prompt": CHAT[:1],
            "ability": "MATH",
            "reward_model": {"ground_truth": "34", "style": "rule"},
            "extra_info": {"index": "9"},
        },
        "openai",
        "u",
        False,
    ),
    "Nemotron Math v2": (
        {
            "uuid": "u",
            "problem": "Is it far?",
            "expected_answer": "2",
            "messages": [{**turn, "tool_calls": None} for turn in CHAT],
            "tools": [TOOL],
            "metadata": {"reason_low_with_tool": {"count": 1, "pass": 1}},
        },
        "openai",
        "ua",
        True,
    ),
    "Dolphin-R1": ({"messages": CHAT[:1], "reasoning": "r", "answer": "a", "model": "m"}, "openai", "u", False),
    "When2Call": (
        {"tools": [TOOLS[1:-1]], "messages": [CHAT[0], {"role": "assistant", "content": "<TOOLCALL>[{}]</TOOLCALL>"}]},
        "openai",
        "ua",
        True,
    ),
    "KodCode": (
        {
            "question": "Is it far?",
            "test_info": [{"function_declaration": "def f():", "function_name": "f", "parameter_list": "()"}],
            "conversations": SHARED,
        },
        "sharegpt",
        "ua",
        False,
    ),
    "Agent-FLAN": ({"id": "x", "conversation": [{**turn, "loss": True} for turn in CHAT]}, "sharegpt", "ua", False),
    "AM-Thinking-v1-Distilled": (
        {
            "system": "s",
            "conversations": [
                {**SHARED[0], "info": {"category": "c"}},
                {"from": "assistant", "value": "<think>a</think><answer>b</answer>", "info": {"category": "c"}},
            ],
        },
        "openthoughts",
        "sua",
        False,
    ),
    "OpenThoughts2": (
        {
            "id": 7,
            "question": "Is it far?",
            "conversations": [SHARED[0], {"from": "assistant", "value": "<think>a</think>b"}],
        },
        "openthoughts",
        "ua",
        False,
    ),
    "Bespoke-Stratos": (
        {"system": "s", "conversations": [{"from": "user", "value": "q"}, {"from": "assistant", "value": THOUGHT}]},
        "openthoughts",
        "sua",
        False,
    ),
    "s1K": (
        {
            "question": "1+1?",
            "solution": "s",
            "metadata": "{'problem': '1+1?'}",
            "cot": None,
            "thinking_trajectories": ["t"],
            "attempt": "a",
        },
        "plain",
        "u",
        False,
    ),
    "LIMO": ({"question": "1+1?", "solution": "s", "answer": "2"}, "plain", "u", False),
    "SYNTHETIC-1": (
        {"prompt": "1+1?", "verification_info": "{}", "metadata": '{"difficulty": 1}', "llm_response": "2"},
        "plain",
        "u",
        False,
    ),
    "Aya": ({"inputs": "Cold?", "targets": "Yes.", "language_code": "eng"}, "plain", "u", False),
    "UltraFeedback": (
        {"instruction": "Do.", "models": ["m"], "completions": [{"custom_system_prompt": "x", "response": "r"}]},
        "alpaca",
        "u",
        False,
    ),
    "Dolly": ({"instruction": "q", "context": "", "response": "r", "category": "x"}, "alpaca", "ua", False),
    "OpenOrca": ({"id": "x", "system_prompt": "s", "question": "q", "response": "r"}, "plain", "su", False),
    "GSM8K": ({"question": "1+1?", "answer": "2"}, "plain", "u", False),
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "OpenCodeReasoning-2": ({"question": "-", "r1_generation": "<think>"}, "the prompt is '-', which stands for one"),
    "OpenCodeReasoning `split_1`": ({"input": "-", "output": "<think>"}, "the prompt is '-', which stands for one"),
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
    "OpenThoughts-114k-math": (
        {"system": "s", "messages": CHAT, "conversations": [{"from": "user", "value": "Boxed: is it far?"}, SHARED[1]]},
        "`messages` and `conversations` are both there and differ: leave one out",
    ),
    "function-calling-chatml": (
        {
            "system_message": "s",
            "function_description": json.dumps({"name": "w", "description": "How warm.", "parameters": PARAMETERS}),
            "conversations": [
                SHARED[0],
                {"from": "function-call", "value": """{"name": "w", "arguments": '{"city": "Oslo"}'}"""},
                {"from": "function-response", "value": "-3"},
                SHARED[1],
            ],
        },
        "`function_description` may declare tools, and is not read: call it `tools`",
    ),
    "LongReward-10k": ({"idx": 1, "context": "A story.", "query": "Who?"}, "`context` is there"),
    "Ultra-Innerthought": (
        {"id": 1, "conversations": [{"user": "Is it far?", "inner_thought": "t", "assistant": "No."}]},
        "`conversations[0].user` is 'Is it far?'; known: system",
    ),
    "tool-reasoning-sft": (
        {"messages": json.dumps([CHAT[0], {"role": "reasoning", "content": "<think>a</think>"}, CHAT[0]])},
        "`messages[1].role` is 'reasoning'; known: system",
    ),
    "Nemotron Competitive Programming": (
        {"messages": [{"role": "user", "content": "-"}, CHAT[1]], "tools": [], "question_id": "q"},
        "the user says '-', which stands for a prompt that is not there",
    ),
    "Capybara": (
        {"source": "s", "conversation": [{"input": "Is it far?", "output": "No."}]},
        "`conversation[0].from` is missing; known: system",
    ),
    "Nectar": ({"prompt": "\n\nHuman: q \n\nAssistant: ", "answers": [], "turns": 1}, "a conversation in markup"),
    "Anthropic's requests": (
        {
            "messages": [
                CHAT[0],
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "w"}]},
                CHAT[0],
            ]
        },
        "`messages[1].content[0]` is a part of type 'tool_use'; only text parts are supported",
    ),
    "GLM's, with tools in the system turn": (
        {"messages": [{"role": "system", "content": "", "tools": [TOOL]}, *CHAT]},
        "`messages[0]` has 'tools', which is not known and would be lost: write it into the row's `tools`",
    ),
    "OpenThoughts-114k, metadata": (
        {"problem": "Add.", "deepseek_reasoning": "r", "starter_code": "def f():"},
        "`starter_code` is there, and its text is not in the prompt",
    ),
    "OASST": ({"message_id": "m", "text": "hi", "role": "prompter"}, "a message of a conversation"),
    "MMLU": ({"question": "1+1?", "choices": ["1", "2"], "answer": 1}, "`choices` is there"),
}


def test_the_page_names_what_is_tested_and_nothing_else() -> None:
    page = (ROOT / "docs" / "prompt-formats.md").read_text(encoding="utf-8")
    table = page.partition("| format | shape looked up |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines()[2:]]
    named = {name: form.strip("`") for form, *cells in rows for cell in cells for name in cell.split(", ") if name}
    several = {"Toucan, SFT", "Llama-Nemotron Post-Training, texts"}
    assert named == {name: form for name, (_, form, _, _) in READ.items() if name not in several}


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
    with pytest.raises(RefusedRowError, match=re.escape(said)):
        read(found, row)


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": "\n\nHuman: hi\n\nAssistant: ho", "rejected": "\n\nHuman: hi"},  # hh-rlhf
        {"sample": "SYSTEM: You are an helpful assistant.\nUSER: hi\nASSISTANT: ho"},  # Glaive's first set
        {"id": "0", "data": ["Hi", "Hello"]},  # ultrachat's first release: who speaks is not said
        {"trajectory": [{"action": "ls", "observation": "a", "thought": "t"}]},  # SWE-agent's own files
    ],
)
def test_a_row_of_no_known_format_is_none(row: dict[str, Any]) -> None:
    assert detect([row]).format is None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"custom_id": "1", "url": "/v1/chat/completions", "body": {"model": "m", "messages": CHAT}},
            "'body' is openai",
        ),
        ({"input": {"messages": CHAT[:1]}, "preferred_output": CHAT[1:]}, "'input' is openai"),
        ({"responses_create_params": {"input": CHAT[:1]}}, "'responses_create_params' is openai"),
        ({"row": {"instruction": "Do.", "output": "Done."}}, "'row' is alpaca"),
    ],
)
def test_a_row_within_a_request_is_found(row: dict[str, Any], said: str) -> None:
    found = detect([row])
    assert found.format is None
    assert f"(its {said}: write what is in it as the row)" in found.report()


def test_text_that_a_parquet_file_has_as_binary_is_named() -> None:
    assert "(its 'prompt' is binary: write it as text)" in detect([{"image": b"x", "prompt": b"Is it far?"}]).report()
    with pytest.raises(RefusedRowError, match="`messages` must be a non-empty list, not binary"):
        read("openai", {"messages": b"[]"})


def test_a_trajectory_keeps_what_each_said() -> None:
    row = READ["Nebius SWE-agent"][0]
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


def test_calls_in_turns_of_their_own_are_one_turn_with_what_was_said_before() -> None:
    row = READ["Toucan, SFT"][0]
    found = read("openai", row)
    said = found.messages[1]
    arguments = [call["function"]["arguments"] for call in said["tool_calls"]]
    assert (said["content"], arguments) == ("I look.", [{"city": "Land's End"}, {}])
    assert found.remarks == ()
    again = read("sharegpt", {"tools": TOOLS, "conversations": json.loads(row["messages"])})
    assert (again.messages, again.tools) == (found.messages, found.tools)


@pytest.mark.parametrize("name", ["Toucan", "Toucan, SFT"])
def test_tools_in_a_templates_markup_are_those_that_are_declared(name: str) -> None:
    row = READ[name][0]
    assert read("openai", row).tools == [TOOL]
    bare = {key: value for key, value in row.items() if key not in ("tools", "available_tools", "metadata")}
    assert read("openai", bare).tools == [TOOL]
    with pytest.raises(RefusedRowError, match="the system turn declares tools in a template's markup"):
        read("openai", {**bare, "tools": [{"name": "other", "parameters": PARAMETERS}]})


def test_other_text_around_such_markup_stays() -> None:
    system = {"role": "system", "content": f"Be kind. {DECLARED}"}
    found = read("openai", {"messages": [system, *CHAT], "tools": TOOLS})
    assert found.messages[0] == system
    assert "the system prompt lists tools as text" in found.remarks[0]


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("{'name': 'w', 'arguments': {1: 2}}", "is not JSON"),
        ("{'name': 'w', 'arguments': (1, 2)}", "which JSON cannot say"),
        ("{'name': 'w', 'arguments': f()}", "is not JSON"),
        ("w(city='Oslo')", "is not JSON"),
        (None, "is missing: there is no call in it"),
        ("[]", "is missing: there is no call in it"),
    ],
)
def test_a_call_that_is_neither_json_nor_pythons_dict_is_refused(written: str | None, reason: str) -> None:
    row = {"messages": [CHAT[0], {"role": "tool_call", "content": written}, CHAT[0]]}
    with pytest.raises(RefusedRowError, match=rf"`messages\[1\].content` .*{reason}"):
        read("openai", row)
