"""Chat completions, which have no ids: what the command says of them."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from eagle3_assets.cli import app
from eagle3_assets_tests.audit.conftest import Audit, genuine_lines, many_good, write

USER = {"role": "user", "content": "hello"}
CALL = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def turn(content: str | None, **fields: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "content": content, **fields}]}


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        (turn("<think>a</think>b"), {"reasoning_in_content", "whitespace_stripped"}),
        (turn(" b\n", reasoning_content=None), {"reasoning_null"}),
        (turn("b", reasoning_content="a"), {"reasoning_split_off", "whitespace_stripped"}),
        (turn("b ", reasoning="a\n"), {"reasoning_split_off"}),
        (turn("b "), {"reasoning_absent"}),
        (turn(None, tool_calls=[CALL]), {"reasoning_absent", "tool_markup_parsed"}),
        (turn("<|tool_calls_section_begin|> "), {"reasoning_absent", "tool_markup_in_content"}),
        (turn(None), {"reasoning_absent", "content_empty"}),
        (turn("caf\ufffd "), {"reasoning_absent", "broken_characters"}),
        (turn([{"type": "text", "text": "b "}]), {"reasoning_absent"}),  # type: ignore[arg-type] # another form
        ({"choices": [{"message": {"role": "assistant", "content": "b "}}]}, {"reasoning_absent"}),
        ({"custom_id": "1", "response": {"body": {"choices": [{"message": {"content": "b "}}]}}}, {"reasoning_absent"}),
    ],
)
def test_what_a_turn_has_lost(line: dict[str, Any], lost: set[str], tmp_path: Path, audit: Audit) -> None:
    answered = audit(write(tmp_path / "chat.jsonl", line, line))
    assert (answered.exit_code, answered.only["verdict"]) == (2, "nothing_judged")
    assert "is a chat completion" in answered.only["refused"][0]["reason"]
    told = answered.only["chat_completions"]
    assert (told["lines"], told["turns"], told["retokenization"]) == (2, 2, None)
    assert {name: count for name, count in told["lost"].items() if count} == dict.fromkeys(lost | {"token_ids"}, 2)


def test_a_tokenizer_tells_what_cannot_be_made_again(tmp_path: Path, audit: Audit, tokenizer_directory: Path) -> None:
    def counted(content: str, tokens: int) -> dict[str, Any]:
        return {"choices": [{"message": {"content": content}}], "usage": {"completion_tokens": tokens}}

    path = write(
        tmp_path / "chat.jsonl",
        counted("abc ", 5),
        counted("abc ", 9),
        counted("abc ", 3),
        turn("abc\ufffd"),
        turn("abc", tool_calls=[CALL]),
        turn("half a pair \ud800"),
        turn("abc"),
    )
    answered = audit(path, options=("--tokenizer", str(tokenizer_directory)))
    assert answered.exit_code == 2
    again = answered.only["chat_completions"]["retokenization"]
    assert (again["turns"], again["unfaithful"], again["cannot_be_told"]) == (7, 5, 2)
    assert again["reasons"] == {"parsed": 1, "broken_characters": 1, "text_changes": 1, "count_differs": 2}
    shown = CliRunner().invoke(app, ["audit", str(path), "--tokenizer", str(tokenizer_directory)])
    assert "5 of 7 turns cannot be tokenized again faithfully" in shown.stdout


def test_lines_with_ids_are_judged_beside_chat_completions(tmp_path: Path, audit: Audit) -> None:
    answered = audit(write(tmp_path / "mixed.jsonl", *many_good(100), turn("b")))
    assert (answered.exit_code, answered.only["verdict"]) == (0, "warn")
    assert answered.only["chat_completions"]["lines"] == 1


def test_messages_beside_ids_are_no_chat_completion(tmp_path: Path, audit: Audit) -> None:
    answered = audit(write(tmp_path / "o.jsonl", *[line | turn("b") for line in genuine_lines()]))
    assert answered.only["verdict"] == "pass"
    assert "chat_completions" not in answered.only
