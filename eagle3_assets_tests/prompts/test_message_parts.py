"""Which part of a prompt each message became, for templates that make a message's text depend on its neighbours."""

from typing import Any

import jinja2
import pytest

from eagle3_assets.prompts.message_parts import TextPart, message_parts

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if generate %}<assistant>{% endif %}"
# Qwen3's two habits: reasoning is kept after the last user's message alone, and tool results in a row share a turn.
HISTORY = """\
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}<user>{% endif %}[{{ m.content }}]
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}</>{% endif %}
{%- else %}<{{ m.role }}>
{%- if m.reasoning and loop.index0 > ns.last %}({{ m.reasoning }}){% endif %}{{ m.content }}</>{% endif %}
{%- endfor %}
{%- if generate %}<assistant>{% endif %}"""
ALTERNATING = """\
{%- for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ fail() }}{% endif %}
{%- if m.role == 'user' %}<user>{{ m.content }}</>{% else %}<assistant>{{ m.content }}</>{% endif %}{% endfor %}
{%- if generate %}<assistant>{% endif %}"""
LAST_USER_NEEDED = "{% if messages[-1].role != 'user' %}{{ fail() }}{% endif %}" + PLAIN
DROPPING = PLAIN.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}")


def fail() -> None:
    raise ValueError("no")


def cut(template: str, *messages: dict[str, Any]) -> tuple[list[str], list[TextPart]]:
    """The text of each message, then that of the generation prompt."""
    compiled = jinja2.Environment(autoescape=False).from_string(template)  # noqa: S701 - no HTML
    text = compiled.render(messages=messages, generate=True, fail=fail)
    parts = message_parts(lambda some: compiled.render(messages=some, generate=False, fail=fail), messages, text)
    texts = [text[part.begin : part.end] for part in parts]
    assert text.startswith("".join(texts))
    return [*texts, text[parts[-1].end :]], parts


def said(role: str, content: str, **more: str) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


CHAT = (said("user", "one"), said("assistant", "two", reasoning="so"), said("user", "three"))


@pytest.mark.parametrize("template", [PLAIN, HISTORY, ALTERNATING])
def test_each_message_has_its_own_text(template: str) -> None:
    texts, parts = cut(template, *CHAT)
    assert texts == ["<user>one</>", "<assistant>two</>", "<user>three</>", "<assistant>"]
    assert all(part.sure for part in parts)


def test_reasoning_after_the_last_user_is_its_messages_own() -> None:
    texts, _ = cut(HISTORY, said("user", "one"), said("assistant", "two", reasoning="so"), said("tool", "three"))
    assert texts == ["<user>one</>", "<assistant>(so)two</>", "<user>[three]</>", "<assistant>"]


def test_results_that_share_a_turn_are_told_apart_where_the_first_one_ends() -> None:
    calls = (said("user", "one"), said("assistant", "two"), said("tool", "three"), said("tool", "four"))
    texts, parts = cut(HISTORY, *calls)
    assert texts == ["<user>one</>", "<assistant>two</>", "<user>[three]", "[four]</>", "<assistant>"]
    assert [part.sure for part in parts] == [True, True, False, True]


def test_a_message_that_is_left_out_is_empty() -> None:
    texts, parts = cut(DROPPING, said("system", "zero"), *CHAT)
    assert texts == ["", "<user>one</>", "<assistant>two</>", "<user>three</>", "<assistant>"]
    assert all(part.sure for part in parts)


def test_what_the_template_refuses_alone_is_found_with_a_user_after_it() -> None:
    texts, parts = cut(LAST_USER_NEEDED, *CHAT)
    assert texts == ["<user>one</>", "<assistant>two</>", "<user>three</>", "<assistant>"]
    assert all(part.sure for part in parts)


def test_what_the_template_never_renders_alone_goes_to_the_next_one_and_is_not_sure() -> None:
    whole_only = "{% if messages | length < 3 %}{{ fail() }}{% endif %}" + PLAIN
    texts, parts = cut(whole_only, *CHAT)
    assert texts == ["", "", "<user>one</><assistant>two</><user>three</>", "<assistant>"]
    assert [part.sure for part in parts] == [False, False, True]
