"""Real function-calling rows through reading, rendering and tokenizing: all accounted for, tools in every prompt."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from eagle3_assets.config import Dataset
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.prompts.inert import declared_tools, inert_rows, unrendered
from eagle3_assets.prompts.render import rendered_modes, tokenize_rows
from eagle3_assets.prompts.rows import PromptRows, read_partition
from eagle3_assets.target import load_tokenizer
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_prompts
from eagle3_assets.tokens.profile import resolve_profile
from eagle3_assets_tests import bfcl
from eagle3_assets_tests.conftest import DEMO, write_jsonl
from eagle3_assets_tests.real_tokenizers.test_real_tokenizers import packages
from eagle3_assets_tests.tokens import kimi

pytestmark = pytest.mark.tokenizers

__all__ = ["packages"]

DEMO_TEMPLATE = (DEMO / "chat_template.jinja").read_text(encoding="utf-8")
JSON_SCHEMA_TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}


@pytest.fixture(scope="session")
def rows() -> list[dict[str, Any]]:
    data = bfcl.fetched()
    single = [row for name in bfcl.SINGLE for row in bfcl.one_turn(data, name)]
    return single + [row for name in bfcl.SEVERAL_TURNS for row in bfcl.several_turns(data, name)]


@pytest.fixture(scope="session")
def found(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> PromptRows:
    """The rows as a source, read as ``prompts`` reads one."""
    source = write_jsonl(tmp_path_factory.mktemp("bfcl") / "rows.jsonl", rows)
    return read_partition(dataset_partitions(Dataset(name="d", source=str(source)))[0], 20)


@pytest.fixture(scope="session")
def prompts(found: PromptRows) -> pl.DataFrame:
    """The prompts that were made of them."""
    return found.rows


@pytest.fixture(scope="session", params=["demo", "qwen3", "kimi"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, int, str | None]:
    """A tokenizer, its vocabulary's size, and a template where the tokenizer has none."""
    if request.param == "demo":
        return load_tokenizer(DEMO / "model", trust_remote_code=False), 2048, DEMO_TEMPLATE
    if request.param == "qwen3":
        [source] = request.getfixturevalue("packages").glob("qwen3-*")
        return load_tokenizer(source, trust_remote_code=False), 151_936, None
    directory: Path = tmp_path_factory.mktemp("kimi")
    kimi.save_tokenizer(directory)
    return kimi.load_tokenizer(directory), kimi.VOCAB_SIZE, DEMO_TEMPLATE


def test_every_row_is_told_read_and_accounted_for(rows: list[dict[str, Any]], found: PromptRows) -> None:
    assert [file.format for file in found.files] == ["openai"]
    accounts = found.accounts
    assert (accounts.rows, accounts.used, accounts.refused, accounts.unaccounted) == (4041, 4041, 0, 0), found.refused
    assert found.rows["sample_id"].to_list() == [f"{row['id']}:{len(row['messages'])}:0" for row in rows]
    assert sum(any("tool_calls" in message for message in row["messages"]) for row in rows) > 300


def test_the_types_of_every_tool_are_json_schemas(prompts: pl.DataFrame) -> None:
    def types(schema: Any) -> set[str]:
        found = {str(schema["type"])} if "type" in schema else set()
        for inner in [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]:
            found |= types(inner) if isinstance(inner, dict) else set()
        return found

    tools = [tool for text in prompts["tools"].drop_nulls().unique() for tool in json.loads(text)]
    assert set().union(*(types(tool["function"]["parameters"]) for tool in tools)) <= JSON_SCHEMA_TYPES


def test_every_law_of_prompts_speaks_and_none_is_broken(
    prompts: pl.DataFrame, target: tuple[Any, int, str | None]
) -> None:
    tokenizer, vocab_size, template = target
    profile = resolve_profile(
        tokenizer, vocab_size=vocab_size, rendered=rendered_modes(tokenizer, chat_template=template)
    )

    def tokenized(rows: pl.DataFrame) -> pl.DataFrame:
        return tokenize_rows(tokenizer, rows, thinking=True, chat_template=template, call_id=profile.tool_call_id)

    found = tokenized(prompts)
    assert found["status"].unique().to_list() == ["ready"], found["reason"].unique().to_list()
    assert found["sample_id"].to_list() == prompts["sample_id"].to_list()
    end = profile.reasoning_end
    inert = inert_rows(prompts, None if end is None else profile.tokens.get(end))
    twins = tokenized(inert).select("sample_id", "prompt_ids")
    lost = [
        unrendered(messages, tokenizer.decode(ids))
        for messages, ids in zip(inert["messages"], twins["prompt_ids"], strict=True)
    ]
    some = prompts.head(300)
    context = Context(
        profile,
        tokenizer=tokenizer,
        rerendered_prompts=tokenized(some).select("sample_id", "prompt_ids"),
        declared_tools=declared_tools(prompts),
        source_sample_ids=frozenset(prompts["sample_id"]),
    ).with_inert_prompts([twins.with_columns(unrendered=pl.Series(lost, dtype=pl.List(pl.String)))])
    verdicts = {verdict.law.name: verdict for verdict in judge_prompts([found], context).verdicts}
    judged = {name for name, verdict in verdicts.items() if verdict.status != "not_judged"}
    assert {"prompt_reproducible", "prompt_suffix", "prompt_injection", "tools_rendered", "messages_rendered"} <= judged
    assert {name for name, verdict in verdicts.items() if verdict.violations} == set()

    with_calls = (
        prompts.with_columns(found["prompt_ids"]).filter(pl.col("messages").str.contains('"tool_calls":')).head(20)
    )
    for messages, ids in with_calls.select("messages", "prompt_ids").iter_rows():
        calls = [call["function"] for message in json.loads(messages) for call in message.get("tool_calls", ())]
        text = tokenizer.decode(ids)
        for call in calls:
            assert call["name"] in text
            assert json.dumps(call["arguments"], ensure_ascii=False) in text
