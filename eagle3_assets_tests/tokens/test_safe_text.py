import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.tokens.safe_text import excerpt, markdown_block, markdown_code, markdown_text, plain_text, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain `text` | <b>", "plain `text` | <b>"),
        ("a\nb\tc", "a↵b<U+0009>c"),
        ("\x1b[31mred", "<U+001B>[31mred"),
        ("abc\u202edef\u2066", "abc<U+202E>def<U+2066>"),
        ("zero\u200bwidth\ufeff", "zero<U+200B>width<U+FEFF>"),
        ("\u2028\u2029\x85\x00", "<U+2028><U+2029><U+0085><U+0000>"),
        ("\U000e0041", "<U+E0041>"),
        ("\ud800", "<U+D800>"),
        ("Grüße 世界 👩\u200d💻 \ufffd", "Grüße 世界 👩\u200d💻 \ufffd"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0123456789", "0123456789"),
        ("0123456789a", "0123456..."),
        ("a\nb", "a↵b"),
        ("\u202e" * 3, "<U+202E..."),
        ("", ""),
    ],
)
def test_an_excerpt_is_safe_and_short(text: str, shown: str) -> None:
    assert excerpt(text, 10) == shown


def test_visible_keeps_lines_on_request() -> None:
    assert visible("a\n\tb\r", keep_lines=True) == "a\n\tb<U+000D>"


@given(st.text(alphabet="a`|\n <", min_size=1))
def test_code_span_is_one_span(text: str) -> None:
    span = markdown_code(text)
    fence = re.match("`+", span)
    assert fence is not None
    inner = span[len(fence.group()) : -len(fence.group())]
    assert span == fence.group() + inner + fence.group()
    assert all(run != fence.group() for run in re.findall("`+", inner))
    assert not inner.startswith("`")
    assert not inner.endswith("`")
    assert (inner[1:-1] if visible(text).strip() else inner) == visible(text)


@given(st.text(alphabet="a`|\\\n", min_size=1))
def test_code_span_in_a_table_splits_no_cell(text: str) -> None:
    assert not re.search(r"(?<!\\)\|", markdown_code(text, in_table=True).replace("\\\\|", "x\\|"))


def test_empty_code_span() -> None:
    assert markdown_code("") == ""


@given(st.text(alphabet="a`~\n"))
def test_block_ends_where_it_should(text: str) -> None:
    lines = markdown_block(text).split("\n")
    fence = lines[0].removesuffix("text")
    assert lines[-1] == fence
    assert all(not line.startswith(fence) for line in lines[1:-1])
    assert "\n".join(lines[1:-1]) == text


@given(st.text())
def test_a_sentence_of_markdown_comes_back_as_it_was(text: str) -> None:
    assert plain_text(markdown_text(text)) == text


def test_markup_in_a_sentence_is_text() -> None:
    assert markdown_text("</think> (7) and [a](b) `c` *d*") == r"\</think\> (7) and \[a\](b) \`c\` \*d\*"
