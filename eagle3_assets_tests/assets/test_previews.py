"""Previews that fit into the UI, whatever the model said."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.assets.common import LINE
from eagle3_assets.assets.decoded_previews import drift_metadata, preview_markdown
from eagle3_assets.pages.plots import IN_PLACE
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets.tokens.laws.texts import DRIFT_KINDS
from eagle3_assets.tokens.verdict import Verdict


def preview(text: str, sample_id: str = "a:1:0", finish_type: str | None = "stop", *, quarantined: bool = False) -> str:
    row = {
        "sample_id": sample_id,
        "completion_tokens": 7,
        "reasoning_end": 3,
        "finish_type": finish_type,
        "stratum": "shortest",
        "text": text,
    }
    return preview_markdown(row, quarantined=quarantined)


def test_a_short_text_is_whole_and_its_lines_are_narrow() -> None:
    made = preview("word " * 60 + "</think>end<|im_end|>")
    assert "[...]" not in made
    assert made.replace("\n", "").count("word ") == 60
    assert "</think>end<|im_end|>" in made
    assert max(map(len, made.splitlines())) <= LINE


def test_a_long_text_keeps_its_start_and_its_end() -> None:
    made = preview("START " + "x" * 100_000 + " END<|im_end|>")
    assert "START" in made
    assert "[...]" in made
    assert "END<|im_end|>" in made
    assert len(made) < IN_PLACE


def test_a_text_of_many_lines_keeps_the_first_and_the_last_on_one_screen() -> None:
    made = preview("START" + "\n" * 700 + "END<|im_end|>")
    assert made.count("\n") < 40
    assert made.index("START") < made.index("\n[...]\n") < made.index("END<|im_end|>")


SPECIAL = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("`*_[]<>|\\\n\u202e😀"), max_size=2_000)


@given(SPECIAL | st.integers(0, 1_500).map("`".__mul__), SPECIAL, st.none() | SPECIAL, st.booleans())
def test_any_text_any_id_and_any_finish_type_fit(text: str, name: str, finish: str | None, quarantined: bool) -> None:
    made = preview(f"BEGIN{text}END", name, finish, quarantined=quarantined)
    assert len(made.encode("utf-16-le")) // 2 < IN_PLACE  # as a browser counts
    head, block = made.split("\n\n", 1)
    assert head.count("\n") == head.count(",\\\n") < 5
    fence = block.split("text\n", 1)[0]
    assert set(fence) == {"`"}
    # The last line may be a broken one.
    assert block.removesuffix(f"\n{fence}").replace("\n", "").endswith("END")
    assert block.startswith(f"{fence}text\nBEGIN")


def test_a_long_id_is_shortened_and_the_text_stays() -> None:
    made = preview("so it is", "x" * 1_200)
    assert made.startswith(f"`{'x' * 77}...`: 7 tokens")
    assert "so it is" in made


def test_what_is_said_of_a_sample_is_as_narrow_as_its_text() -> None:
    """A long path makes the UI's column wider than its window, and what stands at its right edge is out of sight."""
    made = preview("text", "demo-function_calling-05:1:0", "length", quarantined=True)
    assert made.startswith(
        "`demo-function_calling-05:1:0`: 7 tokens, response@3,\\\n`length`, shortest, quarantined\n\n"
    )
    assert max(map(len, made.splitlines())) <= LINE + len(",\\")


def test_a_finish_type_is_text_and_none_is_named() -> None:
    assert ", `<b>x</b> [a](b)`,\\\nshortest\n" in preview("text", finish_type="<b>x</b> [a](b)")
    assert ", no finish type,\\\nshortest\n" in preview("text", finish_type=None)
    assert ", `stop`, shortest,\\\nquarantined\n" in preview("text", quarantined=True)


def test_drift_by_kind_is_a_table() -> None:
    [law] = [law for law in LAWS if law.name == "retokenization_drift"]
    figures = {f"drift_{kind}": float(number) for number, kind in enumerate(DRIFT_KINDS)}
    verdict = Verdict(law, "warn", "warned", 200, 200, 10, 0, 0.05, refuses=False, figures=figures)
    made: dict[str, Any] = drift_metadata(verdict)
    assert [
        (r.data["begins at"], r.data["samples"], r.data["share"]) for r in made["retokenization_drift"].records
    ] == [
        ("whitespace", 0, 0.0),
        ("digits", 1, 0.005),
        ("multi-byte", 2, 0.01),
        ("structural", 3, 0.015),
        ("other", 4, 0.02),
        ("all", 10, 0.05),
    ]
    assert made["retokenization_drift_share"].value == 0.05
    assert drift_metadata(replace(verdict, status="not_judged")) == {}
