"""A drafter of the trainer's own code learns from an export, and what it saves is counted as decoding counts it."""

import pytest

from benchmarks.drafter_learning import NAMES, Size, measure

pytestmark = pytest.mark.trainers


@pytest.mark.timeout(1_200)
def test_a_drafter_learns_from_an_export() -> None:
    result = measure(Size(prompts=48, steps=40, rows=2, seeds=1, data={0.0: ("parsed",)}), processes=1)
    lengths = {line.name: line.lengths()[0] for line in result.lines}
    assert lengths["nothing: untrained"] < 1.1
    assert lengths[NAMES["exact"]] > lengths["nothing: untrained"] + 0.2
    assert (result.decoded, result.same) == (3, 3)
    assert result.held_out > 2
    parsed = next(line.differs for line in result.lines if line.name == NAMES["parsed"])
    assert parsed
    assert parsed.kept < 0.6
