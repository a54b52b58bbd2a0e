"""A JSON array cut into its elements as they come, without holding it.

What belongs here: where an element begins and ends. Not here: whether it is JSON in the strict sense; that is asked of
each element alone, so that one which is not is refused by itself.

The standard library's own parser finds the ends. Streaming parsers read values and stop at the first fault; they keep
neither an element's bytes, which strict reading needs, nor doubled keys.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from eagle3_assets.interchange import MAX_LINE_BYTES
from eagle3_assets.strict_json import MAX_DEPTH

_BITE = 1 << 16
_CUT_OFF = len("e-")
"""Characters at the end of a number that was cut off, at most, which are no part of the number before them."""
_SPACE = re.compile(r"[ \t\r\n]*")
_LENIENT = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str, strict=False)
"""Takes whatever has an end: numbers of any length, NaN, control characters."""


class ArrayError(Exception):
    """The array cannot be cut any further; the text says where."""


def array_elements(file: BinaryIO) -> Iterator[bytes]:
    """The elements of an array, each as UTF-8 JSON.

    Args:
        file: at its beginning; it holds one array.

    Raises:
        ArrayError: an element has no end, the array has none, or something follows it.
    """
    text = _Ahead(file)
    text.take("[")
    number = 1
    if text.next() == "]":
        text.take("]")
    else:
        while True:
            try:
                yield text.element().encode()
            except ArrayError as error:
                raise ArrayError(f"element {number:,} {error}") from None
            if text.next() == "]":
                text.take("]")
                break
            text.take(",", after=f"element {number:,}")
            number += 1
    if rest := text.next():
        if rest == "[":
            raise ArrayError(
                "a second array follows the first. If each line is a conversation, write it as an object,"
                ' {"messages": [...]}, in a file named .jsonl; if they are one source, make one array of them'
            )
        raise ArrayError(f"{rest!r} follows the array")


class _Ahead:
    """Text of a file, as much of it as the next element needs."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._at, self._ended = "", 0, False

    def next(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self, expected: str, after: str = "the beginning") -> None:
        """Goes past a character."""
        found = self.next()
        if found != expected:
            raise ArrayError(f"after {after} {expected!r} is missing" + (f", not {found!r}" if found else ""))
        self._at += 1

    def element(self) -> str:
        """The text of the next element."""
        self.next()
        while True:
            try:
                end = _LENIENT.raw_decode(self._text, self._at)[1]
            except json.JSONDecodeError as error:
                if self._ended:
                    raise ArrayError(f"is not JSON: {error.msg}") from None
            except RecursionError:
                raise ArrayError(f"is nested too deeply: more than {MAX_DEPTH} lists and objects") from None
            else:
                # A number at the end of what was read may go on: `1.` and `1e-` begin with one that is whole.
                if end + _CUT_OFF < len(self._text) or self._ended:
                    begin, self._at = self._at, end
                    return self._text[begin:end]
            if len(self._text) - self._at > MAX_LINE_BYTES:
                raise ArrayError(f"is not JSON or longer than {MAX_LINE_BYTES >> 20} MiB")
            self._more()

    def _more(self) -> bool:
        """Reads on, as much again as is waiting: a long element is then tried few times."""
        waiting = self._text[self._at :]
        read = b"" if self._ended else self._file.read(max(_BITE, len(waiting)))
        self._ended = not read
        try:
            self._text, self._at = waiting + self._decoder.decode(read, final=self._ended), 0
        except UnicodeDecodeError as error:
            raise ArrayError(f"is not UTF-8: {error.reason}") from None
        return not self._ended
