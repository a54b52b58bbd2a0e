"""Genuine outputs, and how one of many is damaged with everything that is recorded of it kept true.

What belongs here: the controls, and functions that damages are made of. Not here: damages (``damages``), tests.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from eagle3_assets.identity import canonical_json
from eagle3_assets.tokens.context import Context, PromptIndex
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.verdict import Report
from eagle3_assets_tests.tokens import kimi
from eagle3_assets_tests.tokens.kimi import (
    ARG_BEGIN,
    CALL_BEGIN,
    CALL_END,
    IM_END,
    SECTION_BEGIN,
    SECTION_END,
)

Row = dict[str, Any]
A, B = kimi.letters("ab")


REMARKED = ("implicit-end", "tools-then-text")
"""Genuine samples whose habits the laws remark on."""


def partition() -> dict[str, Row]:
    """Each genuine sample without a remark of its own."""
    return {name: row for name, row in kimi.genuine().items() if name not in REMARKED}


def with_output(row: Row, output: list[int]) -> Row:
    """Another output, everything that is recorded of it kept true."""
    stopped = row["finish_type"] == "stop"
    return row | {
        "output_ids": output,
        "completion_tokens": len(output),
        "output_logprobs": [-0.5] * len(output),
        "text": kimi.spelled(output),
        "matched_stop": json.dumps(output[-1]) if stopped and output else row["matched_stop"],
    }


def inserted(at: Callable[[int], int], *ids: int) -> Callable[[Row], Row]:
    """The output with ids put in at a place."""

    def mutate(row: Row) -> Row:
        output = row["output_ids"]
        place = at(len(output))
        return with_output(row, [*output[:place], *ids, *output[place:]])

    return mutate


def changed(**columns: object) -> Callable[[Row], Row]:
    """Columns set to values."""
    return lambda row: row | columns


def outputs(*ids: int) -> Callable[[Row], Row]:
    """The output replaced."""
    return lambda row: with_output(row, list(ids))


def sampled(**parameters: object) -> Callable[[Row], Row]:
    """Sampling parameters changed, or left out where None."""

    def mutate(row: Row) -> Row:
        values = json.loads(row["sampling"]) | parameters
        return row | {"sampling": canonical_json({k: v for k, v in values.items() if v is not None})}

    return mutate


def long_output(*ids: int) -> Callable[[Row], Row]:
    """A long output instead, under a cap that allows it."""
    return lambda row: sampled(max_new_tokens=10_000)(with_output(row, [*ids, IM_END]))


def long_cut(*ids: int) -> Callable[[Row], Row]:
    """A long output instead, that a cap has cut off."""
    return lambda row: sampled(max_new_tokens=len(ids))(with_output(row, [*ids]) | {"finish_length": len(ids)})


def fresh(number: int, first: int = 20_000) -> list[int]:
    """So many ordinary ids, each another one."""
    return list(range(first, first + number))


def calls(*heads_and_arguments: tuple[str, str]) -> Callable[[Row], Row]:
    """A section of calls instead."""
    section = [
        i
        for head, arguments in heads_and_arguments
        for i in (CALL_BEGIN, *kimi.letters(head), ARG_BEGIN, *kimi.letters(arguments), CALL_END)
    ]
    return long_output(SECTION_BEGIN, *section, SECTION_END)


def one_of_three_calls(place: int, head: str, arguments: str) -> Callable[[Row], Row]:
    """Three calls, of which one has this head and these arguments."""
    good = [(f"functions.f:{number}", "{}") for number in range(3)]
    return calls(*good[:place], (head, arguments), *good[place + 1 :])


def call_index(place: int) -> int:
    """Where a call of three begins."""
    return 1 + place * len(kimi.call())


def start(_: int) -> int:
    return 0


def middle(length: int) -> int:
    return length // 2


def before_stop(length: int) -> int:
    return length - 1


@dataclass
class Damage:
    """What is done to which genuine sample, and which laws say what about it at which index."""

    sample: str
    mutate: Callable[[Row], Row]
    laws: dict[str, str]
    """Law to part of its detail."""
    index: int | None = None
    severity: str = "error"


def damaged(damage: Damage, position: str) -> tuple[dict[str, Row], dict[str, Row], str]:
    """The partition with one sample damaged, the same one whole, and the sample's id."""
    rows, victim = partition(), damage.sample
    whole_row = rows.pop(victim)
    where = {"first": 0, "middle": len(rows) // 2, "last": len(rows)}[position]
    items = list(rows.items())
    whole = dict([*items[:where], (victim, whole_row), *items[where:]])
    return whole | {victim: damage.mutate(deepcopy(whole_row))}, whole, victim


def judged(rows: dict[str, Row], whole: dict[str, Row], context: Context) -> Report:
    frame = kimi.generations(rows)
    kept = {sample: row["ids_sha256"] for sample, row in rows.items() if "ids_sha256" in row}
    hashes = [kept.get(s, h) for s, h in zip(frame["sample_id"], frame["ids_sha256"], strict=True)]
    frame = frame.with_columns(pl.Series("ids_sha256", hashes, dtype=pl.String))
    return judge_generations([frame], replace(context, current_prompts=PromptIndex.of([kimi.prompts(whole)])))
