"""Filters, the split, and files of bounded size."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.config import Export
from eagle3_assets.contract import TRAINING_EXPORT
from eagle3_assets.exports import selection
from eagle3_assets.exports.selection import held_out, place, prompt_fates, select
from eagle3_assets.partitions import shard_of, stable_rank


def usable(*rows: dict[str, Any]) -> pl.DataFrame:
    usual: dict[str, Any] = {
        **dict.fromkeys(TRAINING_EXPORT),
        "sample_tokens": 10,
        "trained_tokens": 4,
        "masked_tail": 0,
        "finish_type": "stop",
    }
    named = [{**usual, "sample_id": f"s{i}", "conversation_id": f"c{i}", **row} for i, row in enumerate(rows)]
    return pl.DataFrame(named, schema=TRAINING_EXPORT)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(0, 0.99), st.floats(0, 0.99))
def test_a_larger_share_holds_out_the_same_conversations_and_more(name: str, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert held_out(name, large) or not held_out(name, small)


def test_the_share_is_about_the_share_of_every_shard_too() -> None:
    names = [f"c{i}" for i in range(20_000)]
    for shard in range(4):
        some = [name for name in names if shard_of(stable_rank(name), 4) == shard]
        assert sum(held_out(name, 0.1) for name in some) / len(some) == pytest.approx(0.1, abs=0.015)
    assert not any(held_out(name, 0.0) for name in names)


def test_all_turns_of_a_conversation_are_on_one_side() -> None:
    rows = [{"conversation_id": f"c{i // 3}"} for i in range(300)]
    sides = select(usable(*rows), Export(eval_share=0.3)).group_by("conversation_id").agg(pl.col("fate").n_unique())
    assert sides["fate"].unique().to_list() == [1]


@pytest.mark.parametrize(("tokens", "limit", "fate"), [(10, 10, "train"), (11, 10, "too_long"), (10**6, None, "train")])
def test_longer_than_the_limit_is_left_out_and_as_long_is_not(tokens: int, limit: int | None, fate: str) -> None:
    selected = select(usable({"sample_tokens": tokens}), Export(eval_share=0, max_length=limit))
    assert selected["fate"].to_list() == [fate]
    if fate == "too_long":
        assert selected["reason"].to_list() == ["11 tokens are more than max_length, 10"]


@pytest.mark.parametrize(
    ("cut_off", "fates", "tails", "trained"),
    [
        ("keep", ["train", "train", "train"], [0, 0, 0], [4, 4, 2]),
        ("drop", ["train", "cut_off", "cut_off"], [0, 0, 0], [4, 4, 2]),
        ("mask", ["train", "train", "nothing_to_learn"], [0, 3, 2], [4, 1, 0]),
    ],
)
def test_what_becomes_of_cut_off_outputs(cut_off: str, fates: list[str], tails: list[int], trained: list[int]) -> None:
    rows = usable({}, {"finish_type": "length"}, {"finish_type": "length", "trained_tokens": 2})
    settings = Export.model_validate({"eval_share": 0, "cut_off": cut_off, "cut_off_tail": 3})
    selected = select(rows, settings)
    assert selected["fate"].to_list() == fates
    assert selected["masked_tail"].to_list() == tails
    assert selected["trained_tokens"].to_list() == trained


def test_a_fate_that_is_decided_stays() -> None:
    rows = usable({"fate": "quarantined", "reason": "law: x", "sample_tokens": 99, "finish_type": "length"})
    selected = select(rows, Export(max_length=5, cut_off="drop"))
    assert selected.row(0, named=True)["fate"] == "quarantined"
    assert selected.row(0, named=True)["reason"] == "law: x"


def test_every_prompt_ends_in_one_place() -> None:
    prompts = pl.DataFrame(
        {
            "sample_id": list("abcdefg"),
            "conversation_id": list("abcdefg"),
            "status": ["ready", "refused", "ready", "ready", "ready", None, "ready"],
            "reason": [None, "too long", None, None, None, None, None],
        }
    )
    raw = pl.DataFrame(
        {
            "sample_id": list("abcdg"),
            "status": ["generated", "refused_prompt", "failed", "generated", "odd"],
            "reason": [None, "too long", "gone", None, None],
            "prompt_tokens": [3, None, None, 3, None],
            "output_tokens": [2, None, None, 2, None],
            "finish_type": ["stop", None, None, "stop", None],
            "ids_sha256": ["x", None, None, "y", None],
        }
    )
    broken = pl.DataFrame({"sample_id": ["d"], "reason": ["law: found"]})
    fates = prompt_fates(prompts, raw, broken)
    assert fates.schema == TRAINING_EXPORT
    assert list(fates.select("sample_id", "fate", "reason").iter_rows()) == [
        ("a", None, None),
        ("b", "refused_prompt", "too long"),
        ("c", "failed", "gone"),
        ("d", "quarantined", "law: found"),
        ("e", "not_generated", None),
        ("f", "not_generated", None),
        ("g", "not_generated", None),
    ]


def test_files_are_bounded_by_rows_and_by_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = usable(*({"fate": "train", "sample_tokens": tokens} for tokens in (4, 4, 4, 9, 30, 1)), {"fate": "failed"})
    placed = place(rows, 2, "p", ".x")
    assert placed["row"].to_list() == [0, 1, 0, 1, 0, 1, None]
    monkeypatch.setattr(selection, "SHARD_TOKENS", 12)
    placed = place(rows, 100, "p", ".x")
    shards = [0, 0, 0, 1, 2, 3]
    assert placed["file"].to_list() == [*(f"train/p-{shard:05d}.x" for shard in shards), None]
    assert placed["row"].to_list() == [0, 1, 2, 0, 0, 0, None]
