"""Dumps of chat completions: recognised, and answered with what has been lost.

What belongs here: telling from text and fields what a chat endpoint took away. Not here: any judgement about ids,
since such a file has none; making ids of its text, which is what such a file must not be used for.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eagle3_assets.tokens.context import Context

LOSSES = {
    "token_ids": "there are no token ids; the stop token, and where one token ends and the next begins, are gone",
    "reasoning_in_content": "reasoning markup stands as text in the content: ids and typed text look the same",
    "reasoning_split_off": "reasoning is a field of its own: its end token and the white space around it are gone",
    "reasoning_null": "the field for reasoning is there and empty: reasoning was dropped, or there was none",
    "reasoning_absent": "there is no field for reasoning and no markup: whether the target reasoned is gone",
    "tool_markup_parsed": "tool calls were parsed into objects: markup, ids and the spelling of arguments are gone",
    "tool_markup_in_content": "tool-call markup stands as text in the content: no parser knew it",
    "whitespace_stripped": "no text begins or ends with white space, which is how text looks that was stripped",
    "broken_characters": "holds U+FFFD: bytes of a character that was cut apart are gone",
    "content_empty": "there is neither content nor a tool call",
}
"""What a turn may have lost, by name; the text goes on from ``n of m turns:``."""

UNFAITHFUL = {
    "parsed": "tool calls have no markup to tokenize",
    "broken_characters": "bytes are gone",
    "text_changes": "decoding the new ids gives another text",
    "count_differs": "the number of new ids is not the number of tokens that the server counted",
}
"""Why ids made of a turn's text are certainly not the target's own."""

_REASONING_KEYS = ("reasoning_content", "reasoning")
_REASONING_MARKUP = ("<think>", "</think>", "<|channel|>", "◁think▷", "◁/think▷", "[THINK]", "[/THINK]")
_TOOL_MARKUP = (
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<tool_call>",
    "<\uff5ctool\u2581calls\u2581begin\uff5c>",
    "<|python_tag|>",
)
_TAKEN_AWAY = range(4)
"""Ids that a parser takes from an output whose text is whole: start and end of reasoning, stop; or some of them."""
_SHOWN = 5

Json = Mapping[str, Any]


def chat_turns(line: Json) -> list[Json] | None:
    """The assistant's turns of a chat request, reply or batch result; None where the line is none of these."""
    messages = line.get("messages")
    if isinstance(messages, list) and messages and all(isinstance(m, dict) and "role" in m for m in messages):
        return [message for message in messages if message["role"] == "assistant"]
    response = line.get("response")
    reply = response.get("body") if isinstance(response, dict) else line
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if (
        isinstance(choices, list)
        and choices
        and all(isinstance(c, dict) and isinstance(c.get("message"), dict) for c in choices)
    ):
        return [choice["message"] for choice in choices]
    return None


@dataclass
class ChatDump:
    """What has been lost, counted over the lines of a file."""

    context: Context
    lines: int = 0
    turns: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    unfaithful: Counter[str] = field(default_factory=Counter)
    unfaithful_turns: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)

    def add(self, number: int, line: Json, turns: list[Json]) -> None:
        """Counts one line.

        Args:
            number: of the line.
            line: the whole object, for the server's count.
            turns: of :func:`chat_turns`.
        """
        self.lines += 1
        counted = _counted(line) if len(turns) == 1 else None
        for turn in turns:
            self.turns += 1
            lost = list(self._losses(turn))
            self.lost.update(lost)
            reasons = list(self._unfaithful(turn, counted)) if self.context.tokenizer is not None else []
            self.unfaithful.update(reasons)
            self.unfaithful_turns += bool(reasons)
            if len(self.examples) < _SHOWN:
                self.examples.append({"line": number, "lost": lost, "unfaithful": reasons})

    def as_json(self) -> dict[str, Any]:
        """The result as data; ``retokenization`` is null without a tokenizer."""
        made_again = {
            "turns": self.turns,
            "unfaithful": self.unfaithful_turns,
            "cannot_be_told": self.turns - self.unfaithful_turns,
            "reasons": {name: self.unfaithful[name] for name in UNFAITHFUL},
        }
        return {
            "lines": self.lines,
            "turns": self.turns,
            "lost": {name: self.lost[name] for name in LOSSES},
            "retokenization": made_again if self.context.tokenizer is not None else None,
            "examples": self.examples,
        }

    def _losses(self, turn: Json) -> Iterator[str]:
        content, reasoning, texts = _text_of(turn.get("content")), _reasoning(turn), _texts(turn)
        profile = self.context.profile
        own = {i for i in (profile.reasoning_start, profile.reasoning_end) if i is not None}
        yield "token_ids"
        folded = _holds(content, (*_REASONING_MARKUP, *(profile.tokens[i] for i in own)))
        if folded:
            yield "reasoning_in_content"
        if reasoning:
            yield "reasoning_split_off"
        elif any(key in turn for key in _REASONING_KEYS):
            yield "reasoning_null"
        elif not folded:
            yield "reasoning_absent"
        if turn.get("tool_calls"):
            yield "tool_markup_parsed"
        elif not content:
            yield "content_empty"
        tools = () if profile.tools is None else tuple(profile.tokens[i] for i in profile.tools.all)
        if _holds(content, (*_TOOL_MARKUP, *tools)):
            yield "tool_markup_in_content"
        if texts and all(text == text.strip() for text in texts):
            yield "whitespace_stripped"
        if any("\N{REPLACEMENT CHARACTER}" in text for text in texts):
            yield "broken_characters"

    def _unfaithful(self, turn: Json, counted: int | None) -> Iterator[str]:
        tokenizer, texts = self.context.tokenizer, _texts(turn)
        if tokenizer is None:
            return
        if turn.get("tool_calls"):
            yield "parsed"
        if any("\N{REPLACEMENT CHARACTER}" in text for text in texts):
            yield "broken_characters"
        # Half a surrogate pair has no bytes that a tokenizer could take.
        whole = all(_SURROGATE.search(text) is None for text in texts)
        ids = [list(tokenizer.encode(text, add_special_tokens=False)) for text in texts] if whole else []
        again = [tokenizer.decode(part, skip_special_tokens=False) for part in ids]
        if again != texts:
            yield "text_changes"
        elif counted is not None and not turn.get("tool_calls") and counted - sum(map(len, ids)) not in _TAKEN_AWAY:
            yield "count_differs"


_SURROGATE = re.compile("[\ud800-\udfff]")


def _texts(turn: Json) -> list[str]:
    return [text for text in (_reasoning(turn), _text_of(turn.get("content"))) if text]


def _reasoning(turn: Json) -> str:
    return next((turn[key] for key in _REASONING_KEYS if isinstance(turn.get(key), str) and turn[key]), "")


def _text_of(content: object) -> str:
    """The text of a content, which may be a list of parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return content if isinstance(content, str) else ""


def _holds(text: str, markup: tuple[str, ...]) -> bool:
    return any(mark in text for mark in markup)


def _counted(line: Json) -> int | None:
    """The server's count of output tokens, where the line has it."""
    response = line.get("response")
    reply = response.get("body") if isinstance(response, dict) else line
    usage = reply.get("usage") if isinstance(reply, dict) else None
    value = usage.get("completion_tokens") if isinstance(usage, dict) else line.get("completion_tokens")
    return value if isinstance(value, int) and not isinstance(value, bool) else None
