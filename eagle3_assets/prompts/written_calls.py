"""Tool calls that a source has written as text into an assistant's turn, in a markup of some other model.

Left in a prompt, they would show the target a markup that is not its own, or its own as ordinary text. Which markup a
call stands in is seen without reading the call; to make a call of it would be a guess at another model's grammar.

What belongs here: telling a call from a text that is about calls. Not here: what is done with the row (``turns``).
"""

import re
from collections.abc import Iterable, Sequence

from eagle3_assets.prompts.dialogue import Json
from eagle3_assets.strict_json import StrictJsonError, parse

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
"""A text about calls shows them as code; a call never is."""
_OBJECT = r"""\s*[\[{]\s*\{?\s*["'](?:name|arguments|parameters|function|type|id)["']\s*:"""
"""The beginning of ``{"name": ...`` or of a list of these; Python's quotes are as usual as JSON's."""
_MARKUP = {
    "<tool_call>": rf"<tool_calls?>(?:{_OBJECT}|\s*<function=|\s*[\w.-]+\s*<arg_key>)",
    "<functioncall>": rf"<function_?call>{_OBJECT}",
    "<function=...>": r"<function=[\w.-]+>\s*(?:\{|<parameter=|</function>)",
    "<invoke>": r"<(?:antml:)?invoke name=[\"'][\w.-]+[\"']>",
    "<TOOLCALL>": rf"<TOOLCALL>{_OBJECT}",
    "<|tool_call|>": rf"<\|tool_call(?:_start)?\|>(?:{_OBJECT}|\s*\[)",
    "[TOOL_CALLS]": r"\[TOOL_CALLS\]\s*(?:\[|[\w.-]+[\[{])",
    "<|python_tag|>": r"\A\s*<\|python_tag\|>|<\|python_tag\|>\s*(?:\{|[\w.]+\()",
    "<|tool_call_begin|>": r"<\|tool_call_begin\|>\s*[\w.:-]+\s*<\|tool_call_argument_begin\|>",
    "<\uff5ctool\u2581call\u2581begin\uff5c>": r"<\uff5ctool\u2581call\u2581begin\uff5c>[\w.-]+"
    r"<\uff5ctool\u2581sep\uff5c>",
    "<|channel|>commentary": r"to=functions\.[\w.-]+\s*<\|(?:channel|constrain|message)\|>"
    r"|<\|channel\|>commentary to=functions\.",
}
"""How a call begins in each, by the name that people know it by."""
_BEGINS = {name: re.compile(pattern) for name, pattern in _MARKUP.items()}

_PLAIN = r"""[^()"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_VALUES = rf"(?:{_PLAIN}|\((?:{_PLAIN})*+\))*+"
_PYTHON_CALL = rf"[A-Za-z_][\w .:/-]*\(\s*(?:[A-Za-z_]\w*\s*={_VALUES})?\)"
_PYTHON_CALLS = re.compile(rf"\s*\[\s*{_PYTHON_CALL}(?:\s*,\s*{_PYTHON_CALL})*\s*\]\s*", re.DOTALL)
"""A turn that is ``[name(key=value), ...]`` and nothing else: ToolACE's, and Llama's with Python."""
_RESULT = re.compile(r"\s*<tool_response>.*</tool_response>\s*", re.DOTALL)


_REACT = re.compile(r"^[ \t]*\**Action[ \t]*\d*\**[ \t]*:.*\n\s*\**Action Input[ \t]*\d*\**[ \t]*:", re.MULTILINE)


def is_react_step(text: str) -> bool:
    """Whether an assistant's text has a call in ReAct's words, ``Action:`` and ``Action Input:``.

    These are no markup of a model's but what a system prompt asks for, so that such a turn may well be meant.
    """
    return "Action Input" in text and bool(_REACT.search(_CODE.sub("", text)))


def first_written_call(messages: Sequence[Json], tools: Iterable[str] = ()) -> str | None:
    """Says where a history has a call, or its result, as text; None where it has none.

    The user may write what they like; only a message that is a result from its first character to its last is one.

    Args:
        messages: of the history.
        tools: names of those that are declared: JSON that calls one of them is a call without any markup.
    """
    names = frozenset(tools)
    before = ""
    for number, message in enumerate(messages, start=1):
        role, text = message["role"], message["content"]
        if role == "assistant" and (markup := _markup(text, names)):
            return f"message {number} has a tool call written as text, {markup}"
        if role == "user" and before == "assistant" and _RESULT.fullmatch(text):
            return f"message {number} is the user's and a tool's result written as text, <tool_response>"
        before = role
    return None


def _markup(text: str, tools: frozenset[str]) -> str | None:
    if text.lstrip()[:1] in ("[", "{"):
        if _PYTHON_CALLS.fullmatch(text):
            return "[name(...)]"
        if tools and _calls_one_of(tools, text):
            return "JSON with a declared tool's name"
    if "<" not in text and "[TOOL_CALLS]" not in text:
        return None
    shown = _CODE.sub("", text)
    return next((name for name, begins in _BEGINS.items() if begins.search(shown)), None)


def _calls_one_of(tools: frozenset[str], text: str) -> bool:
    """Whether a text is JSON that calls a tool: ``{name, arguments}``, or a list of these."""
    try:
        found = parse(text.encode("utf-8", "surrogatepass"))
    except StrictJsonError:
        return False
    calls = found if isinstance(found, list) else [found]
    return bool(calls) and all(
        isinstance(call, dict)
        and call.get("name") in tools
        and any(isinstance(call.get(key), dict) for key in ("arguments", "parameters"))
        for call in calls
    )
