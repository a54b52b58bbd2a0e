"""Prompts of inert text beside a large partition: what is kept of them, and how the work grows."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from weakref import ReferenceType, ref

import polars as pl
import pytest

from eagle3_assets.tokens.columns import TokenColumn
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.inert_prompts import InertPrompts
from eagle3_assets.tokens.judge import judge_prompts
from eagle3_assets_tests.tokens import kimi

TALKS = [
    [*[kimi.IM_USER, kimi.USER, kimi.IM_MIDDLE, *kimi.letters("inert"), kimi.IM_END] * turns, *kimi.SUFFIX]
    for turns in (1, 2, 3)
]
BATCH = 12


def prompts(rows: int) -> Iterator[pl.DataFrame]:
    """Batches of prompts of a few kinds."""
    for start in range(0, rows, BATCH):
        numbers = range(start, start + BATCH)
        yield kimi.prompts({f"{n}": {"prompt_ids": TALKS[n % len(TALKS)]} for n in numbers})


def work(rows: int, context: Context, monkeypatch: pytest.MonkeyPatch) -> int:
    """Rows of frames and ids of columns that pass through what laws are made of, while so many prompts are judged."""
    seen = 0

    def counting(owner: type, name: str, size: Callable[[Any], int]) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal seen
            seen += sum(size(argument) for argument in arguments if isinstance(argument, owner))
            return original(*arguments, **named)

        patch.setattr(owner, name, counted)

    with monkeypatch.context() as patch:
        for name in ("join", "unique", "select", "filter", "with_columns"):
            counting(pl.DataFrame, name, len)
        for name in ("marks", "take", "first_difference"):
            counting(TokenColumn, name, lambda column: len(column.values))
        known = replace(context, rerendered_prompts=None, declared_tools={}).with_inert_prompts(prompts(rows))
        report = judge_prompts(prompts(rows), known)
    assert report["prompt_injection"].judged == rows
    return seen


def test_the_work_grows_with_the_rows_and_not_with_their_square(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = (work(rows, context, monkeypatch) for rows in (10 * BATCH, 40 * BATCH))
    assert 0 < small < large <= 4 * small


def test_of_many_prompts_a_number_each_is_kept_and_no_batch(context: Context) -> None:
    batches: list[ReferenceType[pl.DataFrame]] = []

    def watched() -> Iterator[pl.DataFrame]:
        for batch in prompts(20 * BATCH):
            assert sum(earlier() is not None for earlier in batches) <= 1
            batches.append(ref(batch))
            yield batch

    inert = InertPrompts.of(watched(), context.control_ids)
    assert len(batches) == 20
    assert len(inert.kinds) == 20 * BATCH
    kept = [inert.control.row(inert.kinds[f"{n}"]).tolist() for n in range(3)]
    assert kept == [[i for i in talk if i in context.control_ids] for talk in TALKS]
    assert len(inert.control) == 1 + len(TALKS)
    assert inert.untold == {}


def test_the_first_of_equal_names_counts_and_a_refused_one_is_known(context: Context) -> None:
    first, second = (kimi.prompts({"s": {"prompt_ids": talk}}) for talk in TALKS[:2])
    refused = pl.DataFrame({"sample_id": ["r"], "prompt_ids": [None]})
    known = replace(context, rerendered_prompts=None).with_inert_prompts([first, refused, second])
    rows = pl.concat([first, kimi.prompts({"r": {"prompt_ids": TALKS[2]}})])
    verdict = judge_prompts([rows], known)["prompt_injection"]
    assert (verdict.judged, verdict.violations, verdict.warnings) == (1, 0, 1)
