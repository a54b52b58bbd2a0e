"""Reasoning inside an assistant's content, taken apart where its markup is whole.

The reasoning goes into ``reasoning_content``, where every template looks for it; left in the content, it would be lost
or come twice.

What belongs here: the markup that published reasoning datasets use. Not here: a target's own structural tokens.
"""

import re

from eagle3_assets.prompts.dialogue import Json

_WORDS = (
    "<think>",
    "</think>",
    "<|begin_of_thought|>",
    "<|end_of_thought|>",
    "<|begin_of_solution|>",
    "<|end_of_solution|>",
)
_WHOLE = (
    re.compile(r"\s*<think>(?P<reasoning>.*?)</think>(?P<answer>.*)", re.DOTALL),
    re.compile(
        r"\s*<\|begin_of_thought\|>(?P<reasoning>.*?)<\|end_of_thought\|>\s*"
        r"<\|begin_of_solution\|>(?P<answer>.*?)<\|end_of_solution\|>\s*",
        re.DOTALL,
    ),
)

_OTHER = re.compile(
    r"<(?:think|thinking|thoughts?|reasoning|scratchpad|reflection|seed:think)>|◁think▷|\[THINK\]|<\|channel\|>analysis",
    re.IGNORECASE,
)
"""Markup that other models write; what stands in it may be reasoning, or a part of the answer."""


def shows_markup(text: str) -> bool:
    """Whether a text holds markup of reasoning anywhere."""
    return any(word in text for word in _WORDS)


def has_markup(text: str) -> bool:
    """Whether a text begins like an answer with its reasoning in front."""
    return text.lstrip().startswith(("<think>", "<|begin_of_thought|>"))


def separated(messages: list[Json]) -> tuple[list[Json], list[str]]:
    """Messages with the reasoning of assistant turns in ``reasoning_content``, and remarks on those left as they are.

    Of markup that no format here has, the answer at the end is not asked: it is no part of a prompt.

    Newlines around reasoning and answer are the markup's layout: a template writes its own.
    """
    made, remarks = [], []
    for i, message in enumerate(messages):
        if message["role"] != "assistant" or not shows_markup(message["content"]):
            other = _OTHER.search(message["content"]) if message["role"] == "assistant" else None
            if other and any(later["role"] != "assistant" for later in messages[i + 1 :]):
                remarks.append(f"message {i + 1}: {other[0]} may begin reasoning, all of it stays in the content")
            made.append(message)
            continue
        parts = _parts(message["content"])
        beside = message.get("reasoning_content", "").strip()
        if parts is None:
            remarks.append(f"message {i + 1}: the markup of its reasoning is not whole, all of it stays in the content")
            made.append(message)
        elif beside not in ("", parts[0].strip()):
            remarks.append(f"message {i + 1}: it has reasoning of its own, that in its content stays there")
            made.append(message)
        else:
            made.append({**message, "content": parts[1], "reasoning_content": parts[0]})
    return made, remarks


def _parts(text: str) -> tuple[str, str] | None:
    for pattern in _WHOLE:
        found = pattern.fullmatch(text)
        if found:
            reasoning, answer = found["reasoning"].strip("\n"), found["answer"].strip("\n")
            if not any(word in part for word in _WORDS for part in (reasoning, answer)):
                return reasoning, answer
    return None
