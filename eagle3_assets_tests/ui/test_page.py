"""The page in a browser, opened from disk: reading, filtering, tokens, keys; nothing runs, nothing is asked for."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import Browser, Locator, Page

from eagle3_assets.exports.vocabulary import vocabulary_record
from eagle3_assets.pages.corpus import corpus_page
from eagle3_assets.pages.coverage import coverage_page
from eagle3_assets.pages.page import preview_page
from eagle3_assets.tokens.safe_text import visible
from eagle3_assets.tokens.vocabulary import choose
from eagle3_assets.usable import PartitionState
from eagle3_assets.vocabularies import CorpusVocabulary
from eagle3_assets_tests.pages import corpora, hostile
from eagle3_assets_tests.test_looking import documented_keys
from eagle3_assets_tests.ui.pictures import picture

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "hostile.html"
    path.write_text(preview_page(hostile.inspection(), hostile.target()), encoding="utf-8")
    return path


@pytest.fixture(params=["light", "dark", "phone"])
def page(browser: Browser, file: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page as three people see it; complaints and requests of the page fail the test that made them."""
    width, height = (390, 844) if request.param == "phone" else (1280, 900)
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if request.param == "dark" else "light",
        has_touch=request.param == "phone",
    )
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda asked: complaints.append(asked.url) if asked.url != file.as_uri() else None)
    opened.goto(file.as_uri())
    yield opened
    assert complaints == []
    assert opened.evaluate("window.ran") is None
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_the_corpus(browser: Browser, tmp_path: Path, scheme: Literal["light", "dark"]) -> None:
    file = tmp_path / "corpus.html"
    file.write_text(corpus_page(corpora.corpus()), encoding="utf-8")
    opened = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("request", lambda asked: complaints.append(asked.url) if asked.url != file.as_uri() else None)
    opened.goto(file.as_uri())
    colours = opened.locator("polyline").evaluate_all("lines => lines.map(l => getComputedStyle(l).stroke)")
    assert len(set(colours)) == 3
    assert opened.locator("tr[data-state=refused]").inner_text().endswith("3 of 8,012 samples break it (0.04%).")
    if scheme == "light":
        picture(opened, "corpus")
    opened.set_viewport_size({"width": 390, "height": 844})
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    assert complaints == []
    opened.close()


def test_the_page_of_the_draft_vocabulary(browser: Browser, tmp_path: Path) -> None:
    parts = [("talk", np.geomspace(9_000, 1, 5_000).astype(np.int64)), ("calls", np.geomspace(1, 9e5, 5_000) // 1)]
    datasets = tuple((name, counts.astype(np.int64)) for name, counts in parts)
    vocabulary = choose(datasets[0][1] + datasets[1][1], {4_000}, 1_000)
    record = vocabulary_record(vocabulary, "kimi", "0" * 64, {"calls-00of02": 7})
    states = (PartitionState("calls-01of02", "refused", why=("<img src=x> is no law",)),)
    file = tmp_path / "vocabulary.html"
    page = coverage_page(CorpusVocabulary(vocabulary, record, datasets, states))
    file.write_text(page, encoding="utf-8")
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("request", lambda asked: complaints.append(asked.url) if asked.url != file.as_uri() else None)
    opened.goto(file.as_uri())
    assert opened.locator("polyline").count() == 3
    assert opened.locator(".note").inner_text().startswith("Not counted: refused: calls-01of02 (<img src=x> is no law)")
    assert opened.locator("tr", has_text="chosen").inner_text().startswith("1,000")
    assert opened.locator("img").count() == 0
    opened.set_viewport_size({"width": 390, "height": 844})
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    assert complaints == []
    opened.close()


def sample(page: Page, name: str) -> Locator:
    page.locator("#list button", has_text=name).click()
    return page.locator("#sample")


def test_text_is_read_by_section_and_nothing_hides(page: Page) -> None:
    article = sample(page, "c1:1:0")
    assert article.locator("[data-part]").evaluate_all("parts => parts.map(p => p.dataset.part)") == [
        "reasoning",
        "answer",
        "stop",
    ]
    shown = article.locator("[data-part=answer] pre").evaluate("e => e.textContent")
    assert shown == visible(hostile.HOSTILE, keep_lines=True)
    assert article.locator(".structural.end").inner_text() == "</think>"
    assert sample(page, "c2:1:0").locator("[data-part=tools] .structural").count() == 5


def test_filters(page: Page) -> None:
    shown = page.locator("#list li:not([hidden]) .name")
    assert shown.count() == len(hostile.OUTPUTS)
    page.select_option("#filter-finish", "length")
    assert shown.all_inner_texts() == ["c3:3:0"]
    assert page.locator("#sample-id").inner_text() == "c3:3:0"
    page.click("#filter-reset")
    page.select_option("#filter-law", "breaks reasoning_closed")
    assert "c4:3:0" in shown.all_inner_texts()
    page.select_option("#filter-law", label="none broken")
    assert "c4:3:0" not in shown.all_inner_texts()
    page.click("#filter-reset")
    page.select_option("#filter-stratum", "longest")
    assert shown.count() == 1
    page.click("#filter-reset")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("IT IS FOUR")
    assert shown.all_inner_texts() == ["c0:1:0"]
    page.fill("#filter-text", "said by nobody")
    assert page.locator("#sample").inner_text() == "No sample passes the filters."
    assert page.locator("#filter-count").inner_text() == f"0 of {len(hostile.OUTPUTS)}"


def test_broken_and_remarked_on_are_told_apart(page: Page) -> None:
    def shown(law: str) -> set[str]:
        page.select_option("#filter-law", law)
        return set(page.locator("#list li:not([hidden]) .name").all_inner_texts())

    assert shown("any-broken") == {"c3:3:0", "c4:3:0"}
    assert shown("none-broken") == {"c0:1:0", "c1:1:0", "c2:1:0"}
    assert shown("any-remark") == {"c1:1:0", "c2:1:0", "c3:3:0", "c4:3:0"}
    assert shown("breaks length_honest") == {"c3:3:0"}
    assert shown("remark of repetition") == {"c3:3:0"}
    assert page.locator("[data-law=reasoning_closed] .show-law").all_inner_texts() == ["show 1 broken"]
    assert page.locator("[data-law=duplicates] .show-law").all_inner_texts() == ["show 4 remarked on"]


def test_a_broken_law_leads_to_its_samples_and_their_index(page: Page) -> None:
    page.locator("[data-law=reasoning_closed] .show-law", has_text="broken").click()
    names = page.locator("#list li:not([hidden]) .name").all_inner_texts()
    assert "c4:3:0" in names
    assert len(names) < len(hostile.OUTPUTS)
    article = sample(page, "c4:3:0")
    article.locator("#findings li", has_text="reasoning_closed").get_by_role("button").first.click()
    assert article.locator("#body .current").inner_text() == "</think>"
    assert "never exported" in article.locator("#findings").inner_text()


def test_a_token_says_what_it_is(page: Page) -> None:
    article = sample(page, "c0:1:0")
    page.click("#view-tokens")
    ids = hostile.encoded(hostile.OUTPUTS["c0:1:0"][0])
    tokens = article.locator("#body .t")
    assert tokens.count() == len(ids)
    end = ids.index(hostile.encoded("</think>")[0])
    tokens.nth(end).hover()
    tip = {
        name: page.locator(f"#tip [data-tip='{name}']").inner_text() for name in ("index", "id", "text", "loss mask")
    }
    assert tip == {"index": str(end), "id": str(ids[end]), "text": '"</think>"', "loss mask": "1"}
    page.fill("#jump", "2")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip [data-tip=index]").inner_text() == "3"
    assert page.locator("#tip [data-tip=id]").inner_text() == str(ids[3])
    page.click("#prompt summary")
    page.locator("#prompt .t").first.hover()
    assert page.locator("#tip [data-tip='loss mask']").inner_text() == "0"
    assert "<b>What?</b>" in page.locator("#prompt pre").inner_text()


def test_characters_of_several_tokens_are_whole(page: Page) -> None:
    sample(page, "c1:1:0")
    page.click("#view-tokens")
    assert "\U0001f469" in page.locator("#body [data-part=answer] pre").inner_text()
    whole = page.locator("#body .t.bytes", has_text="\U0001f469").first
    whole.hover()
    assert "completes \U0001f469" in page.locator("#tip [data-tip=text]").inner_text()


def test_ids_are_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    sample(page, "c0:1:0")
    page.click("#copy-output")
    page.locator("#said", has_text="Copied output ids.").wait_for()
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == hostile.encoded(hostile.OUTPUTS["c0:1:0"][0])


def test_a_wrong_index_is_answered_with_the_range(page: Page) -> None:
    sample(page, "c0:1:0")
    last = len(hostile.encoded(hostile.OUTPUTS["c0:1:0"][0])) - 1
    for wrong in (str(last + 1), "-1", "2.5", ""):
        page.fill("#jump", wrong)
        page.press("#jump", "Enter")
        page.locator("#said", has_text=f"0 to {last}").wait_for()
        page.evaluate("document.getElementById('said').textContent = ''")
    page.fill("#jump", str(last))
    page.press("#jump", "Enter")
    assert page.locator("#tip [data-tip=index]").inner_text() == str(last)


def test_a_finger_reads_a_sample_and_any_token(browser: Browser, file: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto(file.as_uri())
    page.locator("#list button", has_text="c0:1:0").tap()
    assert page.locator("#sample-id").inner_text() == "c0:1:0"
    top = page.locator("#sample-id").bounding_box()
    assert top
    assert 0 < top["y"] < 844 / 2, "the sample is out of sight"
    page.locator("#view-tokens").tap()
    page.locator("#prompt summary").tap()
    page.locator("#prompt .t").nth(1).tap()
    assert page.locator("#tip [data-tip=index]").inner_text() == "1"
    assert page.locator("#tip [data-tip='loss mask']").inner_text() == "0"
    page.locator("#body .t").nth(2).tap()
    assert page.locator("#tip [data-tip='loss mask']").inner_text() == "1"
    context.close()


def test_a_prompt_that_was_not_recorded_is_called_so(browser: Browser, tmp_path: Path) -> None:
    found = hostile.inspection()
    unknown = replace(found, samples=found.samples.with_columns(prompt_ids=pl.lit(None, pl.List(pl.Int32))))
    file = tmp_path / "page.html"
    file.write_text(preview_page(unknown, hostile.target()), encoding="utf-8")
    page = browser.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(file.as_uri())
    assert "prompt not recorded" in page.locator("#sample .said").inner_text()
    assert page.locator("#prompt summary").inner_text() == "Prompt, not recorded"
    assert page.locator("#copy-prompt").count() == 0
    for key in "ptpj":
        page.keyboard.press(key)
    assert complaints == []
    page.close()


def test_where_there_is_no_output_no_filter_is_blamed(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "empty.html"
    file.write_text(preview_page(hostile.inspection({}), hostile.target()), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    assert page.locator("#sample").inner_text() == "There is no output."
    page.close()


def test_a_sample_id_is_copied_as_it_is(browser: Browser, tmp_path: Path) -> None:
    name = "\u202eid\u200b <b> %41:1:0"
    file = tmp_path / "page.html"
    page_of_one = preview_page(hostile.inspection({name: (hostile.encoded("x"), "stop")}), hostile.target())
    file.write_text(page_of_one, encoding="utf-8")
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.locator("#sample-id").inner_text() == "<U+202E>id<U+200B> <b> %41:1:0"
    page.click("#copy-id")
    page.locator("#said", has_text="Copied sample id.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == name
    context.close()


def test_a_page_of_many_long_outputs_is_read_at_once(browser: Browser, tmp_path: Path) -> None:
    """As large as it gets: every sample has 10,000 tokens, one an emoji whose joiner is a token of its own."""
    words = hostile.encoded("some words of which there are many, again and again \U0001f469\u200d\U0001f52c. ")
    ids = (words * (10_000 // len(words) + 1))[:9_999]
    outputs = {f"c{i}:1:0": ([*ids, 100 + i], "length") for i in range(40)}
    made = preview_page(hostile.inspection(outputs), hostile.target())
    assert len(made.encode()) < 40 * 100_000
    file = tmp_path / "large.html"
    file.write_text(made, encoding="utf-8")
    page = browser.new_page()
    page.set_default_timeout(10_000)
    page.goto(file.as_uri())
    assert page.locator("#list li").count() > 15
    page.keyboard.press("j")
    assert page.locator("#body").inner_text().count("again and again") > 100
    page.fill("#jump", "9999")
    page.press("#jump", "Enter")
    assert page.locator("#tip [data-tip=index]").inner_text() == "9999"
    page.fill("#filter-text", "of which there are many")
    assert page.locator("#list li:not([hidden])").count() == page.locator("#list li").count()
    page.close()


def test_every_documented_key_does_what_is_said_of_it(page: Page) -> None:
    does = {
        "j": "document.getElementById('sample-id').textContent !== first",
        "k": "document.getElementById('sample-id').textContent === first",
        "t": "document.querySelector('#body.tokens') !== null",
        "ArrowRight": "document.querySelector('#tip [data-tip=index]').textContent === '0'",
        "ArrowLeft": "document.querySelector('#tip [data-tip=index]').textContent === '0'",
        "p": "document.getElementById('prompt').open",
        "g": "document.activeElement.id === 'jump'",
        "/": "document.activeElement.id === 'filter-text'",
        "c": "document.getElementById('said').textContent === 'Copied output ids.'",
        "d": "document.documentElement.dataset.theme !== undefined",
        "?": "document.getElementById('help').open",
    }
    assert set(does) == documented_keys()
    page.evaluate("window.first = document.getElementById('sample-id').textContent")
    for key, done in does.items():
        if key == "ArrowLeft":
            page.keyboard.press("ArrowRight")
        page.keyboard.press(key)
        if key == "c":  # a browser takes its time for the clipboard
            page.locator("#said", has_text="Copied output ids.").wait_for()
        assert page.evaluate(done), key
        if key in "g/":
            page.keyboard.press("Escape")


def test_keys(page: Page) -> None:
    first = page.locator("#sample-id").inner_text()
    page.keyboard.press("j")
    assert page.locator("#sample-id").inner_text() != first
    page.keyboard.press("k")
    assert page.locator("#sample-id").inner_text() == first
    page.keyboard.press("t")
    assert page.locator("#body.tokens").count() == 1
    page.keyboard.press("p")
    page.locator("#prompt .t").first.wait_for()
    assert page.locator("#prompt .t").count() == len(hostile.encoded(hostile.PROMPT))
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("d")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
