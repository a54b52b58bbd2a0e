"""The conversation makers: the same seed gives the same, and the demo prompts stay out of training."""

import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from eagle3_assets.demo import reasoning_talk, tool_talk
from eagle3_assets.demo.corpus import KINDS, PROMPTS_DIR, demo_prompt_texts, make_samples
from eagle3_assets.demo.evaluate import held_out_cases
from eagle3_assets.demo.make_prompts import write_prompts
from eagle3_assets.demo.samples import Call
from eagle3_assets.demo.train import Recipe


def test_the_same_seed_makes_the_same_conversations() -> None:
    first, second, other = (list(islice(make_samples(seed), 200)) for seed in (4, 4, 5))
    assert first == second
    assert first != other
    assert {sample.kind for sample in first} == set(KINDS)


def test_demo_prompts_are_not_trained_on() -> None:
    held_out = demo_prompt_texts()
    assert len(held_out) == 120
    trained = {sample.text_key() for sample in islice(make_samples(Recipe().seed, held_out=held_out), 20_000)}
    assert not trained & held_out
    # The guard is not idle: without it some of them would have been.
    assert {sample.text_key() for sample in islice(make_samples(Recipe().seed), 20_000)} & held_out


def test_committed_prompts_are_those_of_the_script(tmp_path: Path) -> None:
    write_prompts(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        assert path.read_text(encoding="utf-8") == (PROMPTS_DIR / path.name).read_text(encoding="utf-8")


def test_prompt_rows_have_the_promised_shape() -> None:
    expected = json.loads((PROMPTS_DIR / "expected.json").read_text(encoding="utf-8"))
    rows = {
        kind: [json.loads(line) for line in (PROMPTS_DIR / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()]
        for kind in KINDS
    }
    assert all(len(kind_rows) == 40 for kind_rows in rows.values())
    assert {row["id"] for kind_rows in rows.values() for row in kind_rows} == set(expected)
    tool_rows = rows["function_calling"]
    assert all(row["tools"] for row in tool_rows)
    assert any(len(row["tools"]) > 2 for row in tool_rows)
    assert any(message["role"] == "tool" for row in tool_rows for message in row["messages"])
    assert any(len(expected[row["id"]]["calls"]) > 1 for row in tool_rows)
    assert any(row["messages"][0]["role"] == "system" for row in rows["chat"])
    assert not any("tools" in row for kind in ("reasoning", "chat") for row in rows[kind])


def test_held_out_cases_ask_for_both_modes() -> None:
    assert {case.thinking for case in held_out_cases()} == {True, False}


def arguments_fit(call: Call, schema: dict[str, Any]) -> bool:
    types = {"string": str, "integer": int}
    properties, required = schema["parameters"]["properties"], schema["parameters"]["required"]
    known = all(isinstance(value, types[properties[name]["type"]]) for name, value in call.arguments.items())
    return known and set(required) <= set(call.arguments)


def test_right_calls_fit_their_schema_and_the_text() -> None:
    rng = random.Random(1)  # noqa: S311
    for _ in range(500):
        sample = tool_talk.make(rng)
        schemas = {tool["function"]["name"]: tool["function"] for tool in sample.tools}
        for call in sample.turn.calls:
            assert arguments_fit(call, schemas[call.name])
            assert all(str(value) in sample.messages[-1]["content"] for value in call.arguments.values())


@pytest.mark.parametrize("seed", range(3))
def test_worked_sums_are_right(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    for _ in range(300):
        sample = reasoning_talk.make(rng)
        text = sample.messages[0]["content"]
        if " + " in text or " - " in text:
            term = (
                text.rstrip("?.").removesuffix(" for me").split(" ", 1)[1].removeprefix("is ").removeprefix("work out ")
            )
            term = "".join(character for character in term if character in "0123456789+- ").strip()
            total = sum(int(part) for part in term.replace("- ", "-").replace("+ ", "").split())
            assert sample.turn.content == f"{term} = {total}"
