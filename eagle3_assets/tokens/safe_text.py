"""Model text made safe to show: it is untrusted, and may hold markup, control characters or reversed writing.

What belongs here: turning text into text. Not here: choosing or decoding it.
"""

import re
import unicodedata

_JOINERS = "\u200c\u200d"
"""Invisible, but part of ordinary writing: Persian words and joined emoji need them."""

_HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_MAYBE_HIDDEN = re.compile(r"[^\x20-\x7e]")
_BACKTICKS = re.compile(r"`+")
_MARKUP = re.compile(r"[\\`*\[\]<>|&]")
_ESCAPED = re.compile(r"\\([\\`*\[\]<>|&])")


def visible(text: str, *, keep_lines: bool = False) -> str:
    """Replaces what a reader would not see, or be misled by, with its name: ``<U+202E>``, a newline with an arrow.

    Control, format (bidirectional, zero-width), surrogate and private characters are replaced, emoji joiners are not.

    Args:
        text: any text.
        keep_lines: whether newlines and tabs stay.
    """
    return _MAYBE_HIDDEN.sub(lambda match: _shown(match.group(), keep_lines=keep_lines), text)


def quoted(value: object, length: int = 60) -> str:
    """A value as Python writes it, cut to so many characters: to be named in a message."""
    text = repr(value)
    return text if len(text) <= length else f"{text[: length - 3]}..."


def excerpt(text: str, most: int) -> str:
    """The beginning of a text in one line, made :func:`visible`; what was left out shows as ``...``.

    Args:
        text: any text.
        most: characters of the result.
    """
    shown = visible(text[: most + 1])  # no text gets shorter by it
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def markdown_code(text: str, *, in_table: bool = False) -> str:
    """Text as one inline code span of Markdown, which shows every character as it is and links nothing.

    Args:
        text: any text; an empty one gives an empty string, as there is no empty code span.
        in_table: whether it goes into a cell of a table, where a vertical bar has to be escaped.
    """
    shown = visible(text)
    if not shown:
        return ""
    fence = "`" * (_longest_run(shown) + 1)
    # The space at both ends is dropped again by Markdown unless all is space, which then stays as it is.
    span = f"{fence} {shown} {fence}" if shown.strip() else f"{fence}{shown}{fence}"
    return span.replace("|", "\\|") if in_table else span


def markdown_block(text: str) -> str:
    """Text as a fenced code block of Markdown, newlines kept; the fence is longer than any run of backticks inside."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{visible(text, keep_lines=True)}\n{fence}"


def markdown_text(text: str) -> str:
    """Text for a sentence of Markdown: what would be markup or HTML is escaped. :func:`plain_text` takes it back."""
    return _MARKUP.sub(r"\\\g<0>", text)


def plain_text(markdown: str) -> str:
    """What :func:`markdown_text` was made of."""
    return _ESCAPED.sub(r"\1", markdown)


def _longest_run(text: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)


def _shown(character: str, *, keep_lines: bool) -> str:
    if character in _JOINERS or (keep_lines and character in "\n\t"):
        return character
    if character == "\n":
        return "\u21b5"
    if unicodedata.category(character) in _HIDDEN_CATEGORIES:
        return f"<U+{ord(character):04X}>"
    return character
