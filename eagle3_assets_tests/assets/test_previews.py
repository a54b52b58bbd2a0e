"""Previews that fit into the UI, whatever the model said."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.assets.decoded_previews import IN_PLACE, LINE, drift_metadata, preview_markdown
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets.tokens.laws.texts import DRIFT_KINDS
from eagle3_assets.tokens.verdict import Verdict


def preview(text: str) -> str:
    return preview_markdown(
        {
            "sample_id": "a:1:0",
            "completion_tokens": 7,
            "reasoning_end": 3,
            "finish_type": "stop",
            "stratum": "shortest",
            "text": text,
        }
    )


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


@given(st.text(max_size=3_000))
def test_any_text_fits(text: str) -> None:
    made = preview(text)
    assert len(made) < IN_PLACE
    assert "<script" not in preview(text + "<script>") or "```" in made


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
