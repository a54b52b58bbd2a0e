"""Reasoning where the prompt says nothing of it and the profile knows what the target does: opens it itself, or never.

One sample of many is damaged, at each place in the file and in the sample; exactly the expected laws name it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
import pytest

from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.known_ids import known_profile
from eagle3_assets.tokens.profile import TargetProfile
from eagle3_assets.tokens.verdict import Report

OPENS = ("kimi-k2-thinking", "qwen3", "deepseek-r1-0528")
ROWS = 21


@dataclass(frozen=True)
class Output:
    """What a target wrote, and whether a cap ended it."""

    ids: list[int]
    cut: bool = False
    prompt: list[int] | None = None
    """Instead of one that ends as prompts with reasoning do."""


def words(number: int, length: int) -> list[int]:
    """Ordinary ids, other ones for each number."""
    return [5_000 + (number * 31 + place * 7) % 90_000 for place in range(length)]


def prompt(profile: TargetProfile, number: int) -> list[int]:
    return [*words(number, 3), *profile.suffixes["thinking"]]


def marks(profile: TargetProfile) -> tuple[int, int, int]:
    """Start and end of reasoning, and a stop id."""
    assert profile.reasoning_start is not None
    assert profile.reasoning_end is not None
    return profile.reasoning_start, profile.reasoning_end, max(profile.stop_ids)


def genuine(profile: TargetProfile, number: int) -> Output:
    """Outputs of a few kinds by number; that of multiples of three is whole and has seven ordinary ids."""
    start, end, stop = marks(profile)
    text = words(number, 7)
    if "never" in profile.reasoning_habit.values():
        return Output([*text, stop] if number % 3 < 2 else text, cut=number % 3 == 2)
    if number % 3 == 0:
        return Output([start, *text[:4], end, *text[4:], stop])
    return Output([start, end, *text, stop]) if number % 3 == 1 else Output([start, *text], cut=True)


def judged(profile: TargetProfile, outputs: list[Output]) -> Report:
    stopped = [None if output.cut else str(output.ids[-1]) for output in outputs]
    frame = pl.DataFrame(
        {
            "sample_id": [f"s{number}" for number in range(len(outputs))],
            "prompt_ids": [
                prompt(profile, number) if output.prompt is None else output.prompt
                for number, output in enumerate(outputs)
            ],
            "output_ids": [output.ids for output in outputs],
            "completion_tokens": [len(output.ids) for output in outputs],
            "finish_type": ["length" if output.cut else "stop" for output in outputs],
            "matched_stop": stopped,
            "finish_length": [len(output.ids) if output.cut else None for output in outputs],
        }
    )
    return judge_generations([frame[:8], frame[8:]], Context(profile))


def findings(report: Report) -> set[tuple[str, str, str, int]]:
    return set(report.findings.select("sample_id", "law", "severity", "index").iter_rows())


Ids = list[int]
Change = Callable[[Ids, int, int], Ids]
"""Gives the damaged ids of ``start a b c d end e f g stop``, knowing the ids of start and end."""


def put(place: int, what: str) -> Change:
    def change(ids: Ids, start: int, end: int) -> Ids:
        return [*ids[:place], start if what == "start" else end, *ids[place:]]

    return change


def without(*places: int) -> Change:
    return lambda ids, _start, _end: [token for place, token in enumerate(ids) if place not in places]


def moved(place: int, to: int) -> Change:
    def change(ids: Ids, _start: int, _end: int) -> Ids:
        rest = [*ids[:place], *ids[place + 1 :]]
        return [*rest[:to], ids[place], *rest[to:]]

    return change


CLOSED, REOPENED, OFF = "reasoning_closed", "reasoning_not_reopened", "reasoning_off"

OF_OPENING: dict[str, tuple[Change, str, str, int]] = {
    "start stripped": (without(0), CLOSED, "error", 4),
    "end stripped": (without(5), CLOSED, "error", 8),
    "both stripped": (without(0, 5), CLOSED, "warning", 0),
    "reasoning stripped whole": (without(*range(6)), CLOSED, "warning", 0),
    "end doubled, first": (put(1, "end"), CLOSED, "error", 6),
    "end doubled, middle": (put(6, "end"), CLOSED, "error", 6),
    "end doubled, last": (put(9, "end"), CLOSED, "error", 9),
    "end before everything": (moved(5, 0), CLOSED, "error", 0),
    "start after the end": (moved(0, 6), CLOSED, "error", 4),
    "start late, closed": (moved(0, 2), CLOSED, "warning", 2),
    "start late, never closed": (
        lambda ids, *_: without(4)(moved(0, 2)(ids, *_), *_)[:4] + ids[6:],
        CLOSED,
        "error",
        2,
    ),
    "start last, never closed": (lambda ids, start, _: [*ids[1:5], *ids[6:9], start, ids[9]], CLOSED, "error", 7),
    "start doubled, first": (put(0, "start"), REOPENED, "error", 1),
    "start doubled, middle": (put(3, "start"), REOPENED, "error", 3),
    "start doubled, last": (put(9, "start"), REOPENED, "error", 9),
}
PLACES = (0, 9, 18)
"""First, in the middle and nearly last: samples that are whole."""


@pytest.mark.parametrize("name", [*OPENS, "qwen3-instruct"])
def test_genuine_outputs_have_no_finding(name: str) -> None:
    profile = known_profile(name)
    report = judged(profile, [genuine(profile, number) for number in range(ROWS)])
    assert findings(report) == set()
    assert report[OFF if name == "qwen3-instruct" else CLOSED].judged == ROWS


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("damage", OF_OPENING)
@pytest.mark.parametrize("name", OPENS)
def test_damaged_reasoning_that_the_target_opens(name: str, damage: str, place: int) -> None:
    profile = known_profile(name)
    change, law, severity, index = OF_OPENING[damage]
    outputs = [genuine(profile, number) for number in range(ROWS)]
    start, end, _ = marks(profile)
    outputs[place] = Output(change(outputs[place].ids, start, end))
    report = judged(profile, outputs)
    assert findings(report) == {(f"s{place}", law, severity, index)}
    assert report.quarantined == ({f"s{place}"} if severity == "error" else set())


@pytest.mark.parametrize("name", OPENS)
def test_outputs_that_a_cap_ended(name: str) -> None:
    profile = known_profile(name)
    start, end, _ = marks(profile)
    outputs = [genuine(profile, number) for number in range(ROWS)]
    outputs[2] = Output(words(2, 9), cut=True)
    outputs[11] = Output([*words(11, 3), end, *words(11, 4)], cut=True)
    outputs[20] = Output([start], cut=True)
    assert findings(judged(profile, outputs)) == {("s2", CLOSED, "warning", 0), ("s11", CLOSED, "error", 3)}


@pytest.mark.parametrize("name", OPENS)
def test_of_other_prompts_the_habit_says_nothing(name: str) -> None:
    """After a tool's result, after a prompt that closed reasoning, and where the prompt is not known."""
    profile = known_profile(name)
    start, end, stop = marks(profile)
    outputs = [genuine(profile, number) for number in range(ROWS)]
    outputs[0] = Output([*words(0, 5), stop], prompt=[*words(0, 3), *profile.suffixes["thinking"], start, end])
    outputs[9] = Output([*words(9, 5), stop], prompt=words(9, 6))
    outputs[20] = Output([*words(20, 5), stop], prompt=[])
    assert findings(judged(profile, outputs)) == set()
    outputs[9] = Output([*words(9, 2), end, *words(8, 2), end, stop], prompt=words(9, 6))
    assert findings(judged(profile, outputs)) == {("s9", CLOSED, "error", 5)}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("index", [0, 4, 7])
@pytest.mark.parametrize("which", ["start", "end"])
def test_a_target_that_never_reasons(which: str, index: int, place: int) -> None:
    profile = known_profile("qwen3-instruct")
    start, end, _ = marks(profile)
    outputs = [genuine(profile, number) for number in range(ROWS)]
    outputs[place] = Output(put(index, which)(outputs[place].ids, start, end))
    expected = {(f"s{place}", OFF, "warning", index)}
    if (which, index) == ("start", 0):  # an output that begins in reasoning has to end it, too
        expected.add((f"s{place}", CLOSED, "error", 8))
    assert findings(judged(profile, outputs)) == expected


def test_what_is_said_of_a_target_that_never_reasons() -> None:
    profile = known_profile("qwen3-instruct")
    start, end, stop = marks(profile)
    report = judged(profile, [Output([start, *words(1, 3), end, *words(2, 3), stop])])
    assert report[OFF].details == (
        "s0: <think> (151667) at index 0, though targets of the profile 'qwen3-instruct' do not reason",
    )


def test_reasoning_that_ends_with_tool_markup_after_a_late_start() -> None:
    profile = known_profile("kimi-k2-thinking")
    assert profile.tools is not None
    start, _, stop = marks(profile)
    report = judged(profile, [Output([*words(1, 2), start, 5_000, *profile.tools.all, stop])])
    [found] = report.findings.filter(pl.col("law") == CLOSED).iter_rows(named=True)
    assert (found["severity"], found["index"]) == ("warning", 4)
    assert found["detail"].startswith("implicit end")
