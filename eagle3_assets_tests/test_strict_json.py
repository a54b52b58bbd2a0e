"""What is no value is refused with the reason, wherever in a line it stands; every value is read as it is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.strict_json import MAX_DEPTH, StrictJsonError, is_text, parse

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    )


VALUES = values(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS)

FAULTS = {
    b"NaN": "is not JSON: NaN is no JSON number",
    b"-Infinity": "is not JSON: -Infinity is no JSON number",
    b"1e999": "holds a number that no float can hold: 1e999",
    b"-1e999": "holds a number that no float can hold: -1e999",
    b"9" * 5_000: "holds a whole number of thousands of digits",
    b'{"a": 1, "a": 1}': "has the key 'a' twice in one object",
    b'{"%b": 1, "%b": 1}' % (b"k" * 1_000_000, b"k" * 1_000_000): "has the key '"
    + "k" * 56
    + "... twice in one object",
    b'"\\ud83d"': "holds half of a surrogate pair, which is no text",
    b'"\\uDE00 \\uD83D"': "holds half of a surrogate pair, which is no text",
    b'{"\\ud83d": 1}': "holds half of a surrogate pair, which is no text",
    b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1): f"is nested too deeply: more than {MAX_DEPTH} lists",
    b'{"a":' * 100_000: "is nested too deeply",
    b"[" * 100_000 + b"]" * 100_000: "is nested too deeply",
    b'"\xff"': "is not UTF-8: byte ",
    b"\xed\xa0\x80": "is not UTF-8: byte ",  # a surrogate written as if it were a character
    b"tru": "is not JSON: Expecting value at column ",
    b"1 2": "is not JSON: ",
    b"": "is not JSON: Expecting value at column ",
}


@given(VALUES, st.booleans(), st.booleans())
def test_every_value_is_read_as_it_is(value: Any, ascii_only: bool, marked: bool) -> None:
    line = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parse(b"\xef\xbb\xbf" * marked + line) == value
    assert parse(line + b"\r\n", lone_surrogates=True) == value


@given(st.binary() | st.text(alphabet='[]{}",:0123456789eE.-+\\udDNaN ').map(str.encode))
def test_no_bytes_raise_anything_else(line: bytes) -> None:
    try:
        value = parse(line)
    except StrictJsonError as refusal:
        assert str(refusal)
    else:
        # What was read can be written as strict JSON in UTF-8, and is the same again.
        assert parse(json.dumps(value, ensure_ascii=False, allow_nan=False).encode()) == value


@pytest.mark.parametrize("bad", FAULTS, ids=list(FAULTS.values()))
@given(before=VALUES, after=VALUES, wrapped=st.booleans())
def test_a_fault_is_found_wherever_it_stands(bad: bytes, before: Any, after: Any, wrapped: bool) -> None:
    inside = b"[%b, %b, %b]" % (json.dumps(before).encode(), bad, json.dumps(after).encode())
    line = b'{"x": %b}' % inside if wrapped else inside
    with pytest.raises(StrictJsonError) as refusal:
        parse(line)
    assert str(refusal.value).startswith(FAULTS[bad])


def test_the_place_of_a_fault_is_counted_from_one() -> None:
    for line, said in ((b'\xef\xbb\xbf{"a": \xff}', "byte 7 of the line"), (b'{"a": x}', "at column 7")):
        with pytest.raises(StrictJsonError, match=said):
            parse(line)


def test_the_deepest_that_is_read() -> None:
    value: Any = parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert json.dumps(value) == "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert len(parse(b"[" + b"[],{}," * 1_000 + b"1]")) == 2_001


@pytest.mark.parametrize("text", ["\ud83d", "a\udfff", "\ude00\ud83d"])
def test_halves_of_surrogate_pairs_are_kept_on_request(text: str) -> None:
    assert parse(json.dumps(text).encode(), lone_surrogates=True) == text
    assert not is_text(text)


@pytest.mark.parametrize("text", ["", "plain", "Grüße 😀", "\\ud83d"])
def test_whole_text_is_text(text: str) -> None:
    assert is_text(text)
    assert parse(json.dumps(text).encode()) == text
