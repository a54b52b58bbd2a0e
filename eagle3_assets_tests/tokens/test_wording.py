"""Figures as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.tokens.wording import percent


@pytest.mark.parametrize(
    ("share", "decimals", "text"),
    [
        (0, 1, "0%"),
        (0.0, 2, "0%"),
        (1, 1, "100%"),
        (1.0, 2, "100%"),
        (0.004, 1, "0.4%"),
        (0.999, 1, "99.9%"),
        (0.5119, 1, "51.2%"),
        (0.0004, 1, "<0.1%"),
        (0.0004, 2, "0.04%"),
        (3 / 100_000, 2, "<0.01%"),
        (0.9996, 1, ">99.9%"),
        (99_999 / 100_000, 2, ">99.99%"),
    ],
)
def test_a_share_is_written_as_what_it_is(share: float, decimals: int, text: str) -> None:
    assert percent(share, decimals) == text


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(1, 3))
def test_only_none_is_0_and_only_all_is_100(whole: int, part: int, decimals: int) -> None:
    part %= whole + 1
    text = percent(part / whole, decimals)
    assert (text == "0%") == (part == 0)
    assert (text == "100%") == (part == whole)
    assert float(text.strip("<>%")) > 0 or part == 0
