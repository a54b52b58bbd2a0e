"""The tools that a file's rows declare are what its calls are judged by."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from eagle3_assets.cli import app
from eagle3_assets_tests.audit.conftest import Answered, Audit, reply, write
from eagle3_assets_tests.tokens import kimi

END, STOP = kimi.END_THINK, kimi.IM_END

OPENAI = [
    {"type": "function", "function": {"name": "search", "description": None, "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "get_weather"}},
]
FORMS: dict[str, Any] = {
    "OpenAI's list": OPENAI,
    "its JSON text": json.dumps(OPENAI),
    "names on top": [{"name": "search"}, {"type": "function", "name": "get_weather"}],
}


def output(name: str) -> list[int]:
    """An output that calls this tool."""
    return [END, kimi.SECTION_BEGIN, *kimi.call(0, name), kimi.SECTION_END, STOP]


def declaring(*names: str) -> list[int]:
    """A prompt that shows these tools to the target."""
    shown = [kimi.IM_SYSTEM, kimi.SYSTEM, kimi.IM_MIDDLE, *kimi.letters(" ".join(names)), STOP]
    return [*shown, *kimi.THINKING_PROMPT]


def rows(tools: Any, call: str) -> list[dict[str, Any]]:
    """Nine rows that call what is declared, and one in the middle that calls ``call``."""
    good = [reply(f"g{n}", output("get_weather"), tools=tools) for n in range(9)]
    lines = [*good[:4], reply("s", output(call), tools=tools), *good[4:]]
    for line in lines:
        line["prompt_ids"] = declaring("search", "get_weather")
        line["meta_info"]["prompt_tokens"] = len(line["prompt_ids"])
    return lines


@pytest.fixture
def judged(audit: Audit, tokenizer_directory: Path) -> Any:
    return lambda path: audit(path, options=("--tokenizer", str(tokenizer_directory)))


def law(answered: Answered, name: str) -> dict[str, Any]:
    return next(entry for entry in answered.only["laws"] if entry["name"] == name)


def stored(path: Path, lines: list[dict[str, Any]]) -> Path:
    """As the name says: JSON lines, parquet of objects, or parquet in the contract's own columns."""
    if path.suffix != ".parquet":
        return write(path, *lines)
    frame = pl.DataFrame(lines)
    if path.stem == "columns":
        frame = frame.select("sample_id", "prompt_ids", "output_ids", "tools")
    frame.write_parquet(path)
    return path


@pytest.mark.parametrize("name", ["o.jsonl", "o.jsonl.zst", "objects.parquet", "columns.parquet"])
@pytest.mark.parametrize("form", FORMS)
def test_an_undeclared_tool_is_named(form: str, name: str, tmp_path: Path, judged: Any) -> None:
    whole = judged(stored(tmp_path / name, rows(FORMS[form], "search")))
    assert (law(whole, "tool_declared")["judged"], law(whole, "tool_declared")["violations"]) == (10, 0)
    assert law(whole, "tools_rendered")["judged"] == 10
    answered = judged(stored(tmp_path / name, rows(FORMS[form], "delete_all")))
    told = law(answered, "tool_declared")
    assert (told["judged"], told["violations"], answered.only["findings"]) == (
        10,
        1,
        {"s": {"tool_declared": "warning"}},
    )
    assert told["examples"][0]["line"] == 5
    assert told["examples"][0]["detail"] == "calls 'delete_all', the prompt declares search, get_weather"
    assert (answered.exit_code, answered.only["verdict"]) == (0, "warn")


def test_a_template_that_drops_tools_is_found_out(tmp_path: Path, judged: Any) -> None:
    lines = rows(OPENAI, "search")
    lines[4]["prompt_ids"] = declaring("search")
    lines[4]["meta_info"]["prompt_tokens"] = len(lines[4]["prompt_ids"])
    answered = judged(write(tmp_path / "o.jsonl", *lines))
    assert answered.only["findings"] == {"s": {"tools_rendered": "error"}}
    assert answered.exit_code == 1


def test_no_tool_declared_and_none_recorded_are_not_the_same(tmp_path: Path, judged: Any) -> None:
    recorded: list[Any] = [[], {}, "{}", None, "", "null"]
    lines = [reply(str(n), output("f"), tools=tools) for n, tools in enumerate(recorded)]
    told = law(judged(write(tmp_path / "o.jsonl", *lines)), "tool_declared")
    assert (told["judged"], told["violations"]) == (3, 3)
    assert {example["detail"] for example in told["examples"]} == {"calls 'f', the prompt declares no tool"}


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (3, "is no list"),
        ("search", "is not JSON"),
        ("[", "is not JSON"),
        ({"search": {}}, "is no list"),
        (json.dumps("[]"), "is no list"),
        (["search"], "tool 1 of 1 has no name"),
        ([OPENAI[0], {"type": "web_search"}], "tool 2 of 2 has no name"),
        ([{"function": {"name": 3}}], "tool 1 of 1 has no name"),
        ([{"function": "search"}], "tool 1 of 1 has no name"),
        ('[{"name": "a", "name": "b"}]', "twice"),
        ("[" * 100_000, "nested"),
        ('[{"name": "\\ud800"}]', "surrogate"),
    ],
)
def test_tools_that_cannot_be_read_leave_the_ids_judged(tools: Any, said: str, tmp_path: Path, judged: Any) -> None:
    path = write(tmp_path / "o.jsonl", reply("odd", output("f"), tools=tools), reply("s", output("f"), tools=OPENAI))
    answered = judged(path)
    told = law(answered, "tool_declared")
    assert (told["judged"], told["violations"], answered.only["refused"]) == (1, 1, [])
    assert answered.only["samples"]["failed"] == 1  # the prompt names no tool
    [example] = [e for e in told["examples"] if e["sample_id"] == "odd"]
    assert example["detail"].startswith("its tools cannot be read: ")
    assert said in example["detail"]
    assert answered.only["findings"]["odd"] == {"tool_declared": "warning"}


def test_half_a_pair_in_tools_reaches_no_terminal(tmp_path: Path, tokenizer_directory: Path) -> None:
    path = write(tmp_path / "o.jsonl", reply("s", output("f"), tools=[{"name": "\ud800\x1b\u202e"}]))
    shown = CliRunner().invoke(app, ["audit", str(path), "--tokenizer", str(tokenizer_directory)])
    assert "tool_declared" in shown.stdout
    assert not {"\x1b", "\u202e", "\ud800"} & set(shown.stdout)
