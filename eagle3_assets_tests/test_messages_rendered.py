"""Chat templates that drop messages without a word, on real conversations and the demo target's tokenizer."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from eagle3_assets.judging import judge_tokenized, tokenize
from eagle3_assets.sourcing import take_prompts
from eagle3_assets.target import load_target
from eagle3_assets_tests.conftest import DEMO, ProjectMaker

# Its id is what Kimi's template shows of a call, in place of the name.
CALL = {
    "type": "function",
    "id": "functions.get_weather:0",
    "function": {"name": "get_weather", "arguments": {"city": "Oslo"}},
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
ROWS: list[dict[str, Any]] = [
    {
        "id": "agent",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Cold in Oslo?"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "-3"},
            {"role": "assistant", "content": "Yes.", "reasoning_content": "Minus three."},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [TOOL],
    },
    {"id": "plain", "messages": [{"role": "user", "content": "Hello"}]},
    {"id": "brief", "messages": [{"role": "system", "content": "Hello"}, {"role": "user", "content": "Hello"}]},
]
LOOP = "{%- for message in messages -%}\n"
TEMPLATE = (DEMO / "model" / "chat_template.jinja").read_text(encoding="utf-8")

DROPPING = {
    "tool results": ("{%- for message in messages if message.role != 'tool' -%}", {"agent": "message 3 (tool)"}),
    "system turns": (
        "{%- for message in messages if message.role != 'system' -%}",
        {"agent": "message 0 (system)", "brief": "message 0 (system)"},
    ),
    "all but the last": ("{%- for message in messages[-3:] -%}", {"agent": "message 0 (system), message 1 (user)"}),
    "a middle turn": (
        "{%- for message in messages[:4] + messages[5:] -%}",
        {"agent": "message 4 (assistant)"},
    ),
}


@pytest.mark.parametrize("name", DROPPING)
def test_a_template_that_drops_messages(name: str, make_project: ProjectMaker, tmp_path: Path) -> None:
    loop, lost = DROPPING[name]
    assert TEMPLATE.count(LOOP) == 1
    (tmp_path / "dropping.jinja").write_text(TEMPLATE.replace(LOOP, f"{loop}\n"), encoding="utf-8")
    settings = {"model": "demo", "chat_template": "dropping.jinja"}
    reasons = made(make_project(ROWS, target=settings))
    for sample, reason in reasons.items():
        said = lost.get(sample.split(":")[0])
        assert (reason is None) == (said is None), sample
        assert reason is None or reason.startswith(f"law messages_rendered: nothing is in the prompt of {said}")
    lowered = make_project(ROWS, target=settings, law_effects={"messages_rendered": "warn"})
    assert set(made(lowered).values()) == {None}


def test_a_template_that_puts_the_system_prompt_into_a_last_user_message_only(
    make_project: ProjectMaker, tmp_path: Path
) -> None:
    """As Mistral's v2 and v3 templates do: behind a tool's result there is no last user message, and it is gone."""
    loop = "{%- for message in messages if message.role != 'system' or messages[-1].role == 'user' -%}\n"
    (tmp_path / "moving.jinja").write_text(TEMPLATE.replace(LOOP, loop), encoding="utf-8")
    agent = ROWS[0]["messages"]
    rows = [{"id": "asks", "messages": agent[:2]}, {"id": "calls", "messages": agent[:4], "tools": [TOOL]}]
    settings = {"model": "demo", "chat_template": "moving.jinja"}
    reasons = made(make_project(rows, target=settings))
    assert reasons["asks:2:0"] is None
    assert reasons["calls:4:0"] == "law messages_rendered: nothing is in the prompt of message 0 (system)"
    lowered = make_project(rows, target=settings, law_effects={"messages_rendered": "warn"})
    assert set(made(lowered).values()) == {None}


def test_the_targets_own_template_drops_nothing(make_project: ProjectMaker) -> None:
    project = make_project(ROWS)
    partition, target = project.partition("d"), load_target(project.config.target)
    prompts = take_prompts(project, partition)[0].rows
    tokenized = tokenize(project, partition, target, prompts)
    assert tokenized["reason"].to_list() == [None, None, None]
    report = judge_tokenized(project, partition, target, prompts.lazy(), tokenized.lazy()).report
    assert (report["messages_rendered"].status, report["messages_rendered"].judged) == ("passed", 3)


def made(project: Any) -> dict[str, str | None]:
    """Why each prompt is refused."""
    partition = project.partition("d")
    rows: pl.DataFrame = take_prompts(project, partition)[0].rows
    tokenized = tokenize(project, partition, load_target(project.config.target), rows)
    return dict(tokenized.select("sample_id", "reason").iter_rows())
