"""Model text made safe to show: it is untrusted, and may hold markup, control characters or reversed writing.

What belongs here: turning text into text. Not here: choosing or decoding it.
"""

import re
import unicodedata

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_BLANK = frozenset(
    [
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x3164, 0xFFA0),
        *range(0xFE00, 0xFE10),
        *range(0xE0100, 0xE01F0),
        0x2800,
    ]
)
"""Marks, letters and a symbol that nothing is drawn for: what Unicode calls default ignorable beyond the categories
above, and the empty Braille pattern."""
_IN_CONTEXT = frozenset("\u200c\u200d\ufe0e\ufe0f")
"""Hidden, but part of ordinary writing in some places: :data:`_ASTRAY` finds them in any other."""
_JOINING = (
    "\u0600-\u109f\u1780-\u18aa\u1900-\u1cff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefc"
    "\U00010a00-\U00010fff\U00011000-\U00011fff\U0001e900-\U0001e95f"
)
"""Arabic, the scripts of India and their kin, whose letters change beside a joiner."""
_EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_ASTRAY = re.compile(
    "[\u200c\u200d\ufe0e\ufe0f](?:"
    rf"(?<=\u200c)(?<![{_JOINING}].)"
    rf"|(?<=\u200d)(?<![{_JOINING}].)(?:(?<![{_EMOJI}].)(?<![{_EMOJI}]\ufe0f.)|(?![{_EMOJI}]))"
    rf"|(?<=[\ufe0e\ufe0f])(?<![{_EMOJI}].)(?:(?<![0-9#*].)|(?!\u20e3))"
    ")"
)
_BACKTICKS = re.compile(r"`+")
_MARKUP = re.compile(r"[\\`*\[\]<>|&]")
_ESCAPED = re.compile(r"\\([\\`*\[\]<>|&])")


def visible(text: str, *, keep_lines: bool = False) -> str:
    """Replaces what a reader would not see, or be misled by, with its name: ``<U+202E>``, a newline with an arrow.

    Replaced are control, format (bidirectional, zero-width), surrogate, private and unassigned characters, and letters
    and marks that nothing is drawn for. A joiner stays after a letter of a script that has joiners and between emoji,
    the choice of an emoji's form stays after the emoji. Accents and spaces of any width stay.

    Args:
        text: any text.
        keep_lines: whether newlines and tabs stay.
    """
    shown = text.translate(_IN_LINES if keep_lines else _IN_ONE_LINE)
    return shown if shown.isascii() else _ASTRAY.sub(lambda match: _name(match.group()), shown)


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
    # Of a span that begins and ends with a space, Markdown drops one at each end unless all of it is spaces.
    padded = "`" in (shown[0], shown[-1]) or (shown[0] == shown[-1] == " " and shown.strip(" "))
    span = f"{fence} {shown} {fence}" if padded else f"{fence}{shown}{fence}"
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


def _name(character: str) -> str:
    return f"<U+{ord(character):04X}>"


class _Shown(dict[int, str]):
    """How each code point is shown by itself, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        hidden = unicodedata.category(character) in _HIDDEN_CATEGORIES or code in _BLANK
        self[code] = _name(character) if hidden and character not in _IN_CONTEXT else character
        return self[code]


_IN_ONE_LINE = _Shown({ord("\n"): "\u21b5"})
_IN_LINES = _Shown({ord("\n"): "\n", ord("\t"): "\t"})
