"""How often the law about repetition is wrong: on genuine texts, and on the same texts ending in loops."""

import re

import numpy as np
import pytest

from benchmarks.repetition_rates import LOOPS_EACH, Ids, corpora, flagged, loops, pieces

WORDS = re.compile(r"\w+|\s+|([^\w\s])\1*")


@pytest.fixture(scope="module")
def genuine() -> dict[str, list[Ids]]:
    """Ids of words, and of marks with those of their kind that follow, as tokenizers take a ruled line together."""
    numbers: dict[str, int] = {}
    texts = {kind: texts[:60] for kind, texts in corpora().items()}
    return {
        kind: [
            np.array([numbers.setdefault(w[0], len(numbers)) for w in WORDS.finditer(text)], np.int32)
            for text in written
        ]
        for kind, written in texts.items()
    }


@pytest.mark.parametrize("length", [500, 4_000])
def test_genuine_text_is_never_quarantined_and_rarely_remarked_on(length: int, genuine: dict[str, list[Ids]]) -> None:
    prose = pieces([*genuine["English"], *genuine["code"]], length)
    found = flagged(prose)
    assert len(prose) > 100
    assert found["extreme"].sum() == 0
    assert found["remark"].mean() <= 0.01
    for kind in ("JSON", "code that is a table"):
        assert flagged(pieces(genuine[kind], length))["extreme"].sum() == 0


@pytest.mark.parametrize("period", [1, 2, 7, 20, 64, 150])
def test_loops_are_found_and_long_ones_quarantined(period: int, genuine: dict[str, list[Ids]]) -> None:
    texts = [*genuine["English"], *genuine["code"]]
    rounds = max(3 * period + 8, 110)
    assert flagged(loops(texts, period, rounds, counting=False))["remark"].sum() >= 0.9 * LOOPS_EACH
    long = flagged(loops(texts, period, max(11 * period, 450), counting=False))
    assert long["extreme"].sum() >= 0.9 * LOOPS_EACH
