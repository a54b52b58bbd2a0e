"""The data that drafters are compared on are damaged as said, and the comparison is reported as counted."""

import re
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from benchmarks.acceptance import Acceptance
from benchmarks.damaged_data import DAMAGES, Row, chatml, conversations, damaged, difference, kind_of
from benchmarks.drafter_learning import FULL, MODEL, QUICK, Line, Result, bigrams, guessed, report
from benchmarks.page import PAGE
from eagle3_assets.demo.samples import Message, Sample
from eagle3_assets.demo.tokenizer import STOP, TOOL_SECTION, encode_sample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@pytest.fixture(scope="module")
def tokenizer() -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL, local_files_only=True)


@pytest.fixture(scope="module")
def samples() -> dict[str, Sample]:
    return conversations(40)


def right(tokenizer: "PreTrainedTokenizerBase", samples: dict[str, Sample]) -> list[Row]:
    """Rows as of a target that gives every right answer."""
    encoded = {name: encode_sample(tokenizer, sample, thinking=True) for name, sample in samples.items()}
    return [Row(f"{name}:1:0", one.prompt_ids, one.output_ids) for name, one in encoded.items()]


def test_what_was_encoded_by_the_tokenizer_comes_back_and_what_was_not_does_not(
    tokenizer: "PreTrainedTokenizerBase", samples: dict[str, Sample]
) -> None:
    rows = right(tokenizer, samples)[:5]
    text = tokenizer.decode(rows[0].output_ids)
    rows.append(Row(rows[0].id, rows[0].prompt_ids, [i for c in text for i in tokenizer.encode(c)]))
    ways = damaged(tokenizer, samples, rows, ["encoded_again"])
    assert ways["encoded_again"] == [*rows[:5], rows[0]]
    found = difference(ways["exact"], ways["encoded_again"])
    assert (found.prompts, found.outputs) == (0.0, 1 / 6)
    assert found.trained == sum(len(row.output_ids) for row in [*rows[:5], rows[0]])


def test_another_template_changes_every_prompt_and_keeps_the_output(
    tokenizer: "PreTrainedTokenizerBase", samples: dict[str, Sample]
) -> None:
    ways = damaged(tokenizer, samples, right(tokenizer, samples), ["other_template"])
    found = difference(ways["exact"], ways["other_template"])
    assert (found.prompts, found.outputs, found.kept) == (1.0, 0.0, 1.0)
    middle = tokenizer.get_vocab()["<|im_middle|>"]
    assert all(middle in exact.prompt_ids for exact in ways["exact"])
    assert not any(middle in row.prompt_ids for row in ways["other_template"])


def test_a_prompt_in_chatml_has_its_tools_and_the_calls_of_earlier_turns() -> None:
    call = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    messages: list[Message] = [
        {"role": "user", "content": "Do."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "done"},
    ]
    assert chatml(messages, [{"name": "f"}]) == (
        '<|im_start|>system\n# Tools\n\n<tools>\n{"name": "f"}\n</tools><|im_end|>\n'
        "<|im_start|>user\nDo.<|im_end|>\n"
        '<|im_start|>assistant\n\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\ndone\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>"
    )


def test_what_was_parsed_has_answer_and_calls_and_no_reasoning(
    tokenizer: "PreTrainedTokenizerBase", samples: dict[str, Sample]
) -> None:
    ways = damaged(tokenizer, samples, right(tokenizer, samples), ["parsed"])
    ids = tokenizer.get_vocab()
    stop, closing, section = ids[STOP], ids["</think>"], ids[TOOL_SECTION]
    for exact, row in zip(ways["exact"], ways["parsed"], strict=True):
        assert row.prompt_ids == [*exact.prompt_ids, closing]
        assert row.output_ids == exact.output_ids[exact.output_ids.index(closing) + 1 :]
        assert row.output_ids[-1] == stop
    assert any(section in row.output_ids for row in ways["parsed"])
    assert difference(ways["exact"], ways["parsed"]).kept < 0.6


def test_an_output_that_cannot_be_read_is_left_out_of_every_way(
    tokenizer: "PreTrainedTokenizerBase", samples: dict[str, Sample]
) -> None:
    rows = right(tokenizer, samples)[:3]
    rows[1] = Row(rows[1].id, rows[1].prompt_ids, rows[1].output_ids[:-1])
    ways = damaged(tokenizer, samples, rows, list(DAMAGES))
    assert list(ways) == ["exact", *DAMAGES]
    assert all([row.id for row in kept] == [rows[0].id, rows[2].id] for kept in ways.values())


def test_conversations_have_ids_of_their_own_and_begin_the_same(samples: dict[str, Sample]) -> None:
    assert list(islice(conversations(60).items(), 40)) == list(samples.items())
    assert len({sample.text_key() for sample in samples.values()}) == 40
    assert all(kind_of(name) == sample.kind for name, sample in samples.items())


def test_bigrams_guess_what_came_most_often_where_there_is_a_loss() -> None:
    guesses = bigrams([Row("a", [5, 5, 1], [2, 3, 2, 3, 2, 4])])
    assert guesses == {1: 2, 2: 3, 3: 2}
    # After 1 and 2 the chain 3, 2, 3, 2, 3: right three times, then the target says 9, which nothing was seen after.
    assert guessed(guesses, Row("b", [1], [2, 3, 2, 3, 9, 7])) == Acceptance(tokens=5, rounds=2)


def test_the_report_has_a_line_for_each_drafter_with_mean_and_spread() -> None:
    counts = [{"chat-1:1:0": Acceptance(20, 10), "reasoning-1:1:0": Acceptance(n, 10)} for n in (20, 40)]
    same = difference([Row("a", [1], [2])], [Row("a", [1], [2])])
    result = Result([Line(None, "nothing", counts[:1]), Line(1.0, "x", counts, same)], 2, [3.0, 5.0], 3, 3)
    part = report(result, FULL, "make bench-drafter", "a note")
    assert "|  | nothing | 2.00 | 2.00 | 2.00 |" in part
    assert "| temperature 1 | x | 3.00 ± 1.41 | 2.00 ± 0.00 | 2.50 ± 0.71 | 0.0% | 0.0% | 100.0% | 1 |" in part
    assert re.search(r"took 4 s .* 3 of 3 cases", part, re.DOTALL)
    assert "- a note\n" in part
    assert "{" not in part
    widths = {line.count("|") for line in part.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_the_short_form_compares_less_than_the_long_one_and_both_begin_with_greedy_outputs() -> None:
    assert next(iter(QUICK.data)) == next(iter(FULL.data)) == 0.0
    assert set(QUICK.data[0.0]) < set(FULL.data[0.0]) == set(DAMAGES)


def test_the_figures_of_the_page_about_exact_ids_are_those_measured() -> None:
    measured = PAGE.read_text(encoding="utf-8").split("<!-- end of drafter_learning -->")[0]
    told = (PAGE.parent / "why-exact-ids.md").read_text(encoding="utf-8")
    figures = re.findall(r"\d\.\d\d(?: ± \d\.\d\d)?|\d+\.\d%", told)
    assert len(figures) >= 10
    assert [figure for figure in figures if figure not in measured] == []
