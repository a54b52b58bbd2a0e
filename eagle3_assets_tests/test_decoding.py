import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.decoding import Decoder, Sample, sample_json, sample_lines, shown_line, shown_text
from eagle3_assets.tokens.profile import resolve_profile
from eagle3_assets.tokens.quantiles import spread
from eagle3_assets_tests.tokens import kimi


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    directory = tmp_path_factory.mktemp("kimi")
    kimi.save_tokenizer(directory)
    tokenizer: Any = kimi.load_tokenizer(directory)
    return Decoder(tokenizer, resolve_profile(tokenizer, vocab_size=kimi.VOCAB_SIZE))


def encoded(decoder: Decoder, text: str) -> list[int]:
    ids: Any = decoder.tokenizer.encode(text, add_special_tokens=False)  # type: ignore[attr-defined]
    return list(ids)


def shown(sample: Sample, decoder: Decoder, *, ids: bool = False, prompt: bool = False) -> str:
    return "".join(piece.text for piece in sample_lines(sample, decoder, ids=ids, prompt=prompt))


def dangerous(text: str) -> list[str]:
    return [c for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs")] + re.findall(
        "[\u200e\u200f\u202a-\u202e\u2066-\u2069]", text
    )


def test_a_sample_is_its_header_and_its_whole_text(decoder: Decoder) -> None:
    ids = [*encoded(decoder, "so be it"), kimi.END_THINK, *encoded(decoder, "hello\n\tworld"), kimi.IM_END]
    expected = "===== sample_id=c17-1-0 tokens=18 response@8 =====\nso be it</think>hello\n\tworld<|im_end|>\n"
    assert len(ids) == 18
    assert shown(Sample("c17-1-0", ids), decoder) == expected


def test_every_structural_token_shows(decoder: Decoder) -> None:
    structural = {**kimi.SPECIAL, **kimi.NOT_SPECIAL}
    assert decoder.text(list(structural.values())) == "".join(structural)
    pieces = list(sample_lines(Sample("s", list(structural.values())), decoder))
    assert [piece.kind for piece in pieces] == ["heading", "structural", "text"]


def test_response_is_the_first_end_of_reasoning_by_id_not_by_text(decoder: Decoder) -> None:
    spelled = [id_ for character in "</think>" for id_ in encoded(decoder, character)]
    assert decoder.text(spelled) == "</think>"
    assert decoder.reasoning_end(spelled) == -1
    assert decoder.reasoning_end([*spelled, kimi.END_THINK, kimi.END_THINK]) == 8
    assert "response@-1" in shown(Sample("s", []), decoder)
    assert Decoder(decoder.tokenizer, None).reasoning_end([kimi.END_THINK]) == -1


def test_no_id_disappears(decoder: Decoder) -> None:
    ids = [kimi.HELLO, 0, 999_999, kimi.END_THINK, 2**31 - 1]
    assert decoder.text(ids) == "hello<id 0><id 999999></think><id 2147483647>"
    pieces = [(piece.text, piece.kind) for piece in decoder.pieces(ids)]
    assert pieces == [
        ("hello", "text"),
        ("<id 0><id 999999>", "unknown"),
        ("</think>", "structural"),
        ("<id 2147483647>", "unknown"),
    ]


def test_reasoning_and_tool_calls_are_told_apart(decoder: Decoder) -> None:
    assert decoder.profile and decoder.profile.tools
    tools = decoder.profile.tools
    x = encoded(decoder, "x")
    ids = [*x, tools.opening, *x, kimi.END_THINK, *x, tools.opening, *x, tools.closing, *x, kimi.IM_END]
    said = [piece.kind for piece in decoder.output_pieces(ids) if piece.text == "x"]
    assert said == ["reasoning", "reasoning", "text", "tools", "text"]
    assert [piece.kind for piece in decoder.output_pieces(x)] == ["text"]


def test_unclosed_reasoning_is_reasoning_where_the_prompt_opened_it(decoder: Decoder) -> None:
    assert decoder.profile and decoder.profile.tools
    tools, x = decoder.profile.tools, encoded(decoder, "x")
    opened, closed = [kimi.HELLO, kimi.THINK], [kimi.HELLO, kimi.THINK, kimi.END_THINK]

    def kinds(ids: list[int], prompt_ids: list[int] | None) -> list[str]:
        return [piece.kind for piece in decoder.output_pieces(ids, prompt_ids) if piece.text == "x"]

    assert kinds(x, opened) == ["reasoning"]
    assert kinds(x, closed) == kinds(x, None) == ["text"]
    assert kinds([kimi.THINK, *x], None) == ["reasoning"]
    assert kinds([*x, tools.opening, *x, tools.closing, *x], opened) == ["reasoning", "tools", "text"]
    pieces = list(sample_lines(Sample("s", x, opened), decoder))
    assert [(piece.text, piece.kind) for piece in pieces[1:]] == [("x", "reasoning"), ("\n", "text")]


def test_markup_out_of_place_is_shown_as_it_is_counted(decoder: Decoder) -> None:
    assert decoder.profile and decoder.profile.tools
    tools, x = decoder.profile.tools, encoded(decoder, "x")
    opened, closed = [kimi.HELLO, kimi.THINK], [kimi.HELLO, kimi.THINK, kimi.END_THINK]
    end, call = [kimi.END_THINK], [tools.opening, *x, tools.closing]

    def kinds(ids: list[int], prompt_ids: list[int]) -> list[str]:
        return [piece.kind for piece in decoder.output_pieces(ids, prompt_ids) if piece.text == "x"]

    assert kinds([*x, *end, *x], closed) == ["text", "text"]  # a stray end of reasoning where thinking is off
    assert kinds([*call, *x, *end, *x], closed) == ["tools", "text", "text"]
    assert kinds([*x, *call, *x, *end, *x], opened) == ["reasoning", "reasoning", "reasoning", "text"]
    assert kinds([tools.opening, *x, *end, *x, tools.closing, *x], closed) == ["tools", "tools", "text"]
    assert kinds([*x, *end, *x, tools.opening, *x, *end, *x], opened) == ["reasoning", "text", "tools", "tools"]


def test_a_long_output_has_its_sections(decoder: Decoder) -> None:
    assert decoder.profile and decoder.profile.tools
    x = encoded(decoder, "x")
    ids = [*x * 10_000, kimi.END_THINK, *x * 10_000, kimi.IM_END]
    pieces = [(piece.kind, len(piece.text)) for piece in decoder.output_pieces(ids)]
    assert pieces == [("reasoning", 10_000), ("structural", 8), ("text", 10_000), ("structural", 10)]


@pytest.mark.parametrize(("finish", "end"), [("length", " cut off ====="), ("stop", "@-1 ====="), (None, "@-1 =====")])
def test_the_header_says_what_was_cut_off(decoder: Decoder, finish: str | None, end: str) -> None:
    sample = Sample("s", [kimi.HELLO], finish_type=finish)
    assert shown(sample, decoder).splitlines()[0].endswith(end)
    assert json.loads(sample_json(sample, decoder))["finish_type"] == finish


@given(st.text(max_size=30), st.lists(st.integers(0, 5), max_size=10))
def test_output_pieces_are_the_whole_text(decoder: Decoder, text: str, between: list[int]) -> None:
    ids = encoded(decoder, text)
    for place in between:
        ids.insert(place % (len(ids) + 1), (kimi.END_THINK, kimi.IM_END, 999_999)[place % 3])
    assert "".join(piece.text for piece in decoder.output_pieces(ids)) == decoder.text(ids)


def test_spaces_before_punctuation_stay(decoder: Decoder) -> None:
    text = "do n't stop , he said . "
    assert decoder.text(encoded(decoder, text)) == text


@given(st.text())
def test_pieces_are_the_whole_text(decoder: Decoder, text: str) -> None:
    ids = encoded(decoder, text.encode("utf-8", "replace").decode())
    for mixed in (ids, [kimi.THINK, *ids, 999_999, kimi.END_THINK, *ids[1:], kimi.IM_END]):
        assert "".join(piece.text for piece in decoder.pieces(mixed)) == decoder.text(mixed)


@given(st.text(), st.text(st.characters(codec="utf-8")), st.booleans())
def test_nothing_that_a_terminal_acts_on_gets_through(decoder: Decoder, sample_id: str, text: str, ids: bool) -> None:
    said = shown(Sample(sample_id, encoded(decoder, text), encoded(decoder, text)), decoder, ids=ids, prompt=True)
    assert not dangerous(said)


@given(st.lists(st.integers(0, 2**31 - 1) | st.sampled_from([1000 + byte for byte in range(256)]), max_size=30))
def test_any_ids_at_all_are_shown_safely_and_one_row_each(decoder: Decoder, ids: list[int]) -> None:
    assert not dangerous(shown(Sample("s", ids), decoder))
    rows = shown(Sample("s", ids), decoder, ids=True).splitlines()[1:]
    assert [row.split()[:2] for row in rows] == [[str(index), str(id_)] for index, id_ in enumerate(ids)]


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "\r", "\b", "\x00", "\x7f", "\x9b31m", "\u202e", "\u2066", "\u2028", "\ufeff"]
)
def test_a_control_character_is_made_visible_and_not_dropped(text: str) -> None:
    assert not dangerous(shown_text(f"a{text}b"))
    assert len(shown_text(text)) > len(text)


def test_line_feeds_stay_in_text_and_are_visible_in_a_header(decoder: Decoder) -> None:
    assert shown_text("a\n\tb") == "a\n\tb"
    forged = "s =====\n===== sample_id=other"
    assert "\n" not in shown_line(forged)
    assert shown(Sample(forged, [kimi.HELLO]), decoder).count("\n") == 2


@pytest.mark.parametrize(
    "forged", ["===== sample_id=other tokens=1 response@0 =====", "----- output -----", "----- prompt: tokens=2 -----"]
)
def test_no_text_reads_like_a_heading(decoder: Decoder, forged: str) -> None:
    name = f"<U+{ord(forged[0]):04X}>{forged[1:]}"
    x = encoded(decoder, "x\n")
    for ids in ([*x, *encoded(decoder, forged)], [*x, kimi.END_THINK, *x, *encoded(decoder, f"{forged}\n")]):
        lines = shown(Sample("s", ids, ids), decoder, prompt=True).splitlines()
        assert lines.count(name) == 2
        assert forged not in [line for line in lines[4:] if line != "----- output -----"]
        headings = [p.text for p in sample_lines(Sample("s", ids, ids), decoder, prompt=True) if p.kind == "heading"]
        assert [line for line in lines if re.match("===== sample_id=|----- .* -----$", line)] == [
            heading.rstrip("\n") for heading in headings
        ]
    # In the middle of a line, or as the rule that Markdown has, it is no heading.
    assert f"x {forged}" in shown(Sample("s", encoded(decoder, f"x {forged}\n=====\n-----")), decoder)
    assert shown(Sample("s", encoded(decoder, "=====\n-----")), decoder).endswith("\n=====\n-----\n")


def test_rows_show_index_id_and_text(decoder: Decoder) -> None:
    emoji = "😀".encode()
    ids = [*encoded(decoder, "a\n"), *encoded(decoder, "😀"), kimi.END_THINK, 999_999, encoded(decoder, "é")[0], 1000]
    rows = [line.split(maxsplit=2) for line in shown(Sample("s", ids), decoder, ids=True).splitlines()[1:]]
    assert [row[:2] for row in rows] == [[str(index), str(token_id)] for index, token_id in enumerate(ids)]
    assert [row[2] for row in rows][:-1] == [
        "'a'",
        r"'\n'",
        repr(emoji[0:1]),
        repr(emoji[1:2]),
        repr(emoji[2:3]),
        f"{emoji[3:4]!r} completes '😀'",
        "'</think>'",
        "<id 999999>",
        r"b'\xc3'",
    ]


def test_rows_read_byte_fallback() -> None:
    class Fallback:
        added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012 - as the protocol has it

        def get_vocab(self) -> dict[str, int]:
            return {"<0xC3>": 0, "<0xA9>": 1, "▁\ufffd": 2}

        def decode(self, token_ids: Sequence[int], **_: bool) -> str:
            return "\ufffd" * len(token_ids)

        def convert_ids_to_tokens(self, ids: int) -> str:
            return list(self.get_vocab())[ids]

    rows = [row.text for row in Decoder(Fallback(), None).rows([0, 1, 2])]
    assert rows == [r"0  0  b'\xc3'", r"1  1  b'\xa9' completes 'é'", "2  2  '\ufffd'"]


@pytest.mark.parametrize("blank", ["\u3164", "\u2800", "\u034f"])
def test_rows_name_what_nothing_is_drawn_for(blank: str) -> None:
    class Blank:
        added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012 - as the protocol has it

        def get_vocab(self) -> dict[str, int]:
            return {blank: 0}

        def decode(self, token_ids: Sequence[int], **_: bool) -> str:
            return blank * len(token_ids)

        def convert_ids_to_tokens(self, ids: int) -> str:
            return list(self.get_vocab())[ids]

    assert [row.text for row in Decoder(Blank(), None).rows([0])] == [f"0  0  '<U+{ord(blank):04X}>'"]


def test_the_prompt_is_marked(decoder: Decoder) -> None:
    sample = Sample("s", [kimi.HELLO], [kimi.IM_USER, kimi.HELLO])
    assert shown(sample, decoder, prompt=True).splitlines()[1:] == [
        "----- prompt: tokens=2 -----",
        "<|im_user|>hello",
        "----- output -----",
        "hello",
    ]
    assert shown(Sample("s", [kimi.HELLO]), decoder, prompt=True).splitlines()[1] == "----- prompt: not recorded -----"


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 80))
def test_spread_takes_different_samples_short_to_long_both_ends_included(lengths: list[int], count: int) -> None:
    chosen = spread(lengths, range(len(lengths)), count)
    assert len(set(chosen)) == len(chosen) == min(count, len(lengths))
    taken = [lengths[position] for position in chosen]
    assert taken == sorted(taken)
    if len(taken) > 1:
        assert (taken[0], taken[-1]) == (min(lengths), max(lengths))


def test_spread_is_at_even_quantiles() -> None:
    assert spread([*range(100, -1, -1)], [0] * 101, 5) == [100, 75, 50, 25, 0]
    assert spread([5, 1, 9], [0] * 3, 1) == [0]
    assert spread([], [], 3) == []
