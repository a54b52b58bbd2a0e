"""The training script, with everything tiny: it runs, and the seed decides the weights."""

from pathlib import Path
from typing import Any

import pytest

from eagle3_assets.demo.model import Schedule, Sizes
from eagle3_assets.demo.train import Finish, Recipe, make_model

TINY = Sizes(hidden=32, feed_forward=32, layers=1, heads=1, key_value_heads=1, head=32)


def weights(out: Path, seed: int) -> dict[str, Any]:
    from safetensors.torch import load_file

    few = Schedule(steps=3)
    make_model(
        out,
        Recipe(
            seed=seed,
            sizes=TINY,
            schedule=few,
            finishes=(Finish(few, no_tool_share=0.5),),
            batch_tokens=256,
            tokenizer_samples=400,
        ),
    )
    return load_file(out / "model.safetensors")


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    first, second, other = weights(tmp_path / "a", 1), weights(tmp_path / "b", 1), weights(tmp_path / "c", 2)
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)
    assert not all(first[name].equal(other[name]) for name in first)
    for name in (
        "tokenizer.json",
        "tokenizer_config.json",
        "config.json",
        "generation_config.json",
        "chat_template.jinja",
    ):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize(("step", "share"), [(0, 0.02), (49, 1.0), (1000, 0.01)])
def test_learning_rate_rises_and_falls(step: int, share: float) -> None:
    assert Schedule(steps=1000).factor(step) == pytest.approx(share)
