"""Calls and results of a history get ids that say the function's name, and each result that of its call."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3_assets.prompts.call_ids import with_call_ids
from eagle3_assets.prompts.dialogue import RefusedRowError

FORM = "functions.{name}:{number}"
USER: dict[str, Any] = {"role": "user", "content": "hi"}


def calls(*given: tuple[str, str | None]) -> dict[str, Any]:
    made = [
        {"type": "function", "function": {"name": name, "arguments": {}}} | ({} if i is None else {"id": i})
        for name, i in given
    ]
    return {"role": "assistant", "content": "", "tool_calls": made}


def result(call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    given = {"tool_call_id": call_id, "name": name}
    return {"role": "tool", "content": "x"} | {key: value for key, value in given.items() if value is not None}


def ids(messages: list[dict[str, Any]], form: str = FORM) -> list[str]:
    """Of calls and results, in their order, the results' in brackets."""
    found = []
    for message in with_call_ids(messages, form):
        found += [call["id"] for call in message.get("tool_calls", ())]
        found += [f"({message['tool_call_id']})"] if message["role"] == "tool" else []
    return [i.replace("functions.", "") for i in found]


CASES = {
    "no ids": ([USER, calls(("f", None)), result()], ["f:0", "(f:0)"]),
    "OpenAI's ids": ([USER, calls(("f", "call_1")), result("call_1")], ["f:0", "(f:0)"]),
    "right ids stay": ([USER, calls(("f", "functions.f:7")), result("functions.f:7")], ["f:7", "(f:7)"]),
    "numbers that rise stay": (
        [calls(("f", "functions.f:3"), ("g", "functions.g:4")), USER, calls(("f", "functions.f:9"))],
        ["f:3", "g:4", "f:9"],
    ),
    "numbers out of order": (
        [calls(("f", "functions.f:4")), result("functions.f:4"), USER, calls(("g", "functions.g:3"))],
        ["f:0", "(f:0)", "g:1"],
    ),
    "the same number twice": (
        [calls(("f", "functions.f:0"), ("g", "functions.g:0")), result("functions.g:0"), result("functions.f:0")],
        ["f:0", "g:1", "(g:1)", "(f:0)"],
    ),
    "right ids beside one of another form": (
        [calls(("f", "functions.f:5"), ("g", "call_1")), result("call_1"), result("functions.f:5")],
        ["f:0", "g:1", "(g:1)", "(f:0)"],
    ),
    "without what stands before the name": (
        [calls(("f", "f:4")), result("f:4"), USER, calls(("g", "g:5")), result("g:5")],
        ["f:0", "(f:0)", "g:1", "(g:1)"],
    ),
    "the id of another function": ([calls(("f", "functions.g:0")), result("functions.g:0")], ["f:0", "(f:0)"]),
    "counted over the turns": (
        [USER, calls(("f", None)), result(), USER, calls(("f", None), ("g", None)), result(), result()],
        ["f:0", "(f:0)", "f:1", "g:2", "(f:1)", "(g:2)"],
    ),
    "counted anew in each turn": (
        [
            calls(("f", "functions.f:0")),
            result("functions.f:0"),
            calls(("f", "functions.f:0"), ("g", "functions.g:1")),
            result("functions.g:1"),
            result("functions.f:0"),
        ],
        ["f:0", "(f:0)", "f:1", "g:2", "(g:2)", "(f:1)"],
    ),
    "parallel, results out of order": (
        [calls(("f", "a"), ("g", "b"), ("f", "c")), result("c"), result("a"), result("b")],
        ["f:0", "g:1", "f:2", "(f:2)", "(f:0)", "(g:1)"],
    ),
    "out of order, told by name": (
        [calls(("f", None), ("g", None)), result(name="g"), result(name="f")],
        ["f:0", "g:1", "(g:1)", "(f:0)"],
    ),
    "a name that is no function's": ([calls(("f", None)), result(name="tool")], ["f:0", "(f:0)"]),
    "a result that is missing": (
        [calls(("f", None), ("g", None)), result(), USER, calls(("h", None)), result()],
        ["f:0", "g:1", "(f:0)", "h:2", "(h:2)"],
    ),
    "a missing result of a turn whose ids come again": (
        [calls(("f", "call_0")), USER, calls(("g", "call_0")), result("call_0")],
        ["f:0", "g:1", "(g:1)"],
    ),
    "results behind several turns of calls": (
        [calls(("f", None)), calls(("g", None)), result(), result()],
        ["f:0", "g:1", "(f:0)", "(g:1)"],
    ),
    "a late result, by its id": (
        [calls(("f", "a")), USER, calls(("g", "b")), result("b"), result("a")],
        ["f:0", "g:1", "(g:1)", "(f:0)"],
    ),
    "two results of one call": ([calls(("f", "a")), result("a"), result("a")], ["f:0", "(f:0)", "(f:0)"]),
    "ids of results alone": (
        [calls(("f", None), ("g", None)), result("x"), result("y")],
        ["f:0", "g:1", "(f:0)", "(g:1)"],
    ),
    "some right, some missing": (
        [calls(("f", None), ("f", "functions.f:0"), ("f", None)), result(), result("functions.f:0"), result()],
        ["f:0", "f:1", "f:2", "(f:0)", "(f:1)", "(f:2)"],
    ),
    "one id of two calls, told by name": (
        [calls(("f", "a"), ("g", "a")), result("a", "g"), result("a", "f")],
        ["f:0", "g:1", "(g:1)", "(f:0)"],
    ),
    "ids of results alone that say the function": (
        [calls(("f", None), ("g", None), ("g", None)), result("functions.g:1"), result("functions.f:0"), result("x")],
        ["f:0", "g:1", "g:2", "(g:1)", "(f:0)", "(g:2)"],
    ),
    "a call without a result": ([calls(("f", "call_9"))], ["f:0"]),
    "names with more than letters": (
        [calls(("a b.c-{number}", None), ("{name}", None), (r"\d{1}", None), ("погода", None))],
        ["a b.c-{number}:0", "{name}:1", r"\d{1}:2", "погода:3"],
    ),
    "such names in right ids": (
        [calls(("{number}", "functions.{number}:2"), ("a.b-c", "functions.a.b-c:3"), ("погода", "functions.погода:4"))],
        ["{number}:2", "a.b-c:3", "погода:4"],
    ),
    "nothing": ([USER], []),
}


@pytest.mark.parametrize("name", CASES)
def test_ids(name: str) -> None:
    messages, expected = CASES[name]
    before = copy.deepcopy(messages)
    assert ids(messages) == expected
    assert messages == before


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([USER, result()], "message 1 has no id"),
        ([calls(("f", "a")), result("b\n")], r"message 1 has the id 'b\\n'"),
        ([calls(("f", "a")), result(), result()], "message 2 has no id"),
        ([calls(("f", None)), USER, calls(("g", "b")), result("b"), result()], "message 4 has no id"),
        ([calls(("f", None)), result("x"), result("y")], "message 2 has the id 'y'"),
        ([calls(("f", None), ("g", None)), result(name="g"), result(name="g")], "message 2 has no id and is of 'g'"),
        (
            [calls(("f", None), ("g", None)), result(name="g"), result("functions.g:1")],
            "message 2 has the id 'functions.g:1' and is of 'g'",
        ),
    ],
)
def test_a_result_of_no_call_is_refused(messages: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(
        RefusedRowError, match=f"^a tool's result is of no call before it: {said}, and the chat template"
    ):
        with_call_ids(messages, FORM)


def test_a_form_without_a_number() -> None:
    assert ids([calls(("f", "a"), ("f", None), ("g", "g")), result("a")], "{name}") == ["f", "f", "g", "(f)"]


NAMES = st.sampled_from(["f", "g", "a.b", "x y"])
GIVEN = st.sampled_from([None, "call_1", "call_2", *(f"functions.{n}:{i}" for n in "fg" for i in range(4))])
TURNS = st.lists(st.lists(st.tuples(NAMES, GIVEN, st.booleans()), min_size=1, max_size=4), max_size=4)


@settings(max_examples=200, deadline=None)
@given(TURNS, st.randoms())
def test_each_call_has_an_id_that_says_its_name_and_their_numbers_rise(turns: list[list[Any]], order: Any) -> None:
    messages: list[dict[str, Any]] = []
    for turn in turns:
        answered = [result(call_id) for _, call_id, yes in turn if yes and call_id is not None]
        order.shuffle(answered)
        messages += [USER, calls(*((name, call_id) for name, call_id, _ in turn)), *answered]
    made = with_call_ids(messages, FORM)
    given_ids, new_ids = (
        [call.get("id") for message in some for call in message.get("tool_calls", ())] for some in (messages, made)
    )
    names = [call["function"]["name"] for message in made for call in message.get("tool_calls", ())]
    numbers = [int(new.removeprefix(f"functions.{name}:")) for name, new in zip(names, new_ids, strict=True)]
    assert numbers == sorted(set(numbers))
    assert new_ids == given_ids or numbers == list(range(len(numbers)))
    turn_ids: list[str] = []
    for message in made:
        if "tool_calls" in message:
            turn_ids = [call["id"] for call in message["tool_calls"]]
        assert message["role"] != "tool" or message["tool_call_id"] in turn_ids
    assert with_call_ids(made, FORM) == made
    bare = [
        {**m, "tool_calls": [{k: v for k, v in c.items() if k != "id"} for c in m["tool_calls"]]}
        for m in messages
        if "tool_calls" in m
    ]
    plain = [call["id"] for message in with_call_ids(bare, FORM) for call in message["tool_calls"]]
    assert plain == [f"functions.{name}:{place}" for place, name in enumerate(names)]
