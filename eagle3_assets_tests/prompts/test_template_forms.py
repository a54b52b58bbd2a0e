"""The calls of earlier turns reach the prompt in whatever form the template takes them, or the row is refused."""

import json
from typing import Any

import polars as pl
import pytest
import transformers  # noqa: TID253 - tests need not load fast

from eagle3_assets.prompts.render import tokenize_rows
from eagle3_assets_tests.conftest import DEMO

TURNS = (
    "{%- for m in messages -%}<|im_user|>{{ m.role }}<|im_middle|>{{ m.content }}"
    "{%- for c in m.tool_calls or [] -%}CALL{%- endfor -%}<|im_end|>{%- endfor -%}"
)
TEMPLATES = {
    "either": "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}",
    "prints JSON": "{{ c.function.arguments | tojson }}",
    "goes through the items": "{{ '{' }}{% for k, v in c.function.arguments.items() %}"
    '"{{ k }}": "{{ v }}"{% endfor %}}',
    "text after text": "{{ '' + c.function.arguments }}",
}


def rendered(template: str, arguments: Any) -> tuple[str, str | None]:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    rows = pl.DataFrame(
        {
            "sample_id": ["calls", "none"],
            "messages": [json.dumps(messages, separators=(",", ":")), json.dumps(messages[:1])],
            "tools": [None, None],
        },
        schema_overrides={"tools": pl.String},
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO / "model")
    found = tokenize_rows(tokenizer, rows, thinking=True, chat_template=template, call_id=None)
    assert found["status"][1] == "ready"
    first = found.row(0, named=True)
    return str(tokenizer.decode(first["prompt_ids"])) if first["prompt_ids"] else "", first["reason"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_arguments_are_rendered_once(name: str) -> None:
    text, reason = rendered(TURNS.replace("CALL", TEMPLATES[name]), {"city": "Oslo"})
    assert reason is None
    assert '{"city": "Oslo"}' in text


def test_arguments_that_are_no_object_stay_text() -> None:
    text, _ = rendered(TURNS.replace("CALL", TEMPLATES["either"]), '{"city": "Os')
    assert '{"city": "Os' in text


def test_calls_that_would_be_lost_refuse_the_row() -> None:
    _, reason = rendered(TURNS.replace("CALL", ""), {"city": "Oslo"})
    assert reason == "the chat template leaves out the tool calls of earlier turns"


def test_a_template_that_fails_on_calls_says_so_itself() -> None:
    _, reason = rendered(TURNS.replace("CALL", "{{ raise_exception('No tools here') }}"), {"city": "Oslo"})
    assert reason == "the chat template refused it: TemplateError: No tools here"
