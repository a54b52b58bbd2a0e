"""One prompt of many is damaged in one way; exactly the law that is about that damage names exactly that sample."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import polars as pl
import pytest

from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_prompts
from eagle3_assets.tokens.verdict import Report
from eagle3_assets_tests.tokens import kimi
from eagle3_assets_tests.tokens.kimi import END_THINK, IM_END

A, B = kimi.letters("ab")

PROMPT_DAMAGES: dict[str, tuple[Callable[[list[int]], list[int]], str]] = {
    "suffix lost": (lambda ids: ids[:-4], "not with the thinking suffix <|im_assistant|> 69702 <|im_middle|> <think>"),
    "role written as text": (lambda ids: [*ids[:-3], A, *ids[-2:]], "ends with <|im_assistant|> 1064 <|im_middle|>"),
    "suffix of the other mode": (
        lambda ids: [*ids, END_THINK],
        "ends with the suffix of mode no_thinking, not of thinking",
    ),
    "an id after it": (lambda ids: [*ids, A], "not with the thinking suffix"),
}

WITHOUT_MODE: dict[str, tuple[Callable[[list[int]], list[int]], str]] = {
    "suffix lost": (lambda ids: ids[:-4], "not with a generation suffix of the profile 'kimi'"),
    "last id lost": (lambda ids: ids[:-1], "not with a generation suffix of the profile 'kimi'"),
    "role lost": (lambda ids: [*ids[:-3], *ids[-2:]], "not with a generation suffix of the profile 'kimi'"),
    "role written as text": (
        lambda ids: [*ids[:-3], A, *ids[-2:]],
        "ends with <|im_end|> <|im_assistant|> 1064 <|im_middle|>",
    ),
    "opened twice": (lambda ids: [*ids, kimi.THINK], "goes on for 1 id after a generation suffix"),
    "the output's first id after it": (lambda ids: [*ids, A], "goes on for 1 id after a generation suffix"),
    "the output's beginning after it": (lambda ids: [*ids, *9 * [A]], "goes on for 9 ids after a generation suffix"),
    "all but ordinary ids lost": (lambda _: [A, B, A], "ends with 1064 1065 1064, not with"),
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


@pytest.mark.parametrize("position", ["first", "middle", "last"])
@pytest.mark.parametrize("name", WITHOUT_MODE)
def test_damaged_prompt_whose_mode_is_not_recorded(name: str, position: str, context: Context) -> None:
    """Files of other tools do not say whether a prompt asks for reasoning."""
    mutate, said = WITHOUT_MODE[name]
    rows = {f"{n}": deepcopy(kimi.genuine()["answer" if n % 2 else "thinking-off"]) for n in range(20)}
    silent = replace(context, rerendered_prompts=None, declared_tools=None)
    frame = kimi.prompts(rows).drop("thinking")
    verdict = judge_prompts([frame], silent)["prompt_suffix"]
    assert (verdict.status, verdict.judged, verdict.reason) == ("passed", 20, "its thinking mode is not recorded")
    victim = {"first": "1", "middle": "9", "last": "19"}[position]
    rows[victim]["prompt_ids"] = mutate(rows[victim]["prompt_ids"])
    report = judge_prompts([kimi.prompts(rows).drop("thinking")], silent)
    assert report.findings.select("sample_id", "law", "severity").rows() == [(victim, "prompt_suffix", "error")]
    assert said in report.findings["detail"][0]
    assert report.quarantined == {victim}


@pytest.mark.parametrize("place", [0, 10, 19])
def test_an_empty_prompt(place: int, context: Context) -> None:
    rows = {f"{n}": deepcopy(kimi.genuine()["answer"]) for n in range(20)}
    rows[f"{place}"]["prompt_ids"] = []
    for profile in (context.profile, replace(context.profile, suffixes={}, turns={}, prompt_bos=True)):
        found = judge_prompts([kimi.prompts(rows)], Context(profile)).findings
        empty = found.filter(pl.col("detail").str.starts_with("there are no prompt ids"))
        assert empty.select("sample_id", "law", "index").rows() == [(f"{place}", "prompt_well_formed", 0)]
        assert found.filter(pl.col("sample_id") == f"{place}").height == 1


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


LOST = ("message 0 (system)", "message 3 (tool)", "message 4 (user)", "message 6 (tool)")


@pytest.mark.parametrize("sample", [0, 10, 19])
@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (LOST[:1], "message 0 (system)"),
        (LOST[1:3], "message 3 (tool), message 4 (user)"),
        (LOST, "message 0 (system), message 3 (tool), message 4 (user) and of 1 more"),
    ],
)
def test_messages_of_which_nothing_is_in_the_prompt(
    lost: tuple[str, ...], said: str, sample: int, context: Context
) -> None:
    frame = kimi.prompts({f"{n}": {"prompt_ids": list(TALK)} for n in range(20)})

    def judged(unrendered: dict[str, list[str] | None]) -> Report:
        column = pl.Series("unrendered", [unrendered.get(f"{n}", []) for n in range(20)], pl.List(pl.String))
        twins = frame.select("sample_id", "prompt_ids", column)
        return judge_prompts([frame], replace(context, rerendered_prompts=None).with_inert_prompts([twins]))

    assert judged({})["messages_rendered"].status == "passed"
    report = judged({f"{sample}": list(lost)})
    detail = f"nothing is in the prompt of {said}"
    assert report.findings.rows() == [(f"{sample}", "messages_rendered", "error", None, detail)]
    assert report.quarantined == {f"{sample}"}
    unknown = judged({f"{sample}": None})["messages_rendered"]
    assert (unknown.status, unknown.judged) == ("passed", 19)


@pytest.mark.parametrize("sample", ["answer", "thinking-off", "last"])
@pytest.mark.parametrize("index", [0, 4, 8])
def test_prompt_that_renders_differently(index: int, sample: str, context: Context) -> None:
    again = kimi.genuine()
    again[sample]["prompt_ids"][index] = A
    known = replace(context, rerendered_prompts=kimi.prompts(again), declared_tools=None)
    report = judge_prompts([kimi.prompts()], known)
    verdict = report["prompt_reproducible"]
    assert (verdict.status, verdict.refuses, verdict.violations) == ("failed", True, 1)
    assert report.findings.select("sample_id", "index").rows() == [(sample, index)]
    assert report.quarantined == frozenset()


def test_some_prompts_rendered_again(context: Context) -> None:
    some = kimi.prompts().head(3).select("sample_id", "prompt_ids")
    verdict = judge_prompts([kimi.prompts()], replace(context, rerendered_prompts=some))["prompt_reproducible"]
    assert (verdict.status, verdict.judged, verdict.rows) == ("passed", 3, 12)
