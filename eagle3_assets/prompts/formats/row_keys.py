"""What becomes of every key of a row: it is read, says nothing of the prompt, or holds what would be lost.

One function decides it for all formats. Not here: what the keys that are read mean (``messages``), keys of messages.

Datasets have columns of every name, so that a name alone refuses a row only where leaving it out would change what the
target is asked: tools, a system prompt, documents, parts of a question. Nothing is lost whose text the messages have
already. Every other key is counted by its name, but for a short list of those known to be about the row.
"""

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import lru_cache
from itertools import islice
from typing import Any

from eagle3_assets.prompts.dialogue import Json, RefusedRowError
from eagle3_assets.prompts.formats.markup import is_conversation
from eagle3_assets.prompts.formats.tools import DECLARATIONS, PARAMETERS
from eagle3_assets.prompts.formats.values import from_text, says_nothing

HOLDERS = ("metadata", "meta", "extra", "extra_info", "info")
"""Objects of a row that tools and a system prompt may be in."""

_ANNOTATIONS = {
    # which row it is and where it is from
    *("id", "ids", "uid", "uuid", "index", "idx", "hash", "source", "sources", "dataset", "subset", "split", "origin"),
    *("url", "license", "version", "author", "date", "timestamp", "created", "created_at", "parent_id", "message_id"),
    # what it is about, and how it was judged
    *("category", "categories", "tag", "tags", "domain", "topic", "task", "type", "subject", "language", "lang"),
    *("difficulty", "level", "quality", "score", "scores", "rating", "ratings", "reward", "labels"),
    *("toxic", "redacted"),
    *("num_tokens", "num_turns", "reasoning", "enable_thinking", "thinking", "reasoning_effort"),
    # how it was made
    *("model", "models", "generator", "temperature", "top_p", "max_tokens", "seed", "stream", "tool_choice", "usage"),
    # the answer, which the target gives itself
    *("answer", "answers", "output", "outputs", "response", "responses", "completion", "completions", "solution"),
    *("solutions", "chosen", "rejected", "ground_truth", "expected_answer", "generations", "reference_answer"),
    *("test", "tests", "test_cases", "test_list"),
}
_OR_IGNORE = "or leave it out with the dataset's `ignore_keys`"
_SPEAKERS = ("role", "from", "type")
"""Keys of messages in a list of them that are no text of theirs."""
_MOST_TEXTS = 200
"""Texts of a value that are looked for among the messages; what has more is none of a prompt's."""
_WORD = 12
"""Characters up to which a text is looked for as a word of its own."""
_MOST_JSON = 1 << 20
"""Characters of a text that is looked into for tools."""


class KeyKind(Enum):
    """What a key's name says of its value."""

    ANNOTATION = auto()
    SYSTEM = auto()
    TOOLS = auto()
    MEDIA = auto()
    CONVERSATION = auto()
    DOCUMENTS = auto()
    """What a conversation may be about without telling it."""
    PART = auto()
    """What a question alone makes no sense without; a conversation has it in its own words."""
    PROMPT = auto()
    """The prompt in another place."""
    OTHER = auto()


_NAMES = {
    KeyKind.SYSTEM: r"(?:system|sys|developer)_(?:prompt|message|msg|instructions?|text|content)|system|instructions",
    KeyKind.TOOLS: r"(?:\w+_)?(?:tools?|functions?|apis?)"
    r"(?:_(?!(?:calls?|choice|metadata|usage|responses?|results?|outputs?|errors?)$)\w+)?",
    KeyKind.MEDIA: r"(?:images?|img|imgs|audios?|videos?)(?:_(?:paths?|files?|urls?|bytes|base64|data))?",
    KeyKind.CONVERSATION: r"messages|conversations?|dialogues?|dialogs?|turns|trajectory"
    r"|(?:previous|prior|past|earlier|preceding)_(?!\w*ids?$)\w+",
    KeyKind.DOCUMENTS: r"(?:\w+_)?(?:contexts?|documents?|docs|passages?|ctxs?|articles?|story|stories"
    r"|paragraphs?|history|attachments?)",
    KeyKind.PART: r"(?:starter_code|tables?|schema|options?|choices?|body|sentences?|premise|hypothesis)"
    r"|(?:option|choice)_?\w|[A-J]|(?:\w+_)?(?:evidences?|transcripts?|chunks)|knowledge|background",
    KeyKind.PROMPT: r"prompts?|text|questions?|query|queries|problem|instruction|inputs?",
}
_PARTS = (KeyKind.PART, KeyKind.PROMPT, KeyKind.CONVERSATION)
_PATTERNS = {of: re.compile(names) for of, names in _NAMES.items()}


def without_keys(row: Any, paths: Iterable[str]) -> Any:  # noqa: ANN401 - parsed JSON
    """A row without some of its keys: ``story``, in an object ``metadata.tools``, in a list ``messages[].thought``.

    Raises:
        RefusedRowError: what such a key would be in is JSON text that is no JSON.
    """
    for path in paths:
        row = _without(row, [path] if isinstance(row, dict) and path in row else path.split("."))
    return row


def _without(value: Any, path: Sequence[str]) -> Any:  # noqa: ANN401 - parsed JSON
    name = path[0].removesuffix("[]") if len(path) > 1 else path[0]
    if not isinstance(value, dict) or name not in value:
        return value
    if len(path) == 1:
        return {key: item for key, item in value.items() if key != name}
    inner = value[name]
    if isinstance(inner, str) and inner.lstrip().startswith(("{", "[")):
        inner = from_text(inner, name)
    if path[0].endswith("[]"):
        made = [_without(item, path[1:]) for item in inner] if isinstance(inner, list) else inner
    else:
        made = _without(inner, path[1:])
    return {**value, name: made}


def unread(
    row: Json, read: Container[str], messages: Sequence[Json], *, one_prompt: bool, has_tools: bool
) -> tuple[tuple[str, ...], list[str]]:
    """The keys of a row that are not read although they say something, and remarks on those that may be meant.

    Args:
        row: of the source.
        read: the keys that were read.
        messages: what was made of it, in the normal form, but for the answer at the end: no prompt has that.
        one_prompt: whether the prompt was put together of the row's fields, and is no conversation of its own.
        has_tools: whether tools were read: others are then those that were meant to be called, or where they are from.

    Raises:
        RefusedRowError: something of the prompt would be lost; the text names the key and says how to go on.
    """
    said = Said(messages)
    # Of a tool that is called the conversation has the name, and not how it is declared.
    told = Said([{"content": message["content"]} for message in messages if message["role"] in ("system", "user")])
    counted: list[str] = []
    remarks: list[str] = []
    for key, value in row.items():
        if key in read or says_nothing(value):
            continue
        inner = held(row, key) if key in HOLDERS else None
        if inner is not None:
            counted += _within(inner, f"{key}.", said, told, has_tools)
            continue
        named = key_kind(key)
        if named is KeyKind.ANNOTATION:
            continue
        fault = _fault(key, key, value, has_tools)
        if fault is None and named is KeyKind.MEDIA and isinstance(value, str | list | dict):
            fault = f"`{key}` is there: only text is supported, no images, audio or video"
        needed = named is KeyKind.DOCUMENTS or (one_prompt and named in _PARTS)
        if named in (KeyKind.DOCUMENTS, KeyKind.CONVERSATION):
            # Of documents and turns, a number is how many there are; of a choice it is the choice.
            needed &= isinstance(value, str | list | dict)
        if fault is None and needed:
            fault = (
                f"`{key}` is there, and its text is not in the prompt, which would lose it: write it into the prompt,"
                f" {_OR_IGNORE}"
            )
        shown = told if fault and _may_be_tools(key, value) else said
        if (fault or named in _PARTS) and (shown.has(value) or said.is_rendered_in(value)):
            continue
        if fault:
            raise RefusedRowError(fault)
        if named is KeyKind.PROMPT:
            remarks.append(f"`{key}` says what no message says, and is not read")
        counted.append(key)
    return tuple(counted), remarks


def _within(inner: Json, where: str, said: "Said", told: "Said", has_tools: bool) -> Iterator[str]:
    """Of an object beside the prompt: only tools, which are read, and system prompts are ever meant for the target."""
    for key, value in inner.items():
        place = f"{where}{key}"
        if says_nothing(value) or key_kind(key) is KeyKind.ANNOTATION:
            continue
        if key == "tools" and holds_objects(value):
            continue
        fault = _fault(place, key, value, has_tools)
        if fault and not (told if _may_be_tools(key, value) else said).has(value):
            raise RefusedRowError(fault)
        yield place


def _fault(place: str, key: str, value: Any, has_tools: bool) -> str | None:  # noqa: ANN401 - parsed JSON
    """Why a row is refused for what it has at a place, wherever in the row that is, unless its messages have it too."""
    named = key_kind(key)
    if named is KeyKind.SYSTEM and isinstance(value, str | list):
        return f"`{place}` may be a system prompt, and is not read: call it `system`, {_OR_IGNORE}"
    if not has_tools and _may_be_tools(key, value):
        return f"`{place}` may declare tools, and is not read: call it `tools`, {_OR_IGNORE}"
    return None


def _may_be_tools(key: str, value: Any) -> bool:  # noqa: ANN401 - parsed JSON
    return (key_kind(key) is KeyKind.TOOLS and holds_objects(value)) or declares_tools(value)


@lru_cache(maxsize=4096)
def key_kind(key: str) -> KeyKind:
    """What a key's name says, whatever its spelling: ``systemPrompt`` and ``system-prompt`` are one."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key.strip()).replace("-", "_").replace(" ", "_")
    if len(snake) > 1:
        snake = snake.lower()
    if snake in _ANNOTATIONS:
        return KeyKind.ANNOTATION
    return next((of for of, pattern in _PATTERNS.items() if pattern.fullmatch(snake)), KeyKind.OTHER)


def held(row: Json, key: str) -> Json | None:
    """An object in a row, which may be JSON text; None where it is none."""
    value = row.get(key)
    found = _parsed(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else None


def declares_tools(value: Any, depth: int = 4) -> bool:  # noqa: ANN401 - parsed JSON
    """Whether a value is, or holds, a tool's declaration: a name with a schema of parameters."""
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and any(_is_schema(value.get(key)) for key in PARAMETERS):
            return True
        if any(holds_objects(value.get(key)) for key in DECLARATIONS):
            return True
        value = list(value.values())
    if not isinstance(value, list) or not depth:
        return False
    return any(declares_tools(item, depth - 1) for item in islice(value, _MOST_TEXTS) if isinstance(item, dict | list))


class Said:
    """The texts of messages, to look for others in them; made only once something is looked for."""

    def __init__(self, messages: Sequence[Json]) -> None:
        self._messages = messages
        self._all: str | None = None

    def has(self, value: Any) -> bool:  # noqa: ANN401 - parsed JSON
        """Whether every text and number of a value is in the messages, however it is wrapped."""
        found = list(islice(_texts(value), _MOST_TEXTS + 1))
        if found and isinstance(value, str) and not self._holds(found[0]):
            found = list(islice(_texts(_parsed(value)), _MOST_TEXTS + 1))
        return bool(found) and len(found) <= _MOST_TEXTS and all(self._holds(text) for text in found)

    def is_rendered_in(self, value: Any) -> bool:  # noqa: ANN401 - parsed JSON
        """Whether a value is the conversation once more, as a template wrote it."""
        if not isinstance(value, str) or not is_conversation(value):
            return False
        asked = "\n".join(message["content"] for message in self._messages if message["role"] == "user")
        return all(line.strip() in value for line in asked.splitlines())

    def _holds(self, text: str) -> bool:
        if len(text) > _WORD and any(text in message["content"] for message in self._messages):
            return True
        if self._all is None:
            self._all = _squeezed("\n".join(_spoken(self._messages)))
        wanted = _squeezed(text)
        if wanted not in self._all:
            return False
        # A short one must stand there by itself: many words are within others.
        return len(wanted) > _WORD or bool(re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", self._all))


def _spoken(messages: Sequence[Json]) -> Iterator[str]:
    for message in messages:
        yield message["content"]
        yield message.get("reasoning_content", "")
        for call in message.get("tool_calls", ()):
            yield call["function"]["name"]
            yield from _texts(call["function"]["arguments"])


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - parsed JSON
    if isinstance(value, str):
        yield from [value] if value.strip() else []
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from () if key in _SPEAKERS else _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _parsed(text: str) -> Any:  # noqa: ANN401 - parsed JSON
    """The list or object that a text is; None for any other text."""
    if len(text) > _MOST_JSON or not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def holds_objects(value: Any) -> bool:  # noqa: ANN401 - parsed JSON
    """Whether a value is an object or a list of them, maybe as JSON text."""
    found = _parsed(value) if isinstance(value, str) else value
    if isinstance(found, list):
        return any(holds_objects(item) for item in islice(found, _MOST_TEXTS))
    return isinstance(found, dict) and bool(found)


def _is_schema(value: Any) -> bool:  # noqa: ANN401 - parsed JSON
    found = _parsed(value) if isinstance(value, str) else value
    if not isinstance(found, dict):
        return False
    return "properties" in found or any(isinstance(item, dict) and "type" in item for item in found.values())
