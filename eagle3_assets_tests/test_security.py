"""What docs/security.md claims and no other test is about; and that the tests which it names are there."""

import ast
import re
from pathlib import Path

import polars as pl
import pytest

from eagle3_assets.config import Target
from eagle3_assets.prompts.render import tokenize_rows
from eagle3_assets.target import load_target
from eagle3_assets_tests.conftest import DEMO

HERE = Path(__file__).parent


def test_the_tests_that_the_page_names_exist() -> None:
    page = (HERE.parent / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(named) > 20
    for file, test in named:
        tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
        assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, f"{file}::{test}"


@pytest.mark.parametrize(
    "expression",
    ["''.__class__.__mro__[1].__subclasses__()", "cycler.__init__.__globals__.os", "messages.append(1)"],
)
def test_a_chat_template_reaches_no_python(expression: str) -> None:
    tokenizer = load_target(Target(model=str(DEMO / "model"))).tokenizer
    messages = '[{"role": "user", "content": "hello"}]'
    rows = pl.DataFrame({"sample_id": ["a"], "messages": [messages], "tools": [None]})

    def made(template: str) -> dict[str, object]:
        return tokenize_rows(tokenizer, rows, thinking=True, chat_template=template, call_id=None).row(0, named=True)

    assert made("{{ messages[0].content }}")["status"] == "ready"
    refused = made("{{ " + expression + " }}")
    assert refused["status"] == "refused" and "unsafe" in str(refused["reason"])
    assert refused["prompt_ids"] is None
