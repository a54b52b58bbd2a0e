"""Prompt rows to prompt ids, by the target's own chat template.

What belongs here: calling the template and the tokenizer. Not here: whether the result is right (``tokens`` judges).
"""

import json
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Protocol

import polars as pl

from eagle3_assets.contract import TOKENIZED_PROMPTS
from eagle3_assets.prompts.dialogue import RefusedRowError
from eagle3_assets.prompts.template_forms import CallForm, call_form, formed, has_calls, other_ids
from eagle3_assets.tokens.profile_spec import MODES, Mode


class ChatTokenizer(Protocol):
    """The part of a transformers tokenizer that rendering needs."""

    def apply_chat_template(self, conversation: Any, **arguments: Any) -> Any:  # noqa: ANN401 - transformers' own types
        """Renders a conversation."""
        ...

    def __call__(self, text: list[str], **arguments: Any) -> Any:  # noqa: ANN401 - transformers' own types
        """Tokenizes texts."""
        ...


def render_text(
    tokenizer: ChatTokenizer,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    *,
    thinking: bool,
    chat_template: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    generation_prompt: bool = True,
) -> str:
    """The prompt's text, up to where the target shall go on; without the generation prompt, the messages alone.

    Templates name the switch for reasoning differently: Kimi and DeepSeek read ``thinking``, Qwen3 ``enable_thinking``.
    Both are given; a template ignores what it does not read.
    """
    return str(
        tokenizer.apply_chat_template(
            messages,
            tools=tools,
            chat_template=chat_template,
            tokenize=False,
            add_generation_prompt=generation_prompt,
            **{"thinking": thinking, "enable_thinking": thinking, **(arguments or {})},
        )
    )


def prompt_ids(tokenizer: ChatTokenizer, texts: list[str]) -> list[list[int]]:
    """The ids of rendered prompts.

    The template writes special tokens itself; the tokenizer adding its own would double the first.
    """
    encoded = tokenizer(texts, add_special_tokens=False, padding=False, truncation=False)
    return [list(ids) for ids in encoded["input_ids"]]


def rendered_modes(
    tokenizer: ChatTokenizer, *, chat_template: str | None = None, arguments: Mapping[str, Any] | None = None
) -> dict[Mode, str]:
    """A conversation of one user message, rendered with and without thinking: its end tells targets apart.

    A mode that the template refuses is left out, and so are both where there is no template.
    """
    found: dict[Mode, str] = {}
    for mode in MODES:
        messages = [{"role": "user", "content": "Hello"}]
        # A template is data: whatever it raises, it only says nothing about this mode.
        with suppress(Exception):
            found[mode] = render_text(
                tokenizer,
                messages,
                None,
                thinking=mode == "thinking",
                chat_template=chat_template,
                arguments=arguments,
            )
    return found


def template_fault(error: Exception) -> str:
    """What a chat template raised, and in which of its lines, unless it refuses with words of its own."""
    from jinja2 import TemplateError

    lines = [line.lineno for line in traceback.extract_tb(error.__traceback__) if line.filename == "<template>"]
    where = f" (line {lines[-1]} of the template)" if lines and type(error) is not TemplateError else ""
    return f"{type(error).__name__}: {error}{where}"


def rows_with_other_ids(rows: pl.DataFrame, form: CallForm, call_id: str | None) -> list[str]:
    """Sample ids of the prompt rows that get other ids of calls than their source has, or are refused for want of them.

    Args:
        rows: columns ``sample_id`` and ``messages`` of ``contract.PROMPTS``.
        form: of the template.
        call_id: as for :func:`tokenize_rows`.
    """
    if not (form.named_by_id or form.loses_results(call_id)):
        return []
    with_calls = rows.filter(pl.col("messages").str.contains_any(['"tool_calls":', '"role":"tool"']))
    every = with_calls.select("sample_id", "messages").iter_rows()
    return [sample for sample, messages in every if other_ids(json.loads(messages), form, call_id)]


def tokenize_rows(
    tokenizer: ChatTokenizer,
    rows: pl.DataFrame,
    *,
    thinking: bool,
    chat_template: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    call_id: str | None,
) -> pl.DataFrame:
    """Renders and tokenizes prompt rows.

    Args:
        tokenizer: the target's.
        rows: columns ``sample_id``, ``messages`` and ``tools`` of ``contract.PROMPTS``.
        thinking: whether the template leaves reasoning to the target.
        chat_template: a template to use instead of the tokenizer's own.
        arguments: extra arguments of the template.
        call_id: the target's form of calls' ids, for a template that prints these in place of functions' names; None
            where its profile has none. Every caller says it: without it such a template refuses calls.

    Returns:
        ``contract.TOKENIZED_PROMPTS``, one row per given row in the same order. A row that the template refuses, or
        whose tool calls, or their names, it would leave out, has status ``refused``, the reason, and no ids.
    """

    def render(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        return render_text(
            tokenizer, messages, tools, thinking=thinking, chat_template=chat_template, arguments=arguments
        )

    form = cache(lambda: call_form(render))
    texts: list[str] = []
    reasons: list[str | None] = []
    for messages, tools in rows.select("messages", "tools").iter_rows():
        turns = json.loads(messages)
        try:
            given = formed(turns, form(), call_id) if has_calls(turns) else turns
            text = render(given, json.loads(tools) if tools else None)
        except RefusedRowError as error:
            texts.append("")
            reasons.append(str(error))
        except Exception as error:  # noqa: BLE001 - a template is data: whatever it raises is about this row
            texts.append("")
            reasons.append(f"the chat template refused it: {template_fault(error)}")
        else:
            texts.append(text)
            reasons.append(None)
    ids = prompt_ids(tokenizer, texts) if texts else []
    return pl.DataFrame(
        {
            "sample_id": rows["sample_id"],
            "prompt_ids": [None if reason else row for row, reason in zip(ids, reasons, strict=True)],
            "prompt_tokens": [None if reason else len(row) for row, reason in zip(ids, reasons, strict=True)],
            "thinking": [thinking] * len(texts),
            "status": ["refused" if reason else "ready" for reason in reasons],
            "reason": reasons,
        },
        schema=TOKENIZED_PROMPTS,
    )
