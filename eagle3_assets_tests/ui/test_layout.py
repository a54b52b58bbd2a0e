"""All pages at the widths that people have, in light and dark and on paper: nothing is cut, everything can be read."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from eagle3_assets.decoding import Decoder
from eagle3_assets.pages.corpus import corpus_page
from eagle3_assets.pages.page import preview_page
from eagle3_assets.pages.prompts import prompts_page
from eagle3_assets.prompt_views import IdPart, PromptView
from eagle3_assets_tests.pages import corpora, hostile

pytestmark = pytest.mark.ui

WIDTHS = (390, 768, 1280, 1400, 1920)
PAGES = ("partition", "corpus", "prompts")
LONG = "OpenThoughts3-1.2M-math-and-some-more-that-goes-on"

OUTSIDE = """() => [...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  const scrolls = s => s && (getComputedStyle(s).overflowX === 'auto' || scrolls(s.parentElement));
  return box.width && !e.closest('.away') && !scrolls(e.parentElement)
    && (box.right > document.documentElement.clientWidth + 1 || box.left < -1);
}).map(e => e.outerHTML.slice(0, 100))"""
"""What runs out of the window and is in no scroller."""

CUT = """() => [...document.querySelectorAll('body *')].filter(e => {
  const style = getComputedStyle(e);
  const may = e.matches('.scroll') && style.backgroundImage.includes('gradient') && e.tabIndex === 0;
  return e.scrollWidth > e.clientWidth + 1 && style.overflowX !== 'visible' && style.display !== 'inline'
    && !may && !e.matches('select, option, input');
}).map(e => e.outerHTML.slice(0, 100))"""
"""What is cut though it is no scroller that shades its edges and takes the keyboard."""

FAINT = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const over = colours => {  // as the browser paints them, one over the other
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = rgb => rgb.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !e.getClientRects().length || e.closest('title, script, option')) continue;
    const behind = [];
    for (let b = e; b; b = b.parentElement) behind.unshift(getComputedStyle(b).backgroundColor);
    const style = getComputedStyle(e);
    const colour = e instanceof SVGElement ? style.fill : style.color;
    const [one, other] = [light(over(['white', ...behind, colour])), light(over(['white', ...behind]))];
    const contrast = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    if (contrast < 4.5) faint.push(`${contrast.toFixed(2)} ${e.outerHTML.slice(0, 90)}`);
  }
  return faint;
}"""
"""Text with a contrast below what WCAG's level AA asks of text of any size."""


def long_named() -> str:
    """The hostile partition, its samples under names as long as real ones."""
    outputs = {
        f"{LONG}-0000{n}:1:0": (hostile.encoded(text), finish)
        for n, (text, finish) in enumerate(hostile.OUTPUTS.values())
    }
    return preview_page(hostile.inspection(outputs), hostile.target())


def hostile_prompts() -> str:
    ids = hostile.encoded(hostile.PROMPT + hostile.HOSTILE)
    messages = [{"role": "user", "content": hostile.HOSTILE * 20}]
    tool = {"type": "function", "function": {"name": LONG, "description": hostile.HOSTILE}}
    parts = (IdPart("user", 0, len(ids) - 4, sure=True), IdPart("generation prompt", len(ids) - 4, len(ids), sure=True))
    ready = PromptView(f"{LONG}:1:0", "ready", None, ids, messages, [tool], parts)
    refused = PromptView(f"{LONG}:2:0", "refused", "x" * 300, None, messages, [], None)
    decoder = Decoder(hostile.target().tokenizer, hostile.target().profile)
    return prompts_page("hostile", [ready, refused], decoder)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {"partition": long_named(), "corpus": corpus_page(corpora.corpus()), "prompts": hostile_prompts()}
    assert made.keys() == set(PAGES)
    for name, page in made.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(params=[(name, scheme) for name in PAGES for scheme in ("light", "dark")], ids="-".join)
def page(browser: Browser, files: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Page]:
    name, scheme = request.param
    opened = browser.new_page(color_scheme=scheme)
    opened.goto(files[name].as_uri())
    yield opened
    opened.close()


def test_nothing_is_cut_at_any_width_and_all_text_can_be_read(page: Page) -> None:
    for details in page.locator("details").all():
        details.evaluate("details => details.open = true")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{width}: it scrolls sideways"
        assert page.evaluate(OUTSIDE) == [], width
        assert page.evaluate(CUT) == [], width
        assert page.evaluate(FAINT) == [], width
        if page.locator("#view-tokens").count():
            page.click("#view-tokens")
            assert page.evaluate(CUT) == [], width
            assert page.evaluate(FAINT) == [], width
            page.click("#view-text")


def test_tables_of_the_corpus_are_whole_on_a_laptop(browser: Browser, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(files["corpus"].as_uri())
    sizes = page.locator(".scroll").evaluate_all("all => all.map(e => [e.scrollWidth, e.clientWidth])")
    assert len(sizes) == 3
    assert [(scroll, client) for scroll, client in sizes if scroll > client] == []
    page.close()


@pytest.mark.parametrize("name", ["partition", "corpus"])
def test_a_chart_on_a_phone_is_as_high_and_its_words_as_large(
    browser: Browser, files: dict[str, Path], name: str
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(files[name].as_uri())
    sizes = "e => [e, e.querySelector('g:not(.minor) > .tick')].map(e => e.getBoundingClientRect().height)"
    chart = page.locator(".chart").first
    wide = chart.evaluate(sizes)
    page.set_viewport_size({"width": 390, "height": 844})
    assert chart.evaluate(sizes) == wide
    assert wide[0] > 190
    assert wide[1] >= 12
    boxes = chart.locator("g:not(.minor) > text.tick").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect()).map(b => [b.top > 0 && Math.round(b.top), b.left, b.right])"
    )
    assert all(left >= 0 and right <= 390 for _, left, right in boxes)
    lowest = sorted((left, right) for top, left, right in boxes if top == max(box[0] for box in boxes))
    assert len(lowest) > 1
    assert all(right < left for (_, right), (left, _) in pairwise(lowest)), "ticks overlap"
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_paper_is_white_and_has_the_sample_in_full_width(
    browser: Browser, files: dict[str, Path], theme: Literal["light", "dark"]
) -> None:
    page = browser.new_page(viewport={"width": 794, "height": 1123}, color_scheme=theme)
    page.goto(files["partition"].as_uri())
    page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 29, 36)"
    assert not page.locator("#list").is_visible()
    sample = page.locator("#sample").bounding_box()
    assert sample is not None
    assert sample["width"] > 700
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "a table runs out of the paper"
    assert page.evaluate(FAINT) == []
    page.close()


def test_the_keyboard_shows_where_it_is(browser: Browser, files: dict[str, Path]) -> None:
    """Each stop of the tabulator has an outline that nothing cuts off."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(files["partition"].as_uri())
    stops = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        stop, outline, inside = page.evaluate(
            """() => {
              const e = document.activeElement, style = getComputedStyle(e);
              const reach = parseFloat(style.outlineWidth) + parseFloat(style.outlineOffset);
              const clip = e.closest('#list');
              const box = e.getBoundingClientRect(), room = clip && clip.getBoundingClientRect();
              return [e.tagName + (e.id || e.textContent.slice(0, 20)), style.outlineStyle,
                !clip || (box.left - reach >= room.left && box.right + reach <= room.right)];
            }"""
        )
        if stop.startswith("BODY"):
            break
        stops.add(stop)
        assert (outline, inside) == ("solid", True), stop
    assert len(stops) > 15
    page.close()
