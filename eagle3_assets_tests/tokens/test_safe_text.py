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
        ("\ufe00\ufe0f\U000e0100\U000e01ef", "<U+FE00><U+FE0F><U+E0100><U+E01EF>"),
        ("\u034f\u180b\u17b5\u115f\u1160\u3164\uffa0", "<U+034F><U+180B><U+17B5><U+115F><U+1160><U+3164><U+FFA0>"),
        ("\u2800 \u0378 \U000effff \ue000", "<U+2800> <U+0378> <U+EFFFF> <U+E000>"),
        ("hid\u200d\u200c\u200den", "hid<U+200D><U+200C><U+200D>en"),
        (
            "\u0645\u06cc\u200c\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u0645\u06cc\u200c<U+200C>\u062e\u0648\u0627\u0647\u0645",
        ),
        ("\u0645\u061c\u200c", "\u0645<U+061C><U+200C>"),
        ("👩\u200dx 1\ufe0f ❤\ufe0f\ufe0f", "👩<U+200D>x 1<U+FE0F> ❤\ufe0f<U+FE0F>"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Grüße 世界 👩\u200d💻 \ufffd",
        "e\u0301 Z\u0308u\u0308rich q\u0307\u0323",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u0647\u200d",
        "क्\u200dष र्\u200cय",
        "❤\ufe0f ❤\ufe0f\u200d🔥 👩🏽\u200d💻 🏳\ufe0f\u200d🌈 ☎\ufe0e 1\ufe0f\u20e3",
        "a\u00a0b \u3000全角 \u2009",
    ],
)
def test_ordinary_writing_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


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


@given(st.text(alphabet=st.characters() | st.sampled_from("\u200c\u200d\ufe0e\ufe0f👩❤\u0645\u06cc1\u20e3")))
def test_what_is_visible_stays_so(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    # What nothing is drawn for is named wherever it stands; the four that writing needs never follow each other.
    assert not re.search("[\u200b\u2060-\u206f\u034f\u3164\u2800\ue000-\uf8ff\U000e0000-\U000e0fff]", shown)
    assert not re.search("[\u200c\u200d]{2}|[\ufe0e\ufe0f]{2}|[a-zA-Z>][\u200c\u200d\ufe0e\ufe0f]", shown)


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
    # As CommonMark reads it: a span that begins and ends with a space, and is not all spaces, loses one at each end.
    dropped = inner[0] == inner[-1] == " " and inner.strip(" ")
    assert (inner[1:-1] if dropped else inner) == visible(text)


def test_a_code_span_has_no_blanks_that_it_does_not_need() -> None:
    assert markdown_code("model") == "`model`"
    assert markdown_code("a`b") == "``a`b``"
    assert markdown_code("`a") == "`` `a ``"


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
