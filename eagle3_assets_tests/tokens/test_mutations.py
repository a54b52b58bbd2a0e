"""One sample of many is damaged in one way; exactly the laws that are about that damage name exactly that sample."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pytest

from eagle3_assets.config import Sampling
from eagle3_assets.identity import canonical_json
from eagle3_assets.tokens.context import Context, PromptIndex
from eagle3_assets.tokens.judge import judge_generations, judge_prompts
from eagle3_assets.tokens.verdict import Report
from eagle3_assets_tests.tokens import kimi
from eagle3_assets_tests.tokens.kimi import (
    ARG_BEGIN,
    CALL_BEGIN,
    CALL_END,
    CAP,
    END_THINK,
    IM_END,
    SECTION_BEGIN,
    SECTION_END,
    THINK,
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


DAMAGES: dict[str, Damage] = {
    "count too low": Damage(
        "answer", changed(completion_tokens=4), {"completion_count": "counted 4 output ids, there are 6"}
    ),
    "count too high": Damage("answer", changed(completion_tokens=7), {"completion_count": "counted 7"}),
    "count not recorded": Damage(
        "answer",
        changed(completion_tokens=None),
        dict.fromkeys(("completion_count", "no_prompt_echo"), "is not recorded"),
    ),
    "prompt truncated by the server": Damage(
        "answer", changed(server_prompt_tokens=3), {"server_saw_prompt": "prompt truncated: 9 ids were sent"}
    ),
    "server saw more": Damage("answer", changed(server_prompt_tokens=10), {"server_saw_prompt": "prompt changed"}),
    **{
        f"{name} id, {place.__name__}": Damage(
            "answer", inserted(place, token), {"ids_in_vocabulary": said}, index=place(6)
        )
        for name, token, said in (("too large", kimi.VOCAB_SIZE, "id 163840"), ("negative", -5, "id -5"))
        for place in (start, middle, before_stop)
    },
    "two ids outside the vocabulary": Damage(
        "answer",
        lambda row: with_output(row, [A, kimi.VOCAB_SIZE + 1, END_THINK, -1, IM_END]),
        {"ids_in_vocabulary": "id 163841 at index 1 and 1 more outside the model's vocabulary of 163840"},
        index=1,
    ),
    "unknown finish": Damage(
        "answer",
        changed(finish_type="abort", matched_stop=None),
        {"finish_known": "'abort' is neither stop nor length"},
    ),
    "finish not recorded": Damage("answer", changed(finish_type=None), {"finish_known": "is not recorded"}),
    "stop id stripped": Damage(
        "answer",
        lambda row: with_output(row, row["output_ids"][:-1]) | {"matched_stop": str(IM_END)},
        {"stop_token_last": "the engine stopped at <|im_end|> (163586), but the last id is id 1067"},
        index=4,
    ),
    "stop id not in the stop set": Damage(
        "answer",
        lambda row: with_output(row, [*row["output_ids"][:-1], 13]),
        {"stop_token_last": "the last id is id 13, not in the recorded stop set: [EOS] (163585), <|im_end|> (163586)"},
        index=5,
    ),
    "stop string": Damage(
        "answer",
        changed(matched_stop='"User:"'),
        {"stop_token_last": "ended on 'User:', which is no token id"},
        index=5,
    ),
    "bad logits": Damage("answer", changed(matched_stop='"NaN happened"'), {"stop_token_last": "bad logits"}, index=5),
    "matched stop not recorded": Damage("answer", changed(matched_stop=None), {"stop_token_last": "is not recorded"}),
    **{
        f"stop id early, {place.__name__}": Damage(
            "answer",
            inserted(place, kimi.EOS),
            {"nothing_after_stop": f"at index {place(6)} ends the output, yet {6 - place(6)} ids follow"},
            index=place(6),
        )
        for place in (start, middle, before_stop)
    },
    "longer than the cap": Damage(
        "thinking-off",
        outputs(*[A] * CAP, IM_END),
        {"within_cap": "65 output ids, more than the request's max_new_tokens of 64"},
        index=64,
    ),
    "cut before the cap": Damage(
        "cut-in-reasoning",
        outputs(*[A] * (CAP - 10)),
        {"length_honest": "54 output ids and the cap is 64"},
        index=53,
    ),
    "nothing but a stop id": Damage("thinking-off", outputs(IM_END), {"not_stop_only": "<|im_end|> (163586)"}, index=0),
    "reasoning never closed": Damage(
        "answer", outputs(A, B, IM_END), {"reasoning_closed": "open and never closed"}, index=2
    ),
    **{
        f"reasoning closed twice, {place.__name__}": Damage(
            "answer", inserted(place, END_THINK), {"reasoning_closed": "2 times </think> (163607)"}, index=index
        )
        for place, index in ((start, 3), (middle, 3), (before_stop, 5))
    },
    **{
        f"reasoning opened again, {place.__name__}": Damage(
            "answer", inserted(place, THINK), {"reasoning_not_reopened": "<think> (163606)"}, index=place(6)
        )
        for place in (start, middle, before_stop)
    },
    "reasoning opened again twice": Damage(
        "answer",
        lambda row: inserted(middle, THINK)(inserted(before_stop, THINK)(row)),
        {"reasoning_not_reopened": "<think> (163606) at index 3"},
        index=3,
    ),
    "too few log-probabilities, one of them not a number": Damage(
        "answer",
        changed(output_logprobs=[float("nan"), -0.5]),
        {"logprobs_agree": "2 log-probabilities for 6 output ids"},
    ),
    "too few log-probabilities": Damage(
        "answer", changed(output_logprobs=[-0.5] * 5), {"logprobs_agree": "5 log-probabilities for 6 output ids"}
    ),
    **{
        f"log-probability {value} at {index}": Damage(
            "answer",
            changed(output_logprobs=[value if i == index else -0.5 for i in range(6)]),
            {"logprobs_agree": f"the log-probability at index {index} is {value}"},
            index=index,
        )
        for index, value in ((0, float("nan")), (3, float("-inf")), (5, None))
    },
    "a sampling parameter left to the engine": Damage(
        "answer", sampled(top_k=None, seed=None), {"sampling_recorded": "not explicit: top_k, seed"}
    ),
    "sampling not JSON": Damage(
        "answer", changed(sampling="{"), {"sampling_recorded": "is not JSON", "within_cap": ""}
    ),
    "ids changed in storage": Damage(
        "answer", changed(ids_sha256="0" * 64), {"stored_as_captured": "not those whose hash was taken"}
    ),
    "hash not recorded": Damage("answer", changed(ids_sha256=None), {"stored_as_captured": "its hash is not recorded"}),
    "another prompt now": Damage(
        "answer",
        lambda row: row | {"prompt_ids": [13, *row["prompt_ids"]], "server_prompt_tokens": 10},
        {"prompt_as_generated": "is not the one in tokenized_prompts now"},
    ),
    "no output ids": Damage(
        "thinking-off",
        lambda row: with_output(row, []),
        {"completion_count": "no output ids", "stop_token_last": "there are no output ids"},
        index=None,
    ),
    **{
        f"{name} id in the output, {place.__name__}": Damage(
            "answer", inserted(place, token), {"no_reserved_ids": f"({token}) at index {place(6)} has"}, index=place(6)
        )
        for name, token in (
            ("reserved", kimi.RESERVED),
            ("BOS", kimi.BOS),
            ("PAD", kimi.PAD),
            ("UNK", kimi.UNK),
            ("media", kimi.MEDIA),
        )
        for place in (start, middle, before_stop)
    },
    "two reserved ids": Damage(
        "answer",
        lambda row: inserted(middle, kimi.PAD)(inserted(before_stop, kimi.RESERVED)(row)),
        {"no_reserved_ids": "[PAD] (163839) at index 3 has no use in an output, 1 more such ids follow"},
        index=3,
    ),
    **{
        f"role id {token}, {place.__name__}": Damage(
            "answer", inserted(place, token), {"no_role_ids": f"({token}) at index {place(6)} stands"}, index=place(6)
        )
        for token in (kimi.IM_USER, kimi.IM_ASSISTANT, kimi.IM_SYSTEM, kimi.IM_MIDDLE)
        for place in (start, middle, before_stop)
    },
    "count below zero": Damage("answer", changed(cached_tokens=-1), {"usage_consistent": "cached_tokens is -1"}),
    **{
        f"one id too often, {name}": Damage(
            "thinking-off",
            long_output(*before, *[A] * 400, *after),
            {"repetition": f"id 1064 400 times in a row from index {len(before)} on"},
            index=len(before),
        )
        for name, before, after in (
            ("first", [], fresh(90)),
            ("middle", fresh(77), fresh(90, 30_000)),
            ("last", fresh(90), []),
        )
    },
    "one id 500 times and nothing else": Damage(
        "thinking-off", long_output(*[A] * 500), {"repetition": "id 1064 500 times in a row"}, index=0
    ),
    "a loop to the end": Damage(
        "thinking-off",
        long_output(*fresh(50), *20 * fresh(25, 30_000)),
        {"repetition": "ends in a loop: the same 25 ids 20.0 times from index 50 on"},
        index=50,
    ),
    **{
        f"the same passages again and again, {name}": Damage(
            "thinking-off",
            long_output(*before, *(i for n in range(40) for i in (*fresh(120, 30_000), 50_000 + n)), *after),
            {"repetition": "of its passages of 8 ids stood in it before"},
            index=len(before) + 121,
        )
        for name, before, after in (
            ("first", [], fresh(20)),
            ("middle", fresh(10), fresh(10, 40_000)),
            ("last", fresh(20), []),
        )
    },
    # Remarks and habits: they never break a sample.
    "cache larger than the prompt": Damage(
        "answer",
        changed(cached_tokens=10),
        {"usage_consistent": "10 prompt tokens taken from the cache of 9"},
        severity="warning",
    ),
    **{
        f"one id often, {name}": Damage(
            "thinking-off",
            long_output(*before, *[A] * 100, *after),
            {"repetition": "id 1064 100 times in a row"},
            index=len(before),
            severity="warning",
        )
        for name, before, after in (("first", [], fresh(40)), ("middle", fresh(33), fresh(40)), ("last", fresh(55), []))
    },
    "a short loop to the end": Damage(
        "thinking-off",
        long_output(*fresh(50), *3 * fresh(34, 30_000)),
        {"repetition": "ends in a loop: the same 34 ids 3.0 times from index 50 on"},
        index=50,
        severity="warning",
    ),
    "a text three times, and something else": Damage(
        "thinking-off",
        long_output(*3 * (*fresh(100), A), *fresh(20, 30_000)),
        {"repetition": "of its passages of 8 ids stood in it before, the first one again at index 101"},
        index=101,
        severity="warning",
    ),
    "a text three times": Damage(
        "thinking-off",
        long_output(*3 * (*fresh(100), A)),
        {"repetition": "ends in a loop: the same 101 ids 3.0 times from index 0 on"},
        index=0,
        severity="warning",
    ),
    **{
        f"call id {head!r}, call {place}": Damage(
            "thinking-off",
            one_of_three_calls(place, head, "{}"),
            {"tool_call_id": f"call id {head!r} is not functions.NAME:INDEX"},
            index=call_index(place) + 1,
            severity="warning",
        )
        for place in range(3)
        for head in ("functionsexec5", "functions_get_weather_1", "f:0", "functions.f", "functions.:0", "functions.f:x")
    },
    "call id with a newline": Damage(
        "thinking-off",
        calls(("functions.f:0\n", "{}")),
        {"tool_call_id": "call id 'functions.f:0\\n' is not functions.NAME:INDEX"},
        index=2,
        severity="warning",
    ),
    **{
        f"arguments {arguments!r}, call {place}": Damage(
            "thinking-off",
            one_of_three_calls(place, f"functions.f:{place}", arguments),
            {"tool_arguments_json": said},
            index=call_index(place) + len(kimi.call()) - 3,
            severity="warning",
        )
        for place in range(3)
        for arguments, said in (
            ('"{}"', "the arguments are a string, not an object: encoded twice"),
            ("[]", "the arguments are a list"),
            ("null", "the arguments are null"),
            ("7", "the arguments are a number"),
            ("{", "the call's JSON is not JSON"),
            ('{"a":NaN}', "NaN is no JSON number"),
        )
    },
    **{
        f"undeclared tool, call {place}": Damage(
            "thinking-off",
            one_of_three_calls(place, f"functions.g:{place}", "{}"),
            {"tool_declared": "calls 'g', the prompt declares f"},
            index=call_index(place),
            severity="warning",
        )
        for place in range(3)
    },
    "text after the calls": Damage(
        "thinking-off",
        outputs(SECTION_BEGIN, *kimi.call(), SECTION_END, A, B, IM_END),
        {"tool_order": "id 1064 at index 20 follows the tool markup"},
        index=20,
        severity="warning",
    ),
    "reasoning ends after the calls": Damage(
        "answer",
        outputs(A, SECTION_BEGIN, *kimi.call(), SECTION_END, END_THINK, IM_END),
        {"tool_order": "</think> (163607) at index 21 follows the tool markup"},
        index=21,
        severity="warning",
    ),
    "two sections": Damage(
        "thinking-off",
        outputs(SECTION_BEGIN, *kimi.call(), SECTION_END, SECTION_BEGIN, *kimi.call(1), SECTION_END, IM_END),
        {"tool_order": "a second section of tool calls begins at index 20"},
        index=20,
        severity="warning",
    ),
    "calls counted in another order": Damage(
        "thinking-off",
        calls(("functions.f:0", "{}"), ("functions.f:2", "{}"), ("functions.f:1", "{}")),
        {"tool_order": "call number 2 follows number 0"},
        index=call_index(1),
        severity="warning",
    ),
    "one number for two calls": Damage(
        "thinking-off",
        calls(("functions.f:0", "{}"), ("functions.f:1", "{}"), ("functions.f:1", "{}")),
        {"tool_order": "call number 1 follows number 1"},
        index=call_index(2),
        severity="warning",
    ),
    **{
        f"text of the engine, {name}": Damage(
            "answer", changed(text=text), {"text_agrees": f"from character {place} on"}, index, "warning"
        )
        for name, text, place, index in (
            ("first", "b</think>cd<|im_end|>", 0, 0),
            ("middle doubled", "ab</think></think>cd<|im_end|>", 10, 3),
            ("last", "ab</think>cd<|im_end|>\n", 22, 5),
            ("cut short", "ab</think>c", 11, 4),
        )
    },
    **{
        f"bytes that are no character, {place.__name__}": Damage(
            "answer",
            inserted(place, *kimi.letters("😀")[:count]),
            dict.fromkeys(("no_replacement_character", "retokenization_drift"), f"index {place(6)}"),
            place(6),
            "warning",
        )
        for place, count in ((start, 1), (middle, 3), (before_stop, 2))
    },
    **{
        f"{kind} in other pieces, {place.__name__}": Damage(
            "answer",
            inserted(place, *kimi.letters(text)),
            {"retokenization_drift": f"differs from index {place(6)} on, at {kind} text"},
            place(6),
            "warning",
        )
        for kind, text, place in (
            ("structural", "</think>", start),
            ("structural", "<|im_end|>", middle),
            ("structural", "[PAD]", before_stop),
            ("digits", "12", start),
            ("digits", "12", middle),
            ("digits", "12", before_stop),
            ("whitespace", "\n\n", before_stop),
        )
    },
    **{
        f"{kind} in other pieces, {name}": Damage(
            "empty-reasoning", outputs(*ids), {"retokenization_drift": f"at {kind} text: {said}"}, index, "warning"
        )
        for kind, text, said in (
            ("other", "hello", f"id {kimi.BYTES['h']} 'h' would become id 22931 'hello'"),
            ("multi-byte", "世", f"id {kimi.BYTES['ä']} '\ufffd' would become id 4812 '世'"),
        )
        for name, index, ids in (
            ("first", 0, [*kimi.letters(text), END_THINK, A, IM_END]),
            ("middle", 2, [A, END_THINK, *kimi.letters(text), SECTION_BEGIN, *kimi.call(), SECTION_END, IM_END]),
            ("last", 1, [END_THINK, *kimi.letters(text), IM_END]),
        )
    },
    "implicit end": Damage(
        "answer",
        outputs(A, SECTION_BEGIN, *kimi.call(), SECTION_END, IM_END),
        {"reasoning_closed": "implicit end: reasoning ends with tool markup at index 1"},
        index=1,
        severity="warning",
    ),
    "implicit end and two sections": Damage(
        "answer",
        outputs(A, *2 * [SECTION_BEGIN, *kimi.call(), SECTION_END], IM_END),
        {
            "reasoning_closed": "implicit end: reasoning ends with tool markup at index 1",
            "tool_order": "a second section of tool calls begins at index 21",
        },
        severity="warning",
    ),
    "implicit end at once": Damage(
        "answer",
        outputs(SECTION_BEGIN, *kimi.call(), SECTION_END, IM_END),
        {"reasoning_closed": "implicit end: reasoning ends with tool markup at index 0"},
        index=0,
        severity="warning",
    ),
    "stop id exactly at the cap": Damage(
        "cut-in-reasoning",
        outputs(*[A] * (CAP - 2), END_THINK, IM_END),
        {"length_honest": "ends with <|im_end|> (163586) exactly at the cap of 64"},
        index=63,
        severity="warning",
    ),
    "capped by context": Damage(
        "cut-in-reasoning",
        lambda row: with_output(row, [A] * 50) | {"finish_length": 50},
        {"length_honest": "capped by context: 50 of the 64 tokens asked for"},
        index=49,
        severity="warning",
    ),
    **{
        f"reasoning though it is off, {place.__name__}": Damage(
            "thinking-off", inserted(place, *ids), {"reasoning_off": said}, index=place(3), severity="warning"
        )
        for place, ids, said in (
            (start, (THINK, A, END_THINK), "<think>"),  # opened by the first id, so it has to be closed too
            (middle, (THINK,), "<think>"),
            (before_stop, (END_THINK,), "</think>"),
        )
    },
    **{
        f"tool markup: {name}": Damage(
            "thinking-off", outputs(*ids), {"tool_grammar": f"cannot stand there, after {said}"}, index, "warning"
        )
        for name, ids, said, index in (
            ("call without section", (A, *kimi.call(), IM_END), "no markup", 1),
            ("empty section", (SECTION_BEGIN, SECTION_END, IM_END), "<|tool_calls_section_begin|>", 1),
            (
                "no call id",
                (SECTION_BEGIN, CALL_BEGIN, ARG_BEGIN, A, CALL_END, SECTION_END, IM_END),
                "<|tool_call_begin|>",
                2,
            ),
            (
                "no arguments",
                (SECTION_BEGIN, CALL_BEGIN, A, ARG_BEGIN, CALL_END, SECTION_END, IM_END),
                "<|tool_call_argument_begin|>",
                4,
            ),
            (
                "end missing",
                (SECTION_BEGIN, CALL_BEGIN, A, ARG_BEGIN, B, SECTION_END, IM_END),
                "<|tool_call_argument_begin|>",
                5,
            ),
            ("section never ended", (SECTION_BEGIN, *kimi.call(), IM_END), "<|tool_call_end|>", 1 + len(kimi.call())),
            (
                "ids between calls",
                (SECTION_BEGIN, *kimi.call(), A, *kimi.call(1), SECTION_END, IM_END),
                "<|tool_call_end|>",
                call_index(1),
            ),
            ("end alone", (A, SECTION_END, IM_END), "no markup", 1),
            (
                "section in section",
                (SECTION_BEGIN, SECTION_BEGIN, *kimi.call(), SECTION_END, IM_END),
                "<|tool_calls_section_begin|>",
                1,
            ),
        )
    },
}


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


def test_genuine_samples_break_no_law(context: Context) -> None:
    report = judge_generations([kimi.generations()], context)
    assert report.findings.rows() == [
        (
            "implicit-end",
            "reasoning_closed",
            "warning",
            2,
            "implicit end: reasoning ends with tool markup at index 2, without </think> (163607)",
        ),
        ("tools-then-text", "tool_order", "warning", 20, "id 1066 at index 20 follows the tool markup"),
    ]
    assert {v.law.name for v in report.verdicts if v.status != "passed"} == {
        "reasoning_closed",
        "tool_order",
        "cut_off_share",  # a quarter of these few samples is cut off on purpose
        "length_band",
    }
    assert report.quarantined == frozenset()
    assert report.refusals == ()


@pytest.mark.parametrize("position", ["first", "middle", "last"])
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_by_its_laws_alone(name: str, position: str, context: Context) -> None:
    damage = DAMAGES[name]
    rows, whole, victim = damaged(damage, position)
    assert judged(whole, whole, context).findings.is_empty()
    report = judged(rows, whole, context)
    found = {(f["sample_id"], f["law"], f["severity"]) for f in report.findings.iter_rows(named=True)}
    assert found == {(victim, law, damage.severity) for law in damage.laws}
    for finding in report.findings.iter_rows(named=True):
        assert damage.laws[finding["law"]] in finding["detail"]
        if damage.index is not None:
            assert finding["index"] == damage.index
    for law in damage.laws:
        verdict = report[law]
        effect_breaks = damage.severity == "error" or verdict.effect == "warn"
        assert (verdict.violations, verdict.warnings) == ((1, 0) if effect_breaks else (0, 1))
        assert verdict.severity == ("ERROR" if verdict.effect == "refuse" else "WARN")
        assert verdict.refuses == (verdict.effect == "refuse")
        assert victim in verdict.summary
    quarantined = any(report[law].effect == "quarantine" for law in damage.laws) and damage.severity == "error"
    assert report.quarantined == (frozenset({victim}) if quarantined else frozenset())


def test_every_row_law_about_outputs_has_a_damage() -> None:
    from eagle3_assets.tokens.laws import RowLaw, laws_of

    covered = {law for damage in DAMAGES.values() for law in damage.laws}
    assert {law.name for law in laws_of("raw_generations") if isinstance(law, RowLaw)} == covered | {"no_prompt_echo"}


PROMPT_DAMAGES: dict[str, tuple[Callable[[list[int]], list[int]], str]] = {
    "suffix lost": (lambda ids: ids[:-4], "not with the thinking suffix <|im_assistant|> 69702 <|im_middle|> <think>"),
    "role written as text": (lambda ids: [*ids[:-3], A, *ids[-2:]], "ends with <|im_assistant|> 1064 <|im_middle|>"),
    "suffix of the other mode": (
        lambda ids: [*ids, END_THINK],
        "ends with the suffix of mode no_thinking, not of thinking",
    ),
    "an id after it": (lambda ids: [*ids, A], "not with the thinking suffix"),
    "empty": (lambda _: [], "ends with nothing"),
}


def judged_prompts(
    mutate: Callable[[list[int]], list[int]], position: str, context: Context, sample: str = "answer"
) -> tuple[Report, str]:
    """Twenty prompts of which one is damaged, and its sample id."""
    rows = {f"{n}": deepcopy(kimi.genuine()[sample]) for n in range(20)}
    victim = {"first": "0", "middle": "9", "last": "19"}[position]
    whole = kimi.prompts(rows).with_columns(thinking=pl.lit(value=True))
    assert judge_prompts([whole], replace(context, rerendered_prompts=whole)).findings.is_empty()
    rows[victim]["prompt_ids"] = mutate(rows[victim]["prompt_ids"])
    frame = kimi.prompts(rows).with_columns(thinking=pl.lit(value=True))
    return judge_prompts([frame], replace(context, rerendered_prompts=frame)), victim


@pytest.mark.parametrize("position", ["first", "middle", "last"])
@pytest.mark.parametrize("name", PROMPT_DAMAGES)
def test_damaged_prompt(name: str, position: str, context: Context) -> None:
    mutate, said = PROMPT_DAMAGES[name]
    report, victim = judged_prompts(mutate, position, context)
    assert report.findings.select("sample_id", "law", "severity").rows() == [(victim, "prompt_suffix", "error")]
    assert said in report.findings["detail"][0]
    assert report.quarantined == {victim}


def put(place: int, *ids: int) -> Callable[[list[int]], list[int]]:
    """Ids put in at a place."""
    return lambda prompt: [*prompt[:place], *ids, *prompt[place:]]


def without(place: int) -> Callable[[list[int]], list[int]]:
    """The id at a place left out."""
    return lambda prompt: [*prompt[:place], *prompt[place + 1 :]]


MALFORMED: dict[str, tuple[str, Callable[[list[int]], list[int]], str, int]] = {
    **{
        f"{name} at {place}": (
            "answer",
            put(place, token),
            f"({token}) at index {place} has no place in a prompt",
            place,
        )
        for name, token in (
            ("BOS", kimi.BOS),
            ("EOS", kimi.EOS),
            ("PAD", kimi.PAD),
            ("UNK", kimi.UNK),
            ("media", kimi.MEDIA),
            ("reserved", kimi.RESERVED),
        )
        for place in (0, 4, 5)
    },
    **{
        f"id {token} at {place}": ("answer", put(place, token), f"id {token} at index {place} outside the", place)
        for token in (kimi.VOCAB_SIZE, -7)
        for place in (0, 4, 5)
    },
    "a typed end of turn": ("answer", put(3, IM_END), "<|im_end|> (163586) at index 5 ends no turn", 5),
    "an end before the first turn": ("answer", put(0, IM_END), "<|im_end|> (163586) at index 0 ends no turn", 0),
    "an end after the last one": ("answer", put(5, IM_END), "<|im_end|> (163586) at index 5 ends no turn", 5),
    "a typed role": ("answer", put(3, kimi.IM_SYSTEM), "(163594) at index 3 begins a turn before the one", 3),
    **{
        f"turn {number} never ended": (
            "long-prompt",
            without(at),
            f"at index {at} begins a turn before the one before it has ended",
            at,
        )
        for number, at in ((1, 6), (2, 11))
    },
}


@pytest.mark.parametrize("position", ["first", "middle", "last"])
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_prompt(name: str, position: str, context: Context) -> None:
    sample, mutate, said, index = MALFORMED[name]
    report, victim = judged_prompts(mutate, position, context, sample)
    found = report.findings.select("sample_id", "law", "severity", "index").rows()
    assert found == [(victim, "prompt_well_formed", "error", index)]
    assert said in report.findings["detail"][0]
    assert report.quarantined == {victim}


@pytest.mark.parametrize("position", ["first", "middle", "last"])
@pytest.mark.parametrize(
    ("mutate", "said", "index"),
    [
        (lambda prompt: prompt[1:], "begins with <|im_user|> (163587), not with the template's [BOS] (163584)", 0),
        (put(0, kimi.BOS), "[BOS] (163584) at index 1 after the prompt's beginning", 1),
        (put(5, kimi.BOS), "[BOS] (163584) at index 5 after the prompt's beginning", 5),
    ],
)
def test_prompt_of_a_template_with_bos(
    mutate: Callable[[list[int]], list[int]], said: str, index: int, position: str, context: Context
) -> None:
    rows = {f"{n}": deepcopy(kimi.genuine()["answer"]) for n in range(20)}
    for row in rows.values():
        row["prompt_ids"].insert(0, kimi.BOS)
    with_bos = replace(context, profile=replace(context.profile, prompt_bos=True), rerendered_prompts=None)
    assert judge_prompts([kimi.prompts(rows)], with_bos).findings.is_empty()
    victim = {"first": "0", "middle": "9", "last": "19"}[position]
    rows[victim]["prompt_ids"] = mutate(rows[victim]["prompt_ids"])
    found = judge_prompts([kimi.prompts(rows)], with_bos).findings
    assert found.select("sample_id", "law", "index").rows() == [(victim, "prompt_well_formed", index)]
    assert found["detail"][0] == said


def test_turns_that_nothing_ends(context: Context) -> None:
    """DeepSeek's user turns have no end; its assistant turns have one."""
    turns = {kimi.IM_USER: frozenset[int](), kimi.IM_ASSISTANT: frozenset({IM_END})}
    profile = replace(context.profile, turns=turns, suffixes={})
    user, answer = [kimi.IM_USER, A], [kimi.IM_ASSISTANT, B, IM_END]
    rows = {
        "good": [*user, *answer, *user, kimi.IM_ASSISTANT],
        "two questions": [*user, *user, kimi.IM_ASSISTANT],
        "ended question": [*user, IM_END, kimi.IM_ASSISTANT],
        "open answer": [*user, kimi.IM_ASSISTANT, B, *user, kimi.IM_ASSISTANT],
    }
    frame = pl.DataFrame({"sample_id": list(rows), "prompt_ids": list(rows.values())})
    found = judge_prompts([frame], Context(profile)).findings
    assert found.select("sample_id", "index").rows() == [("ended question", 2), ("open answer", 4)]


TALK = [kimi.IM_USER, kimi.USER, kimi.IM_MIDDLE, *kimi.letters("abc"), IM_END, *kimi.SUFFIX]


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("sample", [0, 10, 19])
@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([IM_END], "<|im_end|> (163586)"),
        ([kimi.PAD], "[PAD] (163839)"),
        ([163700], "<|reserved_token_163700|> (163700)"),
        ([IM_END, kimi.IM_SYSTEM], "<|im_end|> (163586), <|im_system|> (163594)"),
        ([END_THINK, END_THINK], "</think> (163607) 2 times"),
        ([kimi.UNK, A, kimi.PAD], "[UNK] (163838), [PAD] (163839)"),
    ],
)
def test_structural_ids_made_of_text(ids: list[int], said: str, sample: int, place: int, context: Context) -> None:
    whole = {f"{n}": {"prompt_ids": list(TALK)} for n in range(20)}
    twins = {name: {"prompt_ids": [i for i in TALK if i not in kimi.letters("bc")]} for name in whole}
    rows = deepcopy(whole)
    rows[f"{sample}"]["prompt_ids"][3 + place : 3 + place] = ids
    known = replace(context, rerendered_prompts=None).with_inert_prompts([kimi.prompts(twins)])
    assert judge_prompts([kimi.prompts(whole)], known)["prompt_injection"].status == "passed"
    report = judge_prompts([kimi.prompts(rows)], known)
    detail = f"text of the conversation became {said}"
    # On ids alone some of them are seen to have no place there.
    found = report.findings.filter(pl.col("law") != "prompt_well_formed")
    assert found.rows() == [(f"{sample}", "prompt_injection", "error", 3 + place, detail)]
    assert report.quarantined == {f"{sample}"}
    assert not report.refusals


def test_a_prompt_whose_twin_is_refused_is_not_passed_in_silence(context: Context) -> None:
    frame = kimi.prompts({name: {"prompt_ids": list(TALK)} for name in ("a", "b")})
    twins = frame.with_columns(prompt_ids=pl.when(pl.col("sample_id") != "b").then("prompt_ids"))
    known = replace(context, rerendered_prompts=None).with_inert_prompts([twins])
    verdict = judge_prompts([frame], known)["prompt_injection"]
    assert (verdict.status, verdict.judged, verdict.warnings) == ("warned", 1, 1)
    assert verdict.details == ("b: cannot be compared: the chat template refuses the conversation with inert text",)


def test_structural_ids_in_other_places_and_lost_ones(context: Context) -> None:
    changed = {
        "swallowed": [i for i in TALK if i != kimi.IM_MIDDLE],
        "moved": [TALK[1], TALK[2], TALK[0], *TALK[3:]],
        "whole": TALK,
    }
    twins = kimi.prompts({name: {"prompt_ids": list(TALK)} for name in changed})
    frame = kimi.prompts({name: {"prompt_ids": ids} for name, ids in changed.items()})
    report = judge_prompts([frame], replace(context, rerendered_prompts=None).with_inert_prompts([twins]))
    found = report.findings.filter(pl.col("law") == "prompt_injection")
    assert dict(found.select("sample_id", "detail").iter_rows()) == {
        "swallowed": "text of the conversation took <|im_middle|> (163601) 2 times away",
        "moved": "text of the conversation put its structural ids into another order",
    }


NAMES = ("get_weather", "search", "send-mail")


def declaring(*names: str) -> list[int]:
    """A prompt that declares tools."""
    text = ", ".join(f'{{"name":"{name}"}}' for name in names)
    return [kimi.IM_SYSTEM, kimi.SYSTEM, kimi.IM_MIDDLE, *kimi.letters(text), IM_END, *TALK]


@pytest.mark.parametrize("sample", [0, 10, 19])
@pytest.mark.parametrize("lost", NAMES)
@pytest.mark.parametrize("instead", [None, "x{}", "{}_2"])
def test_tool_that_is_not_in_the_prompt(instead: str | None, lost: str, sample: int, context: Context) -> None:
    whole = {f"{n}": {"prompt_ids": declaring(*NAMES)} for n in range(20)}
    rows = deepcopy(whole)
    others = [instead.format(name) if name == lost and instead else name for name in NAMES if instead or name != lost]
    rows[f"{sample}"]["prompt_ids"] = declaring(*others)
    known = replace(context, rerendered_prompts=None, declared_tools=dict.fromkeys(whole, NAMES))
    assert judge_prompts([kimi.prompts(whole)], known)["tools_rendered"].status == "passed"
    report = judge_prompts([kimi.prompts(rows)], known)
    assert report.findings.select("sample_id", "law", "severity", "detail").rows() == [
        (f"{sample}", "tools_rendered", "error", f"the prompt names 2 of 3 declared tools, not {lost}")
    ]
    assert report.quarantined == {f"{sample}"}


def test_tools_that_only_a_message_names_are_not_rendered(context: Context) -> None:
    frame = kimi.prompts({"s": {"prompt_ids": declaring(*NAMES)}})
    bare = replace(context, rerendered_prompts=None, declared_tools={"s": NAMES})
    assert judge_prompts([frame], bare)["tools_rendered"].status == "passed"
    dropped = bare.with_inert_prompts([kimi.prompts({"s": {"prompt_ids": list(TALK)}})])
    report = judge_prompts([frame], dropped)
    assert report["tools_rendered"].details == (
        "s: the prompt names 0 of 3 declared tools, not get_weather, search, send-mail",
    )


@pytest.mark.parametrize("name", ["get_weather", 'odd "name"', "天气", "a.b", "search now"])
def test_genuine_names_of_tools(name: str, context: Context) -> None:
    spelled = json.dumps({"name": name}, ensure_ascii=False)
    ids = [kimi.IM_SYSTEM, kimi.SYSTEM, kimi.IM_MIDDLE, *kimi.letters(spelled), IM_END, *TALK]
    frame = kimi.prompts({"s": {"prompt_ids": ids}})
    known = replace(context, rerendered_prompts=None, declared_tools={"s": (name,)})
    assert judge_prompts([frame], known)["tools_rendered"].status == "passed"


@pytest.mark.parametrize("index", [0, 4, 8])
def test_prompt_that_renders_differently(index: int, context: Context) -> None:
    again = kimi.genuine()
    again["last"]["prompt_ids"][index] = A
    known = replace(context, rerendered_prompts=kimi.prompts(again), declared_tools=None)
    report = judge_prompts([kimi.prompts()], known)
    verdict = report["prompt_reproducible"]
    assert (verdict.status, verdict.refuses, verdict.violations) == ("failed", True, 1)
    assert report.findings.select("sample_id", "index").rows() == [("last", index)]
    assert report.quarantined == frozenset()


def test_some_prompts_rendered_again(context: Context) -> None:
    some = kimi.prompts().head(3).select("sample_id", "prompt_ids")
    verdict = judge_prompts([kimi.prompts()], replace(context, rerendered_prompts=some))["prompt_reproducible"]
    assert (verdict.status, verdict.judged, verdict.rows) == ("passed", 3, 12)


def test_sampling_model_and_law_name_the_same_parameters() -> None:
    record = canonical_json(Sampling().model_dump(mode="json"))
    assert set(json.loads(record)) == set(Sampling.model_fields)
