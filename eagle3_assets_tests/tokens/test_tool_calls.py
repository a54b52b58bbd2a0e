"""Calls which are one JSON object, as Qwen3 and Hermes write them: a vocabulary of characters."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.profile import TargetProfile, ToolIds

BEGIN, END, STOP = 200, 201, 202


class Characters:
    """A tokenizer of single characters below 128."""

    def get_vocab(self) -> dict[str, int]:
        return {chr(i): i for i in range(128)}

    def convert_tokens_to_ids(self, tokens: str) -> int:
        return ord(tokens)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:  # noqa: ARG002 - the protocol's
        return [ord(character) for character in text]

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        return {}

    def decode(
        self,
        token_ids: list[int],
        *,
        skip_special_tokens: bool = False,  # noqa: ARG002 - the protocol's
        clean_up_tokenization_spaces: bool = False,  # noqa: ARG002
        spaces_between_special_tokens: bool = False,  # noqa: ARG002
    ) -> str:
        return "".join(map(chr, token_ids))


PROFILE = TargetProfile(
    "hermes",
    300,
    frozenset({STOP}),
    tools=ToolIds(None, BEGIN, None, END, None),
    tool_call_json=True,
    tokens={BEGIN: "<tool_call>", END: "</tool_call>", STOP: "<|im_end|>"},
)


def findings(*bodies: str, after: str = "", between: str = "\n") -> list[tuple[str, int, str]]:
    calls = [[BEGIN, *map(ord, body), END] for body in bodies]
    ids = [i for number, call in enumerate(calls) for i in ([*map(ord, between)] if number else []) + call]
    frame = pl.DataFrame(
        {
            "sample_id": ["s"],
            "output_ids": pl.Series([[*ids, *map(ord, after), STOP]], dtype=pl.List(pl.Int32)),
            "finish_type": ["stop"],
        }
    )
    context = Context(PROFILE, tokenizer=Characters(), declared_tools={"s": ("add", "sub")})
    report = judge_generations([frame], context)
    assert report["tool_call_id"].status == "not_judged"
    return report.findings.select("law", "index", "detail").rows()


def body(name: Any = "add", arguments: Any = None) -> str:
    return json.dumps({"name": name, "arguments": {"a": 1} if arguments is None else arguments})


def test_genuine_calls_break_nothing() -> None:
    assert findings(body()) == []
    assert findings("\n" + body() + "\n", "\n" + body("sub") + "\n") == []


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("bad", "law", "said"),
    [
        (body("mul"), "tool_declared", "calls 'mul', the prompt declares add, sub"),
        (body(arguments="{}"), "tool_arguments_json", "the arguments are a string, not an object: encoded twice"),
        (body()[:-1], "tool_arguments_json", "the call's JSON is not JSON: Expecting ',' delimiter at column 38"),
        ('{"name":"add"}', "tool_arguments_json", "the arguments are null, not an object"),
        ("[1]", "tool_arguments_json", "the arguments are a list, not an object"),
    ],
)
def test_one_bad_call_of_three(bad: str, law: str, said: str, place: int) -> None:
    bodies = [body()] * 3
    bodies[place] = bad
    begin = place * (len(body()) + 3)
    assert findings(*bodies) == [(law, begin + (law == "tool_arguments_json"), said)]


def test_text_after_the_calls() -> None:
    assert [law for law, *_ in findings(body(), body(), after="ok")] == ["tool_order"]


def test_unclosed_call_is_the_grammars_matter() -> None:
    ids = [BEGIN, *map(ord, body()), STOP]
    frame = pl.DataFrame({"sample_id": ["s"], "output_ids": pl.Series([ids], dtype=pl.List(pl.Int32))})
    report = judge_generations([frame], Context(PROFILE, tokenizer=Characters()))
    assert report["tool_arguments_json"].reason == "no output has a whole tool call"
    assert report.findings["law"].to_list() == ["tool_grammar"]
