"""Previews that fit into the UI, whatever the model said."""

from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.assets.decoded_previews import IN_PLACE, LINE, preview_markdown


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
