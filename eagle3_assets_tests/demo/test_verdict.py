"""Reading one generation: every way in which it can be malformed is named."""

from collections.abc import Sequence

import pytest

from eagle3_assets.demo.samples import Call, Turn
from eagle3_assets.demo.tokenizer import STRUCTURAL
from eagle3_assets.demo.verdict import MalformedError, Piece, read_turn, says_the_same

BEGIN, CALL, ARGUMENTS, END, SECTION_END = STRUCTURAL[7:12]
STOP = "<|im_end|>"


def call(call_id: str = "functions.f:0", arguments: str = '{"a": 1}') -> list[str]:
    return [CALL, call_id, ARGUMENTS, arguments, END]


def read(*texts: str, thinking: bool = True, first_call: int = 0) -> Turn:
    pieces = [Piece(text in STRUCTURAL, text) for text in texts]
    return read_turn(pieces, thinking=thinking, declared=["f"], first_call=first_call)


def test_an_answer() -> None:
    assert read("so", "</think>", "yes", STOP) == Turn("so", "yes")
    assert read("yes", STOP, thinking=False) == Turn("", "yes")


def test_calls_with_and_without_words() -> None:
    wanted = (Call("f", {"a": 1}), Call("f", {}))
    section = [BEGIN, *call(), *call("functions.f:1", "{}"), SECTION_END, STOP]
    assert read("r", "</think>", *section) == Turn("r", "", wanted)
    assert read("r", "</think>", "look", *section) == Turn("r", "look", wanted)


def test_call_numbers_count_on_from_the_history() -> None:
    assert read(BEGIN, *call("functions.f:3"), SECTION_END, STOP, thinking=False, first_call=3).calls == (
        Call("f", {"a": 1}),
    )


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ([], "empty reasoning"),
        ([" ", "</think>", "yes", STOP], "empty reasoning"),
        (["r"], "'the end' where </think>"),
        (["r", "</think>", "x", "</think>", "yes", STOP], "'</think>' where <|im_end|>"),
        (["r", "<think>", "</think>", "yes", STOP], "'<think>' where </think>"),
        (["r", "</think>", STOP], "neither answer nor calls"),
        (["r", "</think>", "yes"], "'the end' where <|im_end|>"),
        (["r", "</think>", "yes", STOP, "more"], "after the stop token"),
        (["r", "</think>", BEGIN, SECTION_END, STOP], "without calls"),
        (["r", "</think>", BEGIN, *call(), STOP], f"where {SECTION_END.replace('|', '.')}"),
        (["r", "</think>", BEGIN, *call()[:-1], SECTION_END, STOP], "where <.tool_call_end.>"),
        (["r", "</think>", BEGIN, *call("functions.f"), SECTION_END, STOP], "call id"),
        (["r", "</think>", BEGIN, *call("functions.f:1"), SECTION_END, STOP], "expected number 0"),
        (["r", "</think>", BEGIN, *call("functions.g:0"), SECTION_END, STOP], "'g' is not declared"),
        (["r", "</think>", BEGIN, *call(arguments='{"a"'), SECTION_END, STOP], "not JSON"),
        (["r", "</think>", BEGIN, *call(arguments="[1]"), SECTION_END, STOP], "no object"),
    ],
)
def test_what_is_malformed_is_named(texts: Sequence[str], complaint: str) -> None:
    with pytest.raises(MalformedError, match=complaint.replace("|", ".")):
        read(*texts)


def test_says_the_same_compares_calls_before_words() -> None:
    wanted = Turn("", "", (Call("f", {"a": 1}),))
    assert says_the_same(Turn("x", "lead", (Call("f", {"a": 1}),)), wanted)
    assert not says_the_same(Turn("x", "", (Call("f", {"a": 2}),)), wanted)
    assert not says_the_same(Turn("x", "", ()), wanted)
    assert says_the_same(Turn("x", "yes"), Turn("", "yes"))
    assert not says_the_same(Turn("x", "no"), Turn("", "yes"))
