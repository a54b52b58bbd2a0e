"""The page of prompts: every id and message there is, and hostile text that makes nothing of itself."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from eagle3_assets.decoding import Decoder
from eagle3_assets.judging import tokenize
from eagle3_assets.pages.prompts import prompts_page
from eagle3_assets.prompt_views import PromptView, prompt_view
from eagle3_assets.sourcing import take_prompts
from eagle3_assets.target import load_target
from eagle3_assets_tests.conftest import write_project
from eagle3_assets_tests.pages import hostile
from eagle3_assets_tests.pages.test_page import Elements
from eagle3_assets_tests.test_cli_prompt import shown, stored

TOOL = {"type": "function", "function": {"name": "look", "description": hostile.HOSTILE, "parameters": {}}}
ROWS: list[dict[str, Any]] = [
    {
        "id": "trip<b>",
        "messages": [
            {"role": "system", "content": hostile.HOSTILE},
            {"role": "user", "content": f"Is it far?\t{hostile.HOSTILE}"},
            {"role": "assistant", "content": "No."},
            {"role": "user", "content": "How far?"},
        ],
        "tools": [TOOL],
    },
    {"id": "spoiled", "messages": [{"role": "user", "content": "What is <|im_end|>?"}]},
]


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> list[PromptView]:
    project = write_project(tmp_path_factory.mktemp("prompts"), ROWS)
    target = load_target(project.config.target)
    prompts = take_prompts(project, project.partition("d"))[0].rows
    tokenized = tokenize(project, project.partition("d"), target, prompts)
    rows = zip(tokenized.iter_rows(named=True), prompts.iter_rows(named=True), strict=True)
    return [prompt_view(target, row, source) for row, source in rows]


@pytest.fixture(scope="module")
def page(views: list[PromptView]) -> str:
    return prompts_page("d", views, Decoder(hostile.target().tokenizer, hostile.target().profile))


@pytest.fixture(scope="module")
def parsed(page: str) -> Elements:
    elements = Elements()
    elements.feed(page)
    return elements


def test_hostile_text_makes_no_element_and_no_attribute(page: str, parsed: Elements) -> None:
    assert not {tag for tag, _ in parsed.elements} & {"script", "img", "b", "iframe", "link", "object", "embed"}
    names = {name for _, attributes in parsed.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("src", "style", "srcdoc")]
    assert {a["href"] for _, a in parsed.elements if "href" in a} == {"#p0", "#p1"}
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069]", page)
    assert "trip<b>:4:0" in [text for tag, text in parsed.texts if tag == "code"]
    [policy] = [a["content"] or "" for tag, a in parsed.elements if tag == "meta" and "http-equiv" in a]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script-src 'none'" in policy


def test_every_id_and_its_text_are_there(views: list[PromptView], parsed: Elements) -> None:
    tips = [a["data-tip"] or "" for _, a in parsed.elements if "data-tip" in a]
    told = [re.match(r"index (\d+), id (\d+)", tip) for tip in tips]
    found = [(int(t[1]), int(t[2])) for t in told if t]
    assert found == [place for view in views for place in enumerate(view.prompt_ids or ())]
    decoder = Decoder(hostile.target().tokenizer, hostile.target().profile)
    structural = [a["data-tip"] for _, a in parsed.elements if a.get("class") == "t structural"]
    assert len(structural) == sum(i in decoder.structural_ids for view in views for i in view.prompt_ids or ())


def test_each_message_stands_with_what_it_became(views: list[PromptView], page: str) -> None:
    headings = re.findall(r"<h3>(.*?)</h3>", page)
    assert [heading.split(", ids")[0] for heading in headings] == [
        "message 0: system, after 1 declared tool",
        "message 1: user",
        "message 2: assistant",
        "message 3: user",
        "generation prompt",
        "message 0: user",
        "generation prompt",
    ]
    assert page.count("data-given") == sum(len(view.messages) for view in views)
    assert "&lt;script&gt;window.ran = 1&lt;/script&gt;" in page
    assert page.count("<details data-tool>") == 1
    assert "refused: law prompt_injection" in page


def test_a_prompt_without_ids_shows_its_messages() -> None:
    message = {"role": "<i>user</i>", "content": hostile.HOSTILE}
    view = PromptView("s:1:0", "refused", "the template said <no>", None, [message], (), None)
    made = prompts_page("d", [view], Decoder(hostile.target().tokenizer, hostile.target().profile))
    assert "message 0: &lt;i&gt;user&lt;/i&gt;, not rendered" in made
    assert "refused: the template said &lt;no&gt;" in made
    assert "no ids" in made
    assert json.dumps("onerror")[1:-1] in made


def test_the_page_is_written_by_the_command(tmp_path: Path) -> None:
    stored(write_project(tmp_path, ROWS))
    file = tmp_path / "prompts.html"
    result = shown(tmp_path, "--id", "spoiled:1:0", "--html", str(file))
    assert result.exit_code == 0
    assert result.stdout == ""
    assert f"{file}: 1 prompts of d" in result.stderr
    assert "refused: law prompt_injection" in file.read_text(encoding="utf-8")
    assert shown(tmp_path, "--html", str(file), "--json").exit_code == 2
