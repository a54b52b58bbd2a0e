"""Every key of a row is read, known to be about the row, counted by its name, or refused: in every format."""

import json
from typing import Any

import pytest

from eagle3_assets.prompts.dialogue import RefusedRowError
from eagle3_assets.prompts.formats import read
from eagle3_assets.prompts.formats.row_keys import without_keys

ASKED = "Is it cold in Oslo today?"
TOOL = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
DECLARED = [{"type": "function", "function": TOOL}]

FORMATS: dict[str, dict[str, Any]] = {
    "openai": {"messages": [{"role": "user", "content": ASKED}]},
    "sharegpt": {"conversations": [{"from": "human", "value": ASKED}]},
    "glaive": {"chat": f"USER: {ASKED}"},
    "alpaca": {"instruction": ASKED, "output": "Yes."},
    "plain": {"prompt": ASKED},
}
CONVERSATIONS = ("openai", "sharegpt", "glaive")
ONE_PROMPT = ("alpaca", "plain")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("key", ["tools_json", "tool_list", "tool_definitions", "available_functions"])
def test_tools_are_read_under_the_usual_names(kind: str, key: str) -> None:
    found = read(kind, {**FORMATS[kind], key: json.dumps([TOOL])})
    assert (found.tools, found.unread) == (DECLARED, ())


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("holder", ["metadata", "extra", "extra_info"])
def test_tools_are_read_in_an_object_beside_the_prompt(kind: str, holder: str) -> None:
    for beside in ({"tools": [TOOL]}, json.dumps({"tools": json.dumps([TOOL])})):
        found = read(kind, {**FORMATS[kind], holder: beside})
        assert (found.tools, found.unread) == (DECLARED, ())
    found = read(kind, {**FORMATS[kind], holder: {"tools": ["f"], "source": "s"}})
    assert (found.tools, found.unread) == (None, (f"{holder}.tools",)), "names of tools that were used declare none"


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"apis": [{"api_name": "f"}]},
        "`apis` may declare tools, and is not read: call it `tools`, or leave it out with the",
    ),
    ({"tool": TOOL}, "`tool` may declare tools"),
    ({"custom_tools": json.dumps([{"f": {}}])}, "`custom_tools` may declare tools"),
    ({"spec": {"of": [TOOL]}}, "`spec` may declare tools"),
    ({"spec": json.dumps([TOOL])}, "`spec` may declare tools"),
    ({"spec": [{"function_declarations": [{"name": "f"}]}]}, "`spec` may declare tools"),
    ({"metadata": {"apis": [TOOL]}}, "`metadata.apis` may declare tools"),
    ({"metadata": {"system_prompt": "Be brief."}}, "`metadata.system_prompt` may be a system prompt"),
    ({"sys_prompt": "Be brief."}, "`sys_prompt` may be a system prompt, and is not read: call it `system`"),
    ({"systemInstruction": "Be brief."}, "`systemInstruction` may be a system prompt"),
    ({"instructions": "Be brief."}, "`instructions` may be a system prompt"),
    ({"chat_template_kwargs": {"documents": ["d"]}}, "`chat_template_kwargs.documents` is there"),
    ({"chat_template_kwargs": {"system_prompt": "Be brief."}}, "`chat_template_kwargs.system_prompt` is there"),
    ({"documents": ["It snows."]}, "`documents` is there, and its text is not in the prompt, which would lose it"),
    ({"retrieved_documents": [{"text": "It snows."}]}, "`retrieved_documents` is there, and its text"),
    ({"story": "It snows."}, "`story` is there, and its text"),
    ({"article": "It snows."}, "`article` is there, and its text"),
    ({"passage": "It snows."}, "`passage` is there, and its text"),
    ({"attachments": [{"name": "a.pdf", "text": "It snows."}]}, "`attachments` is there, and its text"),
    ({"image_path": "oslo.png"}, "`image_path` is there: only text is supported"),
]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("beside", "reason"), REFUSED, ids=[str(beside) for beside, _ in REFUSED])
def test_what_the_target_would_have_to_see_is_refused_by_name(kind: str, beside: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedRowError) as refused:
        read(kind, {**FORMATS[kind], **beside})
    assert reason in str(refused.value)


@pytest.mark.parametrize("kind", CONVERSATIONS)
def test_a_context_beside_a_conversation_is_refused(kind: str) -> None:
    with pytest.raises(RefusedRowError, match="`context` is there, and its text is not in the prompt"):
        read(kind, {**FORMATS[kind], "context": "It snows."})


PARTS: dict[str, Any] = {
    "starter_code": "class Solution: ...",
    "table": [[1, 2]],
    "options": {"x": "warm"},
    "choices": ["warm", "hot"],
    "query": "Why?",
    "inputs": "Norway",
    "option_a": "warm",
    "B": 5,
    "schema": "CREATE TABLE t",
    "sentence": "It snows.",
    "evidence": "It snows.",
    "retrieved_chunks": ["It snows."],
    "knowledge": "It snows.",
    "previous_messages": [{"role": "user", "content": "Why?"}],
    "prior_answer": "It snows.",
    "messages": [{"role": "user", "content": "Why?"}],
}


@pytest.mark.parametrize("key", PARTS)
def test_a_part_of_the_question_is_refused_where_the_prompt_is_one_text(key: str) -> None:
    for kind in ONE_PROMPT:
        with pytest.raises(
            RefusedRowError, match=f"`{key}` is there, and its text|`prompt` and `{key}` are both there"
        ):
            read(kind, {**FORMATS[kind], key: PARTS[key]})
    if key != "messages":
        for kind in CONVERSATIONS:
            assert read(kind, {**FORMATS[kind], key: PARTS[key]}).unread == (key,)


def test_what_the_prompt_has_already_is_not_lost() -> None:
    prompt = "It snows.\nIs it\n warm or 3 degrees?"
    beside = {"context": "It  snows.", "question": "Is it warm or 3 degrees?", "choices": ["warm", 3], "A": '["warm"]'}
    for kind in ("plain", "alpaca"):
        key = "prompt" if kind == "plain" else "instruction"
        held = {name: value for name, value in beside.items() if kind == "plain" or name != "context"}
        found = read(kind, {key: prompt, **held})
        assert (found.messages, found.unread, found.remarks) == ([{"role": "user", "content": prompt}], (), ())
    found = read("openai", {"messages": [{"role": "user", "content": prompt}], **beside, "system_prompt": ""})
    assert (found.unread, found.remarks) == ((), ())
    with pytest.raises(RefusedRowError, match="`choices` is there"):
        read("plain", {"prompt": "Is it warmer?", "choices": ["warm"]})


@pytest.mark.parametrize("kind", ONE_PROMPT)
@pytest.mark.parametrize("beside", [{"turns": 1}, {"previous_message_id": "m"}, {"api_metadata": {"total_tokens": 5}}])
def test_what_is_about_the_row_is_counted(kind: str, beside: dict[str, Any]) -> None:
    assert read(kind, {**FORMATS[kind], **beside}).unread == tuple(beside)


def test_modes_of_a_rows_template_are_counted() -> None:
    given = {"enable_thinking": False, "reasoning_effort": "low", "custom_instructions": "Be kind.", "tools": []}
    found = read("openai", {**FORMATS["openai"], "chat_template_kwargs": given})
    assert found.unread == ("chat_template_kwargs.enable_thinking", "chat_template_kwargs.reasoning_effort")


@pytest.mark.parametrize("as_text", [False, True])
def test_keys_are_left_out_where_the_dataset_says_so(as_text: bool) -> None:
    beside: dict[str, Any] = {"of": 1, "tools": [TOOL]}
    messages: Any = [{"role": "user", "content": ASKED, "thought": "Hm.", "calls": [{"output": 1, "of": 2}]}]
    row: Any = {"story": "x", "a.b": "y", "metadata": beside, "messages": messages, "other": "z", "note": "x.y"}
    if as_text:
        row |= {"metadata": json.dumps(beside), "messages": json.dumps(messages)}
    ignored = ["story", "a.b", "metadata.tools", "messages[].thought", "messages[].calls[].output", "none.x", "note.x"]
    assert without_keys(row, ignored) == {
        "metadata": {"of": 1},
        "messages": [{"role": "user", "content": ASKED, "calls": [{"of": 2}]}],
        "other": "z",
        "note": "x.y",
    }
    assert without_keys("a text", ignored) == "a text"
    assert row["story"] == "x"


MADE_ROWS: dict[str, dict[str, Any]] = {
    "Magpie": {
        "instruction": ASKED,
        "response": "Yes.",
        "knowledge": "To answer, one must know Oslo.",
        "reward_model": "r",
    },
    "Toucan": {
        "available_tools": json.dumps([TOOL]),
        "target_tools": json.dumps([TOOL]),
        "metadata": json.dumps({"mcp_servers": [{"remote_server_response": {"tools": [TOOL]}}]}),
    },
    "SWE-smith": {"image_name": "swesmith/x", "FAIL_TO_PASS": ["t"], "patch": "diff", "problem_statement": "bug"},
    "reinforcement learning": {"data_source": "d", "ability": "math", "reward_model": {"style": "rule"}},
}


@pytest.mark.parametrize("name", MADE_ROWS)
@pytest.mark.parametrize("kind", ["openai", "sharegpt"])
def test_rows_of_well_known_sets_are_taken(name: str, kind: str) -> None:
    found = read(kind, {**FORMATS[kind], **MADE_ROWS[name]})
    assert found.remarks == ()
    assert (found.tools is not None) == ("available_tools" in MADE_ROWS[name])


def test_what_only_the_answer_has_is_lost() -> None:
    said = "It snows, so it is cold."
    rows: dict[str, dict[str, Any]] = {
        "alpaca": {"instruction": ASKED, "output": said},
        "openai": {"messages": [*FORMATS["openai"]["messages"], {"role": "assistant", "content": said}]},
    }
    for kind, row in rows.items():
        with pytest.raises(RefusedRowError, match="`story` is there, and its text is not in the prompt"):
            read(kind, {**row, "story": said})


@pytest.mark.parametrize("key", ["prompt", "instruction", "question", "problem", "input"])
@pytest.mark.parametrize("kind", ["openai", "sharegpt"])
def test_another_prompt_beside_a_conversation_is_remarked_on(key: str, kind: str) -> None:
    found = read(kind, {**FORMATS[kind], key: "Is it warm?"})
    assert found.remarks == (f"`{key}` says what no message says, and is not read",)
    assert found.unread == (key,)
    found = read(kind, {**FORMATS[kind], key: " Is it cold\nin Oslo today? "})
    assert (found.remarks, found.unread) == ((), ())


def test_the_conversation_as_it_was_rendered_says_nothing_new() -> None:
    rendered = f"Below is an instruction.\n\n### Instruction:\n{ASKED}\n\n### Response:\nYes."
    for kind in ("openai", "alpaca"):
        found = read(kind, {**FORMATS[kind], "text": rendered})
        assert (found.remarks, found.unread) == ((), ())
    with pytest.raises(RefusedRowError, match="`text` is there, and its text is not in the prompt"):
        read("alpaca", {**FORMATS["alpaca"], "text": rendered.replace("Oslo", "Rome")})


@pytest.mark.parametrize("kind", FORMATS)
def test_other_keys_are_counted_and_those_about_the_row_are_not(kind: str) -> None:
    about = {"source": "s", "score": 3.5, "answer": "Yes.", "tags": ["t"], "tool_choice": "auto", "num_tokens": 7}
    other = {"patch": "diff", "intent": {"x": [1]}, "num_documents": 4, "function": "add", "metadata": {"of": "x"}}
    silent: dict[str, Any] = {"notes": None, "empty": {"a": [""]}, "images": []}
    found = read(kind, {**FORMATS[kind], **about, **other, **silent})
    assert found.unread == ("patch", "intent", "num_documents", "function", "metadata.of")
    assert found.remarks == ()
    assert read(kind, {**FORMATS[kind], "metadata": "not an object"}).unread == ("metadata",)


TRAJECTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Fix it.", "agent": "main", "message_type": "system_prompt"},
    {"role": "user", "content": [{"type": "text", "text": "The bug"}], "agent": "main", "is_demo": False},
    {
        "role": "assistant",
        "content": "I look.",
        "thought": "I look.",
        "action": "bash ls",
        "agent": "main",
        "tool_calls": [
            {"function": {"name": "bash", "arguments": '{"command": "ls"}'}, "id": "t1", "type": "function"}
        ],
        "message_type": "action",
        "info": {"think_content": "I look."},
    },
    {
        "role": "tool",
        "content": [{"type": "text", "text": "a.py", "cache_control": {"type": "ephemeral"}}],
        "tool_call_ids": ["t1"],
        "agent": "main",
        "message_type": "observation",
    },
]


def test_trajectories_of_agents_are_read_with_their_notes_counted() -> None:
    found = read("openai", {"messages": json.dumps(TRAJECTORY), "tools": [TOOL], "instance_id": "i"})
    assert found.messages[1:] == [
        {"role": "user", "content": "The bug"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}, "id": "t1"}
            ],
        },
        {"role": "tool", "content": "a.py", "tool_call_id": "t1"},
    ]
    noted = ("agent", "message_type", "is_demo", "thought", "action", "info")
    assert found.unread == (*(f"messages[].{key}" for key in noted), "instance_id")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("thought", "which is not known and would be lost: write it as `reasoning_content` or in `content`, or leave"),
        ("action", "which is not known and would be lost: write it as `tool_calls` or in `content`, or leave it out"),
        ("observation", "which is not known and would be lost: write it into `content`, or leave it out"),
    ],
)
def test_text_of_a_message_that_it_does_not_say_is_refused_with_a_way_on(key: str, reason: str) -> None:
    messages = [TRAJECTORY[1], {"role": "assistant", "content": "I look.", key: "rm a.py"}, TRAJECTORY[1]]
    with pytest.raises(RefusedRowError) as refused:
        read("openai", {"messages": messages})
    assert f"`messages[1]` has '{key}', {reason}" in str(refused.value)


@pytest.mark.parametrize("place", ["tools_text", "metadata.my_tools"])
def test_a_tool_of_which_the_conversation_has_the_name_alone_is_lost(place: str) -> None:
    called = {"name": "get_time", "arguments": "{}"}
    messages = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "function_call": called},
        {"role": "function", "name": "get_time", "content": "12:00"},
    ]
    declared = [{"name": "get_time"}]
    holder, _, key = place.rpartition(".")
    row = {"messages": messages, **({holder: {key: declared}} if holder else {key: declared})}
    with pytest.raises(RefusedRowError, match=f"`{place}` may declare tools"):
        read("openai", row)
    told = {"role": "system", "content": "You have get_time."}
    read("openai", {**row, "messages": [told, *messages]})
