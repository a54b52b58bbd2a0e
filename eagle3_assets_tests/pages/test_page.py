"""The page: what is on it, that it is locked, and that its script gets exactly the ids and texts there are."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.decoding import Decoder
from eagle3_assets.pages.page import preview_page
from eagle3_assets.pages.samples import varints
from eagle3_assets.tokens.safe_text import visible
from eagle3_assets_tests.pages import hostile


class Elements(HTMLParser):
    """Every element with its attributes, and the text of those that are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.append((self._open[-1], data))


@pytest.fixture(scope="module")
def page() -> str:
    return preview_page(hostile.inspection(), hostile.target())


@pytest.fixture(scope="module")
def parsed(page: str) -> Elements:
    elements = Elements()
    elements.feed(page)
    return elements


@pytest.fixture(scope="module")
def data(page: str) -> Any:
    return json.loads(page.split('id="data">', 1)[1].split("</script>", 1)[0])


def decoded_varints(text: str) -> list[int]:
    """As the page's script reads them."""
    found, value, shift = [], 0, 0
    for byte in base64.b64decode(text):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value = shift = 0
    return found


def test_hostile_text_makes_no_element_and_no_attribute(page: str, parsed: Elements) -> None:
    scripts = [attributes for tag, attributes in parsed.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    assert not {tag for tag, _ in parsed.elements} & {"img", "b", "iframe", "link", "object", "embed"}
    names = {name for _, attributes in parsed.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("src", "style", "srcdoc")]
    assert {a["href"] for _, a in parsed.elements if "href" in a} == {"#lengths", "#laws", "#samples"}
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069]", page)


def test_only_its_own_style_and_script_may_run(parsed: Elements) -> None:
    [policy] = [
        a["content"] or ""
        for tag, a in parsed.elements
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    [style] = [text for tag, text in parsed.texts if tag == "style"]
    script = [text for tag, text in parsed.texts if tag == "script"][-1]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}';")
    assert "unsafe" not in policy
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch("):
        assert forbidden not in script


def test_ids_are_exact_and_hidden_characters_are_named(data: Any) -> None:
    decoder = Decoder(hostile.target().tokenizer, hostile.target().profile)
    samples = {sample["id"]: sample for sample in data["samples"]}
    assert samples.keys() == hostile.OUTPUTS.keys()
    for name, (text, finish) in hostile.OUTPUTS.items():
        sample, ids = samples[name], hostile.encoded(text)
        numbers = decoded_varints(sample["output"]["tokens"])
        assert [data["vocabulary"][number][0] for number in numbers] == ids
        assert (sample["finish"], sample["length"]) == (finish, len(ids))
        completed = dict(sample["output"].get("completed", []))
        joined = "".join(completed.get(i, data["vocabulary"][number][2]) for i, number in enumerate(numbers))
        pieces = sample["output"].get("pieces")
        assert (pieces is not None) == ("\u200d" in text)  # a token that is named alone
        if pieces:
            joined = "".join(piece[1] for section in pieces for piece in section)
            structural = [(piece[1], piece[2]) for section in pieces for piece in section if piece[0] == 1]
            assert structural == [("</think>", sample["reasoningEnd"]), ("<|im_end|>", len(ids) - 1)]
        assert joined == visible(decoder.text(ids), keep_lines=True)
        assert [span[1] for span in sample["spans"]] == [0, *(span[2] for span in sample["spans"][:-1])]
        assert sample["spans"][-1][2] == len(ids)
    for shown in hostile.SHOWN:
        assert shown in visible(hostile.HOSTILE)
    assert samples["c4:3:0"]["quarantined"]
    assert ("reasoning_closed", True) in {(f["law"], f["error"]) for f in samples["c4:3:0"]["findings"]}
    assert [f["index"] for f in samples["c4:3:0"]["findings"] if f["law"] == "reasoning_closed"] != [None]


def test_text_that_tokens_do_not_give_is_written_down() -> None:
    half = hostile.encoded("\U0001f469")[:-1]  # a cut-off character
    made = preview_page(hostile.inspection({"c0:1:0": ([*hostile.encoded("so "), *half], "length")}), hostile.target())
    [sample] = json.loads(made.split('id="data">', 1)[1].split("</script>", 1)[0])["samples"]
    assert "".join(piece[1] for section in sample["output"]["pieces"] for piece in section) == "so \ufffd"


def test_the_figures_are_on_the_page(parsed: Elements) -> None:
    """The golden part: figures of fixed data as a person reads them."""
    texts = [text for _, text in parsed.texts]
    assert "median 17, p95 412, 100% under 500: inside the band expected of hostile (median 10 to 100)" in texts
    marks = [(a["data-mark"], a["data-tokens"]) for tag, a in parsed.elements if tag == "line" and "data-mark" in a]
    assert marks[:2] == [("median", "17"), ("p95", "412")]
    [expected] = [a for _, a in parsed.elements if "data-expected" in a]
    assert expected["data-expected"] == "median"
    laws = {a["data-law"]: a["data-status"] or "" for _, a in parsed.elements if "data-law" in a}
    assert laws["reasoning_closed"] == "failed"
    assert laws["no_prompt_echo"] == "not_judged"
    assert list(laws.values()) == sorted(laws.values(), key=["failed", "warned", "not_judged", "passed"].index)
    turns = [a.get("data-turn") for tag, a in parsed.elements if tag == "tr" and a.get("data-section") == "output"]
    assert turns == [None, "1", "3"]


def test_the_page_is_the_same_for_the_same_data(page: str) -> None:
    assert preview_page(hostile.inspection(), hostile.target()) == page


def samples_on(page: str) -> dict[str, Any]:
    return {s["id"]: s for s in json.loads(page.split('id="data">', 1)[1].split("</script>", 1)[0])["samples"]}


def test_the_one_broken_sample_is_there_among_many_remarks() -> None:
    tool = hostile.OUTPUTS["c2:1:0"][0].split("</think>")[1]
    outputs = {f"r{i}:1:0": (hostile.encoded(f"I think {i}{' word' * (i % 50)}{tool}"), "stop") for i in range(200)}
    outputs["bad:1:0"] = (hostile.encoded(f"I think{' word' * 25}<|im_end|>"), "stop")
    inspected = hostile.inspection(outputs)
    assert inspected.report.quarantined == {"bad:1:0"}
    made = samples_on(preview_page(inspected, hostile.target()))
    assert made["bad:1:0"]["stratum"] == "breaks reasoning_closed"
    assert sum(sample["stratum"] == "remark of reasoning_closed" for sample in made.values()) == 3


def test_no_reasoning_is_no_missing_end_of_it() -> None:
    closed = hostile.PROMPT.replace("<think>", "<think></think>")
    outputs = {f"c{i}:1:0": (hostile.encoded(f"It is {i}.<|im_end|>"), "stop") for i in range(20)}
    page = preview_page(hostile.inspection(outputs, closed), hostile.target())
    assert "no end of reasoning" not in {sample["stratum"] for sample in samples_on(page).values()}
    assert not any(sample["reasoningOpened"] for sample in samples_on(page).values())
    assert 'data-section="answer"' in page
    assert 'data-section="reasoning"' not in page
    opened = preview_page(hostile.inspection(outputs), hostile.target())
    assert "no end of reasoning" in {sample["stratum"] for sample in samples_on(opened).values()}


def test_an_id_that_is_shown_otherwise_is_there_exactly() -> None:
    name = "\u202e<b>\u4e2d %41\n:1:0"
    made = samples_on(preview_page(hostile.inspection({name: (hostile.encoded("x"), "stop")}), hostile.target()))
    [sample] = made.values()
    assert sample["id"] == visible(name)
    assert unquote(sample["exactId"]) == name
    assert sample["exactId"].isascii()
    assert "exactId" not in next(iter(samples_on(preview_page(hostile.inspection(), hostile.target())).values()))


def test_no_outputs_are_a_page_that_says_so() -> None:
    made = preview_page(hostile.inspection({}), hostile.target())
    assert "no outputs" in made
    assert "0 of 0 outputs" in made
    assert "data-mark" not in made.split("<body>")[1].split("<script")[0]


def test_a_prompt_that_was_not_recorded_is_no_empty_one() -> None:
    found = hostile.inspection()
    unknown = replace(found, samples=found.samples.with_columns(prompt_ids=pl.lit(None, pl.List(pl.Int32))))
    page = preview_page(unknown, hostile.target())
    data = json.loads(page.split('id="data">', 1)[1].split("</script>", 1)[0])
    assert {sample["prompt"] for sample in data["samples"]} == {None}


def test_a_long_sample_stays_small() -> None:
    words = hostile.encoded("some words of which there are many, again and again, ")
    ids = (words * (10_000 // len(words) + 1))[:10_000]
    one = preview_page(hostile.inspection({"c0:1:0": (ids[:10], "length")}), hostile.target())
    whole = preview_page(hostile.inspection({"c0:1:0": (ids, "length")}), hostile.target())
    assert len(whole) - len(one) < 30_000  # less than three characters a token


@given(st.lists(st.integers(0, 2**28 - 1), max_size=50))
def test_varints_come_back(numbers: list[int]) -> None:
    assert decoded_varints(base64.b64encode(varints(np.array(numbers, np.int64))).decode()) == numbers
